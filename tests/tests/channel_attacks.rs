//! Channels against users of them who want more than that: to write where they may not, by another's hand, or to hold up what
//! others do elsewhere.

use commonhold::{Channel, ChannelOptions, CreateOptions, ErrorKind, Translation};
use commonhold_object::wire::Request;
use commonhold_object::{Access, Name};
use commonhold_tests::huge::HugePages;
use commonhold_tests::raw::Raw;
use commonhold_tests::user::as_user;
use commonhold_tests::wait::until;
use commonhold_tests::{TestHost, is_root};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const ATTACKER: u32 = 1234;
/// Where the first landing is, and what is in it.
const SLOT: u64 = 1024;
const LOCK: u64 = 4;

/// The memory of a channel, as who opens it is given it. The channel is not open any more: the memory is still there.
fn memory_of(host: &TestHost, name: &str) -> File {
    let request = Request::Open { name: Name::new(name).unwrap(), access: Access::ReadWrite };
    let memory: OwnedFd = Raw::connect(host).ask_for(&request).1.remove(0);
    File::from(memory)
}

/// Posts a landing that nobody posted.
fn forge_landing(memory: &File, object: u64, name: &str) {
    let words = |at: u64, words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.write_all_at(&bytes, SLOT + at).unwrap();
    };
    memory.write_all_at(name.as_bytes(), SLOT + 64).unwrap();
    words(4, &[1, object as u32, (object >> 32) as u32, 0, 0, 4096, 0, name.len() as u32]);
    words(0, &[1]);
}

/// The owner of a channel that others could write closes it to them, when nobody has it open. One of them has its memory still,
/// and names an object in it that only the owner may write.
#[test]
fn who_had_a_channel_once_has_nobody_write_where_he_may_not() {
    let Some(_pool) = HugePages::more(8) else { return };
    if !is_root("another user") {
        return;
    }
    let cases = [
        ("chmod /c/ch 666", "chmod /c/ch 600", "/c", "600"),
        ("chown /c/ch 0 1234", "chown /c/ch 0 0", "/c", "660"),
        ("chmod /c/ch 666", "rename /c/ch /d/ch", "/d", "666"),
    ];
    for (opened_up, closed, directory, mode) in cases {
        let host = TestHost::start();
        let owner = host.worker();
        owner.all("channel create c /c/ch 4096 mode=660\nchannel close c\ncreate d /d/d size=4096");
        let closed_by_all = || (owner.ok("stat /c/ch opens") == "0").then_some(());
        until("nobody has it open", closed_by_all);
        owner.ok(opened_up);
        let memory = as_user(ATTACKER, || memory_of(&host, "/c/ch"));
        until("nobody has it open", closed_by_all);
        let changed = owner.ask(closed);
        owner.ok("chmod /d 700");
        let secret = format!("{directory}/secret");
        owner.all(&format!("create s {secret} size=65536 wired mode={mode}\nmap m s rw shared 0 0"));
        host.worker_of(ATTACKER, ATTACKER).refused(&format!("open s {secret} rw"), "Permission");
        let id = owner.ok(&format!("stat {secret} id")).parse().unwrap();
        forge_landing(&memory, id, &secret);
        let now = if changed.is_ok() && directory == "/d" { "/d/ch" } else { "/c/ch" };
        owner.ok(&format!("channel open c {now}"));
        let sent = owner.ask("channel region c 1 x 4096 9 100");
        assert_eq!(
            owner.ok("get m 0"),
            "0",
            "{closed}: user {ATTACKER} had the owner write there ({changed:?})"
        );
        assert_eq!(sent.expect_err("it writes there").kind, "Permission");
    }
}

/// Whoever has the lock of one channel holds up no call of another one, nor anything else that a process does.
#[test]
fn who_has_the_lock_of_a_channel_holds_nobody_up_in_another() {
    let Some(_pool) = HugePages::more(8) else { return };
    let host = TestHost::start();
    let (here, there) = (host.connect(), host.worker());
    let make = |name: &str| Channel::create(&here, name, &ChannelOptions::default()).unwrap();
    let (held, free) = (make("/c/held"), make("/c/free"));
    let wired = CreateOptions { size_bytes: 65536, translation: Translation::Wired, ..Default::default() };
    let object = here.create("/c/input", &wired, None).unwrap();
    free.post(&object, 0, 4096).unwrap();
    there.all("channel open c /c/free\nchannel region c 1 x 4096 9 1000");
    let memory = memory_of(&host, "/c/held");
    let set_lock = |thread: u32| memory.write_all_at(&thread.to_le_bytes(), LOCK).unwrap();
    set_lock(17);
    std::thread::scope(|threads| {
        let posting = threads.spawn(|| held.post(&object, 4096, 4096));
        std::thread::sleep(Duration::from_millis(300)); // so that it waits by now
        let message = free.receive(Some(Instant::now() + Duration::from_secs(1))).unwrap();
        assert_eq!(message.region.map(|region| region.length), Some(4096));
        assert!(!posting.is_finished(), "another channel's lock was waited for");
        // Fork takes every lock of the library.
        // SAFETY: the child ends at once, and calls nothing else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends this child.
            unsafe { libc::_exit(0) };
        }
        assert!(!posting.is_finished(), "fork waited for a channel's lock");
        let mut status = 0;
        // SAFETY: a child of this process; the status is written to a number that is there.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        set_lock(0);
        posting.join().unwrap().expect("it is posted when the lock is free");
    });
}

/// Who writes the numbers of landings has a receiver post one that it has posted already: it is told so, and not given the same
/// landing twice.
#[test]
fn a_landing_is_another_each_time_whatever_its_number_is_made() {
    let Some(_pool) = HugePages::more(8) else { return };
    let host = TestHost::start();
    let here = host.connect();
    let channel = Channel::create(&here, "/c/ch", &ChannelOptions::default()).unwrap();
    let wired = CreateOptions { size_bytes: 65536, translation: Translation::Wired, ..Default::default() };
    let object = here.create("/c/input", &wired, None).unwrap();
    let first = channel.post(&object, 0, 4096).unwrap();
    // It is free, and was never posted.
    memory_of(&host, "/c/ch").write_all_at(&[0; 8], SLOT).unwrap();
    let second = channel.post(&object, 4096, 4096).expect_err("it is the first one again");
    assert_eq!(second.kind, ErrorKind::Corrupt, "{second}, where {first:?} was posted");
}
