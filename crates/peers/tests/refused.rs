//! Who is not let in: strangers, other versions, certificates that are not good, hosts that pass for others.

mod common;

use common::{Heard, Net, TestHost, start, year};
use commonhold_peers::ca::{Authority, Validity};
use commonhold_peers::greeting::{Greeting, Introduction, Mode, preamble};
use commonhold_peers::{ErrorKind, Hello, HostId, Identity, PeerRights, Peers, Security};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

/// `from` tries to reach `to` and is refused; what each end says.
fn refused(from: &TestHost, to: &TestHost) -> (String, String) {
    let error = from.peers.connect(to.id, to.address()).unwrap_err();
    assert!(from.silent(), "nothing was announced");
    (error.message, to.refused())
}

#[test]
fn certificates_that_are_not_good_are_refused_and_both_ends_say_why() {
    let net = Net::tls();
    let b = net.host(2, "b");
    let with = |validity| {
        let identity = net.identity("a", PeerRights::ReadWrite, validity);
        start(net.hello(1, "a"), Security::Tls(identity))
    };
    let now = SystemTime::now();
    let expired = with(Validity { from: now - 9 * DAY, until: now - 3 * DAY });
    let (ours, theirs) = refused(&expired, &b);
    assert!(ours.contains("refuses this host's certificate") && ours.contains("expired"), "{ours}");
    assert!(theirs.contains("expired 3 days ago"), "{theirs}");
    let early = with(Validity { from: now + Duration::from_secs(3_630), until: now + DAY });
    let (ours, theirs) = refused(&early, &b);
    assert!(ours.contains("clock"), "{ours}");
    assert!(theirs.contains("becomes valid only in 60 min") && theirs.contains("clock"), "{theirs}");
    // The other way round: who connects finds out.
    let error = b.peers.connect(expired.id, expired.address()).unwrap_err();
    assert!(error.message.contains("expired 3 days ago"), "{error}");
    let theirs = expired.refused();
    assert!(theirs.contains("refuses this host's certificate"), "{theirs}");
}

/// A connection lasts no longer than the certificate that it was made with.
#[test]
fn who_is_connected_when_its_certificate_ends_is_sent_away() {
    let net = Net::tls();
    let b = net.host(2, "b");
    let until = SystemTime::now() + Duration::from_secs(8);
    let identity = net.identity("a", PeerRights::ReadWrite, Validity { from: until - DAY, until });
    assert!(identity.good_until().unwrap() <= until);
    let a = start(net.hello(1, "a"), Security::Tls(identity));
    a.peers.connect(b.id, b.address()).unwrap();
    assert!(matches!(b.next(), Heard::Connected(..)));
    a.peers.send(b.id, b"in time", &mut Vec::new()).unwrap();
    assert!(matches!(b.next(), Heard::Message(..)));
    let left = until.duration_since(SystemTime::now()).unwrap_or_default();
    std::thread::sleep(left + Duration::from_secs(2));
    a.peers.send(b.id, b"too late", &mut Vec::new()).unwrap();
    let why = b.lost(a.id, 1);
    assert!(why.contains("certificate has expired"), "{why}");
    // Until it hears that it was sent away it is connected, as it sees it.
    let mut tries = (0..1000).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        a.peers.connect(b.id, b.address())
    });
    let error = tries.find_map(Result::err).expect("a refusal");
    assert!(error.message.contains("expired"), "{error}");
}

/// However many numbers one comes under, of those that are over nothing is left to be compared with.
#[test]
fn a_host_that_comes_under_many_numbers_is_one_host() {
    let net = Net::plain();
    let b = net.host(2, "b");
    for number in 10..20 {
        let a = start(Hello { incarnation: number.into(), ..net.hello(number, "a") }, net.security("a"));
        a.peers.connect(b.id, b.address()).unwrap();
        assert_eq!(b.next(), Heard::Connected(a.id, number.into(), PeerRights::ReadWrite));
        drop(a);
        b.lost(HostId(number), number.into());
    }
    // Also refused ones.
    let a = net.host(30, "a");
    a.peers.connect(b.id, b.address()).unwrap();
    for number in 31..35 {
        assert!(net.host(number, "a").peers.connect(b.id, b.address()).is_err());
    }
    assert!(a.peers.is_connected(b.id));
}

#[test]
fn clocks_may_differ_by_an_hour() {
    let net = Net::tls();
    let b = net.host(2, "b");
    // As an authority makes it whose clock is an hour ahead.
    let made = Validity::of(DAY);
    let ahead = Duration::from_secs(3_600);
    let validity = Validity { from: made.from + ahead, until: made.until + ahead };
    let a = start(net.hello(1, "a"), Security::Tls(net.identity("a", PeerRights::ReadWrite, validity)));
    a.peers.connect(b.id, b.address()).unwrap();
}

#[test]
fn another_authority_is_refused() {
    let (net, other) = (Net::tls(), Net::tls());
    let b = net.host(2, "b");
    let foreign = other.host(1, "a");
    let (ours, theirs) = refused(&foreign, &b);
    assert!(ours.contains("not issued by this cluster's authority"), "{ours}");
    assert!(theirs.contains("another authority issued it"), "{theirs}");
}

#[test]
fn a_host_speaks_in_its_own_name_alone() {
    let net = Net::tls();
    let identity = net.identity("a", PeerRights::ReadWrite, year());
    let recorder = |hello| {
        let handler = std::sync::Arc::new(common::Deaf);
        Peers::start("127.0.0.1:0".parse().unwrap(), hello, Security::Tls(identity.clone()), handler)
    };
    let error = recorder(net.hello(1, "b")).err().unwrap();
    assert!(error.message.contains("certificate"), "{error}");
    let other_cluster = Hello::new([9; 16], HostId(1), "a", 1).unwrap();
    assert!(recorder(other_cluster).is_err());
}

#[test]
fn a_host_that_says_to_be_another_is_refused_whatever_its_program() {
    let net = Net::tls();
    let b = net.host(2, "b");
    let identity = net.identity("a", PeerRights::ReadWrite, year());
    let mut socket = TcpStream::connect(b.address()).unwrap();
    socket.write_all(&preamble(Mode::Tls)).unwrap();
    socket.read_exact(&mut [0; 8]).unwrap();
    let name = ServerName::IpAddress(b.address().ip().into());
    let tls = ClientConnection::new(identity.tls().0, name).unwrap();
    let mut tls = StreamOwned::new(tls, socket);
    let pretended = Introduction { hello: net.hello(3, "c"), link: 1, last: 0 };
    tls.write_all(&Greeting::Introduction(pretended).encode().unwrap()).unwrap();
    let mut answer = Vec::new();
    // The connection ends without a good-bye of TLS.
    let _ = tls.read_to_end(&mut answer);
    let why = b.refused();
    assert!(why.contains("in its own name alone"), "{why}");
    assert_eq!(Greeting::decode(&answer[2..]).unwrap(), Greeting::Refused(why));
}

#[test]
fn rights_are_those_of_the_certificate() {
    let net = Net::tls();
    let b = net.host(2, "b");
    let a = start(net.hello(1, "a"), Security::Tls(net.identity("a", PeerRights::ReadOnly, year())));
    a.peers.connect(b.id, b.address()).unwrap();
    assert_eq!(b.next(), Heard::Connected(a.id, 1, PeerRights::ReadOnly));
    assert_eq!(a.next(), Heard::Connected(b.id, 1, PeerRights::ReadWrite));
}

#[test]
fn other_clusters_and_versions_are_refused_by_name() {
    let net = Net::plain();
    let b = net.host(2, "b");
    let plain = || net.security("");
    let other = Hello::new([9; 16], HostId(1), "a", 1).unwrap();
    let (ours, theirs) = refused(&start(other, plain()), &b);
    assert!(ours.contains("another cluster") && theirs.contains("another cluster"), "{ours} {theirs}");
    let hello = net.hello(1, "a");
    let newer = Hello { version: hello.version + 1, ..hello.clone() };
    let (ours, theirs) = refused(&start(newer, plain()), &b);
    assert!(theirs.contains("upgrade this side") && ours.contains(&theirs), "{ours} {theirs}");
    let older = Hello { version: hello.version - 1, ..hello };
    let (ours, theirs) = refused(&start(older, plain()), &b);
    assert!(theirs.contains("upgrade that host") && ours.contains(&theirs), "{ours} {theirs}");
}

#[test]
fn a_name_or_number_is_one_host() {
    let net = Net::plain();
    let b = net.host(2, "b");
    let (ours, _) = refused(&net.host(1, "b"), &b);
    assert!(ours.contains("one name"), "{ours}");
    let a = net.host(1, "a");
    a.peers.connect(b.id, b.address()).unwrap();
    assert!(matches!(b.next(), Heard::Connected(..)));
    let (ours, theirs) = refused(&net.host(3, "a"), &b);
    assert!(theirs.contains("two hosts have one name") && ours.contains(&theirs), "{ours} {theirs}");
    // Whoever asks for one host and finds another says so.
    let wrong = a.peers.connect(HostId(7), b.address()).unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::Mismatch);
    assert!(wrong.message.contains("host 2"), "{wrong}");
    assert!(b.refused().contains("host 2"));
}

/// Whoever comes under the number of a host that is connected takes nobody's place, however new it says to be, and that host
/// is let in ever after.
#[test]
fn who_comes_under_the_number_of_another_takes_nobodys_place() {
    for net in [Net::plain(), Net::tls()] {
        let (b, good) = (net.host(2, "b"), net.host(1, "good"));
        good.peers.connect(b.id, b.address()).unwrap();
        assert!(matches!(b.next(), Heard::Connected(..)));
        let newest = Hello { incarnation: u64::MAX, ..net.hello(1, "evil") };
        let evil = start(newest.clone(), net.security("evil"));
        let (ours, theirs) = refused(&evil, &b);
        assert!(theirs.contains("a number that is good's") && ours.contains(&theirs), "{ours} {theirs}");
        // As little if it is it that is called.
        let error = b.peers.connect(evil.id, evil.address());
        assert!(error.is_ok(), "the one of that number is connected: {error:?}");
        good.peers.send(b.id, b"still here", &mut Vec::new()).unwrap();
        assert_eq!(b.next(), Heard::Message(good.id, b"still here".to_vec(), vec![]));
        // Where the session is over, the other may come; it shuts nobody out.
        b.peers.disconnect(good.id, "for a while");
        b.lost(good.id, 1);
        evil.peers.connect(b.id, b.address()).unwrap();
        assert!(matches!(b.next(), Heard::Connected(_, u64::MAX, _)));
        b.peers.disconnect(evil.id, "it is another");
        b.lost(evil.id, u64::MAX);
        assert!(matches!(good.next(), Heard::Connected(..)));
        good.lost(b.id, 1);
        good.peers.connect(b.id, b.address()).unwrap();
        assert_eq!(b.next(), Heard::Connected(good.id, 1, PeerRights::ReadWrite));
    }
}

#[test]
fn a_restarted_host_takes_its_place_and_the_old_one_is_shut_out() {
    let net = Net::plain();
    let b = net.host(2, "b");
    let old = net.host(1, "a");
    old.peers.connect(b.id, b.address()).unwrap();
    assert!(matches!(b.next(), Heard::Connected(_, 1, _)));
    assert!(matches!(old.next(), Heard::Connected(..)));
    let new = start(Hello { incarnation: 2, ..net.hello(1, "a") }, net.security("a"));
    new.peers.connect(b.id, b.address()).unwrap();
    assert!(b.lost(HostId(1), 1).contains("newer connection"), "the loss comes first");
    assert!(matches!(b.next(), Heard::Connected(_, 2, _)));
    old.broken(b.id, 1);
    let (ours, theirs) = refused(&old, &b);
    assert!(theirs.contains("newer one, 2") && ours.contains(&theirs), "{ours} {theirs}");
    b.peers.bar(HostId(1), 2);
    assert!(b.lost(HostId(1), 2).contains("shut out"));
    assert!(matches!(new.next(), Heard::Connected(..)));
    assert!(new.lost(b.id, 1).contains("shut out"));
    assert!(refused(&new, &b).1.contains("shut out"));
}

#[test]
fn plain_and_encrypted_hosts_tell_each_other_apart() {
    let (net, plain) = (Net::tls(), Net::plain());
    let (a, b) = (plain.host(1, "a"), net.host(2, "b"));
    for (ours, theirs) in [refused(&a, &b), refused(&b, &a)] {
        assert!(ours.contains("certificates") && theirs.contains("certificates"), "{ours} {theirs}");
    }
}

#[test]
fn strangers_are_sent_away_and_nobody_notices() {
    for net in [Net::plain(), Net::tls()] {
        let (a, b) = (net.host(1, "a"), net.host(2, "b"));
        a.peers.connect(b.id, b.address()).unwrap();
        a.next();
        b.next();
        let mut stranger = TcpStream::connect(b.address()).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n").unwrap();
        assert!(b.refused().contains("something else"));
        // A right beginning, and garbage behind it.
        let mut stranger = TcpStream::connect(b.address()).unwrap();
        let mut preamble = [0; 8];
        stranger.read_exact(&mut preamble).unwrap();
        stranger.write_all(&preamble).unwrap();
        stranger.write_all(&[0x55; 300]).unwrap();
        let why = b.refused();
        assert!(why.contains("is not TLS") || why.contains("21845 bytes is announced"), "{why}");
        // Hanging up in the middle.
        let mut stranger = TcpStream::connect(b.address()).unwrap();
        stranger.write_all(&preamble[..5]).unwrap();
        stranger.shutdown(Shutdown::Write).unwrap();
        assert!(b.refused().contains("closed the connection"));
        // Saying nothing.
        let _silent = TcpStream::connect(b.address()).unwrap();
        assert!(b.refused().contains("took too long"));
        a.peers.send(b.id, b"still here", &mut Vec::new()).unwrap();
        assert_eq!(b.next(), Heard::Message(a.id, b"still here".to_vec(), vec![]));
    }
}

#[test]
fn nobody_answers_at_an_address() {
    let net = Net::plain();
    let a = net.host(1, "a");
    let gone = net.host(2, "b");
    let address = gone.address();
    drop(gone);
    let error = a.peers.connect(HostId(2), address).unwrap_err();
    assert!(error.message.contains("host 2") && error.message.contains("nobody answers"), "{error}");
    let error = a.peers.connect(HostId(2), "192.0.2.1:1".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Permission, "plain connections do not leave the machine: {error}");
    let error = a.peers.send(HostId(2), b"x", &mut Vec::new()).unwrap_err();
    assert!(error.message.contains("host 2 is not connected"), "{error}");
}

#[test]
fn keys_that_others_can_read_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::init(&directory.path().join("ca")).unwrap();
    let into = directory.path().join("a");
    authority.issue_into(&into, "a", PeerRights::ReadWrite, year()).unwrap();
    assert_eq!(Identity::load(&into).unwrap().name(), "a");
    let key = into.join("host.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(Identity::load(&into).unwrap_err().message.contains("chmod 600"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    // A key that belongs to another certificate.
    std::fs::copy(directory.path().join("ca/ca.key"), &key).unwrap();
    assert!(Identity::load(&into).unwrap_err().message.contains("do not go together"));
}
