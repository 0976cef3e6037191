//! Where a host listens, as people write it: a name or an address, and a port. A name is resolved anew at each attempt, by a
//! thread that nobody else waits for: what it asks may be away for long.

use crate::channel::lock;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 16;
/// Longest name, and longest part of one (RFC 1035).
const LONGEST: (usize, usize) = (253, 63);

/// A name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    name: String,
    port: u16,
    /// It was written as an address.
    literal: Option<SocketAddr>,
}

impl HostAddress {
    /// The address, where no name has to be resolved.
    pub fn literal(&self) -> Option<SocketAddr> {
        self.literal
    }

    /// All addresses that the name has now. Waits for whoever knows them.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>> {
        if let Some(literal) = self.literal {
            return Ok(vec![literal]);
        }
        let unknown = |why: String| {
            Error::new(ErrorKind::Disconnected, format!("the name {} is not resolved: {why}", self.name))
        };
        let found =
            (self.name.as_str(), self.port).to_socket_addrs().map_err(|why| unknown(why.to_string()))?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !addresses.contains(&address) && addresses.len() < MOST_ADDRESSES {
                addresses.push(address);
            }
        }
        if addresses.is_empty() { Err(unknown("it has no address".to_owned())) } else { Ok(addresses) }
    }

    /// The same, but an address is believed: whether it is this machine's is seen when it is listened on.
    pub fn of_this_machine_if_named(&self) -> Result<SocketAddr> {
        self.literal.map_or_else(|| self.of_this_machine(), Ok)
    }

    /// The address of this machine that is meant: of several the first that other machines can reach, where one is.
    pub fn of_this_machine(&self) -> Result<SocketAddr> {
        let mut addresses = self.resolve()?;
        addresses.sort_by_key(|address| address.ip().to_canonical().is_loopback());
        let is_here = |address: &&SocketAddr| TcpListener::bind((address.ip(), 0)).is_ok();
        addresses.iter().find(is_here).copied().ok_or_else(|| {
            let found: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
            Error::invalid(format!(
                "{} is {}, which is no address of this machine: give a name or an address that is (a service with \
                 PrivateNetwork=yes has none but loopback's)",
                self.name,
                found.join(" and ")
            ))
        })
    }
}

impl FromStr for HostAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<HostAddress> {
        if let Ok(literal) = text.parse::<SocketAddr>() {
            return Ok(HostAddress {
                name: literal.ip().to_string(),
                port: literal.port(),
                literal: Some(literal),
            });
        }
        let wrong = || {
            Error::invalid(format!(
                "{text:?} is no NAME:PORT or ADDRESS:PORT, such as left.example:7420, 192.0.2.1:7420 or [2001:db8::1]:7420"
            ))
        };
        let (name, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_part = |part: &str| (1..=LONGEST.1).contains(&part.len()) && part.bytes().all(is_letter);
        let parts = name.strip_suffix('.').unwrap_or(name);
        // What looks like an address and is none, such as 192.0.2.300, would be asked of strangers as a name.
        let last = parts.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
        if name.len() > LONGEST.0 || !parts.split('.').all(is_part) || is_number {
            return Err(wrong());
        }
        Ok(HostAddress { name: name.to_owned(), port, literal: None })
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.literal {
            Some(literal) => literal.fmt(f),
            None => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// Resolves one name again and again.
pub struct Resolver {
    of: HostAddress,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A thread asks now.
    asking: bool,
    /// How many answers came, and the last one.
    answers: u64,
    failure: Option<Error>,
    /// What it was last.
    known: Vec<SocketAddr>,
}

impl Resolver {
    /// Of that name.
    pub fn new(of: HostAddress) -> Resolver {
        Resolver { of, shared: Arc::default() }
    }

    /// What is resolved.
    pub fn of(&self) -> &HostAddress {
        &self.of
    }

    /// All addresses of the name: what it has now, or, if nobody says that in time, what it had last.
    pub fn addresses(&self, within: Duration) -> Result<Vec<SocketAddr>> {
        if let Some(literal) = self.of.literal {
            return Ok(vec![literal]);
        }
        let mut state = lock(&self.shared.state);
        let before = state.answers;
        if !state.asking {
            self.ask()?;
            state.asking = true;
        }
        let waits = |state: &mut State| state.answers == before;
        let waited = self.shared.changed.wait_timeout_while(state, within, waits);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.failure {
            _ if !state.known.is_empty() => Ok(state.known.clone()),
            Some(error) if !timeout.timed_out() => Err(error.clone()),
            _ => Err(Error::new(
                ErrorKind::TimedOut,
                format!(
                    "the name {} is not resolved: the name servers of this machine do not answer within {} s",
                    self.of.name,
                    within.as_secs_f32()
                ),
            )),
        }
    }

    fn ask(&self) -> Result<()> {
        let (of, shared) = (self.of.clone(), self.shared.clone());
        let asking = move || {
            let answer = of.resolve();
            let mut state = lock(&shared.state);
            state.asking = false;
            state.answers += 1;
            match answer {
                Ok(addresses) => (state.known, state.failure) = (addresses, None),
                Err(error) => state.failure = Some(error),
            }
            shared.changed.notify_all();
        };
        let thread = std::thread::Builder::new().name("resolve".into());
        points::thread(|| thread.spawn(asking)).map(drop).doing("starting a thread that resolves a name")
    }
}

/// Whether nobody else is reached there: every address of the machine, or none.
pub fn is_nowhere(address: &SocketAddr) -> bool {
    let ip: IpAddr = address.ip().to_canonical();
    ip.is_unspecified() || address.port() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood_or_refused() {
        for good in ["left.example:7420", "left:1", "left.example.:7420", "127.0.0.1:7420", "[::1]:7420"] {
            assert_eq!(good.parse::<HostAddress>().unwrap().to_string(), good);
        }
        let long = format!("{}:1", "a".repeat(64));
        for wrong in
            ["", "left", ":7420", "left:", "left:70000", "a b:1", "a..b:1", "192.0.2.300:1", "a/b:1", &long]
        {
            assert!(wrong.parse::<HostAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_resolved_and_what_is_none_is_said() {
        let local = Resolver::new("localhost:7".parse().unwrap());
        let addresses = local.addresses(Duration::from_secs(5)).unwrap();
        assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 7));
        let nobody = Resolver::new("nobody.invalid:7".parse().unwrap());
        let why = nobody.addresses(Duration::from_secs(20)).unwrap_err();
        assert!(why.message.contains("nobody.invalid is not resolved"), "{why}");
        assert_ne!(why.kind, ErrorKind::NotFound, "that would mean that this host is lost");
    }

    #[test]
    fn who_is_not_answered_in_time_goes_on_with_what_was_known() {
        let resolver = Resolver::new("nobody.invalid:7".parse().unwrap());
        // A thread that never answers.
        lock(&resolver.shared.state).asking = true;
        let why = resolver.addresses(Duration::from_millis(10)).unwrap_err();
        assert_eq!(why.kind, ErrorKind::TimedOut);
        lock(&resolver.shared.state).known = vec![([192, 0, 2, 1], 7).into()];
        assert_eq!(resolver.addresses(Duration::from_millis(10)).unwrap().len(), 1);
    }

    #[test]
    fn a_name_of_another_machine_is_no_place_to_listen() {
        let here = "localhost:7".parse::<HostAddress>().unwrap().of_this_machine().unwrap();
        assert!(here.ip().is_loopback());
        let elsewhere: HostAddress = "192.0.2.1:7".parse().unwrap();
        let why = elsewhere.of_this_machine().unwrap_err().message;
        assert!(why.contains("192.0.2.1, which is no address of this machine"), "{why}");
    }
}
