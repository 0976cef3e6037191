//! Messages of clients, as they come.

use super::Host;
use super::session::{Session, no_descriptor_left};
use commonhold_object::wire::{Request, decode, split};
use commonhold_object::{Error, ErrorKind, Result, limits};
use commonhold_points as points;
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::spin::{self, Spin};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to look for an answer of a pager before sleeping, at most.
const LOOK: Duration = Duration::from_micros(100);
/// Threads that read the answers of one user's pagers; of more the control thread reads them.
const READ_APART: usize = 16;

/// How many such threads each user has.
#[derive(Default)]
pub(super) struct Readers(Mutex<HashMap<u32, usize>>);

/// One of them, until this is dropped.
pub(super) struct Counted {
    of: Arc<Readers>,
    uid: u32,
}

impl Readers {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: the user has as many as it may.
    pub fn one_more(self: &Arc<Self>, uid: u32) -> Option<Counted> {
        let mut all = self.lock();
        let count = all.entry(uid).or_default();
        if *count >= READ_APART {
            return None;
        }
        *count += 1;
        Some(Counted { of: self.clone(), uid })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.of.lock();
        if let Some(count) = all.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.uid);
            }
        }
    }
}

/// Reads messages.
pub(super) struct Reader {
    host: Arc<Host>,
    buffer: Vec<u8>,
    /// Of one pager alone: nobody else waits for this thread.
    apart: bool,
}

impl Reader {
    pub fn new(host: Arc<Host>) -> Reader {
        Reader { host, buffer: vec![0; limits::MESSAGE_BYTES], apart: false }
    }

    /// Takes one message; whether there was one. An error ends the connection. What came with it and is not called for is
    /// closed elsewhere: a close may wait.
    pub fn message(&mut self, session: &Arc<Session>, wait: Wait) -> Result<bool> {
        let mut fds = Vec::new();
        let received = socket::receive_and_tell(&*session.socket, &mut self.buffer, &mut fds, wait);
        let done = self.understood(session, received, &mut fds);
        if fds.is_empty() {
            return done;
        }
        let enough = self.host.close_for(session, fds);
        done.and_then(|more| enough.map(|()| more))
    }

    /// Begins what a message asks for, and takes those of the descriptors that this calls for.
    fn understood(
        &mut self,
        session: &Arc<Session>,
        received: std::io::Result<(usize, bool)>,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<bool> {
        let (length, complete) = match received {
            Ok((0, _)) => return Err(Error::new(ErrorKind::Disconnected, "the client hung up")),
            Ok(received) => received,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                return Err(Error::new(ErrorKind::Protocol, format!("not a Commonhold message: {e}")));
            }
            Err(_) => return Err(Error::new(ErrorKind::Disconnected, "the connection failed")),
        };
        let (header, request) = match decode::<Request>(&self.buffer[..length]) {
            Ok(decoded) => decoded,
            Err(error) => return self.answer_unreadable(session, length, error),
        };
        if fds.len() > socket::DESCRIPTORS {
            return Err(Error::new(ErrorKind::Protocol, "not a Commonhold message: too many descriptors"));
        }
        let Some(header) = session.for_this_host(header) else { return Ok(true) };
        if complete {
            self.host.dispatch(session, header, request, fds, self.apart);
        } else {
            session.reply(header.number, Err(no_descriptor_left()), &[]);
        }
        Ok(true)
    }

    /// A message of this version that cannot be read, as one from a later build of it may be: whoever waits for its answer
    /// is told so. Anything else ends the connection.
    fn answer_unreadable(&self, session: &Session, length: usize, error: Error) -> Result<bool> {
        match split(&self.buffer[..length]) {
            Ok((header, _)) if header.number != 0 => {
                session.reply(header.number, Err(error), &[]);
                Ok(true)
            }
            _ => Err(error),
        }
    }

    /// Reads what a pager answers until its connection ends, and deals with it here.
    fn answers(&mut self, session: &Arc<Session>) -> Result<()> {
        let mut spin = Spin::new(LOOK);
        loop {
            let began = Instant::now();
            let looked = spin::look(spin.budget(), || match self.message(session, Wait::No) {
                Ok(false) => None,
                there_is_one => Some(there_is_one),
            });
            looked.unwrap_or_else(|| self.message(session, Wait::Yes))?;
            spin.waited(began.elapsed());
        }
    }
}

/// Has a thread read what a pager answers. It ends with the connection, and says so then to whoever is told here. False: the
/// user's pagers have as many such threads as they may, or there is none.
pub(super) fn read_apart(
    host: &Arc<Host>,
    session: &Arc<Session>,
    ended: impl FnOnce(&Session) + Send + 'static,
) -> bool {
    let Some(counted) = host.readers.one_more(session.credentials.uid) else { return false };
    let (host, session) = (host.clone(), session.clone());
    let read = move || {
        super::lifetime::serves_all();
        let _counted = counted;
        let mut reader = Reader { apart: true, ..Reader::new(host) };
        if let Err(error) = reader.answers(&session)
            && error.kind != ErrorKind::Disconnected
        {
            session.reply(0, Err(error), &[]);
            session.hang_up();
        }
        ended(&session);
    };
    points::thread(|| std::thread::Builder::new().name("pager".into()).spawn(read)).is_ok()
}
