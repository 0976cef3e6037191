//! A file of a file system in user space that does not answer, attached to messages: its close waits, and no kill ends that.
//! Nobody else waits for it, and a host that was killed and cannot end is followed by the next one.
//!
//! This file has one test, in a process of its own: see `fuse`.

use commonhold_object::wire::Request;
use commonhold_object::{Access, CreateOptions, Name, ObjectId};
use commonhold_tests::fuse::{FLUSH, Fuse};
use commonhold_tests::host::kill;
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::{TestHost, root_or_skip, user, wait};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;

const USER: u32 = 4242;

#[test]
fn files_that_do_not_answer_hold_nobody_up_and_a_killed_host_is_followed() {
    if !root_or_skip("mounting FUSE") {
        return;
    }
    let host = TestHost::start();
    // All processes are there before the first file is opened.
    let worker = host.worker();
    worker.ok("create o /o size=1048576 controlled mode=600");
    worker.all("map m o rw shared 0 0\nfill m 0 256 1");
    let below = host.scratch().join("mounts");
    std::fs::create_dir(&below)
        .and_then(|()| std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o755)))
        .expect("a directory");
    let Some(fuse) = Fuse::mount(&below, USER) else { return };
    let file = fuse.open();
    fuse.fall_silent(FLUSH);
    let before = host.status();
    let name = || Name::directory("/x").unwrap();
    let options = CreateOptions { size_bytes: 4096, ..CreateOptions::default() };
    let requests = [
        Request::Hello { program: "attack".into() },
        Request::Stat { name: name() },
        Request::Status,
        Request::Open { name: name(), access: Access::Read },
        Request::Create { name: name(), options, nonce: 7 },
        Request::Unmap { address: 0x10_0000, length: 4096 },
        Request::Close { object: ObjectId(1) },
    ];
    let raws: Vec<Raw> = user::as_user(USER, || requests.iter().map(|_| Raw::connect(&host)).collect());
    for (number, (raw, request)) in raws.iter().zip(&requests).enumerate() {
        let fds: Vec<BorrowedFd<'_>> = (0..[1, 3, 30][number % 3]).map(|_| file.as_fd()).collect();
        assert!(raw.throw_many(&bytes_of(9, request), &fds), "it is sent");
        worker.all("check m 0 256 1\nfill m 0 256 2\ncheck m 0 256 2\nfill m 0 256 1");
    }
    wait::until("a close waits for the file system", || (fuse.waiting() > 0).then_some(()));
    let other = host.connect();
    other.status().expect("others are served");
    assert_eq!(host.status().host_pid, before.host_pid, "the host died of it:\n{}", host.log());
    // The host is killed, and cannot end; the next one comes all the same, and has what was kept.
    kill(before.host_pid);
    let after = host.wait_for_other_host(before.host_pid);
    assert_eq!(after.keeper_pid, before.keeper_pid);
    worker.eventually("check m 0 256 1");
    worker.all("fill m 0 256 2\ncheck m 0 256 2\nsync o 0 1048576");
    fuse.end();
    wait::until("the killed host ends at last", || {
        commonhold_tests::host::has_ended(before.host_pid).then_some(())
    });
}
