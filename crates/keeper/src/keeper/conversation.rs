//! What the keeper and its host say to each other: the keeper's side of [`protocol`](crate::protocol).

use super::Keeper;
use crate::backoff::Asked;
use crate::hosted::{Hosted, Sending};
use crate::kept::Key;
use crate::protocol::{self, FromKeeper, ToKeeper, Versions};
use crate::store::Thing;
use commonhold_object::{Error, ErrorKind};
use commonhold_sys::closing::close_now;
use commonhold_sys::socket::{self, Wait};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Messages handled before the keeper looks at its signals and the host's life again.
const BATCH: usize = 64;
/// Problems of one host that are logged; the others are only answered.
const LOGGED_PROBLEMS: u32 = 10;

/// Drops what was kept. A client's socket may have something in its queue whose close waits.
fn let_go(thing: Option<Thing>) {
    if let Some(fd) = thing.and_then(|thing| thing.fd) {
        close_now(fd);
    }
}

enum Read {
    Message,
    NothingNow,
    Closed,
}

impl Keeper {
    /// Reads what the living host has said.
    pub(super) fn read_some(&mut self) {
        let Some(mut host) = self.host.take() else { return };
        for _ in 0..BATCH {
            match self.read_one(&mut host) {
                Read::Message if !self.over => {}
                Read::Message | Read::NothingNow => break,
                Read::Closed => {
                    host.socket = None;
                    break;
                }
            }
        }
        self.host = Some(host);
    }

    /// Reads what a host said before it died. All of it is there: a process's last message is in the socket before
    /// its end can be seen.
    pub(super) fn read_to_the_end(&mut self, host: &mut Hosted) {
        while let Read::Message = self.read_one(host) {}
        host.socket = None;
    }

    fn read_one(&mut self, host: &mut Hosted) -> Read {
        let Some(socket) = host.socket.as_ref() else { return Read::Closed };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(protocol::MESSAGE_BYTES, 0);
        let mut fds = Vec::new();
        let received = socket::receive(socket, &mut buffer, &mut fds, Wait::No);
        let read = match received {
            Ok(0) => Read::Closed,
            Ok(length) => {
                if let Err(error) = self.handle(host, &buffer[..length], fds) {
                    self.answer_problem(host, &error);
                }
                Read::Message
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Read::NothingNow,
            // The host died with messages of ours unread. Said once, and before what it sent, which is still there.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::CONNRESET) => Read::Message,
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                self.answer_problem(host, &Error::new(ErrorKind::Protocol, e.to_string()));
                Read::Message
            }
            Err(e) => {
                self.log.say(&format!("reading from host {} failed: {e}", host.pid));
                Read::Closed
            }
        };
        self.buffer = buffer;
        read
    }

    fn handle(
        &mut self,
        host: &mut Hosted,
        bytes: &[u8],
        fds: Vec<OwnedFd>,
    ) -> commonhold_object::Result<()> {
        if host.sending == Sending::AwaitHello {
            return self.greet(host, bytes);
        }
        let message = protocol::decode(bytes).map_err(|e| Error::new(ErrorKind::Protocol, e.to_string()))?;
        match message {
            ToKeeper::Fill { generation } => {
                self.generation = self.generation.max(generation);
                self.complete = false;
            }
            ToKeeper::Filled => {
                self.complete = true;
                let (things, fds) = (self.store.len(), self.store.descriptors());
                self.log
                    .say(&format!("filled by host {}: {things} kept things, {fds} descriptors", host.pid));
            }
            ToKeeper::Put { key, blob, fd } => self.put(key, blob, fd, fds)?,
            ToKeeper::Update { key, blob } => {
                let key = Key::new(key);
                self.store.check_update(&key, blob.len())?;
                self.store.update(&key, blob);
            }
            ToKeeper::Forget { key } => let_go(self.store.remove(&Key::new(key))),
            ToKeeper::Ready => {
                self.complete = true;
                self.served = true;
                self.previous = None;
                self.serving = true;
                self.waits.host_serves();
            }
            ToKeeper::Exit => host.asked = Asked::Exit,
            ToKeeper::Restart { program } => {
                host.asked = Asked::Restart;
                if let Some(program) = program {
                    let program = Path::new(OsStr::from_bytes(program)).to_owned();
                    self.previous = Some(std::mem::replace(&mut self.program, program));
                }
            }
            ToKeeper::Retire => {
                self.log.say("another keeper takes my place");
                self.over = true;
            }
        }
        Ok(())
    }

    fn put(
        &mut self,
        key: &str,
        blob: &[u8],
        has_fd: bool,
        mut fds: Vec<OwnedFd>,
    ) -> commonhold_object::Result<()> {
        if fds.len() != usize::from(has_fd) {
            let message =
                format!("{} descriptors came for {key}, {} was announced", fds.len(), u8::from(has_fd));
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        let key = Key::new(key);
        self.store.check_put(&key, blob.len(), has_fd)?;
        let_go(self.store.put(key, Thing { blob: blob.to_vec(), fd: fds.pop().map(Arc::new) }));
        Ok(())
    }

    fn greet(&mut self, host: &mut Hosted, bytes: &[u8]) -> commonhold_object::Result<()> {
        let Some(hello) = Versions::from_hello(bytes) else {
            return Err(Error::new(ErrorKind::Protocol, "the first message must be a hello"));
        };
        let greeting = hello.answer();
        if greeting.chosen == 0 {
            self.log.say(&format!(
                "host {} speaks versions {} to {}, this keeper {} to {}: refused",
                host.pid, hello.oldest, hello.newest, greeting.oldest, greeting.newest
            ));
        }
        if let Some(socket) = &host.socket
            && socket::send(socket, &greeting.greeting(), &[], Wait::No).is_ok()
            && greeting.chosen != 0
        {
            // The host before can forget nothing any more, and this one has not begun.
            self.waits.keep_all(&mut self.store);
            host.version = greeting.chosen;
            host.sending = Sending::Inventory;
        }
        Ok(())
    }

    /// Tells the host, if it listens, that something was not done.
    fn answer_problem(&mut self, host: &mut Hosted, error: &Error) {
        host.problems += 1;
        if host.problems <= LOGGED_PROBLEMS {
            self.log.say(&format!("refused what host {} said: {error}", host.pid));
        }
        let mut message = Vec::new();
        if let Some(socket) = &host.socket
            && protocol::encode(&FromKeeper::Problem { text: &error.message }, &mut message).is_ok()
        {
            // A host that does not read its problems has to do without them.
            let _ = socket::send(socket, &message, &[], Wait::No);
        }
    }

    /// Sends the next of what was kept, as much as the host's socket takes.
    pub(super) fn send_some(&mut self) {
        let Some(mut host) = self.host.take() else { return };
        host.sending_paused = false;
        for _ in 0..BATCH {
            match self.send_one(&mut host) {
                Ok(()) if host.has_more_to_send() => {}
                Ok(()) => break,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if Errno::from_io_error(&e) == Some(Errno::TOOMANYREFS) => {
                    host.sending_paused = true;
                    break;
                }
                Err(e) => {
                    // It is dying, or closed its end: its pidfd tells the rest.
                    self.log.say(&format!("host {} does not take what was kept: {e}", host.pid));
                    host.sending = Sending::Done;
                    break;
                }
            }
        }
        self.host = Some(host);
    }

    fn send_one(&mut self, host: &mut Hosted) -> io::Result<()> {
        let Some(socket) = host.socket.as_ref() else { return Ok(()) };
        let mut message = Vec::new();
        let generation = self.generation;
        let mut fd = None;
        let next = match &host.sending {
            Sending::AwaitHello | Sending::Done => return Ok(()),
            Sending::Inventory => {
                let descriptors = u32::try_from(self.store.descriptor_limit).unwrap_or(u32::MAX);
                let complete = self.complete;
                protocol::encode(&FromKeeper::Inventory { generation, complete, descriptors }, &mut message)?;
                Sending::Things { after: None, count: 0 }
            }
            Sending::Things { after, count } => match self.store.after(after.as_ref()) {
                None => {
                    protocol::encode(&FromKeeper::End { count: *count, generation }, &mut message)?;
                    Sending::Done
                }
                Some((key, thing)) => {
                    fd = thing.fd.as_ref();
                    let (name, blob) = (key.0.as_str(), &thing.blob[..]);
                    protocol::encode(&FromKeeper::Kept { key: name, blob, fd: fd.is_some() }, &mut message)?;
                    Sending::Things { after: Some(key.clone()), count: count + 1 }
                }
            },
            Sending::More(keys) => {
                let mut keys = keys.clone();
                let thing = keys.pop().and_then(|key| Some((self.store.get(&key)?, key)));
                let next = if keys.is_empty() { Sending::Done } else { Sending::More(keys) };
                // Forgotten meanwhile: it was healed.
                let Some((thing, key)) = thing else {
                    host.sending = next;
                    return Ok(());
                };
                let (key, blob) = (key.0.as_str(), &thing.blob[..]);
                protocol::encode(&FromKeeper::Kept { key, blob, fd: false }, &mut message)?;
                next
            }
        };
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        socket::send(socket, &message, &fds, Wait::No)?;
        host.sending = next;
        Ok(())
    }
}
