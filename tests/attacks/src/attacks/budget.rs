//! The whole memory budget: by pagers that never answer, of many objects at once.

use super::{user_of, with};
use crate::Attack;
use crate::scene::{Local, Until, name};
use commonhold_object::wire::{Event, FromHost, PagerReply, Reply, Request};
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::{MIB, TestHost, Worker, wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SMALL: crate::scene::Machine = with(&["--budget", "16MiB"]);

pub(crate) const ATTACKS: &[Attack] = &[
    user_of(SMALL, "budget.prefetches", "prefetch pages that never come, thrice the budget", |scene| {
        others_are_served(scene, "prefetch");
    }),
    user_of(SMALL, "budget.faults", "touch pages that never come, thrice the budget", |scene| {
        others_are_served(scene, "get");
    }),
    user_of(SMALL, "budget.syncs", "sync to a pager that never stores", syncs),
    user_of(
        SMALL,
        "budget.syncs_as_a_whole",
        "the same, of what stays in memory until it is over",
        syncs_as_a_whole,
    ),
];

/// What the bystander has of the budget at most.
const OF_THE_BYSTANDER: u64 = 65_536;
const OBJECTS: usize = 24;
const SESSIONS: usize = 8;
/// Where the 24 objects are asked for at once, by each session another part.
const PART: u64 = MIB / 2;
/// Threads of a host: 64 for requests and 64 for faults of the attacker, and those that every host has.
const MOST_THREADS: usize = 260;

/// Somebody who says that he serves the pager, and nothing else yet.
fn serving(scene: &Local, pager: &str) -> Raw {
    let mut raw = scene.raw();
    let pager = name(pager);
    assert!(matches!(raw.ask(&Request::ServePager { pager }, &[]), Some(Ok(Reply::Done))));
    raw
}

fn threads(host: &TestHost) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", host.status().host_pid)).expect("threads").count()
}

/// What anybody does with an object of his own, more of it than a quarter of the budget.
fn use_an_object(worker: &Worker, name: &str) {
    worker.ok(&format!("create mine {name} size={} controlled", 6 * MIB));
    worker.all("map m mine rw shared 0 0\nfill m 0 1536 1\ncheck m 0 1536 1\ndrop m\nclose mine");
    worker.ok(&format!("remove {name}"));
}

/// Nothing is taken of the budget but what the bystander has in use for a moment.
fn until_all_is_given_back(host: &TestHost) {
    let is_free = || (host.status().resident_bytes <= OF_THE_BYSTANDER).then_some(());
    wait::until("nothing is taken of the budget", is_free);
}

/// Sessions of one user that ask for all of it, each a part of each object: three times the budget.
fn ask_for_all(scene: &Local, how: &str) -> Vec<Worker> {
    let owner = scene.attacker();
    for n in 0..OBJECTS {
        owner.ok(&format!("create o{n} /silent{n} size={} pager=/silent pager-deadline=3600000", 4 * MIB));
    }
    let sessions: Vec<Worker> = (0..SESSIONS).map(|_| scene.attacker()).collect();
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
fn others_are_served(scene: &Local, how: &str) {
    let host = &scene.host;
    let pager = serving(scene, "/silent");
    let sessions = ask_for_all(scene, how);
    wait::until("pages are asked for", || (host.status().resident_bytes > OF_THE_BYSTANDER).then_some(()));
    let victim = scene.other();
    for round in 0..3 {
        use_an_object(&victim, &format!("/mine{round}"));
        assert!(threads(host) <= MOST_THREADS, "{} threads", threads(host));
    }
    if how == "get" {
        assert!(sessions.iter().all(|session| session.answer_within(Duration::ZERO).is_none()));
    }
    // The user goes, and root removes the objects; the pager is as silent as before.
    drop(sessions);
    let root = host.worker();
    (0..OBJECTS).for_each(|n| drop(root.ok(&format!("remove /silent{n}"))));
    until_all_is_given_back(host);
    use_an_object(&victim, "/after");
    wait::until("the threads are gone", || (threads(host) < 100).then_some(()));
    drop(pager);
}

fn syncs(scene: &Local) {
    with_a_hoarder(scene, |pager| {
        let attacker = scene.attacker();
        let size = 12 * MIB;
        attacker.ok(&format!("create o /o size={size} sync=ordered pager=/keeping pager-deadline=3600000"));
        attacker.all("map m o rw shared 0 0\nfill m 0 3072 1");
        attacker.send(&format!("sync o 0 {size}"));
        pager.until_asked();
        let victim = scene.other();
        use_an_object(&victim, "/mine");
        assert!(attacker.answer_within(Duration::ZERO).is_none());
        drop(attacker);
        scene.host.worker().ok("remove /o");
        until_all_is_given_back(&scene.host);
        use_an_object(&victim, "/after");
    });
}

fn syncs_as_a_whole(scene: &Local) {
    with_a_hoarder(scene, |pager| {
        let attacker = scene.attacker();
        for (how, verb) in [("sync=atomic", "sync"), ("sync=ordered freezable", "freeze")] {
            let (size, share) = (12 * MIB, 4 * MIB);
            attacker.ok(&format!("create o /o size={size} {how} pager=/keeping pager-deadline=3600000"));
            attacker.all("map m o rw shared 0 0\nfill m 0 3072 1");
            let says = attacker.refused(&format!("{verb} o 0 {size}"), "TooMany");
            assert!(says.contains("a sync as a whole would keep 3072 pages in memory"), "{says}");
            assert!(!pager.is_asked.load(Ordering::SeqCst), "{how}");
            attacker.ok("check m 0 3072 1");
            attacker.send(&format!("{verb} o 0 {share}"));
            pager.until_asked();
            use_an_object(&scene.other(), "/mine");
            assert!(attacker.answer_within(Duration::ZERO).is_none());
            pager.stores.store(true, Ordering::SeqCst);
            attacker.answer().expect("it is stored at last");
            attacker.all("drop m\nclose o\nremove /o");
            pager.stores.store(false, Ordering::SeqCst);
            pager.is_asked.store(false, Ordering::SeqCst);
        }
    });
}

/// A pager that supplies zeros, and stores nothing until it is told to.
#[derive(Default)]
struct Hoarder {
    is_asked: AtomicBool,
    stores: AtomicBool,
    is_over: AtomicBool,
}

/// Does something while such a pager serves `/keeping`.
fn with_a_hoarder(scene: &Local, job: impl FnOnce(&Hoarder)) {
    let (raw, hoarder) = (serving(scene, "/keeping"), Hoarder::default());
    std::thread::scope(|threads| {
        threads.spawn(|| hoarder.serve(&raw));
        let _until = Until(&hoarder.is_over);
        job(&hoarder);
    });
}

impl Hoarder {
    fn until_asked(&self) {
        wait::until("it is told to store", || self.is_asked.load(Ordering::SeqCst).then_some(()));
    }

    fn serve(&self, raw: &Raw) {
        let answer = |call, result| {
            // Whoever asked may be gone.
            raw.throw(&bytes_of(0, &Request::PagerAnswer { call, result }), &[]);
        };
        let mut kept = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            match raw.hear() {
                Some(Some((_, FromHost::Event(Event::PageIn { call, length, .. })))) => {
                    answer(call, PagerReply::Data(vec![0; length as usize]));
                }
                Some(Some((_, FromHost::Event(Event::PageOut { call, .. })))) => {
                    kept.push(call);
                    self.is_asked.store(true, Ordering::SeqCst);
                }
                _ => {}
            }
            if self.stores.load(Ordering::SeqCst) {
                kept.drain(..).for_each(|call| answer(call, PagerReply::Stored));
            }
        }
    }
}
