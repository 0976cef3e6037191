//! Why a host is not in its cluster: said when it is started, by `status` and by `hosts`, within two seconds, and no more when
//! it is in. Names in addresses.

use commonhold::ErrorKind;
use commonhold_tests::cluster::{ca, free_address, until_says};
use commonhold_tests::{Scratch, TestHost, is_root, left_out, wait};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long who starts a host may wait for the reason, beside what it takes to start one.
const WAITS: Duration = Duration::from_secs(2);

/// A host that is started with these words, and what was said then.
fn starts(words: &[&str]) -> (TestHost, String) {
    let scratch = Scratch::new();
    let state = scratch.join("state");
    let host = TestHost::not_started(scratch, state, words, &[]);
    let said = Command::new(host.program())
        .args(["host", "start", "--quiet", "--state"])
        .arg(host.state())
        .args(words)
        .output()
        .expect("it runs");
    let said = (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned());
    assert!(said.0, "the host is up: {}", said.1);
    (host, said.1)
}

/// Starts a host that cannot join, for that reason, and finds it wherever it is told.
fn is_out(words: &[&str], kind: ErrorKind, why: &str) -> TestHost {
    let begun = Instant::now();
    let (host, said) = starts(words);
    assert!(begun.elapsed() < WAITS + Duration::from_secs(20), "it waits too long");
    assert!(said.contains("not in its cluster") && said.contains(why), "{why}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let asked = Instant::now();
    let cluster = host.status().cluster.expect("it knows of a cluster");
    let trouble = cluster.trouble.expect("a reason");
    assert!(!cluster.joined && trouble.why.contains(why), "{why}: {}", trouble.why);
    assert_eq!(trouble.kind, kind, "{}", trouble.why);
    for words in [["hosts", "--json"], ["status", "--json"]] {
        let text = host.command(&words, |_| ()).expect("it answers");
        assert!(text.contains(&why.replace('"', "\\\"")), "{words:?}: {text}");
    }
    let text = host.command(&["hosts"], |_| ()).expect("it answers");
    assert!(text.contains("waits for the cluster's registry") && text.contains(why), "{text}");
    assert!(asked.elapsed() < WAITS, "who asks does not wait");
    host
}

fn list_at(address: &str) -> TestHost {
    TestHost::with(&["--plain", "--name", "left", "--listen", address])
}

fn until_joined(host: &TestHost) {
    let is_in = || host.status().cluster.filter(|cluster| cluster.joined && cluster.trouble.is_none());
    wait::until("it is in", is_in);
    let text = host.command(&["hosts"], |_| ()).expect("it answers");
    assert!(!text.contains("waits"), "{text}");
}

#[test]
fn a_closed_port_is_named_and_the_host_comes_in_when_it_is_open() {
    let (list, own) = (free_address(), free_address());
    let words = ["--plain", "--name", "right", "--listen", &own, "--join", &list];
    let host = is_out(&words, ErrorKind::Disconnected, "connection refused");
    let _left = list_at(&list);
    until_joined(&host);
}

#[test]
fn dropped_packets_are_told_from_a_closed_port() {
    // Whose queue is full drops who would connect.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(socket) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queue.push(socket);
    }
    let (own, list) = (free_address(), address.to_string());
    let words = ["--plain", "--name", "right", "--listen", &own, "--join", &list];
    is_out(&words, ErrorKind::TimedOut, "dropped on the way");
}

#[test]
fn a_host_that_says_nothing_is_told_of_while_it_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, list) = (free_address(), listener.local_addr().unwrap().to_string());
    let words = ["--plain", "--name", "right", "--listen", &own, "--join", &list];
    is_out(&words, ErrorKind::TimedOut, "has not answered yet");
}

#[test]
fn another_version_says_which_side_to_upgrade() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let list = listener.local_addr().unwrap().to_string();
    let newer = commonhold_peers::frame::FRAME_VERSION + 1;
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let version = newer.to_le_bytes();
            // Who was told may be gone before all is written, or read: what it says of it is looked at.
            // It may be gone before it has heard all: what it says of that is looked at below.
            let _ = socket.write_all(&[b'C', b'M', b'H', b'P', version[0], version[1], 0, 0]);
            let _ = socket.read(&mut [0; 64]);
        }
    });
    let own = free_address();
    let words = ["--plain", "--name", "right", "--listen", &own, "--join", &list];
    is_out(&words, ErrorKind::Version, "upgrade this side");
}

#[test]
fn a_name_that_is_another_hosts_is_said_on_both_sides() {
    let (list, first, second) = (free_address(), free_address(), free_address());
    let left = list_at(&list);
    let words = ["--plain", "--name", "left", "--listen", &second, "--join", &list];
    drop(is_out(&words, ErrorKind::Permission, "the other end refuses: two hosts have one name"));
    until_says(&left, "was refused|two hosts have one name");
    let right = TestHost::with(&["--plain", "--name", "right", "--listen", &first, "--join", &list]);
    until_joined(&right);
    let words = ["--plain", "--name", "right", "--listen", &second, "--join", &list];
    drop(is_out(&words, ErrorKind::Permission, "the other end refuses: two hosts have one name"));
    // It is gone, and its lease is not over.
    right.kill_both();
    let _out = is_out(&words, ErrorKind::Exists, "right");
    until_says(&left, "right is not let in");
    assert_eq!(left.log().matches("right is not let in").count(), 1, "it asks again and again");
}

#[test]
fn certificates_and_none_are_told_apart_both_ways() {
    let (scratch, list, own) = (Scratch::new(), free_address(), free_address());
    let identities = Identities::new(&scratch, "ca", &["left", "right"]);
    let [left, right] = ["left", "right"].map(|name| identities.of(name));
    let encrypted = TestHost::with(&["--listen", &list, "--identity", &left]);
    let words = ["--plain", "--name", "right", "--listen", &own, "--join", &list];
    is_out(&words, ErrorKind::Mismatch, "the other end speaks TLS and this side plain connections");
    until_says(&encrypted, "was refused|plain connections");
    drop(encrypted);
    let (list, own) = (free_address(), free_address());
    let _plain = list_at(&list);
    let words = ["--listen", &own, "--join", &list, "--identity", &right];
    is_out(&words, ErrorKind::Mismatch, "the other end speaks plain connections and this side TLS");
}

#[test]
fn a_certificate_of_another_authority_or_one_that_ended_is_named() {
    let (scratch, list) = (Scratch::new(), free_address());
    let identities = Identities::new(&scratch, "ca", &["left"]);
    let strangers = Identities::new(&scratch, "other", &["right"]);
    let left = TestHost::with(&["--listen", &list, "--identity", &identities.of("left")]);
    let (own, right) = (free_address(), strangers.of("right"));
    let words = ["--listen", &own, "--join", &list, "--identity", &right];
    is_out(&words, ErrorKind::Permission, "not issued by this cluster's authority");
    until_says(&left, "was refused|another authority");
    let brief = scratch.join("brief").display().to_string();
    ca(&scratch.join("ca"), &["issue", "brief", "--into", &brief, "--valid-for", "1s"]);
    std::thread::sleep(Duration::from_secs(2));
    let own = free_address();
    let words = ["--listen", &own, "--join", &list, "--identity", &brief];
    is_out(&words, ErrorKind::Permission, "expired");
    until_says(&left, "was refused|expired");
}

/// Directories with certificates.
struct Identities<'s>(&'s Scratch);

impl Identities<'_> {
    fn new<'s>(scratch: &'s Scratch, authority: &str, names: &[&str]) -> Identities<'s> {
        let directory = scratch.join(authority);
        ca(&directory, &["init"]);
        for name in names {
            ca(&directory, &["issue", name, "--into", &scratch.join(name).display().to_string()]);
        }
        Identities(scratch)
    }

    fn of(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

#[test]
fn the_name_of_a_host_is_its_certificates() {
    let (scratch, own) = (Scratch::new(), free_address());
    let identity = Identities::new(&scratch, "ca", &["left"]).of("left");
    let other = ["--listen", &own, "--identity", &identity, "--name", "elsewhere"];
    let refused = TestHost::not_started(Scratch::new(), scratch.join("state"), &other, &[]);
    let why = refused.start_again().expect_err("another name");
    assert!(why.contains("\"left\"") && why.contains("\"elsewhere\""), "{why}");
    assert_eq!(refused.processes(), [0u32; 0]);
    let host = TestHost::with(&["--listen", &own, "--identity", &identity]);
    assert_eq!(host.status().cluster.expect("a cluster").name, "left");
}

#[test]
fn a_name_without_address_is_named() {
    let own = free_address();
    let words = ["--plain", "--name", "right", "--listen", &own, "--join", "nobody.invalid:7420"];
    let host = starts(&words).0;
    let why = |host: &TestHost| host.status().cluster?.trouble.map(|trouble| trouble.why);
    wait::until("it says so", || why(&host).filter(|why| why.contains("nobody.invalid is not resolved")));
}

#[test]
fn a_host_does_not_listen_where_it_is_not() {
    if !is_root("names of a test's own") {
        return;
    }
    let Some(names) = Names::new(&[("left.test", "192.0.2.1")]) else { return };
    let words = ["--plain", "--even-beyond-loopback", "--name", "left", "--listen", "left.test:7420"];
    let said = names.run(&words);
    let why = said.expect_err("that is another machine");
    assert!(why.contains("left.test is 192.0.2.1, which is no address of this machine"), "{why}");
}

/// The name has two addresses, of which one is right; later it moves.
#[test]
fn every_address_of_a_name_is_tried_and_one_that_moves_is_followed() {
    if !is_root("names of a test's own") {
        return;
    }
    let list: SocketAddr = free_address().parse().unwrap();
    let Some(names) = Names::new(&[("left.test", "127.0.0.2")]) else { return };
    let left = list_at(&list.to_string());
    let (own, join) = (free_address(), format!("left.test:{}", list.port()));
    let before = names.before();
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let words = ["--plain", "--name", "right", "--listen", &own, "--join", &join];
    let right = TestHost::by(&before, &words);
    let trouble = right.status().cluster.expect("a cluster").trouble.expect("nobody is there");
    assert!(trouble.why.contains("127.0.0.2"), "{}", trouble.why);
    names.are(&[("left.test", "127.0.0.2"), ("left.test", "127.0.0.1")]);
    until_joined(&right);
    // The list's host is elsewhere after its end, under the same name.
    drop(left);
    let moved: SocketAddr = ([127, 0, 0, 3], list.port()).into();
    names.are(&[("left.test", "127.0.0.3")]);
    let _left = list_at(&moved.to_string());
    wait::until("it is found at its new address", || {
        let hosts = right.connect().hosts().ok()?;
        hosts
            .iter()
            .any(|host| host.keeps_list && host.address == moved && !host.is_unreachable)
            .then_some(())
    });
}

/// Names of machines that only the programs of a test see.
struct Names(Scratch);

impl Names {
    fn new(names: &[(&str, &str)]) -> Option<Names> {
        let these = Names(Scratch::new());
        these.are(names);
        match these.try_it() {
            Ok(()) => Some(these),
            Err(why) => {
                left_out(&why);
                None
            }
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.join("hosts")
    }

    fn are(&self, names: &[(&str, &str)]) {
        let lines: String = names.iter().map(|(name, address)| format!("{address} {name}\n")).collect();
        // In place: what was mounted stays the file.
        std::fs::write(self.path(), format!("127.0.0.1 localhost\n{lines}")).unwrap();
    }

    /// Words before a program that is to know them.
    fn before(&self) -> Vec<String> {
        let mount = format!("mount --bind {} /etc/hosts && exec \"$@\"", self.path().display());
        ["/usr/bin/env", "unshare", "--mount", "sh", "-ec", &mount, "sh"].map(str::to_owned).to_vec()
    }

    fn try_it(&self) -> Result<(), String> {
        let before = self.before();
        let output = Command::new(&before[0]).args(&before[1..]).arg("true").output();
        let output = output.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(format!("names cannot be mounted: {said}")) }
    }

    /// `host start` with these words, which is not to leave a host.
    fn run(&self, words: &[&str]) -> Result<(), String> {
        let scratch = Scratch::new();
        let state = scratch.join("state");
        let host = TestHost::not_started(scratch, state, words, &[]);
        let before = self.before();
        let mut command = Command::new(&before[0]);
        command.args(&before[1..]).arg(host.program()).args(["host", "start", "--quiet", "--state"]);
        let said = command.arg(host.state()).args(words).output().expect("it runs");
        assert!(!Path::new(host.state()).join("host.sock").exists(), "nothing is left running");
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        if said.status.success() { Ok(()) } else { Err(words) }
    }
}
