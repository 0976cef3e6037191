//! Reading from the socket, and giving what was read to whom it concerns.

use super::exchange::SLICE;
use super::{Greeting, Hello, Shared, State, lock};
use crate::{Error, ErrorKind, Result, addresses};
use commonhold_object::limits;
use commonhold_object::wire::{Event, FromHost, Header, Reply, decode};
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::spin::{self, Spin};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to look for an answer before sleeping, at most.
pub(super) const LOOK: Duration = Duration::from_micros(50);

/// Where messages are received: one buffer, so that reading allocates nothing.
pub(super) struct Reader {
    buffer: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// Whether to look for an answer before sleeping.
    spin: Spin,
}

impl Default for Reader {
    fn default() -> Self {
        Reader { buffer: vec![0; limits::MESSAGE_BYTES], fds: Vec::new(), spin: Spin::new(LOOK) }
    }
}

/// What came out of the socket.
pub(super) enum Heard {
    /// Nothing yet.
    Nothing,
    /// A message with its descriptors.
    Message(Header, FromHost, Vec<OwnedFd>),
    /// Something that no host of this version says.
    Nonsense(Error),
    /// Host and keeper are gone.
    Gone,
}

impl Reader {
    /// Waits for a message: looking for a little where that has been faster, then asleep.
    fn await_message(&mut self, socket: &Arc<OwnedFd>) -> Heard {
        let began = Instant::now();
        let looked = spin::look(self.spin.budget(), || match self.receive(socket, Wait::No) {
            Heard::Nothing => None,
            heard => Some(heard),
        });
        let heard = looked.unwrap_or_else(|| self.receive(socket, Wait::Yes));
        if !matches!(heard, Heard::Nothing) {
            self.spin.waited(began.elapsed());
        }
        heard
    }

    pub(super) fn receive(&mut self, socket: &OwnedFd, wait: Wait) -> Heard {
        // Without descriptors for which this process has no room: who needs them says so.
        let mut received = socket::receive_what_fits(socket, &mut self.buffer, &mut self.fds, wait);
        if matches!(&received, Err(error) if error.raw_os_error() == Some(libc::ECONNRESET)) {
            // Told once; what the host said before it ended the connection comes after that.
            received = socket::receive_what_fits(socket, &mut self.buffer, &mut self.fds, wait);
        }
        match received {
            Ok(0) => Heard::Gone,
            Ok(length) => match decode::<FromHost>(&self.buffer[..length]) {
                Ok((header, message)) => Heard::Message(header, message, std::mem::take(&mut self.fds)),
                Err(error) => Heard::Nonsense(error),
            },
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => Heard::Nothing,
                Some(libc::ECONNRESET | libc::ENOTCONN | libc::EPIPE) => Heard::Gone,
                _ => Heard::Nonsense(Error::io("receiving from the host", &error)),
            },
        }
    }
}

/// Gives a socket the timeouts after which who waits on it looks around.
pub(super) fn set_timeouts(socket: &OwnedFd) -> Result<()> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(socket, direction, Some(SLICE))
            .map_err(|errno| Error::io("preparing the connection to the host", &errno.into()))?;
    }
    Ok(())
}

impl Shared {
    /// Reads one message with the right to read, gives it on, and gives the right back. Gives whether there
    /// was one.
    pub(super) fn read_once(&'static self, mut reader: Box<Reader>, wait: Wait) -> bool {
        let socket = lock(&self.state).socket.clone();
        let heard = socket.as_ref().map_or(Heard::Nothing, |socket| match wait {
            Wait::Yes => reader.await_message(socket),
            Wait::No => reader.receive(socket, Wait::No),
        });
        let something = !matches!(heard, Heard::Nothing);
        let heal = match &heard {
            Heard::Message(_, FromHost::Event(Event::Heal { address, length }), _) => {
                Some((*address, *length))
            }
            _ => None,
        };
        let revoke = match &heard {
            Heard::Message(_, FromHost::Event(Event::Revoke { object, given }), _) => Some((*object, *given)),
            _ => None,
        };
        let mut state = lock(&self.state);
        state.reader.get_or_insert(reader);
        if let Some(socket) = socket {
            state.hear(&socket, heard);
        }
        drop(state);
        if let Some((address, length)) = heal {
            addresses::heal(self, address, length);
        }
        if let Some((object, given)) = revoke {
            self.revoke(object, given);
        }
        something
    }

    /// Reads what is there, if nobody else is reading. Gives whether there was anything.
    pub(super) fn read_if_free(&'static self) -> bool {
        let Some(reader) = lock(&self.state).reader.take() else { return false };
        let something = self.read_once(reader, Wait::No);
        lock(&self.state).let_another_read();
        something
    }
}

/// Why the host ended a connection that nobody reads, if it said so.
pub(super) fn last_words(socket: &OwnedFd) -> Option<Error> {
    let mut reader = Reader::default();
    loop {
        match reader.receive(socket, Wait::No) {
            Heard::Message(Header { number: 0, .. }, FromHost::Reply(Err(error)), _) => return Some(error),
            Heard::Message(..) => {}
            Heard::Nothing | Heard::Nonsense(_) | Heard::Gone => return None,
        }
    }
}

impl State {
    /// Acts on what was heard from `socket`, unless the connection has changed since.
    pub(super) fn hear(&mut self, socket: &Arc<OwnedFd>, heard: Heard) {
        if !self.socket.as_ref().is_some_and(|current| Arc::ptr_eq(current, socket)) {
            return;
        }
        match heard {
            Heard::Nothing => {}
            Heard::Message(header, FromHost::Reply(result), fds) => self.answered(header.number, result, fds),
            Heard::Message(_, FromHost::Event(event), _) => self.told(event),
            Heard::Nonsense(error) => self.give_up(&error),
            Heard::Gone => {
                if matches!(self.hello, Hello::Asked(_)) {
                    self.unheard.lost();
                }
                self.lose_connection();
                self.pending.values_mut().for_each(|pending| pending.lose());
            }
        }
    }

    fn answered(&mut self, number: u64, result: Result<Reply>, fds: Vec<OwnedFd>) {
        if matches!(self.hello, Hello::Asked(asked) if asked == number) {
            return match result {
                Ok(Reply::Hello(reply)) => {
                    self.session = Some(reply.session);
                    self.unheard.heard();
                    let device = fds.into_iter().next().inspect(crate::own::note).map(Arc::new);
                    self.hello = Hello::Known(Greeting { reply, device });
                }
                Ok(_) => self.give_up(&wrong_reply()),
                Err(error) => self.give_up(&error),
            };
        }
        if let (0, Err(error)) = (number, &result) {
            return self.give_up(error); // why the host ends this connection
        }
        let generation = self.generation;
        // An answer nobody waits for is the second to a repeated request: its descriptors are closed.
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.finish(result.map(|reply| (reply, fds, generation)));
        }
    }

    fn told(&mut self, event: Event) {
        match event {
            Event::HostReplaced { generation } => {
                self.host = generation;
                self.greet_again();
                self.is_to_say_what_may_move();
                self.pending.values_mut().for_each(|pending| pending.repeat());
            }
            // Done by the reader, who may take the lock of the address map.
            // Nobody watches anything on this connection.
            Event::Heal { .. } | Event::Revoke { .. } | Event::Changed { .. } => {}
            Event::PageIn { .. } | Event::PageOut { .. } => {
                let what = "the host asked for pages on a connection that serves no pager";
                self.give_up(&Error::new(ErrorKind::Protocol, what));
            }
        }
    }

    /// Ends the connection: everybody who waits gets the error.
    pub(super) fn give_up(&mut self, error: &Error) {
        self.lose_connection();
        self.pending.values_mut().for_each(|pending| pending.finish(Err(error.clone())));
    }
}

/// The error for an answer of the wrong kind.
pub(crate) fn wrong_reply() -> Error {
    Error::new(ErrorKind::Protocol, "the host gave an answer of the wrong kind: it may be of another version")
}
