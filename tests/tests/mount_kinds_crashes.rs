//! New files of a mount, of every kind, written while those who serve them are killed.

use commonhold_tests::cluster::cluster;
use commonhold_tests::crash::{Chance, Victim, kill_and_recover, rounds};
use commonhold_tests::host::kill;
use commonhold_tests::mounted::Mounted;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn contents(seed: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64 / 5 * 31 + seed * 7) as u8).collect()
}

/// Files are emptied, written and grown, over and over; each time they are read as they were written.
fn rewrite(path: &Path, mut seed: u64, ends: &AtomicBool) {
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
            file.sync_all()
        };
        write().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut has = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(has.len(), length + 5000, "{}", path.display());
        assert!(has.drain(length..).all(|byte| byte == 0), "{}: what is new is zero", path.display());
        assert!(has == wanted, "{}, {length} bytes", path.display());
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
    let ends = AtomicBool::new(false);
    let paths = [0, 1].map(|number| mounted.path(&format!("f{number}")));
    let log = mounted.path("log");
    std::thread::scope(|scope| {
        let writers: Vec<_> = paths
            .iter()
            .zip([0, 1 << 20])
            .map(|(path, seed)| {
                let ends = &ends;
                scope.spawn(move || rewrite(path, seed, ends))
            })
            .collect();
        let appenders: Vec<_> = [0, 1]
            .map(|who| {
                let (log, ends) = (&log, &ends);
                scope.spawn(move || append(log, who, ends))
            })
            .into();
        for round in 0..rounds(6) {
            chance.pause(150);
            if writers.iter().any(|writer| writer.is_finished()) {
                break;
            }
            match round % 3 {
                0 => mounted.kill_server(),
                1 => kill_and_recover(&hosts[1], Victim::Host),
                _ => {
                    let keeper = mounted.keeper();
                    kill(keeper);
                    commonhold_tests::wait::until("another keeps", || {
                        (mounted.keeper() != keeper).then_some(())
                    });
                }
            }
        }
        ends.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap();
        }
        let counts: Vec<usize> = appenders.into_iter().map(|appender| appender.join().unwrap()).collect();
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
#[ignore = "failed once of five runs, on a busy machine: why is not known yet"]
fn direct_ones() {
    goes_on(None);
}

#[test]
fn controlled_ones() {
    goes_on(Some("controlled"));
}

#[test]
#[ignore = "writers get EHOSTDOWN while the next host joins; and a server killed while it ends pages is not replaced (MOUNT.md)"]
fn explicit_ones() {
    goes_on(Some("explicit"));
}

#[test]
fn strict_ones() {
    goes_on(Some("strict"));
}
