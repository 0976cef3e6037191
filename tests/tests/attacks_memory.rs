//! Objects larger than the memory that there is for the host: nobody else notices, and no host dies of one twice.

use commonhold_tests::host::kill;
use commonhold_tests::{MIB, TestHost, root_or_skip, wait};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A control group with a memory limit, removed at the end.
struct Group(PathBuf);

impl Group {
    /// None where no memory controller can be written to: why is printed.
    fn new(name: &str, bytes: u64) -> Option<Group> {
        let own = commonhold_sys::cgroup::own_group();
        let one = [format!("/sys/fs/cgroup/memory{own}"), "/sys/fs/cgroup/memory".into()];
        let two = [format!("/sys/fs/cgroup{own}"), "/sys/fs/cgroup".into()];
        let places = one.iter().map(|p| (p, "memory.limit_in_bytes"));
        let places = places.chain(two.iter().map(|p| (p, "memory.max")));
        for (place, file) in places {
            let group = Group(Path::new(place).join(format!("commonhold-{name}-{}", std::process::id())));
            if std::fs::create_dir(&group.0).is_ok()
                && std::fs::write(group.0.join(file), bytes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        eprintln!("skipped: no control group with a memory limit can be made in {} or {}", one[0], two[0]);
        None
    }

    /// A host in it.
    fn host(&self) -> TestHost {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        TestHost::by(&["sh", "-c", &enter, "sh"], &[])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let gone = wait::within(Duration::from_secs(20), || std::fs::remove_dir(&self.0).ok());
        if gone.is_none() && self.0.exists() {
            eprintln!("{} could not be removed", self.0.display());
        }
    }
}

#[test]
fn what_the_control_group_has_not_is_refused_and_no_host_dies() {
    if !root_or_skip("a control group") {
        return;
    }
    let Some(group) = Group::new("small", 256 * MIB) else { return };
    let host = group.host();
    let status = host.status();
    assert_eq!(status.budget_bytes, 64 * MIB, "a quarter of what the group may have");
    let worker = host.worker();
    let says = worker.refused(&format!("create o /o size={}", 1024 * MIB), "NoSpace");
    assert!(says.contains("the control group"), "{says}");
    worker.ok(&format!("create p /p size={}", 16 * MIB));
    worker.refused(&format!("resize /p {}", 1024 * MIB), "NoSpace");
    let charged = worker.ok("info p charged");
    assert!(charged.contains("the host (") && charged.contains("which took all pages"), "{charged}");
    assert_eq!((host.status().host_pid, host.status().generation), (status.host_pid, status.generation));
    drop(host);
    drop(group);
}

#[test]
fn a_request_of_which_the_host_died_is_answered_and_not_begun_again() {
    let host = TestHost::start();
    let worker = host.worker();
    let size = 512 * MIB;
    // It is killed later and later, until that is in the middle of it.
    for round in 0..200 {
        let before = host.status();
        worker.send(&format!("create o /big size={size}"));
        std::thread::sleep(Duration::from_millis(round));
        kill(before.host_pid);
        let answer = worker.answer();
        let after = host.wait_for_other_host(before.host_pid);
        match answer {
            Ok(_) => worker.all("close o\nremove /big"),
            Err(refused) => {
                assert_eq!(refused.kind, "NoSpace", "{}", refused.message);
                assert!(refused.message.contains("the host was killed while it took"), "{}", refused.message);
                assert_eq!(
                    after.generation,
                    before.generation + 1,
                    "no host died but the one that was killed"
                );
                assert_eq!(worker.ok("list /"), "");
                // Asked for by somebody who knows, it is done.
                worker.all(&format!("create o /big size={size}\nclose o\nremove /big"));
                return;
            }
        }
    }
    panic!("the host was never killed in the middle");
}
