//! Locks of the kernel that a client can hold for as long as it likes: of its object's memory, by a write whose bytes do
//! not come; of its own address space, by a mapping of a file whose file system does not answer. What the host asks of
//! that memory, or of that address space, waits. Nobody else does.

use commonhold_object::wire::Request;
use commonhold_object::{Access, Name};
use commonhold_tests::fuse::{Fuse, READ};
use commonhold_tests::host::has_ended;
use commonhold_tests::raw::Raw;
use commonhold_tests::stuck::{StuckWrite, holds_address_space};
use commonhold_tests::user::as_user;
use commonhold_tests::{MIB, PAGE, TestHost, Worker, root_or_skip, wait};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// Who attacks.
const MALLORY: u32 = 4203;
/// What nobody else's call takes.
const LONGEST: Duration = Duration::from_secs(5);

/// Does it, and says whether that took no longer than it may.
fn soon(what: &str, job: impl FnOnce()) {
    let start = std::time::Instant::now();
    job();
    assert!(start.elapsed() < LONGEST, "{what} took {:?}", start.elapsed());
}

/// What somebody else does, who needs room that the attacker's frames take.
fn others_go_on(host: &TestHost, victim: &Worker, round: u32) {
    soon("an object of another", || {
        victim.ok(&format!("create o /v{round} size={} controlled mode=600", 8 * MIB));
        victim.all("map v o rw shared 0 0\nfill v 0 2048 1\ncheck v 0 2048 1\nsync o 0 8388608");
        victim.all(&format!("drop v\nclose o\nremove /v{round}"));
    });
    soon("what root asks", || {
        host.command(&["ls", "-l", "/"], |_| {}).expect("root lists");
        host.command(&["host", "status"], |_| {}).expect("root sees the state");
    });
}

/// An object of the attacker that takes most of the budget, and one that has a deadline: so the host looks at all.
fn fill_the_budget(host: &TestHost) -> Worker {
    let attacker = host.worker_of(MALLORY, MALLORY);
    attacker.ok(&format!("create j /jam size={} controlled", 12 * MIB));
    attacker.all("map m j rw shared 0 0\nfill m 0 3072 1");
    attacker.ok("create d /late size=65536 pager=/silent fault-deadline=500 pager-deadline=3600000");
    attacker.ok("map l d rw shared 0 0");
    attacker
}

/// Writes to the last page of that object.
fn write_for_ever(host: &TestHost) -> StuckWrite {
    let mut raw = as_user(MALLORY, || Raw::connect(host));
    let open = Request::Open { name: Name::new("/jam").unwrap(), access: Access::ReadWrite };
    let memory = raw.ask_for(&open).1.remove(0);
    StuckWrite::new(memory, 3071 * PAGE as u64)
}

#[test]
fn a_write_that_waits_holds_up_nobody_else() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::with(&["--budget", "16MiB"]);
    let victim = host.worker_of(MALLORY + 1, MALLORY + 1);
    let attacker = fill_the_budget(&host);
    let stuck = write_for_ever(&host);
    for round in 0..3 {
        others_go_on(&host, &victim, round);
    }
    host.kill_host();
    victim.eventually("list /");
    others_go_on(&host, &victim, 4);
    attacker.send("get m 8192");
    others_go_on(&host, &victim, 3);
    drop(stuck);
    attacker.answer().expect("the page is there when the write is over");
    attacker.all("check m 0 3071 1");
    others_go_on(&host, &victim, 4);
}

/// The host is killed while the kernel is to punch frames for it, which it does when the write is over.
#[test]
fn what_is_done_late_for_a_killed_host_loses_nothing() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::with(&["--budget", "16MiB"]);
    let victim = host.worker_of(MALLORY + 1, MALLORY + 1);
    let attacker = fill_the_budget(&host);
    let stuck = write_for_ever(&host);
    others_go_on(&host, &victim, 0);
    let before = host.status().host_pid;
    host.kill_host();
    victim.eventually("list /");
    drop(stuck);
    wait::until("the killed host ends", || has_ended(before).then_some(()));
    attacker.all("check m 0 3071 1\nfill m 0 3071 2\ncheck m 0 3071 2");
    others_go_on(&host, &victim, 1);
    attacker.ok("check m 0 3071 2");
}

#[test]
fn an_address_space_that_waits_holds_up_nobody_else() {
    if !root_or_skip("mounting FUSE") {
        return;
    }
    let host = TestHost::with(&["--budget", "16MiB"]);
    let victim = host.worker_of(MALLORY + 1, MALLORY + 1);
    let attacker = fill_the_budget(&host);
    let below = host.scratch().join("mounts");
    std::fs::create_dir(&below)
        .and_then(|()| std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o755)))
        .expect("a directory");
    let Some(fuse) = Fuse::mount(&below, MALLORY) else { return };
    fuse.fall_silent(READ);
    // Writes to these pages wait for the host, which has to let them in that address space.
    attacker.ok("create f /frozen size=65536 freezable");
    attacker.all("map f f rw shared 0 0\nfill f 0 16 1\nfreeze f 0 65536");
    attacker.ok(&format!("hold-address-space {}", fuse.file().display()));
    wait::until("the mapping waits", || holds_address_space(attacker.pid()).then_some(()));
    attacker.send("put f 4096 7");
    for round in 0..3 {
        others_go_on(&host, &victim, round);
    }
    host.kill_host();
    victim.eventually("list /");
    others_go_on(&host, &victim, 5);
    fuse.end();
    attacker.answer().expect("the write goes on");
    assert_eq!(attacker.ok("get f 4096"), "7");
    attacker.all("check m 0 3072 1");
    others_go_on(&host, &victim, 6);
}
