//! Hosts that write down what they hear, on loopback.
#![allow(dead_code)] // each test program uses a part of it

pub mod cutter;
pub mod puppet;

#[path = "../../../../tests/limit.rs"]
mod limit;

use commonhold_peers::ca::{Authority, Validity};
use commonhold_peers::{Error, Handler, Hello, HostId, Identity, Payload, PeerRights, Peers, Security};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Longest wait for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a handler was told.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    Connected(HostId, u64, PeerRights),
    Message(HostId, Vec<u8>, Vec<u8>),
    Broken(HostId, u64, String),
    Resumed(HostId, u64),
    Lost(HostId, u64, String),
    Refused(String),
    PassesOn(String, HostId),
    Through(HostId, HostId),
}

/// Where hosts listen with which connections are passed on.
pub type Ways = Arc<Mutex<HashMap<HostId, SocketAddr>>>;

struct Recorder(Mutex<Sender<Heard>>, Ways);

impl Recorder {
    fn say(&self, heard: Heard) {
        // The test may be over.
        let _ = self.0.lock().unwrap().send(heard);
    }
}

impl Handler for Recorder {
    fn connected(&self, peer: &Hello, rights: PeerRights) {
        self.say(Heard::Connected(peer.host, peer.incarnation, rights));
    }

    fn received(&self, from: HostId, message: &[u8], payload: &mut Payload<'_>) {
        let mut bytes = vec![0; payload.len()];
        if payload.read_exact(&mut bytes).is_ok() {
            self.say(Heard::Message(from, message.to_vec(), bytes));
        }
    }

    fn broken(&self, host: HostId, incarnation: u64, why: &Error) {
        self.say(Heard::Broken(host, incarnation, why.message.clone()));
    }

    fn resumed(&self, peer: &Hello, _rights: PeerRights) {
        self.say(Heard::Resumed(peer.host, peer.incarnation));
    }

    fn lost(&self, host: HostId, incarnation: u64, why: &Error) {
        self.say(Heard::Lost(host, incarnation, why.message.clone()));
    }

    fn passes_on_to(&self, _from: &Hello, host: HostId) -> Option<SocketAddr> {
        self.1.lock().unwrap().get(&host).copied()
    }

    fn passes_on(&self, from: &Hello, to: HostId) {
        self.say(Heard::PassesOn(from.name.clone(), to));
    }

    fn reached_through(&self, host: HostId, relay: HostId) {
        self.say(Heard::Through(host, relay));
    }

    fn refused(&self, _from: SocketAddr, why: &Error) {
        self.say(Heard::Refused(why.message.clone()));
    }
}

/// A host.
pub struct TestHost {
    pub id: HostId,
    pub peers: Arc<Peers>,
    /// With whom it passes connections on: nobody, at first.
    pub ways: Ways,
    heard: Mutex<Receiver<Heard>>,
}

impl TestHost {
    pub fn address(&self) -> SocketAddr {
        self.peers.local_addr()
    }

    /// What it hears next.
    pub fn next(&self) -> Heard {
        self.heard.lock().unwrap().recv_timeout(PATIENCE).expect("nothing was heard")
    }

    /// What it hears next of hosts that it let in. (Who finds in time that it needs no connection leaves before it says who it
    /// is.)
    pub fn next_of_peers(&self) -> Heard {
        loop {
            match self.next() {
                Heard::Refused(why) if why.contains("greeting the other end") => {}
                heard => return heard,
            }
        }
    }

    /// Nothing else was heard so far.
    pub fn silent_but_for_refusals(&self) -> bool {
        self.heard.lock().unwrap().try_iter().all(|heard| matches!(heard, Heard::Refused(_)))
    }

    /// Nothing was heard so far.
    pub fn silent(&self) -> bool {
        self.heard.lock().unwrap().try_recv().is_err()
    }

    /// It hears next that it lost a host; why.
    pub fn lost(&self, host: HostId, incarnation: u64) -> String {
        match self.next() {
            Heard::Lost(who, which, why) if (who, which) == (host, incarnation) => why,
            other => panic!("not the loss of {host}: {other:?}"),
        }
    }

    /// It hears next that the connection with a host broke; why.
    pub fn broken(&self, host: HostId, incarnation: u64) -> String {
        match self.next() {
            Heard::Broken(who, which, why) if (who, which) == (host, incarnation) => why,
            other => panic!("not a broken connection with {host}: {other:?}"),
        }
    }

    /// It hears next that it turned somebody away; why.
    pub fn refused(&self) -> String {
        match self.next() {
            Heard::Refused(why) => why,
            other => panic!("not a refusal: {other:?}"),
        }
    }
}

/// A cluster's authority, and how its hosts speak.
pub struct Net {
    pub directory: TempDir,
    pub authority: Option<Authority>,
    cluster: [u8; 16],
}

impl Net {
    pub fn plain() -> Net {
        Net { directory: tempfile::tempdir().unwrap(), authority: None, cluster: [7; 16] }
    }

    pub fn tls() -> Net {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::init(&directory.path().join("ca")).unwrap();
        Net { cluster: authority.cluster(), directory, authority: Some(authority) }
    }

    /// A certificate for that name.
    pub fn identity(&self, name: &str, rights: PeerRights, validity: Validity) -> Identity {
        let into = tempfile::tempdir_in(self.directory.path()).unwrap();
        self.authority.as_ref().unwrap().issue_into(into.path(), name, rights, validity).unwrap();
        Identity::load(into.path()).unwrap()
    }

    pub fn security(&self, name: &str) -> Security {
        match self.authority {
            None => Security::Plain { even_beyond_loopback: false },
            Some(_) => Security::Tls(self.identity(name, PeerRights::ReadWrite, year())),
        }
    }

    pub fn hello(&self, id: u32, name: &str) -> Hello {
        Hello::new(self.cluster, HostId(id), name, 1).unwrap()
    }

    /// A host in its first incarnation.
    pub fn host(&self, id: u32, name: &str) -> TestHost {
        start(self.hello(id, name), self.security(name))
    }
}

/// A host that says this of itself.
pub fn start(hello: Hello, security: Security) -> TestHost {
    limit::begin();
    let (sender, heard) = channel();
    let id = hello.host;
    let ways = Ways::default();
    let handler = Arc::new(Recorder(Mutex::new(sender), ways.clone()));
    let peers = Peers::start("127.0.0.1:0".parse().unwrap(), hello, security, handler).unwrap();
    TestHost { id, peers, ways, heard: Mutex::new(heard) }
}

/// From a day ago, for a year.
pub fn year() -> Validity {
    Validity::of(Duration::from_secs(365 * 86_400))
}

/// A handler for hosts that are not to begin.
pub struct Deaf;

impl Handler for Deaf {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {}
    fn received(&self, _from: HostId, _message: &[u8], _payload: &mut Payload<'_>) {}
    fn lost(&self, _host: HostId, _incarnation: u64, _why: &Error) {}
}
