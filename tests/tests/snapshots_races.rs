//! Snapshots that are taken, shrunk under, read and ended at the same time, and many of them.

use commonhold::{Access, CreateOptions, ErrorKind, Object, SnapshotOptions};
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, PAGE, TestHost, Worker, is_root};
use std::sync::atomic::{AtomicBool, Ordering};

fn freezable(pages: u64) -> CreateOptions {
    CreateOptions { size_bytes: pages * PAGE as u64, freezable: true, ..CreateOptions::default() }
}

fn snapshot(object: &Object, name: &str) -> Object {
    object.snapshot(name, &SnapshotOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn bytes(object: &Object) -> Vec<u8> {
    let mut bytes = vec![0; object.size_bytes() as usize];
    object.read_at(&mut bytes, 0).expect("it is read");
    bytes
}

/// The rest of its last page becomes zero in the object, and in nothing else.
#[test]
fn an_object_gets_an_end_within_a_page() {
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(4), None).expect("it is made");
    object.write_at(&[7; 4 * PAGE], 0).expect("it is written");
    let (one, two) = (snapshot(&object, "/s"), snapshot(&object, "/t"));
    object.resize(PAGE as u64 + 100).expect("it shrinks");
    assert!(bytes(&one).iter().all(|byte| *byte == 7), "the older one has what was there");
    assert!(bytes(&two).iter().all(|byte| *byte == 7), "the newer one has what was there");
    object.resize(4 * PAGE as u64).expect("it grows");
    let found = bytes(&object);
    assert!(found[..PAGE + 100].iter().all(|byte| *byte == 7) && found[PAGE + 100..].iter().all(|b| *b == 0));
}

/// A newer snapshot that ends within a page does not have what an older one has of that page.
#[test]
fn a_newer_one_ends_within_a_page() {
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(2), None).expect("it is made");
    object.write_at(&[7; 2 * PAGE], 0).expect("it is written");
    let older = snapshot(&object, "/older");
    let part = SnapshotOptions { length: Some(PAGE as u64 + 50), ..SnapshotOptions::default() };
    let newer = object.snapshot("/newer", &part).expect("a snapshot");
    object.write_at(&[8; 2 * PAGE], 0).expect("it is written");
    assert!(bytes(&older).iter().all(|byte| *byte == 7), "the older one has its last page whole");
    assert!(bytes(&newer).iter().all(|byte| *byte == 7));
}

/// Whoever takes a snapshot finds in it what was written before, however many others do the same just then.
#[test]
fn several_are_taken_at_the_same_time() {
    let host = TestHost::start();
    let owner = host.connect();
    let object = owner.create("/a", &freezable(8), None).expect("it is made");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0_u64;
            while !done.load(Ordering::Relaxed) {
                number += 1;
                for page in 0..8 {
                    object.write_at(&number.to_le_bytes(), page * PAGE as u64).expect("it is written");
                }
            }
        });
        let takers: Vec<_> = (0..4)
            .map(|taker| {
                let host = &host;
                scope.spawn(move || {
                    let client = host.connect();
                    let object = client.open("/a", Access::ReadWrite).expect("it is there");
                    let words = |object: &Object| -> Vec<u64> {
                        let word = |page: u64| {
                            let mut word = [0; 8];
                            object.read_at(&mut word, page * PAGE as u64).expect("it is read");
                            u64::from_le_bytes(word)
                        };
                        (0..8).map(word).collect()
                    };
                    let mut kept: Vec<(Object, Vec<u64>)> = Vec::new();
                    for number in 0..rounds(60) {
                        let before = words(&object);
                        let one = snapshot(&object, &format!("/s{taker}-{number}"));
                        let after = words(&object);
                        let found = words(&one);
                        for page in 0..8 {
                            let range = before[page]..=after[page];
                            assert!(
                                range.contains(&found[page]),
                                "page {page}: {found:?}, not {before:?} to {after:?}"
                            );
                        }
                        // The pages are written in turn.
                        assert!(
                            found.is_sorted_by(|a, b| a >= b) && found[0] - found[7] <= 1,
                            "{found:?} at an instant"
                        );
                        kept.push((one, found));
                        if number % 3 == 2 {
                            client.remove(&format!("/s{taker}-{}", number - 1)).expect("it has a name");
                            kept.swap_remove(kept.len() / 2);
                        }
                        for (one, found) in kept.iter().step_by(5) {
                            assert_eq!(words(one), *found);
                        }
                    }
                })
            })
            .collect();
        let ends: Vec<_> = takers.into_iter().map(|taker| taker.join()).collect();
        done.store(true, Ordering::Relaxed);
        writer.join().expect("it goes on");
        assert!(ends.iter().all(Result::is_ok), "a taker found something else");
    });
}

/// Who reads what two versions further up have, while that object gets another size.
#[test]
fn a_version_is_read_through_another_while_the_object_shrinks() {
    const PAGES: u64 = 256;
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(PAGES), None).expect("it is made");
    for round in 0..rounds(16) {
        object.write_at(&vec![7; (PAGES as usize) * PAGE], 0).expect("it is written");
        let (older, newer) = (snapshot(&object, "/older"), snapshot(&object, "/newer"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for page in 0..PAGES {
                    let mut byte = [0];
                    older.read_at(&mut byte, page * PAGE as u64).expect("it is read");
                    assert_eq!(byte, [7], "round {round} page {page}");
                }
            });
            for pages in (100..PAGES).rev().step_by(8) {
                object.resize(pages * PAGE as u64 - 1).expect("it shrinks");
            }
            object.resize(PAGES * PAGE as u64).expect("it grows");
        });
        assert!(bytes(&newer).iter().all(|byte| *byte == 7));
        ["/older", "/newer"].iter().for_each(|name| client.remove(name).expect("it has a name"));
    }
}

/// The oldest of many has what it lacks from the object, through all that are newer.
#[test]
fn hundreds_or_thousands() {
    let snapshots = rounds(300);
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(16), None).expect("it is made");
    object.write_at(&[7; 16 * PAGE], 0).expect("it is written");
    let oldest = snapshot(&object, "/oldest");
    let before = host.status().host_pid;
    for number in 0..snapshots {
        drop(snapshot(&object, &format!("/s{number}")));
    }
    object.write_at(&[8; 4 * PAGE], 0).expect("it is written");
    assert!(bytes(&oldest).iter().all(|byte| *byte == 7));
    let middle = client.open(&format!("/s{}", snapshots / 2), Access::Read).expect("it has a name");
    assert!(bytes(&middle).iter().all(|byte| *byte == 7));
    assert_eq!(host.status().host_pid, before, "the host lives");
    for number in (0..snapshots).filter(|number| number % 7 != 0) {
        client.remove(&format!("/s{number}")).expect("it has a name");
    }
    for number in (0..snapshots).filter(|number| number % 7 == 0) {
        client.remove(&format!("/s{number}")).expect("it has a name");
    }
    client.remove("/a").expect("it has a name");
    client.remove("/oldest").expect("it has a name");
    drop((object, middle));
    assert!(bytes(&oldest).iter().all(|byte| *byte == 7));
    drop(oldest);
    until("nothing is left", || (host.status().objects == 0).then_some(()));
}

/// As many threads as there are for faults wait for pages that others' faults bring: pages in a row, which come several at
/// once, or apart, each of which takes a thread.
#[test]
fn many_threads_touch_the_snapshot_and_the_object() {
    if !is_root("another user's objects") {
        return;
    }
    const PAGES: u64 = 10 * MIB / PAGE as u64;
    let host = TestHost::start();
    for user in [0, 65533] {
        let workers: Vec<Worker> = (0..3).map(|_| host.worker_of(user, user)).collect();
        let path = host.scratch().file(&format!("file{user}"), 10 * MIB);
        std::os::unix::fs::chown(&path, Some(user), Some(user)).expect("root may");
        workers[0].all(&format!(
            "create o /a{user} file={} budget=1048576 sync=ordered freezable mode=666",
            path.display()
        ));
        workers[0].all(&format!("map m o rw shared 0 0\nfill m 0 {PAGES} 1\nsync o 0 {}", 10 * MIB));
        workers[2].all(&format!("open o /a{user} r\nmap m o r shared 0 0"));
        for round in 0..rounds(6) {
            workers[0].ok(&format!("snapshot s o /s{user}-{round}"));
            workers[1].all(&format!("open s /s{user}-{round} r\nmap n s r shared 0 0"));
            // What both look at is in the file alone, and has to be read.
            workers[0].ok(&format!("check m 256 {} 1", PAGES - 256));
            let file = std::fs::File::open(&path).expect("it is there");
            file.sync_all().expect("it is stored");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a hint");
            let page = ["{}", "{}0"][round % 2];
            workers[1].send(&format!("threads 250 check n {page} 1 1"));
            workers[2].send(&format!("threads 250 check m {page} 1 1"));
            workers[1].answer().expect("what was there");
            workers[2].answer().expect("what is there");
            workers[1].all("drop n\nclose s");
            workers[0].all(&format!("remove /s{user}-{round}\nclose s"));
        }
    }
}

/// Processes that have an object and its snapshots, none of which has a name, are killed.
#[test]
fn whoever_had_all_of_them_is_killed() {
    let host = TestHost::start();
    let mut chance = Chance::new("whoever had all of them is killed");
    for _ in 0..rounds(40) {
        let worker = host.worker();
        worker
            .all("create o /a size=262144 freezable\nmap m o rw shared 0 0\nfill m 0 64 1\nsnapshot s o /s");
        worker.all(
            "snapshot t o /t writable\nmap n t rw shared 0 0\nfill n 0 8 2\nsnapshot u t /u\nfill m 8 8 3",
        );
        for name in ["/a", "/s", "/t", "/u"] {
            worker.ok(&format!("remove {name}"));
        }
        if chance.below(2) == 0 {
            worker.ok("close s");
        }
        worker.send("fill m 0 64 4");
        chance.pause(3);
        worker.kill();
    }
    until("nothing is left", || (host.status().objects == 0).then_some(()));
    let left = std::fs::read_dir(host.state().join("live")).expect("a directory").flatten();
    let left: Vec<_> =
        left.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| n.contains(".of")).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(host.connect().open("/a", Access::Read).expect_err("it is gone").kind, ErrorKind::NotFound);
}
