//! Hosts killed while objects are created, resized, renamed, reverted and removed: each of these has happened or has not.

use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::host::{kill_together, signal};
use commonhold_tests::{MIB, PAGE, TestHost, Worker, page, wait};

/// Kills the host a moment after the worker was asked; gives the answer, which the next host may give.
fn asked_while_the_host_dies(host: &TestHost, worker: &Worker, line: &str, chance: &mut Chance) -> String {
    let before = host.status().host_pid;
    worker.send(line);
    chance.pause(3);
    host.kill_host();
    let answer = worker.answer().unwrap_or_else(|refused| panic!("{line}: {refused:?}"));
    host.wait_for_other_host(before);
    answer
}

/// The frames of the one object, as its keeper has them.
fn frames_of(keeper: u32, bytes: u64) -> std::fs::File {
    let folder = format!("/proc/{keeper}/fd");
    let is_it = |path: &std::path::PathBuf| {
        let memory = std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:"));
        memory && std::fs::metadata(path).is_ok_and(|now| now.len() == bytes)
    };
    let all = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let found = all.filter(is_it).last().expect("the keeper has the frames");
    std::fs::File::options().read(true).write(true).open(found).unwrap()
}

/// A host that dies between two steps of a change leaves frames, book and record of two sizes: the record's is the size.
#[test]
fn a_change_of_size_that_was_cut_short_is_undone_or_done() {
    const BOOKS_SIZE: u64 = 136; // of `live/<id>`
    for (book, frames) in [(MIB / 2, MIB / 2), (2 * MIB, MIB), (2 * MIB, 2 * MIB)] {
        let host = TestHost::start();
        let worker = host.worker();
        worker.ok(&format!("create o /o size={MIB} controlled"));
        worker.all("map m o rw shared 0 0\nfill m 0 256 1");
        let (before, live) = (host.status(), host.state().join("live").join(worker.ok("info o id")));
        signal(before.keeper_pid, libc::SIGSTOP);
        kill_together(&[before.host_pid]);
        frames_of(before.keeper_pid, MIB).set_len(frames).unwrap();
        let file = std::fs::File::options().write(true).open(live).unwrap();
        // The book grows before it says so.
        file.set_len(file.metadata().unwrap().len().next_multiple_of(PAGE as u64) + PAGE as u64).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &book.to_le_bytes(), BOOKS_SIZE).unwrap();
        signal(before.keeper_pid, libc::SIGCONT);
        host.wait_for_other_host(before.host_pid);
        assert_eq!(worker.ok("info o size"), MIB.to_string());
        worker.ok("check m 0 128 1");
        match frames < MIB {
            true => assert_eq!(worker.ok("sum m 128 128"), "0"),
            false => drop(worker.ok("check m 128 128 1")),
        }
        worker.all("fill m 0 256 2\ncheck m 0 256 2");
        assert_eq!(frames_of(before.keeper_pid, MIB).metadata().unwrap().len(), MIB);
        worker.ok(&format!("resize /o {}", 2 * MIB));
        worker.ok(&format!("map n o rw shared 0 {}", 2 * MIB));
        worker.all("check n 0 256 2\nfill n 256 256 3\ncheck n 256 256 3");
    }
}

#[test]
fn resizes() {
    let mut chance = Chance::new("resizes");
    for _ in 0..rounds(16).div_ceil(4) {
        for kind in ["controlled", "file=FILE sync=ordered", "file=FILE sync=atomic", "reserve=no"] {
            let host = TestHost::start();
            let file = host.scratch().file("file", MIB);
            let worker = host.worker();
            worker
                .ok(&format!("create o /o size={MIB} {}", kind.replace("FILE", &file.display().to_string())));
            worker.all("map m o rw shared 0 0\nfill m 0 64 1");
            let mut size = MIB;
            for _ in 0..3 {
                size = (64 + chance.below(400)) * PAGE as u64;
                asked_while_the_host_dies(&host, &worker, &format!("resize /o {size}"), &mut chance);
                assert_eq!(worker.ok("info o size"), size.to_string(), "{kind}");
            }
            let other = host.worker();
            other.all("open o /o rw\nmap m o rw shared 0 0\ncheck m 0 64 1");
            let pages = size / PAGE as u64;
            other.ok(&format!("fill m 0 {pages} 2"));
            worker.ok(&format!("map n o rw shared 0 {size}"));
            worker.ok(&format!("check n 0 {pages} 2"));
            other.refused(&format!("map k o rw shared {size} 4096"), "Invalid");
            if kind.contains("FILE") {
                worker.ok(&format!("sync o 0 {size}"));
                assert_eq!(std::fs::read(&file).unwrap(), page::bytes(0, pages, 2), "{kind}");
            }
            // A page past the end, of a mapping made when there was one.
            if size < MIB {
                worker.dies(&format!("get m {size}"), libc::SIGBUS);
            }
        }
    }
}

#[test]
fn creations_and_removals() {
    let mut chance = Chance::new("creations_and_removals");
    let kinds = ["size=65536", "size=65536 controlled", "file=FILE sync=atomic", "size=1048576 controlled"];
    for round in 0..rounds(16).div_ceil(4) {
        let host = TestHost::start();
        let worker = host.worker();
        let file = host.scratch().file("file", 65536);
        let kind = kinds[round % 4].replace("FILE", &file.display().to_string());
        asked_while_the_host_dies(&host, &worker, &format!("create o /dir/o {kind}"), &mut chance);
        worker.all("map m o rw shared 0 0\ncheck m 0 16 0\nfill m 0 16 1");
        worker.all("drop m\nclose o");
        asked_while_the_host_dies(&host, &worker, "rename /dir/o /o", &mut chance);
        worker.refused("stat /dir/o size", "NotFound");
        worker.all("open o /o rw\nmap m o rw shared 0 0\ncheck m 0 16 1\ndrop m\nclose o");
        asked_while_the_host_dies(&host, &worker, "remove /o", &mut chance);
        worker.refused("open o /o r", "NotFound");
        asked_while_the_host_dies(&host, &worker, "remove /dir", &mut chance);
        assert!(file.exists(), "a backing file is never deleted");
        assert_eq!(worker.ok("list /"), "", "{kind}");
        // A host may take an object for open still that the host before was told of its closing: until the client ends.
        drop(worker);
        wait::until("the object is gone", || (host.status().objects == 0).then_some(()));
        let gone = wait::within(wait::LONG, || left_in(&host).is_empty().then_some(()));
        assert!(gone.is_some(), "{kind}: {:?} is left", left_in(&host));
    }
}

/// Files in the state directory that belong to objects.
fn left_in(host: &TestHost) -> Vec<String> {
    let entries =
        ["spill", "journal", "live"].map(|folder| std::fs::read_dir(host.state().join(folder)).unwrap());
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path().display().to_string());
    paths.filter(|path| !path.contains("/live/clients")).collect()
}

#[test]
fn reverts() {
    let mut chance = Chance::new("reverts");
    for _ in 0..rounds(8).div_ceil(4) {
        for sync in ["atomic", "ordered"] {
            let host = TestHost::start();
            let file = host.scratch().file("file", MIB);
            let worker = host.worker();
            worker.ok(&format!("create o /o file={} sync={sync}", file.display()));
            worker.all("map m o rw shared 0 0\nfill m 0 256 1\nsync o 0 1048576");
            for seed in 2..4 {
                worker.ok(&format!("fill m 0 256 {seed}"));
                asked_while_the_host_dies(&host, &worker, "revert /o", &mut chance);
                worker.ok("check m 0 256 1");
                assert_eq!(std::fs::read(&file).unwrap(), page::bytes(0, 256, 1));
            }
        }
    }
}

#[test]
fn removed_in_use_over_the_death_of_hosts() {
    let host = TestHost::start();
    let file = host.scratch().file("file", 65536);
    let worker = host.worker();
    worker.all("create a /a size=65536 controlled\nmap ma a rw shared 0 0\nfill ma 0 16 1");
    worker.ok(&format!("create f /f file={} sync=atomic", file.display()));
    worker.all("map mf f rw shared 0 0\nfill mf 0 16 2\nremove /a\nremove /f");
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    worker.all("check ma 0 16 1\ncheck mf 0 16 2\nfill ma 0 16 3\ncheck ma 0 16 3\nsync f 0 65536");
    assert_eq!(std::fs::read(&file).unwrap(), page::bytes(0, 16, 2));
    host.kill_both();
    host.start_again().unwrap();
    worker.all("check ma 0 16 3\nfill ma 0 16 4\nmap na a rw shared 0 0\ncheck na 0 16 4");
    worker.all("fill mf 0 16 5\nsync f 0 65536");
    assert_eq!(std::fs::read(&file).unwrap(), page::bytes(0, 16, 5));
    assert_eq!(host.status().objects, 2);
    worker.all("drop ma\ndrop na\ndrop mf\nclose a\nclose f");
    wait::until("they are gone with their last user", || (host.status().objects == 0).then_some(()));
}
