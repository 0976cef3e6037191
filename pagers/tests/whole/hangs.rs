//! A pager that hangs: its own objects' calls fail after the deadline, touches end in SIGBUS, others notice nothing.

use crate::harness::{Held, PAGE, Process, TestHost, content, store_pager, toucher, until};
use commonhold::{CreateOptions, ErrorKind, SyncMode};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SIZE: u64 = 4 << 20;
const DEADLINE: Duration = Duration::from_millis(1500);
/// Who waits for this one fails the test.
const NEVER: Duration = Duration::from_secs(300);

fn options(deadline: Duration) -> CreateOptions {
    let pager_deadline_ms = Some(deadline.as_millis() as u32);
    CreateOptions { pager_deadline_ms, sync: SyncMode::Ordered, ..CreateOptions::default() }
}

/// A host with an object `/slow` whose pager is about to hang, and `/good` whose pager goes on working.
fn rig(deadline: Duration) -> (TestHost, Process, Process, Held, Held) {
    let host = TestHost::start();
    let places = ["slow", "good"].map(|name| host.file(name));
    places.iter().for_each(|place| std::fs::create_dir(place).unwrap());
    let slow_pager = store_pager(&host, &places[0], "/pagers/slow");
    let good_pager = store_pager(&host, &places[1], "/pagers/good");
    let slow = host.create("/slow", "/pagers/slow", SIZE, options(deadline));
    let good = host.create("/good", "/pagers/good", SIZE, options(NEVER));
    for object in [&slow, &good] {
        until("it is brought in", || object.lock(0, PAGE as u64).ok());
        object.unlock(0, PAGE as u64).unwrap();
        object.write_at(&content(PAGE, 1), 0).unwrap();
        until("it is stored", || object.sync(0, SIZE).ok());
    }
    (host, slow_pager, good_pager, slow, good)
}

#[test]
fn touches_end_in_sigbus_and_calls_in_errors_after_the_deadline() {
    let (host, pager, _good_pager, slow, _good) = rig(DEADLINE);
    pager.signal(libc::SIGSTOP);
    let before = Instant::now();
    let touched = toucher(&host, "/slow", 100 * PAGE).wait();
    assert_eq!(touched.signal(), Some(libc::SIGBUS), "{touched}");
    assert!(before.elapsed() >= DEADLINE, "not before the deadline");
    slow.write_at(&content(PAGE, 2), 0).unwrap();
    let before = Instant::now();
    let error = slow.sync(0, SIZE).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Pager, "{error}");
    assert!(error.message.contains("/pagers/slow did not answer within 1500 ms"), "{error}");
    assert!(before.elapsed() >= DEADLINE);
    let error = slow.lock(200 * PAGE as u64, PAGE as u64).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Pager, "{error}");
    // Pages in memory are there all the while; and when the pager goes on, so does everything.
    assert_eq!(toucher(&host, "/slow", 0).wait().code(), Some(0));
    pager.signal(libc::SIGCONT);
    assert_eq!(until("it is stored", || slow.sync(0, SIZE).ok()), 1);
    until("a touch works", || (toucher(&host, "/slow", 100 * PAGE).wait().code() == Some(0)).then_some(()));
}

#[test]
fn other_objects_notice_nothing_however_much_waits_for_the_pager_that_hangs() {
    let (host, pager, _good_pager, slow, good) = rig(NEVER);
    let plain = CreateOptions { size_bytes: SIZE, sync: SyncMode::Ordered, ..CreateOptions::default() };
    let memory = Held::new(host.connect().create("/memory", &plain, None).unwrap());
    slow.write_at(&content(PAGE, 2), 0).unwrap();
    pager.signal(libc::SIGSTOP);
    let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // Far more than the host has threads.
        for n in 0..150u64 {
            let (slow, begun, done) = (&slow, &begun, &done);
            scope.spawn(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                match n % 3 {
                    0 => drop(slow.sync(0, SIZE).unwrap()),
                    1 => drop(slow.lock((100 + n) * PAGE as u64, PAGE as u64).unwrap()),
                    // Nobody waits for these.
                    _ => return slow.prefetch((300 + n) * PAGE as u64, PAGE as u64).unwrap(),
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        until("all wait", || (begun.load(Ordering::Relaxed) == 150).then_some(()));
        for rounds in 1..=20 {
            good.write_at(&content(PAGE, rounds), rounds * PAGE as u64).unwrap();
            assert!(good.sync(0, SIZE).unwrap() >= 1);
            good.read_at(&mut [0; PAGE], (500 + rounds) * PAGE as u64).unwrap();
            memory.write_at(&[1; PAGE], rounds * PAGE as u64).unwrap();
            memory.sync(0, SIZE).unwrap();
            host.connect().create(&format!("/new/{rounds}"), &plain, None).unwrap();
        }
        assert_eq!(done.load(Ordering::Relaxed), 0, "the pager did not hang all the while");
        pager.signal(libc::SIGCONT);
    });
}

/// The largest object in memory belongs to a pager that hangs; others need its room.
#[test]
fn others_get_room_that_pages_of_a_hanging_pager_take() {
    let host = TestHost::start_with(&["--budget", "8MiB"]);
    let place = host.file("slow");
    std::fs::create_dir(&place).unwrap();
    let pager = store_pager(&host, &place, "/pagers/slow");
    let slow = host.create("/slow", "/pagers/slow", SIZE, options(NEVER));
    // All of it dirty.
    slow.write_at(&content(SIZE as usize, 1), 0).unwrap();
    pager.signal(libc::SIGSTOP);
    let plain = CreateOptions { size_bytes: 16 << 20, sync: SyncMode::Ordered, ..CreateOptions::default() };
    let other = Held::new(host.connect().create("/other", &plain, None).unwrap());
    other.write_at(&content(16 << 20, 2), 0).unwrap();
    let mut found = vec![0; 16 << 20];
    other.read_at(&mut found, 0).unwrap();
    assert!(found == content(16 << 20, 2));
    pager.signal(libc::SIGCONT);
    until("the pager goes on", || slow.sync(0, SIZE).ok());
    let mut found = vec![0; SIZE as usize];
    slow.read_at(&mut found, 0).unwrap();
    assert!(found == content(SIZE as usize, 1));
}
