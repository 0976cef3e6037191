//! A pager that hangs: its own objects' calls fail after the deadline, touches end in SIGBUS, others notice nothing.

use crate::harness::{Held, PAGE, Process, TestHost, content, store_pager, toucher, until};
use commonhold::{CreateOptions, ErrorKind, SyncMode};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

const SIZE: u64 = 4 << 20;
const DEADLINE: Duration = Duration::from_millis(1500);

fn options() -> CreateOptions {
    let pager_deadline_ms = Some(DEADLINE.as_millis() as u32);
    CreateOptions { pager_deadline_ms, sync: SyncMode::Ordered, ..CreateOptions::default() }
}

/// A host with an object `/slow` whose pager is about to hang, and `/good` whose pager goes on working.
fn rig() -> (TestHost, Process, Process, Held, Held) {
    let host = TestHost::start();
    let places = ["slow", "good"].map(|name| host.file(name));
    places.iter().for_each(|place| std::fs::create_dir(place).unwrap());
    let slow_pager = store_pager(&host, &places[0], "/pagers/slow");
    let good_pager = store_pager(&host, &places[1], "/pagers/good");
    let slow = host.create("/slow", "/pagers/slow", SIZE, options());
    let good = host.create("/good", "/pagers/good", SIZE, options());
    for object in [&slow, &good] {
        object.write_at(&content(PAGE, 1), 0).unwrap();
        object.sync(0, SIZE).unwrap();
    }
    (host, slow_pager, good_pager, slow, good)
}

#[test]
fn touches_end_in_sigbus_and_calls_in_errors_after_the_deadline() {
    let (host, pager, _good_pager, slow, _good) = rig();
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
    assert_eq!(slow.sync(0, SIZE).unwrap(), 1);
    assert_eq!(toucher(&host, "/slow", 100 * PAGE).wait().code(), Some(0));
}

#[test]
fn other_objects_notice_nothing_however_much_waits_for_the_pager_that_hangs() {
    let (host, pager, _good_pager, slow, good) = rig();
    let plain = CreateOptions { size_bytes: SIZE, sync: SyncMode::Ordered, ..CreateOptions::default() };
    let memory = Held::new(host.connect().create("/memory", &plain, None).unwrap());
    slow.write_at(&content(PAGE, 2), 0).unwrap();
    pager.signal(libc::SIGSTOP);
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Far more than the host has threads.
        for n in 0..150u64 {
            let (slow, done) = (&slow, &done);
            scope.spawn(move || {
                let result = match n % 3 {
                    0 => slow.sync(0, SIZE).map(drop),
                    1 => slow.lock((100 + n) * PAGE as u64, PAGE as u64).map(drop),
                    _ => slow.prefetch((300 + n) * PAGE as u64, PAGE as u64),
                };
                drop(result); // some come so late that the pager goes on by then
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        std::thread::sleep(Duration::from_millis(200));
        let mut rounds = 0;
        let mut slowest = Duration::ZERO;
        while done.load(std::sync::atomic::Ordering::Relaxed) < 70 && rounds < 30 {
            rounds += 1;
            let before = Instant::now();
            good.write_at(&content(PAGE, rounds), rounds * PAGE as u64).unwrap();
            assert!(good.sync(0, SIZE).unwrap() >= 1);
            good.read_at(&mut [0; PAGE], (500 + rounds) * PAGE as u64).unwrap();
            memory.write_at(&[1; PAGE], rounds * PAGE as u64).unwrap();
            memory.sync(0, SIZE).unwrap();
            host.connect().create(&format!("/new/{rounds}"), &plain, None).unwrap();
            slowest = slowest.max(before.elapsed());
        }
        assert!(slowest < DEADLINE, "others were held up for {slowest:?}");
        assert!(rounds > 3);
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
    let slow = host.create("/slow", "/pagers/slow", SIZE, options());
    // All of it dirty.
    slow.write_at(&content(SIZE as usize, 1), 0).unwrap();
    pager.signal(libc::SIGSTOP);
    let plain = CreateOptions { size_bytes: 16 << 20, sync: SyncMode::Ordered, ..CreateOptions::default() };
    let other = Held::new(host.connect().create("/other", &plain, None).unwrap());
    let before = Instant::now();
    other.write_at(&content(16 << 20, 2), 0).unwrap();
    let mut found = vec![0; 16 << 20];
    other.read_at(&mut found, 0).unwrap();
    assert!(found == content(16 << 20, 2));
    println!("{:?}", before.elapsed());
    pager.signal(libc::SIGCONT);
    until("the pager goes on", || slow.sync(0, SIZE).ok());
    let mut found = vec![0; SIZE as usize];
    slow.read_at(&mut found, 0).unwrap();
    assert!(found == content(SIZE as usize, 1));
}
