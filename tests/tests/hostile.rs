//! Clients that lie, flood, fall silent or are of another version: nobody else notices.

use commonhold_object::wire::{MapRequest, PROTOCOL_VERSION, Request};
use commonhold_object::{Access, CreateOptions, ErrorKind, Name, ObjectId, PagerKind, Protection, SessionId};
use commonhold_tests::crash::Chance;
use commonhold_tests::raw::{self, Raw, bytes_of};
use commonhold_tests::{TestHost, Worker, wait};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A host with a client that goes on working while others misbehave.
fn busy_host() -> (TestHost, Worker, u32) {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok("create o /o size=4194304 controlled mode=600");
    worker.all("map m o rw shared 0 0\nfill m 0 1024 1");
    let pid = host.status().host_pid;
    (host, worker, pid)
}

/// The host is the same process, serves as before, and forgot all others.
fn is_unharmed(host: &TestHost, worker: &Worker, pid: u32) {
    worker.all("check m 0 1024 1\nfill m 0 1024 2\ncheck m 0 1024 2\nfill m 0 1024 1");
    assert_eq!(worker.ok("list /"), "/o");
    wait::until("all others are forgotten", || (host.status().clients <= 2).then_some(()));
    assert_eq!(host.status().host_pid, pid, "the host died of it:\n{}", host.log());
}

fn name(text: &str) -> Name {
    Name::directory(text).unwrap()
}

fn map_request(object: u64, address: u64) -> MapRequest {
    let protection = Protection::Read;
    MapRequest { protection, with_claims: false, ..raw::map_request(ObjectId(object), address, 4096) }
}

/// One request of each kind, harmless to the object that the busy client uses (it is another user's, or not named).
fn requests(chance: &mut Chance) -> Vec<Request> {
    let object = ObjectId(chance.below(4));
    let (offset, length) = (chance.below(1 << 40), chance.below(1 << 20));
    let named = name(["/x", "/x/y", "/", "/very/long/name/of/nothing"][chance.below(4) as usize]);
    vec![
        Request::Hello { program: "liar".into() },
        Request::Create {
            name: named.clone(),
            options: CreateOptions::default(),
            nonce: 7,
            in_directory: false,
        },
        Request::Open { name: named.clone(), access: Access::Read },
        Request::Close { object },
        Request::Stat { name: named.clone() },
        Request::StatObject { object },
        Request::Resize { name: named.clone(), size_bytes: length, of: None },
        Request::Remove { name: named.clone(), of: None },
        Request::Rename { from: named.clone(), to: name("/x/z"), replace: true, of: None },
        Request::MakeDirectory { name: name("/x/zd"), mode: 0o755 },
        Request::ResizeOpened {
            object,
            size_bytes: length,
            sizing: commonhold_object::wire::Sizing::Exactly,
        },
        Request::SetModified { name: named.clone(), modified_ns: 5, of: None },
        Request::SetMode { name: named.clone(), mode: u32::MAX, of: None },
        Request::Map(map_request(object.0, offset)),
        Request::Unmap { address: offset, length },
        Request::Sync { object, offset, length, freeze: true },
        Request::Lock { object, offset, length },
        Request::Unlock { object, offset, length },
        Request::Incore { object, first_page: offset, pages: length },
        Request::Prefetch { object, offset, length },
        Request::WatchRange { object, offset, length },
        Request::Unwatch { number: offset },
        Request::Notify { object, offset, length },
        Request::MapInfo { name: named },
        Request::Status,
        Request::Return { session: SessionId(offset) },
        Request::Reattach { object, access: Access::ReadWrite },
    ]
}

#[test]
fn garbage_of_every_length() {
    let (host, worker, pid) = busy_host();
    let mut chance = Chance::new("garbage_of_every_length");
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    for round in 0..300u64 {
        let raw = Raw::connect(&host);
        let length = [1, 3, 15, 24, 25, 100, 4096, 100_000, 163_840, 163_841][(round % 10) as usize];
        let mut bytes: Vec<u8> = (0..length).map(|_| chance.below(256) as u8).collect();
        if round % 3 == 0 && length >= 24 {
            bytes[..4].copy_from_slice(b"CmHd");
            bytes[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
            bytes[6..8].fill(0);
        }
        let fds: Vec<BorrowedFd<'_>> = (0..chance.below(4)).map(|_| pipe.as_fd()).collect();
        raw.throw(&bytes, &fds);
        if round % 50 == 0 {
            is_unharmed(&host, &worker, pid);
        }
    }
    is_unharmed(&host, &worker, pid);
}

#[test]
fn almost_right_requests() {
    let (host, worker, pid) = busy_host();
    let mut chance = Chance::new("almost_right_requests");
    for round in 0..60u64 {
        let raw = Raw::connect(&host);
        for (number, request) in requests(&mut chance).iter().enumerate() {
            let mut bytes = bytes_of(number as u64 + 1, request);
            for _ in 0..round % 4 {
                let at = 24 + chance.below((bytes.len() - 24).max(1) as u64) as usize;
                if at < bytes.len() && chance.below(2) == 0 {
                    bytes[at] ^= 1 << chance.below(8);
                } else {
                    bytes.truncate(at.max(24));
                }
            }
            // Nothing said by chance may end the host in order, which root may.
            let ends = matches!(
                commonhold_object::wire::decode::<Request>(&bytes),
                Ok((
                    _,
                    Request::Stop { .. }
                        | Request::Replace { .. }
                        | Request::Remove { .. }
                        | Request::Rename { .. }
                ))
            );
            if !ends && !raw.throw(&bytes, &[]) {
                break;
            }
        }
    }
    for text in ["/x", "/x/y", "/x/z", "/very/long/name/of/nothing"] {
        let _ = worker.ask(&format!("remove {text}"));
    }
    for entry in worker.ok("list /").split(' ').filter(|entry| *entry != "/o" && !entry.is_empty()) {
        eprintln!("left by chance: {entry}");
        let _ = worker.ask(&format!("remove {entry}"));
    }
    wait::until("all others are forgotten", || (host.status().clients <= 2).then_some(()));
    worker.all("check m 0 1024 1\nfill m 0 1024 2\ncheck m 0 1024 2");
    assert_eq!(host.status().host_pid, pid, "the host died of it:\n{}", host.log());
}

#[test]
fn a_name_that_no_client_sends() {
    let (host, worker, pid) = busy_host();
    for bad in [b'\0', b'/', b'\n', 0xff] {
        let mut raw = Raw::connect(&host);
        let mut bytes = bytes_of(1, &Request::Open { name: name("/aXb"), access: Access::Read });
        let at = bytes.iter().position(|byte| *byte == b'X').unwrap();
        bytes[at] = bad;
        if bad == b'/' {
            bytes[at + 1] = b'/';
        }
        raw.throw(&bytes, &[]);
        let answer = raw.answer_to(1).expect("it is told so, and need not wait for ever");
        assert_eq!(answer.unwrap_err().kind, ErrorKind::Protocol);
        assert!(raw.ask(&Request::Status, &[]).expect("the connection lives").is_ok());
    }
    is_unharmed(&host, &worker, pid);
}

#[test]
fn descriptors_of_the_wrong_kind() {
    let (host, worker, pid) = busy_host();
    let mut raw = Raw::connect(&host);
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let memory = commonhold_sys::frames::create("commonhold-frames-1", 4_194_304).unwrap();
    let foreign = commonhold_sys::frames::create("somebody-else", 4096).unwrap();
    let kind = |answer: Option<Result<_, commonhold_object::Error>>| {
        answer.expect("an answer").map(|_: commonhold_object::wire::Reply| ()).unwrap_err().kind
    };
    let file = CreateOptions { pager: PagerKind::File, size_bytes: 4096, ..CreateOptions::default() };
    for fd in [&pipe, &foreign] {
        let create =
            Request::Create { name: name("/file"), options: file.clone(), nonce: 1, in_directory: false };
        let answer = raw.ask(&create, &[fd.as_fd()]).expect("an answer");
        if let Ok(_made) = answer {
            // A memfd is a regular file; it may be one's own.
            assert!(std::ptr::eq(fd, &foreign));
            raw.ask(&Request::Remove { name: name("/file"), of: None }, &[]).unwrap().unwrap();
        }
    }
    // What is not open is not known, whatever its number.
    for request in [
        Request::StatObject { object: ObjectId(1) },
        Request::Sync { object: ObjectId(1), offset: 0, length: 4096, freeze: false },
        Request::Lock { object: ObjectId(1), offset: 0, length: 4096 },
        Request::Incore { object: ObjectId(1), first_page: 0, pages: 1 },
        Request::Map(map_request(1, 0x10000)),
    ] {
        assert_eq!(kind(raw.ask(&request, &[pipe.as_fd(), pipe.as_fd()])), ErrorKind::NotFound);
    }
    // Frames that are somebody else's, or of another object.
    let reattach = Request::Reattach { object: ObjectId(1), access: Access::ReadWrite };
    for fd in [&pipe, &foreign, &memory] {
        let answer = kind(raw.ask(&reattach, &[fd.as_fd()]));
        assert!(
            [ErrorKind::Permission, ErrorKind::Lost, ErrorKind::Protocol].contains(&answer),
            "{answer:?}"
        );
    }
    assert_eq!(kind(raw.ask(&reattach, &[])), ErrorKind::Protocol);
    raw.ask(&Request::Open { name: name("/o"), access: Access::Read }, &[]).unwrap().unwrap();
    for fds in [vec![], vec![pipe.as_fd(), pipe.as_fd()], vec![foreign.as_fd(), pipe.as_fd()]] {
        assert_eq!(kind(raw.ask(&Request::Map(map_request(1, 0x10000)), &fds)), ErrorKind::Protocol);
    }
    drop(raw);
    is_unharmed(&host, &worker, pid);
}

#[test]
fn other_versions() {
    let (host, worker, pid) = busy_host();
    for (version, says) in [(0u16, "upgrade the other side"), (9, "upgrade this side")] {
        let raw = Raw::connect(&host);
        let mut bytes = bytes_of(1, &Request::Status);
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        raw.throw(&bytes, &[]);
        let error = raw.last_words().expect("an error");
        assert_eq!(error.kind, ErrorKind::Version);
        assert!(error.message.contains(says), "{error}");
    }
    is_unharmed(&host, &worker, pid);
    // A client that meets a host of another version says so, and does not wait for it.
    let scratch = commonhold_tests::Scratch::new();
    let listener = commonhold_sys::socket::listen(scratch.path(), "host.sock", 4).unwrap();
    let serves = std::thread::spawn(move || {
        while let Ok(socket) = commonhold_sys::socket::accept(&listener) {
            let mut bytes = bytes_of(1, &Request::Status);
            bytes[4] = 9;
            let _ = commonhold_sys::socket::send(&socket, &bytes, &[], commonhold_sys::socket::Wait::Yes);
            let mut buffer = [0; 4096];
            let wait = commonhold_sys::socket::Wait::Yes;
            if commonhold_sys::socket::receive(&socket, &mut buffer, &mut Vec::new(), wait)
                .is_ok_and(|n| n == 5)
            {
                return;
            }
        }
    });
    let error = commonhold::Host::connect_to(scratch.path()).and_then(|host| host.status()).unwrap_err();
    assert_eq!(error.kind, commonhold::ErrorKind::Version, "{error}");
    let last = commonhold_sys::socket::connect(scratch.path(), "host.sock").unwrap();
    commonhold_sys::socket::send(&last, b"end!!", &[], commonhold_sys::socket::Wait::Yes).unwrap();
    serves.join().unwrap();
}

#[test]
fn half_open_and_silent_clients() {
    let (host, worker, pid) = busy_host();
    let silent: Vec<Raw> = (0..50).map(|_| Raw::connect(&host)).collect();
    let mut greeted: Vec<Raw> = (0..20).map(|_| Raw::connect(&host)).collect();
    for raw in &mut greeted {
        raw.ask(&Request::Hello { program: "silent".into() }, &[]).unwrap().unwrap();
    }
    worker.all("check m 0 1024 1\nfill m 0 1024 1");
    wait::until("they are counted", || (host.status().clients >= 71).then_some(()));
    drop((silent, greeted));
    is_unharmed(&host, &worker, pid);
}

#[test]
fn a_client_that_never_reads_its_answers() {
    let (host, worker, pid) = busy_host();
    let raw = Raw::connect(&host);
    let bytes = bytes_of(5, &Request::Status);
    // Until the host hangs up on it: its own buffer is full, and what it asks is answered no more.
    wait::until("the host hangs up", || {
        for _ in 0..200 {
            raw.push(&bytes);
        }
        (host.status().clients <= 2).then_some(())
    });
    is_unharmed(&host, &worker, pid);
}

#[test]
fn a_stopped_client_holds_nobody_up() {
    let (host, worker, pid) = busy_host();
    let file = host.scratch().file("file", 65536);
    let stopped = host.worker();
    stopped.ok(&format!("create p /p file={} sync=atomic", file.display()));
    stopped.all("map m p rw shared 0 0\nfill m 0 16 3");
    commonhold_tests::host::signal(stopped.pid(), libc::SIGSTOP);
    // Its pages are found and stored all the same.
    worker.ok("open p /p rw");
    assert_eq!(worker.ok("sync p 0 65536"), "16");
    assert_eq!(std::fs::read(&file).unwrap(), commonhold_tests::page::bytes(0, 16, 3));
    worker.all("map k p rw shared 0 0\nfill k 0 16 4");
    commonhold_tests::host::signal(stopped.pid(), libc::SIGCONT);
    stopped.ok("check m 0 16 4");
    worker.all("drop k\nclose p");
    stopped.all("drop m\nclose p\nremove /p");
    drop(stopped);
    is_unharmed(&host, &worker, pid);
}

#[test]
fn a_flood_of_connections() {
    let (host, worker, pid) = busy_host();
    for _ in 0..20 {
        let all: Vec<OwnedFd> =
            (0..60).filter_map(|_| commonhold_sys::socket::connect(host.state(), "host.sock").ok()).collect();
        worker.ok("check m 0 100 1");
        drop(all);
    }
    std::thread::sleep(Duration::from_millis(1));
    is_unharmed(&host, &worker, pid);
}

/// As a host that takes over hears them: what was sent to the host before, and at once its repetition.
#[test]
fn a_request_and_its_repetition_are_no_two_requests() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    for round in 0..100u64 {
        let options =
            CreateOptions { size_bytes: 65536, controlled: round % 2 == 0, ..CreateOptions::default() };
        let create =
            Request::Create { name: name("/o"), options, nonce: u128::from(round) + 1, in_directory: false };
        let number = 1_000_000 + round;
        let mut bytes = bytes_of(number, &create);
        assert!(raw.throw(&bytes, &[]));
        bytes[6] = 1;
        assert!(raw.throw(&bytes, &[]));
        let answer = raw.answer_to(number).expect("an answer");
        assert!(answer.is_ok(), "{round}: {answer:?}");
        let removed = raw.ask(&Request::Remove { name: name("/o"), of: None }, &[]).expect("an answer");
        assert!(removed.is_ok(), "{round}: {removed:?}");
    }
}
