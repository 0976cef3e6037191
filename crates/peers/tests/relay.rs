//! Hosts that cannot reach each other speak through one that reaches both.

mod common;

use common::puppet::{begin, hear, say};
use common::{Heard, Net, PATIENCE, TestHost};
use commonhold_peers::HostAt;
use commonhold_peers::greeting::{Greeting, Wanted};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(5);

/// An address at which no machine seems to be: what is said to it gets no answer.
struct Silent {
    address: SocketAddr,
    _all: (TcpListener, Vec<TcpStream>),
}

impl Silent {
    fn new() -> Silent {
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().unwrap();
        // Whoever comes when its queue is full is not answered.
        let mut waiting = Vec::new();
        while let Ok(socket) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            waiting.push(socket);
        }
        Silent { address, _all: (listener, waiting) }
    }
}

/// Two hosts that both are connected with a third one.
fn three(net: &Net) -> [TestHost; 3] {
    let hosts = [net.host(1, "a"), net.host(2, "b"), net.host(3, "relay")];
    let [a, b, relay] = &hosts;
    for one in [a, b] {
        one.peers.connect(relay.id, relay.address()).unwrap();
        assert!(matches!(one.next(), Heard::Connected(..)));
        assert!(matches!(relay.next(), Heard::Connected(..)));
    }
    hosts
}

fn at(host: &TestHost) -> HostAt {
    (host.id, host.address())
}

#[test]
fn what_two_hosts_say_is_passed_on_and_they_go_on_without_when_they_can() {
    for net in [Net::plain(), Net::tls()] {
        let [a, b, relay] = three(&net);
        let silent = Silent::new();
        relay.ways.lock().unwrap().insert(b.id, b.address());
        a.peers.connect_within(b.id, silent.address, LONG, || vec![at(&relay)]).unwrap();
        assert!(matches!(a.next(), Heard::Connected(host, 1, _) if host == b.id));
        assert_eq!(a.next(), Heard::Through(b.id, relay.id));
        assert!(matches!(b.next(), Heard::Connected(host, 1, _) if host == a.id));
        assert_eq!(relay.next(), Heard::PassesOn("a".into(), b.id));
        let long = vec![7; 3 << 20];
        a.peers.send(b.id, b"there", &mut long.clone()).unwrap();
        b.peers.send(a.id, b"and back", &mut long.clone()).unwrap();
        assert_eq!(b.next(), Heard::Message(a.id, b"there".to_vec(), long.clone()));
        assert_eq!(a.next(), Heard::Message(b.id, b"and back".to_vec(), long));
        assert!(relay.silent(), "it has heard nothing of that");
        // The way is gone, and the session stays.
        relay.peers.stop();
        for one in [&a, &b] {
            let (mut broken, mut lost) = (false, false);
            while !(broken && lost) {
                match one.next() {
                    Heard::Broken(host, ..) => broken |= host != relay.id,
                    Heard::Lost(host, ..) => lost |= host == relay.id,
                    other => panic!("{other:?}"),
                }
            }
        }
        a.peers.send(b.id, b"meanwhile", &mut Vec::new()).unwrap();
        a.peers.connect(b.id, b.address()).unwrap();
        assert_eq!(a.next(), Heard::Resumed(b.id, 1));
        assert_eq!(b.next(), Heard::Resumed(a.id, 1));
        assert_eq!(b.next(), Heard::Message(a.id, b"meanwhile".to_vec(), vec![]));
    }
}

#[test]
fn nothing_comes_of_asking_who_has_no_way_or_may_not() {
    let net = Net::plain();
    let [a, b, relay] = three(&net);
    let silent = Silent::new();
    let failed = |address, relays: &[HostAt]| {
        a.peers.connect_within(b.id, address, LONG, || relays.to_vec()).unwrap_err().message
    };
    // It passes nothing on to that host, or has no way itself.
    let says = failed(silent.address, &[at(&relay)]);
    assert!(
        says.contains("through host 3") && says.contains("nothing is passed on to host 2 here"),
        "{says}"
    );
    relay.ways.lock().unwrap().insert(b.id, silent.address);
    let says = failed(silent.address, &[at(&relay)]);
    assert!(says.contains("host 2 does not answer here"), "{says}");
    // Another host than it says is at the other end.
    relay.ways.lock().unwrap().insert(b.id, relay.address());
    let says = failed(silent.address, &[at(&relay)]);
    assert!(says.contains("the host there is"), "{says}");
    // What is not a host is nobody that anything is passed on to: it does not say so unasked.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    relay.ways.lock().unwrap().insert(b.id, other.local_addr().unwrap());
    let says = failed(silent.address, &[at(&relay)]);
    assert!(says.contains("host 2 does not answer here"), "{says}");
    let (mut asked, _) = other.accept().unwrap();
    assert_eq!(asked.read(&mut [0; 64]).unwrap(), 0, "not a byte");
    for itself in [&a, &relay] {
        relay.ways.lock().unwrap().insert(itself.id, itself.address());
        let mut socket = begin(relay.address());
        say(&mut socket, &Greeting::Relay(Wanted { hello: net.hello(1, "a"), to: itself.id }));
        assert!(matches!(hear(&mut socket), Greeting::Refused(why) if why.contains("nothing is passed on")));
    }
    assert!(b.silent());
}

/// A firewall may say what a machine says where nobody listens.
#[test]
fn a_refusal_is_not_always_believed_and_who_is_connected_is_asked_first() {
    let net = Net::plain();
    let (a, b, relay, useless) =
        (net.host(1, "a"), net.host(2, "b"), net.host(3, "relay"), net.host(4, "useless"));
    relay.ways.lock().unwrap().insert(b.id, b.address());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relays = [at(&useless), at(&relay)];
    a.peers.connect(relay.id, relay.address()).unwrap();
    assert!(matches!(relay.next(), Heard::Connected(..)));
    let attempts: Vec<_> =
        (0..4).map(|_| a.peers.connect_within(b.id, gone, LONG, || relays.to_vec())).collect();
    assert!(attempts.iter().any(Result::is_ok), "{attempts:?}");
    assert_eq!(relay.next(), Heard::PassesOn("a".into(), b.id));
    // The lower number waits for nobody's connection that it cannot make itself.
    let (low, high) = (net.host(5, "low"), net.host(6, "high"));
    relay.ways.lock().unwrap().insert(low.id, low.address());
    let silent = Silent::new();
    std::thread::scope(|threads| {
        let tries = threads.spawn(|| low.peers.connect_within(high.id, silent.address, LONG, Vec::new));
        std::thread::sleep(Duration::from_millis(300));
        let begun = std::time::Instant::now();
        high.peers.connect_within(low.id, silent.address, LONG, || vec![at(&relay)]).unwrap();
        assert!(
            begun.elapsed() < LONG - Duration::from_secs(1),
            "it was let in while the other tried in vain"
        );
        let _ = tries.join().unwrap();
    });
    assert!(high.peers.is_connected(low.id) && low.peers.is_connected(high.id));
}

#[test]
fn strangers_and_who_says_something_else_are_let_go() {
    let net = Net::plain();
    let [_a, b, relay] = three(&net);
    relay.ways.lock().unwrap().insert(b.id, b.address());
    let ask = |hello| {
        let mut socket = begin(relay.address());
        say(&mut socket, &Greeting::Relay(Wanted { hello, to: b.id }));
        let answer = hear(&mut socket);
        (socket, answer)
    };
    let (_, answer) = ask(Net::tls().hello(9, "foreign"));
    assert!(matches!(answer, Greeting::Refused(why) if why.contains("another cluster")));
    assert!(relay.refused().contains("another cluster"));
    assert!(b.silent(), "nobody was connected to for it");
    let (mut hasty, answer) = ask(net.hello(9, "hasty"));
    assert_eq!(answer, Greeting::Relayed);
    hasty.write_all(b"x").unwrap();
    assert!(relay.refused().contains("says something else"));
    assert_eq!(hasty.read(&mut [0]).unwrap_or(0), 0, "its connection is over");
    let (silent, answer) = ask(net.hello(9, "silent"));
    assert_eq!(answer, Greeting::Relayed);
    drop(silent);
    relay.refused();
    assert!(relay.silent());
}

#[test]
fn only_so_many_are_passed_on() {
    let net = Net::plain();
    let [_a, b, relay] = three(&net);
    relay.ways.lock().unwrap().insert(b.id, b.address());
    let mut passed_on = Vec::new();
    let refused = (0..65).find_map(|_| {
        let mut socket = begin(relay.address());
        say(&mut socket, &Greeting::Relay(Wanted { hello: net.hello(9, "greedy"), to: b.id }));
        match hear(&mut socket) {
            Greeting::Relayed => socket.write_all(b">").unwrap(),
            other => return Some(other),
        }
        assert_eq!(relay.next(), Heard::PassesOn("greedy".into(), b.id));
        passed_on.push(socket);
        None
    });
    assert!(matches!(refused, Some(Greeting::Refused(why)) if why.contains("64 connections are passed on")));
    assert_eq!(passed_on.len(), 64);
    // There is room again when they are gone.
    passed_on.clear();
    let again = || {
        let mut socket = begin(relay.address());
        say(&mut socket, &Greeting::Relay(Wanted { hello: net.hello(9, "greedy"), to: b.id }));
        hear(&mut socket) == Greeting::Relayed
    };
    let until = std::time::Instant::now() + PATIENCE;
    while !again() {
        assert!(std::time::Instant::now() < until, "those that are gone are still counted");
        std::thread::sleep(Duration::from_millis(20));
    }
}
