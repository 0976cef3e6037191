//! What host and keeper hold of descriptors, threads and memory: when an attacker is gone, and all
//! that it had made, they hold what they held before.

use commonhold::EntryInfo;
use commonhold_tests::{MIB, TestHost, wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Threads that come with work and stay for the next: of the host's pools, and the one that closes
/// for a user. They leave when they have had nothing to do for 5 s; where there is always something
/// to do, as among members, each gets some of it.
const MORE_THREADS: u64 = 96;
/// Descriptors that come and go with the bystander's and the suite's own connections, and pipes by
/// which pages are evicted: four for each user with an object, of whom there are up to four.
const MORE_DESCRIPTORS: u64 = 24;
/// Memory that the allocator keeps for the next request.
const MORE_BYTES: u64 = 24 * MIB;
/// What the list may hold of the names of one host, and what the allocator keeps of that.
const NAMES_BYTES: u64 = 64 * MIB;

/// Whether the attacker is this very process.
static STAYS: AtomicBool = AtomicBool::new(false);

/// This process has become a client, with memory that the host serves: what it holds it holds until
/// it ends, and is not looked at.
pub fn stays() {
    STAYS.store(true, Ordering::Relaxed);
}

/// What they hold at one time.
#[derive(Debug)]
pub struct Held {
    objects: u64,
    clients: u64,
    mappings: u64,
    resident_bytes: u64,
    host: Process,
    keeper: Process,
}

#[derive(Debug)]
struct Process {
    descriptors: u64,
    threads: u64,
    /// Memory of its own, which no file or object has.
    bytes: u64,
}

impl Process {
    fn of(pid: u32) -> Process {
        let entries = |what| std::fs::read_dir(format!("/proc/{pid}/{what}")).expect(what).count() as u64;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Process {
            descriptors: entries("fd"),
            threads: entries("task"),
            bytes: kib.expect("its memory") * 1024,
        }
    }

    fn is_as(&self, before: &Process, more_bytes: u64) -> bool {
        self.descriptors <= before.descriptors + MORE_DESCRIPTORS
            && self.threads <= before.threads + MORE_THREADS
            && self.bytes <= before.bytes + more_bytes
    }
}

impl Held {
    /// Looks.
    pub fn by(host: &TestHost) -> Held {
        let status = host.status();
        Held {
            objects: status.objects,
            clients: status.clients,
            mappings: status.mappings,
            resident_bytes: status.resident_bytes,
            host: Process::of(status.host_pid),
            keeper: Process::of(status.keeper_pid),
        }
    }

    fn is_as(&self, before: &Held) -> bool {
        self.objects <= before.objects
            && self.clients <= before.clients
            && self.mappings <= before.mappings
            && self.resident_bytes <= before.resident_bytes
            && self.has_processes_as(before, MORE_BYTES)
    }

    fn has_processes_as(&self, before: &Held, more_bytes: u64) -> bool {
        self.host.is_as(&before.host, more_bytes) && self.keeper.is_as(&before.keeper, more_bytes)
    }
}

/// Removes all objects but the bystander's; then the host holds what it held before.
pub fn returns_to(before: &Held, host: &TestHost) {
    until_is(before, host, |now| {
        // What an attacker asked last may be done after it is gone.
        remove_below(&host.connect(), "/");
        now.is_as(before)
    });
}

/// Host and keeper of a member hold what they held before, but for objects, and for names of a
/// member that was not lost yet.
pub fn processes_return_to(before: &Held, host: &TestHost) {
    until_is(before, host, |now| now.has_processes_as(before, NAMES_BYTES));
}

fn until_is(before: &Held, host: &TestHost, is_as: impl Fn(&Held) -> bool) {
    if STAYS.load(Ordering::Relaxed) {
        return;
    }
    let (since, mut pause) = (Instant::now(), Duration::from_millis(10));
    loop {
        let now = Held::by(host);
        if is_as(&now) {
            return;
        }
        assert!(since.elapsed() < wait::LONG, "something stays: {now:?} after {before:?}");
        // Threads of a pool leave when they have had nothing to do for a while: who looks often
        // gives them something.
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_secs(2));
    }
}

fn remove_below(root: &commonhold::Host, directory: &str) {
    for entry in root.list(directory).expect("root may list") {
        let Some(name) = entry.name().map(ToString::to_string) else { continue };
        if name == "/bystander" {
            continue;
        }
        if matches!(entry, EntryInfo::Directory { .. }) {
            remove_below(root, &name);
        }
        root.remove(&name).unwrap_or_else(|error| panic!("{name} cannot be removed: {error}"));
    }
}
