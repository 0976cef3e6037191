//! Snapshots of snapshots, in any order, against copies: nothing that a version shows is ever another's.

use commonhold::{CreateOptions, Host, Object, PagerKind, SnapshotOptions, SyncMode};
use commonhold_tests::stranger::Numbers;
use commonhold_tests::{MIB, PAGE, TestHost};
use std::fs::File;
use std::os::fd::AsFd;

const PAGES: u64 = 600;

/// A version as it is to be, page by page.
struct Version {
    name: String,
    object: Object,
    pages: Vec<u32>,
    is_written: bool,
    has_name: bool,
}

struct World {
    host: TestHost,
    client: Host,
    numbers: Numbers,
    versions: Vec<Version>,
    next: u32,
}

fn bytes(value: u32) -> Vec<u8> {
    value.to_le_bytes().repeat(PAGE / 4)
}

impl World {
    fn new(seed: u64, options: CreateOptions, on_file: bool) -> World {
        let host = TestHost::start();
        let client = host.connect();
        let size_bytes = PAGES * PAGE as u64;
        let pager = if on_file { PagerKind::File } else { PagerKind::Anonymous };
        let options = CreateOptions { size_bytes, freezable: true, pager, ..options };
        let path = host.scratch().path().join("file");
        let file = on_file.then(|| {
            let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
            file.set_len(size_bytes).expect("it is sparse");
            file
        });
        let object = client.create("/a", &options, file.as_ref().map(AsFd::as_fd)).expect("it is made");
        let pages = vec![0; PAGES as usize];
        let first = Version { name: "/a".into(), object, pages, is_written: true, has_name: true };
        World { host, client, numbers: Numbers(seed), versions: vec![first], next: 1 }
    }

    fn any(&mut self) -> usize {
        self.numbers.below(self.versions.len() as u64) as usize
    }

    fn part(&mut self, of: usize) -> (u64, u64) {
        let pages = self.versions[of].pages.len() as u64;
        let first = self.numbers.below(pages);
        (first, 1 + self.numbers.below((pages - first).min(64)))
    }

    fn step(&mut self) {
        let one = self.any();
        match self.numbers.below(20) {
            0..10 if self.versions[one].is_written => {
                let (first, count) = self.part(one);
                self.next += 1;
                let version = &mut self.versions[one];
                let bytes = bytes(self.next).repeat(count as usize);
                version.object.write_at(&bytes, first * PAGE as u64).expect("it is written");
                version.pages[first as usize..(first + count) as usize].fill(self.next);
            }
            10..14 if self.versions.len() < 12 => self.snapshot(one),
            14..16 if self.versions.len() > 3 => self.remove(one),
            16..18 => {
                let (first, count) = self.part(one);
                self.look(one, first, count);
            }
            18 => drop(self.versions[one].object.sync(0, 4096 * 8)),
            _ => self.look_at_all(),
        }
    }

    fn snapshot(&mut self, of: usize) {
        let whole = self.numbers.below(3) != 0;
        let (first, count) = match self.versions[of].pages.len() as u64 {
            pages if whole => (0, pages),
            _ => self.part(of),
        };
        self.next += 1;
        let name = format!("/snapshot-{}", self.next);
        let options = SnapshotOptions {
            offset: first * PAGE as u64,
            length: Some(count * PAGE as u64),
            writable: self.numbers.below(2) == 0,
            whole: self.numbers.below(4) == 0,
            ..SnapshotOptions::default()
        };
        let object = self.versions[of].object.snapshot(&name, &options).expect("a snapshot");
        let pages = self.versions[of].pages[first as usize..(first + count) as usize].to_vec();
        self.versions.push(Version { name, object, pages, is_written: options.writable, has_name: true });
    }

    /// Its name goes, and with its last user it goes.
    fn remove(&mut self, one: usize) {
        if self.versions[one].has_name {
            self.client.remove(&self.versions[one].name).expect("it has a name");
            self.versions[one].has_name = false;
        }
        if self.numbers.below(2) == 0 {
            self.versions.swap_remove(one);
        }
    }

    fn look(&self, one: usize, first: u64, count: u64) {
        let version = &self.versions[one];
        let mut found = vec![0; count as usize * PAGE];
        version.object.read_at(&mut found, first * PAGE as u64).expect("it is read");
        for (page, found) in (first..).zip(found.chunks(PAGE)) {
            let expected = version.pages[page as usize];
            let shown = u32::from_le_bytes(found[..4].try_into().expect("four bytes"));
            assert!(found == bytes(expected), "{} page {page}: {shown}, not {expected}", version.name);
        }
    }

    fn look_at_all(&self) {
        for one in 0..self.versions.len() {
            self.look(one, 0, self.versions[one].pages.len() as u64);
        }
    }

    fn kill_host(&self) {
        let before = self.host.status().host_pid;
        self.host.kill_host();
        self.host.wait_for_other_host(before);
    }
}

fn run(seeds: std::ops::Range<u64>, steps: u64, options: CreateOptions, on_file: bool, kills: bool) {
    for seed in seeds {
        let mut world = World::new(seed, options.clone(), on_file);
        for step in 0..steps {
            world.step();
            if kills && step % 50 == 49 {
                world.kill_host();
            }
        }
        world.look_at_all();
    }
}

#[test]
fn of_memory() {
    run(0..2, 300, CreateOptions::default(), false, false);
}

#[test]
fn of_more_than_there_is_room_for() {
    run(4..5, 200, CreateOptions { budget_bytes: Some(MIB), ..CreateOptions::default() }, false, false);
}

#[test]
fn of_files() {
    run(7..8, 150, CreateOptions { sync: SyncMode::Atomic, ..CreateOptions::default() }, true, false);
    let options =
        CreateOptions { sync: SyncMode::Ordered, budget_bytes: Some(MIB), ..CreateOptions::default() };
    run(9..10, 150, options, true, false);
}

#[test]
fn while_hosts_are_killed() {
    run(11..12, 300, CreateOptions::default(), false, true);
    let options =
        CreateOptions { sync: SyncMode::Ordered, budget_bytes: Some(MIB), ..CreateOptions::default() };
    run(13..14, 300, options, true, true);
}
