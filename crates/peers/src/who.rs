//! Asking who listens at an address: of the first host of a cluster nothing else is known.

use crate::greeting::{Greeting, Introduction};
use crate::handshake::{DEADLINE, End, Talk};
use crate::hello::Hello;
use crate::judge::check_peer;
use crate::peers::Peers;
use crate::random;
use crate::through::Attempt;
use commonhold_object::{Error, ErrorKind, Result};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A machine that answers does so sooner, also where the first packet was lost.
const ANSWER: Duration = Duration::from_millis(1500);
/// So long the next address of a name waits for the one before it, and so often all are looked at.
const APART: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(10));

impl Peers {
    /// Says who this host is, hears who the other is, and leaves again. What was heard may be otherwise a moment later:
    /// [`connect`](Peers::connect) checks it. Of several addresses, which one name has, whichever answers first and is a host
    /// of this cluster; the others are not waited for.
    pub fn who(&self, addresses: &[SocketAddr]) -> Result<(Hello, SocketAddr)> {
        let mut untried = addresses.iter().copied();
        let mut trying: Vec<(SocketAddr, Instant, Attempt)> = Vec::new();
        let mut failures: Vec<Error> = Vec::new();
        loop {
            if trying.last().is_none_or(|(_, begun, _)| begun.elapsed() >= APART.0)
                && let Some(address) = untried.next()
            {
                match self.security().check(address) {
                    Ok(()) => trying.push((address, Instant::now(), Attempt::begin(address))),
                    Err(error) => failures.push(error),
                }
                continue;
            }
            if trying.is_empty() {
                return Err(all_of(failures));
            }
            let wait = if addresses.len() == 1 { ANSWER } else { APART.1 };
            let mut at = 0;
            while at < trying.len() {
                let (address, begun, attempt) = &mut trying[at];
                let address = *address;
                let failed = match attempt.is_there(wait) {
                    Ok(Some(socket)) => match self.ask_who(socket) {
                        Ok(hello) => return Ok((hello, address)),
                        Err(error) => Error::new(error.kind, format!("{address}: {}", error.message)),
                    },
                    Ok(None) if begun.elapsed() < ANSWER => {
                        at += 1;
                        continue;
                    }
                    Ok(None) => no_answer(address),
                    Err(error) => not_reached(address, &error),
                };
                failures.push(failed);
                trying.remove(at);
            }
        }
    }

    fn ask_who(&self, socket: TcpStream) -> Result<Hello> {
        let mut talk = Talk::open(socket, self.security(), End::Begins, Instant::now() + DEADLINE)?;
        let heard = (|| {
            let link = u64::from_le_bytes(random::bytes()?).max(1);
            let own = Introduction { hello: self.me().clone(), link, last: 0 };
            talk.say(&Greeting::Introduction(own))?;
            let Greeting::Introduction(theirs) = talk.hear()? else {
                return Err(Error::new(ErrorKind::Protocol, "the other end does not say who it is"));
            };
            check_peer(self.me(), &theirs.hello, talk.subject()?.as_ref())?;
            Ok(theirs.hello)
        })();
        talk.end();
        heard
    }
}

fn no_answer(address: SocketAddr) -> Error {
    let words = format!(
        "nobody answers at {address} within {} s: its machine is down, or what is sent there is dropped on the way (a firewall)",
        ANSWER.as_secs_f32()
    );
    Error::new(ErrorKind::TimedOut, words)
}

fn not_reached(address: SocketAddr, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::new(
            ErrorKind::Disconnected,
            format!("nobody answers at {address}: connection refused, so nothing listens there"),
        ),
        io::ErrorKind::TimedOut => no_answer(address),
        _ => Error::new(ErrorKind::Disconnected, format!("nobody answers at {address}: {error}")),
    }
}

/// Of several the kind of the last that a host itself gave, if one did.
fn all_of(failures: Vec<Error>) -> Error {
    let by_a_host = |error: &&Error| !matches!(error.kind, ErrorKind::Disconnected | ErrorKind::TimedOut);
    let kind = failures.iter().rfind(by_a_host).or(failures.last()).map(|error| error.kind);
    let words: Vec<String> = failures.into_iter().map(|error| error.message).collect();
    Error::new(kind.unwrap_or(ErrorKind::Disconnected), words.join("; "))
}
