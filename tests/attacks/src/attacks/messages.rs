//! Messages that no client sends: bytes by chance, numbers out of range, descriptors of every kind.

use super::user;
use crate::Attack;
use crate::scene::{Local, name, small};
use commonhold_object::wire::{MapRequest, PROTOCOL_VERSION, Request};
use commonhold_object::{Access, CreateOptions, ObjectId, PagerKind, limits};
use commonhold_tests::raw::{Raw, bytes_of, map_request};
use commonhold_tests::stranger::Numbers;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) const ATTACKS: &[Attack] = &[
    user(
        "messages.by_chance",
        "bytes by chance behind a good header, with descriptors of every kind",
        chance,
    ),
    user("messages.almost_right", "good messages with some bits changed, or cut off", almost_right),
    user(
        "messages.odd_descriptors",
        "each request with each kind of descriptor that it does not call for",
        odd,
    ),
    user("messages.many_descriptors", "as many descriptors as one message can carry, again and again", many),
    user("messages.ranges", "ranges that overflow, end past the object or lie across pages", ranges),
    user("messages.mappings", "mappings of addresses that nobody can have", mappings),
    user("messages.sizes", "objects of absurd sizes, budgets and deadlines", sizes),
    user("messages.repetitions", "requests said to be repeated that were never made", repetitions),
    user("messages.before_hello", "each request before the first", before_hello),
    user("messages.long", "messages of the greatest length, and longer", long),
];

/// Descriptors of many kinds, of the attacker.
fn descriptors() -> Vec<OwnedFd> {
    let open = |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let (end, other) = rustix::pipe::pipe().expect("a pipe");
    let (socket, its_peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let mut all = vec![end, other, socket.into(), its_peer.into()];
    all.push(commonhold_sys::frames::create("odd", 4096).expect("a memfd"));
    let paths = [
        ("/dev/null", OFlags::RDWR),
        ("/dev/zero", OFlags::RDWR),
        ("/", OFlags::DIRECTORY),
        ("/", OFlags::PATH),
        ("/proc/self/mem", OFlags::RDWR),
        ("/proc/self/pagemap", OFlags::RDONLY),
        ("/proc/self/maps", OFlags::RDONLY),
        ("/etc/passwd", OFlags::RDONLY),
        ("/etc/passwd", OFlags::PATH),
        ("/dev/ptmx", OFlags::RDWR | OFlags::NOCTTY),
    ];
    all.extend(paths.into_iter().filter_map(|(path, flags)| open(path, flags).ok()));
    all.extend(commonhold_sys::process::pidfd(std::process::id()));
    all
}

/// One request of each kind, about what is not the attacker's, or is not there.
fn requests(numbers: &mut Numbers) -> Vec<Request> {
    let object = ObjectId(numbers.below(4));
    let (offset, length) = (numbers.below(1 << 40), numbers.below(1 << 20));
    let named = name(["/bystander", "/x/y", "/", "/nothing"][numbers.below(4) as usize]);
    let file = CreateOptions { pager: PagerKind::File, ..small() };
    vec![
        Request::Hello { program: "attacker".into() },
        Request::Create {
            name: name("/made"),
            options: small(),
            nonce: u128::from(numbers.draw()),
            in_directory: false,
        },
        Request::Create {
            name: name("/made"),
            options: file,
            nonce: u128::from(numbers.draw()),
            in_directory: false,
        },
        Request::Open { name: named.clone(), access: Access::Read },
        Request::Close { object },
        Request::Stat { name: named.clone() },
        Request::StatObject { object },
        Request::List { directory: named.clone(), after: None },
        Request::Resize { name: named.clone(), size_bytes: length, of: None },
        Request::Rename { from: named.clone(), to: name("/z"), replace: true, of: None },
        Request::MakeDirectory { name: name("/zd"), mode: 0o755 },
        Request::ResizeOpened {
            object,
            size_bytes: length,
            sizing: commonhold_object::wire::Sizing::Exactly,
        },
        Request::SetModified { name: named.clone(), modified_ns: 5, of: None },
        Request::Tag { name: named.clone(), of: None, tagging: tagging(offset, length) },
        Request::TagOpened { object, tagging: tagging(offset, length) },
        Request::SetMode { name: named.clone(), mode: u32::MAX, of: None },
        Request::Map(map_request(object, offset, length)),
        Request::Unmap { address: offset, length },
        Request::Sync { object, offset, length, freeze: true },
        Request::Lock { object, offset, length },
        Request::Incore { object, first_page: offset, pages: length },
        Request::Prefetch { object, offset, length },
        Request::Revert { name: named.clone() },
        Request::MapInfo { name: named.clone() },
        Request::Watch { object },
        Request::Snapshot(commonhold_object::wire::SnapshotRequest {
            of: object,
            offset,
            length,
            name: name("/made"),
            mode: u32::MAX,
            writable: true,
            whole: true,
            nonce: u128::from(numbers.draw()),
        }),
        Request::Place { object },
        Request::Released { object, given: offset },
        Request::Status,
        Request::Hosts,
        Request::ServePager { pager: named },
        Request::Reattach { object, access: Access::ReadWrite },
        Request::Remove { name: name("/made"), of: None },
    ]
}

fn tagging(offset: u64, length: u64) -> commonhold_object::Tagging {
    commonhold_object::Tagging { offset, length, tag: "{24: 0 int32, 8 float64*2}".into() }
}

/// Whether it asks for what only the bystander may have or do.
fn is_forbidden(request: &Request) -> bool {
    match request {
        Request::Open { name, .. }
        | Request::Resize { name, .. }
        | Request::Rename { from: name, .. }
        | Request::SetModified { name, .. }
        | Request::Tag { name, .. }
        | Request::SetMode { name, .. }
        | Request::Revert { name }
        | Request::MapInfo { name } => *name == crate::scene::name("/bystander"),
        Request::StatObject { .. }
        | Request::ResizeOpened { .. }
        | Request::TagOpened { .. }
        | Request::Watch { .. }
        | Request::Snapshot(_)
        | Request::Place { .. }
        | Request::Released { .. }
        | Request::Reattach { .. } => true,
        _ => false,
    }
}

/// A seed that is the same in every run: what is found can be found again.
fn numbers() -> Numbers {
    Numbers(20)
}

fn chance(scene: &Local) {
    let (mut numbers, all) = (numbers(), descriptors());
    for round in 0..300 {
        let raw = scene.raw();
        let length = [1, 15, 24, 25, 100, 4096, 100_000][round % 7];
        let mut bytes: Vec<u8> = (0..length).map(|_| numbers.draw() as u8).collect();
        if round % 3 != 0 && length >= 24 {
            bytes[..24].copy_from_slice(&bytes_of(numbers.draw(), &Request::Status)[..24]);
            bytes[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        }
        let fds: Vec<BorrowedFd<'_>> = (0..numbers.below(9)).map(|_| numbers.pick(&all).as_fd()).collect();
        raw.throw(&bytes, &fds);
    }
}

fn almost_right(scene: &Local) {
    let (mut numbers, all) = (numbers(), descriptors());
    for _ in 0..60 {
        let raw = scene.greeted();
        for (number, request) in requests(&mut numbers).iter().enumerate() {
            let mut bytes = bytes_of(number as u64 + 10, request);
            for _ in 0..1 + numbers.below(3) {
                let at = 24 + numbers.below((bytes.len() - 24).max(1) as u64) as usize;
                if at < bytes.len() && numbers.below(4) > 0 {
                    bytes[at] ^= 1 << numbers.below(8);
                } else {
                    bytes.truncate(at.max(24));
                }
            }
            let fds: Vec<BorrowedFd<'_>> =
                (0..numbers.below(3)).map(|_| numbers.pick(&all).as_fd()).collect();
            if !raw.throw(&bytes, &fds) {
                break;
            }
        }
    }
}

fn odd(scene: &Local) {
    let (mut numbers, all) = (numbers(), descriptors());
    for fd in &all {
        let mut raw = scene.greeted();
        for request in requests(&mut numbers) {
            for count in [1, 3] {
                match raw.ask(&request, &vec![fd.as_fd(); count]) {
                    None => raw = scene.greeted(),
                    Some(Ok(reply)) => {
                        assert!(!is_forbidden(&request), "{request:?} was answered with {reply:?}");
                    }
                    Some(Err(_)) => {}
                }
            }
        }
    }
}

fn many(scene: &Local) {
    let (end, _other) = rustix::pipe::pipe().expect("a pipe");
    let most = vec![end.as_fd(); limits::MESSAGE_DESCRIPTORS];
    // The most that the kernel lets one message carry.
    let all = vec![end.as_fd(); 253];
    for _ in 0..40 {
        let raw = scene.greeted();
        for fds in [&most, &all] {
            raw.throw(&bytes_of(3, &Request::Status), fds);
        }
    }
}

fn ranges(scene: &Local) {
    let (mut raw, opened) = scene.with_an_object("/own");
    let object = opened.info.id;
    let odd = [0, 1, 4095, 4096, 65_536, 65_537, 1 << 32, 1 << 44, 1 << 63, u64::MAX - 4095, u64::MAX];
    for offset in odd {
        for length in odd {
            for request in [
                Request::Sync { object, offset, length, freeze: false },
                Request::Lock { object, offset, length },
                Request::Unlock { object, offset, length },
                Request::Prefetch { object, offset, length },
                Request::Incore { object, first_page: offset, pages: length },
                Request::Unmap { address: offset, length },
            ] {
                if raw.ask(&request, &[]).is_none() {
                    panic!("{request:?} ended the connection");
                }
            }
        }
    }
    raw.ask(&Request::Remove { name: name("/own"), of: None }, &[])
        .expect("an answer")
        .expect("it is the attacker's");
}

fn mappings(scene: &Local) {
    let (mut raw, opened) = scene.with_an_object("/own");
    for address in [0, 1, 4096, 1 << 47, (1 << 47) - 4096, 1 << 63, u64::MAX - 4095, u64::MAX] {
        for length in [0, 1, 4096, 65_536, 1 << 40, u64::MAX] {
            for (with_descriptors, with_claims) in [(false, false), (true, false), (true, true)] {
                let map = MapRequest {
                    with_descriptors,
                    with_claims,
                    ..map_request(opened.info.id, address, length)
                };
                match raw.ask(&Request::Map(map.clone()), &[]) {
                    Some(Ok(reply)) => panic!("{map:?} was answered with {reply:?}"),
                    Some(Err(_)) => {}
                    None => panic!("{map:?} ended the connection"),
                }
            }
        }
    }
    raw.ask(&Request::Remove { name: name("/own"), of: None }, &[])
        .expect("an answer")
        .expect("it is the attacker's");
}

fn sizes(scene: &Local) {
    let mut raw = scene.greeted();
    let own = || name("/absurd");
    let options = |size_bytes| CreateOptions { size_bytes, reserve: Some(true), ..small() };
    let absurd = [
        options(0),
        options(u64::MAX),
        options(1 << 63),
        options(limits::OBJECT_BYTES),
        options(limits::OBJECT_BYTES + 4096),
        CreateOptions { budget_bytes: Some(0), ..small() },
        CreateOptions { budget_bytes: Some(u64::MAX), ..small() },
        CreateOptions { fault_deadline_ms: Some(0), ..small() },
        CreateOptions { description: "t".repeat(100_000), ..small() },
        CreateOptions { replicas: u32::MAX, ..small() },
        CreateOptions { mode: u32::MAX, ..small() },
        CreateOptions { home_moves: true, ..small() },
        CreateOptions { pager: PagerKind::External { pager: "x".repeat(100_000) }, ..small() },
    ];
    for options in absurd {
        let create = Request::Create { name: own(), options: options.clone(), nonce: 7, in_directory: false };
        let refused = raw.ask(&create, &[]).unwrap_or_else(|| panic!("{options:?} ended the connection"));
        refused.map(drop).expect_err("no such object can be had");
    }
    let create = Request::Create { name: own(), options: small(), nonce: 8, in_directory: false };
    raw.ask(&create, &[]).expect("an answer").expect("a small object");
    for size_bytes in [0, u64::MAX, 1 << 63, limits::OBJECT_BYTES + 1, limits::OBJECT_BYTES] {
        let resize = Request::Resize { name: own(), size_bytes, of: None };
        raw.ask(&resize, &[]).expect("an answer").expect_err("no such size can be had");
    }
    raw.ask(&Request::Remove { name: own(), of: None }, &[])
        .expect("an answer")
        .expect("it is the attacker's");
}

fn repetitions(scene: &Local) {
    let mut numbers = numbers();
    for _ in 0..20 {
        let raw = scene.greeted();
        for (number, request) in requests(&mut numbers).iter().enumerate() {
            let mut bytes = bytes_of(number as u64 + 100, request);
            bytes[6] = 1;
            if !raw.throw(&bytes, &[]) || !raw.throw(&bytes, &[]) {
                break;
            }
        }
    }
}

fn before_hello(scene: &Local) {
    let mut numbers = numbers();
    for request in requests(&mut numbers) {
        let mut raw = scene.raw();
        let answer = raw.ask(&request, &[]);
        let known = matches!(
            request,
            Request::Hello { .. } | Request::Status | Request::Stat { .. } | Request::Hosts
        );
        assert!(known || answer.is_some(), "{request:?} ended the connection without a word");
    }
}

fn long(scene: &Local) {
    for length in [limits::MESSAGE_BYTES - 1, limits::MESSAGE_BYTES, limits::MESSAGE_BYTES + 1, 200_000] {
        let raw: Raw = scene.greeted();
        let mut bytes = bytes_of(4, &Request::Hello { program: "x".repeat(64) });
        bytes.resize(length, 0x41);
        raw.throw(&bytes, &[]);
        raw.throw(&bytes, &[]);
    }
}
