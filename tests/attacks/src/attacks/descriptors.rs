//! Descriptors that an ordinary user sends to a host of root, to have it do with its rights what
//! the user may not.

use super::user;
use crate::Attack;
use crate::scene::{ATTACKER, BYSTANDER, Local, name, on_file, open};
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, CreateOptions, ErrorKind};
use commonhold_tests::raw::Raw;
use commonhold_tests::user::as_user;
use commonhold_tests::{PAGE, wait};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) const ATTACKS: &[Attack] = &[
    user(
        "descriptors.memory_of_a_setuid_program",
        "the memory of a program that is root's by then, as a backing file",
        memory_of_a_setuid_program,
    ),
    user("descriptors.no_file_of_a_user", "memory, devices, pipes and the like as backing files", no_file),
    user(
        "descriptors.what_comes_back",
        "get a descriptor with more rights than the one sent",
        what_comes_back,
    ),
    user("descriptors.a_lease", "a lease on the backing file, for which whoever opens it waits", a_lease),
    user("descriptors.append", "have pages written at the end of their file", append),
    user("descriptors.for_reading", "have a file grow that is open for reading alone", for_reading),
];

fn create(at: &str, options: CreateOptions) -> Request {
    Request::Create { name: name(at), options, nonce: 1, in_directory: false }
}

/// Opens it as whoever calls this.
pub(super) fn opened(path: impl AsRef<Path>, flags: OFlags) -> OwnedFd {
    rustix::fs::open(path.as_ref(), flags | OFlags::CLOEXEC, Mode::empty()).expect("it may be opened")
}

/// The host refuses the descriptor of whoever calls this, and gives nothing.
#[track_caller]
fn is_refused(scene: &Local, what: &str, options: CreateOptions, fd: &OwnedFd) -> commonhold_object::Error {
    let (answer, fds) = Raw::connect(&scene.host).ask_with(&create("/taken", options), &[fd.as_fd()]);
    assert!(fds.is_empty(), "{what}: a descriptor came back");
    match answer {
        Ok(reply) => panic!("{what} was taken: {reply:?}"),
        Err(error) => error,
    }
}

/// An object of whoever calls this on that descriptor, and what the host gives for it.
#[track_caller]
pub(super) fn made(scene: &Local, at: &str, options: CreateOptions, fd: &OwnedFd) -> OwnedFd {
    let (answer, mut fds) = Raw::connect(&scene.host).ask_with(&create(at, options), &[fd.as_fd()]);
    let reply = answer.expect("it is made");
    assert!(matches!(reply, Reply::Opened(_)), "{reply:?}");
    fds.remove(0)
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).expect("a file").len()
}

const FOUR: u64 = 4 * PAGE as u64;

fn memory_of_a_setuid_program(scene: &Local) {
    let setuid = scene.host.scratch().join("setuid");
    std::fs::copy("/bin/sleep", &setuid).expect("a copy");
    std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755)).expect("setuid");
    let mut child = as_user(ATTACKER.0, || {
        let script = format!("read go; exec {} 1000", setuid.display());
        let mut child = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("sh");
        // It is not its user's before it has begun.
        let memory = format!("/proc/{}/mem", child.id());
        let mine = wait::until("it has begun", || {
            rustix::fs::open(&memory, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()
        });
        let before = is_refused(scene, "memory of one's own program", on_file(1 << 20, false), &mine);
        child.stdin.take().expect("its input").write_all(b"\n").expect("it reads");
        let comm = format!("/proc/{}/comm", child.id());
        wait::until("it is another program", || {
            std::fs::read_to_string(&comm).is_ok_and(|comm| comm.starts_with("setuid")).then_some(())
        });
        let after = is_refused(scene, "memory of a setuid program", on_file(1 << 20, false), &mine);
        for error in [before, after] {
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
            assert!(error.message.contains("proc"), "{error}");
        }
        child
    });
    child.kill().expect("it ends");
    child.wait().expect("it ends");
}

/// What is no file of a user, for whoever calls this.
fn what_is_no_file(scene: &Local, file: &Path, is_root: bool) -> Vec<(&'static str, OwnedFd)> {
    let unsealed = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).expect("memory");
    rustix::fs::ftruncate(&unsealed, 8192).expect("a size");
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
    let mut all = vec![
        ("/proc/meminfo", opened("/proc/meminfo", OFlags::RDONLY)),
        ("sysfs", opened("/sys/kernel/mm/transparent_hugepage/enabled", OFlags::RDONLY)),
        ("/dev/zero", opened("/dev/zero", OFlags::RDWR)),
        ("/dev/null", opened("/dev/null", OFlags::RDWR)),
        ("a directory", opened(scene.host.scratch().path(), OFlags::RDONLY)),
        ("a path", opened(file, OFlags::PATH)),
        ("a pipe", pipe),
        ("a socket", socket.into()),
        ("an eventfd", event),
    ];
    if !is_root {
        all.push(("open for writing alone", opened(file, OFlags::WRONLY)));
        all.push(("memory that can grow", unsealed));
    }
    // Where there are no huge pages none is made.
    let huge = rustix::fs::memfd_create("huge", MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING);
    all.extend(huge.ok().map(|fd| ("huge pages", fd)));
    all
}

fn no_file(scene: &Local) {
    let file = scene.new_file("file", FOUR);
    // A process that changed its user is not its own any more: opened before, as an ordinary process could.
    let own =
        [("own memory", "/proc/self/mem", OFlags::RDWR), ("own maps", "/proc/self/maps", OFlags::RDONLY)];
    let own = own.map(|(what, path, flags)| (what, opened(path, flags)));
    let all_of = |who: &str| {
        let others = what_is_no_file(scene, &file, who == "root");
        for (what, fd) in own.iter().chain(&others) {
            for controlled in [false, true] {
                let error = is_refused(scene, &format!("{what} of {who}"), on_file(4096, controlled), fd);
                let plain = [ErrorKind::Invalid, ErrorKind::Unsupported].contains(&error.kind);
                assert!(plain, "{what} of {who}: {error}");
            }
        }
    };
    as_user(ATTACKER.0, || all_of("an ordinary user"));
    all_of("root");
    assert_eq!(scene.host.log().matches("fault in this program").count(), 0);
}

fn what_comes_back(scene: &Local) {
    let file = scene.new_file("file", FOUR);
    as_user(ATTACKER.0, || {
        let mine = opened(&file, OFlags::RDWR);
        let back = made(scene, "/o", CreateOptions { mode: 0o644, ..on_file(0, false) }, &mine);
        // They share their flags: it is one description.
        let flags = |fd: &OwnedFd| rustix::fs::fcntl_getfl(fd).expect("its flags");
        rustix::fs::fcntl_setfl(&mine, OFlags::APPEND).expect("its flags");
        assert!(flags(&back).contains(OFlags::APPEND));
        rustix::fs::fcntl_setfl(&mine, OFlags::empty()).expect("its flags");
    });
    as_user(BYSTANDER.0, || {
        let mut raw = Raw::connect(&scene.host);
        let refused = raw.ask(&open("/o", Access::ReadWrite), &[]).expect("an answer").expect_err("mode 644");
        assert_eq!(refused.kind, ErrorKind::Permission);
        let (_, fds) = raw.ask_for(&open("/o", Access::Read));
        let flags = rustix::fs::fcntl_getfl(&fds[0]).expect("its flags");
        assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
        rustix::fs::ftruncate(&fds[0], 0).expect_err("it is open for reading");
        let again = format!("/proc/self/fd/{}", fds[0].as_raw_fd());
        rustix::fs::open(again, OFlags::RDWR, Mode::empty()).expect_err("the file is another's");
    });
    assert_eq!(length(&file), FOUR);
}

fn a_lease(scene: &Local) {
    let file = scene.new_file("file", FOUR);
    let mine = as_user(ATTACKER.0, || {
        let mine = opened(&file, OFlags::RDWR);
        made(scene, "/leased", CreateOptions { mode: 0o644, ..on_file(0, false) }, &mine);
        commonhold_tests::lease::take(&mine).expect("a lease");
        mine
    });
    let answer = as_user(BYSTANDER.0, || {
        Raw::connect(&scene.host).ask(&open("/leased", Access::Read), &[]).expect("an answer")
    });
    assert!(answer.is_err(), "the lease stands");
    drop(mine);
}

fn append(scene: &Local) {
    if !commonhold_sys::frames::writes_in_place_despite_append() {
        crate::leave_out("this kernel cannot (Linux 6.9 can)");
    }
    let file = scene.new_file("file", FOUR);
    let mine = as_user(ATTACKER.0, || {
        let mine = opened(&file, OFlags::RDWR | OFlags::APPEND);
        made(scene, "/o", CreateOptions { mode: 0o600, ..on_file(0, true) }, &mine);
        mine
    });
    let worker = scene.attacker();
    worker.all("open o /o rw\nmap m o rw shared 0 0\nfill m 0 4 7\nsync o 0 16384");
    rustix::fs::fcntl_setfl(&mine, OFlags::empty()).expect("its flags");
    worker.all("fill m 0 4 8\nsync o 0 16384");
    rustix::fs::fcntl_setfl(&mine, OFlags::APPEND).expect("its flags");
    worker.all("fill m 0 4 9\nsync o 0 16384\ncheck m 0 4 9");
    let stored = std::fs::read(&file).expect("the file");
    assert_eq!(stored.len() as u64, FOUR, "something was appended");
    assert!(stored == commonhold_tests::page::bytes(0, 4, 9), "the pages are not at their places");
}

fn for_reading(scene: &Local) {
    let file = scene.new_file_of("file", FOUR, BYSTANDER);
    as_user(ATTACKER.0, || {
        let theirs = opened(&file, OFlags::RDONLY);
        is_refused(scene, "a longer object", on_file(1 << 20, false), &theirs);
        let options = CreateOptions { mode: 0o666, ..on_file(0, false) };
        made(scene, "/theirs", options, &theirs);
        let mut raw = Raw::connect(&scene.host);
        let larger = Request::Resize { name: name("/theirs"), size_bytes: 1 << 20, of: None };
        raw.ask(&larger, &[]).expect("an answer").expect_err("the file may not be written");
        let write = open("/theirs", Access::ReadWrite);
        raw.ask(&write, &[]).expect("an answer").expect_err("the file may not be written");
    });
    assert_eq!(length(&file), FOUR);
}
