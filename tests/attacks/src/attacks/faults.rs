//! What a process can do with its own userfaultfd, memory and threads while the host serves its faults.

use super::user;
use crate::Attack;
use crate::by_hand::{ByHand, Memory, PAGE};
use crate::scene::{Local, name, others_go_on, small};
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{CreateOptions, PagerKind};
use commonhold_sys::userfaultfd::Modes;
use commonhold_tests::host::{signal, stop};
use commonhold_tests::raw::Raw;
use commonhold_tests::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const ATTACKS: &[Attack] = &[
    user(
        "faults.own_wakes",
        "wake one's own threads again and again, which wait for a silent pager",
        own_wakes,
    ),
    user("faults.nowhere", "the same where nothing is mapped, as far as the host knows", nowhere),
    user("faults.forks", "fork a thousand times, past the library and not, with mappings and locks", forks),
    user("faults.stopped", "stop processes while they map, write and are held for a true instant", stopped),
    user(
        "faults.refusals",
        "ask for pages that are refused, again and again, each other than the last",
        refusals,
    ),
];

/// How long one of these goes on.
const WHILE: Duration = Duration::from_secs(2);
/// What a host may take more of memory meanwhile.
const MORE_BYTES: u64 = 6 << 20;

/// Memory that the host process has of its own.
fn own_bytes(scene: &Local) -> u64 {
    let path = format!("/proc/{}/status", scene.host.status().host_pid);
    let status = std::fs::read_to_string(path).expect("the host's status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Does something for a while, after which the host has taken hardly any memory, and serves others.
fn costs_no_memory(scene: &Local, mut attack: impl FnMut()) {
    let before = own_bytes(scene);
    let until = Instant::now() + WHILE;
    while Instant::now() < until {
        attack();
        // So that the host sees each fault before the next.
        std::thread::sleep(Duration::from_micros(100));
    }
    let more = own_bytes(scene).saturating_sub(before);
    others_go_on(scene);
    assert!(more < MORE_BYTES, "the host has {more} bytes more");
}

/// Threads that touch a page until the value is dropped; whoever waits then is let go with the last
/// descriptor.
struct Touching(Arc<AtomicBool>);

impl Touching {
    fn start(page: Memory, threads: usize) -> Touching {
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let is_over = over.clone();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Refused at the end.
                    let _ = page.get();
                }
            });
        }
        Touching(over)
    }
}

impl Drop for Touching {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Options of an object whose pager never answers.
fn silent(scene: &Local) -> (CreateOptions, Raw) {
    let mut serves = scene.greeted();
    let served = serves.ask(&Request::ServePager { pager: name("/silent") }, &[]);
    assert!(matches!(served, Some(Ok(Reply::Done))), "{served:?}");
    let pager = PagerKind::External { pager: "/silent".into() };
    (CreateOptions { pager, pager_deadline_ms: Some(3_600_000), ..small() }, serves)
}

fn own_wakes(scene: &Local) {
    let (options, _serves) = silent(scene);
    let client = ByHand::with(scene, name("/waits"), options);
    let _touching = Touching::start(client.memory.page(0), 8);
    let (at, length) = (client.memory.address as u64, PAGE as u64);
    costs_no_memory(scene, || client.uffd.wake(at, length).expect("one's own threads"));
}

fn nowhere(scene: &Local) {
    let client = ByHand::with(scene, name("/waits"), small());
    let file = commonhold_sys::frames::create("nowhere", PAGE as u64).expect("a memfd");
    let memory = Memory::of(&file, PAGE);
    let modes = Modes { missing: true, minor: true, write_protect: false };
    client.uffd.register(memory.address as u64, PAGE as u64, modes).expect("one's own memory");
    let _touching = Touching::start(memory, 8);
    let at = memory.address as u64;
    costs_no_memory(scene, || client.uffd.wake(at, PAGE as u64).expect("one's own threads"));
}

fn forks(scene: &Local) {
    let worker = scene.attacker();
    worker.all("create o /own size=65536 controlled\nmap o o rw shared 0 0\nfill o 0 16 1\nlock o 0 8192");
    worker.all("map t o rw shared 0 0 in-thread\nmap p o r private 0 0");
    let (before, clients) = (own_bytes(scene), scene.host.status().clients);
    for number in 0..500 {
        // A child that the library knows nothing of has no mappings.
        assert_eq!(worker.ok("raw-clone pid"), "code 0");
        assert_eq!(worker.ok(&format!("fork _exit check o {} 1 1", number % 16)), "code 0");
    }
    worker.all("check o 0 16 1\ncheck t 0 16 1\ncheck p 0 16 1");
    wait::until("forks are forgotten", || (scene.host.status().clients <= clients).then_some(()));
    let more = own_bytes(scene).saturating_sub(before);
    assert!(more < MORE_BYTES, "the host has {more} bytes more");
}

fn stopped(scene: &Local) {
    let [writer, other] = [scene.attacker(), scene.attacker()];
    writer.all("create o /own size=1048576 freezable mode=600\nmap o o rw shared 0 0\nfill o 0 256 1");
    other.all("open o /own rw\nmap o o rw shared 0 0");
    for line in ["fill o 0 256 2", "map n o rw shared 0 0", "freeze o 0 1048576", "drop o", "sync o 0 4096"] {
        writer.send(line);
        std::thread::sleep(Duration::from_micros(300));
        stop(&[writer.pid()]);
        other.send("freeze o 0 1048576");
        others_go_on(scene);
        signal(writer.pid(), libc::SIGCONT);
        // Refused or not.
        let _ = (writer.answer(), other.answer());
    }
}

fn refusals(scene: &Local) {
    let file = scene.file("short", 1 << 20);
    let options = CreateOptions { size_bytes: 1 << 20, pager: PagerKind::File, ..small() };
    let client = ByHand::of_a_file(scene, name("/short"), options, &file);
    rustix::fs::ftruncate(&file, 0).expect("its own file");
    let (before, mut number) = (scene.host.log().len(), 0);
    costs_no_memory(scene, || {
        for _ in 0..16 {
            let page = client.memory.page(number % 256);
            number += 7;
            page.forget();
            assert!(page.get().is_err(), "a page of a file that has none");
        }
    });
    let more = scene.host.log().len() - before;
    assert!(number > 1000 && more < 64 << 10, "{more} bytes of log for {number} refusals");
}
