//! Wired objects that move, against clients that close, come back and end at the worst moment: what somebody has mapped stays
//! where it is, and what nobody has open any more keeps nobody from moving it.

use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, EntryInfo, Name, ObjectId, Place};
use commonhold_tests::huge::HugePages;
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::user::as_user;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, Worker, is_root};
use std::time::Duration;

fn id_of(worker: &Worker, name: &str) -> ObjectId {
    ObjectId(worker.ok(&format!("stat {name} id")).parse().unwrap())
}

fn opens(worker: &Worker, name: &str, count: &str) {
    until("so many have it open", || (worker.ok(&format!("stat {name} opens")) == count).then_some(()));
}

fn open(raw: &mut Raw, name: &str) {
    let request = Request::Open { name: Name::new(name).unwrap(), access: Access::ReadWrite };
    raw.ask(&request, &[]).expect("the host answers").expect("it is opened");
}

/// Where the host says that an object lies which the connection has open.
fn place_told(raw: &mut Raw, object: ObjectId) -> Option<Place> {
    let said = raw.ask(&Request::StatObject { object }, &[]).expect("the host answers");
    match said.expect("it is open") {
        Reply::Entry(entry) => match *entry {
            EntryInfo::Object(info) => info.place,
            EntryInfo::Directory { .. } => None,
        },
        other => panic!("{other:?}"),
    }
}

/// A client that has let an object move, and dies with a thousand others open: while they are closed, what is counted as
/// open, and what of that is in use, must not differ.
#[test]
fn who_ends_and_had_let_an_object_move_moves_nobody_else_s_mapping() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let [owner, asker] = [(); 2].map(|()| host.worker());
    owner.ok("create o /w size=65536 wired mode=644");
    owner.ok("close o");
    for number in 0..1000 {
        owner.all(&format!("create p /p{number} size=4096\nclose p"));
    }
    for round in 0..6 {
        let ends = host.worker();
        for number in 0..1000 {
            ends.ok(&format!("open p{number} /p{number} r"));
        }
        opens(&asker, "/w", "0");
        ends.ok("open-movable o /w rw");
        asker.all("chmod /w 640\nchmod /w 644");
        owner.all("open o /w rw\nmap m o rw shared 0 0");
        let before = asker.ok("stat /w place");
        commonhold_tests::host::signal(ends.pid(), libc::SIGKILL);
        let gone = || asker.ok("stat /w opens") == "1";
        let mut tries = 0;
        while !gone() || tries < 20 {
            for _ in 0..20 {
                asker.send("chmod /w 600");
            }
            for _ in 0..20 {
                let refused = asker.answer().expect_err("its mode changed while it was mapped");
                assert_eq!(refused.kind, "Busy", "round {round}: {}", refused.message);
            }
            tries += 1;
        }
        assert_eq!(asker.ok("stat /w place"), before);
        owner.all("drop m\nclose o");
    }
}

/// A client asks where an object lies, and closes it before it hears that: it holds nothing.
#[test]
fn who_closed_an_object_while_asking_where_it_lies_keeps_nobody_from_moving_it() {
    let Some(_pool) = HugePages::more(80) else { return };
    let host = TestHost::start();
    let [owner, asker] = [(); 2].map(|()| host.worker());
    owner.ok(&format!("create o /w size={} wired mode=600", 32 * MIB));
    owner.ok("close o");
    let object = id_of(&owner, "/w");
    let mut attackers = Vec::new();
    for round in 0..5 {
        opens(&asker, "/w", "0");
        let mut raw = Raw::connect(&host);
        open(&mut raw, "/w");
        let unused = Request::Released { object, given: 0 };
        raw.ask(&unused, &[]).expect("the host answers").expect("it may say so");
        // It has to move before anybody is told where it lies, which takes a while.
        asker.eventually(&format!("chmod /w {}", if round % 2 == 0 { "640" } else { "600" }));
        assert!(raw.throw(&bytes_of(0, &Request::Place { object }), &[]));
        std::thread::sleep(Duration::from_millis(1 + round));
        assert!(raw.throw(&bytes_of(0, &Request::Close { object }), &[]));
        attackers.push(raw);
        opens(&asker, "/w", "0");
        let user = host.worker();
        user.all("open-movable o /w rw\nguarded o fill 0 16 1");
        // While the host still answers where it lies, it stays there.
        asker.eventually("chmod /w 644");
        user.all("guarded o check 0 16 1\nclose o");
    }
}

/// A client comes back with an object (as a fork child does) while that moves: it is told where it lies then.
#[test]
fn who_comes_back_with_an_object_while_it_moves_hears_of_it() {
    let Some(_pool) = HugePages::more(140) else { return };
    let host = TestHost::start();
    let asker = host.worker();
    asker.ok(&format!("create o /w size={} wired mode=600", 64 * MIB));
    asker.ok("close o");
    let object = id_of(&asker, "/w");
    let mut came = 0;
    for round in 0..12 {
        opens(&asker, "/w", "0");
        asker.ok(&format!("chmod /w {}", if round % 2 == 0 { "640" } else { "600" }));
        let mut raw = Raw::connect(&host);
        // It lies elsewhere before it is opened.
        asker.send("open o /w rw");
        std::thread::sleep(Duration::from_millis(round * 3));
        let back = Request::Reattach { object, access: Access::ReadWrite };
        let told =
            raw.ask(&back, &[]).expect("the host answers").is_ok().then(|| place_told(&mut raw, object));
        let moved = asker.answer();
        if let Some(told) = told {
            came += 1;
            assert_eq!(place_told(&mut raw, object), told, "round {round}: it moved later ({moved:?})");
            raw.ask(&Request::Close { object }, &[]).expect("the host answers").expect("it is closed");
        }
        asker.ok("close o");
    }
    assert!(came > 0);
}

/// Who may not have an object any more, and asks where it lies at the moment at which its mode changes, keeps its owner from it
/// in no case: either the mode stays, or he is not told.
#[test]
fn who_asks_for_the_place_while_the_mode_changes_holds_nothing_that_is_not_his() {
    let Some(_pool) = HugePages::more(4) else { return };
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let [owner, asker] = [(); 2].map(|()| host.worker());
    owner.ok("create o /w size=65536 wired mode=644");
    owner.ok("close o");
    let object = id_of(&owner, "/w");
    let mut raw = as_user(1234, || Raw::connect(&host));
    let mut at_once = 0;
    for round in 0..300_u64 {
        opens(&asker, "/w", "0");
        let request = Request::Open { name: Name::new("/w").unwrap(), access: Access::Read };
        raw.ask(&request, &[]).expect("the host answers").expect("it is opened");
        raw.ask(&Request::Released { object, given: 0 }, &[])
            .expect("the host answers")
            .expect("it may say so");
        asker.send("chmod /w 600");
        std::thread::sleep(Duration::from_micros(round * 7 % 120));
        let placed = raw.ask(&Request::Place { object }, &[]).expect("the host answers");
        let changed = asker.answer_within(Duration::from_millis(20));
        if placed.is_ok() && changed.as_ref().is_some_and(Result::is_ok) {
            panic!("round {round}: told where it lies, and has it: {:?}", owner.ask("open o /w rw"));
        }
        at_once += u32::from(placed.is_ok());
        raw.ask(&Request::Close { object }, &[]).expect("the host answers").expect("it is closed");
        changed.unwrap_or_else(|| asker.answer()).expect("its mode changes now");
        asker.ok("chmod /w 644");
    }
    println!("told before the mode changed: {at_once}");
}
