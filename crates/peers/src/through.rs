//! Reaching a host through another, where there is no way to it from here. [`relay`](crate::relay) is the other end.

use crate::greeting::{Greeting, Wanted};
use crate::handshake::{End, Talk};
use crate::peers::Peers;
use crate::relay::GO;
use crate::socket::{self, Ready};
use crate::timed::Timed;
use crate::tls;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// So long a host's machine may take to answer before others are asked. It may still answer while they are.
const ALONE: Duration = Duration::from_millis(400);
/// How many others are asked at a time, and how long each may take, which may be stopped itself. The next attempt asks others.
const ASKED: (usize, Duration) = (2, Duration::from_millis(1500));
/// The same where the machine says that nobody listens: whose process has died starts again soon.
const ASKED_ALL_THE_SAME: (usize, Duration) = (1, Duration::from_millis(500));
/// Of so many refusals one is not believed.
const BELIEVED: usize = 4;

/// A host, and where it listens.
pub type HostAt = (HostId, SocketAddr);

impl Peers {
    /// A socket whose other end is that host's, and which host passes on what is said by it, if one does. Others are asked if its
    /// machine does not answer for a while, those first that are connected; whichever way is found first is gone. Where
    /// the machine says that nobody listens the process has died, as a rule, and nobody else reaches it either; but some
    /// firewalls say the same.
    pub(crate) fn socket_to(
        &self,
        (host, address): HostAt,
        mut relays: Vec<HostAt>,
        deadline: Instant,
    ) -> Result<(TcpStream, Option<HostId>)> {
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut direct = Attempt::begin(address);
        let alone = if relays.is_empty() { left() } else { left().min(ALONE) };
        let (count, time) = match direct.is_there(alone) {
            Ok(Some(socket)) => return Ok((socket, None)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if self.believes_refusal() {
                    return Err(Error::io("nobody answers there", &error));
                }
                ASKED_ALL_THE_SAME
            }
            Ok(None) | Err(_) => ASKED,
        };
        // Asked once of each: connections come and end meanwhile, and a sort by what changes ends
        // the process.
        relays.sort_by_cached_key(|relay| !self.is_connected(relay.0));
        let mut tried = String::new();
        for relay in relays.iter().take(count) {
            let through = self.through(relay, host, deadline.min(Instant::now() + time));
            if let Ok(Some(socket)) = direct.is_there(Duration::ZERO) {
                return Ok((socket, None));
            }
            match through {
                Ok(socket) => return Ok((socket, Some(relay.0))),
                Err(error) => tried += &format!("; through {}: {}", relay.0, error.message),
            }
        }
        let why = match direct.is_there(left()) {
            Ok(Some(socket)) => return Ok((socket, None)),
            Ok(None) => io::Error::from(Errno::TIMEDOUT),
            Err(error) => error,
        };
        let mut why = Error::io("nobody answers there", &why);
        why.message += &tried;
        Err(why)
    }

    fn believes_refusal(&self) -> bool {
        !self.refused.fetch_add(1, Ordering::Relaxed).is_multiple_of(BELIEVED)
    }

    /// By a connection of its own with a host that passes on.
    fn through(&self, (relay, address): &HostAt, to: HostId, deadline: Instant) -> Result<TcpStream> {
        self.security().check(*address)?;
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let socket = TcpStream::connect_timeout(address, left).doing("it does not answer")?;
        let mut talk = Talk::open(socket, self.security(), End::Begins, deadline)?;
        talk.say(&Greeting::Relay(Wanted { hello: self.me().clone(), to }))?;
        let Greeting::Relayed = talk.hear()? else {
            let words = format!("{relay} neither passes on nor refuses");
            return Err(Error::new(ErrorKind::Protocol, words));
        };
        let socket = talk.into_socket();
        let told = Timed::new(&socket, deadline).write_all(&[GO]);
        told.map_err(|error| tls::explain("going on through another host", error))?;
        Ok(socket)
    }
}

/// A connection that is being made, or why there is none.
pub(crate) struct Attempt(io::Result<Option<TcpStream>>);

impl Attempt {
    pub(crate) fn begin(address: SocketAddr) -> Attempt {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let begun = socket_with(family, SocketType::STREAM, flags, None).and_then(|socket| {
            match connect(&socket, &address) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(Some(socket.into())),
                Err(error) => Err(error),
            }
        });
        Attempt(begun.map_err(Into::into))
    }

    /// The connection, if it is made by then; an error if it never is.
    pub(crate) fn is_there(&mut self, longest: Duration) -> io::Result<Option<TcpStream>> {
        let until = Instant::now() + longest;
        while let Ok(Some(socket)) = &self.0 {
            let left = until.saturating_duration_since(Instant::now());
            let is_ready = socket::wait(socket, Ready::ToWrite, Some(left))?;
            if let Err(error) = sockopt::socket_error(socket)? {
                self.0 = Err(error.into());
            } else if is_ready && socket.peer_addr().is_ok() {
                socket.set_nonblocking(false)?;
                return std::mem::replace(&mut self.0, Ok(None));
            } else if left.is_zero() {
                return Ok(None);
            }
        }
        // An error stays one, with its number.
        match &self.0 {
            Err(error) => {
                Err(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error))
            }
            Ok(_) => Ok(None),
        }
    }
}
