//! Locks by name against users who want the host to spend what is not theirs, or to free what somebody has.

use commonhold::CreateOptions;
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, Name, ObjectId};
use commonhold_tests::TestHost;
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::wait::until;
use std::os::fd::OwnedFd;

fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

fn opened((reply, mut fds): (Reply, Vec<OwnedFd>)) -> (ObjectId, OwnedFd) {
    let Reply::Opened(opened) = reply else { panic!("{reply:?} is no opened object") };
    (opened.info.id, fds.remove(0))
}

fn open(raw: &mut Raw, path: &str) -> (ObjectId, OwnedFd) {
    opened(raw.ask_for(&Request::Open { name: name(path), access: Access::ReadWrite }))
}

fn make(raw: &mut Raw, path: &str, tag: &str, size_bytes: u64) -> (ObjectId, OwnedFd) {
    let options = CreateOptions {
        size_bytes,
        description: tag.into(),
        reserve: Some(false),
        ..CreateOptions::default()
    };
    opened(raw.ask_for(&Request::Create { name: name(path), options, in_directory: false, nonce: 7 }))
}

fn member(raw: &mut Raw) -> u64 {
    let Reply::Member(member) = raw.ask_for(&Request::Member).0 else { panic!("no number") };
    u64::from(member)
}

fn write(memory: &OwnedFd, at: u64, word: u64) {
    assert_eq!(rustix::io::pwrite(memory, &word.to_ne_bytes(), at), Ok(8));
}

fn read(memory: &OwnedFd, at: u64) -> u64 {
    let mut word = [0; 8];
    assert_eq!(rustix::io::pread(memory, &mut word, at), Ok(8));
    u64::from_ne_bytes(word)
}

/// Blocks of 512 bytes that memory has.
fn blocks(memory: &OwnedFd) -> i64 {
    rustix::fs::fstat(memory).expect("a file").st_blocks
}

const DIED: u64 = 1 << 30;

#[test]
fn all_that_a_process_had_is_freed_when_it_ends() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.ok("by-name create m mutex /m count=300");
    b.all("by-name open m mutex /m");
    for index in 0..300 {
        a.all(&format!("by-name at m {index} as=x{index}\nby-name lock x{index} 0"));
    }
    a.kill();
    for index in 0..300 {
        b.ok(&format!("by-name at m {index} as=x"));
        until("it is freed", || b.ask("by-name mend x 0").ok().filter(|died| died == "true"));
    }
}

#[test]
fn what_forged_owners_have_is_freed_when_somebody_ends() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    let (_, mutexes) = make(&mut raw, "/m", "sync:mutex", 64 * 5000);
    let (_, locks) = make(&mut raw, "/l", "sync:rwlock", 512 * 500);
    let me = member(&mut raw) << 32 | 1;
    // Each says that another process has it, which is none of those who have it open. One says the truth.
    (1..5000).for_each(|index| write(&mutexes, 64 * index, index << 40 | 1));
    (1..64 * 500).filter(|word| word % 64 > 4).for_each(|word| write(&locks, 8 * word, word << 40 | 5));
    write(&mutexes, 0, me);
    let other = host.worker();
    other.all("by-name open m mutex /m\nby-name open l rwlock /l");
    other.kill();
    until("all are freed", || (read(&mutexes, 64 * 4999) == DIED).then_some(()));
    assert!((1..5000).all(|index| read(&mutexes, 64 * index) == DIED));
    assert_eq!(read(&mutexes, 0), me, "who lives keeps what it has");
    let last = 64 * 500 - 1;
    until("the readers are gone", || (read(&locks, 8 * last) == 0).then_some(()));
    assert!((1..=last).filter(|word| word % 64 > 4).all(|word| read(&locks, 8 * word) == 0));
}

#[test]
fn what_has_no_pages_gets_none_from_the_host() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    // As large as locks become; larger, which is none of them and would be looked through for hours.
    let kinds =
        [("/m", "sync:mutex", 4 << 20), ("/l", "sync:rwlock", 32 << 20), ("/o", "sync:mutex", 1 << 40)];
    for (path, tag, bytes) in kinds {
        let (id, memory) = make(&mut raw, path, tag, bytes);
        write(&memory, 1 << 20, 9 << 32 | 1);
        let before = blocks(&memory);
        raw.ask_for(&Request::Close { object: id });
        assert_eq!(blocks(&memory), before, "{path}");
        let left = if bytes > 32 << 20 { 9 << 32 | 1 } else { DIED };
        assert_eq!(read(&memory, 1 << 20), left, "{path}");
    }
    // What was punched out is nobody's, and a look does no harm.
    let (id, memory) = open(&mut raw, "/l");
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&memory, punch, 0, 32 << 20).expect("a hole");
    raw.ask_for(&Request::Close { object: id });
    assert_eq!(blocks(&memory), 0);
    assert!(rustix::fs::ftruncate(&memory, 4096).is_err(), "it keeps its size");
}

#[test]
fn who_closes_all_and_hangs_up_at_once_is_no_client_any_more() {
    let host = TestHost::start();
    let mut keeps = Raw::connect(&host);
    make(&mut keeps, "/m", "sync:mutex", 4 << 20);
    let before = host.status().clients;
    for _ in 0..200 {
        let mut raw = Raw::connect(&host);
        let (object, _) = open(&mut raw, "/m");
        assert!(raw.throw(&bytes_of(0, &Request::Close { object }), &[]), "the host takes a message");
    }
    // This process lives on, and has nothing by them.
    until("they are over", || (host.status().clients == before).then_some(()));
}

#[test]
fn who_may_only_read_makes_the_host_look_at_nothing() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    let (_, memory) = make(&mut raw, "/m", "sync:mutex", 4096);
    let forged = 77 << 32 | 1;
    write(&memory, 0, forged);
    let mut other = Raw::connect(&host);
    for (access, then) in [(Access::Read, forged), (Access::ReadWrite, DIED)] {
        let (object, _) = opened(other.ask_for(&Request::Open { name: name("/m"), access }));
        other.ask_for(&Request::Close { object });
        assert_eq!(read(&memory, 0), then);
    }
}

#[test]
fn who_hung_up_and_lives_keeps_what_it_has() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    let (_, memory) = make(&mut raw, "/m", "sync:mutex", 4096);
    let mine = member(&mut raw) << 32 | 1;
    write(&memory, 0, mine);
    write(&memory, 64, 77 << 32 | 1);
    drop(raw);
    let other = host.worker();
    other.ok("by-name open m mutex /m");
    other.kill();
    until("the dead are seen", || (read(&memory, 64) == DIED).then_some(()));
    assert_eq!(read(&memory, 0), mine);
}

#[test]
fn a_fork_child_that_closes_or_ends_frees_nothing_of_its_parents() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.all("by-name create m mutex /m\nby-name create l rwlock /l\nby-name lock m 0\nby-name read l 0");
    b.all("by-name open m mutex /m\nby-name open l rwlock /l");
    for line in ["by-name close m", "by-name close l", "do by-name lock m 0 then by-name close m", "pid"] {
        a.ok(&format!("fork exit {line}"));
        // An end that makes the host look.
        let dead = host.worker();
        dead.all("by-name open m mutex /m\nby-name open l rwlock /l\nby-name read l 0");
        dead.kill();
        b.refused("by-name lock m 20", "TimedOut");
        b.refused("by-name write l 20", "TimedOut");
    }
    a.all("by-name unlock m\nby-name end l");
    b.all("by-name lock m -\nby-name write l -");
}

#[test]
fn threads_that_fork_while_others_lock_have_children_that_lock() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.all("by-name create m mutex /m\ncreate o /sum size=4096\nmap s o rw shared 0 0");
    b.all("by-name open m mutex /m\nopen o /sum rw\nmap s o rw shared 0 0");
    b.send("threads 2 by-name work m s 3000");
    a.ok("threads 4 do by-name work m s 200 then forks by-name work m s 100 then by-name work m s 200");
    b.answer().expect("it worked");
    assert_eq!(a.ok("sum s 0 1"), (2 * 3000 + 4 * 500).to_string());
    // Children that are killed while they have it, and a parent that goes on.
    for _ in 0..20 {
        let child: u32 = a.ok("orphan 0 do by-name lock m - then pause 60000").parse().expect("a process");
        until("it has it", || {
            b.ask("by-name lock m 0").err().map_or_else(
                || {
                    b.ok("by-name unlock m");
                    None
                },
                |refused| (refused.kind == "TimedOut").then_some(()),
            )
        });
        commonhold_tests::host::kill(child);
        assert_eq!(b.ok("by-name mend m -"), "true");
        b.ok("by-name unlock m");
    }
}

#[test]
fn closes_and_opens_in_tight_loops_free_nothing_of_who_has_it() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.all("by-name create m mutex /m\nby-name create l rwlock /l\ncreate o /sum size=4096\nmap s o rw shared 0 0");
    b.all("by-name open m mutex /m\nby-name open l rwlock /l\nopen o /sum rw\nmap s o rw shared 0 0");
    let others = host.worker();
    for _ in 0..60 {
        [&a, &b].iter().for_each(|worker| worker.send("by-name work m s 300"));
        let dead = host.worker();
        dead.all("by-name open m mutex /m\nby-name open l rwlock /l\nby-name read l 0");
        others.all("by-name open m mutex /m\nby-name open l rwlock /l\nby-name read l -");
        dead.kill();
        others.all(
            "by-name end l\nby-name close m\nby-name close l\nby-name open l rwlock /l\nby-name read l -",
        );
        a.answer().expect("it worked");
        b.answer().expect("it worked");
        a.refused("by-name write l 0", "TimedOut");
        others.all("by-name end l\nby-name close l");
    }
    assert_eq!(a.ok("sum s 0 1"), (60 * 2 * 300).to_string());
}
