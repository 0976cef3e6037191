//! What a client attaches to its messages may wait for whoever closes it last (a socket that
//! lingers, a file whose file system does not answer): nobody else waits for that, not the host,
//! not its keeper, not who replaces them.

use super::{KILLED, user, user_of, with};
use crate::scene::{ATTACKER, Local, Until, name, others_go_on};
use crate::{Attack, leave_out};
use commonhold_object::wire::Request;
use commonhold_object::{Access, CreateOptions, ObjectId, PagerKind, SessionId};
use commonhold_sys::process::pidfd;
use commonhold_tests::fuse::{FLUSH, Fuse};
use commonhold_tests::host::{kill, signal};
use commonhold_tests::lingering::Lingering;
use commonhold_tests::raw::{Raw, bytes_of, map_request};
use commonhold_tests::{Worker, host, wait};
use rustix::fs::OFlags;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const ATTACKS: &[Attack] = &[
    user("closing.on_any_message", "sockets that linger, on each message", on_any_message),
    user_of(
        with(&["--max-clients", "8"]),
        "closing.in_queues",
        "sockets that linger, in queues of connections that end or are refused",
        in_queues,
    ),
    user_of(KILLED, "closing.while_replaced", "the same, while host and keeper are replaced", while_replaced),
    user_of(
        KILLED,
        "closing.files_that_do_not_answer",
        "files of a file system that does not answer, held by a host that is killed",
        files_that_do_not_answer,
    ),
    user("closing.a_userfaultfd_that_waits", "a userfaultfd whose reads wait for ever", userfaultfd),
];

/// A client that goes on working.
fn busy(scene: &Local) -> Worker {
    let worker = scene.other();
    worker.ok("create o /o size=1048576 controlled mode=600");
    worker.all("map m o rw shared 0 0\nfill m 0 256 1");
    worker
}

/// Others are served, connect and create.
fn goes_on(scene: &Local, worker: &Worker) {
    worker.all("check m 0 256 1\nfill m 0 256 2\ncheck m 0 256 2\nfill m 0 256 1");
    others_go_on(scene);
}

fn sockets_of(pid: u32) -> usize {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
    let links = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// The bystander, who works here, and who asks.
fn until_they_are_forgotten(scene: &Local) {
    wait::until("they are forgotten", || (scene.host.status().clients <= 3).then_some(()));
}

/// Requests with which descriptors may come, and others.
fn requests() -> Vec<Request> {
    let map = map_request(ObjectId(1), 0x10_0000, 4096);
    let file = CreateOptions { pager: PagerKind::File, size_bytes: 4096, ..CreateOptions::default() };
    vec![
        Request::Hello { program: "attack".into() },
        Request::Create { name: name("/x"), options: file, nonce: 7, in_directory: false },
        Request::Open { name: name("/x"), access: Access::Read },
        Request::Close { object: ObjectId(1) },
        Request::Stat { name: name("/x") },
        Request::Resize { name: name("/x"), size_bytes: 4096, of: None },
        Request::Remove { name: name("/x"), of: None },
        Request::Map(map),
        Request::Unmap { address: 0x10_0000, length: 4096 },
        Request::Sync { object: ObjectId(1), offset: 0, length: 4096, freeze: false },
        Request::Prefetch { object: ObjectId(1), offset: 0, length: 4096 },
        Request::Status,
        Request::Return { session: SessionId(7) },
        Request::Reattach { object: ObjectId(1), access: Access::ReadWrite },
    ]
}

fn on_any_message(scene: &Local) {
    let worker = busy(scene);
    let pid = scene.host.status().host_pid;
    let before = sockets_of(pid);
    // Of its user no more is taken while too much waits.
    let is_closed = || wait::until("all of it is closed", || (sockets_of(pid) <= before + 2).then_some(()));
    for (number, request) in (10..).zip(requests()) {
        for count in [1, 3, 16, 253] {
            let mut lingering = Lingering::new(count.min(3));
            let raw = scene.raw();
            assert!(raw.throw_many(&bytes_of(number, &request), &lingering.descriptors(count)), "it is sent");
            lingering.let_go();
            if count < 16 {
                assert!(raw.answer_to(number).is_some(), "no answer to {request:?}");
            }
        }
        worker.all("check m 0 256 1\nfill m 0 256 1");
        is_closed();
    }
    // What is no message at all.
    let mut lingering = Lingering::new(3);
    for bytes in [&[][..], b"garbage", &[7; 200_000]] {
        scene.raw().throw_many(bytes, &lingering.descriptors(253));
    }
    lingering.let_go();
    goes_on(scene, &worker);
    is_closed();
}

/// Sends a message that ends the connection, and then what lingers as long as what this gives,
/// which nobody reads.
fn leave_in_queue(raw: &Raw) -> Lingering {
    assert!(raw.throw(b"garbage", &[]), "it is sent");
    let mut lingering = Lingering::new(2);
    for count in [1, 5, 20] {
        assert!(raw.throw_many(b"nobody reads this", &lingering.descriptors(count)), "it is sent");
    }
    lingering.let_go();
    lingering
}

/// More connections than a host has threads for what is urgent.
const MANY: usize = 40;

fn in_queues(scene: &Local) {
    let worker = busy(scene);
    let pid = scene.host.status().host_pid;
    for round in 0..3 {
        host::stop(&[pid]);
        // More than there are places for, and all of them leave something behind.
        let raws: Vec<Raw> = (0..12).map(|_| scene.raw()).collect();
        let lingering: Vec<Lingering> = raws.iter().map(leave_in_queue).collect();
        if round > 0 {
            drop(raws);
        }
        signal(pid, libc::SIGCONT);
        worker.all("check m 0 256 1\nfill m 0 256 1");
        until_they_are_forgotten(scene);
        drop(lingering);
    }
    goes_on(scene, &worker);
}

fn while_replaced(scene: &Local) {
    let (host, worker) = (&scene.host, busy(scene));
    for kills_keeper in [false, true, false] {
        let before = host.status();
        host::stop(&[before.host_pid]);
        let raws: Vec<Raw> = (0..MANY).map(|_| scene.raw()).collect();
        let lingering: Vec<Lingering> = raws.iter().map(leave_in_queue).collect();
        if kills_keeper {
            signal(before.host_pid, libc::SIGCONT);
            kill(before.keeper_pid);
            wait::until("another keeper is there", || {
                (![0, before.keeper_pid].contains(&host.status().keeper_pid)).then_some(())
            });
            assert_eq!(host.status().host_pid, before.host_pid, "the host died, too:\n{}", host.log());
        } else {
            kill(before.host_pid);
            let after = host.wait_for_other_host(before.host_pid);
            assert_eq!(after.keeper_pid, before.keeper_pid, "the keeper died, too:\n{}", host.log());
        }
        worker.eventually("check m 0 256 1");
        drop(raws);
        goes_on(scene, &worker);
        until_they_are_forgotten(scene);
        drop(lingering);
    }
    let before = host.status();
    kill(before.host_pid);
    host.wait_for_other_host(before.host_pid);
    worker.all("check m 0 256 1\nfill m 0 256 2\ncheck m 0 256 2");
}

fn files_that_do_not_answer(scene: &Local) {
    // All processes are there before the first file is opened: see `fuse`.
    let (host, worker) = (&scene.host, busy(scene));
    let below = host.scratch().join("mounts");
    std::fs::create_dir(&below)
        .and_then(|()| std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o755)))
        .expect("a directory");
    let Some(fuse) = Fuse::mount(&below, ATTACKER.0) else { leave_out("FUSE cannot be mounted here") };
    let file = fuse.open();
    fuse.fall_silent(FLUSH);
    let before = host.status();
    let options = CreateOptions { size_bytes: 4096, ..CreateOptions::default() };
    let requests = [
        Request::Hello { program: "attack".into() },
        Request::Stat { name: name("/x") },
        Request::Status,
        Request::Open { name: name("/x"), access: Access::Read },
        Request::Create { name: name("/x"), options, nonce: 7, in_directory: false },
        Request::Unmap { address: 0x10_0000, length: 4096 },
        Request::Close { object: ObjectId(1) },
    ];
    let raws: Vec<Raw> = requests.iter().map(|_| scene.raw()).collect();
    for (number, (raw, request)) in raws.iter().zip(&requests).enumerate() {
        let fds: Vec<BorrowedFd<'_>> = (0..[1, 3, 30][number % 3]).map(|_| file.as_fd()).collect();
        assert!(raw.throw_many(&bytes_of(9, request), &fds), "it is sent");
        worker.all("check m 0 256 1\nfill m 0 256 2\ncheck m 0 256 2\nfill m 0 256 1");
    }
    wait::until("a close waits for the file system", || (fuse.waiting() > 0).then_some(()));
    host.connect().status().expect("others are served");
    assert_eq!(host.status().host_pid, before.host_pid, "the host died of it:\n{}", host.log());
    // The host is killed, and cannot end; the next one comes all the same, and has what was kept.
    kill(before.host_pid);
    let after = host.wait_for_other_host(before.host_pid);
    assert_eq!(after.keeper_pid, before.keeper_pid);
    worker.eventually("check m 0 256 1");
    worker.all("fill m 0 256 2\ncheck m 0 256 2\nsync o 0 1048576");
    fuse.end();
    wait::until("the killed host ends at last", || host::has_ended(before.host_pid).then_some(()));
}

/// A descriptor of another process, by its number there: one description with the original.
fn descriptor_of(pid: u32, number: i32) -> OwnedFd {
    let process = pidfd(pid).expect("the process");
    pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).expect("its descriptor")
}

fn userfaultfds_of(pid: u32) -> Vec<OwnedFd> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
    let all = all.filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().contains("userfaultfd"))
    });
    all.filter_map(|entry| Some(descriptor_of(pid, entry.file_name().to_str()?.parse().ok()?))).collect()
}

/// The host has the same descriptions as the attacker, who can change their flags at any time:
/// before the host asks whether there is a fault, or between that and the read.
fn userfaultfd(scene: &Local) {
    let worker = busy(scene);
    for round in 0..8u64 {
        let attacker = scene.attacker();
        attacker.ok("create w /waits size=16777216 controlled");
        attacker.all("map m w rw shared 0 0\nput m 0 1");
        let all = userfaultfds_of(attacker.pid());
        assert!(!all.is_empty(), "a client of a controlled object has a userfaultfd");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| flags_change(&all, round % 2 == 0, &is_over));
            let _until = Until(&is_over);
            // What comes of that is the attacker's own affair: its faults need not be served any more.
            attacker.send("fill m 1 4095 7");
            for part in 0..30 {
                let seed = round * 30 + part + 2;
                let lines = "drop m\nmap m o rw shared 0 0";
                worker.all(&format!("{lines}\nfill m 0 256 {seed}\ncheck m 0 256 {seed}"));
            }
        });
        attacker.kill();
        scene.host.worker().ok("remove /waits");
    }
}

/// Reads wait from now on, or now and then.
fn flags_change(all: &[OwnedFd], for_good: bool, is_over: &AtomicBool) {
    let mut waits = true;
    while !is_over.load(Ordering::SeqCst) {
        let flags = if waits { OFlags::RDWR } else { OFlags::RDWR | OFlags::NONBLOCK };
        for uffd in all {
            rustix::fs::fcntl_setfl(uffd, flags).expect("its flags");
        }
        waits = for_good || !waits;
    }
}
