//! Objects that become empty and grow again while processes have them mapped, and hosts and keepers are killed.

use commonhold_tests::TestHost;
use commonhold_tests::crash::{Chance, Victim, kill_and_recover, rounds};
use commonhold_tests::host::{kill, kill_together};

#[test]
fn an_object_becomes_empty_under_its_mappers() {
    let host = TestHost::start();
    let mut chance = Chance::new("empty objects and kills");
    for kind in ["controlled", "freezable", "sync=ordered", "budget=1048576"] {
        let (first, second) = (host.worker(), host.worker());
        first.ok(&format!("create o /o size=16384 reserve=no {kind}"));
        second.ok("open o /o rw");
        for worker in [&first, &second] {
            worker.ok("map m o rw shared 0 16384");
        }
        for round in 0..rounds(8) {
            let seed = round + 1;
            first.ok(&format!("fill m 0 4 {seed}"));
            second.ok(&format!("check m 0 4 {seed}"));
            // One empties it and lets it grow while the other has it read by the kernel, and everything dies.
            first.send("resize /o 0");
            first.send("resize /o 16384");
            second.send("read-at o 8192 16");
            let before = host.status();
            chance.pause(3);
            match round % 4 {
                0 | 2 => kill(before.host_pid),
                1 => {
                    kill_together(&[before.keeper_pid, before.host_pid]);
                    host.start_again().unwrap();
                }
                _ => kill_and_recover(&host, Victim::Keeper),
            }
            first.answer().unwrap_or_else(|refused| panic!("{kind}, round {round}: {refused:?}"));
            first.answer().unwrap_or_else(|refused| panic!("{kind}, round {round}: {refused:?}"));
            let _ = second.answer(); // refused, or not: both are right
            assert_eq!(second.ok("info o size"), "16384", "{kind}, round {round}");
            for page in 0..4 {
                for worker in [&first, &second] {
                    let at = format!("get m {}", page * 4096);
                    assert_eq!(
                        worker.ok(&at),
                        "0",
                        "{kind}, round {round}: what was cut off does not come back"
                    );
                }
            }
        }
        second.dies_when_empty(&first);
        first.all("resize /o 4096\nclose o\nremove /o\ndrop m");
    }
}

trait Dies {
    fn dies_when_empty(&self, other: &commonhold_tests::Worker);
}

impl Dies for commonhold_tests::Worker {
    /// What is mapped and past the end is SIGBUS.
    fn dies_when_empty(&self, other: &commonhold_tests::Worker) {
        other.ok("resize /o 0");
        self.dies("get m 0", libc::SIGBUS);
    }
}
