//! Claim words are memory that a host and its client share: whatever a client sends in their place, the host touches only
//! what a host made.

use commonhold_object::wire::{MapRequest, Reply, Request};
use commonhold_object::{Access, CreateOptions, ErrorKind, MapFlags, Name, ObjectId, SessionId};
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use commonhold_tests::raw::{Raw, map_request};
use commonhold_tests::{MIB, TestHost, root_or_skip, user, wait};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};

const USER: u32 = 4242;
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

fn file(path: impl AsRef<std::path::Path>) -> OwnedFd {
    std::fs::File::options().read(true).write(true).open(path).expect("a file").into()
}

/// What an ordinary user can send for claim words.
fn words(host: &TestHost) -> Vec<(&'static str, OwnedFd)> {
    let none = MemfdFlags::empty();
    let at_disk = host.scratch().join("words");
    let in_tmpfs = format!("/dev/shm/commonhold-tests-words-{}", std::process::id());
    std::fs::write(&in_tmpfs, [0; WORDS as usize]).expect("a file");
    let mut all = vec![
        ("as a host makes them", memory(none, SEALED, WORDS)),
        ("without seals", memory(none, SealFlags::empty(), WORDS)),
        ("may shrink", memory(none, SealFlags::GROW | SealFlags::SEAL, WORDS)),
        ("may not be written", memory(none, SEALED | SealFlags::WRITE, WORDS)),
        ("too short", memory(none, SEALED, 0)),
        ("a file", file(&at_disk)),
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
    fn new(host: &TestHost, name: &str) -> Mapper {
        let name = Name::new(name).expect("a name");
        // As the test's own user, whose process this is.
        let (uffd, _) = Userfaultfd::create(Kind::InThread, None).expect("a userfaultfd");
        let pagemap = std::fs::File::open("/proc/self/pagemap").expect("a pagemap").into();
        user::as_user(USER, || {
            let mut raw = Raw::connect(host);
            let options = CreateOptions { size_bytes: MIB, controlled: true, ..CreateOptions::default() };
            let create = Request::Create { name: name.clone(), options, nonce: 1 };
            raw.ask(&create, &[]).expect("an answer").expect("it is made");
            let open = Request::Open { name: name.clone(), access: Access::ReadWrite };
            let Ok(Reply::Opened(opened)) = raw.ask(&open, &[]).expect("an answer") else {
                panic!("not opened")
            };
            Mapper { raw, object: opened.info.id, uffd, pagemap }
        })
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

#[test]
fn claim_words_that_no_host_made_are_not_touched() {
    if !root_or_skip("being other users") {
        return;
    }
    let host = TestHost::start();
    let other = host.worker_of(USER + 1, USER + 1);
    other.all("create o /other size=1048576 controlled\nmap m o rw shared 0 0 in-thread\nfill m 0 256 1");
    let pid = host.status().host_pid;
    let path = host.scratch().file("words", WORDS);
    std::os::unix::fs::chown(path, Some(USER), Some(USER)).expect("the user's file");
    let all = user::as_user(USER, || words(&host));
    for comes_back in [false, true] {
        let mut mapper = Mapper::new(&host, if comes_back { "/back" } else { "/new" });
        if comes_back {
            // A session that never was.
            mapper.raw.ask(&Request::Return { session: SessionId(77) }, &[]).expect("an answer").ok();
        }
        for (what, words) in &all {
            let kind = mapper.map(words);
            let expected = [ErrorKind::Protocol, ErrorKind::Permission, ErrorKind::Invalid].contains(&kind);
            assert!(expected, "{what}: {kind:?}");
            other.all("check m 0 256 1\nfill m 0 256 1");
        }
        assert_eq!(host.status().host_pid, pid, "the host died of it:\n{}", host.log());
    }
    wait::until("they are forgotten", || (host.status().clients <= 2).then_some(()));
}
