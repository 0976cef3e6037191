//! The host's end of the connection to a keeper: sending with a deadline, and receiving what was kept.

use crate::kept::{Generation, Kept, Key};
use crate::protocol::{self, FromKeeper, Versions};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_sys::process;
use commonhold_sys::socket::{self, Wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A keeper whose socket stays full this long is taken for hung, killed and replaced.
const SEND_DEADLINE: Duration = Duration::from_millis(1000);
/// A keeper that says nothing for this long when it should is given up.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// A living keeper, as far as is known.
#[derive(Debug)]
pub(crate) struct Link {
    pub socket: OwnedFd,
    pub pidfd: OwnedFd,
    pub pid: u32,
    pub covered: Covered,
}

/// Which keys this keeper has been told of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Covered {
    All,
    /// It is new: those up to this one. A change of a later one is told when the filling comes to it.
    UpTo(Option<Key>),
}

/// What a keeper hands to the host.
#[derive(Debug)]
pub(crate) struct Handed {
    pub generation: Generation,
    pub complete: bool,
    pub descriptors: usize,
    pub kept: Vec<Kept>,
}

impl Link {
    pub fn covers(&self, key: &Key) -> bool {
        match &self.covered {
            Covered::All => true,
            Covered::UpTo(last) => last.as_ref().is_some_and(|last| key <= last),
        }
    }

    /// Sends a message, or says within the deadline why not.
    pub fn send(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let until = Instant::now() + SEND_DEADLINE;
        let fds: &[BorrowedFd<'_>] = fd.as_slice();
        loop {
            let error = match socket::send(&self.socket, bytes, fds, Wait::No) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let left = until.saturating_duration_since(Instant::now());
            match Errno::from_io_error(&error) {
                Some(Errno::AGAIN | Errno::TOOMANYREFS) if left.is_zero() => {
                    let message = format!("it took no message for {} ms", SEND_DEADLINE.as_millis());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                Some(Errno::AGAIN) => wait_writable(&self.socket, left),
                // Too many descriptors under way: no event tells when they have arrived.
                Some(Errno::TOOMANYREFS) => std::thread::sleep(Duration::from_millis(1).min(left)),
                _ => return Err(error),
            }
        }
    }

    /// Ends the keeper, whatever it is doing: it must not wake up later and start a host of its own.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

fn wait_writable(socket: &OwnedFd, at_most: Duration) {
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    // Whatever comes of it, the next send says.
    let _ = rustix::event::poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout));
}

/// Greets the keeper at the other end and receives all it holds.
pub(crate) fn receive_all(socket: &OwnedFd) -> Result<Handed> {
    let hello = Versions::OURS.hello();
    socket::send(socket, &hello, &[], Wait::No).doing("cannot greet the keeper")?;
    let mut buffer = vec![0; protocol::MESSAGE_BYTES];
    let mut fds = Vec::new();
    let length = receive_one(socket, &mut buffer, &mut fds)?;
    check_greeting(&buffer[..length])?;
    let length = receive_one(socket, &mut buffer, &mut fds)?;
    let FromKeeper::Inventory { generation, complete, descriptors } = decode(&buffer[..length])? else {
        return Err(unexpected("something else than its inventory"));
    };
    let mut kept = Vec::new();
    loop {
        let length = receive_one(socket, &mut buffer, &mut fds)?;
        match decode(&buffer[..length])? {
            FromKeeper::Kept { key, blob, fd } => {
                if fds.len() != usize::from(fd) {
                    return Err(unexpected(&format!("{} descriptors with {key}", fds.len())));
                }
                let fd = fds.pop().map(Arc::new);
                kept.push(Kept { key: Key::new(key), blob: blob.to_vec(), fd });
            }
            FromKeeper::End { count, generation: again } => {
                if count as usize != kept.len() || again != generation {
                    return Err(unexpected(&format!("{} kept things and announced {count}", kept.len())));
                }
                return Ok(Handed { generation, complete, descriptors: descriptors as usize, kept });
            }
            FromKeeper::Inventory { .. } => return Err(unexpected("a second inventory")),
            FromKeeper::Problem { text } => return Err(unexpected(&format!("a problem: {text}"))),
        }
    }
}

fn receive_one(socket: &OwnedFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize> {
    let until = Instant::now() + ANSWER_DEADLINE;
    loop {
        match socket::receive(socket.as_fd(), buffer, fds, Wait::No) {
            Ok(0) => {
                return Err(Error::new(
                    ErrorKind::Disconnected,
                    "the keeper ended before it had handed over",
                ));
            }
            Ok(length) => return Ok(length),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                let message = "a descriptor from the keeper could not be taken: raise the limit on open files \
                               (ulimit -n, LimitNOFILE)";
                return Err(Error::new(ErrorKind::TooMany, message));
            }
            Err(e) => return Err(Error::io("cannot receive from the keeper", &e)),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let message = format!("the keeper did not answer within {} s", ANSWER_DEADLINE.as_secs());
            return Err(Error::new(ErrorKind::TimedOut, message));
        }
        process::readable_within(socket, left.as_millis() as u64 + 1).doing("cannot wait for the keeper")?;
    }
}

fn check_greeting(bytes: &[u8]) -> Result<()> {
    let Some(theirs) = Versions::from_greeting(bytes) else {
        return Err(unexpected("no greeting: there is another program at that descriptor"));
    };
    let ours = Versions::OURS;
    if (ours.oldest..=ours.newest).contains(&theirs.chosen) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Version,
        format!(
            "this host speaks keeper protocol {} to {}, the running keeper {} to {}: start a host of the keeper's \
             version, or end both with `commonhold host stop` and start anew",
            ours.oldest, ours.newest, theirs.oldest, theirs.newest
        ),
    ))
}

/// Takes a message of the keeper apart.
pub(crate) fn decode(bytes: &[u8]) -> Result<FromKeeper<'_>> {
    protocol::decode(bytes).map_err(|e| unexpected(&e.to_string()))
}

fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("the keeper sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Runs `keeper` at the other end, after it has read the hello.
    fn with_keeper(keeper: impl FnOnce(&OwnedFd) + Send + 'static) -> Result<Handed> {
        let (ours, theirs) = socket::pair().unwrap();
        let other = thread::spawn(move || {
            let length = socket::receive(&theirs, &mut [0; 64], &mut Vec::new(), Wait::Yes).unwrap();
            assert_eq!(length, Versions::OURS.hello().len());
            keeper(&theirs);
        });
        let handed = receive_all(&ours);
        other.join().unwrap();
        handed
    }

    fn say(socket: &OwnedFd, message: &FromKeeper<'_>) {
        let mut bytes = Vec::new();
        protocol::encode(message, &mut bytes).unwrap();
        socket::send(socket, &bytes, &[], Wait::Yes).unwrap();
    }

    const INVENTORY: FromKeeper<'_> = FromKeeper::Inventory { generation: 7, complete: true, descriptors: 9 };

    #[test]
    fn a_keeper_of_another_version_is_named() {
        let theirs = Versions { chosen: 0, oldest: 41, newest: 42 };
        let error =
            with_keeper(move |s| socket::send(s, &theirs.greeting(), &[], Wait::Yes).unwrap()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Version);
        assert!(error.message.contains("41 to 42"), "{error}");
    }

    #[test]
    fn a_keeper_that_talks_nonsense_or_ends_is_refused() {
        let garbage = with_keeper(|s| socket::send(s, b"hello?", &[], Wait::Yes).unwrap());
        assert_eq!(garbage.unwrap_err().kind, ErrorKind::Protocol);
        assert_eq!(with_keeper(|_| {}).unwrap_err().kind, ErrorKind::Disconnected);
        let short = with_keeper(|s| {
            socket::send(s, &Versions::OURS.answer().greeting(), &[], Wait::Yes).unwrap();
            say(s, &INVENTORY);
            say(s, &FromKeeper::Kept { key: "a", blob: b"b", fd: false });
            say(s, &FromKeeper::End { count: 2, generation: 7 });
        });
        assert!(short.unwrap_err().message.contains("announced 2"));
    }

    #[test]
    fn all_that_is_handed_over_arrives() {
        let handed = with_keeper(|s| {
            socket::send(s, &Versions::OURS.answer().greeting(), &[], Wait::Yes).unwrap();
            say(s, &INVENTORY);
            say(s, &FromKeeper::Kept { key: "a", blob: b"b", fd: false });
            say(s, &FromKeeper::End { count: 1, generation: 7 });
        });
        let handed = handed.unwrap();
        assert_eq!((handed.generation, handed.complete, handed.descriptors), (7, true, 9));
        assert_eq!((handed.kept[0].key.0.as_str(), &handed.kept[0].blob[..]), ("a", &b"b"[..]));
    }

    #[test]
    fn a_keeper_that_does_not_read_ends_the_send() {
        let (ours, _theirs) = socket::pair().unwrap();
        let me = process::pidfd(std::process::id()).unwrap();
        let link = Link { socket: ours, pidfd: me, pid: 0, covered: Covered::All };
        let error =
            (0..10_000).find_map(|_| link.send(&[0; 1000], None).err()).expect("a socket is not endless");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_filling_keeper_is_told_of_what_it_has_passed() {
        let (socket, _) = socket::pair().unwrap();
        let pidfd = process::pidfd(std::process::id()).unwrap();
        let mut link = Link { socket, pidfd, pid: 0, covered: Covered::UpTo(None) };
        assert!(!link.covers(&Key::new("a")));
        link.covered = Covered::UpTo(Some(Key::new("b")));
        assert!(link.covers(&Key::new("a")) && link.covers(&Key::new("b")) && !link.covers(&Key::new("c")));
    }
}
