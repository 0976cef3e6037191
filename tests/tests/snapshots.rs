//! Snapshots: what they have, what the object's writers notice, and what becomes of either when the other goes
//! (`docs/SNAPSHOTS.md`).

use commonhold::{Access, CreateOptions, ErrorKind, Object, SnapshotOptions};
use commonhold_tests::wait::until;
use commonhold_tests::{PAGE, TestHost, Worker};
use std::time::{Duration, Instant};

const PAGES: u64 = 64;
const SIZE: u64 = PAGES * PAGE as u64;

fn freezable() -> CreateOptions {
    CreateOptions { size_bytes: SIZE, freezable: true, ..CreateOptions::default() }
}

fn fill(object: &Object, pages: std::ops::Range<u64>, value: u8) {
    for page in pages {
        object.write_at(&[value; PAGE], page * PAGE as u64).expect("it is written");
    }
}

/// What each page is filled with; none: with several things.
fn pages(object: &Object) -> Vec<Option<u8>> {
    let mut bytes = vec![0; object.size_bytes() as usize];
    object.read_at(&mut bytes, 0).expect("it is read");
    let one = |page: &[u8]| page.iter().all(|byte| *byte == page[0]).then_some(page[0]);
    bytes.chunks(PAGE).map(one).collect()
}

fn are(object: &Object, values: &[(std::ops::Range<u64>, u8)]) {
    let found = pages(object);
    for (range, value) in values {
        for page in range.clone() {
            assert_eq!(found[page as usize], Some(*value), "page {page}");
        }
    }
}

#[test]
fn a_snapshot_has_what_was_there() {
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(), None).expect("it is made");
    fill(&object, 0..32, 1);
    let monday = object.snapshot("/a@monday", &SnapshotOptions::default()).expect("a snapshot");
    fill(&object, 16..48, 2);
    are(&object, &[(0..16, 1), (16..48, 2), (48..64, 0)]);
    are(&monday, &[(0..32, 1), (32..64, 0)]);
    fill(&object, 0..64, 3);
    are(&monday, &[(0..32, 1), (32..64, 0)]);
    let again = client.open("/a@monday", Access::Read).expect("it has a name");
    are(&again, &[(0..32, 1), (32..64, 0)]);
    assert_eq!(client.open("/a@monday", Access::ReadWrite).unwrap_err().kind, ErrorKind::Permission);
}

fn snapshot(object: &Object, name: &str, writable: bool) -> Object {
    let options = SnapshotOptions { writable, ..SnapshotOptions::default() };
    object.snapshot(name, &options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn who_writes_to_a_clone_changes_nothing_else() {
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(), None).expect("it is made");
    fill(&object, 0..64, 1);
    let clone = snapshot(&object, "/clone", true);
    fill(&clone, 0..16, 2);
    let of_clone = snapshot(&clone, "/of-clone", false);
    let of_that = snapshot(&of_clone, "/of-that", true);
    fill(&clone, 8..24, 3);
    fill(&object, 20..40, 4);
    fill(&of_that, 0..4, 5);
    are(&object, &[(0..20, 1), (20..40, 4), (40..64, 1)]);
    are(&clone, &[(0..8, 2), (8..24, 3), (24..64, 1)]);
    are(&of_clone, &[(0..16, 2), (16..64, 1)]);
    are(&of_that, &[(0..4, 5), (4..16, 2), (16..64, 1)]);
    // Whoever is in the middle, or what all began with, may go first.
    for name in ["/of-clone", "/a", "/clone"] {
        client.remove(name).expect("it has a name");
    }
    drop((object, clone, of_clone));
    are(&of_that, &[(0..4, 5), (4..16, 2), (16..64, 1)]);
    until("nothing but the last is left", || (files(&host, ".of").is_empty()).then_some(()));
    are(&of_that, &[(0..4, 5), (4..16, 2), (16..64, 1)]);
    fill(&of_that, 30..40, 6);
    are(&of_that, &[(0..4, 5), (4..16, 2), (16..30, 1), (30..40, 6), (40..64, 1)]);
}

/// Each is the snapshot of the one before, and all but the last go at once. The one that a snapshot
/// moves under may be unused by then, too.
#[test]
fn a_chain_that_nobody_uses_any_more_goes_whole() {
    let host = TestHost::start();
    let client = host.connect();
    for _ in 0..60 {
        let first = client.create("/0", &freezable(), None).expect("it is made");
        fill(&first, 0..8, 7);
        let mut chain = vec![first];
        for link in 1..6 {
            let next = snapshot(&chain[link - 1], &format!("/{link}"), true);
            chain.push(next);
        }
        let last = chain.pop().expect("the last");
        (0..5).for_each(|link| client.remove(&format!("/{link}")).expect("it has a name"));
        chain.into_iter().rev().for_each(drop);
        until("the chain is gone", || (files(&host, ".of").is_empty()).then_some(()));
        are(&last, &[(0..8, 7), (8..64, 0)]);
        client.remove("/5").expect("it has a name");
    }
}

/// Notes of snapshots that lack pages.
fn files(host: &TestHost, ending: &str) -> Vec<String> {
    let live = std::fs::read_dir(host.state().join("live")).expect("a directory");
    let names = live.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(ending)).collect()
}

#[test]
fn an_end_within_a_page_and_other_sizes() {
    let host = TestHost::start();
    let client = host.connect();
    let options = CreateOptions { size_bytes: 3 * PAGE as u64 + 100, ..freezable() };
    let object = client.create("/a", &options, None).expect("it is made");
    object.write_at(&[7; 3 * PAGE + 100], 0).expect("it is written");
    let options = SnapshotOptions {
        offset: PAGE as u64,
        length: Some(PAGE as u64 + 50),
        writable: true,
        ..SnapshotOptions::default()
    };
    let part = object.snapshot("/part", &options).expect("a snapshot");
    assert_eq!(part.size_bytes(), PAGE as u64 + 50);
    // What lies past its end in the object is not its.
    part.resize(2 * PAGE as u64).expect("it grows");
    let mut bytes = vec![1; 2 * PAGE];
    part.read_at(&mut bytes, 0).expect("it is read");
    assert!(
        bytes[..PAGE + 50].iter().all(|byte| *byte == 7) && bytes[PAGE + 50..].iter().all(|byte| *byte == 0)
    );
    let whole = snapshot(&object, "/whole", false);
    object.resize(3 * PAGE as u64 + 10).expect("it shrinks within a page");
    let mut bytes = vec![1; 3 * PAGE + 100];
    whole.read_at(&mut bytes, 0).expect("it is read");
    assert!(bytes.iter().all(|byte| *byte == 7));
    object.resize(PAGE as u64).expect("it shrinks");
    object.resize(4 * PAGE as u64).expect("it grows");
    let mut bytes = vec![1; 3 * PAGE + 100];
    whole.read_at(&mut bytes, 0).expect("it is read");
    assert!(bytes.iter().all(|byte| *byte == 7));
    object.read_at(&mut bytes, 0).expect("it is read");
    assert!(bytes[..PAGE].iter().all(|byte| *byte == 7) && bytes[PAGE..].iter().all(|byte| *byte == 0));
    whole.resize(PAGE as u64).expect_err("nobody writes to it");
}

#[test]
fn a_snapshot_stays_when_the_object_is_reverted() {
    let host = TestHost::start();
    for sync in ["atomic", "ordered"] {
        let file = host.scratch().file(sync, 64 * PAGE as u64);
        let worker = host.worker();
        worker.ok(&format!("create o /{sync} file={} sync={sync} freezable", file.display()));
        worker.all("map m o rw shared 0 0\nfill m 0 32 1\nsync o 0 262144\nfill m 16 32 2");
        worker.all(&format!("snapshot s o /s-{sync}\nrevert /{sync}"));
        worker.all("check m 0 32 1\ncheck m 32 32 0\nmap n s r shared 0 0");
        worker.all("check n 0 16 1\ncheck n 16 32 2\ncheck n 48 16 0");
        // And back.
        let mine = |name: &str| host.command(&["cp", name, &format!(":/{sync}")], |_| {});
        mine(&format!(":/s-{sync}")).expect("it is copied");
        worker.all("check m 0 16 1\ncheck m 16 32 2\ncheck m 48 16 0");
    }
}

/// A chain of processes, each of which writes when it has seen what the one before wrote: at each instant none is ahead of the
/// one before, and the last is at most one behind the first.
#[test]
fn a_snapshot_is_of_one_instant() {
    const WRITERS: usize = 3;
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(), None).expect("it is made");
    let writers: Vec<Worker> = (0..WRITERS).map(|_| host.worker()).collect();
    // Pages far apart, so that they are protected one after the other.
    let pages = [0, 40, 20];
    for (at, writer) in writers.iter().enumerate() {
        let before = pages[(at + WRITERS - 1) % WRITERS];
        writer.all(&format!("open o /a rw\nmap m o rw shared 0 0\nfollow m {before} {}", pages[at]));
    }
    let (begun, mut seen, mut number) = (Instant::now(), 0, 0);
    let mut instants = 0;
    while instants < 30 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the writers stand still at {seen}");
        number += 1;
        let one = snapshot(&object, &format!("/s{number}"), number % 2 == 0);
        let word = |page: u64| {
            let mut word = [0; 8];
            one.read_at(&mut word, page * PAGE as u64).expect("it is read");
            u64::from_le_bytes(word)
        };
        let words = pages.map(word);
        let in_order = words.is_sorted_by(|one, next| one >= next);
        assert!(in_order && words[0] - words[2] <= 1, "{words:?} at one instant");
        assert!(words[0] >= seen, "{words:?} after {seen}");
        assert_eq!(pages.map(word), words, "the writers go on");
        instants += usize::from(words[0] > seen);
        seen = words[0];
        client.remove(&format!("/s{number}")).expect("it has a name");
    }
    writers.iter().for_each(|writer| drop(writer.ok("halt")));
}

#[test]
fn host_and_keeper_may_die() {
    let host = TestHost::start();
    let (writer, reader) = (host.worker(), host.worker());
    writer.all("create o /a size=262144 freezable mode=666\nmap m o rw shared 0 0\nfill m 0 64 1");
    writer.all("snapshot s o /s\nsnapshot t o /t writable\nsnapshot u o /u\nsnapshot v o /v whole");
    reader.all("open s /s r\nmap m s r shared 0 0\ncheck m 0 8 1\nopen v /v r\nmap n v r shared 0 0");
    writer.all("fill m 4 12 2\nmap n t rw shared 0 0\nfill n 0 4 3");
    until("one is whole", || (files(&host, ".of").len() == 3).then_some(()));
    host.kill_both();
    host.start_again().expect("the next begins");
    // The next host knows what each lacks, and what clients bring back.
    writer.eventually("check n 4 60 1");
    writer
        .all("fill m 20 12 4\ncheck n 0 4 3\ncheck n 4 60 1\ncheck m 0 4 1\ncheck m 4 12 2\ncheck m 20 12 4");
    reader.all("check m 0 64 1\ncheck n 0 64 1");
    host.kill_host();
    writer.all("fill m 0 64 5\ncheck n 0 4 3\ncheck n 4 60 1");
    reader.all("check m 0 64 1");
}

#[test]
fn what_snapshots_lack_goes_with_the_object_that_has_it() {
    let host = TestHost::start();
    let (owner, reader) = (host.worker(), host.worker());
    owner.all("create o /a size=262144 freezable\nmap m o rw shared 0 0\nfill m 0 64 1");
    owner.all("snapshot s o /s\nfill m 0 16 2");
    reader.all("open s /s r\nmap m s r shared 0 0\ncheck m 0 16 1");
    owner.kill();
    host.kill_both();
    host.start_again().expect("the next begins");
    reader.eventually("check m 0 16 1");
    // SIGBUS, and never what is there by now.
    reader.dies("get m 262140", libc::SIGBUS);
}

/// Of an object that hosts share its home can take one: of all hosts' writes, at one instant.
#[test]
fn of_what_hosts_share() {
    let hosts = commonhold_tests::cluster::cluster(3);
    let size = 64 * PAGE;
    let workers =
        commonhold_tests::cluster::sharers_of(&hosts, "/a", &format!("size={size} freezable central"));
    workers[1].ok("fill m 0 32 1");
    workers[2].ok("fill m 16 48 2");
    workers[0].ok("snapshot s o /s");
    // Each in turn, from host to host.
    workers[0].ok("fill m 0 64 3");
    workers[0].all("map n s r shared 0 0\ncheck n 0 16 1\ncheck n 16 48 2");
    let client = hosts[0].connect();
    let object = client.open("/a", Access::ReadWrite).expect("it is there");
    fill(&object, 0..64, 0);
    for (worker, (before, own)) in workers.iter().zip([(20, 0), (0, 40), (40, 20)]) {
        worker.ok(&format!("follow m {before} {own}"));
    }
    let mut seen = 0;
    let begun = Instant::now();
    while seen < 5 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the writers stand still at {seen}");
        let one = snapshot(&object, "/t", true);
        let words = [0, 40, 20].map(|page| {
            let mut word = [0; 8];
            one.read_at(&mut word, page * PAGE as u64).expect("it is read");
            u64::from_le_bytes(word)
        });
        let in_order = words.is_sorted_by(|one, next| one >= next);
        assert!(in_order && words[0] - words[2] <= 1 && words[0] >= seen, "{words:?} after {seen}");
        seen = words[0];
        client.remove("/t").expect("it has a name");
    }
    workers.iter().for_each(|worker| drop(worker.ok("halt")));
    workers[1].refused("snapshot u o /u", "Unsupported");
    workers[1].ok("create e /e size=4096 explicit freezable");
    workers[1].refused("snapshot u e /u", "Unsupported");
}
