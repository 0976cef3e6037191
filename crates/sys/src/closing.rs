//! Closing what came from outside. A close may wait: of a socket until what was sent has arrived (SO_LINGER), of a file
//! until its file system has answered (FUSE, NFS), and of a connection for all that lies in its queue. So descriptors from
//! outside are closed by a thread that nobody waits for, one for each user.

use crate::alarm;
use commonhold_points as points;
use rustix::io::Errno;
use rustix::net::{RecvFlags, ReturnFlags, Shutdown};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Descriptors of one user that may wait to be closed. Beyond it the user's connections end: see [`Closer::is_full`].
pub const WAITING: usize = 1024;

/// An idle thread leaves after this long.
const IDLE: Duration = Duration::from_secs(5);

/// Whether a descriptor is a socket, of whatever kind. Answers at once.
pub fn is_socket(fd: impl AsFd) -> bool {
    rustix::net::sockopt::socket_type(fd).is_ok()
}

/// Closes a descriptor; a socket that lingers is not waited for. (A file whose file system does not answer is.)
pub fn close_now<T>(held: T) {
    alarm::interrupting(|| drop(held));
}

/// Ends a connection, and empties its queue: whoever closes it last finds nothing in it to wait for. Descriptors in the
/// queue that linger are not waited for, and files in it are not: nobody has them open yet.
pub fn drain(socket: impl AsFd) {
    let socket = socket.as_fd();
    // Nothing is put into the queue from now on. Refused where the other end is gone, which is as good.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
    // With it the kernel says of every message that there was no room for what came along; of the end it does not. Not
    // refused: it is a socket.
    let _ = rustix::net::sockopt::set_socket_passcred(socket, true);
    alarm::interrupting(|| {
        loop {
            // Without room for descriptors: the kernel drops those that a message has.
            match receive(socket) {
                Ok((0, false)) => return,
                // That the other end went is said once, before what it sent.
                Ok(_) | Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(_) => return, // there is nothing
            }
        }
    });
}

/// The length of the next message, and whether something came along.
fn receive(socket: BorrowedFd<'_>) -> Result<(usize, bool), Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let mut bytes = [0; 1];
    let mut none = rustix::net::RecvAncillaryBuffer::default();
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let message = points::receive(|| rustix::net::recvmsg(socket, &mut pieces, &mut none, flags))?;
    Ok((message.bytes, message.flags.contains(ReturnFlags::CTRUNC)))
}

/// What is to be closed.
#[derive(Debug)]
enum Waiting {
    Descriptor(OwnedFd),
    /// A connection, whose queue is emptied; others may hold it.
    Connection(Arc<OwnedFd>),
}

/// Closes what came from one user, on a thread of its own, which is there while there is something to close.
#[derive(Clone, Debug, Default)]
pub struct Closer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// One is being closed.
    is_closing: bool,
    has_thread: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Closer {
    /// Closes these, and does not wait for it.
    pub fn close(&self, fds: impl IntoIterator<Item = OwnedFd>) {
        self.add(fds.into_iter().map(Waiting::Descriptor));
    }

    /// Ends a connection and empties its queue. Where too many descriptors wait already that is done here, which takes
    /// milliseconds: nothing in a queue waits for a file system.
    pub fn end_connection(&self, socket: Arc<OwnedFd>) {
        if self.is_full() {
            drain(&*socket);
            return;
        }
        self.add([Waiting::Connection(socket)]);
    }

    /// More wait than may: the user's connections are to end, so that no more come.
    pub fn is_full(&self) -> bool {
        self.0.lock().waiting.len() >= WAITING
    }

    /// Nothing waits.
    pub fn is_idle(&self) -> bool {
        let queue = self.0.lock();
        queue.waiting.is_empty() && !queue.is_closing
    }

    fn add(&self, more: impl IntoIterator<Item = Waiting>) {
        let mut queue = self.0.lock();
        queue.waiting.extend(more);
        if queue.waiting.is_empty() {
            return;
        }
        if queue.has_thread {
            self.0.wake.notify_one();
            return;
        }
        queue.has_thread = true;
        let shared = self.0.clone();
        if points::thread(|| std::thread::Builder::new().name("closing".into()).spawn(move || work(&shared)))
            .is_err()
        {
            queue.has_thread = false; // what comes next tries again
        }
    }
}

fn work(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        if let Some(next) = queue.waiting.pop_front() {
            queue.is_closing = true;
            drop(queue);
            match next {
                Waiting::Descriptor(fd) => close_now(fd),
                Waiting::Connection(socket) => drain(&*socket),
            }
            queue = shared.lock();
            queue.is_closing = false;
            continue;
        }
        let (next, waited) = shared.wake.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
        queue = next;
        if waited.timed_out() && queue.waiting.is_empty() {
            queue.has_thread = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{self, Wait};
    use rustix::net::sockopt;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    /// Far more than anything takes that is not waited for, and less than what lingers.
    const LONG: Duration = Duration::from_secs(60);

    /// A socket whose last close waits for an hour, and what keeps it from being done.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (silent, _) = listener.accept().unwrap();
        sockopt::set_socket_linger(&stream, Some(Duration::from_secs(3600))).unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 65536]).is_ok() {}
        (stream.into(), silent)
    }

    #[test]
    fn what_lingers_is_closed_at_once() {
        let began = Instant::now();
        let (socket, _silent) = lingering();
        assert!(is_socket(&socket));
        close_now(socket);
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn a_queue_with_what_lingers_is_emptied_at_once() {
        let began = Instant::now();
        let (ours, theirs) = socket::pair().unwrap();
        let mut silent = Vec::new();
        for _ in 0..5 {
            let (one, other) = lingering();
            socket::send(&theirs, b"", &[], Wait::Yes).unwrap();
            socket::send(&theirs, b"message", &[one.as_fd(), one.as_fd()], Wait::Yes).unwrap();
            silent.push(other);
        }
        drain(&ours);
        assert!(socket::send(&theirs, b"more", &[], Wait::No).is_err());
        drop(ours); // which would wait if anything were left
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn a_closer_closes_in_its_own_thread_and_does_not_wait_for_what_lingers() {
        let closer = Closer::default();
        let (read, write) = rustix::pipe::pipe().unwrap();
        closer.close([write]);
        // The end of the pipe is seen when its only writer is closed.
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0));
        let began = Instant::now();
        while !closer.is_idle() {
            assert!(began.elapsed() < LONG);
            std::thread::yield_now();
        }
        let (socket, _silent) = lingering();
        closer.close((0..500).map(|_| socket.try_clone().unwrap()));
        while !closer.is_idle() {
            assert!(began.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!closer.is_full());
    }

    #[test]
    fn a_closer_with_as_many_as_may_wait_is_full() {
        let closer = Closer::default();
        // As if its thread were closing something that takes long.
        closer.0.lock().has_thread = true;
        let (read, _write) = rustix::pipe::pipe().unwrap();
        closer.close((1..WAITING).map(|_| read.try_clone().unwrap()));
        assert!(!closer.is_full());
        closer.close([read]);
        assert!(closer.is_full() && !closer.is_idle());
    }
}
