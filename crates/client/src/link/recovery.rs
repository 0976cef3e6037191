//! Making a connection: the first, and the next after host and keeper both died.
//!
//! A process without controlled objects simply connects again. One with them is part of what the next host
//! needs: it says which session it was, gives back the frames of its objects, and registers each mapping
//! again, before any of its threads may use the new connection.

use super::dispatch::{last_words, set_timeouts};
use super::handshake::hello;
use super::{Greeting, Handshake, Hello, Shared, State, lock};
use crate::addresses::{self, Piece};
use crate::controlled::{self, Descriptors};
use crate::object::Core;
use crate::{ErrorKind, Result, complain, locate, start};
use commonhold_object::wire::{Header, Reply, Request, encode};
use commonhold_object::{Region, SessionId};
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::userfaultfd::Kind;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a request waits for a host before it fails.
const HOST_DEADLINE: Duration = Duration::from_secs(30);
/// Between two attempts.
const RETRY: Duration = Duration::from_millis(50);

/// A connection that nobody uses yet.
struct Fresh {
    socket: OwnedFd,
    hello: Hello,
    session: Option<SessionId>,
    kinds: Vec<(Kind, Arc<Descriptors>)>,
    objects: Vec<Arc<Core>>,
}

/// What a process brings along.
pub(crate) struct Belongings {
    objects: Vec<Arc<Core>>,
    pieces: Vec<Region<Piece>>,
}

impl Shared {
    /// Connects, unless there is a connection: one attempt, whose error says what to do.
    pub(super) fn ensure_connected(&'static self) -> Result<()> {
        loop {
            let mut state = lock(&self.state);
            if state.socket.is_some() {
                return Ok(());
            }
            if !state.recovering {
                state.recovering = true;
                break;
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(1));
        }
        let result = self.connect_once(None);
        self.settle(result).inspect_err(|_| lock(&self.state).wake_all())
    }

    /// Makes a new connection, within 30 s or until `deadline`; if there is none, everybody who waits for one
    /// fails. The caller has set `recovering`.
    pub(super) fn recover(&'static self, deadline: Option<Instant>) -> Result<()> {
        let limit = Instant::now() + HOST_DEADLINE;
        let limit = deadline.map_or(limit, |deadline| deadline.min(limit));
        loop {
            let result = self.connect_once(Some(limit));
            let passing = matches!(&result, Err(error) if error.kind == ErrorKind::Disconnected);
            if !passing || Instant::now() > limit {
                return self.settle(result).inspect_err(|error| lock(&self.state).give_up(error));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// One attempt, for the watcher: who waits goes on waiting if it fails. The caller has set `recovering`.
    pub(super) fn recover_once(&'static self) -> Result<()> {
        let result = self.connect_once(None);
        self.settle(result).inspect_err(|_| lock(&self.state).wake_all())
    }

    /// Puts a fresh connection in use.
    fn settle(&self, result: Result<Fresh>) -> Result<()> {
        let mut state = lock(&self.state);
        state.recovering = false;
        let mut fresh = result?;
        let objects = std::mem::take(&mut fresh.objects);
        state.put_in_use(fresh);
        objects.iter().for_each(|object| object.is_open_at(state.generation));
        // Dropping the last handle of an object takes other locks.
        drop(state);
        drop(objects);
        Ok(())
    }

    fn connect_once(&'static self, deadline: Option<Instant>) -> Result<Fresh> {
        let socket = if self.may_start.load(Ordering::Relaxed) {
            start::connect_or_start(&self.directory, deadline)?
        } else {
            locate::connect(&self.directory).map_err(|error| locate::no_host(&self.directory, &error))?
        };
        let belongings = self.belongings();
        if belongings.objects.is_empty() && belongings.pieces.is_empty() {
            return self.begin(socket);
        }
        let session = lock(&self.state).session;
        self.bring(socket, session, &belongings)
    }

    /// What is to be brought along to another host.
    fn belongings(&self) -> Belongings {
        let pieces = addresses::controlled_pieces(self);
        let objects = lock(&self.opens).belongings();
        Belongings { objects, pieces }
    }

    /// Says hello and does not wait for the answer: it comes before the next one.
    fn begin(&self, socket: OwnedFd) -> Result<Fresh> {
        set_timeouts(&socket)?;
        let number = self.next_number();
        let mut bytes = Vec::with_capacity(64);
        encode(Header { number, repeated: false }, &hello(), &mut bytes)?;
        let refused = |e| last_words(&socket).unwrap_or_else(|| locate::no_host(&self.directory, &e));
        socket::send(&socket, &bytes, &[], Wait::Yes).map_err(refused)?;
        Ok(Fresh {
            socket,
            hello: Hello::Asked(number),
            session: None,
            kinds: Vec::new(),
            objects: Vec::new(),
        })
    }

    /// Introduces the process with all it has. What the host refuses is lost, and only that.
    fn bring(&self, socket: OwnedFd, session: Option<SessionId>, belongings: &Belongings) -> Result<Fresh> {
        let mut talk = Handshake::new(socket, 1 << 62)?;
        let greeting = talk.greet()?;
        let mut now = greeting.reply.session;
        if let Some(session) = session
            && let Ok((reply, _)) = talk.ask(&Request::Return { session }, &[], true)?
        {
            now = if let Reply::Hello(again) = reply { again.session } else { now };
        }
        let objects = Self::bring_objects(&mut talk, &belongings.objects)?;
        let kinds = self.bring_mappings(&mut talk, &greeting, &belongings.pieces)?;
        if let Some(session) = session {
            // Said again: this was all. Whoever waits for this process's pages may go on.
            let _ = talk.ask(&Request::Return { session }, &[], true)?;
        }
        Ok(Fresh { socket: talk.socket, hello: Hello::Known(greeting), session: Some(now), kinds, objects })
    }

    /// Gives those that the host took. It keeps one access for each object of a session, that of the last word:
    /// so writers come last.
    fn bring_objects(talk: &mut Handshake, all: &[Arc<Core>]) -> Result<Vec<Arc<Core>>> {
        let mut taken = Vec::with_capacity(all.len());
        let (writers, readers): (Vec<_>, Vec<_>) = all.iter().partition(|object| object.access().writes());
        for object in readers.into_iter().chain(writers) {
            let request = Request::Reattach { object: object.id(), access: object.access() };
            match talk.ask(&request, &[object.fd().as_fd()], true)? {
                Ok(_) => taken.push(object.clone()),
                Err(error) if object.is_controlled() => {
                    complain(&format!("object {} was refused by the next host: {error}", object.label()));
                }
                Err(_) => {}
            }
        }
        Ok(taken)
    }

    fn bring_mappings(
        &self,
        talk: &mut Handshake,
        greeting: &Greeting,
        pieces: &[Region<Piece>],
    ) -> Result<Vec<(Kind, Arc<Descriptors>)>> {
        let mut kinds: Vec<(Kind, Arc<Descriptors>)> = Vec::new();
        let mut named = HashSet::new();
        for piece in pieces {
            let kind = piece.value.kind();
            let known = kinds.iter().any(|(sent, _)| *sent == kind);
            let descriptors = lock(&self.state).kinds.get_or_create(kind, greeting.device.as_deref())?;
            let mut request = controlled::map_request(piece);
            request.with_descriptors = !known;
            if !named.insert(request.mapping) {
                // The rest of a mapping that was split: another mapping, to a host that saw no split.
                request.mapping = self.next_mapping();
            }
            let mut fds = if known { vec![] } else { descriptors.to_send() };
            fds.extend(controlled::claims_of(piece));
            match talk.ask(&Request::Map(request), &fds, true)? {
                Ok(_) if known => {}
                Ok(_) => kinds.push((kind, descriptors)),
                Err(error) => {
                    let name = piece.value.object().label();
                    complain(&format!(
                        "a mapping of {name} was refused by the next host, and is lost: {error}"
                    ));
                    addresses::bury(piece);
                }
            }
        }
        Ok(kinds)
    }

    /// In a fork child: connects and brings the mappings along, as a session of its own.
    pub(crate) fn bring_to_new_session(&'static self, pieces: Vec<Region<Piece>>) -> Result<()> {
        let result = locate::connect(&self.directory)
            .map_err(|error| locate::no_host(&self.directory, &error))
            .and_then(|socket| {
                let objects = lock(&self.opens).belongings();
                self.bring(socket, None, &Belongings { objects, pieces })
            });
        self.settle(result)
    }
}

impl State {
    fn put_in_use(&mut self, fresh: Fresh) {
        self.socket = Some(Arc::new(fresh.socket));
        self.hello = fresh.hello;
        if fresh.session.is_some() {
            self.session = fresh.session;
        }
        for (kind, descriptors) in fresh.kinds {
            self.kinds.introduced(kind, &descriptors);
        }
        self.wake_all();
    }

    fn wake_all(&mut self) {
        self.pending.values_mut().for_each(|pending| pending.repeat());
    }

    /// Says hello again to a host process that took over before it answered.
    pub(super) fn greet_again(&self) {
        let (Some(socket), Hello::Asked(number)) = (&self.socket, &self.hello) else { return };
        let mut bytes = Vec::with_capacity(64);
        if encode(Header { number: *number, repeated: true }, &hello(), &mut bytes).is_ok() {
            let _ = socket::send(socket, &bytes, &[], Wait::No);
        }
    }

    /// What the host said of itself, once it has.
    pub(crate) fn greeting(&self) -> Option<Greeting> {
        match &self.hello {
            Hello::Known(greeting) => Some(greeting.clone()),
            _ => None,
        }
    }
}
