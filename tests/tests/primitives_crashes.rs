//! Locks by name when host and keeper die or are replaced, and clients come back late, stopped, or in parts.

use commonhold::CreateOptions;
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, Name, ObjectId, SessionId};
use commonhold_tests::host::signal;
use commonhold_tests::raw::Raw;
use commonhold_tests::wait::until;
use commonhold_tests::{TestHost, Worker};
use std::os::fd::{AsFd, OwnedFd};

const DIED: u64 = 1 << 30;

fn hello(raw: &mut Raw) -> SessionId {
    let reply = raw.ask(&Request::Hello { program: "raw".into() }, &[]).expect("an answer");
    let Ok(Reply::Hello(hello)) = reply else { panic!("no greeting") };
    hello.session
}

fn make(raw: &mut Raw, path: &str) -> (ObjectId, OwnedFd) {
    let options =
        CreateOptions { size_bytes: 4096, description: "sync:mutex".into(), ..CreateOptions::default() };
    let name = Name::new(path).expect("a name");
    let asked = Request::Create { name, options, in_directory: false, nonce: 7 };
    let (Reply::Opened(opened), mut fds) = raw.ask_for(&asked) else { panic!("no object") };
    (opened.info.id, fds.remove(0))
}

fn member(raw: &mut Raw) -> u64 {
    let Reply::Member(member) = raw.ask_for(&Request::Member).0 else { panic!("no number") };
    u64::from(member)
}

fn read(memory: &OwnedFd, at: u64) -> u64 {
    let mut word = [0; 8];
    assert_eq!(rustix::io::pread(memory, &mut word, at), Ok(8));
    u64::from_ne_bytes(word)
}

fn write(memory: &OwnedFd, at: u64, word: u64) {
    assert_eq!(rustix::io::pwrite(memory, &word.to_ne_bytes(), at), Ok(8));
}

/// The first word, whether somebody sleeps or not.
fn owned(memory: &OwnedFd) -> u64 {
    read(memory, 0) & !(1 << 31)
}

/// Says that it comes back as that session, or that this was all.
fn returns(raw: &mut Raw, session: SessionId) {
    raw.ask(&Request::Return { session }, &[]).expect("an answer").expect("it may come back");
}

#[test]
fn each_connection_of_a_process_brings_what_is_its_own() {
    let host = TestHost::start();
    // As two copies of the library in one process: an extension of an interpreter, and a library in C.
    let (mut first, mut second) = (Raw::connect(&host), Raw::connect(&host));
    let sessions = [hello(&mut first), hello(&mut second)];
    let (id, memory) = make(&mut first, "/m");
    let mine = member(&mut first) << 32 | 1;
    let other = host.worker();
    other.ok("by-name open m mutex /m");
    write(&memory, 0, mine);
    host.kill_both();
    host.start_again().expect("another host");
    let mut second = Raw::connect(&host);
    hello(&mut second);
    returns(&mut second, sessions[1]);
    returns(&mut second, sessions[1]);
    // The other process is back, too, so that all are who are not of this one.
    until("it is back", || host.log().contains("brought object").then_some(()));
    other.refused("by-name lock m 300", "TimedOut");
    assert_eq!(owned(&memory), mine, "who lives keeps what it has");
    let mut first = Raw::connect(&host);
    hello(&mut first);
    returns(&mut first, sessions[0]);
    let back = Request::Reattach { object: id, access: Access::ReadWrite };
    first.ask(&back, &[memory.as_fd()]).expect("an answer").expect("it is the memory");
    returns(&mut first, sessions[0]);
    other.refused("by-name lock m 20", "TimedOut");
    assert_eq!(owned(&memory), mine);
    // Now nobody is waited for: who dies is seen.
    write(&memory, 64, 77 << 32 | 1);
    let dead = host.worker();
    dead.ok("by-name open m mutex /m");
    dead.kill();
    until("the dead are seen", || (read(&memory, 64) == DIED).then_some(()));
    assert_eq!(owned(&memory), mine);
}

#[test]
fn who_is_stopped_while_host_and_keeper_die_keeps_what_it_has() {
    let host = TestHost::start();
    let (a, b, dead) = (host.worker(), host.worker(), host.worker());
    a.all("by-name create m mutex /m count=2\nby-name at m 1 as=n\nby-name lock m 0");
    b.all("by-name open m mutex /m\nby-name at m 1 as=n");
    dead.all("by-name open m mutex /m\nby-name at m 1 as=n\nby-name lock n 0");
    signal(a.pid(), libc::SIGSTOP);
    host.kill_both();
    dead.kill();
    host.start_again().expect("another host");
    b.refused("by-name lock m 200", "TimedOut");
    let late = host.worker();
    signal(a.pid(), libc::SIGCONT);
    assert_eq!(b.ok("by-name mend n -"), "true", "freed when all others are back");
    late.ok("by-name open m mutex /m");
    late.kill();
    b.refused("by-name lock m 100", "TimedOut");
    a.ok("by-name unlock m");
    assert_eq!(b.ok("by-name mend m -"), "false");
}

fn replaced(host: &TestHost, keeper: bool) {
    let before = host.status().host_pid;
    host.connect().replace(None, keeper).expect("another host");
    host.wait_for_other_host(before);
}

#[test]
fn locks_go_on_while_hosts_are_replaced() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.all("by-name create m mutex /m count=2\nby-name at m 1 as=n\ncreate o /sum size=4096\nmap s o rw shared 0 0");
    b.all("by-name open m mutex /m\nby-name at m 1 as=n\nopen o /sum rw\nmap s o rw shared 0 0");
    let dead = |line: &str| -> Worker {
        let dead = host.worker();
        dead.all("by-name open m mutex /m\nby-name at m 1 as=n");
        dead.ok(line);
        dead
    };
    for keeper in [false, true] {
        [&a, &b].iter().for_each(|worker| worker.send("by-name work m s 20000"));
        let owner = dead("by-name lock n 0");
        let idle = dead("by-name close n");
        let kill = std::thread::spawn(move || (owner.kill(), idle.kill()));
        replaced(&host, keeper);
        kill.join().expect("both are killed");
        a.answer().expect("it worked");
        b.answer().expect("it worked");
        assert_eq!(b.ok("by-name mend n -"), "true");
        b.ok("by-name unlock n");
    }
    assert_eq!(a.ok("sum s 0 1"), (2 * 2 * 20_000).to_string());
}

#[test]
fn hosts_and_keepers_die_again_and_again_beside_owners_that_die() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.all("by-name create m mutex /m count=2\nby-name at m 1 as=n\ncreate o /sum size=4096\nmap s o rw shared 0 0");
    b.all("by-name open m mutex /m\nby-name at m 1 as=n\nopen o /sum rw\nmap s o rw shared 0 0");
    for round in 0..6 {
        let dead = host.worker();
        dead.all("by-name open m mutex /m\nby-name at m 1 as=n\nby-name lock n 0");
        [&a, &b].iter().for_each(|worker| worker.send("by-name work m s 5000"));
        let before = host.status().host_pid;
        let kill = std::thread::spawn(move || dead.kill());
        match round % 3 {
            0 => host.kill_host(),
            1 => {
                let keeper = host.status().keeper_pid;
                host.kill_keeper();
                let other = || Some(host.status().keeper_pid).filter(|now| ![0, keeper].contains(now));
                until("there is another keeper", other);
            }
            _ => host.kill_both(),
        }
        kill.join().expect("it is killed");
        match round % 3 {
            0 => drop(host.wait_for_other_host(before)),
            1 => {}
            _ => host.start_again().expect("another host"),
        }
        a.answer().expect("it worked");
        b.answer().expect("it worked");
        assert_eq!(b.ok("by-name mend n -"), "true");
        b.ok("by-name unlock n");
    }
    assert_eq!(a.ok("sum s 0 1"), (6 * 2 * 5000).to_string());
}

#[test]
fn who_connects_anew_while_it_has_a_lock_has_it_still() {
    let host = TestHost::start();
    let mut first = Raw::connect(&host);
    let former = hello(&mut first);
    let (id, memory) = make(&mut first, "/m");
    let mine = member(&mut first) << 32 | 1;
    write(&memory, 0, mine);
    write(&memory, 64, 77 << 32 | 1);
    drop(first);
    let mut again = Raw::connect(&host);
    hello(&mut again);
    returns(&mut again, former);
    let back = Request::Reattach { object: id, access: Access::ReadWrite };
    again.ask(&back, &[memory.as_fd()]).expect("an answer").expect("it is the memory");
    returns(&mut again, former);
    // The session before is over by now, and what nobody has was looked for.
    assert_eq!([read(&memory, 0), read(&memory, 64)], [mine, DIED]);
    assert_eq!(member(&mut again) << 32 | 1, mine, "the same process has the same number");
}
