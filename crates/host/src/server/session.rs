//! One client: who it is, what it has open, what it maps.

use crate::asker::Asker;
use crate::faults::service::Token;
use crate::faults::space::AddressSpace;
use crate::workers::Share;
use commonhold_object::wire::{Event, FromHost, Header, Reply, Request, encode};
use commonhold_object::{Access, Credentials, Error, ErrorKind, ObjectId, Result, SessionId};
use commonhold_sys::process::{self, Identity};
use commonhold_sys::socket::{self, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests of one client that may be under way at once.
pub const REQUESTS_AT_ONCE: u32 = 1024;

/// How long a worker waits for room in a client's socket.
const PATIENCE: Duration = Duration::from_secs(1);

/// A client of this host.
pub struct Session {
    /// Identity, past the death of hosts.
    pub id: SessionId,
    /// The kernel's word on who it is.
    pub credentials: Credentials,
    /// Its process; `start_ticks` is 0 where that cannot be seen (another pid namespace).
    pub process: Identity,
    /// Where messages go. Shared with the keeper.
    pub socket: Arc<OwnedFd>,
    /// Readable when the process has ended.
    pub pidfd: Option<Arc<OwnedFd>>,
    /// What it calls itself.
    pub program: Mutex<String>,
    /// Objects it has open.
    pub opened: Mutex<HashMap<ObjectId, Access>>,
    /// Objects of which it wants to hear once when their pages change.
    pub watched: Mutex<HashSet<ObjectId>>,
    /// Objects that it is being given: on its behalf their homes are looked for before it has them open.
    opening: Mutex<Vec<(ObjectId, Access)>>,
    /// Objects that the keeper was last told it has open; closed ones may be among them.
    pub kept: Mutex<HashMap<ObjectId, Access>>,
    /// Mappings of controlled objects.
    pub space: Arc<AddressSpace>,
    /// Tokens of the fault service.
    pub tokens: Mutex<Vec<Token>>,
    /// Somebody looks at faults of it at addresses that are not known.
    pub looking: AtomicBool,
    /// The other end of the socket is gone; the process may live on with its mappings, which are served still.
    pub hung_up: AtomicBool,
    /// It serves a pager since a moment ago: a thread of its own may read what it answers.
    pub begins_to_serve: AtomicBool,
    /// It comes back after the death of host and keeper, and has not said yet that this is all.
    pub bringing: AtomicBool,
    /// The session that it was before; 0: it is not known here.
    pub former: AtomicU64,
    /// The request with which it said so first; 0 if it did not.
    pub returned_by: AtomicU64,
    /// Objects that `live/clients` says it could bring back.
    pub noted: Mutex<HashSet<ObjectId>>,
    /// `live/clients` names it: that has to be written anew when it ends, also if it has nothing any more.
    pub listed: AtomicBool,
    /// For whom it is what it asks for.
    pub asker: Arc<Asker>,
    /// Its requests among the workers.
    pub share: Arc<Share>,
    /// Requests being worked on.
    pub busy: AtomicU32,
    /// Requests to close that a worker does. Those that came later come after them.
    closing: AtomicU32,
    /// Their numbers.
    answering: Mutex<HashSet<u64>>,
    /// The generation of this host process, if it took the session over; else 0.
    pub taken_over_by: u64,
    /// Numbers of requests that were for the host before, and were read by this one.
    passed_by: Mutex<HashSet<u64>>,
    /// Number for the next hold, in the vault.
    pub next_hold: AtomicU64,
}

/// What the next host must know of a session; its descriptors have keys of their own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedSession {
    /// Who.
    pub credentials: Credentials,
    /// Process number.
    pub pid: u32,
    /// Start time.
    pub start_ticks: u64,
    /// What it calls itself.
    pub program: String,
    /// What it has open.
    pub opened: Vec<(ObjectId, Access)>,
    /// It had not yet brought all it has.
    pub bringing: bool,
    /// The request with which it said first that it comes back; 0 if it did not.
    pub returned_by: u64,
}

/// A request to close that is not done yet.
pub struct Closes(Arc<Session>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.closing.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long a request waits for those before it to close something.
const CLOSES_WAIT: Duration = Duration::from_secs(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a client is told for which the host has no descriptor.
pub fn no_descriptor_left() -> Error {
    Error::new(
        ErrorKind::TooMany,
        "the host has as many files open as it may: end some clients, or start it with a higher limit (ulimit -n, \
         LimitNOFILE)",
    )
}

/// The last words to whoever does not become a client.
pub fn refuse(socket: &OwnedFd, error: Error) {
    let mut bytes = Vec::new();
    if encode(Header::of(0), &FromHost::Reply(Err(error)), &mut bytes).is_ok() {
        let _ = socket::send(socket, &bytes, &[], Wait::No);
    }
}

/// Until it is dropped the session is being given an object.
pub struct Opening<'s>(&'s Session, (ObjectId, Access));

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut opening = lock(&self.0.opening);
        if let Some(at) = opening.iter().position(|what| *what == self.1) {
            opening.swap_remove(at);
        }
    }
}

impl Session {
    /// It is being given an object.
    pub fn opens(&self, object: ObjectId, access: Access) -> Opening<'_> {
        lock(&self.opening).push((object, access));
        Opening(self, (object, access))
    }

    /// For what it has that object open, or is being given it.
    pub fn uses(&self, object: ObjectId) -> Option<Access> {
        // In this order: who has been given it is noted as having it open first.
        let opening = lock(&self.opening).clone();
        let given = opening.into_iter().filter(|(id, _)| *id == object).map(|(_, access)| access);
        given.chain(lock(&self.opened).get(&object).copied()).max_by_key(|access| access.writes())
    }

    /// A session over a connection just accepted.
    pub fn accept(id: SessionId, socket: Arc<OwnedFd>) -> Result<Session> {
        let failed = |what: &str, e: std::io::Error| Error::io(format!("asking who connects ({what})"), &e);
        let peer = socket::peer(&socket).map_err(|e| failed("credentials", e))?;
        let groups = socket::peer_groups(&socket).map_err(|e| failed("groups", e))?;
        // None where the process cannot be seen; but without room for another descriptor its end would go unnoticed.
        let pidfd = match socket::peer_pidfd(&socket).or_else(|_| process::pidfd(peer.pid)) {
            Err(e)
                if matches!(Errno::from_io_error(&e), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM)) =>
            {
                refuse(&socket, no_descriptor_left());
                return Err(failed("pidfd", e));
            }
            other => other.ok(),
        };
        let start_ticks = process::identity(peer.pid).map_or(0, |who| who.start_ticks);
        Ok(Session::new(
            id,
            Credentials { uid: peer.uid, gid: peer.gid, groups },
            Identity { pid: peer.pid, start_ticks },
            socket,
            pidfd.map(Arc::new),
        ))
    }

    /// A session from its parts.
    pub fn new(
        id: SessionId,
        credentials: Credentials,
        process: Identity,
        socket: Arc<OwnedFd>,
        pidfd: Option<Arc<OwnedFd>>,
    ) -> Session {
        Session {
            id,
            asker: Asker::new(credentials.uid),
            credentials,
            process,
            socket,
            pidfd,
            program: Mutex::default(),
            opened: Mutex::default(),
            opening: Mutex::default(),
            watched: Mutex::default(),
            kept: Mutex::default(),
            space: Arc::default(),
            tokens: Mutex::default(),
            looking: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            begins_to_serve: AtomicBool::new(false),
            bringing: AtomicBool::new(false),
            former: AtomicU64::new(0),
            returned_by: AtomicU64::new(0),
            noted: Mutex::default(),
            listed: AtomicBool::new(false),
            share: Arc::default(),
            busy: AtomicU32::new(0),
            next_hold: AtomicU64::new(0),
            closing: AtomicU32::new(0),
            answering: Mutex::default(),
            taken_over_by: 0,
            passed_by: Mutex::default(),
        }
    }

    /// What to keep of it.
    pub fn saved(&self) -> SavedSession {
        SavedSession {
            credentials: self.credentials.clone(),
            pid: self.process.pid,
            start_ticks: self.process.start_ticks,
            program: lock(&self.program).clone(),
            opened: lock(&self.opened).iter().map(|(id, access)| (*id, *access)).collect(),
            bringing: self.bringing.load(Ordering::Acquire),
            returned_by: self.returned_by.load(Ordering::Acquire),
        }
    }

    /// How it opened an object; an error if it did not.
    pub fn access(&self, object: ObjectId) -> Result<Access> {
        lock(&self.opened).get(&object).copied().ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("object {} is not open in this process: open it first", object.0),
            )
        })
    }

    /// Sends an answer. A client that does not read its answers loses its connection, nobody else notices.
    pub fn reply(&self, number: u64, reply: Result<Reply>, fds: &[BorrowedFd<'_>]) {
        self.send(Header::of(number), &FromHost::Reply(reply), fds, Duration::ZERO);
    }

    /// The same from a worker, who can wait a while for a client with many answers to read.
    pub fn reply_in_time(&self, number: u64, reply: Result<Reply>, fds: &[BorrowedFd<'_>]) {
        self.send(Header::of(number), &FromHost::Reply(reply), fds, PATIENCE);
    }

    /// Sends something unasked.
    pub fn tell(&self, event: Event) {
        self.send(Header::of(0), &FromHost::Event(event), &[], Duration::ZERO);
    }

    fn send(&self, header: Header, message: &FromHost, fds: &[BorrowedFd<'_>], patience: Duration) {
        let mut bytes = Vec::with_capacity(256);
        if encode(header, message, &mut bytes).is_err() {
            let too_long =
                Error::new(ErrorKind::TooMany, "the answer is too long for one message: ask for less");
            if encode(header, &FromHost::Reply(Err(too_long)), &mut bytes).is_err() {
                return;
            }
        }
        let until = Instant::now() + patience;
        let mut sent = socket::send(&*self.socket, &bytes, fds, Wait::No);
        while sent.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
            && Instant::now() < until
        {
            // Room for some message is not room for this one: look again, whatever poll would say.
            std::thread::sleep(Duration::from_millis(2));
            sent = socket::send(&*self.socket, &bytes, fds, Wait::No);
        }
        if sent.is_err() {
            self.hang_up();
        }
    }

    /// Whoever lives at the other end hears that nothing comes any more, and comes back with what it has.
    pub fn hang_up(&self) {
        // It fails where the other end has hung up: then it knows.
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }

    /// Whether it holds anything that must be served or kept.
    pub fn maps_something(&self) -> bool {
        !self.space.map.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether its client has hung up and left nothing behind: it ends as soon as the control thread comes to it.
    pub fn is_leaving(&self) -> bool {
        let mut polled = [PollFd::new(&*self.socket, PollFlags::empty())];
        let hung_up = matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1));
        let lives = self.pidfd.as_ref().is_some_and(|fd| !process::has_ended(&**fd));
        hung_up && !(lives && self.maps_something())
    }

    /// Counts a request that begins; refuses when too many are under way.
    pub fn begin(&self) -> Result<()> {
        if self.busy.fetch_add(1, Ordering::Relaxed) >= REQUESTS_AT_ONCE {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::new(
                ErrorKind::TooMany,
                format!(
                    "{REQUESTS_AT_ONCE} requests of this client are under way, the limit: wait for answers"
                ),
            ));
        }
        Ok(())
    }

    /// Counts a request that ended.
    pub fn end(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a request to close, which a worker is to do, until what this gives is dropped.
    pub fn closes(self: &Arc<Self>, request: &Request) -> Option<Closes> {
        matches!(request, Request::Close { .. }).then(|| {
            self.closing.fetch_add(1, Ordering::AcqRel);
            Closes(self.clone())
        })
    }

    /// Whether a worker has something of it to close.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire) > 0
    }

    /// Waits until that is closed: what is asked next relies on it. Not for long: a close may wait
    /// for other clients.
    pub fn wait_for_closes(&self) {
        let until = Instant::now() + CLOSES_WAIT;
        while self.is_closing() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Whether a request is to be worked on. One that is repeated while it is being worked on is not.
    pub fn is_new(&self, header: Header) -> bool {
        header.number == 0 || lock(&self.answering).insert(header.number) || !header.repeated
    }

    /// The request of that number was answered.
    pub fn answered(&self, number: u64) {
        lock(&self.answering).remove(&number);
    }

    /// The header of a request that is for this host process. What a client sent before it heard of a host that took over is not:
    /// what of it is not answered comes again, and would be done a second time, perhaps after what the client did next. That was
    /// passed by, no host has worked on: so when it comes again it is not repeated.
    pub fn for_this_host(&self, mut header: Header) -> Option<Header> {
        if header.number == 0 || self.taken_over_by == 0 {
            return Some(header);
        }
        let mut passed_by = lock(&self.passed_by);
        if header.generation == self.taken_over_by {
            header.repeated &= !passed_by.remove(&header.number);
            return Some(header);
        }
        if !header.repeated && passed_by.len() < REQUESTS_AT_ONCE as usize {
            passed_by.insert(header.number);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session that a host of that generation took over.
    fn taken_over_by(generation: u64) -> Session {
        let who = Credentials { uid: 1, gid: 1, groups: Vec::new() };
        let (socket, _) = socket::pair().unwrap();
        let mut session =
            Session::new(SessionId(1), who, Identity { pid: 1, start_ticks: 0 }, Arc::new(socket), None);
        session.taken_over_by = generation;
        session
    }

    fn header(number: u64, repeated: bool, generation: u64) -> Header {
        Header { number, repeated, generation }
    }

    #[test]
    fn only_what_was_sent_after_the_client_heard_of_this_host_is_for_it() {
        let session = taken_over_by(3);
        assert_eq!(session.for_this_host(header(5, true, 0)), None);
        assert_eq!(session.for_this_host(header(6, true, 2)), None);
        for repeated in [true, false] {
            assert_eq!(session.for_this_host(header(5, repeated, 3)), Some(header(5, repeated, 3)));
        }
        // Nobody sends again what has no number.
        assert_eq!(session.for_this_host(header(0, false, 0)), Some(header(0, false, 0)));
        let begun_here = taken_over_by(0);
        assert_eq!(begun_here.for_this_host(header(5, true, 0)), Some(header(5, true, 0)));
    }

    #[test]
    fn what_was_passed_by_was_done_by_no_host_before() {
        let session = taken_over_by(3);
        assert_eq!(session.for_this_host(header(5, false, 0)), None);
        assert_eq!(session.for_this_host(header(6, true, 2)), None);
        assert_eq!(session.for_this_host(header(5, true, 3)), Some(header(5, false, 3)));
        assert_eq!(session.for_this_host(header(6, true, 3)), Some(header(6, true, 3)));
        for number in 1..=2 * u64::from(REQUESTS_AT_ONCE) {
            assert_eq!(session.for_this_host(header(number, false, 0)), None);
        }
        assert_eq!(lock(&session.passed_by).len(), REQUESTS_AT_ONCE as usize);
    }
}
