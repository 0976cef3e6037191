//! Clients and hosts that mean ill with watches and notifications: nobody else notices.

use commonhold_coherence::HostId;
use commonhold_host::cluster::wire::{Answer, Call, Message};
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, Credentials, ErrorKind, Name, limits};
use commonhold_tests::cluster::{address_of, ca, cluster, secure_cluster, sharers_of};
use commonhold_tests::raw::Raw;
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{PAGE, Scratch, TestHost, Worker, wait};
use commonhold_watches::{Message as Said, Range};
use std::time::{Duration, Instant};

const OTHER: u32 = 60_001;

/// Memory of the host's process that is in use, KiB.
fn resident(host: &TestHost) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.status().host_pid)).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    line.split_whitespace().nth(1).expect("a number").parse().unwrap()
}

/// How many watches one ordinary user may have of it: fewer where it may open few descriptors.
fn most_of_user(host: &TestHost) -> usize {
    let all = std::fs::read_to_string(format!("/proc/{}/limits", host.status().host_pid)).unwrap();
    let line = all.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let files: usize = line.split_whitespace().nth(3).expect("a number").parse().unwrap();
    limits::WATCHES_PER_ORDINARY_USER.min(files / 16)
}

fn range() -> Range {
    Range::new(0, 1).unwrap()
}

#[test]
fn a_user_has_so_many_watches_and_others_have_theirs() {
    let host = TestHost::start();
    let owner = host.worker();
    owner.all("create o /o size=4096 mode=666\nwatching begin w o 0 1");
    let most = most_of_user(&host);
    let greedy: Vec<Worker> = (0..5).map(|_| host.worker_of(OTHER, OTHER)).collect();
    greedy.iter().for_each(|worker| drop(worker.ok("open o /o r")));
    let mut count = 0;
    for worker in &greedy[..4] {
        let here = limits::WATCHES_PER_CLIENT.min(most - count);
        if here > 0 {
            assert_eq!(worker.ok("watching many o 5000"), here.to_string());
        }
        count += here;
        let says = worker.refused("watching begin w o 0 1", "TooMany");
        assert!(says.contains("the limit: end some, or watch larger ranges"), "{says}");
    }
    let says = greedy[4].refused("watching begin w o 0 1", "TooMany");
    assert!(says.contains(&format!("clients of user {OTHER} have {most} watches")), "{says}");
    // Others have theirs, and nobody waits for those who do not read.
    let another = host.worker_of(OTHER + 1, OTHER + 1);
    another.all("open o /o rw\nwatching begin w o 0 1");
    let before = resident(&host);
    let begun = Instant::now();
    owner.ok("watching flood o 200");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(resident(&host) < before + 8192, "{} after {before} KiB", resident(&host));
    assert_eq!(another.ok("watching wait w 0"), "true");
    // Who ends gives all back.
    greedy[0].kill();
    wait::until("there is room again", || greedy[4].ask("watching begin w o 0 1").ok());
}

#[test]
fn ends_that_were_closed_are_forgotten() {
    let host = TestHost::start();
    let owner = host.worker();
    owner.ok("create o /o size=4096 mode=666");
    let mut raw = Raw::connect(&host);
    let opened = raw.ask_for(&Request::Open { name: Name::new("/o").unwrap(), access: Access::Read });
    let (Reply::Opened(opened), _) = opened else { panic!("{opened:?}") };
    let object = opened.info.id;
    let begin = Request::WatchRange { object, offset: 0, length: 1 };
    for _ in 0..3 * limits::WATCHES_PER_CLIENT {
        let (reply, fds) = raw.ask_for(&begin);
        assert!(matches!(reply, Reply::Watching { .. }) && fds.len() == 1, "{reply:?}");
        // It is closed, and the host is not told.
    }
    owner.ok("watching flood o 3");
    // What is not its own it cannot end, and what it did not open it cannot watch.
    owner.ok("watching begin w o 0 1");
    let numbers = (0..100_000).map(|number| Request::Unwatch { number });
    numbers.for_each(|request| assert!(raw.throw(&raw.bytes_for(0, false, &request), &[])));
    assert_eq!(
        raw.ask(&Request::Notify { object, offset: 0, length: 1 }, &[]).unwrap().unwrap_err().kind,
        ErrorKind::Permission
    );
    owner.ok("watching notify o 0 1");
    assert_eq!(owner.ok("watching wait w 0"), "true");
    let mut stranger = Raw::connect(&host);
    let why = stranger.ask(&begin, &[]).unwrap().unwrap_err();
    assert_eq!(why.kind, ErrorKind::NotFound, "{why}");
    assert_eq!(
        stranger.ask(&Request::Notify { object, offset: 0, length: 1 }, &[]).unwrap().unwrap_err().kind,
        ErrorKind::NotFound
    );
}

#[test]
fn a_flood_of_notifications_holds_nobody_up() {
    let hosts = cluster(2);
    let workers = sharers_of(&hosts, "/shared", &format!("size={PAGE} central mode=666"));
    let other = hosts[1].worker();
    other.all("create p /p size=4096 controlled\nmap p p rw shared 0 0");
    let floods: Vec<Worker> = (0..4).map(|_| hosts[1].worker_of(OTHER, OTHER)).collect();
    workers[0].ok("watching begin w o 0 1");
    for worker in &floods {
        worker.eventually("open o /shared rw");
        worker.send("watching flood o 4000");
    }
    let before = resident(&hosts[0]);
    for round in 0..50 {
        let begun = Instant::now();
        other.all(&format!("put p 0 {round}\nget p 0\nstat /p size"));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    assert_eq!(workers[0].ok("watching wait w -"), "true");
    floods.iter().for_each(|worker| drop(worker.answer().unwrap()));
    assert!(resident(&hosts[0]) < before + 16_384, "{} after {before} KiB", resident(&hosts[0]));
}

struct Met {
    hosts: Vec<TestHost>,
    workers: Vec<Worker>,
    stranger: Stranger,
    numbers: Vec<HostId>,
    object: u128,
}

fn open(stranger: &Stranger, home: HostId, access: Access) -> u128 {
    let who = Credentials { uid: 0, gid: 0, groups: vec![] };
    match stranger.ask(home, Call::Open { name: Name::new("/shared").unwrap(), who, access }).unwrap() {
        Answer::Opened(shared) => shared.object,
        other => panic!("{other:?}"),
    }
}

/// Two hosts that share an object, and one made by hand that belongs to their cluster.
fn met() -> Met {
    let hosts = cluster(2);
    let workers = sharers_of(&hosts, "/shared", &format!("size={PAGE} central mode=666"));
    workers.iter().for_each(|worker| drop(worker.ok("get m 0")));
    let stranger = Stranger::new(1, "stranger");
    let numbers: Vec<HostId> =
        hosts.iter().map(|host| stranger.connect(&address_of(host)).unwrap()).collect();
    stranger.join(numbers[0], Vec::new()).unwrap();
    Met { hosts, workers, stranger, numbers, object: 0 }
}

#[test]
fn a_host_that_opened_nothing_wakes_nobody() {
    let Met { hosts: _hosts, workers, stranger, numbers, .. } = met();
    let object = open(&stranger, numbers[0], Access::Read);
    stranger.ask(numbers[0], Call::Leave { object, number: 1, tokens: None }).unwrap();
    workers.iter().for_each(|worker| drop(worker.ok("watching begin w o 0 1")));
    let why = stranger.ask(numbers[0], Call::Notify { object, range: range() }).unwrap_err();
    assert_eq!(why.kind, ErrorKind::Permission, "{why}");
    let why = stranger.ask(numbers[1], Call::Notify { object, range: range() }).unwrap_err();
    assert!(matches!(why.kind, ErrorKind::Permission | ErrorKind::NotFound), "{why}");
    // Only a home says that something has changed. It hears that this was heard, and nothing happens.
    let ranges = || [range()].into_iter().collect();
    for (at, number) in [(0, 1), (1, 1), (1, u64::MAX)] {
        let message = Said::Changed { number, ranges: ranges() };
        stranger.tell(numbers[at], &Message::Watches { object, message }, &[]).unwrap();
        stranger
            .tell(numbers[at], &Message::Watches { object, message: Said::Heard { number } }, &[])
            .unwrap();
    }
    for _ in 0..3 {
        while !matches!(stranger.hears(), Message::Watches { message: Said::Heard { .. }, .. }) {}
    }
    workers.iter().for_each(|worker| assert_eq!(worker.ok("watching wait w 0"), "false"));
}

/// A host that never says that it heard gets one message, and nobody waits for it.
#[test]
fn a_host_that_does_not_answer_holds_nobody_up() {
    let mut met = met();
    met.object = open(&met.stranger, met.numbers[0], Access::ReadWrite);
    met.workers[1].ok("watching begin w o 0 1");
    let before = resident(&met.hosts[0]);
    met.stranger.forget();
    for _ in 0..20 {
        met.workers[0].ok("watching flood o 500");
        assert_eq!(met.workers[1].ok("watching wait w -"), "true");
    }
    met.workers[0].ok("watching notify o 4095 1");
    let told = |message: &Message| match message {
        Message::Watches { object, message: Said::Changed { number, .. } } if *object == met.object => {
            Some(*number)
        }
        _ => None,
    };
    let mut heard = Vec::new();
    while let Some((_, message)) = met.stranger.hears_within(Duration::from_millis(500)) {
        heard.extend(told(&message));
    }
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(resident(&met.hosts[0]) < before + 16_384, "{} after {before} KiB", resident(&met.hosts[0]));
    // When it has heard it is told the rest, at once.
    let message = Said::Heard { number: heard[0] };
    met.stranger.tell(met.numbers[0], &Message::Watches { object: met.object, message }, &[]).unwrap();
    while told(&met.stranger.hears()).is_none() {}
}

/// A host that was admitted for reading alone cannot notify, whatever it says.
#[test]
fn a_host_that_reads_alone_cannot_notify() {
    let authority = Scratch::new();
    let hosts = secure_cluster(&authority, 2);
    let workers = sharers_of(&hosts[..1], "/shared", &format!("size={PAGE} central mode=666"));
    let identity = authority.join("reader");
    ca(&authority.join("ca"), &["issue", "reader", "--into", &identity.display().to_string(), "--read-only"]);
    let reader = Stranger::certified(1, "reader", &identity);
    let home = reader.connect(&address_of(&hosts[0])).unwrap();
    reader.join(home, Vec::new()).unwrap();
    let object = open(&reader, home, Access::Read);
    workers[0].ok("watching begin w o 0 1");
    let why = reader.ask(home, Call::Notify { object, range: range() }).unwrap_err();
    assert_eq!(why.kind, ErrorKind::Permission, "{why}");
    assert!(why.message.contains("for reading alone"), "{why}");
    assert_eq!(workers[0].ok("watching wait w 0"), "false");
}
