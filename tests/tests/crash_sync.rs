//! What a crash leaves of syncs: all of one or nothing of it, locks and freezes that were pending, and what is dropped
//! or kept after the last death.

use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::host::{kill, kill_together};
use commonhold_tests::ledger::Ledger;
use commonhold_tests::page::{WORDS, mix};
use commonhold_tests::{PAGE, TestHost, wait};
use std::path::Path;
use std::time::Duration;

/// The versions of the counted pages in a file, which must all be the same.
fn version_in(file: &Path) -> u64 {
    let content = std::fs::read(file).unwrap();
    let word = |page: usize, index: usize| {
        let at = page * PAGE + index * 8;
        u64::from_le_bytes(content[at..at + 8].try_into().unwrap())
    };
    let version = word(0, 0);
    for page in 0..content.len() / PAGE {
        for index in [0, WORDS / 2, WORDS - 2] {
            assert_eq!(
                word(page, index),
                version,
                "page {page} of a torn sync (page 0 has version {version})"
            );
        }
        let sum = if version == 0 { 0 } else { mix(version, page as u64) };
        assert_eq!(word(page, WORDS - 1), sum, "page {page} is torn itself");
    }
    version
}

/// A writer syncs one version of all pages after the other, until everything there is dies at once.
#[test]
fn an_atomic_sync_is_whole_or_not_there() {
    let mut chance = Chance::new("an_atomic_sync_is_whole_or_not_there");
    for _ in 0..rounds(24) {
        let host = TestHost::start();
        let file = host.scratch().file("stored", 300 * PAGE as u64);
        let path = host.scratch().join("ledger");
        let ledger = Ledger::open(&path, 1);
        let writer = host.worker();
        let budget = ["", " budget=1048576"][chance.below(2) as usize];
        writer.ok(&format!("create o /whole file={} sync=atomic{budget}", file.display()));
        writer.ok("map m o rw shared 0 0");
        writer.ok(&format!("round m o 300 {}", path.display()));
        wait::until("some syncs are done", || (ledger.get(0).0 > 2).then_some(()));
        chance.pause(60);
        let status = host.status();
        kill_together(&[status.keeper_pid, status.host_pid, writer.pid()]);
        let (done, begun) = ledger.get(0);
        host.start_again().unwrap();
        // The host redid the journal before it answered, or does so when the object is opened.
        let reader = host.worker();
        reader.ok("open o /whole r");
        let version = version_in(&file);
        assert!(
            (done..=begun).contains(&version),
            "version {version} is stored, after {done} and before {begun}"
        );
        reader.ok("map m o r shared 0 0");
        assert_eq!(reader.ok("get m 0"), (version & 0xff).to_string());
    }
}

/// The host alone dies, again and again; syncs that were under way are answered by the next.
#[test]
fn syncs_go_on_over_the_death_of_hosts() {
    let mut chance = Chance::new("syncs_go_on_over_the_death_of_hosts");
    for _ in 0..rounds(16).div_ceil(4) {
        let host = TestHost::start();
        for (name, kind) in [("/atomic", "atomic"), ("/ordered", "ordered")] {
            let file = host.scratch().file(kind, 200 * PAGE as u64);
            let path = host.scratch().join(&format!("ledger-{kind}"));
            let ledger = Ledger::open(&path, 1);
            let writer = host.worker();
            writer.ok(&format!("create o {name} file={} sync={kind}", file.display()));
            writer.ok("map m o rw shared 0 0");
            writer.ok(&format!("round m o 200 {}", path.display()));
            for _ in 0..2 {
                let before = ledger.get(0).0;
                wait::until("syncs go on", || (ledger.get(0).0 > before + 2).then_some(()));
                chance.pause(30);
                host.kill_host();
            }
            let before = ledger.get(0).0;
            wait::until("syncs go on", || (ledger.get(0).0 > before + 2).then_some(()));
            writer.ok("halt");
            // Nobody writes now: the last sync that was answered is what the file shows.
            assert_eq!(version_in(&file), ledger.get(0).0, "{kind}");
        }
    }
}

#[test]
fn locks_outlive_the_host_and_go_with_their_holder() {
    let host = TestHost::start();
    let file = host.scratch().file("locked", 64 * PAGE as u64);
    let holder = host.worker();
    holder.ok(&format!("create o /locked file={} sync=ordered budget=1048576", file.display()));
    holder.all("map m o rw shared 0 0\nfill m 0 64 1\nlock o 0 32768");
    let before = host.status().host_pid;
    kill(before);
    host.wait_for_other_host(before);
    assert_eq!(&holder.ok("incore o 0 40960"), "ddddddddDD");
    let other = host.worker();
    other.all("open o /locked rw\nmap m o rw shared 0 0\ncheck m 0 64 1");
    // Not his to let go.
    other.refused("unlock o 0 4096", "Invalid");
    holder.kill();
    wait::until("the locks of a killed holder go", || {
        (other.ok("incore o 0 40960") == "DDDDDDDDDD").then_some(())
    });
    assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 0), "nothing was stored");
    assert_eq!(other.ok("sync o 0 262144"), "64");
}

#[test]
fn a_lock_waits_for_the_next_host() {
    let mut chance = Chance::new("a_lock_waits_for_the_next_host");
    for _ in 0..rounds(6) {
        let host = TestHost::start();
        let file = host.scratch().file("locked", 2048 * PAGE as u64);
        let worker = host.worker();
        worker.ok(&format!("create o /locked file={} sync=ordered", file.display()));
        worker.ok("map m o rw shared 0 0");
        worker.send("lock o 0 8388608");
        chance.pause(8);
        host.kill_host();
        worker.answer().expect("locked");
        let states = worker.ok("incore o 0 8388608");
        assert!(states.chars().all(|c| c == 'c'), "{states:?}");
        worker.all("unlock o 0 8388608\nfill m 0 2048 3\ncheck m 0 2048 3");
    }
}

#[test]
fn a_killed_host_lets_go_of_frozen_writers() {
    let mut chance = Chance::new("a_killed_host_lets_go_of_frozen_writers");
    for _ in 0..rounds(6) {
        let host = TestHost::start();
        let file = host.scratch().file("frozen", 1024 * PAGE as u64);
        let path = host.scratch().join("ledger");
        let ledger = Ledger::open(&path, 1024);
        let worker = host.worker();
        worker.ok(&format!("create o /frozen file={} sync=atomic freezable", file.display()));
        worker.ok("map m o rw shared 0 0");
        worker.ok(&format!("count m 0 1 1024 {} 2", path.display()));
        let progress = || (0..1024).map(|page| ledger.get(page).0).sum::<u64>();
        worker.send("freeze o 0 4194304");
        chance.pause(10);
        host.kill_host();
        worker.answer().expect("frozen and thawed");
        let before = progress();
        wait::until("writers go on", || (progress() > before + 100).then_some(()));
        worker.ok("halt");
        worker.ok(&format!("counted m 0 1 1024 {}", path.display()));
    }
}

/// The last process that maps an object is killed: what it had not synced is kept, or dropped.
#[test]
fn after_the_last_death() {
    let host = TestHost::start();
    for (sync, death) in
        [("atomic", "keep"), ("ordered", "keep"), ("atomic", "revert"), ("ordered", "revert")]
    {
        let name = format!("/{sync}/{death}");
        let file = host.scratch().file(&format!("{sync}-{death}"), 16 * PAGE as u64);
        let writer = host.worker();
        writer.ok(&format!("create o {name} file={} sync={sync} death={death}", file.display()));
        writer.all("map m o rw shared 0 0\nfill m 0 16 1\nsync o 0 65536\nfill m 4 2 2");
        let stored = std::fs::read(&file).unwrap();
        writer.kill();
        let next = host.worker();
        let wanted = if death == "keep" { "8192" } else { "0" };
        wait::until("the death was noticed", || {
            (next.ok(&format!("stat {name} mappings")) == "0").then_some(())
        });
        wait::until("pages are compared, or dropped", || {
            (next.ok(&format!("stat {name} dirty")) == wanted).then_some(())
        });
        next.ok(&format!("open o {name} rw"));
        next.ok("map m o rw shared 0 0");
        assert_eq!(std::fs::read(&file).unwrap(), stored, "the file has what was synced last");
        if death == "keep" {
            next.all("check m 4 2 2\ncheck m 0 4 1");
            assert_eq!(next.ok(&format!("revert {name}")), "2");
        }
        next.ok("check m 0 16 1");
        assert_eq!(next.ok("sync o 0 65536"), "0");
    }
}

#[test]
fn what_others_map_stays_when_a_writer_is_killed() {
    let host = TestHost::start();
    let file = host.scratch().file("kept", 16 * PAGE as u64);
    let (writer, other) = (host.worker(), host.worker());
    writer.ok(&format!("create o /kept file={} sync=atomic death=revert", file.display()));
    writer.all("map m o rw shared 0 0\nfill m 0 16 1");
    other.all("open o /kept rw\nmap m o rw shared 0 0\nfill m 8 1 2");
    writer.kill();
    other.all("check m 0 8 1\ncheck m 8 1 2\ncheck m 9 7 1");
    assert_eq!(other.ok("sync o 0 65536"), "16");
    assert_eq!(std::fs::read(&file).unwrap()[..PAGE], commonhold_tests::page::bytes(0, 1, 1));
}

#[test]
fn anonymous_objects_without_a_client_are_lost_with_host_and_keeper_and_only_they() {
    let host = TestHost::start();
    let (user, direct_user, maker) = (host.worker(), host.worker(), host.worker());
    user.all("create o /used size=65536 controlled\nmap m o rw shared 0 0\nfill m 0 16 1");
    direct_user.all("create o /direct size=65536\nmap m o rw shared 0 0\nfill m 0 16 2");
    let file = host.scratch().file_of("file", &commonhold_tests::page::bytes(0, 16, 3));
    maker.ok(&format!("create f /file file={} sync=atomic", file.display()));
    maker.all("create a /alone size=65536 controlled\nmap m a rw shared 0 0\nfill m 0 16 4");
    maker.all("create b /alone-direct size=65536\nmap n b rw shared 0 0\nfill n 0 16 4");
    maker.kill();
    wait::until("the maker's end is noticed", || (user.ok("stat /alone mappings") == "0").then_some(()));
    host.kill_both();
    host.start_again().unwrap();
    let next = host.worker();
    next.ok("open f /file r");
    next.ok("map f f r shared 0 0");
    next.ok("check f 0 16 3");
    next.ok("open o /used rw");
    next.all("map m o rw shared 0 0\ncheck m 0 16 1\nfill m 0 1 5");
    user.ok("check m 0 1 5");
    next.refused("open a /alone rw", "NotFound");
    next.refused("open b /alone-direct rw", "NotFound");
    direct_user.ok("check m 0 16 2");
    assert_eq!(direct_user.ok("info o size"), "65536");
    next.ok("open d /direct rw");
    next.all("map d d rw shared 0 0\ncheck d 0 16 2\nfill d 3 1 9");
    direct_user.ok("check m 3 1 9");
    let log = host.log();
    assert!(log.contains("/alone was anonymous"), "{log}");
}

#[test]
fn a_stopped_client_keeps_its_object_busy_and_loses_nothing() {
    let host = TestHost::start();
    let user = host.worker();
    user.all("create o /used size=65536 controlled\nmap m o rw shared 0 0\nfill m 0 16 1");
    host_signal(user.pid(), 19);
    host.kill_both();
    host.start_again().unwrap();
    let next = host.worker();
    next.send("open o /used r");
    assert!(next.answer_within(Duration::from_secs(2)).is_none(), "opened without the one who has its pages");
    // Others are served meanwhile.
    let other = host.worker();
    other.all("create o /other size=65536 controlled\nmap m o rw shared 0 0\nfill m 0 16 2");
    host_signal(user.pid(), 18);
    // Told to try again if the other came back too late for its patience.
    if let Err(refused) = next.answer() {
        assert_eq!(refused.kind, "Busy", "{}", refused.message);
        wait::until("it opens", || next.ask("open o /used r").ok());
    }
    next.all("map m o r shared 0 0\ncheck m 0 16 1");
    user.ok("check m 0 16 1");
}

fn host_signal(pid: u32, signal: i32) {
    commonhold_tests::host::signal(pid, signal);
}
