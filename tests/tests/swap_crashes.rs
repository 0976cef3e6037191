//! Wired objects of several classes that take turns in memory, while hosts are killed.

use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::host::kill;
use commonhold_tests::huge::HugePages;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, is_root};

/// A user's quota counts what is in memory with its arena, and what is on disk by itself, wherever a host is killed.
#[test]
fn kills_while_classes_take_turns_leave_quotas_as_they_were() {
    if !is_root("processes of another user") {
        return;
    }
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::with(&["--quota", "9MiB"]);
    let mut chance = Chance::new("swaps and kills");
    let worker = host.worker_of(65534, 65534);
    let size = 2 * MIB;
    for name in ["/a/w", "/b/w"] {
        worker.all(&format!(
            "create o {name} size={size} wired\nmap m o rw shared 0 0\nfill m 0 512 {}",
            name.len()
        ));
        worker.all("drop m\nclose o");
    }
    for round in 0..rounds(8) {
        let name = ["/a/w", "/b/w"][round % 2];
        let before = host.status().host_pid;
        worker.send(&format!("open o {name} rw"));
        chance.pause(12);
        kill(before);
        worker.answer().unwrap();
        host.wait_for_other_host(before);
        worker.all("map m o rw shared 0 0\ncheck m 0 512 4\nno-faults m 0 512\ndrop m\nclose o");
        // One lies in an arena, and the other on disk: 4 MiB of 9, when the arena that was left has ended.
        until("there is room for another", || {
            worker.ask("create-nameless probe size=4194304 reserve=yes").ok()
        });
        worker.ok("close probe");
        let spilled = std::fs::read_dir(host.state().join("spill")).unwrap().count();
        assert!(spilled <= 1, "round {round}: {spilled} files for one object on disk");
    }
}
