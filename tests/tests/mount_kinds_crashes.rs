//! New files of a mount, of every kind, written while those who serve them are killed.

use commonhold_tests::cluster::{cluster, sharers_of};
use commonhold_tests::crash::{Chance, Victim, kill_and_recover, rounds};
use commonhold_tests::host::kill;
use commonhold_tests::mounted::Mounted;
use commonhold_tests::wait::{LONG, until, within};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a sync says of what was lost.
const EIO: i32 = 5;

fn contents(seed: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64 / 5 * 31 + seed * 7) as u8).collect()
}

/// Files are emptied, written and grown, over and over; each time they are read as they were
/// written. `may_lose`: what a server had of it that died is lost, and the sync says so; then all
/// is written again. `done`: how often all was as it should be.
fn rewrite(path: &Path, mut seed: u64, may_lose: bool, done: &AtomicU64, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        seed += 1;
        let length = 1 + (seed as usize * 7919) % 150_000;
        let wanted = contents(seed, length);
        let write = || {
            let mut file = std::fs::File::create(path)?;
            let (first, second) = wanted.split_at(length / 2);
            file.write_all(first)?;
            file.write_all(second)?;
            file.set_len(length as u64 + 5000)?;
            Ok(file)
        };
        let file = write().unwrap_or_else(|error: std::io::Error| panic!("{}: {error}", path.display()));
        match file.sync_all() {
            Err(error) if may_lose && error.raw_os_error() == Some(EIO) => continue,
            synced => synced.unwrap_or_else(|error| panic!("{}: sync: {error}", path.display())),
        }
        let mut has = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(has.len(), length + 5000, "{}", path.display());
        assert!(has.drain(length..).all(|byte| byte == 0), "{}: what is new is zero", path.display());
        assert!(has == wanted, "{}, {length} bytes", path.display());
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Several append to one file, whole lines each.
fn append(path: &Path, who: usize, ends: &AtomicBool) -> usize {
    let mut count = 0;
    let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
    while !ends.load(Ordering::Relaxed) {
        file.write_all(format!("{who} {count:010}\n").as_bytes()).unwrap();
        count += 1;
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    count
}

fn goes_on(kind: Option<&str>) {
    let hosts = cluster(2);
    let words: Vec<&str> = kind.iter().flat_map(|kind| ["--new-files", kind]).collect();
    let Some(mounted) = Mounted::with(&hosts[1], &words) else { return };
    let mut chance = Chance::new("files of a mount and kills");
    let (done, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    // What is appended and not synced may be lost there.
    let may_lose = kind == Some("explicit");
    let paths = [0, 1].map(|number| mounted.path(&format!("f{number}")));
    let log = mounted.path("log");
    std::thread::scope(|scope| {
        let writers: Vec<_> = paths
            .iter()
            .zip([0, 1 << 20])
            .map(|(path, seed)| {
                let (done, ends) = (&done, &ends);
                scope.spawn(move || rewrite(path, seed, may_lose, done, ends))
            })
            .collect();
        let appenders: Vec<_> = [0, 1]
            .iter()
            .filter(|_| !may_lose)
            .map(|who| {
                let (log, ends) = (&log, &ends);
                scope.spawn(move || append(log, *who, ends))
            })
            .collect();
        let mut goes_on = true;
        for round in 0..rounds(6) {
            chance.pause(150);
            if !goes_on || writers.iter().any(|writer| writer.is_finished()) {
                break;
            }
            match round % 3 {
                0 => mounted.kill_server(),
                1 => kill_and_recover(&hosts[1], Victim::Host),
                _ => mounted.kill_keeper(),
            }
            let before = done.load(Ordering::Relaxed);
            goes_on = within(LONG, || {
                let ended = writers.iter().any(|writer| writer.is_finished());
                (ended || done.load(Ordering::Relaxed) > before).then_some(())
            })
            .is_some();
        }
        ends.store(true, Ordering::Relaxed);
        if !goes_on {
            mounted.unmount(&["--abort", "--lazy"]).unwrap();
        }
        assert!(goes_on, "who writes waits for ever");
        for writer in writers {
            writer.join().unwrap();
        }
        let counts: Vec<usize> = appenders.into_iter().map(|appender| appender.join().unwrap()).collect();
        if may_lose {
            return;
        }
        let text = std::fs::read_to_string(&log).unwrap();
        let mut next = [0; 2];
        for line in text.lines() {
            let (who, count) = line.split_once(' ').unwrap_or_else(|| panic!("{kind:?}: {line:?}"));
            let who: usize = who.parse().unwrap_or_else(|_| panic!("{kind:?}: {line:?}"));
            assert_eq!(count.parse(), Ok(next[who]), "{kind:?}: {line:?}");
            next[who] += 1;
        }
        assert_eq!(next.to_vec(), counts, "{kind:?}");
    });
}

#[test]
fn direct_ones() {
    goes_on(None);
}

#[test]
fn controlled_ones() {
    goes_on(Some("controlled"));
}

#[test]
fn explicit_ones() {
    goes_on(Some("explicit"));
}

#[test]
fn strict_ones() {
    goes_on(Some("strict"));
}

/// Whether a thread of the server is in the kernel, which it tells of a change, and waits there for
/// a page that is being written.
fn waits_for_a_page(server: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten().flatten();
    let waits = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.contains("(tells-kernel) D ")
    };
    threads.into_iter().any(waits)
}

/// A program writes a page by calls. Each server that takes over ends the kernel's copy of that
/// page, and has to answer the call that the one before did not answer. As soon as the kernel waits
/// for the one to end the other, it is killed.
#[test]
fn a_server_that_is_killed_while_it_ends_a_page_is_replaced() {
    const CAUGHT: usize = 2;
    let hosts = cluster(2);
    let Some(mounted) = Mounted::of(&hosts[1]) else { return };
    let workers = sharers_of(&hosts[..1], "/x", "size=1048576 explicit");
    let path = mounted.path("x");
    let open = || OpenOptions::new().read(true).write(true).open(&path).ok();
    let file = until("it is opened", open);
    let (written, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let more = || {
        let before = written.load(Ordering::Relaxed);
        within(LONG, || (written.load(Ordering::Relaxed) > before + 20).then_some(())).is_some()
    };
    let caught = || mounted.says("killed, and cannot end");
    let (goes_on, outcome) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                file.write_all_at(&[1], 5)?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            std::io::Result::Ok(())
        });
        let mut goes_on = more();
        for _ in 0..30 {
            let said = mounted.says("goes on with the mount");
            let server = mounted.server();
            within(Duration::from_millis(50), || waits_for_a_page(server).then_some(()));
            kill(server);
            let next = || (mounted.says("goes on with the mount") > said).then_some(());
            goes_on = goes_on && within(LONG, next).is_some();
            if !goes_on || caught() >= CAUGHT {
                break;
            }
        }
        goes_on = goes_on && more();
        ends.store(true, Ordering::Relaxed);
        if !goes_on {
            mounted.unmount(&["--abort", "--lazy"]).unwrap();
        }
        (goes_on, writer.join().unwrap())
    });
    drop(workers);
    assert!(goes_on, "who writes waits for a server that was killed, and is not replaced");
    outcome.unwrap();
    assert!(caught() >= CAUGHT, "no server was killed in the moment that is meant");
}

/// The first write of a program is as long as a request can be. The server, which has read none so
/// long before, is killed while it reads that: the next one has it.
#[test]
fn a_server_that_is_killed_while_it_reads_a_request_is_replaced() {
    const LENGTH: usize = 256 * 1024;
    let hosts = cluster(1);
    let mut chance = Chance::new("a server is killed while it reads a request");
    for round in 0..rounds(100) {
        let Some(mounted) = Mounted::of(&hosts[0]) else { return };
        let file = std::fs::File::create(mounted.path("x")).unwrap();
        let (server, pause) = (mounted.server(), Duration::from_micros(chance.below(400)));
        let writes = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                writes.store(true, Ordering::Relaxed);
                file.write_all_at(&[1; LENGTH], 0)
            });
            while !writes.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            let begun = Instant::now();
            while begun.elapsed() < pause {
                std::hint::spin_loop();
            }
            kill(server);
            writer.join().unwrap()
        });
        outcome.unwrap_or_else(|error| panic!("round {round}, killed after {pause:?}: {error}"));
    }
}
