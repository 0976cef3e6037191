//! Host and keeper died at once: what the clients have comes back with them, and nothing is decided before they are
//! all back or dead.

use commonhold_tests::crash::{Victim, kill_and_recover};
use commonhold_tests::host::{kill, signal};
use commonhold_tests::{MIB, TestHost, wait};

#[test]
fn anonymous_objects_come_back_with_whoever_has_them() {
    let host = TestHost::start();
    let size = 2 * MIB;
    let kinds = ["", "controlled", "freezable"];
    let (mapper, opener) = (host.worker(), host.worker());
    for kind in kinds {
        let name = format!("/anonymous{kind}");
        mapper.all(&format!("create {kind}o {name} size={size} {kind}\nmap {kind}m {kind}o rw shared 0 0"));
        mapper.ok(&format!("fill {kind}m 0 512 5"));
        // Open and not mapped any more: what it has is a descriptor of the memory.
        let name = format!("/opened{kind}");
        opener.all(&format!("create {kind}o {name} size={size} {kind}\nmap {kind}m {kind}o rw shared 0 0"));
        opener.all(&format!("fill {kind}m 0 512 6\ndrop {kind}m"));
    }
    for _ in 0..2 {
        kill_and_recover(&host, Victim::Both);
        let other = host.worker();
        for kind in kinds {
            for (name, seed) in [("anonymous", 5), ("opened", 6)] {
                other.all(&format!("open o /{name}{kind} rw\nmap m o rw shared 0 0\ncheck m 0 512 {seed}"));
                other.all("drop m\nclose o");
            }
            mapper.ok(&format!("check {kind}m 0 512 5"));
        }
    }
}

#[test]
fn an_object_without_a_name_comes_back_too_and_ends_with_its_last_mapping() {
    let host = TestHost::start();
    let worker = host.worker();
    worker
        .all(&format!("create o /x size={MIB} controlled\nmap m o rw shared 0 0\nfill m 0 256 3\nremove /x"));
    kill_and_recover(&host, Victim::Both);
    worker.ok("check m 0 256 3");
    assert_eq!(host.status().objects, 1);
    worker.all("fill m 0 256 4\ncheck m 0 256 4\ndrop m\nclose o");
    wait::until("the object ends", || (host.status().objects == 0).then_some(()));
}

#[test]
fn the_log_calls_an_object_without_a_name_by_its_number() {
    let host = TestHost::start();
    let worker = host.worker();
    worker
        .all(&format!("create o /x size={MIB} controlled\nmap m o rw shared 0 0\nfill m 0 256 3\nremove /x"));
    host.kill_both();
    worker.kill();
    host.start_again().unwrap();
    let said = wait::until("the log says what is lost", || {
        host.log().lines().find(|line| line.contains("was anonymous")).map(str::to_owned)
    });
    assert!(said.contains("]: object "), "{said}");
}

#[test]
fn nothing_is_evicted_or_stored_before_the_last_client_is_back() {
    let host = TestHost::start();
    let file = host.scratch().file("file", 4 * MIB).display().to_string();
    let (first, second) = (host.worker(), host.worker());
    first.all(&format!("create o /x file={file} sync=ordered budget={MIB}\nmap m o rw shared 0 0"));
    second.all("open o /x rw\nmap m o rw shared 0 0\nfill m 0 64 7");
    signal(second.pid(), libc::SIGSTOP);
    kill_and_recover(&host, Victim::Both);
    // All of the budget and more: the second one's pages would have to go, and only it knows that they are written.
    first.send("check m 256 768 0");
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(second.pid(), libc::SIGCONT);
    assert_eq!(first.answer().as_deref(), Ok(""));
    second.ok("check m 0 64 7");
    first.ok("check m 0 64 7");
    first.ok(&format!("sync o 0 {}", 4 * MIB));
    host.worker().all("open o /x r\nmap m o r shared 0 0\ncheck m 0 64 7");
}

#[test]
fn an_object_whose_last_client_dies_before_it_came_back_is_lost_and_only_it() {
    let host = TestHost::start();
    let (dies, stays) = (host.worker(), host.worker());
    dies.all(&format!("create o /lost size={MIB} controlled\nmap m o rw shared 0 0\nfill m 0 256 3"));
    stays.all(&format!("create o /kept size={MIB} controlled\nmap m o rw shared 0 0\nfill m 0 256 4"));
    signal(dies.pid(), libc::SIGSTOP);
    kill_and_recover(&host, Victim::Both);
    kill(dies.pid());
    wait::until("the host notices", || (host.status().objects == 1).then_some(()));
    host.worker().refused("open o /lost r", "NotFound");
    host.worker().all("open o /kept r\nmap m o r shared 0 0\ncheck m 0 256 4");
    stays.ok("check m 0 256 4");
}

/// Its page tables, which alone said that it had written, are gone with it.
#[test]
fn what_a_client_wrote_while_nobody_served_is_stored_though_it_died_before_the_next_host() {
    for kind in ["sync=ordered", "sync=atomic", "sync=ordered freezable"] {
        let host = TestHost::start();
        let file = host.scratch().file("stored", MIB);
        let (writer, other) = (host.worker(), host.worker());
        writer.all(&format!("create o /x size={MIB} file={} {kind}\nmap m o rw shared 0 0", file.display()));
        other.all("open o /x rw\nmap m o rw shared 0 0");
        writer.all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
        other.ok("check m 0 256 1");
        // Written again, so that page tables let it be written once more without a word.
        writer.ok("fill m 0 16 2");
        host.kill_both();
        writer.ok("fill m 0 16 3");
        writer.kill();
        host.start_again().unwrap();
        other.all(&format!("check m 0 16 3\nsync o 0 {MIB}"));
        let stored = std::fs::read(&file).unwrap();
        assert!(stored[..16 * 4096] == commonhold_tests::page::bytes(0, 16, 3), "{kind}");
    }
}
