//! A host with just the capabilities of the shipped unit does for other users all that a host does.

use commonhold_attacks::scene::{BYSTANDER, Local, MACHINE};
use commonhold_tests::{is_root, wait};

#[test]
fn the_rights_of_the_unit_are_enough_for_other_users_through_every_death() {
    if !is_root("a host of root, and another user,") {
        return;
    }
    let scene = Local::of(MACHINE);
    let (uid, gid) = BYSTANDER;
    let file = scene.host.scratch().file("theirs", 262_144);
    std::os::unix::fs::chown(&file, Some(uid), Some(gid)).unwrap();
    let worker = scene.host.worker_of(uid, gid);
    worker.ok(&format!("create f /f file={} sync=atomic mode=600", file.display()));
    worker.all("map f f rw shared 0 0\nfill f 0 64 1\nsync f 0 262144");
    worker.all("create a /a size=262144 freezable mode=600\nmap a a rw shared 0 0\nfill a 0 64 2");
    worker.all("lock a 0 65536\nmap t f rw shared 0 0 in-thread\ncheck t 0 64 1");
    let before = scene.host.status();
    scene.host.kill_host();
    let after = scene.host.wait_for_other_host(before.host_pid);
    worker.all("check f 0 64 1\ncheck a 0 64 2\ncheck t 0 64 1\nfill t 0 64 3\nfreeze a 0 262144");
    worker.ok("unlock a 0 65536");
    scene.host.kill_keeper();
    wait::until("another keeper is there", || {
        let keeper = scene.host.status().keeper_pid;
        (keeper != 0 && keeper != after.keeper_pid).then_some(())
    });
    scene.host.kill_both();
    scene.host.start_again().unwrap();
    worker.all("check f 0 64 3\ncheck a 0 64 2\ncheck t 0 64 3\nfill a 0 64 4\nsync f 0 262144");
    assert_eq!(std::fs::read(&file).unwrap(), commonhold_tests::page::bytes(0, 64, 3));
    worker.all("check a 0 64 4\ndrop a\ndrop f\ndrop t");
    // Nobody has it open any more: it is opened again by the path.
    worker.all("close a\nclose f\nremove /a");
    drop(worker);
    scene.host.kill_both();
    scene.host.start_again().unwrap();
    let worker = scene.host.worker_of(uid, gid);
    worker.all("open f /f rw\nmap f f rw shared 0 0\ncheck f 0 64 3");
}
