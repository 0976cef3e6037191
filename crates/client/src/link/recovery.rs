//! Making a connection: the first, and the next after host and keeper both died.
//!
//! A process without controlled objects simply connects again. One with them is part of what the next host
//! needs: it says which session it was, gives back the frames of its objects, and registers each mapping
//! again, before any of its threads may use the new connection.

use super::dispatch::{last_words, set_timeouts};
use super::failed::Failed;
use super::handshake::hello;
use super::{Greeting, Guard, Handshake, Hello, Shared, State, lock};
use crate::addresses::{self, Piece};
use crate::controlled::{self, Descriptors};
use crate::object::Core;
use crate::{Error, ErrorKind, Result, complain, locate, start, wired};
use commonhold_object::wire::{Header, Reply, Request, encode};
use commonhold_object::{EntryInfo, Region, SessionId};
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::userfaultfd::Kind;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a request waits for the next host, after one that died, before it fails.
pub(super) const HOST_DEADLINE: Duration = Duration::from_secs(30);
/// Between two attempts.
const RETRY: Duration = Duration::from_millis(50);
/// For so long after a host could not be started, no thread tries it again: each would wait as long as the first.
const START_PAUSE: Duration = Duration::from_secs(1);

/// For how long a host may refuse something that its disk or a limit keeps it from.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// A connection that nobody uses yet.
struct Fresh {
    guard: Guard,
    /// See [`State::host`].
    host: u64,
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
        self.settle(result).map_err(|failed| {
            lock(&self.state).wake_all();
            failed.error
        })
    }

    /// Makes a new connection, within 30 s or until `deadline`; if there is none, or it is certain that none will come,
    /// everybody who waits for one fails. The caller has set `recovering`.
    pub(super) fn recover(&'static self, deadline: Option<Instant>) -> Result<()> {
        let limit = Instant::now() + HOST_DEADLINE;
        self.recover_until(deadline.map_or(limit, |deadline| deadline.min(limit)))
    }

    fn recover_until(&'static self, limit: Instant) -> Result<()> {
        let begun = Instant::now();
        loop {
            let result = self.connect_once(Some(limit));
            let passing = matches!(&result, Err(failed) if !failed.for_good);
            if !passing || Instant::now() > limit {
                return self.settle(result).map_err(|failed| {
                    let error = failed.after(begun.elapsed());
                    lock(&self.state).give_up(&error);
                    error
                });
            }
            std::thread::sleep(RETRY);
        }
    }

    /// One attempt, for the watcher: who waits goes on waiting if it fails. The caller has set `recovering`.
    pub(super) fn recover_once(&'static self) -> std::result::Result<(), Failed> {
        let result = self.connect_once(None);
        self.settle(result).inspect_err(|_| lock(&self.state).wake_all())
    }

    /// Puts a fresh connection in use.
    fn settle(&self, result: std::result::Result<Fresh, Failed>) -> std::result::Result<(), Failed> {
        let mut state = lock(&self.state);
        state.recovering = false;
        let mut fresh = result?;
        state.refused_since = None;
        let objects = std::mem::take(&mut fresh.objects);
        let guard = state.put_in_use(fresh);
        objects.iter().for_each(|object| object.is_open_at(state.generation));
        // Dropping the last handle of an object takes other locks, and dropping the guard this one.
        drop(state);
        drop((objects, guard));
        Ok(())
    }

    fn connect_once(&'static self, deadline: Option<Instant>) -> std::result::Result<Fresh, Failed> {
        let mut state = lock(&self.state);
        if state.unheard.take_long() {
            let place = self.directory.display();
            let what = format!("the host in {place} ends every connection without a word: see {place}/log");
            return Err(Failed::for_good(Error::new(ErrorKind::Disconnected, what)));
        }
        let pause = state.unheard.is_under_way();
        drop(state);
        if pause {
            std::thread::sleep(RETRY); // not as fast as connections can be made
        }
        let socket = if self.may_start.load(Ordering::Relaxed) {
            self.connect_or_start(deadline)?
        } else {
            locate::connect(&self.directory).map_err(|error| self.explain(&error))?
        };
        let guard = Guard::new(self, socket);
        let belongings = self.belongings();
        let session = lock(&self.state).session;
        // A host that knows the session from the one before may wait for it: who has nothing any more says so too.
        if belongings.objects.is_empty() && belongings.pieces.is_empty() && session.is_none() {
            return Ok(self.begin(guard)?);
        }
        Ok(self.bring(guard, session, &belongings)?)
    }

    /// Where no host answers, who may start one does not wait for another to do it.
    fn connect_or_start(&self, deadline: Option<Instant>) -> std::result::Result<OwnedFd, Failed> {
        let failed = lock(&self.state).start_failed.clone();
        if let Some((_, error)) = failed.filter(|(at, _)| at.elapsed() < START_PAUSE) {
            return locate::connect(&self.directory).map_err(|_| Failed::for_good(error));
        }
        let result = start::connect_or_start(&self.directory, deadline);
        lock(&self.state).start_failed = result.as_ref().err().map(|error| (Instant::now(), error.clone()));
        result.map_err(Failed::for_good)
    }

    /// Whether the host died, and the next one is on its way, or was stopped.
    fn explain(&self, error: &std::io::Error) -> Failed {
        if locate::was_stopped(error) {
            return Failed::for_good(locate::stopped(&self.directory));
        }
        locate::no_host(&self.directory, error).into()
    }

    /// What is to be brought along to another host.
    fn belongings(&self) -> Belongings {
        let pieces = addresses::controlled_pieces(self);
        let objects = lock(&self.opens).belongings();
        Belongings { objects, pieces }
    }

    /// Says hello and does not wait for the answer: it comes before the next one.
    fn begin(&self, guard: Guard) -> Result<Fresh> {
        let socket = guard.socket();
        set_timeouts(socket)?;
        let number = self.next_number();
        let mut bytes = Vec::with_capacity(64);
        encode(Header::of(number), &hello(), &mut bytes)?;
        let refused = |e| last_words(socket).unwrap_or_else(|| locate::no_host(&self.directory, &e));
        socket::send(socket, &bytes, &[], Wait::Yes).map_err(refused)?;
        let hello = Hello::Asked(number);
        Ok(Fresh { guard, host: 0, hello, session: None, kinds: Vec::new(), objects: Vec::new() })
    }

    /// Introduces the process with all it has. What the host refuses is lost, and only that.
    fn bring(&self, guard: Guard, session: Option<SessionId>, belongings: &Belongings) -> Result<Fresh> {
        let mut talk = Handshake::new(guard.socket().clone(), 1 << 62)?;
        let greeting = talk.greet()?;
        let mut now = greeting.reply.session;
        // The host serves the mappings of a session until it hears of the one that follows. Of one that ends
        // before it was all brought it would never hear: two sessions would have the same mappings.
        lock(&self.state).begun.push(now);
        if let Some(session) = session
            && let Ok((reply, _)) = talk.ask(&Request::Return { session }, &[], true)?
        {
            now = if let Reply::Hello(again) = reply { again.session } else { now };
        }
        let objects = self.bring_objects(&mut talk, &belongings.objects)?;
        let objects = self.only_unmoved(&mut talk, objects)?;
        let kinds = self.bring_mappings(&mut talk, &greeting, &belongings.pieces)?;
        if let Some(session) = session {
            // Said again: this was all. Whoever waits for this process's pages may go on.
            let _ = talk.ask(&Request::Return { session }, &[], true)?;
            let begun = lock(&self.state).begun.clone();
            for session in begun.into_iter().filter(|begun| *begun != now) {
                let _ = talk.ask(&Request::Return { session }, &[], true)?;
            }
        }
        let hello = Hello::Known(greeting);
        Ok(Fresh { guard, host: talk.host, hello, session: Some(now), kinds, objects })
    }

    /// Whether a host refuses for a reason that may pass. Then nothing is given up, and the next attempt brings all of it again:
    /// for lack of memory or disk as long as that lasts, for others for a while.
    fn is_for_now(&self, error: &Error) -> bool {
        if error.kind == ErrorKind::NoSpace {
            return true;
        }
        let passes =
            matches!(error.kind, ErrorKind::Io | ErrorKind::Busy | ErrorKind::TooMany | ErrorKind::TimedOut);
        passes && lock(&self.state).refused_since.get_or_insert_with(Instant::now).elapsed() < REFUSED_FOR
    }

    /// Gives those that the host took. It keeps one access for each object of a session, that of the last word:
    /// so writers come last.
    fn bring_objects(&self, talk: &mut Handshake, all: &[Arc<Core>]) -> Result<Vec<Arc<Core>>> {
        let mut taken = Vec::with_capacity(all.len());
        let (writers, readers): (Vec<_>, Vec<_>) = all.iter().partition(|object| object.access().writes());
        for object in readers.into_iter().chain(writers) {
            let request = Request::Reattach { object: object.id(), access: object.access() };
            let lies = object.movable().map(|movable| movable.lay());
            let memory = match &lies {
                None => object.given().as_fd(),
                Some(Some(lies)) => lies.memory.as_fd(),
                Some(None) => continue, // nothing of it was used here
            };
            match talk.ask(&request, &[memory], true)? {
                Ok(_) => taken.push(object.clone()),
                Err(error) if self.is_for_now(&error) => return Err(error),
                Err(error) if object.is_controlled() => {
                    complain(&format!("object {} was refused by the next host: {error}", object.label()));
                }
                // Its place is another's as soon as somebody needs it.
                Err(error) if object.place().is_some() => {
                    self.give_arena_up(object, &format!("was refused by the next host: {error}"));
                }
                // Of what may move nothing is used here unless it has a place.
                Err(error) if object.options().is_fetched() && object.movable().is_none() => {
                    complain(&format!("wired object {} is another by now: {error}", object.label()));
                }
                Err(_) => {}
            }
        }
        Ok(taken)
    }

    /// Wired objects that lie where they did. While no host knew of this process, others may have been given the place.
    fn only_unmoved(&self, talk: &mut Handshake, all: Vec<Arc<Core>>) -> Result<Vec<Arc<Core>>> {
        let mut unmoved = Vec::with_capacity(all.len());
        for object in all {
            if object.place().is_some() {
                let reply = talk.ask(&Request::StatObject { object: object.id() }, &[], true)?;
                let now = match reply {
                    Ok((Reply::Entry(entry), _)) => match *entry {
                        EntryInfo::Object(info) => info.place,
                        EntryInfo::Directory { .. } => None,
                    },
                    _ => None,
                };
                if now != object.place() {
                    self.give_arena_up(&object, "was moved while no host knew of this process");
                    continue;
                }
            }
            unmoved.push(object);
        }
        Ok(unmoved)
    }

    fn give_arena_up(&self, object: &Core, why: &str) {
        let name = object.label();
        complain(&format!("wired object {name} {why}; its arena is not mapped any more"));
        wired::bury(self, |other| std::ptr::eq(other, object));
        object.movable().iter().for_each(|movable| movable.lose(why));
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
                Err(error) if self.is_for_now(&error) => return Err(error),
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
        let result =
            locate::connect(&self.directory).map_err(|error| self.explain(&error)).and_then(|socket| {
                let objects = lock(&self.opens).belongings();
                Ok(self.bring(Guard::new(self, socket), None, &Belongings { objects, pieces })?)
            });
        self.settle(result).map_err(|failed| failed.error)
    }
}

impl State {
    fn put_in_use(&mut self, fresh: Fresh) -> Guard {
        self.socket = Some(fresh.guard.socket().clone());
        self.host = fresh.host;
        self.is_to_say_what_may_move();
        self.hello = fresh.hello;
        if let Hello::Known(_) = self.hello {
            self.unheard.heard();
        }
        if fresh.session.is_some() {
            self.session = fresh.session;
            self.begun.clear();
        }
        for (kind, descriptors) in fresh.kinds {
            self.kinds.introduced(kind, &descriptors);
        }
        self.wake_all();
        self.watcher.iter().for_each(|watcher| super::watcher::wake(watcher));
        fresh.guard
    }

    fn wake_all(&mut self) {
        self.pending.values_mut().for_each(|pending| pending.repeat());
    }

    /// Says hello again to a host process that took over before it answered.
    pub(super) fn greet_again(&self) {
        let (Some(socket), Hello::Asked(number)) = (&self.socket, &self.hello) else { return };
        let mut bytes = Vec::with_capacity(64);
        if encode(Header { number: *number, repeated: true, generation: self.host }, &hello(), &mut bytes)
            .is_ok()
        {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_a_host_that_died_a_request_waits_until_the_limit_and_is_told_so() {
        let directory = std::env::temp_dir().join(format!("commonhold-limit-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // The socket of a host that died: the file is there, and nobody listens.
        drop(socket::listen(&directory, locate::SOCKET_NAME, 1).unwrap());
        let shared = Shared::of(&directory);
        let begun = Instant::now();
        let error = shared.recover_until(begun + Duration::from_millis(300)).unwrap_err();
        assert!(begun.elapsed() >= Duration::from_millis(300));
        assert_eq!(error.kind, ErrorKind::Disconnected);
        assert!(error.message.contains("no host answers in") && error.message.contains("waited"), "{error}");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
