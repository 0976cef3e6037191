//! Snapshots against users who want more than is theirs, or that others have less; and against clients that do several things
//! at once.

use commonhold::{Access, CreateOptions, Host, Object, SnapshotOptions};
use commonhold_object::wire::{Reply, Request, SnapshotRequest};
use commonhold_object::{Error, ErrorKind, Name, ObjectId};
use commonhold_tests::host::signal;
use commonhold_tests::raw::Raw;
use commonhold_tests::stranger::Numbers;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, PAGE, TestHost, is_root};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whose the objects are that others attack.
const OWNER: u32 = 65_533;
const OTHER: u32 = 65_532;

fn freezable(pages: u64) -> CreateOptions {
    CreateOptions { size_bytes: pages * PAGE as u64, freezable: true, ..CreateOptions::default() }
}

fn write(object: &Object, page: u64, value: u64) {
    object.write_at(&value.to_le_bytes(), page * PAGE as u64).expect("it is written");
}

fn read(object: &Object, page: u64) -> u64 {
    let mut bytes = [0; 8];
    object.read_at(&mut bytes, page * PAGE as u64).expect("it is read");
    u64::from_le_bytes(bytes)
}

fn snapshot(object: &Object, name: &str, writable: bool) -> Object {
    let options = SnapshotOptions { writable, ..SnapshotOptions::default() };
    object.snapshot(name, &options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The next host process goes on.
fn another_host(host: &TestHost) {
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
}

/// Which write of which page was the last one at some instant: what a snapshot has is what was written until then.
fn is_of_one_instant(found: &[u64], writes: &[usize]) -> Result<(), String> {
    let instant = found.iter().copied().max().unwrap_or(0) as usize;
    let mut last = vec![0; found.len()];
    writes[..instant].iter().enumerate().for_each(|(number, page)| last[*page] = number as u64 + 1);
    let wrong = (0..found.len()).find(|page| found[*page] != last[*page]);
    wrong.map_or(Ok(()), |page| {
        Err(format!("page {page} has write {}, at write {instant} it had {}", found[page], last[page]))
    })
}

/// Several clients take snapshots of one object at once, while it is written: each has one instant, and keeps it when the host
/// dies.
#[test]
fn snapshots_taken_at_once() {
    const PAGES: u64 = 48;
    const ROUNDS: usize = 24;
    const TAKERS: usize = 4;
    let host = TestHost::start();
    let owner = host.connect();
    let object = owner.create("/a", &freezable(PAGES), None).expect("it is made");
    let writes = Mutex::new(Vec::new());
    let (taking, taken) = (AtomicUsize::new(TAKERS), Mutex::new(Vec::new()));
    let take = |taker: usize| {
        let client = host.connect();
        let object = client.open("/a", Access::ReadWrite).expect("it is there");
        for round in 0..ROUNDS {
            let made = snapshot(&object, &format!("/s{taker}-{round}"), false);
            taken.lock().unwrap().push(made);
        }
        taking.fetch_sub(1, Ordering::SeqCst);
    };
    std::thread::scope(|threads| {
        (0..TAKERS).for_each(|taker| drop(threads.spawn(move || take(taker))));
        let mut numbers = Numbers(7);
        while taking.load(Ordering::SeqCst) > 0 {
            let page = numbers.below(PAGES);
            let mut writes = writes.lock().unwrap();
            writes.push(page as usize);
            let number = writes.len() as u64;
            drop(writes);
            write(&object, page, number);
        }
    });
    let writes = writes.into_inner().unwrap();
    let check = || {
        for made in taken.lock().unwrap().iter() {
            let found: Vec<u64> = (0..PAGES).map(|page| read(made, page)).collect();
            if let Err(why) = is_of_one_instant(&found, &writes) {
                panic!(
                    "{}: {why}",
                    made.info().expect("it is open").name.map_or_else(String::new, |name| name.to_string())
                );
            }
        }
    };
    check();
    another_host(&host);
    check();
}

/// The object ends within a page by now: the snapshot has all of the page.
#[test]
fn an_object_that_shrinks_within_a_page() {
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(2), None).expect("it is made");
    object.write_at(&[7; 2 * PAGE], 0).expect("it is written");
    let made = snapshot(&object, "/s", false);
    object.resize(PAGE as u64 + 100).expect("a smaller size");
    let mut bytes = vec![0; 2 * PAGE];
    made.read_at(&mut bytes, 0).expect("it is read");
    assert!(bytes.iter().all(|byte| *byte == 7), "the snapshot has what the object lost");
}

/// Each is a snapshot of the next one. Whoever reads the oldest goes through all of them.
#[test]
fn a_long_chain() {
    const COUNT: usize = 600;
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(4), None).expect("it is made");
    write(&object, 1, 5);
    let first = snapshot(&object, "/s", false);
    for number in 0..COUNT {
        drop(snapshot(&object, &format!("/s{number}"), false));
    }
    let before = host.status().host_pid;
    assert_eq!(read(&first, 1), 5);
    write(&object, 1, 6);
    assert_eq!(read(&first, 2), 0);
    assert_eq!(host.status().host_pid, before, "the host died of it");
}

/// Whoever may read a snapshot, or made it, brings it back for writing.
#[test]
fn nobody_writes_to_a_snapshot_by_bringing_it_back() {
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(4), None).expect("it is made");
    write(&object, 1, 5);
    let made = snapshot(&object, "/s", false);
    let mut raw = Raw::connect(&host);
    let (_, fds) = raw.ask_for(&Request::Open { name: Name::new("/s").unwrap(), access: Access::Read });
    let again = Request::Reattach { object: made.id(), access: Access::ReadWrite };
    let refused = raw.ask(&again, &[fds[0].as_fd()]).expect("an answer");
    assert_eq!(refused.expect_err("it is not written to").kind, ErrorKind::Permission);
}

/// Who reads through a snapshot has its lock and wants its object's; who makes the object smaller wants both, too.
#[test]
fn a_reader_of_a_clone_and_who_makes_the_object_smaller() {
    const PAGES: u64 = 512;
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(PAGES), None).expect("it is made");
    let other = host.connect();
    for round in 0..8 {
        object.resize(PAGES * PAGE as u64).expect("a size");
        (0..PAGES).for_each(|page| write(&object, page, round + 1));
        let middle = snapshot(&object, "/s", false);
        let clones: Vec<Object> =
            (0..4).map(|number| snapshot(&middle, &format!("/c{number}"), true)).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for clone in &clones {
                threads.spawn(|| {
                    let mut numbers = Numbers(round);
                    while !done.load(Ordering::SeqCst) {
                        let page = numbers.below(PAGES / 2);
                        assert_eq!(read(clone, page), round + 1);
                    }
                });
            }
            for page in (PAGES / 2..PAGES).rev().step_by(4) {
                object.resize(page * PAGE as u64).expect("a size");
            }
            done.store(true, Ordering::SeqCst);
        });
        (0..4).for_each(|number| other.remove(&format!("/c{number}")).expect("it has a name"));
        other.remove("/s").expect("it has a name");
    }
}

/// The host dies while snapshots get what the object is about to lose.
#[test]
fn a_host_that_dies_while_the_object_shrinks() {
    const PAGES: u64 = 48 * MIB / PAGE as u64;
    for milliseconds in [5, 40] {
        let host = TestHost::start();
        let worker = host.worker();
        let reader = host.worker();
        worker.all(&format!(
            "create o /a size={} freezable\nmap m o rw shared 0 0\nfill m 0 {PAGES} 1",
            PAGES * 4096
        ));
        worker.ok("snapshot s o /s");
        reader.all("open s /s r\nmap n s r shared 0 0");
        let before = host.status().host_pid;
        worker.send("resize /a 4096");
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        host.kill_host();
        host.wait_for_other_host(before);
        worker.answer().expect("it is smaller");
        let said = host.log();
        assert!(!said.contains("not whole"), "{milliseconds} ms: {said}");
        reader.ok(&format!("check n 0 {PAGES} 1"));
    }
}

/// After the death of host and keeper a snapshot's reader is back before who has the object.
#[test]
fn what_a_snapshot_lacks_is_waited_for() {
    let host = TestHost::start();
    let (owner, reader) = (host.worker(), host.worker());
    owner.all(
        "create o /a size=65536 freezable\nmap m o rw shared 0 0\nfill m 0 16 1\nsnapshot s o /s\nclose s",
    );
    reader.all("open s /s r\nmap n s r shared 0 0\ncheck n 0 2 1");
    signal(owner.pid(), libc::SIGSTOP);
    let before = host.status().host_pid;
    host.kill_both();
    host.start_again().unwrap();
    host.wait_for_other_host(before);
    reader.eventually("info s size");
    reader.send("check n 0 16 1");
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(owner.pid(), libc::SIGCONT);
    reader.answer().expect("it waits for who has the object");
}

fn ask(raw: &mut Raw, request: SnapshotRequest) -> (Result<Reply, Error>, Vec<OwnedFd>) {
    raw.ask_with(&Request::Snapshot(request), &[])
}

fn request(of: ObjectId, name: &str, nonce: u128) -> SnapshotRequest {
    let name = Name::new(name).unwrap();
    SnapshotRequest { of, offset: 0, length: 0, name, mode: 0o600, writable: false, whole: false, nonce }
}

/// Numbers that nobody means, and numbers that were used before.
#[test]
fn requests_that_no_client_of_ours_makes() {
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(4), None).expect("it is made");
    let other = client.create("/b", &freezable(4), None).expect("it is made");
    write(&object, 0, 5);
    write(&other, 0, 6);
    let mut raw = Raw::connect(&host);
    // What it has not opened.
    assert!(ask(&mut raw, request(object.id(), "/s", 1)).0.is_err());
    for name in ["/a", "/b"] {
        raw.ask_for(&Request::Open { name: Name::new(name).unwrap(), access: Access::ReadWrite });
    }
    let half = PAGE as u64 / 2;
    for (offset, length) in
        [(u64::MAX, 0), (u64::MAX - 4095, 4096), (half, half), (0, u64::MAX), (4 * 4096, 0)]
    {
        let asked = SnapshotRequest { offset, length, ..request(object.id(), "/s", 1) };
        assert_eq!(ask(&mut raw, asked).0.expect_err("no such part").kind, ErrorKind::Invalid);
    }
    for mode in [u32::MAX, 0o4755] {
        let asked = SnapshotRequest { mode, ..request(object.id(), "/s", 1) };
        assert_eq!(ask(&mut raw, asked).0.expect_err("no such mode").kind, ErrorKind::Invalid);
    }
    // Repeated, it is the same snapshot.
    ask(&mut raw, request(object.id(), "/s", 1)).0.expect("it is made");
    ask(&mut raw, request(object.id(), "/s", 1)).0.expect("it is that one");
    assert_eq!(host.status().objects, 3);
    assert_eq!(read(&client.open("/s", Access::Read).unwrap(), 0), 5);
    // A snapshot that nobody writes to is not given for writing to who repeats the number.
    let clone = ask(&mut raw, SnapshotRequest { writable: true, ..request(object.id(), "/s", 1) }).0;
    assert_eq!(clone.expect_err("it is not written to").kind, ErrorKind::Permission);
    assert_eq!(host.status().objects, 3);
}

/// Another user takes a newer snapshot. The older one goes on to be right, whatever the other does with theirs.
#[test]
fn a_newer_snapshot_of_another_user() {
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let (owner, other) = (host.worker_of(OWNER, OWNER), host.worker_of(OTHER, OTHER));
    owner.all("create o /a size=65536 freezable mode=666\nmap m o rw shared 0 0\nfill m 0 16 1");
    owner.all("snapshot s o /s\nmap n s r shared 0 0");
    other.all("open o /a rw\nsnapshot t o /t\nmap k t r shared 0 0");
    owner.ok("fill m 0 8 2");
    other.all("check k 0 16 1\nclose t\nremove /t\ndrop k");
    owner.all("fill m 0 16 3\ncheck n 0 16 1");
    let client: Host = host.connect();
    until("the other's is gone", || client.open("/t", Access::Read).is_err().then_some(()));
}
