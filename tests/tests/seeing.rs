//! What is counted and traced of objects, on real hosts: the numbers are those that `docs/PROTOCOL.md` says.

use commonhold::{CreateOptions, MapOptions, MessageKind, ObjectCounts, Seen};
use commonhold_tests::cluster::{counts, free_address, pair, sharing_pair, sharing_pair_of};
use commonhold_tests::{MIB, TestHost, Worker, wait};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// `name: sent received` of the messages between hosts, in alphabetical order.
fn remote(object: &ObjectCounts) -> Vec<String> {
    // What hosts say of themselves, and not of pages, under forwarding.
    let members = ["join", "welcome", "hello", "known-member", "flush", "report", "settle"];
    let mut all: Vec<String> = object
        .messages
        .iter()
        .filter(|m| m.sent + m.received > 0 && !members.contains(&m.name.as_str()))
        .map(|m| format!("{} {}>{}", m.name, m.sent, m.received))
        .collect();
    all.sort();
    all
}

/// Until all that is under way has arrived: the last acknowledgement follows what it acknowledges.
fn settled(hosts: &[TestHost; 2], name: &str) -> [ObjectCounts; 2] {
    wait::until("what one host sent, the other received", || {
        let both = [counts(&hosts[0], name), counts(&hosts[1], name)];
        let is_even = MessageKind::ALL.iter().all(|kind| {
            let (a, b) = (both[0].of_kind(*kind), both[1].of_kind(*kind));
            (a.0, a.1) == (b.1, b.0)
        });
        is_even.then_some(both)
    })
}

/// Until a host that is not the home has found it: who touches a page before asks once more then, and is counted once more.
fn until_it_speaks_with_the_home(worker: &Worker) {
    worker.eventually("sync o 0 4096");
}

const ROUNDS: u64 = 10;

#[test]
fn writers_that_take_turns_cost_two_requests_and_two_pages_a_round() {
    let hosts = pair(&[]);
    let [a, b] = sharing_pair(&hosts, 1);
    until_it_speaks_with_the_home(&b);
    a.ok("put m 0 1");
    for round in 0..ROUNDS {
        b.ok(&format!("put m 0 {round}"));
        a.ok(&format!("put m 0 {round}"));
    }
    let [home, other] = settled(&hosts, "/shared");
    assert_eq!(remote(&home), ["grant 10>0", "page-out 0>10", "recall 10>0", "request 0>10"]);
    assert_eq!(remote(&other), ["grant 0>10", "page-out 10>0", "recall 0>10", "request 10>0"]);
    assert_eq!(home.of_kind(MessageKind::Acknowledgement), (0, 0, 0));
    assert_eq!((home.counts.bytes_sent, home.counts.bytes_received), (10 * 4096, 10 * 4096));
    assert_eq!((other.counts.bytes_sent, other.counts.bytes_received), (10 * 4096, 10 * 4096));
    assert_eq!((home.counts.hand_overs, other.counts.hand_overs), (11, 10));
    // The kernel may report one access twice: what the grant of a page that was never touched finds, for example.
    assert_eq!(home.counts.waits, 11, "one for each access");
    assert!(home.counts.write_faults >= 11 && home.counts.read_faults == 0, "{:?}", home.counts);
    assert_eq!((other.counts.write_faults, other.counts.faults()), (10, 10));
    assert_eq!((other.counts.waits, other.counts.refused, other.counts.forwards), (10, 0, 0));
    assert!(other.counts.waited_ns >= other.counts.longest_wait_ns && other.counts.longest_wait_ns > 0);
    let page = &home.pages[0];
    assert_eq!((home.pages.len(), page.page, page.messages), (1, 0, 40));
    assert_eq!((page.by_kind, page.bytes, page.forwards), ([20, 20, 0], 20 * 4096, 0));
    let local: u64 = home.messages.iter().map(|message| message.local).sum();
    assert!((20..=local).contains(&page.local.into()), "{} of {local}", page.local);
    assert_eq!(
        (other.pages[0].local, other.pages[0].by_kind, other.pages[0].bytes),
        (0, [20, 20, 0], 20 * 4096)
    );
    assert_eq!(page.heat, 40 + home.counts.faults());
    assert_eq!(u64::from(page.write_faults), home.counts.write_faults);
    assert_eq!((page.hand_overs, page.excess), (11, 0));
    let seen = hosts[0].connect().counts("/shared", 1).unwrap();
    assert_eq!(page.owner.map(|owner| seen.called(owner)), Some("home".into()));
    b.ok("put m 0 9");
    let seen = hosts[0].connect().counts("/shared", 1).unwrap();
    assert_eq!(seen.objects[0].pages[0].owner.map(|owner| seen.called(owner)), Some("other".into()));
    let seen = hosts[1].connect().counts("/shared", 1).unwrap();
    assert_eq!(seen.objects[0].pages[0].owner, Some(seen.host), "the owner knows it too");
}

#[test]
fn a_reader_of_what_another_writes_is_invalidated_and_says_so() {
    let hosts = pair(&[]);
    let [a, b] = sharing_pair(&hosts, 1);
    until_it_speaks_with_the_home(&b);
    a.ok("put m 0 1");
    for round in 0..ROUNDS {
        b.ok("get m 0");
        a.ok(&format!("put m 0 {round}"));
    }
    let [home, other] = settled(&hosts, "/shared");
    assert_eq!(remote(&home), ["done 0>10", "grant 10>0", "invalidate 10>0", "request 0>10"]);
    assert_eq!(home.of_kind(MessageKind::Request).0, 10, "invalidations are requests");
    assert_eq!((home.of_kind(MessageKind::Page).0, home.of_kind(MessageKind::Page).1), (10, 0));
    assert_eq!(home.of_kind(MessageKind::Acknowledgement).1, 10);
    assert_eq!((home.counts.bytes_sent, home.counts.bytes_received), (10 * 4096, 0));
    assert_eq!((home.counts.waits, home.counts.read_faults), (11, 0));
    assert!(home.counts.protection_faults >= 10, "{:?}", home.counts);
    assert_eq!((other.counts.read_faults, other.counts.faults(), other.counts.hand_overs), (10, 10, 0));
}

#[test]
fn under_forwarding_a_write_fault_costs_two_messages_and_one_more_where_the_hint_is_old() {
    let list = free_address();
    let hosts: Vec<TestHost> = ["origin", "second", "third"]
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let own = free_address();
            match number {
                0 => TestHost::with(&["--plain", "--listen", &list, "--name", name]),
                _ => TestHost::with(&["--plain", "--listen", &own, "--join", &list, "--name", name]),
            }
        })
        .collect();
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[0].ok("create o /shared size=4096 forwarding");
    workers[1..].iter().for_each(|worker| drop(worker.eventually("open o /shared rw")));
    workers.iter().for_each(|worker| drop(worker.ok("map m o rw shared 0 0")));
    workers[0].ok("put m 0 1");
    for round in 0..ROUNDS {
        workers[1].ok(&format!("put m 0 {round}"));
        workers[0].ok(&format!("put m 0 {round}"));
    }
    let [origin, second, _] = [0, 1, 2].map(|at| counts(&hosts[at], "/shared"));
    assert_eq!(remote(&origin), ["hand-over 10>10", "write 10>10"]);
    assert_eq!(remote(&second), ["hand-over 10>10", "write 10>10"]);
    assert_eq!((origin.counts.forwards, second.counts.hand_overs), (0, 10));
    // The third believes that the origin has it; the origin knows better.
    workers[1].ok("put m 0 1");
    workers[2].ok("put m 0 1");
    let [origin, second, third] = [0, 1, 2].map(|at| counts(&hosts[at], "/shared"));
    assert_eq!(remote(&third), ["hand-over 0>1", "write 1>0"]);
    assert_eq!((origin.counts.forwards, second.counts.forwards, third.counts.forwards), (1, 0, 0));
    assert_eq!([&origin, &second, &third].map(|counts| counts.pages[0].forwards), [1, 0, 0]);
    assert_eq!(remote(&origin), ["hand-over 11>10", "write 11>12"]);
    let seen = hosts[0].connect().counts("/shared", 1).unwrap();
    assert_eq!(seen.objects[0].pages[0].owner.map(|owner| seen.called(owner)), Some("third".into()));
}

#[test]
fn under_explicit_coherence_syncs_and_conflicts_are_counted() {
    let hosts = pair(&[]);
    let [a, b] = sharing_pair_of(&hosts, "size=8192 explicit");
    b.all("put m 0 1\nsync o 0 8192");
    let [home, other] = settled(&hosts, "/shared");
    assert_eq!(remote(&other), ["fetch 1>0", "pages 0>1", "sync 1>0", "synced 0>1"]);
    assert_eq!(remote(&home), ["fetch 0>1", "pages 1>0", "sync 0>1", "synced 1>0"]);
    assert_eq!((other.counts.syncs, other.counts.synced_pages, other.counts.conflicts), (1, 1, 0));
    assert_eq!((other.counts.bytes_sent, other.counts.bytes_received), (4096, 4096));
    a.ok("put m 0 2");
    b.ok("put m 0 3");
    a.ok("sync o 0 8192");
    b.ok("sync o 0 8192");
    let [home, other] = settled(&hosts, "/shared");
    assert_eq!((home.counts.conflicts, other.counts.conflicts), (0, 1), "the last sync won");
    assert_eq!((home.counts.syncs, other.counts.syncs), (1, 2), "the home's own processes sync too");
    assert_eq!(hosts[0].connect().all_counts(1).unwrap().objects.len(), 1, "its two caches are one object");
}

#[test]
fn local_objects_are_counted_and_say_nothing_to_anybody() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok(&format!("create o /local size={MIB} controlled"));
    worker.all("map m o rw shared 0 0\nfill m 0 100 1");
    let seen = counts(&host, "/local");
    assert!(seen.counts.write_faults > 0 && seen.messages.is_empty() && !seen.shared);
    assert_eq!(seen.pages.iter().map(|p| p.heat).sum::<u64>(), seen.counts.faults());
    assert_eq!(host.status().faults, seen.counts.faults(), "the host has no other object");
}

#[test]
fn who_may_not_read_an_object_learns_nothing_of_it() {
    let host = TestHost::start();
    // Other users may not reach the place where it was built.
    let program = host.scratch().join("program");
    assert!(Command::new("cp").arg(host.program()).arg(&program).status().unwrap().success());
    let worker = host.worker();
    worker.ok(&format!("create o /secret size={MIB} controlled mode=600"));
    worker.ok(&format!("create p /open size={MIB} controlled mode=644"));
    worker.all("map m o rw shared 0 0\nput m 0 1\nmap n p rw shared 0 0\nput n 0 1");
    let by = |uid: u32, words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("COMMONHOLD_HOST", host.state()).uid(uid).gid(uid).current_dir("/");
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let (done, all) = by(1234, &["stats"]);
    assert!(done && all.contains("/open") && !all.contains("/secret"), "{all}");
    let (done, why) = by(1234, &["stats", "/secret"]);
    assert!(!done && why.contains("may not be read by user 1234"), "{why}");
    let (done, why) = by(1234, &["trace", "/secret", "-n", "1"]);
    assert!(!done && why.contains("may not be read by user 1234"), "{why}");
    let (done, all) = by(0, &["stats", "--json"]);
    assert!(done && all.contains("/open") && all.contains("/secret"), "{all}");
}

/// `commonhold` with these words, its lines to be read as they come.
fn begin(host: &TestHost, words: &[&str]) -> Child {
    let mut command = Command::new(host.program());
    command.args(words).env("COMMONHOLD_HOST", host.state()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs")
}

#[test]
fn a_trace_shows_each_message_of_a_hand_over() {
    let hosts = pair(&[]);
    let [a, b] = sharing_pair(&hosts, 1);
    a.ok("put m 0 1");
    let mut trace = begin(&hosts[0], &["trace", "/shared", "--json", "-n", "10"]);
    let mut said = BufReader::new(trace.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("tracing /shared"), "{line}");
    b.ok("put m 0 2");
    a.ok("put m 0 3");
    b.ok("put m 0 4");
    let mut text = String::new();
    trace.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(trace.wait().unwrap().success());
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
        format!("{} {} {} {}", text("from"), text("to"), text("what"), line["bytes"])
    };
    assert_eq!(
        lines.iter().map(words).collect::<Vec<_>>(),
        [
            "other home request 0",
            "home home recall 0",
            "home home page-out 0",
            "home other grant 4096",
            "home home write fault 0",
            "home home request 0",
            "home other recall 0",
            "other home page-out 4096",
            "home home grant 0",
            "other home request 0",
        ]
    );
    let numbers: Vec<u64> = lines.iter().map(|line| line["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<u64>>());
    assert!(lines.iter().all(|line| line["pages"] == 1 && line["first_page"] == 0));
    assert!(lines.is_sorted_by_key(|line| line["at_ns"].as_u64()));
}

#[test]
fn many_objects_are_told_in_parts() {
    let host = TestHost::start();
    let connection = host.connect();
    let options = CreateOptions { size_bytes: 4096, controlled: true, ..CreateOptions::default() };
    let objects: Vec<_> = (0..100)
        .map(|number| {
            let object = connection.create(&format!("/many/{number}"), &options, None).unwrap();
            let mapping = object.map(&MapOptions::default()).unwrap();
            (object, mapping)
        })
        .collect();
    let seen: Seen = connection.all_counts(32).unwrap();
    assert_eq!((seen.objects.len(), seen.more), (objects.len(), false));
    assert!(seen.objects.is_sorted_by(|a, b| a.id < b.id));
}
