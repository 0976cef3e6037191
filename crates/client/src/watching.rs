//! Watching objects of explicit coherence: for who has copies of their pages that the host cannot take away itself.
//!
//! A connection apart, on which nothing is asked that takes long. One thread listens ([`Watcher::next`]); others add objects.

use crate::link::{Handshake, wrong_reply};
use crate::{Access, Error, ErrorKind, Name, ObjectId, Result, locate};
use commonhold_object::wire::{Event, FromHost, Reply, Request};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the host may take to say that it watches.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a listener hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Pages of that object have changed. It is watched no longer.
    Changed(ObjectId),
    /// The connection is lost, and nothing is watched any more: what has changed since is not known.
    Lost,
}

/// A connection on which objects are watched.
pub struct Watcher {
    listener: Mutex<Handshake>,
    talk: Handshake,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Sender<Result<Reply>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    /// Connects to the host of that state directory.
    pub fn begin(state_directory: &Path) -> Result<Watcher> {
        let socket =
            locate::connect(state_directory).map_err(|error| locate::no_host(state_directory, &error))?;
        let socket = Arc::new(socket);
        let mut listener = Handshake::new(socket.clone(), 1)?;
        listener.greet()?;
        Ok(Watcher {
            listener: Mutex::new(listener),
            talk: Handshake::new(socket, 0)?,
            next: AtomicU64::new(1000),
            waiting: Mutex::default(),
        })
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = channel();
        lock(&self.waiting).insert(number, tell);
        let sent = self.talk.send((number, false), request, &[]);
        let late = || Error::new(ErrorKind::TimedOut, "the host does not say whether it watches an object");
        let answer = sent.and_then(|()| told.recv_timeout(PATIENCE).map_err(|_| late())?);
        lock(&self.waiting).remove(&number);
        answer
    }

    /// Opens an object for reading, to watch it. Gives its number here, and its identity.
    pub fn open(&self, name: &str) -> Result<(ObjectId, u128)> {
        match self.ask(&Request::Open { name: Name::new(name)?, access: Access::Read })? {
            Reply::Opened(opened) => Ok((opened.info.id, opened.info.uuid)),
            _ => Err(wrong_reply()),
        }
    }

    /// Watches an object that was opened here: of the next change, and of no other, [`next`](Self::next) tells.
    pub fn watch(&self, object: ObjectId) -> Result<()> {
        self.ask(&Request::Watch { object }).map(drop)
    }

    /// It need not be watched any more.
    pub fn close(&self, object: ObjectId) -> Result<()> {
        self.ask(&Request::Close { object }).map(drop)
    }

    /// Waits for the next change, and hands answers to those who wait for them.
    pub fn next(&self) -> Heard {
        let mut listener = lock(&self.listener);
        loop {
            match listener.receive(None) {
                Ok(Some((_, FromHost::Event(Event::Changed { object }), _))) => {
                    return Heard::Changed(object);
                }
                // What the host before was asked the next one does not know.
                Ok(Some((_, FromHost::Event(Event::HostReplaced { .. }), _))) | Err(_) => return self.lost(),
                Ok(Some((header, FromHost::Reply(reply), _))) => {
                    if let Some(tell) = lock(&self.waiting).remove(&header.number) {
                        let _ = tell.send(reply); // who asked may have given up
                    }
                }
                Ok(Some(_) | None) => {}
            }
        }
    }

    fn lost(&self) -> Heard {
        for (_, tell) in lock(&self.waiting).drain() {
            let lost = Error::new(ErrorKind::Disconnected, "the host was lost meanwhile");
            let _ = tell.send(Err(lost)); // who asked may have given up
        }
        Heard::Lost
    }
}
