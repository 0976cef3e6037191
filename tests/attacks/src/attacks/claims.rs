//! Claim words are memory that a host and its client share: whatever a client sends in their place, the host touches only
//! what a host made.

use super::user;
use crate::Attack;
use crate::scene::{ATTACKER, Local, name};
use commonhold_object::wire::{MapRequest, Reply, Request};
use commonhold_object::{Access, CreateOptions, ErrorKind, MapFlags, ObjectId, SessionId};
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use commonhold_tests::raw::{Raw, map_request};
use commonhold_tests::{MIB, user as users};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

pub(crate) const ATTACKS: &[Attack] = &[
    user("claims.at_a_first_mapping", "claim words of every kind of memory", |scene| {
        words_of_ones_own(scene, false)
    }),
    user("claims.at_a_return", "the same, by a session that says it comes back", |scene| {
        words_of_ones_own(scene, true)
    }),
];

const WORDS: u64 = 4096;
const SEALED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory as a host would make it, with other flags, seals and size.
fn memory(flags: MemfdFlags, seals: SealFlags, bytes: u64) -> OwnedFd {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("commonhold-claims", flags).expect("memory");
    rustix::fs::ftruncate(&fd, bytes).expect("a size");
    rustix::fs::fcntl_add_seals(&fd, seals).expect("seals");
    fd
}

fn file(path: impl AsRef<Path>) -> OwnedFd {
    std::fs::File::options().read(true).write(true).open(path).expect("a file").into()
}

/// What an ordinary user can send for claim words.
fn words(at_disk: &Path) -> Vec<(&'static str, OwnedFd)> {
    let none = MemfdFlags::empty();
    let in_tmpfs = format!("/dev/shm/commonhold-tests-words-{}", std::process::id());
    std::fs::write(&in_tmpfs, [0; WORDS as usize]).expect("a file");
    let mut all = vec![
        ("as a host makes them", memory(none, SEALED, WORDS)),
        ("without seals", memory(none, SealFlags::empty(), WORDS)),
        ("may shrink", memory(none, SealFlags::GROW | SealFlags::SEAL, WORDS)),
        ("may not be written", memory(none, SEALED | SealFlags::WRITE, WORDS)),
        ("too short", memory(none, SEALED, 0)),
        ("a file", file(at_disk)),
        ("a file in memory", file(&in_tmpfs)),
        ("no file", file("/dev/zero")),
        ("a pipe", rustix::pipe::pipe().expect("a pipe").0),
    ];
    std::fs::remove_file(&in_tmpfs).expect("a file goes");
    // A kernel without huge pages makes none.
    if rustix::fs::memfd_create("probe", MemfdFlags::HUGETLB).is_ok() {
        all.push(("huge pages that are not there", memory(MemfdFlags::HUGETLB, SEALED, 2 * MIB)));
    }
    all
}

/// A user with an object, and with what a first mapping must bring.
struct Mapper {
    raw: Raw,
    object: ObjectId,
    uffd: Userfaultfd,
    pagemap: OwnedFd,
}

impl Mapper {
    fn new(scene: &Local) -> Mapper {
        // As the suite's own user, whose process this is.
        let (uffd, _) = Userfaultfd::create(Kind::InThread, None).expect("a userfaultfd");
        let pagemap = std::fs::File::open("/proc/self/pagemap").expect("a pagemap").into();
        let mut raw = scene.raw();
        let options = CreateOptions { size_bytes: MIB, controlled: true, ..CreateOptions::default() };
        let create = Request::Create { name: name("/mapped"), options, nonce: 1, in_directory: false };
        raw.ask(&create, &[]).expect("an answer").expect("it is made");
        let open = Request::Open { name: name("/mapped"), access: Access::ReadWrite };
        match raw.ask(&open, &[]).expect("an answer") {
            Ok(Reply::Opened(opened)) => Mapper { raw, object: opened.info.id, uffd, pagemap },
            other => panic!("not opened: {other:?}"),
        }
    }

    /// Says that it maps the object, with those claim words.
    fn map(&mut self, words: &OwnedFd) -> ErrorKind {
        let request = Request::Map(MapRequest {
            flags: MapFlags { in_thread: true, ..MapFlags::default() },
            ..map_request(self.object, 0x10_0000_0000, MIB)
        });
        let fds = [self.uffd.as_fd(), self.pagemap.as_fd(), words.as_fd()];
        let answer = self.raw.ask(&request, &fds).expect("the host answers");
        answer.map(drop).expect_err("claim words of a client's own were taken").kind
    }
}

fn words_of_ones_own(scene: &Local, comes_back: bool) {
    let other = scene.other();
    other.all("create o /other size=1048576 controlled\nmap m o rw shared 0 0 in-thread\nfill m 0 256 1");
    let path = scene.new_file("words", WORDS);
    let all = users::as_user(ATTACKER.0, || words(&path));
    let mut mapper = Mapper::new(scene);
    if comes_back {
        // A session that never was: refused, or given a new one.
        mapper.raw.ask(&Request::Return { session: SessionId(77) }, &[]).expect("an answer").ok();
    }
    for (what, words) in &all {
        let kind = mapper.map(words);
        let expected = [ErrorKind::Protocol, ErrorKind::Permission, ErrorKind::Invalid].contains(&kind);
        assert!(expected, "{what}: {kind:?}");
        other.all("check m 0 256 1\nfill m 0 256 1");
    }
}
