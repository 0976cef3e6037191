//! What a process can do with its own userfaultfd, memory and threads while the host serves its faults.

use super::user;
use crate::Attack;
use crate::by_hand::{ByHand, Memory, PAGE};
use crate::scene::{Local, name, others_go_on, small};
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{CreateOptions, PagerKind};
use commonhold_sys::userfaultfd::Modes;
use commonhold_tests::raw::Raw;
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

/// Threads that touch a page until the value is dropped; whoever waits then is let go with the last descriptor.
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
