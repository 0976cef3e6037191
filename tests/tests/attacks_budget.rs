//! A user who tries to keep the whole memory budget: by pagers that never answer, of many objects at once.

use commonhold::Pager;
use commonhold_object::Name;
use commonhold_object::wire::{Reply, Request};
use commonhold_tests::raw::Raw;
use commonhold_tests::{MIB, TestHost, Worker, root_or_skip, wait};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const OBJECTS: usize = 24;
const SESSIONS: usize = 8;
/// Where the 24 objects are asked for at once, by each session another part.
const PART: u64 = MIB / 2;
/// Threads of a host: 64 for requests and 64 for faults of the attacker, and those that every host has.
const MOST_THREADS: usize = 260;

/// Somebody who says that he serves the pager, and never says anything else.
fn silent_pager(host: &TestHost) -> Raw {
    let mut raw = Raw::connect(host);
    let pager = Name::new("/silent").unwrap();
    assert!(matches!(raw.ask(&Request::ServePager { pager }, &[]), Some(Ok(Reply::Done))));
    raw
}

fn threads(host: &TestHost) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", host.status().host_pid)).unwrap().count()
}

/// What anybody does with an object of his own, more of it than a quarter of the budget.
fn use_an_object(worker: &Worker, name: &str) {
    worker.ok(&format!("create mine {name} size={} controlled", 6 * MIB));
    worker.all("map m mine rw shared 0 0\nfill m 0 1536 1\ncheck m 0 1536 1\ndrop m\nclose mine");
    worker.ok(&format!("remove {name}"));
}

/// Sessions of one user that ask for all of it, each a part of each object: three times the budget.
fn attack(host: &TestHost, how: &str) -> Vec<Worker> {
    let owner = host.worker_of(1001, 1001);
    for n in 0..OBJECTS {
        owner.ok(&format!("create o{n} /silent{n} size={} pager=/silent pager-deadline=3600000", 4 * MIB));
    }
    let sessions: Vec<Worker> = (0..SESSIONS).map(|_| host.worker_of(1001, 1001)).collect();
    for (at, session) in sessions.iter().enumerate() {
        for n in 0..OBJECTS {
            session.ok(&format!("open o{n} /silent{n} rw"));
            session.ok(&format!("map m{n} o{n} rw shared 0 0"));
        }
        let offset = at as u64 * PART;
        let line = match how {
            "prefetch" => format!("prefetch o{{}} {offset} {PART}"),
            _ => format!("get m{{}} {offset}"),
        };
        session.send(&format!("threads {OBJECTS} {line}"));
    }
    sessions
}

/// While the attack is on, and after it: nobody else is kept from anything.
fn others_are_served(how: &str) {
    if !root_or_skip("a host of several users") {
        return;
    }
    let host = TestHost::with(&["--budget", "16MiB"]);
    let pager = silent_pager(&host);
    let sessions = attack(&host, how);
    wait::until("pages are asked for", || (host.status().resident_bytes > 0).then_some(()));
    let victim = host.worker_of(1002, 1002);
    for round in 0..3 {
        use_an_object(&victim, &format!("/mine{round}"));
        assert!(threads(&host) <= MOST_THREADS, "{} threads", threads(&host));
    }
    if how == "get" {
        assert!(sessions.iter().all(|session| session.answer_within(Duration::ZERO).is_none()));
    }
    // The user goes, and root removes the objects; the pager is as silent as before.
    drop(sessions);
    let root = host.worker();
    (0..OBJECTS).for_each(|n| drop(root.ok(&format!("remove /silent{n}"))));
    wait::until("nothing is taken of the budget", || (host.status().resident_bytes == 0).then_some(()));
    use_an_object(&victim, "/after");
    wait::until("the threads are gone", || (threads(&host) < 100).then_some(()));
    drop(pager);
}

#[test]
fn prefetches_that_never_end_take_no_more_than_a_share() {
    others_are_served("prefetch");
}

#[test]
fn faults_that_never_end_take_no_more_than_a_share() {
    others_are_served("get");
}

#[test]
fn syncs_that_never_end_take_no_more_than_a_share() {
    if !root_or_skip("a host of several users") {
        return;
    }
    let host = TestHost::with(&["--budget", "16MiB"]);
    let pager = Keeping::default();
    let (serving, connection) = (pager.clone(), host.connect());
    let thread = std::thread::spawn(move || connection.serve_pager("/keeping", serving));
    let attacker = host.worker_of(1001, 1001);
    let size = 12 * MIB;
    attacker.ok(&format!("create o /o size={size} sync=ordered pager=/keeping pager-deadline=3600000"));
    attacker.all("map m o rw shared 0 0\nfill m 0 3072 1");
    attacker.send(&format!("sync o 0 {size}"));
    wait::until("it is told to store", || pager.is_asked().then_some(()));
    let victim = host.worker_of(1002, 1002);
    use_an_object(&victim, "/mine");
    assert!(attacker.answer_within(Duration::ZERO).is_none());
    drop(attacker);
    host.worker().ok("remove /o");
    wait::until("nothing is taken of the budget", || (host.status().resident_bytes == 0).then_some(()));
    use_an_object(&victim, "/after");
    pager.let_go();
    drop(host);
    let _ = thread.join();
}

/// Supplies zeros, and stores nothing until it is let go.
#[derive(Clone, Default)]
struct Keeping(Arc<(Mutex<(bool, bool)>, Condvar)>);

impl Keeping {
    fn is_asked(&self) -> bool {
        self.0.0.lock().unwrap().0
    }

    fn let_go(&self) {
        self.0.0.lock().unwrap().1 = true;
        self.0.1.notify_all();
    }
}

impl Pager for Keeping {
    fn page_in(&mut self, _object: &str, _offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        buffer.fill(0);
        Ok(())
    }

    fn page_out(&mut self, _object: &str, _offset: u64, _data: &[u8]) -> std::io::Result<()> {
        let mut state = self.0.0.lock().unwrap();
        state.0 = true;
        drop(self.0.1.wait_while(state, |state| !state.1).unwrap());
        Ok(())
    }
}

#[test]
fn a_sync_as_a_whole_takes_no_more_than_a_share() {
    if !root_or_skip("a host of several users") {
        return;
    }
    let host = TestHost::with(&["--budget", "16MiB"]);
    let pager = Keeping::default();
    let (serving, connection) = (pager.clone(), host.connect());
    let thread = std::thread::spawn(move || connection.serve_pager("/keeping", serving));
    let attacker = host.worker_of(1001, 1001);
    for (how, verb) in [("sync=atomic", "sync"), ("sync=ordered freezable", "freeze")] {
        let (size, share) = (12 * MIB, 4 * MIB);
        attacker.ok(&format!("create o /o size={size} {how} pager=/keeping pager-deadline=3600000"));
        attacker.all("map m o rw shared 0 0\nfill m 0 3072 1");
        let says = attacker.refused(&format!("{verb} o 0 {size}"), "TooMany");
        assert!(says.contains("a sync as a whole would keep 3072 pages in memory"), "{says}");
        assert!(!pager.is_asked(), "{how}");
        attacker.ok("check m 0 3072 1");
        attacker.send(&format!("{verb} o 0 {share}"));
        wait::until("it is told to store", || pager.is_asked().then_some(()));
        let victim = host.worker_of(1002, 1002);
        use_an_object(&victim, "/mine");
        assert!(attacker.answer_within(Duration::ZERO).is_none());
        pager.let_go();
        attacker.answer().expect("it is stored at last");
        attacker.all("drop m\nclose o\nremove /o");
        *pager.0.0.lock().unwrap() = (false, false);
    }
    drop((attacker, host));
    let _ = thread.join();
}

#[test]
fn a_deadline_of_more_than_an_hour_is_refused() {
    let host = TestHost::start();
    let worker = host.worker();
    let says = worker.refused("create o /o size=65536 pager=/p pager-deadline=3600001", "Invalid");
    assert!(says.contains("the most is 3600000 ms, an hour"), "{says}");
    worker.ok("create o /o size=65536 pager=/p pager-deadline=3600000");
}
