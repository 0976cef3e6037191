//! Round trip of a request of 32 bytes and an answer of 4 KiB over loopback: connections of this crate against a bare
//! `TcpStream`, both plain and both with the same TLS. Rounds of the two take turns; the medians are compared.

use commonhold_peers::ca::{Authority, Validity};
use commonhold_peers::{Error, Handler, Hello, HostId, Identity, Payload, PeerRights, Peers, Security};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const REQUEST: usize = 32;
const ANSWER: usize = 4096;
/// Round trips in one round; the first ones do not count.
const TRIPS: usize = 4000;
const WARM: usize = 500;
const ROUNDS: usize = 15;

/// Times of one round, in nanoseconds.
type Times = Vec<u64>;

#[derive(Default)]
struct Asker {
    peers: OnceLock<Arc<Peers>>,
    state: Mutex<Option<(Instant, Times, Sender<Times>)>>,
}

impl Asker {
    fn ask(&self) {
        let peers = self.peers.get().expect("started");
        peers.send(HostId(2), &[1; REQUEST], &mut Vec::new()).expect("sending");
    }

    fn round(&self) -> Times {
        let (sender, done) = channel();
        *self.state.lock().expect("state") = Some((Instant::now(), Vec::with_capacity(TRIPS), sender));
        self.ask();
        done.recv().expect("answers")
    }
}

impl Handler for Asker {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {}

    fn received(&self, _from: HostId, _message: &[u8], payload: &mut Payload<'_>) {
        let mut page = [0; ANSWER];
        payload.read_exact(&mut page).expect("a page");
        let mut state = self.state.lock().expect("state");
        let (began, times, _) = state.as_mut().expect("a round");
        times.push(began.elapsed().as_nanos() as u64);
        if times.len() == TRIPS {
            let (_, times, done) = state.take().expect("a round");
            done.send(times).expect("somebody waits");
            return;
        }
        *began = Instant::now();
        drop(state);
        self.ask();
    }

    fn lost(&self, _host: HostId, _incarnation: u64, why: &Error) {
        eprintln!("lost: {why}");
    }
}

#[derive(Default)]
struct Answerer(OnceLock<Arc<Peers>>);

impl Handler for Answerer {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {}

    fn received(&self, from: HostId, message: &[u8], _payload: &mut Payload<'_>) {
        let page = [7; ANSWER];
        self.0.get().expect("started").send(from, &message[..16], &mut page.to_vec()).expect("answering");
    }

    fn lost(&self, _host: HostId, _incarnation: u64, _why: &Error) {}
}

/// A bare stream to an answering thread.
fn bare(identity: Option<&Identity>) -> Box<dyn Stream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listening");
    let address = listener.local_addr().expect("an address");
    let server = identity.map(|identity| identity.tls().1);
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a connection");
        socket.set_nodelay(true).expect("an option");
        let mut stream: Box<dyn Stream> = match server {
            None => Box::new(socket),
            Some(config) => Box::new(StreamOwned::new(ServerConnection::new(config).expect("TLS"), socket)),
        };
        let (mut request, page) = ([0; REQUEST], [7; ANSWER]);
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(&page).and_then(|()| stream.flush()).expect("answering");
        }
    });
    let socket = TcpStream::connect(address).expect("connecting");
    socket.set_nodelay(true).expect("an option");
    match identity {
        None => Box::new(socket),
        Some(identity) => {
            let name = ServerName::IpAddress(address.ip().into());
            Box::new(StreamOwned::new(ClientConnection::new(identity.tls().0, name).expect("TLS"), socket))
        }
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

fn bare_round(stream: &mut dyn Stream) -> Times {
    let mut page = [0; ANSWER];
    (0..TRIPS)
        .map(|_| {
            let began = Instant::now();
            stream.write_all(&[1; REQUEST]).and_then(|()| stream.flush()).expect("asking");
            stream.read_exact(&mut page).expect("a page");
            began.elapsed().as_nanos() as u64
        })
        .collect()
}

fn median(times: &mut Times) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1000.0
}

fn compare(what: &str, left: Security, right: Security, identity: Option<&Identity>, cluster: [u8; 16]) {
    let (asker, answerer) = (Arc::new(Asker::default()), Arc::new(Answerer::default()));
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let hello = |id, name| Hello::new(cluster, HostId(id), name, 1).expect("a name");
    let a = Peers::start(listen, hello(1, "left"), left, asker.clone()).expect("a host");
    let b = Peers::start(listen, hello(2, "right"), right, answerer.clone()).expect("a host");
    assert!(asker.peers.set(a.clone()).is_ok() && answerer.0.set(b.clone()).is_ok());
    a.connect(HostId(2), b.local_addr()).expect("connecting");
    let mut stream = bare(identity);
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(median(&mut asker.round().split_off(WARM)));
        floor.push(median(&mut bare_round(&mut *stream).split_off(WARM)));
    }
    let mut ratios: Vec<_> = ours.iter().zip(&floor).map(|(ours, floor)| ours / floor).collect();
    for values in [&mut ours, &mut floor, &mut ratios] {
        values.sort_by(f64::total_cmp);
    }
    let middle = ROUNDS / 2;
    println!(
        "{what:5}  ours {:.2} us  bare {:.2} us  ratio {:.3} (rounds {:.3} to {:.3})",
        ours[middle],
        floor[middle],
        ratios[middle],
        ratios[0],
        ratios[ROUNDS - 1]
    );
    a.stop();
    b.stop();
}

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::init(&directory.path().join("ca")).expect("an authority");
    let identity = |name: &str| {
        let into = directory.path().join(name);
        let validity = Validity::of(Duration::from_secs(86_400));
        authority.issue_into(&into, name, PeerRights::ReadWrite, validity).expect("a certificate");
        Identity::load(&into).expect("an identity")
    };
    let (left, right) = (identity("left"), identity("right"));
    let plain = || Security::Plain { even_beyond_loopback: false };
    compare("plain", plain(), plain(), None, authority.cluster());
    compare("TLS", Security::Tls(left.clone()), Security::Tls(right), Some(&left), authority.cluster());
}
