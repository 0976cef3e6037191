//! Half a gibibyte in pieces of 256 KiB, one host to another over loopback: connections of this crate, with a window of
//! pieces (8, or as many as the first argument says) acknowledged one by one, against one bare TCP stream of the same bytes; plain and with the same TLS.

use commonhold_peers::ca::{Authority, Validity};
use commonhold_peers::{Error, Handler, Hello, HostId, Identity, Payload, PeerRights, Peers, Security};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const PIECE: usize = 256 << 10;
const PIECES: usize = 2048;
const ROUNDS: usize = 7;

/// Counts acknowledgements.
struct Source(Mutex<Sender<()>>);

impl Handler for Source {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {}

    fn received(&self, _from: HostId, _message: &[u8], _payload: &mut Payload<'_>) {
        self.0.lock().expect("a sender").send(()).expect("somebody counts");
    }

    fn lost(&self, _host: HostId, _incarnation: u64, _why: &Error) {}
}

/// Reads each piece into one place, and acknowledges it.
#[derive(Default)]
struct Sink(OnceLock<Arc<Peers>>, Mutex<Vec<u8>>);

impl Handler for Sink {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {}

    fn received(&self, from: HostId, _message: &[u8], payload: &mut Payload<'_>) {
        let mut place = self.1.lock().expect("a place");
        place.resize(PIECE, 0);
        payload.read_exact(&mut place).expect("a piece");
        self.0.get().expect("started").send(from, b"", &mut Vec::new()).expect("acknowledging");
    }

    fn lost(&self, _host: HostId, _incarnation: u64, _why: &Error) {}
}

fn our_round(window: usize, peers: &Peers, acknowledged: &Receiver<()>, piece: &[u8]) -> Duration {
    // The buffers are taken as they are sent; filling them does not count, as it does not for the bare stream.
    let mut pieces = vec![piece.to_vec(); PIECES];
    let began = Instant::now();
    for (n, piece) in pieces.iter_mut().enumerate() {
        if n >= window {
            acknowledged.recv().expect("an acknowledgement");
        }
        peers.send(HostId(2), &[0; 32], piece).expect("sending");
    }
    (0..window).for_each(|_| acknowledged.recv().expect("an acknowledgement"));
    began.elapsed()
}

/// From the first byte sent to the answer that the last one was read.
fn bare_round(identity: Option<&Identity>, piece: &[u8]) -> Duration {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listening");
    let address = listener.local_addr().expect("an address");
    let server = identity.map(|identity| identity.tls().1);
    let reader = std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a connection");
        let mut stream: Box<dyn Stream> = match server {
            None => Box::new(socket),
            Some(config) => Box::new(StreamOwned::new(ServerConnection::new(config).expect("TLS"), socket)),
        };
        let mut place = vec![0; PIECE];
        stream.read_exact(&mut place[..1]).and_then(|()| stream.write_all(&[1])).expect("a beginning");
        (0..PIECES).for_each(|_| stream.read_exact(&mut place).expect("a piece"));
        stream.write_all(&[2]).and_then(|()| stream.flush()).expect("an end");
    });
    let socket = TcpStream::connect(address).expect("connecting");
    let mut stream: Box<dyn Stream> = match identity {
        None => Box::new(socket),
        Some(identity) => {
            let name = ServerName::IpAddress(address.ip().into());
            Box::new(StreamOwned::new(ClientConnection::new(identity.tls().0, name).expect("TLS"), socket))
        }
    };
    // The handshake does not count.
    let mut byte = [0];
    stream.write_all(&byte).and_then(|()| stream.read_exact(&mut byte)).expect("a beginning");
    let began = Instant::now();
    (0..PIECES).for_each(|_| stream.write_all(piece).expect("sending"));
    stream.flush().and_then(|()| stream.read_exact(&mut byte)).expect("an end");
    let time = began.elapsed();
    reader.join().expect("the reader");
    time
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

fn compare(what: &str, left: Security, right: Security, identity: Option<&Identity>, cluster: [u8; 16]) {
    let (sender, acknowledged) = channel();
    let sink = Arc::new(Sink::default());
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let hello = |id, name| Hello::new(cluster, HostId(id), name, 1).expect("a name");
    let a =
        Peers::start(listen, hello(1, "left"), left, Arc::new(Source(Mutex::new(sender)))).expect("a host");
    let b = Peers::start(listen, hello(2, "right"), right, sink.clone()).expect("a host");
    assert!(sink.0.set(b.clone()).is_ok());
    a.connect(HostId(2), b.local_addr()).expect("connecting");
    let window = std::env::args().nth(1).map_or(8, |window| window.parse().expect("a number of pieces"));
    let piece: Vec<u8> = (0..PIECE).map(|at| at as u8).collect();
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let (ours, bare) = (our_round(window, &a, &acknowledged, &piece), bare_round(identity, &piece));
            (ours.as_secs_f64() / bare.as_secs_f64(), ours.as_secs_f64(), bare.as_secs_f64())
        })
        .collect();
    rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (ratio, ours, bare) = rounds[ROUNDS / 2];
    let rate = |seconds: f64| (PIECE * PIECES) as f64 / seconds / 1e9;
    println!(
        "{what:5}  ours {:.2} GB/s  bare {:.2} GB/s  time {ratio:.3} (rounds {:.3} to {:.3})",
        rate(ours),
        rate(bare),
        rounds[0].0,
        rounds[ROUNDS - 1].0
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
