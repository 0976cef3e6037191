//! Peers that send nonsense, stop in the middle, or do not read: each loses its connection or session, and nobody else
//! notices.

mod common;

use common::puppet::{Numbers, puppet};
use common::{Heard, Net, TestHost};
use commonhold_peers::frame::{Header, Kind};
use commonhold_peers::{Error, Handler, Hello, HostId, MAX_PAYLOAD_BYTES, Payload, PeerRights, Peers};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// A host with a good peer, and one that is moved by hand.
struct Scene {
    host: TestHost,
    good: TestHost,
    net: Net,
}

impl Scene {
    fn new() -> Scene {
        let net = Net::plain();
        let (host, good) = (net.host(1, "host"), net.host(2, "good"));
        good.peers.connect(host.id, host.address()).unwrap();
        assert!(matches!(host.next(), Heard::Connected(..)));
        assert!(matches!(good.next(), Heard::Connected(..)));
        Scene { host, good, net }
    }

    fn puppet(&self) -> TcpStream {
        let socket = puppet(self.host.address(), self.net.hello(3, "puppet"));
        loop {
            match self.host.next() {
                Heard::Connected(HostId(3), ..) => return socket,
                // Of the session before.
                Heard::Lost(HostId(3), ..) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Why the connection of the one moved by hand broke; the good one is still there.
    fn broken(&self) -> String {
        let why = self.host.broken(HostId(3), 1);
        self.check_good();
        assert!(why.contains("\"puppet\""), "{why}");
        why
    }

    fn check_good(&self) {
        self.good.peers.send(self.host.id, b"fine", &mut Vec::new()).unwrap();
        assert_eq!(self.host.next(), Heard::Message(self.good.id, b"fine".to_vec(), vec![]));
    }

    /// Why the one moved by hand was lost; the good one is still there.
    fn lost(&self) -> String {
        let why = self.host.lost(HostId(3), 1);
        self.check_good();
        assert!(why.contains("\"puppet\""), "{why}");
        why
    }
}

fn frame(message: &[u8], payload: usize) -> Vec<u8> {
    let header = Header::new(Kind::Message, message.len(), payload).unwrap();
    [&header.encode()[..], message].concat()
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_message() {
    let scene = Scene::new();
    let whole = [frame(b"whole", 3), b"abc".to_vec()].concat();
    for cut in [1, 15, 16, 18, 20, 22] {
        let mut socket = scene.puppet();
        socket.write_all(&whole).unwrap();
        socket.write_all(&whole[..cut]).unwrap();
        drop(socket);
        assert_eq!(scene.host.next(), Heard::Message(HostId(3), b"whole".to_vec(), b"abc".to_vec()));
        let why = scene.broken();
        assert!(why.contains("in the middle of a message"), "{cut}: {why}");
    }
    drop(scene.puppet());
    let why = scene.broken();
    assert!(why.contains("closed the connection") && !why.contains("middle"), "{why}");
}

#[test]
fn oversized_and_foreign_frames() {
    let scene = Scene::new();
    let good = Header::new(Kind::Message, 1, 1).unwrap().encode();
    for (at, byte, says) in [
        (0, b'X', "begins with"),
        (4, 9, "version 9"),
        (6, 7, "kind 7"),
        (11, 1, "65536"),
        (15, 1, "4194304"),
    ] {
        let mut socket = scene.puppet();
        let mut bad = good;
        bad[at] = byte;
        socket.write_all(&bad).unwrap();
        let why = scene.lost();
        assert!(why.contains(says), "{why}");
        // The end is heard on the other side too.
        assert!(matches!(socket.read(&mut [0; 64]), Ok(0) | Err(_)));
    }
    // What is too long is refused where it is sent, and costs nothing.
    let mut long = vec![0; MAX_PAYLOAD_BYTES + 1];
    let error = scene.good.peers.send(scene.host.id, b"", &mut long).unwrap_err();
    assert!(error.message.contains("4194304"), "{error}");
    assert!(scene.good.peers.is_connected(scene.host.id));
}

#[test]
fn a_peer_that_does_not_read_is_lost_and_the_sender_never_waits() {
    let scene = Scene::new();
    let _socket = scene.puppet();
    let payload = vec![7; MAX_PAYLOAD_BYTES];
    // What sockets and queue hold is far less than this: at the end somebody was told.
    let error = (0..64)
        .find_map(|_| scene.host.peers.send(HostId(3), b"page", &mut payload.clone()).err())
        .expect("nobody noticed");
    assert!(error.message.contains("does not read"), "{error}");
    assert!(scene.lost().contains("does not read"));
}

#[test]
fn random_garbage_ends_only_the_connection_it_came_by() {
    let scene = Scene::new();
    for seed in 0..300 {
        let mut numbers = Numbers(seed);
        let mut socket = scene.puppet();
        let mut bytes = Vec::new();
        for _ in 0..numbers.below(4) {
            let payload = numbers.below(5_000);
            bytes.extend(frame(&[5; 100], payload));
            bytes.extend(vec![6; payload]);
        }
        let garbage = numbers.below(200);
        bytes.extend((0..garbage).map(|_| numbers.next() as u8));
        for _ in 0..numbers.below(3) {
            let at = numbers.below(bytes.len().max(1) as u64);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << numbers.below(8);
            }
        }
        // The host may have had enough before the end.
        let _ = socket.write_all(&bytes);
        drop(socket);
        loop {
            match scene.host.next() {
                Heard::Message(from, ..) => assert_eq!(from, HostId(3)),
                Heard::Broken(host, ..) | Heard::Lost(host, ..) => {
                    break assert_eq!(host, HostId(3), "seed {seed}");
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
    }
    scene.good.peers.send(scene.host.id, b"fine", &mut Vec::new()).unwrap();
    assert_eq!(scene.host.next(), Heard::Message(scene.good.id, b"fine".to_vec(), vec![]));
}

#[test]
fn a_peer_that_stops_in_the_middle_of_a_message_is_not_waited_for() {
    let scene = Scene::new();
    let mut socket = scene.puppet();
    socket.write_all(&frame(b"a page follows", 4096)).unwrap();
    socket.write_all(&[1; 4000]).unwrap();
    let why = scene.broken();
    assert!(why.contains("in the middle of a message"), "{why}");
}

#[test]
fn the_connection_of_a_peer_that_reads_nothing_of_little_breaks_in_time() {
    let scene = Scene::new();
    let _socket = scene.puppet();
    // More than sockets hold, far less than the queue does.
    let payload = vec![7; MAX_PAYLOAD_BYTES];
    for _ in 0..13 {
        scene.host.peers.send(HostId(3), b"page", &mut payload.clone()).unwrap();
    }
    let why = scene.broken();
    assert!(why.contains("read nothing for") || why.contains("timed out"), "{why}");
}

/// Panics at the first message, as a handler with a defect does.
struct Defect(Sender<String>);

impl Handler for Defect {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {}

    fn received(&self, _from: HostId, _message: &[u8], _payload: &mut Payload<'_>) {
        panic!("on purpose");
    }

    fn lost(&self, _host: HostId, _incarnation: u64, why: &Error) {
        self.0.send(why.message.clone()).unwrap();
    }
}

#[test]
fn a_handler_that_panics_loses_that_connection_and_hears_of_it() {
    let net = Net::plain();
    let (sender, lost) = channel();
    let listen = "127.0.0.1:0".parse().unwrap();
    let handler = Arc::new(Defect(sender));
    let peers = Peers::start(listen, net.hello(1, "defect"), net.security("defect"), handler).unwrap();
    let good = net.host(2, "good");
    good.peers.connect(HostId(1), peers.local_addr()).unwrap();
    assert!(matches!(good.next(), Heard::Connected(..)));
    good.peers.send(HostId(1), b"x", &mut Vec::new()).unwrap();
    assert!(lost.recv_timeout(common::PATIENCE).unwrap().contains("panicked"));
    good.broken(HostId(1), 1);
    good.peers.connect(HostId(1), peers.local_addr()).unwrap();
    good.lost(HostId(1), 1);
    assert!(matches!(good.next(), Heard::Connected(..)));
}
