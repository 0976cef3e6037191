//! One host process as the keeper sees it: alive or not, and what its socket has brought.

use crate::backoff::{Asked, Ending};
use crate::kept::Key;
use crate::stuck;
use commonhold_sys::{process, socket};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

/// How often to look: at one line of one file, as long as it lives.
const LOOKS_APART: Duration = Duration::from_millis(500);

/// A host process.
#[derive(Debug)]
pub(crate) struct Hosted {
    pub pid: u32,
    /// There if we started it.
    child: Option<Child>,
    /// None: it had ended before we could get hold of it.
    pidfd: Option<OwnedFd>,
    /// When to look next whether it is gone but for threads that run no more: no event tells.
    look_at: Instant,
    /// It was killed, and cannot end.
    stuck: bool,
    /// None: it has closed its end.
    pub socket: Option<OwnedFd>,
    born: Instant,
    pub asked: Asked,
    pub told_to_stop: bool,
    /// Version of the protocol agreed on; 0 before the greeting.
    pub version: u16,
    pub sending: Sending,
    /// The next message could not be sent for lack of something that no event announces.
    pub sending_paused: bool,
    pub problems: u32,
}

/// How far the host has got in receiving what was kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The host has not said hello, or none that we understand.
    AwaitHello,
    Inventory,
    /// All up to this key is sent.
    Things {
        after: Option<Key>,
        count: u32,
    },
    Done,
    /// All is sent, and these that the keeper put since: the last of them next.
    More(Vec<Key>),
}

impl Hosted {
    /// A host that we started.
    pub fn started(mut child: Child, socket: OwnedFd) -> io::Result<Self> {
        let pid = child.id();
        match process::pidfd(pid) {
            Ok(pidfd) => Ok(Self::new(pid, Some(child), Some(pidfd), socket)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// A host that started us. The socket's other end is its own, whatever number it has.
    pub fn inherited(socket: OwnedFd, pid: Option<u32>) -> io::Result<Self> {
        let peer = socket::peer(&socket)?;
        let pidfd = match socket::peer_pidfd(&socket) {
            Ok(pidfd) => Some(pidfd),
            // It ended before we could look.
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::SRCH | Errno::INVAL)) => None,
            Err(error) => return Err(error),
        };
        Ok(Self::new(pid.unwrap_or(peer.pid), None, pidfd, socket))
    }

    fn new(pid: u32, child: Option<Child>, pidfd: Option<OwnedFd>, socket: OwnedFd) -> Self {
        Hosted {
            look_at: Instant::now() + LOOKS_APART,
            stuck: false,
            pid,
            child,
            pidfd,
            socket: Some(socket),
            born: Instant::now(),
            asked: Asked::Nothing,
            told_to_stop: false,
            version: 0,
            sending: Sending::AwaitHello,
            sending_paused: false,
            problems: 0,
        }
    }

    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// It has ended, or was killed and will not run any more.
    pub fn has_ended(&self) -> bool {
        self.stuck || self.pidfd.as_ref().is_none_or(process::has_ended)
    }

    /// How long until the next look.
    pub fn next_look(&self) -> Duration {
        self.look_at.saturating_duration_since(Instant::now())
    }

    /// Looks every now and then whether it is stuck.
    pub fn look(&mut self) {
        if self.next_look().is_zero() && !self.has_ended() {
            self.stuck = stuck::runs_no_more(self.pid);
            self.look_at = Instant::now() + LOOKS_APART;
        }
    }

    /// Whether it was killed and cannot end; and what is left of it, to be reaped when it can.
    pub fn stuck(&mut self) -> Option<Child> {
        if self.stuck { self.child.take() } else { None }
    }

    /// How long it has lived, in this keeper's sight.
    pub fn lived(&self) -> Duration {
        self.born.elapsed()
    }

    /// Whether something of what was kept waits to be sent.
    pub fn has_more_to_send(&self) -> bool {
        self.socket.is_some() && !matches!(self.sending, Sending::AwaitHello | Sending::Done)
    }

    /// How it ended. Call once it has: our own child is reaped.
    pub fn ending(&mut self) -> Ending {
        if self.stuck {
            return Ending::Unknown; // it has no status yet
        }
        let Some(status) = self.child.as_mut().and_then(|child| child.wait().ok()) else {
            return Ending::Unknown;
        };
        match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Code(code),
            (None, Some(signal)) => Ending::Signal(signal),
            (None, None) => Ending::Unknown,
        }
    }

    /// Ends it, whatever it is doing. One that is stopped does not run again before.
    pub fn kill(&self) {
        if let Some(pidfd) = &self.pidfd {
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
        }
    }

    pub fn tell_to_stop(&mut self) -> io::Result<()> {
        self.told_to_stop = true;
        match &self.pidfd {
            Some(pidfd) => Ok(rustix::process::pidfd_send_signal(pidfd, Signal::TERM)?),
            None => Ok(()),
        }
    }
}
