//! A conversation with one process of another host. It outlives its connections: what the other end has not
//! acknowledged is kept, and sent again by the next connection. So every message arrives once and in order, or the
//! session is over and its handler is told so.

use crate::channel::lock;
use crate::frame::{Header, Kind};
use crate::handler::Handler;
use crate::hello::Hello;
use crate::link::Link;
use crate::retained::Retained;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most bytes that wait for a peer to acknowledge them. One message more may be added to less.
pub const RETAINED_BYTES: usize = 64 << 20;
/// So many messages, or bytes, are acknowledged at once if nothing is sent that could say so.
const OWED_MESSAGES: u64 = 64;
const OWED_BYTES: usize = 256 << 10;

/// A session.
pub struct Session {
    /// Who is at the other end.
    pub hello: Hello,
    /// The number both ends know it by.
    pub id: u64,
    handler: Arc<dyn Handler>,
    state: Mutex<State>,
    told: Condvar,
    /// Messages that were sent.
    sent: AtomicU64,
    /// Those of them that the other end has received, as far as it said. Who reads stores it without `state`, because
    /// who sends holds that while it writes, and the answer may come before the write returns.
    acknowledged: AtomicU64,
    /// Messages of the other end that the handler has had.
    received: AtomicU64,
    /// Those of them that the other end was told of.
    said: AtomicU64,
}

#[derive(Default)]
struct State {
    retained: Retained,
    /// What is sent goes this way at once; if there is none it waits.
    link: Option<Arc<Link>>,
    /// The thread of a connection is there to tell the handler what becomes of it.
    watched: bool,
    /// Why it is over.
    ended: Option<Error>,
    /// The handler has heard that it is over.
    told: bool,
}

/// What a connection's reader owes the other end.
#[derive(Default)]
pub struct Owed {
    said: u64,
    bytes: usize,
}

impl Session {
    /// Of two processes that have not spoken.
    pub fn new(hello: Hello, id: u64, handler: Arc<dyn Handler>) -> Arc<Session> {
        Arc::new(Session {
            hello,
            id,
            handler,
            state: Mutex::default(),
            told: Condvar::new(),
            sent: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            received: AtomicU64::new(0),
            said: AtomicU64::new(0),
        })
    }

    /// Who hears of it.
    pub fn handler(&self) -> &dyn Handler {
        &*self.handler
    }

    /// Whether it goes on.
    pub fn is_open(&self) -> bool {
        lock(&self.state).ended.is_none()
    }

    /// Whether it is with that very process.
    pub fn is_with(&self, hello: &Hello) -> bool {
        self.hello.incarnation == hello.incarnation && self.hello.name == hello.name
    }

    /// How many messages of the other end the handler has had. Final when its last connection is over.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// Sends a message, or keeps it until there is a connection. It may take the payload's buffer. An error means that the
    /// session is over, or that there is no such message; then the payload stays.
    pub fn send(self: &Arc<Self>, message: &[u8], payload: &mut Vec<u8>) -> Result<()> {
        let header = Header::new(Kind::Message, message.len(), payload.len())?;
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            let words = format!("{} is not connected", self.hello.who());
            return Err(Error::new(ErrorKind::Disconnected, words));
        }
        state.retained.acknowledge(self.acknowledged.load(Ordering::Acquire));
        let waiting = state.retained.bytes();
        if waiting > RETAINED_BYTES {
            drop(state);
            return Err(self.over(Error::new(
                ErrorKind::TooMany,
                format!("the peer does not read: {waiting} bytes wait for it, the limit is {RETAINED_BYTES}"),
            )));
        }
        let header = self.say_received(header).encode();
        self.sent.fetch_add(1, Ordering::Release);
        if let Some(link) = &state.link {
            link.write(&[&header[..], message, payload]);
        }
        // It is on its way already.
        state.retained.push(&[&header[..], message], payload);
        Ok(())
    }

    /// What every frame says beside its own.
    fn say_received(&self, header: Header) -> Header {
        let received = self.received();
        self.said.store(received, Ordering::Relaxed);
        Header { received, ..header }
    }

    /// The other end has received so many messages. An error is its fault.
    pub fn acknowledge(&self, number: u64) -> Result<()> {
        self.check_acknowledged(number)?;
        let before = self.acknowledged.fetch_max(number, Ordering::AcqRel);
        if number > before
            && let Ok(mut state) = self.state.try_lock()
        {
            state.retained.acknowledge(number);
        }
        Ok(())
    }

    fn check_acknowledged(&self, number: u64) -> Result<()> {
        let sent = self.sent.load(Ordering::Acquire);
        if number > sent {
            let words = format!("it acknowledges {number} messages, and {sent} were sent");
            return Err(Error::new(ErrorKind::Protocol, words));
        }
        Ok(())
    }

    /// Whether it can go on with an end that says to have received so many. `Busy`: that was so when it said it, and it has
    /// received more by the connection before since. Who says so for ever is not gone on with.
    pub fn check_received(&self, number: u64) -> Result<()> {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        if number < acknowledged {
            let words =
                format!("it has acknowledged {acknowledged} messages, and knows of {number}: try again");
            return Err(Error::new(ErrorKind::Busy, words));
        }
        self.check_acknowledged(number)
    }

    /// The handler has had a message of so many bytes.
    pub fn has_received(&self, owed: &mut Owed, bytes: usize) {
        let received = self.received.fetch_add(1, Ordering::AcqRel) + 1;
        let said = self.said.load(Ordering::Relaxed);
        if said != owed.said {
            *owed = Owed { said, bytes: 0 };
        }
        owed.bytes += bytes;
        if received - said >= OWED_MESSAGES || owed.bytes >= OWED_BYTES {
            self.tell_received();
        }
    }

    /// Acknowledges what is not acknowledged yet.
    pub fn tell_received(&self) {
        if self.said.load(Ordering::Relaxed) < self.received() {
            self.write_alone(&lock(&self.state), Kind::Acknowledgement, &[]);
        }
    }

    /// Sends something that is no message of the session.
    fn write_alone(&self, state: &State, kind: Kind, words: &[u8]) {
        let Ok(header) = Header::new(kind, words.len(), 0) else { return };
        if let Some(link) = &state.link {
            link.write(&[&self.say_received(header).encode(), words]);
        }
    }

    /// Goes on by a new connection with an end that has received so many messages: what is missing is sent first.
    pub fn attach(&self, link: &Arc<Link>, their_received: u64) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(why) = &state.ended {
            return Err(why.clone());
        }
        self.acknowledged.fetch_max(their_received, Ordering::AcqRel);
        state.retained.acknowledge(their_received);
        link.write(&state.retained.slices());
        state.link = Some(link.clone());
        state.watched = true;
        Ok(())
    }

    /// A connection is over: on its own thread.
    pub fn detach(&self, why: &Error) {
        let mut state = lock(&self.state);
        state.link = None;
        if state.ended.is_none() {
            drop(state);
            // A handler that panics here has nobody left to tell.
            let broken = || self.handler.broken(self.hello.host, self.hello.incarnation, why);
            let _ = catch_unwind(AssertUnwindSafe(broken));
            state = lock(&self.state);
        }
        state.watched = false;
        if state.ended.is_some() {
            self.tell(state);
        }
    }

    /// The handler hears that it is over, once.
    fn tell(&self, state: MutexGuard<'_, State>) {
        let Some(why) = state.ended.clone() else { return };
        drop(state);
        let lost = || self.handler.lost(self.hello.host, self.hello.incarnation, &why);
        let _ = catch_unwind(AssertUnwindSafe(lost));
        lock(&self.state).told = true;
        self.told.notify_all();
    }

    /// Ends it; the first reason is the one that is told, and given back. The handler hears of it on another thread.
    pub fn over(self: &Arc<Self>, why: Error) -> Error {
        self.end(why, None)
    }

    fn end(self: &Arc<Self>, why: Error, goodbye: Option<&str>) -> Error {
        let mut state = lock(&self.state);
        if let Some(ended) = &state.ended {
            return ended.clone();
        }
        let told = Error::new(why.kind, format!("{}: {}", self.hello.who(), why.message));
        state.ended = Some(told.clone());
        state.retained = Retained::default();
        // After the reason is known: the peer may hear of it, and close its end, before this thread goes on.
        if let Some(words) = goodbye {
            self.write_alone(&state, Kind::Goodbye, words.as_bytes());
        }
        let link = state.link.take();
        let watched = state.watched;
        drop(state);
        if let Some(link) = link {
            link.fail(why);
        }
        if !watched {
            let this = self.clone();
            let telling = std::thread::Builder::new().name(format!("peer-{}-over", self.hello.host.0));
            if points::thread(|| telling.spawn(move || this.tell(lock(&this.state)))).is_err() {
                self.tell(lock(&self.state));
            }
        }
        told
    }

    /// Ends it, and tells the other end why.
    pub fn dismiss(self: &Arc<Self>, why: &str) {
        let end = (0..=why.len().min(1024)).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
        let words = format!("disconnected here: {why}");
        self.end(Error::new(ErrorKind::Disconnected, words), Some(&why[..end]));
    }

    /// Waits until the handler has heard that it is over; false if that takes longer.
    pub fn wait_told(&self, longest: Duration) -> bool {
        let told = self.told.wait_timeout_while(lock(&self.state), longest, |state| !state.told);
        told.unwrap_or_else(PoisonError::into_inner).0.told
    }
}
