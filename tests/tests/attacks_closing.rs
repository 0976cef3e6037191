//! What a client attaches to its messages may wait for whoever closes it last (a socket that lingers): nobody else waits for
//! that, not the host, not its keeper, not who replaces them.

use commonhold_object::wire::Request;
use commonhold_object::{Access, CreateOptions, Name, ObjectId, PagerKind, SessionId};
use commonhold_tests::host::{kill, signal};
use commonhold_tests::lingering::Lingering;
use commonhold_tests::raw::{Raw, bytes_of, map_request};
use commonhold_tests::{TestHost, Worker, host, root_or_skip, user, wait};

const USER: u32 = 4242;

/// A host, and a client that goes on working.
fn busy_host(options: &[&str]) -> (TestHost, Worker) {
    let host = TestHost::with(options);
    let worker = host.worker();
    worker.ok("create o /o size=1048576 controlled mode=600");
    worker.all("map m o rw shared 0 0\nfill m 0 256 1");
    (host, worker)
}

/// A connection of an ordinary user.
fn connect(host: &TestHost) -> Raw {
    user::as_user(USER, || Raw::connect(host))
}

/// Others are served, connect and create.
fn others_go_on(host: &TestHost, worker: &Worker) {
    worker.all("check m 0 256 1\nfill m 0 256 2\ncheck m 0 256 2\nfill m 0 256 1");
    let other = host.worker();
    other.all("create n /n size=65536 controlled\nmap k n rw shared 0 0\nfill k 0 16 3\ncheck k 0 16 3");
    other.all("sync n 0 65536\ndrop k\nclose n\nremove /n");
}

fn sockets_of(pid: u32) -> usize {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
    let links = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// Requests with which descriptors may come, and others.
fn requests() -> Vec<Request> {
    let name = || Name::directory("/x").unwrap();
    let map = map_request(ObjectId(1), 0x10_0000, 4096);
    let file = CreateOptions { pager: PagerKind::File, size_bytes: 4096, ..CreateOptions::default() };
    vec![
        Request::Hello { program: "attack".into() },
        Request::Create { name: name(), options: file, nonce: 7 },
        Request::Open { name: name(), access: Access::Read },
        Request::Close { object: ObjectId(1) },
        Request::Stat { name: name() },
        Request::Resize { name: name(), size_bytes: 4096 },
        Request::Remove { name: name() },
        Request::Map(map),
        Request::Unmap { address: 0x10_0000, length: 4096 },
        Request::Sync { object: ObjectId(1), offset: 0, length: 4096, freeze: false },
        Request::Prefetch { object: ObjectId(1), offset: 0, length: 4096 },
        Request::Status,
        Request::Return { session: SessionId(7) },
        Request::Reattach { object: ObjectId(1), access: Access::ReadWrite },
    ]
}

#[test]
fn what_lingers_on_any_message_holds_nobody_up() {
    if !root_or_skip("being other users") {
        return;
    }
    let (host, worker) = busy_host(&[]);
    let (pid, before) = (host.status().host_pid, sockets_of(host.status().host_pid));
    // Of its user no more is taken while too much waits.
    let is_closed = || wait::until("all of it is closed", || (sockets_of(pid) <= before + 2).then_some(()));
    for (number, request) in (10..).zip(requests()) {
        for count in [1, 3, 16, 253] {
            let mut lingering = Lingering::new(count.min(3));
            let raw = connect(&host);
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
        connect(&host).throw_many(bytes, &lingering.descriptors(253));
    }
    lingering.let_go();
    others_go_on(&host, &worker);
    assert_eq!(host.status().host_pid, pid, "the host died of it:\n{}", host.log());
    is_closed();
}

/// Sends a message that ends the connection, and then what lingers as long as what this gives, which nobody reads.
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

#[test]
fn what_lingers_in_the_queue_of_a_connection_that_ends_or_is_refused_holds_nobody_up() {
    if !root_or_skip("being other users") {
        return;
    }
    let (host, worker) = busy_host(&["--max-clients", "6"]);
    let status = host.status();
    for round in 0..3 {
        let pids = [status.host_pid];
        host::stop(&pids);
        // More than there are places for, and all of them leave something behind.
        let raws: Vec<Raw> = (0..12).map(|_| connect(&host)).collect();
        let lingering: Vec<Lingering> = raws.iter().map(leave_in_queue).collect();
        if round > 0 {
            drop(raws);
        }
        signal(status.host_pid, libc::SIGCONT);
        worker.all("check m 0 256 1\nfill m 0 256 1");
        wait::until("they are forgotten", || (host.status().clients <= 2).then_some(()));
        drop(lingering);
    }
    others_go_on(&host, &worker);
    let after = host.status();
    assert_eq!((after.host_pid, after.keeper_pid), (status.host_pid, status.keeper_pid));
}

#[test]
fn what_lingers_keeps_neither_host_nor_keeper_from_being_replaced() {
    if !root_or_skip("being other users") {
        return;
    }
    let (host, worker) = busy_host(&[]);
    for kills_keeper in [false, true, false] {
        let before = host.status();
        host::stop(&[before.host_pid]);
        let raws: Vec<Raw> = (0..MANY).map(|_| connect(&host)).collect();
        let lingering: Vec<Lingering> = raws.iter().map(leave_in_queue).collect();
        if kills_keeper {
            signal(before.host_pid, libc::SIGCONT);
            kill(before.keeper_pid);
            wait::until("another keeper is there", || {
                (![0, before.keeper_pid].contains(&host.status().keeper_pid)).then_some(())
            });
        } else {
            kill(before.host_pid);
            host.wait_for_other_host(before.host_pid);
        }
        worker.eventually("check m 0 256 1");
        drop(raws);
        others_go_on(&host, &worker);
        wait::until("they are forgotten", || (host.status().clients <= 2).then_some(()));
        drop(lingering);
    }
    let before = host.status();
    kill(before.host_pid);
    host.wait_for_other_host(before.host_pid);
    worker.all("check m 0 256 1\nfill m 0 256 2\ncheck m 0 256 2");
}
