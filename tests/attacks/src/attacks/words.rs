//! Memory and descriptors that a client shares with the host, changed all the time while the host
//! is at work on them.

use super::user;
use crate::Attack;
use crate::by_hand::{ByHand, PAGE};
use crate::scene::{Local, name, others_go_on, small};
use commonhold_object::wire::Request;
use commonhold_object::{CreateOptions, PagerKind, SyncMode};
use commonhold_sys::claims::Claims;
use commonhold_tests::raw::bytes_of;
use commonhold_tests::stranger::Numbers;
use rustix::fs::{FallocateFlags, OFlags, SealFlags};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const ATTACKS: &[Attack] = &[
    user("words.claims", "write anything into claim words while the host evicts", claims),
    user(
        "words.frames",
        "cut off, lengthen, punch, seal and write memory while the host stores and evicts it",
        frames,
    ),
    user("words.flags", "change the flags of descriptors that the host uses, all the time", flags),
    user(
        "words.faults",
        "answer one's own faults, register, unregister and poison while the host does",
        faults,
    ),
];

/// How long one of these goes on.
const WHILE: Duration = Duration::from_millis(1500);

/// Something that a thread does again and again until this is dropped.
struct Loop(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Loop {
    fn of(mut work: impl FnMut(&mut Numbers) + Send + 'static) -> Loop {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let thread = std::thread::spawn(move || {
            let mut numbers = Numbers(20);
            while !is_over.load(Ordering::Relaxed) {
                work(&mut numbers);
            }
        });
        Loop(over, Some(thread))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().map(JoinHandle::join);
    }
}

/// Pages of an object of which a quarter has room.
const PAGES: usize = 1024;

fn larger() -> CreateOptions {
    CreateOptions { size_bytes: (PAGES * PAGE) as u64, budget_bytes: Some(1 << 20), ..small() }
}

/// Has the host bring pages in, store them, hold them and change the object's size, for a while;
/// whatever it answers.
fn has_work_done(scene: &Local, client: &ByHand, named: &str) {
    let (until, mut numbers, mut number) = (Instant::now() + WHILE, Numbers(7), 1000);
    let object = client.object;
    let memory = client.memory;
    let mut touching = Loop::of(move |numbers| {
        // Refused or not.
        let _ = memory.page(numbers.below(PAGES as u64) as usize).put(1);
    });
    // It may wait for ever, if nobody serves it any more.
    drop(touching.1.take());
    while Instant::now() < until {
        let (offset, length) = (numbers.below(PAGES as u64) * PAGE as u64, 16 * PAGE as u64);
        let size_bytes = ((PAGES - numbers.below(8) as usize) * PAGE) as u64;
        for request in [
            Request::Sync { object, offset, length, freeze: numbers.below(2) == 0 },
            Request::Lock { object, offset, length },
            Request::Incore { object, first_page: 0, pages: PAGES as u64 },
            Request::Unlock { object, offset, length },
            Request::Resize { name: name(named), size_bytes, of: None },
        ] {
            number += 1;
            client.raw.push(&bytes_of(number, &request));
        }
        // Nobody reads the answers otherwise, and then the connection ends.
        while let Some(Some(_)) = client.raw.hear_now() {}
    }
    others_go_on(scene);
}

fn claims(scene: &Local) {
    let mut client = ByHand::serving_itself(scene, name("/own"), larger());
    let words = Claims::open(client.words.take().expect("claim words"), PAGES).expect("they are a host's");
    let _loop = Loop::of(move |numbers| {
        let word = words.word(numbers.below(PAGES as u64) as usize);
        word.store([0, 1, 2, 3, 4, 5, 255][numbers.below(7) as usize], Ordering::Relaxed);
    });
    // What it does for itself as the library would.
    let (uffd, memory) = (client.uffd.clone(), client.memory);
    let _own = Loop::of(move |numbers| {
        let page = memory.page(numbers.below(PAGES as u64) as usize);
        uffd.copy(page.address as u64, &[3; PAGE], false);
        uffd.continue_(page.address as u64, PAGE as u64, false);
    });
    has_work_done(scene, &client, "/own");
}

fn frames(scene: &Local) {
    let file = scene.file("own", (PAGES * PAGE) as u64);
    let atomic = CreateOptions { sync: SyncMode::Atomic, pager: PagerKind::File, ..larger() };
    let client = ByHand::of_a_file(scene, name("/own"), atomic, &file);
    let loops =
        [client.frames.clone(), Arc::new(file)].map(|fd| Loop::of(move |numbers| shake(&fd, numbers)));
    has_work_done(scene, &client, "/own");
    drop(loops);
}

/// One of the things that a writer can do to memory, or to a file.
fn shake(fd: &OwnedFd, numbers: &mut Numbers) {
    let at = numbers.below(PAGES as u64) * PAGE as u64;
    // Whether it can be done is the kernel's to say.
    let _ = match numbers.below(7) {
        0 => rustix::fs::ftruncate(fd, at + numbers.below(PAGE as u64)),
        1 => rustix::fs::ftruncate(fd, (2 * PAGES * PAGE) as u64),
        2 => rustix::fs::ftruncate(fd, (PAGES * PAGE) as u64),
        3 => {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(fd, punch, at, 64 * PAGE as u64)
        }
        4 => rustix::fs::fallocate(fd, FallocateFlags::empty(), at, 64 * PAGE as u64),
        5 => rustix::fs::fcntl_add_seals(fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE),
        _ => rustix::io::pwrite(fd, &[9; PAGE], at).map(drop),
    };
}

fn flags(scene: &Local) {
    let file = scene.file("own", (PAGES * PAGE) as u64);
    let options = CreateOptions { sync: SyncMode::Ordered, pager: PagerKind::File, ..larger() };
    let client = ByHand::of_a_file(scene, name("/own"), options, &file);
    let uffd: OwnedFd = rustix::io::dup(&*client.uffd).expect("a descriptor");
    let loops = [uffd, client.frames.try_clone().expect("a descriptor"), file].map(|fd| {
        Loop::of(move |numbers| {
            let all = [OFlags::NONBLOCK, OFlags::APPEND, OFlags::DIRECT, OFlags::NOATIME, OFlags::empty()];
            let one = all[numbers.below(5) as usize];
            // Those that the file has not are refused.
            let _ = rustix::fs::fcntl_setfl(&fd, one);
        })
    });
    has_work_done(scene, &client, "/own");
    drop(loops);
}

fn faults(scene: &Local) {
    let client = ByHand::with(scene, name("/own"), larger());
    let (uffd, memory) = (client.uffd.clone(), client.memory);
    let _loop = Loop::of(move |numbers| {
        let page = memory.page(numbers.below(PAGES as u64) as usize);
        let (at, length) = (page.address as u64, PAGE as u64);
        let modes = commonhold_sys::userfaultfd::Modes {
            missing: true,
            minor: numbers.below(2) == 0,
            write_protect: numbers.below(2) == 0,
        };
        // Whether it can be done is the kernel's to say.
        let _ = match numbers.below(9) {
            0 => uffd.wake(at, length),
            1 => uffd.unregister(at, length),
            2 => uffd.register(at, length, modes),
            3 => uffd.protect(at, length),
            4 => uffd.unprotect(at, length),
            5 => uffd.copy(at, &[3; PAGE], numbers.below(2) == 0).stopped_by.map_or(Ok(()), Err),
            6 => uffd.continue_(at, length, false).stopped_by.map_or(Ok(()), Err),
            7 => uffd.poison(at, length).stopped_by.map_or(Ok(()), Err),
            _ => {
                page.forget();
                Ok(())
            }
        };
        // Faults that the host does not see.
        let _ = uffd.read_faults(&mut Vec::new());
    });
    has_work_done(scene, &client, "/own");
}
