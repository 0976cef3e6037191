//! The listening end: a thread that takes connections, and one for each handshake, of which there are only so many.

use crate::greeting::{Greeting, Introduction};
use crate::handshake::{DEADLINE, End, Talk};
use crate::judge::check_peer;
use crate::places::{Place, Places};
use crate::relay::Relays;
use crate::security::Security;
use crate::table::{Candidate, Ends, Table};
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most handshakes at once: who connects and says nothing takes one for its deadline.
const MOST_HANDSHAKES: usize = 64;

/// What is done with those who connect.
pub trait Gate: Send + Sync + 'static {
    /// Whether all is over.
    fn is_stopped(&self) -> bool;
    /// Somebody was turned away.
    fn refused(&self, from: SocketAddr, why: &Error);
    /// Deals with one, on a thread of its own.
    fn answer(&self, socket: TcpStream, from: SocketAddr) -> Result<()>;
}

/// The gate of hosts.
pub struct HostGate {
    /// Who is connected.
    pub table: Arc<Table>,
    /// How they speak.
    pub security: Security,
    /// What is passed on here between others.
    pub relays: Arc<Relays>,
}

impl Gate for HostGate {
    fn is_stopped(&self) -> bool {
        self.table.is_stopped()
    }

    fn refused(&self, from: SocketAddr, why: &Error) {
        self.table.handler.refused(from, why);
    }

    fn answer(&self, socket: TcpStream, from: SocketAddr) -> Result<()> {
        self.security.check(from)?;
        let mut talk = Talk::open(socket, &self.security, End::Answers, Instant::now() + DEADLINE)?;
        match talk.hear() {
            Ok(Greeting::Introduction(introduction)) => {
                answer(talk, introduction, &self.table, &self.security)
            }
            Ok(Greeting::Relay(wanted)) => self.relays.pass_on(talk, &wanted, &self.table, &self.security),
            other => {
                let silent = || Error::new(ErrorKind::Protocol, "the other end does not say who it is");
                let error = other.err().unwrap_or_else(silent);
                talk.refuse(&error);
                Err(error)
            }
        }
    }
}

/// Takes connections until all is over, and the listener is shut down.
pub fn run(listener: &TcpListener, gate: &Arc<impl Gate>) {
    let handshakes = Places::new(MOST_HANDSHAKES);
    loop {
        let accepted = listener.accept();
        if gate.is_stopped() {
            return;
        }
        match accepted {
            Ok((socket, from)) => begin(socket, from, gate, &handshakes),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // Out of descriptors or memory: others may give some back.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn begin(socket: TcpStream, from: SocketAddr, gate: &Arc<impl Gate>, handshakes: &Arc<Places>) {
    let Some(place) = Place::take(handshakes) else {
        let words =
            format!("{MOST_HANDSHAKES} handshakes are under way, which is the limit: it may try again");
        return gate.refused(from, &Error::new(ErrorKind::TooMany, words));
    };
    let this = gate.clone();
    let spawned = points::thread(|| {
        std::thread::Builder::new().name("peer-handshake".into()).spawn(move || {
            let _place = place;
            if let Err(error) = this.answer(socket, from)
                && !this.is_stopped()
            {
                this.refused(from, &error);
            }
        })
    });
    if let Err(error) = spawned {
        gate.refused(from, &Error::io("starting a thread for a handshake", &error));
    }
}

fn answer(mut talk: Talk, introduction: Introduction, table: &Arc<Table>, security: &Security) -> Result<()> {
    let greeted = (|| {
        let rights = check_peer(&table.me, &introduction.hello, talk.subject()?.as_ref())?;
        let last = table.last(introduction.hello.host);
        let own = Introduction { hello: table.me.clone(), link: introduction.link, last };
        talk.say(&Greeting::Introduction(own))?;
        match talk.hear()? {
            Greeting::Agreed(standing) => Ok((rights, Ends::Answers(standing))),
            _ => Err(Error::new(ErrorKind::Protocol, "the other end neither agrees nor refuses")),
        }
    })();
    match greeted {
        Ok((rights, end)) => {
            let good_until = talk.good_until(security);
            table.conclude(Candidate { talk, introduction, rights, good_until, end }).map(drop)
        }
        Err(error) => {
            talk.refuse(&error);
            Err(error)
        }
    }
}
