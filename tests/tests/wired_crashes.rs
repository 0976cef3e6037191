//! Wired objects while hosts, keepers and clients are killed, stopped and out of disk. Every object lies where nobody else does, has
//! what was written to it, and leaves nothing behind.

use commonhold::{CreateOptions, MapFlags, Protection, Sharing, Translation, classical};
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, Name};
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::host::{kill, kill_together, signal, stop};
use commonhold_tests::huge::HugePages;
use commonhold_tests::raw::Raw;
use commonhold_tests::scratch::RamDisk;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, Scratch, TestHost, Worker, left_out};
use std::collections::BTreeMap;

const KIB: u64 = 1024;

/// Arena, offset and length of an object. None: it has memory of its own.
fn place(worker: &Worker, name: &str) -> Option<(u64, u64, u64)> {
    let said = worker.ok(&format!("stat {name} place"));
    let (arena, offset) = said.split_once(' ')?;
    let size = worker.ok(&format!("stat {name} size")).parse().unwrap();
    Some((arena.parse().unwrap(), offset.parse().unwrap(), size))
}

fn overlap(one: Option<(u64, u64, u64)>, other: Option<(u64, u64, u64)>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    one.0 == other.0 && one.1 < other.1 + other.2 && other.1 < one.1 + one.2
}

/// Objects of 256 KiB that fill an arena, each with its number in it; nobody has one open.
fn eight(worker: &Worker) {
    for number in 0..8 {
        worker.all(&format!(
            "create o /w{number} size={} wired\nmap m o rw shared 0 0\nfill m 0 64 {}\ndrop m\nclose o",
            256 * KIB,
            number + 1
        ));
    }
}

/// No arena is left, and all pages of the pool are free.
fn nothing_is_left(host: &TestHost, pool: &HugePages, pages: u64) {
    let worker = host.worker();
    until("the arenas are gone", || (!worker.ok("list /").contains(".arena-")).then_some(()));
    until("the pages come back", || (pool.free() >= pages).then_some(()));
    let live = std::fs::read_dir(host.state().join("live")).unwrap().flatten();
    let left: Vec<_> = live.filter(|entry| entry.file_name().to_string_lossy().contains("wired")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Who was forked maps what the parent had, and outlives it: a daemon does. The object is not given to others meanwhile.
#[test]
fn a_child_that_outlives_its_parent_keeps_its_objects() {
    let Some(pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let (parent, other) = (host.worker(), host.worker());
    parent.all("create o /w1 size=262144 wired\nmap m o rw shared 0 0\nfill m 0 64 1");
    let before = place(&other, "/w1");
    let child: u32 = parent.ok("orphan 120000 address m").parse().unwrap();
    parent.kill();
    other.ok("create keeps /w2 size=4096 wired");
    until("the parent has left", || (other.ok("stat /w1 opens") == "1").then_some(()));
    for change in ["chmod /w1 600", "rename /w1 /d/w1"] {
        other.refused(change, "Busy");
    }
    other.all("remove /w1\ncreate o /w3 size=262144 wired");
    assert!(!overlap(place(&other, "/w3"), before), "the child has it mapped");
    kill(child);
    other.all("close o\nremove /w3\nclose keeps\nremove /w2");
    nothing_is_left(&host, &pool, 2);
}

/// A process whose connection is gone has its mappings still.
#[test]
fn who_hung_up_and_lives_keeps_its_objects() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    worker.all("create o /w1 size=262144 wired\ncreate p /w2 size=262144 wired\nclose o");
    let before = place(&worker, "/w1");
    let mut raw = Raw::connect(&host);
    raw.ask(&Request::Hello { program: "raw".into() }, &[]).unwrap().unwrap();
    let open = Request::Open { name: Name::new("/w1").unwrap(), access: Access::ReadWrite };
    let (reply, memory) = raw.ask_for(&open);
    assert!(matches!(reply, Reply::Opened(_)));
    drop(raw);
    for _ in 0..20 {
        worker.ok("info p size");
    }
    worker.all("remove /w1\ncreate o /w3 size=262144 wired");
    assert!(!overlap(place(&worker, "/w3"), before), "this process has it mapped");
    drop(memory);
}

/// After host and keeper died, what a client has that is not back yet stays where it is.
#[test]
fn what_is_expected_back_does_not_move() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let (first, second) = (host.worker(), host.worker());
    eight(&first);
    second.all("open o /w2 rw\nmap m o rw shared 0 0");
    first.all("open anchor /w0 rw\nmap anchor anchor rw shared 0 0");
    let before = place(&first, "/w2");
    stop(&[second.pid()]);
    host.kill_both();
    host.start_again().unwrap();
    first.eventually("info anchor size");
    // Now w2 would be the one that moves.
    for number in [1, 3, 5, 7] {
        first.ok(&format!("remove /w{number}"));
    }
    let said = first.ask(&format!("resize /w2 {}", 768 * KIB));
    assert_eq!(place(&first, "/w2").map(|p| (p.0, p.1)), before.map(|p| (p.0, p.1)), "{said:?}");
    for number in [10, 11] {
        first.ok(&format!("create o{number} /w{number} size={} wired", 512 * KIB));
        assert_eq!(place(&first, "/w2"), before);
        first.all(&format!("map m{number} o{number} rw shared 0 0\nfill m{number} 0 128 {number}"));
    }
    signal(second.pid(), libc::SIGCONT);
    second.eventually("info o size");
    second.ok("check m 0 64 3");
    second.ok("fill m 0 64 33");
    for number in [10, 11] {
        first.ok(&format!("check m{number} 0 128 {number}"));
    }
    first.ok("check anchor 0 64 1");
}

/// Whatever others do at the same time: creation makes room or takes ordinary pages, and no place is lost.
#[test]
fn many_at_once_come_and_go() {
    let Some(pool) = HugePages::more(8) else { return };
    let host = TestHost::start();
    let mut chance = Chance::new("wired objects that come and go");
    let workers = Worker::start_many(host.state(), 6);
    for _ in 0..rounds(60) {
        let mut sent = Vec::new();
        for (number, worker) in workers.iter().enumerate() {
            for object in 0..6 {
                let name = format!("/{number}-{object}");
                let lines = match chance.below(6) {
                    0..=2 => vec![
                        format!("create o {name} size={} wired", (1 + chance.below(160)) * 4 * KIB),
                        format!("close {}", if chance.below(2) == 0 { "o" } else { "-" }),
                    ],
                    3 => vec![format!("remove {name}")],
                    4 => vec![format!("chmod {name} {}", if chance.below(2) == 0 { 600 } else { 644 })],
                    _ => vec![format!("resize {name} {}", (1 + chance.below(200)) * 4 * KIB)],
                };
                for line in lines {
                    worker.send(&line);
                    sent.push((worker, line));
                }
            }
        }
        for (worker, line) in sent {
            if let Err(refused) = worker.answer() {
                let is_said = matches!(
                    (refused.kind.as_str(), line.split(' ').next()),
                    ("Busy", Some("chmod" | "resize")) | ("NoSpace", _) | ("Exists", Some("create"))
                ) || refused.kind == "NotFound" && refused.message.contains("there is no");
                let create =
                    line.starts_with("create") && refused.kind != "Exists" && refused.kind != "NoSpace";
                assert!(is_said && !create, "{line}: {refused:?}");
            }
        }
    }
    let all: Vec<String> = workers[0].ok("list /").split(' ').map(str::to_owned).collect();
    let names: Vec<&String> = all.iter().filter(|name| !name.contains(".arena")).collect();
    let places: Vec<_> = names.iter().map(|name| place(&workers[0], name)).collect();
    for (number, one) in places.iter().enumerate() {
        for (other, two) in places[..number].iter().enumerate() {
            assert!(!overlap(*one, *two), "{} and {}: {one:?} {two:?}", names[number], names[other]);
        }
    }
    for name in names {
        workers[0].ok(&format!("remove {name}"));
    }
    drop(workers);
    nothing_is_left(&host, &pool, 8);
}

/// What an object is to have.
#[derive(Clone, Debug)]
struct Known {
    size: u64,
    /// So many pages have this; the others are zero.
    filled: u64,
    seed: u64,
}

/// A line, what its object is afterwards (none: it is gone), and its name, if that is another.
type Asked = (String, Option<Known>, Option<String>);

impl Known {
    fn is_resized(&mut self, size: u64) {
        self.size = size;
        self.filled = self.filled.min(size / 4096);
    }
}

fn check_all(host: &TestHost, known: &BTreeMap<String, Known>, what: &str) {
    let worker = host.worker();
    let mut places = Vec::new();
    for (name, object) in known {
        let open = worker.ask(&format!("open o {name} rw"));
        if open.as_ref().is_err_and(|refused| refused.kind == "NoSpace") {
            continue; // after a chmod it has to move, and another test has taken the machine's huge pages
        }
        assert!(open.is_ok(), "{what}: {name}: {open:?}, {object:?}");
        worker.ok("map m o rw shared 0 0");
        assert_eq!(worker.ok("info o size"), object.size.to_string(), "{what}: {name}");
        let has = worker.ask(&format!("check m 0 {} {}", object.filled, object.seed));
        assert!(has.is_ok(), "{what}: {name}: {has:?}, {object:?}");
        for page in object.filled..object.size / 4096 {
            assert_eq!(worker.ok(&format!("get m {}", page * 4096)), "0", "{what}: {name}, page {page}");
        }
        worker.all("drop m\nclose o");
    }
    // Only now: an object that is opened may have moved others.
    for name in known.keys() {
        let at = place(&worker, name);
        let taken = places.iter().find(|(_, other)| overlap(at, *other));
        assert!(taken.is_none(), "{what}: {name} at {at:?}, {taken:?}");
        places.push((name, at));
    }
}

/// Two clients make, fill, resize, rename, chmod and remove objects while host, or host and keeper, are killed at some moment of it.
#[test]
fn kills_at_any_moment_change_nothing() {
    let Some(pool) = HugePages::more(16) else { return };
    let host = TestHost::start();
    let mut chance = Chance::new("wired objects and kills");
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let workers = [host.worker(), host.worker()];
    let directories = ["/", "/a/", "/b/c/"];
    let mut seed = 0;
    for round in 0..rounds(40) {
        let both = round % 4 == 3;
        // Each client has names of its own, so that what it does has one outcome.
        let mut sent: Vec<Vec<Asked>> = vec![Vec::new(), Vec::new()];
        let mut created: Vec<String> = Vec::new();
        let mut held = Vec::new();
        // What nobody has open dies with the two.
        for (number, name) in known.keys().enumerate().filter(|_| both) {
            if workers[0].ask(&format!("open held{number} {name} rw")).is_ok() {
                workers[0].ok(&format!("map held{number} held{number} rw shared 0 0"));
                held.push((number, name.clone()));
            }
        }
        for (number, worker) in workers.iter().enumerate() {
            let mut seen: Vec<String> = Vec::new();
            for _ in 0..4 {
                let name = format!("{}{number}-{}", directories[chance.below(3) as usize], chance.below(4));
                if seen.contains(&name) {
                    continue;
                }
                seen.push(name.clone());
                let size = (1 + chance.below(100)) * 4096;
                let (line, after, moved) = match known.get(&name) {
                    None => {
                        let line = format!("create - {name} size={size} wired mode=644");
                        (line, Some(Known { size, filled: 0, seed: 0 }), None)
                    }
                    Some(_) if chance.below(4) == 0 => (format!("remove {name}"), None, None),
                    Some(object) => match chance.below(3) {
                        0 => {
                            let mut after = object.clone();
                            after.is_resized(size);
                            (format!("resize {name} {size}"), Some(after), None)
                        }
                        1 => {
                            let mode = if chance.below(2) == 0 { 600 } else { 644 };
                            (format!("chmod {name} {mode}"), Some(object.clone()), None)
                        }
                        _ => {
                            let to = format!(
                                "{}{number}-{}",
                                directories[chance.below(3) as usize],
                                chance.below(4)
                            );
                            if known.contains_key(&to) || seen.contains(&to) {
                                continue;
                            }
                            seen.push(to.clone());
                            (format!("rename {name} {to}"), Some(object.clone()), Some(to))
                        }
                    },
                };
                worker.send(&line);
                if line.starts_with("create") {
                    created.push(name.clone());
                    worker.send("close -");
                }
                sent[number].push((line, after, moved));
            }
        }
        let before = host.status();
        chance.pause(6);
        if both {
            kill_together(&[before.keeper_pid, before.host_pid]);
            host.start_again().unwrap();
        } else {
            kill(before.host_pid);
        }
        let mut died: Vec<String> = Vec::new();
        for (worker, sent) in workers.iter().zip(sent) {
            for (line, after, moved) in sent {
                let answer = worker.answer();
                if line.starts_with("create") {
                    worker.answer().unwrap();
                }
                let name =
                    line.split(' ').nth(if line.starts_with("create") { 2 } else { 1 }).unwrap().to_owned();
                match (answer, after) {
                    (Ok(_), None) => drop(known.remove(&name)),
                    (Ok(_), Some(after)) => {
                        known.remove(&name);
                        known.insert(moved.unwrap_or(name), after);
                    }
                    (Err(refused), _) => {
                        // What was closed just when the host died may count as open.
                        // There may be no pages for what has to move, and what the two died with is not always there at once.
                        let may_be = match line.split(' ').next() {
                            Some("create") => both && refused.kind == "Lost",
                            Some("remove") => false,
                            _ => {
                                ["Busy", "NoSpace"].contains(&&*refused.kind)
                                    || both && refused.kind == "Lost"
                            }
                        };
                        assert!(may_be, "round {round}: {line}: {refused:?}");
                        if line.starts_with("create") {
                            died.push(name);
                        }
                    }
                }
            }
        }
        host.wait_for_other_host(before.host_pid);
        workers.iter().for_each(|worker| drop(worker.eventually("list /"))); // they have brought what they have
        for (number, _) in &held {
            workers[0].all(&format!("drop held{number}\nclose held{number}"));
        }
        // An object that died with the two before its maker heard of it may have its name still.
        for name in died {
            let _ = workers[0].ask(&format!("remove {name}")); // else there is none
        }
        // What was made just before the two died, and closed, died with them.
        known.retain(|name, _| {
            let is_held = held.iter().any(|(_, other)| other == name) && !created.contains(name);
            !both || is_held || workers[0].ask(&format!("stat {name} size")).is_ok()
        });
        check_all(&host, &known, &format!("round {round}, both {both}"));
        // Some are written anew.
        for (name, object) in &mut known {
            if chance.below(2) == 0 && workers[0].ask(&format!("open f {name} rw")).is_ok() {
                seed += 1;
                (object.filled, object.seed) = (object.size / 4096, seed);
                workers[0].all(&format!(
                    "map f f rw shared 0 0\nfill f 0 {} {seed}\ndrop f\nclose f",
                    object.filled
                ));
            }
        }
    }
    for name in known.keys() {
        workers[0].ok(&format!("remove {name}"));
    }
    let list = |directory: &str| workers[0].ask(&format!("list {directory}")).unwrap_or_default();
    until("no arena is left", || {
        ["/", "/a", "/b/c"].iter().all(|directory| !list(directory).contains(".arena")).then_some(())
    });
    nothing_is_left(&host, &pool, 16);
}

/// Where the disk is full nothing can be noted: what was is as it was, and what is removed goes.
#[test]
fn a_full_disk_leaves_objects_where_they_are() {
    let Some(pool) = HugePages::more(2) else { return };
    let disk = match RamDisk::new(64) {
        Ok(disk) => disk,
        Err(why) => return left_out(&why),
    };
    let host = TestHost::at(Scratch::new(), disk.path().join("state"), &[]);
    let worker = host.worker();
    eight(&worker);
    for number in [1, 3, 5, 7] {
        worker.ok(&format!("remove /w{number}"));
    }
    let ballast = disk.use_up(0);
    for line in ["create o /new size=786432 wired", "create o /new size=4096 wired", "resize /w2 786432"] {
        let said = worker.ask(line);
        assert!(said.as_ref().err().is_none_or(|refused| refused.kind == "NoSpace"), "{line}: {said:?}");
        let _ = worker.ask("close o");
    }
    let before = host.status().host_pid;
    std::fs::remove_file(&ballast).unwrap();
    let ballast = disk.use_up(0);
    for number in [0, 4, 6] {
        let other = host.worker();
        other.all(&format!("open o /w{number} rw\nmap m o rw shared 0 0\ncheck m 0 64 {}", number + 1));
    }
    std::fs::remove_file(ballast).unwrap();
    host.kill_host();
    host.wait_for_other_host(before);
    for number in [0, 2, 4, 6] {
        let other = host.worker();
        other.all(&format!("open o /w{number} rw\nmap m o rw shared 0 0\ncheck m 0 64 {}", number + 1));
    }
    for name in worker.eventually("list /").split(' ').filter(|name| !name.contains(".arena")) {
        worker.ok(&format!("remove {name}"));
    }
    nothing_is_left(&host, &pool, 2);
    assert!(host.processes().len() <= 2 && MIB > 0);
}

/// Whether something is mapped there in this process.
fn is_mapped(address: *mut u8) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-')).any(|(start, end)| {
        let [start, end] = [start, end].map(|word| usize::from_str_radix(word, 16).unwrap());
        (start..end).contains(&(address as usize))
    })
}

/// Each of two mappings of one object ends by itself; so do those of threads that come and go at once.
#[test]
fn mappings_of_one_object_end_apart() {
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let connection = host.connect();
    let options =
        CreateOptions { size_bytes: 65536, translation: Translation::Wired, ..CreateOptions::default() };
    let object = connection.create("/w1", &options, None).unwrap();
    let map = |offset: u64, length: usize| {
        let (protection, sharing, flags) = (Protection::ReadWrite, Sharing::Shared, MapFlags::default());
        classical::map(std::ptr::null_mut(), length, protection, sharing, flags, &object, offset).unwrap()
    };
    let (first, part, second) = (map(0, 65536), map(8192, 8192), map(0, 65536));
    classical::unmap(first, 65536).unwrap();
    assert!(is_mapped(part) && is_mapped(second), "another mapping of it was unmapped");
    classical::sync(second, 65536).unwrap();
    classical::unmap(part, 8192).unwrap();
    assert!(is_mapped(second));
    classical::sync(second, 65536).unwrap();
    std::thread::scope(|scope| {
        for number in 0..3 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..50 {
                    let address = map(number * 4096, 16384);
                    // SAFETY: within the mapping, which no other thread unmaps.
                    let counter = unsafe { std::sync::atomic::AtomicU8::from_ptr(address) };
                    counter.store(round, std::sync::atomic::Ordering::SeqCst);
                    classical::unmap(address, 16384).unwrap();
                }
            });
        }
    });
    assert!(is_mapped(second));
    classical::unmap(second, 65536).unwrap();
}

/// Of an arena that nobody brings back all is lost, and nothing of it stays in the way.
#[test]
fn an_arena_that_nobody_brings_back_is_lost_with_all_in_it() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let (first, second) = (host.worker(), host.worker());
    eight(&first);
    second.all("open o /w2 rw\nmap m o rw shared 0 0");
    stop(&[second.pid()]);
    host.kill_both();
    host.start_again().unwrap();
    assert!(first.eventually("list /").contains("/w7"), "it may come back");
    second.kill();
    until("all of it is lost", || first.ok("list /").is_empty().then_some(()));
    nothing_is_left(&host, &pool, 1);
}

/// Who only touches what he has mapped, and calls nothing, keeps nobody waiting for the arena.
#[test]
fn an_idle_client_brings_its_arena_back() {
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let (first, second) = (host.worker(), host.worker());
    eight(&first);
    second.all("open o /w2 rw\nmap m o rw shared 0 0");
    host.kill_both();
    host.start_again().unwrap();
    first.eventually("list /");
    first.all("open o /w5 rw\nmap m o rw shared 0 0\ncheck m 0 64 6");
    second.all("check m 0 64 3\nno-faults m 0 64");
}

/// Another program takes over while objects are open, and others lie between them.
#[test]
fn an_upgrade_leaves_all_where_it_is() {
    let Some(pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let (first, second) = (host.worker(), host.worker());
    eight(&first);
    second.all("open o /w2 rw\nmap m o rw shared 0 0");
    first.ok("remove /w4");
    let before = place(&first, "/w2");
    for words in [["host", "upgrade"], ["host", "restart"]] {
        let pid = host.status().host_pid;
        host.command(&words, |_| {}).unwrap();
        host.wait_for_other_host(pid);
        assert_eq!(place(&first, "/w2"), before);
        second.all("check m 0 64 3\nno-faults m 0 64");
        first.refused("chmod /w2 600", "Busy");
        first.all("create o /w4 size=262144 wired\nmap m o rw shared 0 0");
        assert_eq!(first.ok("get m 262143"), "0");
        first.all("fill m 0 64 44\ndrop m\nclose o\nremove /w4");
        for number in [0, 1, 2, 3, 5, 6, 7] {
            first.all(&format!(
                "open o /w{number} r\nmap m o r shared 0 0\ncheck m 0 64 {}\ndrop m\nclose o",
                number + 1
            ));
        }
    }
    second.all("drop m\nclose o");
    for number in [0, 1, 2, 3, 5, 6, 7] {
        first.ok(&format!("remove /w{number}"));
    }
    nothing_is_left(&host, &pool, 2);
}

/// Children are forked while threads write; each is a client of its own, and goes.
#[test]
fn a_storm_of_children_leaves_nothing() {
    let Some(pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    for number in 0..40 {
        worker.ok(&format!("create o{number} /w{number} size=40960 wired"));
        worker.ok(&format!("map m{number} o{number} rw shared 0 0"));
    }
    for round in 0..rounds(20) {
        let (number, round) = (round % 40, round + 1);
        worker.ok(&format!("fill m{number} 0 10 {round}"));
        for what in [format!("no-faults m{number} 0 10"), format!("check m{number} 0 10 {round}")] {
            assert_eq!(worker.ok(&format!("fork _exit {what}")), "code 0", "{what}");
        }
        if round % 5 == 0 {
            host.kill_host();
            let code = worker.ok(&format!("fork exit check m{number} 0 10 {round}"));
            assert_eq!(code, "code 0", "the host has just died");
        }
    }
    let children: Vec<u32> = (0..8).map(|_| worker.ok("orphan 60000 address m0").parse().unwrap()).collect();
    children.iter().for_each(|pid| kill(*pid));
    for number in 0..40 {
        worker.all(&format!("drop m{number}\nclose o{number}\nremove /w{number}"));
    }
    nothing_is_left(&host, &pool, 2);
}
