//! One connection with one host: two threads, and how it ends.

use crate::channel::{Stream, lock};
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::inbound::{Inbound, Payload};
use crate::out::Out;
use crate::session::{Owed, Session};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use commonhold_sys::slice;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, SystemTime};

/// As much as is told of why the other end ended a session, bytes.
const LONGEST_REASON: usize = 1024;

/// A connection.
pub struct Link {
    /// Socket and encryption.
    pub stream: Stream,
    /// Whose messages it carries.
    pub session: Arc<Session>,
    /// The number both ends know it by.
    pub id: u64,
    /// Which end began it.
    pub begun_by_peer: bool,
    /// Until when the other end's certificate is good.
    good_until: Option<SystemTime>,
    out: Out,
    live: AtomicBool,
    why: Mutex<Option<Error>>,
    reader: Mutex<Option<ThreadId>>,
    over: Mutex<bool>,
    over_wake: Condvar,
}

impl Link {
    /// A connection whose threads are not started yet; it can be written to.
    pub fn new(
        stream: Stream,
        session: Arc<Session>,
        id: u64,
        begun_by_peer: bool,
        good_until: Option<SystemTime>,
    ) -> Arc<Link> {
        Arc::new(Link {
            stream,
            session,
            id,
            begun_by_peer,
            good_until,
            out: Out::default(),
            live: AtomicBool::new(true),
            why: Mutex::default(),
            reader: Mutex::default(),
            over: Mutex::default(),
            over_wake: Condvar::new(),
        })
    }

    /// Whether nothing is known to be wrong with it.
    pub fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Whether this is the thread on which the handler hears of this connection.
    pub fn is_own_thread(&self) -> bool {
        *lock(&self.reader) == Some(thread::current().id())
    }

    /// Writes, or queues. A connection that cannot be written to is broken.
    pub fn write(&self, slices: &[&[u8]]) {
        if let Err(error) = self.out.send(&self.stream, slices) {
            self.fail(error);
        }
    }

    /// Sends what TLS has to say.
    pub fn flush_tls(&self) {
        if let Err(error) = self.out.flush_tls(&self.stream) {
            self.fail(error);
        }
    }

    /// Ends it: the first reason is the one that is told. The reader thread tells the handler. Its session goes on.
    pub fn fail(&self, why: Error) {
        let mut told = lock(&self.why);
        if told.is_none() {
            *told = Some(Error::new(why.kind, format!("{}: {}", self.session.hello.who(), why.message)));
        }
        drop(told);
        self.live.store(false, Ordering::Release);
        self.out.close();
        // Wakes both threads; what was written before is still delivered.
        let _ = self.stream.socket.shutdown(Shutdown::Both);
    }

    /// Why it ended.
    fn why(&self) -> Error {
        let ended = || {
            Error::new(
                ErrorKind::Disconnected,
                format!("{}: the connection has ended", self.session.hello.who()),
            )
        };
        lock(&self.why).clone().unwrap_or_else(ended)
    }

    /// Starts its threads; `end` is called last on the reading one, after the handler heard of what became of it.
    pub fn start(self: &Arc<Self>, end: impl FnOnce(&Arc<Link>) + Send + 'static) -> Result<()> {
        let name = format!("peer-{}", self.session.hello.host.0);
        let this = self.clone();
        let writer = thread::Builder::new().name(format!("{name}-out")).stack_size(128 << 10);
        let writer = points::thread(|| {
            writer.spawn(move || {
                if let Err(error) = this.out.run_writer(&this.stream.socket) {
                    this.fail(error);
                }
            })
        });
        writer.doing("starting a connection's writing thread")?;
        let this = self.clone();
        let reader = points::thread(|| {
            thread::Builder::new().name(name).spawn(move || {
                *lock(&this.reader) = Some(thread::current().id());
                // Whoever waits for a message waits for this thread; without it that takes longer, no more.
                let _ = slice::ask_for_short();
                match catch_unwind(AssertUnwindSafe(|| this.read())) {
                    Ok(Stop::Broken(why)) => this.fail(why),
                    Ok(Stop::Over(why)) => drop(this.session.over(why)),
                    Err(_) => {
                        let words = "a message could not be dealt with: the handler panicked";
                        this.session.over(Error::new(ErrorKind::Io, words));
                    }
                }
                this.is_over(end);
            })
        });
        reader.map(drop).doing("starting a connection's reading thread")
    }

    /// Nobody reads it any more: the handler hears what became of it.
    pub fn is_over(self: &Arc<Self>, end: impl FnOnce(&Arc<Link>)) {
        self.session.detach(&self.why());
        end(self);
        *lock(&self.over) = true;
        self.over_wake.notify_all();
    }

    /// Waits until the handler has heard of its end; false if that takes longer.
    pub fn wait_over(&self, longest: Duration) -> bool {
        let over = self.over_wake.wait_timeout_while(lock(&self.over), longest, |over| !*over);
        *over.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads messages until something is wrong.
    fn read(self: &Arc<Self>) -> Stop {
        match self.read_on() {
            Ok(()) => Stop::Broken(Error::new(ErrorKind::Disconnected, "the connection has ended")),
            Err(stop) => stop,
        }
    }

    fn read_on(self: &Arc<Self>) -> std::result::Result<(), Stop> {
        let session = &self.session;
        let mut inbound = Inbound::new(self.clone());
        let (mut message, mut owed) = (Vec::new(), Owed::default());
        let mut header = [0; HEADER_BYTES];
        while self.is_live() {
            inbound.between_messages();
            inbound.read_exact(&mut header)?;
            let header = Header::decode(&header).map_err(Stop::Over)?;
            if self.good_until.is_some_and(|end| SystemTime::now() > end) {
                let words =
                    "its certificate has expired while it was connected: `commonhold ca issue --renew`";
                return Err(Stop::Over(Error::new(ErrorKind::Permission, words)));
            }
            session.acknowledge(header.received).map_err(Stop::Over)?;
            message.resize(header.message_bytes, 0);
            inbound.read_exact(&mut message)?;
            match header.kind {
                Kind::Acknowledgement => {}
                Kind::Goodbye => {
                    let words = format!(
                        "it ended the connection: {}",
                        String::from_utf8_lossy(&message[..message.len().min(LONGEST_REASON)])
                    );
                    return Err(Stop::Over(Error::new(ErrorKind::Disconnected, words)));
                }
                Kind::Message if self.is_live() => {
                    let bytes = header.message_bytes + header.payload_bytes;
                    let had = || session.has_received(&mut owed, bytes);
                    let with = |payload: &mut Payload<'_>| {
                        session.handler().received(session.hello.host, &message, payload);
                    };
                    inbound.payload(header.payload_bytes, with, had)?;
                }
                Kind::Message => {}
            }
        }
        Ok(())
    }
}

/// Why nothing more is read.
enum Stop {
    /// The connection's fault: the session goes on by another one.
    Broken(Error),
    /// The peer's: who sends that is not spoken with any more.
    Over(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Broken(error)
    }
}
