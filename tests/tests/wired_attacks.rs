//! Wired objects against users who want more than is theirs: whoever has one object of an arena has all of it.

use commonhold_object::wire::Request;
use commonhold_object::{Access, Name};
use commonhold_tests::host::signal;
use commonhold_tests::huge::HugePages;
use commonhold_tests::raw::Raw;
use commonhold_tests::user::as_user;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, Worker, is_root};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const KIB: u64 = 1024;
const ATTACKER: u32 = 1234;

fn arena(worker: &Worker, name: &str) -> String {
    let place = worker.ok(&format!("stat {name} place"));
    place.split(' ').next().unwrap_or_default().to_owned()
}

/// The descriptor that who opens an object is given.
fn descriptor(host: &TestHost, name: &str, access: Access) -> OwnedFd {
    let request = Request::Open { name: Name::new(name).unwrap(), access };
    Raw::connect(host).ask_for(&request).1.remove(0)
}

#[test]
fn a_mode_that_changes_while_an_object_is_opened_gives_nobody_another_arena() {
    let Some(_pool) = HugePages::more(80) else { return };
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let [owner, other] = [(); 2].map(|()| host.worker());
    // Its arena has room for more.
    owner.all(&format!("create s /secret size={} wired mode=600\nresize /secret 65536", 48 * MIB));
    let attacker = host.worker_of(ATTACKER, ATTACKER);
    let mut changed_meanwhile = 0;
    for round in 0..24 {
        owner.all(&format!("create w /w size={} wired mode=644\nclose w", 16 * MIB));
        // It moves, which takes a while: who opens it meanwhile waits, and was seen to be allowed to.
        owner.send(&format!("resize /w {}", 32 * MIB));
        std::thread::sleep(Duration::from_millis(1 + round % 12));
        attacker.send("open w /w r");
        std::thread::sleep(Duration::from_millis(1 + round / 12));
        let changed = other.ask("chmod /w 600").is_ok();
        owner.answer().unwrap();
        let opened = attacker.answer();
        changed_meanwhile += u32::from(changed && opened.as_ref().is_err_and(|why| why.kind == "Permission"));
        if opened.is_ok() {
            let place = attacker.ok("info w place");
            assert!(
                place.split(' ').next() != Some(&arena(&owner, "/secret")),
                "round {round}: user {ATTACKER} has the arena of /secret (changed: {changed})"
            );
            attacker.ok("close w");
        }
        owner.ok("remove /w");
        until("it is gone", || (owner.ok("list /") == "/.arena-1 /secret").then_some(()));
    }
    println!("refused after a change: {changed_meanwhile}");
}

#[test]
fn changes_moves_and_ends_do_not_wait_for_each_other_for_ever() {
    let Some(_pool) = HugePages::more(1) else { return };
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let begun = Instant::now();
    let users: Vec<Worker> = (0..6).map(|_| host.worker_of(ATTACKER, ATTACKER)).collect();
    users[0].ok("create o /open size=65536 wired mode=600");
    let work = |number: usize, user: &Worker| match number {
        0 => drop(user.ask("chmod /open 644")),
        1 | 2 => {
            for (slot, kib) in [256, 64, 256, 64, 512].iter().enumerate() {
                user.ok(&format!("create o /w{number}-{slot} size={} wired mode=600", kib * KIB));
                user.ok("close o");
            }
            for slot in [0, 2, 1, 3, 4] {
                user.ok(&format!("remove /w{number}-{slot}"));
            }
        }
        _ => user.all(&format!("create o /n{number} size=4096\nremove /n{number}\nclose o")),
    };
    std::thread::scope(|threads| {
        for (number, user) in users.into_iter().enumerate() {
            threads.spawn(move || {
                while begun.elapsed() < Duration::from_secs(5) {
                    work(number, &user);
                }
            });
        }
    });
    let worker = host.worker();
    worker.ok("remove /open");
    until("all arenas are gone", || worker.ok("list /").is_empty().then_some(()));
}

#[test]
fn what_a_process_has_mapped_that_is_away_stays_where_it_is() {
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let [present, away] = [(); 2].map(|()| host.worker());
    for number in 0..8 {
        present.ok(&format!("create o{number} /w{number} size={} wired", 256 * KIB));
    }
    away.all("open o /w4 rw\nmap m o rw shared 0 0\nfill m 0 64 4");
    for number in [1, 3, 5, 7] {
        present.all(&format!("close o{number}\nremove /w{number}"));
    }
    present.all("close o4\nmap m o0 rw shared 0 0");
    let before = present.ok("stat /w4 place");
    signal(away.pid(), libc::SIGSTOP);
    let pid = host.status().host_pid;
    host.kill_both();
    host.start_again().unwrap();
    host.wait_for_other_host(pid);
    present.eventually("info o0 size");
    let _ = present.ask(&format!("create big /big size={} wired", 768 * KIB));
    let resized = present.ask(&format!("resize /w4 {MIB}"));
    let changed = present.ask("chmod /w4 644");
    assert_eq!(present.ok("stat /w4 place"), before, "it is mapped there");
    assert_eq!(resized.unwrap_err().kind, "Busy");
    assert_eq!(changed.unwrap_err().kind, "Busy");
    signal(away.pid(), libc::SIGCONT);
    away.ok("check m 0 64 4");
    away.eventually("info o size");
    host.worker().all("open o /w4 rw\nmap m o rw shared 0 0\ncheck m 0 64 4");
}

#[test]
fn who_has_the_arena_alone_brings_back_what_is_in_it() {
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    worker.all("create o /w size=65536 wired\nmap m o rw shared 0 0\nfill m 0 16 3\nopen a /.arena-1 r");
    worker.all("map n a r shared 0 0\ndrop m\nclose o");
    let pid = host.status().host_pid;
    host.kill_both();
    host.start_again().unwrap();
    host.wait_for_other_host(pid);
    worker.eventually("info a size");
    host.worker().all("open o /w rw\nmap m o rw shared 0 0\ncheck m 0 16 3");
}

#[test]
fn an_object_given_to_a_user_can_be_opened_where_he_may_add_no_names() {
    let Some(_pool) = HugePages::more(2) else { return };
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let root = host.worker();
    root.all(
        "create o /d/w size=65536 wired mode=600\nmap m o rw shared 0 0\nfill m 0 16 3\ndrop m\nclose o",
    );
    root.ok(&format!("chown /d/w {ATTACKER} {ATTACKER}"));
    as_user(ATTACKER, || {
        host.worker().all("open o /d/w rw\nmap m o rw shared 0 0\ncheck m 0 16 3");
    });
}

#[test]
fn what_a_writer_took_from_an_arena_keeps_nobody_from_creating() {
    let Some(_pool) = HugePages::more(2) else { return };
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let owner = host.worker();
    owner.ok("create o /w1 size=65536 wired mode=666");
    as_user(ATTACKER, || {
        let arena = descriptor(&host, "/w1", Access::ReadWrite);
        rustix::fs::ftruncate(&arena, 0).unwrap();
    });
    owner.all("create n /w2 size=65536 wired mode=666\nmap m n rw shared 0 0\nfill m 0 16 3");
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    owner.ok("check m 0 16 3");
}

#[test]
fn an_arena_that_somebody_else_had_is_nobody_s() {
    let Some(_pool) = HugePages::more(2) else { return };
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let had = as_user(ATTACKER, || {
        host.worker().ok("create o /mine size=2097152 shared-tables mode=600 description=arena");
        descriptor(&host, "/mine", Access::ReadWrite)
    });
    let victim = ATTACKER + 1;
    let _ = host.worker().ask(&format!("chown /mine {victim} {victim}"));
    let owner = host.worker_of(victim, victim);
    owner.all("create o /w size=65536 wired mode=600\nmap m o rw shared 0 0\nfill m 0 16 3");
    let mut seen = vec![0; 2 * MIB as usize];
    rustix::io::pread(&had, &mut seen, 0).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0), "user {ATTACKER} reads what user {victim} wrote");
}
