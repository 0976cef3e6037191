//! A connection that says whatever a test wants said.

use crate::TestHost;
use crate::wait::LONG;
use commonhold_object::wire::{Event, FromHost, Header, MapRequest, Reply, Request, decode, encode};
use commonhold_object::{Error, MapFlags, MappingId, ObjectId, Protection, Sharing, limits};
use commonhold_sys::socket::{self, Wait};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{ErrorKind, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One end of a connection to a host.
pub struct Raw {
    socket: OwnedFd,
    next: u64,
    /// Of the host process that took over, as it said last.
    generation: AtomicU64,
}

impl Raw {
    /// Connects, and says nothing.
    pub fn connect(host: &TestHost) -> Raw {
        Raw::over(socket::connect(host.state(), "host.sock").expect("connect"))
    }

    /// Speaks over a connection that is there.
    pub fn over(socket: OwnedFd) -> Raw {
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(Duration::from_millis(50))).expect("timeout");
        }
        Raw { socket, next: 1, generation: AtomicU64::new(0) }
    }

    /// Sends bytes as they are; whether they went.
    pub fn throw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        socket::send(&self.socket, bytes, fds, Wait::Yes).is_ok()
    }

    /// The same with as many descriptors as the kernel takes, if there is room for the message.
    pub fn throw_many(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "so many can be sent");
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
    }

    /// Sends bytes if there is room for them.
    pub fn push(&self, bytes: &[u8]) -> bool {
        socket::send(&self.socket, bytes, &[], Wait::No).is_ok()
    }

    /// Asks, and gives the answer; `None`: the connection ended, or nothing came in time.
    pub fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Option<Result<Reply, Error>> {
        self.next += 1;
        let number = self.next;
        let deadline = Instant::now() + LONG;
        for repeated in [false].into_iter().chain(std::iter::repeat(true)) {
            let generation = self.generation.load(Ordering::Relaxed);
            let bytes = self.bytes_for(number, repeated, request);
            while let Err(error) = socket::send(&self.socket, &bytes, fds, Wait::Yes) {
                if error.kind() != ErrorKind::WouldBlock || Instant::now() > deadline {
                    return None;
                }
            }
            while generation == self.generation.load(Ordering::Relaxed) {
                match self.hear()? {
                    Some((header, FromHost::Reply(reply))) if header.number == number => return Some(reply),
                    _ if Instant::now() > deadline => return None,
                    _ => {}
                }
            }
        }
        None
    }

    /// A message to the host process that took over, if it has said so.
    pub fn bytes_for(&self, number: u64, repeated: bool, request: &Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        let generation = self.generation.load(Ordering::Relaxed);
        encode(Header { number, repeated, generation }, request, &mut bytes).expect("encode");
        bytes
    }

    /// Asks for descriptors, which come with the answer.
    pub fn ask_for(&mut self, request: &Request) -> (Reply, Vec<OwnedFd>) {
        let (reply, fds) = self.ask_with(request, &[]);
        (reply.expect("what must work"), fds)
    }

    /// Asks with descriptors, and gives whatever is answered, and the descriptors that came with that.
    pub fn ask_with(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> (Result<Reply, Error>, Vec<OwnedFd>) {
        self.next += 1;
        let number = self.next;
        assert!(self.throw(&self.bytes_for(number, false, request), fds), "the host takes a message");
        crate::wait::until("the host answers", || match self.hear_all()? {
            Some((header, FromHost::Reply(reply), fds)) if header.number == number => Some((reply, fds)),
            _ => None,
        })
    }

    /// The answer to the request of that number; `None`: the connection ended, or nothing came in time.
    pub fn answer_to(&self, number: u64) -> Option<Result<Reply, Error>> {
        let deadline = Instant::now() + LONG;
        while Instant::now() < deadline {
            match self.hear()? {
                Some((header, FromHost::Reply(reply))) if header.number == number => return Some(reply),
                _ => {}
            }
        }
        None
    }

    /// The next message. `None`: the connection ended; `Some(None)`: nothing yet.
    #[allow(clippy::option_option)] // the two say different things, and both are asked for
    pub fn hear(&self) -> Option<Option<(Header, FromHost)>> {
        self.hear_all().map(|heard| heard.map(|(header, message, _)| (header, message)))
    }

    /// The same, without waiting for one.
    #[allow(clippy::option_option)] // as above
    pub fn hear_now(&self) -> Option<Option<(Header, FromHost)>> {
        if self.has_message() { self.hear() } else { Some(None) }
    }

    /// Whether there is a message, or the end.
    pub fn has_message(&self) -> bool {
        let mut polled = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())) != Ok(0)
    }

    /// The next message, with the descriptors that came; as `hear`.
    #[allow(clippy::option_option, clippy::type_complexity)] // as above
    pub fn hear_all(&self) -> Option<Option<(Header, FromHost, Vec<OwnedFd>)>> {
        let mut buffer = vec![0; limits::MESSAGE_BYTES];
        let mut fds = Vec::new();
        match socket::receive(&self.socket, &mut buffer, &mut fds, Wait::Yes) {
            Ok(0) => None,
            Ok(length) => {
                let (header, message) = decode(&buffer[..length]).expect("the host speaks well");
                if let FromHost::Event(Event::HostReplaced { generation }) = message {
                    self.generation.store(generation, Ordering::Relaxed);
                }
                Some(Some((header, message, fds)))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(None),
            Err(_) => None,
        }
    }

    /// The error with which the host ends the connection.
    pub fn last_words(&self) -> Option<Error> {
        let deadline = Instant::now() + LONG;
        let mut error = None;
        while Instant::now() < deadline {
            match self.hear() {
                Some(Some((_, FromHost::Reply(Err(said))))) => error = Some(said),
                Some(_) => {}
                None => return error,
            }
        }
        panic!("the host neither answers nor hangs up");
    }
}

/// A request to map some of an object from its beginning, shared, for reading and writing.
pub fn map_request(object: ObjectId, address: u64, length: u64) -> MapRequest {
    MapRequest {
        mapping: MappingId(1),
        object,
        address,
        length,
        offset: 0,
        protection: Protection::ReadWrite,
        sharing: Sharing::Shared,
        flags: MapFlags::default(),
        with_descriptors: true,
        with_claims: true,
    }
}

/// A message.
pub fn bytes_of(number: u64, request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(Header::of(number), request, &mut bytes).expect("encode");
    bytes
}
