//! Sessions: what outlives a connection, what ends them, and peers that lie about theirs.

mod common;

use common::puppet::{puppet, puppet_of};
use common::{Heard, Net, TestHost, start};
use commonhold_peers::frame::{HEADER_BYTES, Header, Kind};
use commonhold_peers::greeting::Standing;
use commonhold_peers::{Hello, HostId, MAX_PAYLOAD_BYTES};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

const PUPPET: HostId = HostId(3);

fn hello(net: &Net) -> Hello {
    net.hello(3, "puppet")
}

fn message(host: &TestHost, words: &[u8]) {
    assert_eq!(host.next(), Heard::Message(PUPPET, words.to_vec(), vec![]));
}

/// A message of the puppet, which has received so many.
fn frame(words: &[u8], received: u64) -> Vec<u8> {
    let header = Header { received, ..Header::new(Kind::Message, words.len(), 0).unwrap() };
    [&header.encode()[..], words].concat()
}

/// The next message that the host sent, and what it has received.
fn hear(socket: &mut TcpStream) -> (Vec<u8>, u64) {
    let mut header = [0; HEADER_BYTES];
    socket.read_exact(&mut header).unwrap();
    let header = Header::decode(&header).unwrap();
    let mut words = vec![0; header.message_bytes + header.payload_bytes];
    socket.read_exact(&mut words).unwrap();
    (words, header.received)
}

fn cut(socket: &TcpStream, host: &TestHost) {
    socket.shutdown(Shutdown::Both).unwrap();
    host.broken(PUPPET, 1);
}

#[test]
fn what_was_not_received_comes_again_and_what_was_sent_meanwhile_after_it() {
    let net = Net::plain();
    let host = net.host(1, "host");
    let standing = |received| Standing { session: 7, is_new: received == 0, received };
    let (mut socket, theirs) = puppet_of(host.address(), hello(&net), standing(0)).unwrap();
    assert_eq!(theirs, Standing { session: 7, ..theirs });
    assert!(matches!(host.next(), Heard::Connected(PUPPET, ..)));
    let send = |words: &[u8]| host.peers.send(PUPPET, words, &mut b"-".to_vec()).unwrap();
    send(b"one");
    send(b"two");
    assert_eq!(hear(&mut socket), (b"one-".to_vec(), 0));
    socket.write_all(&[frame(b"a", 1), frame(b"b", 1), frame(b"c", 1)[..9].to_vec()].concat()).unwrap();
    message(&host, b"a");
    message(&host, b"b");
    cut(&socket, &host);
    assert!(!host.peers.is_connected(PUPPET));
    send(b"three");
    // The second message was on its way, and whether it arrived only the puppet knows.
    let (mut socket, theirs) = puppet_of(host.address(), hello(&net), standing(1)).unwrap();
    assert_eq!(theirs, Standing { session: 7, is_new: false, received: 2 });
    assert_eq!(host.next(), Heard::Resumed(PUPPET, 1));
    send(b"four");
    for words in [b"two-".to_vec(), b"three-".to_vec(), b"four-".to_vec()] {
        assert_eq!(hear(&mut socket).0, words);
    }
    socket.write_all(&frame(b"c", 4)).unwrap();
    message(&host, b"c");
    cut(&socket, &host);
    let (mut socket, theirs) = puppet_of(host.address(), hello(&net), standing(4)).unwrap();
    assert_eq!(theirs.received, 3);
    assert_eq!(host.next(), Heard::Resumed(PUPPET, 1));
    send(b"five");
    assert_eq!(hear(&mut socket), (b"five-".to_vec(), 3));
}

#[test]
fn much_is_acknowledged_without_an_answer() {
    let net = Net::plain();
    let host = net.host(1, "host");
    let mut socket = puppet(host.address(), hello(&net));
    host.next();
    for number in 1..=64 {
        socket.write_all(&frame(b"x", 0)).unwrap();
        if number == 64 {
            assert_eq!(hear(&mut socket), (vec![], 64));
        }
    }
}

#[test]
fn a_peer_that_starts_again_or_forgot_begins_a_new_session() {
    let net = Net::plain();
    let b = net.host(2, "b");
    let old = net.host(1, "a");
    old.peers.connect(b.id, b.address()).unwrap();
    assert!(matches!(b.next(), Heard::Connected(_, 1, _)));
    let new = start(Hello { incarnation: 2, ..net.hello(1, "a") }, net.security("a"));
    new.peers.connect(b.id, b.address()).unwrap();
    b.lost(HostId(1), 1);
    assert!(matches!(b.next(), Heard::Connected(_, 2, _)));
    // One that says it has no session any more, or another.
    for (session, is_new) in [(5, true), (6, true), (9, false)] {
        let (socket, theirs) = puppet_of(
            b.address(),
            hello(&net),
            Standing { session, is_new, received: 4 * u64::from(!is_new) },
        )
        .unwrap();
        assert_eq!((theirs.is_new, theirs.received), (!is_new, 0));
        assert!(is_new == (theirs.session == session));
        if session > 5 {
            assert!(b.lost(PUPPET, 1).contains("knows nothing of this session"));
        }
        assert!(matches!(b.next(), Heard::Connected(PUPPET, ..)));
        b.peers.send(PUPPET, b"in vain", &mut Vec::new()).unwrap();
        cut(&socket, &b);
        b.peers.send(PUPPET, b"in vain too", &mut Vec::new()).unwrap();
    }
    b.peers.disconnect(PUPPET, "enough");
    assert!(b.lost(PUPPET, 1).contains("enough"));
    assert!(b.peers.send(PUPPET, b"x", &mut Vec::new()).unwrap_err().message.contains("host 3"));
}

#[test]
fn a_full_buffer_ends_the_session() {
    let net = Net::plain();
    let host = net.host(1, "host");
    let socket = puppet(host.address(), hello(&net));
    host.next();
    cut(&socket, &host);
    let payload = vec![7; MAX_PAYLOAD_BYTES];
    let send = || host.peers.send(PUPPET, b"page", &mut payload.clone());
    let taken = (0..64).take_while(|_| send().is_ok()).count();
    assert!((16..64).contains(&taken), "{taken} messages were kept");
    assert!(host.lost(PUPPET, 1).contains("67108864"));
    assert!(send().unwrap_err().message.contains("host 3"));
    // Whoever comes for it is told that it is over.
    let (_socket, theirs) =
        puppet_of(host.address(), hello(&net), Standing { session: 1, is_new: false, received: 0 }).unwrap();
    assert!(theirs.is_new);
    assert!(matches!(host.next(), Heard::Connected(PUPPET, ..)));
}

#[test]
fn acknowledging_what_was_never_sent_ends_the_session() {
    let net = Net::plain();
    let host = net.host(1, "host");
    for received in [2, u64::MAX] {
        let mut socket = puppet(host.address(), hello(&net));
        assert!(matches!(host.next(), Heard::Connected(PUPPET, ..)));
        host.peers.send(PUPPET, b"one", &mut Vec::new()).unwrap();
        socket.write_all(&frame(b"not heard", received)).unwrap();
        let why = host.lost(PUPPET, 1);
        assert!(why.contains(&format!("acknowledges {received} messages, and 1 were sent")), "{why}");
    }
}

#[test]
fn nonsense_in_the_greeting_is_refused_and_ends_the_session() {
    let net = Net::plain();
    let host = net.host(1, "host");
    let come = |session, is_new, received| {
        puppet_of(host.address(), hello(&net), Standing { session, is_new, received })
    };
    let why = come(1, true, 5).err().unwrap();
    assert!(why.contains("makes no sense") && host.refused().contains("makes no sense"), "{why}");
    for (is_new, received, says) in [
        (false, 3, "acknowledges 3 messages, and 2 were sent"),
        (false, u64::MAX, "and 2 were sent"),
        (true, 1, "says that it begins"),
    ] {
        let (mut socket, _) = come(9, true, 0).unwrap();
        assert!(matches!(host.next(), Heard::Connected(PUPPET, ..)));
        host.peers.send(PUPPET, b"one", &mut Vec::new()).unwrap();
        host.peers.send(PUPPET, b"two", &mut Vec::new()).unwrap();
        hear(&mut socket);
        socket.write_all(&frame(b"heard", 1)).unwrap();
        message(&host, b"heard");
        cut(&socket, &host);
        let why = come(9, is_new, received).err().unwrap();
        assert!(why.contains(says), "{why}");
        // In either order: the session is told apart from who came.
        let heard = [host.next(), host.next()];
        let lost =
            heard.iter().any(|heard| matches!(heard, Heard::Lost(PUPPET, 1, why) if why.contains(says)));
        let refused = heard.iter().any(|heard| matches!(heard, Heard::Refused(why) if why.contains(says)));
        assert!(lost && refused, "{heard:?}");
    }
}

/// What it received by the connection before it may have acknowledged there after it said where it stands.
#[test]
fn an_end_that_has_received_more_than_it_says_tries_again() {
    let net = Net::plain();
    let host = net.host(1, "host");
    let come =
        |is_new, received| puppet_of(host.address(), hello(&net), Standing { session: 9, is_new, received });
    let (mut socket, _) = come(true, 0).unwrap();
    assert!(matches!(host.next(), Heard::Connected(PUPPET, ..)));
    host.peers.send(PUPPET, b"one", &mut Vec::new()).unwrap();
    hear(&mut socket);
    socket.write_all(&frame(b"heard", 1)).unwrap();
    message(&host, b"heard");
    cut(&socket, &host);
    let why = come(false, 0).err().unwrap();
    assert!(why.contains("has acknowledged 1 messages, and knows of 0: try again"), "{why}");
    assert!(host.refused().contains("knows of 0"));
    let (mut socket, _) = come(false, 1).unwrap();
    socket.write_all(&frame(b"again", 1)).unwrap();
    loop {
        match host.next() {
            Heard::Message(PUPPET, said, _) => break assert_eq!(said, b"again"),
            Heard::Lost(..) => panic!("the session is over"),
            _ => {}
        }
    }
}
