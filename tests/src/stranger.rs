//! A host made by hand: connected as hosts are, and it says whatever a test wants said.

use crate::wait;
use commonhold_coherence::HostId;
use commonhold_host::cluster::registry::{Before, Joined};
use commonhold_host::cluster::wire::{Answer, Call, Claim, Member, Message};
use commonhold_peers::{
    Error, Handler, Hello, Identity, MAX_MESSAGE_BYTES, Payload, PeerRights, Peers, Result, Security,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of a part of a long message.
const PART: usize = 1 << 20;

/// A host made by hand.
pub struct Stranger {
    /// What it says of itself.
    pub me: Member,
    peers: Arc<Peers>,
    heard: Mutex<Receiver<Heard>>,
    calls: AtomicU64,
}

/// What it hears.
enum Heard {
    Said(HostId, Message),
    /// A host ended the session, or it broke.
    Lost(HostId, String),
}

struct Ear(Mutex<Sender<Heard>>);

impl Ear {
    fn hear(&self, heard: Heard) {
        // The test may be over.
        let _ = self.0.lock().expect("an ear").send(heard);
    }
}

impl Handler for Ear {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {}

    fn received(&self, from: HostId, message: &[u8], payload: &mut Payload<'_>) {
        let mut bytes = vec![0; payload.len()];
        if payload.read_exact(&mut bytes).is_ok()
            && let Ok(message) = postcard::from_bytes(message)
        {
            self.hear(Heard::Said(from, message));
        }
    }

    fn broken(&self, host: HostId, _incarnation: u64, why: &Error) {
        self.hear(Heard::Lost(host, why.message.clone()));
    }

    fn lost(&self, host: HostId, _incarnation: u64, why: &Error) {
        self.hear(Heard::Lost(host, why.message.clone()));
    }

    fn refused(&self, _from: SocketAddr, _why: &Error) {}
}

impl Stranger {
    /// One of that name and number, without certificates.
    pub fn new(number: u32, name: &str) -> Stranger {
        Self::speaking(number, name, |_| {})
    }

    /// The same, but what it says of itself is changed.
    pub fn speaking(number: u32, name: &str, change: impl FnOnce(&mut Hello)) -> Stranger {
        let mut hello = Hello::new([0; 16], HostId(number), name, 1).expect("a hello");
        change(&mut hello);
        Self::with(hello, Security::Plain { even_beyond_loopback: false }).expect("it listens")
    }

    /// One with the certificate in that directory.
    pub fn certified(number: u32, name: &str, identity: &Path) -> Stranger {
        let identity = Identity::load(identity).expect("an identity");
        let hello = Hello::new(identity.cluster(), HostId(number), name, 1).expect("a hello");
        Self::with(hello, Security::Tls(identity)).expect("it listens")
    }

    /// One that says this of itself.
    pub fn with(hello: Hello, security: Security) -> Result<Stranger> {
        let (sender, heard) = channel();
        let (host, name) = (hello.host, hello.name.clone());
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let peers = Peers::start(listen, hello, security, Arc::new(Ear(Mutex::new(sender))))?;
        let me = Member { host, name, address: peers.local_addr(), former: Vec::new() };
        Ok(Stranger { me, peers, heard: Mutex::new(heard), calls: AtomicU64::new(1) })
    }

    /// Connects to the host that listens there; which it is.
    pub fn connect(&self, to: &str) -> Result<HostId> {
        let address: SocketAddr = to.parse().expect("an address");
        let host = self.peers.who(&[address])?.0.host;
        self.peers.connect(host, address)?;
        Ok(host)
    }

    /// Whether that host has not ended the session.
    pub fn is_connected(&self, host: HostId) -> bool {
        self.peers.is_connected(host)
    }

    /// Says something; bytes behind it.
    pub fn say(&self, to: HostId, message: &[u8], payload: &[u8]) -> Result<()> {
        self.peers.send(to, message, &mut payload.to_vec())
    }

    /// Says a whole message, in parts if it is long.
    pub fn tell(&self, to: HostId, message: &Message, payload: &[u8]) -> Result<()> {
        let bytes = postcard::to_stdvec(message).expect("a message");
        if bytes.len() <= MAX_MESSAGE_BYTES || !payload.is_empty() {
            return self.say(to, &bytes, payload);
        }
        let parts: Vec<&[u8]> = bytes.chunks(PART).collect();
        for (at, part) in parts.iter().enumerate() {
            let head = Message::Part { is_first: at == 0, is_last: at + 1 == parts.len() };
            self.say(to, &postcard::to_stdvec(&head).expect("a message"), part)?;
        }
        Ok(())
    }

    /// Asks, and waits for the answer; news that come meanwhile are let go by.
    ///
    /// If the other end connects at the same time, its session takes the place of this one: it asks
    /// once more there.
    pub fn ask(&self, to: HostId, call: Call) -> Result<Answer> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = Message::Call { number, call };
        self.tell(to, &call, &[])?;
        loop {
            match self.next() {
                Heard::Said(_, Message::Answer { number: to, answer }) if to == number => return answer,
                Heard::Lost(host, why) if host == to && why.contains("begins another") => {
                    wait::until("the other session begins", || self.is_connected(to).then_some(()));
                    self.tell(to, &call, &[])?;
                }
                Heard::Lost(host, why) if host == to => panic!("no answer, but the end: {why}"),
                _ => {}
            }
        }
    }

    /// Belongs to the cluster from now on, for the length of a lease.
    pub fn join(&self, list: HostId, claims: Vec<Claim>) -> Result<Joined> {
        let call = Call::Join { member: self.me.clone(), claims, before: None };
        match self.ask(list, call)? {
            Answer::Joined(joined) => Ok(*joined),
            other => panic!("joining was answered with {other:?}"),
        }
    }

    /// The next message that it hears.
    pub fn hears(&self) -> Message {
        match self.next() {
            Heard::Said(_, message) => message,
            Heard::Lost(host, why) => panic!("{host} ended the session: {why}"),
        }
    }

    /// The next message that comes in time, and who says it; the end of a session is none.
    pub fn hears_within(&self, time: Duration) -> Option<(HostId, Message)> {
        match self.heard.lock().expect("what it heard").recv_timeout(time) {
            Ok(Heard::Said(from, message)) => Some((from, message)),
            _ => None,
        }
    }

    /// Renews its lease by saying each time that it has heard and done so much, until it is told to stop.
    pub fn renews(&self, list: HostId, before: Before, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            let number = self.calls.fetch_add(1, Ordering::Relaxed);
            // It may be cut off, or lost, by now.
            let _ = self.tell(list, &Message::Call { number, call: Call::Renew(before) }, &[]);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until that host ends the session; what it says to that.
    pub fn cut_off_by(&self, host: HostId) -> String {
        loop {
            if let Heard::Lost(who, why) = self.next()
                && who == host
            {
                return why;
            }
        }
    }

    /// How many answers it has heard, of all that it heard so far.
    pub fn answers(&self) -> u64 {
        let heard = self.heard.lock().expect("what it heard");
        heard.try_iter().filter(|heard| matches!(heard, Heard::Said(_, Message::Answer { .. }))).count()
            as u64
    }

    /// Forgets what it heard so far.
    pub fn forget(&self) {
        let heard = self.heard.lock().expect("what it heard");
        while heard.try_recv().is_ok() {}
    }

    fn next(&self) -> Heard {
        self.heard.lock().expect("what it heard").recv_timeout(wait::LONG).expect("it hears something")
    }
}

/// Reproducible numbers (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// The next.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next, below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// One of them.
    pub fn pick<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len() as u64) as usize]
    }
}
