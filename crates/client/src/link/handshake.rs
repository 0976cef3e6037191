//! A conversation by one thread alone: before a connection is shared, in a fork child, and for pagers.

use super::Greeting;
use super::dispatch::{last_words, set_timeouts, wrong_reply};
use crate::{Error, ErrorKind, Result};
use commonhold_object::error::Doing;
use commonhold_object::limits;
use commonhold_object::wire::{Event, FromHost, Header, Reply, Request, decode, encode};
use commonhold_sys::socket::{self, Wait};
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a host may take for one answer before it counts as gone.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// One end of such a conversation.
pub(crate) struct Handshake {
    pub(crate) socket: Arc<OwnedFd>,
    buffer: Vec<u8>,
    next: u64,
    /// The generation of the host process that took over this connection, as it said last; 0: none has.
    pub(crate) host: u64,
    patience: Duration,
}

static PROGRAM: OnceLock<String> = OnceLock::new();

/// Finds out, once, what this process calls itself.
pub(crate) fn prepare() {
    PROGRAM.get_or_init(|| {
        let name = std::env::args_os().next().unwrap_or_else(|| OsString::from("?"));
        name.to_string_lossy().chars().take(200).collect()
    });
}

/// The request that opens a connection.
pub(crate) fn hello() -> Request {
    prepare();
    Request::Hello { program: PROGRAM.get().cloned().unwrap_or_default() }
}

impl Handshake {
    /// Numbers requests from `next` on.
    pub(crate) fn new(socket: Arc<OwnedFd>, next: u64) -> Result<Self> {
        set_timeouts(&socket)?;
        let buffer = vec![0; limits::MESSAGE_BYTES];
        Ok(Handshake { socket, buffer, next, host: 0, patience: ANSWER_DEADLINE })
    }

    /// Waits no longer than that for each answer.
    pub(crate) fn be_patient_for(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Says hello.
    pub(crate) fn greet(&mut self) -> Result<Greeting> {
        match self.ask(&hello(), &[], false)?? {
            (Reply::Hello(reply), fds) => {
                Ok(Greeting { reply, device: fds.into_iter().next().inspect(crate::own::note).map(Arc::new) })
            }
            _ => Err(wrong_reply()),
        }
    }

    /// Asks. The outer error: the connection failed; the inner: the host refused.
    #[allow(clippy::type_complexity)] // an answer with its descriptors, twice fallible
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        repeated: bool,
    ) -> Result<Result<(Reply, Vec<OwnedFd>)>> {
        let number = self.next;
        self.next += 1;
        let deadline = Instant::now() + self.patience;
        self.send((number, repeated), request, fds)?;
        loop {
            let Some((header, message, received)) = self.receive(Some(deadline))? else {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("the host did not answer in {} s", self.patience.as_secs()),
                ));
            };
            match message {
                FromHost::Reply(result) if header.number == number => {
                    return Ok(result.map(|reply| (reply, received)));
                }
                // Why the host ends the connection.
                FromHost::Reply(Err(error)) if header.number == 0 => return Err(error),
                FromHost::Event(Event::HostReplaced { .. }) => {
                    self.send((number, true), request, fds)?;
                }
                // An answer to what was repeated; a range to heal, which is not mapped yet.
                _ => {}
            }
        }
    }

    /// Sends a message of that number, repeated or not.
    pub(crate) fn send(
        &self,
        (number, repeated): (u64, bool),
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let header = Header { number, repeated, generation: self.host };
        let mut bytes = Vec::with_capacity(128);
        encode(header, request, &mut bytes)?;
        let deadline = Instant::now() + self.patience;
        loop {
            match socket::send(&self.socket, &bytes, fds, Wait::Yes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => {
                    return Err(last_words(&self.socket).unwrap_or_else(gone));
                }
                other => return other.doing("sending to the host"),
            }
        }
    }

    /// Receives a message. `None`: the deadline passed.
    pub(crate) fn receive(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<(Header, FromHost, Vec<OwnedFd>)>> {
        let mut fds = Vec::new();
        let mut reset = false;
        loop {
            match socket::receive_what_fits(&self.socket, &mut self.buffer, &mut fds, Wait::Yes) {
                Ok(0) => return Err(gone()),
                // Told once; what the host said before it ended the connection comes after that.
                Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) && !reset => reset = true,
                Ok(length) => {
                    let (header, message) = decode(&self.buffer[..length])?;
                    if let FromHost::Event(Event::HostReplaced { generation }) = message {
                        self.host = generation;
                    }
                    return Ok(Some((header, message, fds)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error).doing("receiving from the host"),
            }
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Disconnected, "the host closed the connection")
}
