//! Bad input of clusters, on real hosts: whoever should not belong, what cannot be agreed on, and names that two want.
//! What the connections alone do with it is tried in `crates/peers/tests`.

use commonhold_peers::PeerRights;
use commonhold_peers::ca::{Authority, Validity};
use commonhold_peers::greeting::{Mode, preamble};
use commonhold_tests::cluster::{
    address_of, brief_cluster, ca, cluster, free_address, secure_cluster, sharers,
};
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{MIB, Scratch, TestHost, Worker, wait};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

fn until_says(host: &TestHost, words: &str) {
    let all = |line: &str| words.split('|').all(|word| line.contains(word));
    wait::until(&format!("the log says {words}"), || host.log().lines().any(all).then_some(()));
}

/// Those who share go on, whatever else happened.
fn go_on(workers: &[Worker], seed: u64) {
    workers[0].ok(&format!("fill m 0 8 {seed}"));
    workers[1].all(&format!("check m 0 8 {seed}\nfill m 3 1 {}", seed + 1));
    workers[0].ok(&format!("check m 3 1 {}", seed + 1));
}

#[test]
fn who_waits_for_a_host_that_cannot_be_reached_is_told_which_and_for_how_long() {
    let hosts = brief_cluster(3);
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    let at = address_of(&hosts[1]);
    workers[1].eventually("create o /far size=65536 strict mode=666");
    workers[1].all("map m o rw shared 0 0\nfill m 0 16 1");
    hosts[1].kill_both();
    // Its lease lasts: nobody knows that it is dead.
    let refused = workers[2].ask("open o /far r").unwrap_err();
    let known = ["Disconnected", "TimedOut", "NotFound"].contains(&refused.kind.as_str());
    assert!(known, "{refused:?}");
    if refused.kind != "NotFound" {
        assert!(refused.message.contains(&at) || refused.message.contains("host1"), "{}", refused.message);
    }
    until_says(&hosts[2], "host1 is lost");
    let why = workers[2].refused("open o /far r", "NotFound");
    assert!(why.contains("/far"), "{why}");
    // Its name is another's to take, and the host is found again when it is back.
    hosts[1].start_again().unwrap();
    workers[2].eventually("open again /far r");
}

#[test]
fn a_certificate_that_is_not_good_keeps_its_host_out_and_both_logs_say_why() {
    let scratch = Scratch::new();
    let hosts = secure_cluster(&scratch, 3);
    let pair = [hosts[0].worker(), hosts[1].worker()];
    pair[0].ok(&format!("create o /shared size={MIB} strict"));
    pair[1].eventually("open o /shared rw");
    pair.iter().for_each(|worker| drop(worker.ok("map m o rw shared 0 0")));
    let list = address_of(&hosts[0]);
    let authority = Authority::load(&scratch.join("ca")).unwrap();
    let now = SystemTime::now();
    // As an authority makes them whose clock is an hour ahead, or behind, of everybody's.
    let usual = Validity::of(DAY);
    let ahead = Validity { from: usual.from + HOUR, until: usual.until + HOUR };
    let behind = Validity { from: usual.from - HOUR, until: usual.until - HOUR };
    let expired = Validity { from: now - 9 * DAY, until: now - 3 * DAY };
    let early = Validity { from: now + HOUR, until: now + DAY };
    let cases = [
        ("ahead", ahead, None),
        ("behind", behind, None),
        ("expired", expired, Some(("expired", "expired 3 days ago"))),
        ("early", early, Some(("clock", "becomes valid only in"))),
    ];
    for (name, validity, says) in cases {
        let identity = scratch.join(name);
        authority.issue_into(&identity, name, PeerRights::ReadWrite, validity).unwrap();
        let (own, identity) = (free_address(), identity.display().to_string());
        let words = ["--listen", &own, "--name", name, "--identity", &identity, "--join", &list];
        let host = TestHost::with(&words);
        let worker = host.worker();
        match says {
            None => drop(worker.eventually("open o /shared rw")),
            Some((ours, theirs)) => {
                until_says(&host, &format!("joining the cluster|{ours}"));
                until_says(&hosts[0], &format!("was refused|{theirs}"));
                worker.refused("open o /shared rw", "Disconnected");
            }
        }
        go_on(&pair, 10);
    }
    // The certificate of one host, and the name of another.
    let identity = scratch.join("host1").display().to_string();
    let own = free_address();
    let words = ["--listen", &own, "--name", "another", "--identity", &identity, "--join", &list];
    let host = TestHost::not_started(Scratch::new(), scratch.join("another-state"), &words, &[]);
    let why = host.start_again().expect_err("it is not its certificate");
    assert!(why.contains("host1") && why.contains("another"), "{why}");
}

/// Two versions in one cluster: hosts of different versions of the protocol never speak with each other.
#[test]
fn hosts_of_other_versions_are_told_which_side_to_upgrade_and_the_others_go_on() {
    let hosts = cluster(2);
    let workers = sharers(&hosts, MIB, "strict");
    for (change, upgrade) in [(1i32, "upgrade this side"), (-1, "upgrade that host")] {
        let other = Stranger::speaking(77, "other-version", |hello| {
            hello.version = hello.version.checked_add_signed(change as i16).unwrap();
        });
        for host in &hosts {
            let why = other.connect(&address_of(host)).unwrap_err();
            assert!(
                why.message.contains("of the hosts' messages") && why.message.contains("upgrade"),
                "{why}"
            );
            until_says(host, &format!("was refused|{upgrade}"));
        }
        go_on(&workers, 20);
    }
    // A version of the connections themselves, which is told before anything else.
    let mut socket = TcpStream::connect(address_of(&hosts[0])).unwrap();
    let mut words = preamble(Mode::Plain);
    words[4] += 1;
    socket.write_all(&words).unwrap();
    let mut ours = [0; 8];
    socket.read_exact(&mut ours).unwrap();
    assert_eq!(ours, preamble(Mode::Plain), "it says its own version before it hangs up");
    assert_eq!(socket.read(&mut [0; 64]).unwrap_or(0), 0);
    until_says(&hosts[0], "was refused|of connections|upgrade this side");
    go_on(&workers, 30);
    assert_eq!(hosts[1].connect().hosts().unwrap().len(), 2);
}

#[test]
fn a_second_host_of_one_name_is_refused_and_told_what_to_do() {
    let hosts = brief_cluster(2);
    let workers = sharers(&hosts, MIB, "strict");
    let list = address_of(&hosts[0]);
    for name in ["host1", "host0"] {
        let own = free_address();
        let namesake = TestHost::with(&["--plain", "--listen", &own, "--name", name, "--join", &list]);
        wait::until("it is refused", || {
            let log = namesake.log();
            let said = [format!("there is a host named {name}"), "two hosts have one name".into()];
            said.iter().any(|said| log.contains(said)).then_some(())
        });
        namesake.worker().refused("create n /n size=4096 strict", "Disconnected");
        go_on(&workers, 40);
    }
    assert!(!hosts[0].log().contains("host1 is lost"), "{}", hosts[0].log());
    let own = free_address();
    let renamed = TestHost::with(&["--plain", "--listen", &own, "--name", "host2", "--join", &list]);
    renamed.worker().eventually("open o /shared rw");
}

/// An object created twice at once, in two places: one of them is it.
#[test]
fn of_two_who_create_one_name_at_once_one_does() {
    let hosts = cluster(3);
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[1].eventually("create w /warm size=4096 strict");
    workers[2].eventually("open w /warm r");
    for round in 0..12u64 {
        // Each way of sharing against each other, and all three hosts at once.
        let how = ["central", "forwarding", "explicit"];
        for (number, worker) in workers.iter().enumerate() {
            let how = how[(round as usize + number) % 3];
            worker.send(&format!("create o /twice{round} size={} {how} mode=666", 4096 * (number + 1)));
        }
        let outcomes: Vec<_> = workers.iter().map(Worker::answer).collect();
        let made: Vec<usize> = (0..3).filter(|number| outcomes[*number].is_ok()).collect();
        assert_eq!(made.len(), 1, "{outcomes:?}");
        for refused in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            assert_eq!(refused.kind, "Exists", "{refused:?}");
            assert!(refused.message.contains(&format!("/twice{round}")), "{refused:?}");
        }
        // All have the same one.
        let size = (4096 * (made[0] + 1)).to_string();
        for worker in &workers {
            worker.ok(&format!("open o /twice{round} rw"));
            assert_eq!(worker.ok("info o size"), size);
            worker.ok("map m o rw shared 0 0");
        }
        workers[made[0]].all("fill m 0 1 7\nsync o 0 4096");
        workers.iter().for_each(|worker| drop(worker.ok("check m 0 1 7")));
    }
}

#[test]
fn coherence_that_cannot_be_honoured_is_refused_before_anything_is_made() {
    let hosts = cluster(2);
    let workers = sharers(&hosts, MIB, "strict");
    let [home, other] = [&workers[0], &workers[1]];
    for how in ["central", "forwarding", "explicit"] {
        let why = home.refused(&format!("create x /x size=4096 pager=/archive {how}"), "Invalid");
        assert!(why.contains("from memory or from a file"), "{why}");
    }
    other.refused("open x /x r", "NotFound");
    for (worker, line, kind) in [
        (other, "map n o rw shared 100 4096", "Invalid"),
        (other, "map n o rw shared 1048576 4096", "Invalid"),
    ] {
        worker.refused(line, kind);
    }
    // A wish, and no promise: pages that other hosts may take are served by the host.
    home.all("map n o rw shared 0 0 in-thread\nfill n 20 4 9\ndrop n");
    other.ok("check m 20 4 9");
    // A local object is seen from other hosts, and mapped on its own alone.
    home.ok("create l /local size=4096");
    let why = other.refused("open l /local r", "Unsupported");
    assert!(why.contains("/local is local to") && why.contains("create it with --coherence strict"), "{why}");
    // A hold of which the next host could not be served in time.
    let why = home.refused("create x /x size=4096 strict hold-us=30000001", "Invalid");
    assert!(why.contains("more than half of the fault deadline of 60000 ms"), "{why}");
    let why = home.refused("create x /x size=4096 forwarding hold-us=2001 fault-deadline=4", "Invalid");
    assert!(why.contains("make it 2000 us at most"), "{why}");
    go_on(&workers, 50);
}

#[test]
fn certificates_of_the_command_line_are_refused_where_they_cannot_be_used() {
    let scratch = Scratch::new();
    ca(&scratch.join("ca"), &["init"]);
    let identity = scratch.join("a").display().to_string();
    ca(&scratch.join("ca"), &["issue", "a", "--into", &identity]);
    std::fs::write(scratch.join("a").join("host.crt"), b"-----BEGIN CERTIFICATE-----\nnonsense").unwrap();
    let own = free_address();
    let words = ["--listen", &own, "--name", "a", "--identity", &identity];
    let host = TestHost::not_started(Scratch::new(), scratch.join("state"), &words, &[]);
    let why = host.start_again().expect_err("that is no certificate");
    assert!(why.contains("host.crt") && why.lines().count() == 1, "{why}");
    assert_eq!(host.processes(), [0u32; 0], "nothing goes on trying");
}

/// Where others would reach themselves, or nobody: a copy of a host there would pass for its next process.
#[test]
fn an_address_that_others_cannot_reach_is_refused() {
    for listen in ["0.0.0.0:7420", "[::]:7420", "[::ffff:0.0.0.0]:7420", "127.0.0.1:0"] {
        let words = ["--plain", "--even-beyond-loopback", "--listen", listen, "--name", "a"];
        let scratch = Scratch::new();
        let state = scratch.join("state");
        let host = TestHost::not_started(scratch, state, &words, &[]);
        let why = host.start_again().expect_err("nobody is reached there");
        assert!(why.contains("--listen") && why.contains("can connect to"), "{listen}: {why}");
        assert_eq!(host.processes(), [0u32; 0]);
    }
}

/// What is refused is told in the log, which the host itself puts aside when it is long: nobody who only connects fills the
/// disk.
#[test]
fn a_log_that_others_make_long_is_put_aside() {
    let hosts = cluster(1);
    let (log, aside) = (hosts[0].state().join("log"), hosts[0].state().join("log.1"));
    std::fs::File::options().write(true).open(&log).unwrap().set_len(9 << 20).unwrap();
    let mut socket = TcpStream::connect(address_of(&hosts[0])).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    until_says(&hosts[0], "was refused|something else");
    assert!(std::fs::metadata(&log).unwrap().len() < 1 << 20);
    assert_eq!(std::fs::metadata(&aside).unwrap().len(), 9 << 20);
    assert!(std::fs::read_to_string(&log).unwrap().contains("was refused"));
}
