//! One connection with one host: two threads, and how it ends.

use crate::certificate::PeerRights;
use crate::channel::{Stream, lock};
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::handler::Handler;
use crate::hello::Hello;
use crate::inbound::Inbound;
use crate::out::Out;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_sys::slice;
use std::io::IoSlice;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// A connection.
pub struct Link {
    /// Socket and encryption.
    pub stream: Stream,
    /// Who is at the other end.
    pub hello: Hello,
    /// What they may do.
    pub rights: PeerRights,
    /// The number both ends know it by.
    pub id: u64,
    /// Which end began it.
    pub begun_by_peer: bool,
    out: Out,
    live: AtomicBool,
    why: Mutex<Option<Error>>,
    reader: Mutex<Option<ThreadId>>,
    over: Mutex<bool>,
    over_wake: Condvar,
}

impl Link {
    /// A connection whose threads are not started yet; it can be sent to.
    pub fn new(stream: Stream, hello: Hello, rights: PeerRights, id: u64, begun_by_peer: bool) -> Arc<Link> {
        Arc::new(Link {
            stream,
            hello,
            rights,
            id,
            begun_by_peer,
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

    /// Sends a message, or queues it. A peer that cannot be sent to is lost.
    pub fn send(&self, kind: Kind, message: &[u8], payload: &[IoSlice<'_>]) -> Result<()> {
        let bytes = payload.iter().map(|slice| slice.len()).sum();
        let header = Header::new(kind, message.len(), bytes)?.encode();
        let mut slices = Vec::with_capacity(payload.len() + 2);
        slices.extend([&header[..], message]);
        slices.extend(payload.iter().map(|slice| &slice[..]));
        self.out.send(&self.stream, &slices).map_err(|error| self.failed(error))
    }

    /// Sends what TLS has to say.
    pub fn flush_tls(&self) {
        if let Err(error) = self.out.flush_tls(&self.stream) {
            self.fail(error);
        }
    }

    /// Ends it: the first reason is the one that is told. The reader thread tells the handler.
    pub fn fail(&self, why: Error) {
        self.will_end(why);
        self.live.store(false, Ordering::Release);
        self.out.close();
        // Wakes both threads; what was written before is still delivered.
        let _ = self.stream.socket.shutdown(Shutdown::Both);
    }

    /// It is about to end, for this reason: what follows from that is told as nothing else.
    pub fn will_end(&self, why: Error) {
        let mut told = lock(&self.why);
        if told.is_none() {
            *told = Some(Error::new(why.kind, format!("{}: {}", self.hello.who(), why.message)));
        }
    }

    fn failed(&self, error: Error) -> Error {
        self.fail(error);
        self.why()
    }

    /// Why it ended.
    fn why(&self) -> Error {
        let ended =
            || Error::new(ErrorKind::Disconnected, format!("{}: the connection has ended", self.hello.who()));
        lock(&self.why).clone().unwrap_or_else(ended)
    }

    /// Starts its threads; `end` is called last on the reading one, after the handler heard of the loss.
    pub fn start(
        self: &Arc<Self>,
        handler: &Arc<dyn Handler>,
        end: impl FnOnce(&Arc<Link>) + Send + 'static,
    ) -> Result<()> {
        let name = format!("peer-{}", self.hello.host.0);
        let this = self.clone();
        let writer = thread::Builder::new().name(format!("{name}-out")).stack_size(128 << 10);
        let writer = writer.spawn(move || {
            if let Err(error) = this.out.run_writer(&this.stream.socket) {
                this.fail(error);
            }
        });
        writer.doing("starting a connection's writing thread")?;
        let (this, handler) = (self.clone(), handler.clone());
        let reader = thread::Builder::new().name(name).spawn(move || {
            *lock(&this.reader) = Some(thread::current().id());
            // Whoever waits for a message waits for this thread; without it that takes longer, no more.
            let _ = slice::ask_for_short();
            let read = catch_unwind(AssertUnwindSafe(|| this.read(&*handler)));
            this.fail(match read {
                Ok(Err(error)) => error,
                Ok(Ok(())) => Error::new(ErrorKind::Disconnected, "the connection has ended"),
                Err(_) => {
                    Error::new(ErrorKind::Io, "a message could not be dealt with: the handler panicked")
                }
            });
            // A handler that panics here has nobody left to tell.
            let why = this.why();
            let _ = catch_unwind(AssertUnwindSafe(|| {
                handler.lost(this.hello.host, this.hello.incarnation, &why)
            }));
            end(&this);
            *lock(&this.over) = true;
            this.over_wake.notify_all();
        });
        reader.map(drop).doing("starting a connection's reading thread")
    }

    /// Waits until the handler has heard of the loss; false if that takes longer.
    pub fn wait_over(&self, longest: Duration) -> bool {
        let over = self.over_wake.wait_timeout_while(lock(&self.over), longest, |over| !*over);
        *over.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads messages until something is wrong.
    fn read(self: &Arc<Self>, handler: &dyn Handler) -> Result<()> {
        let mut inbound = Inbound::new(self.clone());
        let mut message = Vec::new();
        let mut header = [0; HEADER_BYTES];
        while self.is_live() {
            inbound.between_messages();
            inbound.read_exact(&mut header)?;
            let header = Header::decode(&header)?;
            message.resize(header.message_bytes, 0);
            inbound.read_exact(&mut message)?;
            if header.kind == Kind::Goodbye {
                let words = String::from_utf8_lossy(&message);
                return Err(Error::new(ErrorKind::Disconnected, format!("it ended the connection: {words}")));
            }
            if self.is_live() {
                inbound.payload(header.payload_bytes, |payload| {
                    handler.received(self.hello.host, &message, payload);
                })?;
            }
        }
        Ok(())
    }
}
