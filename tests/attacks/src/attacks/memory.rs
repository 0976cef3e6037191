//! Objects larger than the memory that there is for the host: nobody else notices, and no host dies
//! of one twice.

use super::{KILLED, user_of, with};
use crate::Attack;
use crate::scene::{Local, Machine};
use commonhold_tests::MIB;
use commonhold_tests::host::kill;

/// On a small machine the quota of a user would be in the way first.
const UNLIMITED: Machine = with(&["--quota", "1TiB"]);

pub(crate) const ATTACKS: &[Attack] = &[
    user_of(
        Machine { group_bytes: Some(256 * MIB), ..UNLIMITED },
        "memory.larger_than_the_group",
        "an object larger than the host's control group, made or resized",
        larger_than_the_group,
    ),
    user_of(
        Machine { options: UNLIMITED.options, ..KILLED },
        "memory.asked_again",
        "have the next host begin again what the one before was killed for",
        asked_again,
    ),
];

fn larger_than_the_group(scene: &Local) {
    let status = scene.host.status();
    assert_eq!(status.budget_bytes, 64 * MIB, "a quarter of what the group may have");
    let worker = scene.attacker();
    let says = worker.refused(&format!("create o /o size={}", 1024 * MIB), "NoSpace");
    assert!(says.contains("the control group"), "{says}");
    worker.ok(&format!("create p /p size={}", 16 * MIB));
    worker.refused(&format!("resize /p {}", 1024 * MIB), "NoSpace");
    let charged = worker.ok("info p charged");
    assert!(charged.contains("the host (") && charged.contains("which took all pages"), "{charged}");
    assert_eq!(scene.host.status().generation, status.generation);
}

fn asked_again(scene: &Local) {
    let (host, worker) = (&scene.host, scene.attacker());
    let create = format!("create o /big size={}", 512 * MIB);
    // It is killed later and later, until that is in the middle of it.
    for round in 0..200 {
        let before = host.status();
        worker.send(&create);
        std::thread::sleep(std::time::Duration::from_millis(round));
        kill(before.host_pid);
        let answer = worker.answer();
        let after = host.wait_for_other_host(before.host_pid);
        match answer {
            Ok(_) => worker.all("close o\nremove /big"),
            Err(refused) => {
                assert_eq!(refused.kind, "NoSpace", "{}", refused.message);
                assert!(refused.message.contains("the host was killed while it took"), "{}", refused.message);
                let one_more = before.generation + 1;
                assert_eq!(after.generation, one_more, "another host died than the one that was killed");
                assert_eq!(worker.ok("list /"), "/bystander");
                // Asked for by somebody who knows, it is done.
                worker.all(&format!("{create}\nclose o\nremove /big"));
                return;
            }
        }
    }
    panic!("the host was never killed in the middle");
}
