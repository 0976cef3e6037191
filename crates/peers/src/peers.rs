//! The connections of one host with the others.

use crate::accept::{self, HostGate};
use crate::channel::lock;
use crate::greeting::{Greeting, Introduction};
use crate::handler::Handler;
use crate::handshake::{DEADLINE, End, Talk};
use crate::hello::Hello;
use crate::judge::{Verdict, check_peer};
use crate::relay::Relays;
use crate::security::Security;
use crate::table::{Candidate, Ends, Table, Turn, random_number};
use crate::through::HostAt;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use commonhold_sys::tcp;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A machine that something is on its way to acknowledges sooner.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);

/// The connections of one host with the others of its cluster.
pub struct Peers {
    table: Arc<Table>,
    security: Security,
    relays: Arc<Relays>,
    /// How often a machine has said that nobody listens there.
    pub(crate) refused: AtomicUsize,
    listener: Arc<TcpListener>,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Peers {
    /// Listens on an address (port 0: any port), as the host that `hello` names.
    pub fn start(
        listen: SocketAddr,
        hello: Hello,
        security: Security,
        handler: Arc<dyn Handler>,
    ) -> Result<Arc<Peers>> {
        Peers::answer(Peers::listen(listen, &security)?, hello, security, handler)
    }

    /// Takes an address. Who connects waits for an answer until [`Peers::answer`].
    pub fn listen(listen: SocketAddr, security: &Security) -> Result<TcpListener> {
        security.check(listen)?;
        TcpListener::bind(listen).doing(format!("listening for other hosts on {listen}"))
    }

    /// Answers on an address that was taken by [`Peers::listen`].
    pub fn answer(
        listener: TcpListener,
        hello: Hello,
        security: Security,
        handler: Arc<dyn Handler>,
    ) -> Result<Arc<Peers>> {
        if let Security::Tls(identity) = &security
            && (identity.name() != hello.name || identity.cluster() != hello.cluster)
        {
            return Err(Error::invalid(format!(
                "the certificate is for host {:?} of one cluster, and this host is {:?}, perhaps of another: give it \
                 the certificate that was issued for it",
                identity.name(),
                hello.name
            )));
        }
        let what = "listening for other hosts";
        let listener = Arc::new(listener);
        let address = listener.local_addr().doing(what)?;
        let table = Table::new(hello, handler);
        let relays = Arc::<Relays>::default();
        let gate = HostGate { table: table.clone(), security: security.clone(), relays: relays.clone() };
        let gate = Arc::new(gate);
        let taken = listener.clone();
        let accepting = std::thread::Builder::new().name("peers-accept".into());
        let accepting = points::thread(|| accepting.spawn(move || accept::run(&taken, &gate))).doing(what)?;
        Ok(Arc::new(Peers {
            table,
            security,
            relays,
            refused: AtomicUsize::new(0),
            listener,
            address,
            accepting: Mutex::new(Some(accepting)),
        }))
    }

    pub(crate) fn security(&self) -> &Security {
        &self.security
    }

    pub(crate) fn me(&self) -> &Hello {
        &self.table.me
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Connects to a host, if it is not connected; returns when it is, or within five seconds with the reason why not.
    /// A session whose connection broke goes on.
    /// Both hosts may do so at once: one connection stays.
    pub fn connect(&self, host: HostId, address: SocketAddr) -> Result<()> {
        self.connect_within(host, address, DEADLINE, Vec::new)
    }

    /// The same for who cannot wait as long as that takes at most. Where the host's machine does not answer, these
    /// others are asked to pass the connection on ([`Handler::passes_on_to`]), those first that are connected. Who they
    /// are is only asked if the host is not connected.
    pub fn connect_within(
        &self,
        host: HostId,
        address: SocketAddr,
        within: Duration,
        relays: impl FnOnce() -> Vec<HostAt>,
    ) -> Result<()> {
        self.security.check(address)?;
        let deadline = Instant::now() + within.min(DEADLINE);
        let last = match self.table.begin_dialing(host, deadline)? {
            Turn::Connected => return Ok(()),
            Turn::Dial(last) => last,
        };
        let dialed = self.dial((host, address), relays(), last, deadline);
        self.table.end_dialing(host);
        match dialed {
            Ok(Verdict::Accept) => Ok(()),
            Ok(Verdict::Yield) => self.table.wait_connected(host, deadline),
            Err(error) => self.table.link(host).map(drop).map_err(|_| {
                Error::new(error.kind, format!("cannot connect to {host} at {address}: {}", error.message))
            }),
        }
    }

    fn dial(&self, to: HostAt, relays: Vec<HostAt>, last: u64, deadline: Instant) -> Result<Verdict> {
        let (socket, relay) = self.socket_to(to, relays, deadline)?;
        if !self.table.begin_greeting(to.0) {
            return Ok(Verdict::Yield);
        }
        let verdict = self.greet(to.0, socket, last, deadline)?;
        if let (Some(relay), Verdict::Accept) = (relay, &verdict) {
            self.table.handler.reached_through(to.0, relay);
        }
        Ok(verdict)
    }

    fn greet(&self, host: HostId, socket: TcpStream, last: u64, deadline: Instant) -> Result<Verdict> {
        let mut talk = Talk::open(socket, &self.security, End::Begins, deadline)?;
        let greeted = (|| {
            let link = random_number()?;
            let own = Introduction { hello: self.table.me.clone(), link, last };
            talk.say(&Greeting::Introduction(own))?;
            let Greeting::Introduction(theirs) = talk.hear()? else {
                return Err(Error::new(ErrorKind::Protocol, "the other end does not say who it is"));
            };
            if theirs.hello.host != host {
                let words = format!("the host there is {}", theirs.hello.who());
                return Err(Error::new(ErrorKind::Mismatch, words));
            }
            let rights = check_peer(&self.table.me, &theirs.hello, talk.subject()?.as_ref())?;
            let ours = self.table.propose(&theirs.hello)?;
            talk.say(&Greeting::Agreed(ours))?;
            match talk.hear()? {
                Greeting::Accepted(answer) => {
                    let rights = (rights, talk.good_until(&self.security));
                    Ok(Some((Introduction { link, ..theirs }, rights, Ends::Began(ours, answer))))
                }
                Greeting::Yield => Ok(None),
                _ => Err(Error::new(ErrorKind::Protocol, "the other end neither accepts nor refuses")),
            }
        })();
        match greeted {
            Ok(Some((introduction, (rights, good_until), end))) => {
                self.table.conclude(Candidate { talk, introduction, rights, good_until, end })
            }
            Ok(None) => Ok(Verdict::Yield),
            Err(error) => {
                talk.refuse(&error);
                Err(error)
            }
        }
    }

    /// Sends a message of at most [`crate::MAX_MESSAGE_BYTES`], and behind it raw bytes of at most
    /// [`crate::MAX_PAYLOAD_BYTES`]. Never waits for the peer: what its socket does not take at once is queued, and so
    /// is what is sent while the connection is broken. The session with a peer that lets too much pile up is over.
    /// Success means that the message arrives unless the session ends, no more; it may take the payload's buffer. After an
    /// error the payload is as it was.
    pub fn send(&self, to: HostId, message: &[u8], payload: &mut Vec<u8>) -> Result<()> {
        self.table.session(to)?.send(message, payload)
    }

    /// Whether a host is connected, as far as is known.
    pub fn is_connected(&self, host: HostId) -> bool {
        self.table.link(host).is_ok()
    }

    /// An answer of that host is late. If its machine does not even acknowledge what was said, the connection breaks now, and
    /// not only after ten seconds: another way may be found. The session goes on.
    pub fn doubt(&self, host: HostId) {
        let Ok(link) = self.table.link(host) else { return };
        if tcp::is_silent(&link.stream.socket, LONGEST_SILENCE).unwrap_or(false) {
            link.fail(Error::new(ErrorKind::TimedOut, "its machine does not acknowledge what was said"));
        }
    }

    /// Ends the session with a host, if there is one, and tells it why if it is connected. It may come again.
    pub fn disconnect(&self, host: HostId, why: &str) {
        if let Ok(session) = self.table.session(host) {
            session.dismiss(why);
        }
    }

    /// Ends the session with a host if it is of this incarnation or an earlier one, and lets none of these in again.
    pub fn bar(&self, host: HostId, incarnation: u64) {
        self.table.bar(host, incarnation);
    }

    /// Ends all sessions and listens no more. When it returns the handler has heard of every loss, but for a call of
    /// it that takes longer than five seconds.
    pub fn stop(&self) {
        self.table.stop(DEADLINE);
        self.relays.stop();
        // Wakes the thread that accepts; it sees that all is over.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(accepting) = lock(&self.accepting).take() {
            // It does not panic: handshakes have threads of their own.
            let _ = accepting.join();
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop();
    }
}
