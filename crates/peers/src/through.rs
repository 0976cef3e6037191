//! Reaching a host through another, where there is no way to it from here. [`relay`](crate::relay) is the other end.

use crate::greeting::{Greeting, Wanted};
use crate::handshake::{End, Talk};
use crate::peers::Peers;
use crate::relay::GO;
use crate::timed::Timed;
use crate::tls;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// So long a host's machine is given to answer before others are asked.
pub const DIRECT: Duration = Duration::from_secs(1);
/// More are not asked at a time: the next attempt asks others.
const MOST_ASKED: usize = 2;

/// A host, and where it listens.
pub type HostAt = (HostId, SocketAddr);

impl Peers {
    /// A socket whose other end is that host's, and which host passes on what is said by it, if one does. Only hosts that are
    /// connected are asked for that, and only if the machine does not answer: where it says that nobody listens there, nobody
    /// does for others either.
    pub(crate) fn socket_to(
        &self,
        (host, address): HostAt,
        relays: &[HostAt],
        deadline: Instant,
    ) -> Result<(TcpStream, Option<HostId>)> {
        let left = deadline.saturating_duration_since(Instant::now());
        let asked: Vec<&HostAt> =
            relays.iter().filter(|relay| self.is_connected(relay.0)).take(MOST_ASKED).collect();
        let patience = if asked.is_empty() { left } else { left.min(DIRECT) };
        let mut why = match TcpStream::connect_timeout(&address, patience) {
            Ok(socket) => return Ok((socket, None)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(Error::io("nobody answers there", &error));
            }
            Err(error) => Error::io("nobody answers there", &error),
        };
        for relay in asked {
            match self.through(relay, host, deadline) {
                Ok(socket) => return Ok((socket, Some(relay.0))),
                Err(error) => why.message += &format!("; through {}: {}", relay.0, error.message),
            }
        }
        Err(why)
    }

    /// By a connection of its own with a host that passes on.
    fn through(&self, (relay, address): &HostAt, to: HostId, deadline: Instant) -> Result<TcpStream> {
        self.security().check(*address)?;
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let socket = TcpStream::connect_timeout(address, left.min(DIRECT)).doing("it does not answer")?;
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
