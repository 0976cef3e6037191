//! Descriptors that an ordinary user sends to a host of root, to have it do with its rights what the user may not.

use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, CreateOptions, ErrorKind, Name, PagerKind};
use commonhold_tests::raw::Raw;
use commonhold_tests::user::as_user;
use commonhold_tests::{PAGE, Scratch, TestHost, root_or_skip, wait};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Who attacks.
const MALLORY: u32 = 4201;
/// Another user.
const ALICE: u32 = 4202;

fn name(text: &str) -> Name {
    Name::directory(text).unwrap()
}

fn on_file(size_bytes: u64, controlled: bool) -> CreateOptions {
    let reserve = Some(false);
    CreateOptions { pager: PagerKind::File, size_bytes, controlled, reserve, ..CreateOptions::default() }
}

fn create(at: &str, options: CreateOptions) -> Request {
    Request::Create { name: name(at), options, nonce: 1 }
}

fn open(path: impl AsRef<Path>, flags: OFlags) -> OwnedFd {
    rustix::fs::open(path.as_ref(), flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// A file of a user, of pages of zeros.
fn file_of(scratch: &Scratch, called: &str, pages: u64, uid: u32) -> PathBuf {
    let path = scratch.file(called, pages * PAGE as u64);
    chown(&path, Some(uid), Some(uid)).unwrap();
    path
}

/// The host refuses the descriptor, and gives nothing.
#[track_caller]
fn is_refused(host: &TestHost, what: &str, options: CreateOptions, fd: &OwnedFd) -> commonhold_object::Error {
    let (answer, fds) = Raw::connect(host).ask_with(&create("/taken", options), &[fd.as_fd()]);
    assert!(fds.is_empty(), "{what}: a descriptor came back");
    match answer {
        Ok(reply) => panic!("{what} was taken: {reply:?}"),
        Err(error) => error,
    }
}

/// A user's object on that descriptor, and what the host gives for it.
#[track_caller]
fn made(host: &TestHost, at: &str, options: CreateOptions, fd: &OwnedFd) -> OwnedFd {
    let (answer, mut fds) = Raw::connect(host).ask_with(&create(at, options), &[fd.as_fd()]);
    let reply = answer.unwrap();
    assert!(matches!(reply, Reply::Opened(_)), "{reply:?}");
    fds.remove(0)
}

#[test]
fn the_memory_of_a_program_that_became_root() {
    if !root_or_skip("a setuid program") {
        return;
    }
    let host = TestHost::start();
    let setuid = host.scratch().join("setuid");
    std::fs::copy("/bin/sleep", &setuid).unwrap();
    std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mut child = as_user(MALLORY, || {
        let script = format!("read go; exec {} 1000", setuid.display());
        let mut child = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
        // It is not its user's before it has begun.
        let memory = format!("/proc/{}/mem", child.id());
        let mine = wait::until("it has begun", || {
            rustix::fs::open(&memory, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()
        });
        let before = is_refused(&host, "memory of one's own program", on_file(1 << 20, false), &mine);
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let comm = format!("/proc/{}/comm", child.id());
        wait::until("it is another program", || {
            std::fs::read_to_string(&comm).is_ok_and(|comm| comm.starts_with("setuid")).then_some(())
        });
        let after = is_refused(&host, "memory of a setuid program", on_file(1 << 20, false), &mine);
        for error in [before, after] {
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
            assert!(error.message.contains("proc"), "{error}");
        }
        child
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_is_no_file_of_a_user() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::start();
    let scratch = host.scratch();
    let file = file_of(scratch, "file", 4, MALLORY);
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    // A process that changed its user is not its own any more: opened before, as an ordinary process could.
    let (memory, maps) = (open("/proc/self/mem", OFlags::RDWR), open("/proc/self/maps", OFlags::RDONLY));
    let all = |who: &str| {
        let unsealed = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 8192).unwrap();
        let mut all = vec![
            ("own memory", memory.try_clone().unwrap()),
            ("own maps", maps.try_clone().unwrap()),
            ("/proc/meminfo", open("/proc/meminfo", OFlags::RDONLY)),
            ("sysfs", open("/sys/kernel/mm/transparent_hugepage/enabled", OFlags::RDONLY)),
            ("/dev/zero", open("/dev/zero", OFlags::RDWR)),
            ("/dev/null", open("/dev/null", OFlags::RDWR)),
            ("a directory", open(scratch.path(), OFlags::RDONLY)),
            ("a path", open(&file, OFlags::PATH)),
            ("a pipe", pipe.try_clone().unwrap()),
            ("a socket", socket.try_clone().unwrap().into()),
            ("an eventfd", rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()),
        ];
        if who != "root" {
            all.push(("open for writing alone", open(&file, OFlags::WRONLY)));
            all.push(("memory that can grow", unsealed));
        }
        // Where there are no huge pages none is made.
        let huge = rustix::fs::memfd_create("huge", MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING);
        all.extend(huge.ok().map(|fd| ("huge pages", fd)));
        for (what, fd) in &all {
            for controlled in [false, true] {
                let error = is_refused(&host, &format!("{what} of {who}"), on_file(4096, controlled), fd);
                let plain = [ErrorKind::Invalid, ErrorKind::Unsupported].contains(&error.kind);
                assert!(plain, "{what} of {who}: {error}");
            }
        }
    };
    as_user(MALLORY, || all("an ordinary user"));
    all("root");
    assert_eq!(host.log().matches("fault in this program").count(), 0);
}

#[test]
fn the_descriptor_that_comes_back_is_the_one_that_was_sent() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::start();
    let file = file_of(host.scratch(), "file", 4, MALLORY);
    as_user(MALLORY, || {
        let mine = open(&file, OFlags::RDWR);
        let back = made(&host, "/o", CreateOptions { mode: 0o644, ..on_file(0, false) }, &mine);
        // They share their flags: it is one description.
        rustix::fs::fcntl_setfl(&mine, OFlags::APPEND).unwrap();
        assert!(rustix::fs::fcntl_getfl(&back).unwrap().contains(OFlags::APPEND));
        rustix::fs::fcntl_setfl(&mine, OFlags::empty()).unwrap();
    });
    let read = Request::Open { name: name("/o"), access: Access::Read };
    as_user(ALICE, || {
        let mut raw = Raw::connect(&host);
        let write = Request::Open { name: name("/o"), access: Access::ReadWrite };
        assert_eq!(raw.ask(&write, &[]).unwrap().unwrap_err().kind, ErrorKind::Permission);
        let (_, fds) = raw.ask_for(&read);
        let flags = rustix::fs::fcntl_getfl(&fds[0]).unwrap();
        assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
        rustix::fs::ftruncate(&fds[0], 0).unwrap_err();
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fds[0]));
        rustix::fs::open(again, OFlags::RDWR, Mode::empty()).unwrap_err();
    });
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 4 * PAGE as u64);
}

#[test]
fn a_lease_on_the_file_holds_up_nobody() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::start();
    let file = file_of(host.scratch(), "file", 4, MALLORY);
    let mine = as_user(MALLORY, || {
        let mine = open(&file, OFlags::RDWR);
        made(&host, "/leased", CreateOptions { mode: 0o644, ..on_file(0, false) }, &mine);
        /// Of asm-generic/fcntl.h.
        const F_SETSIG: libc::c_int = 10;
        // SAFETY: only numbers are passed.
        let leased = unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&mine);
            // A signal that nobody would die of: whoever breaks the lease sends one.
            libc::fcntl(fd, F_SETSIG, libc::SIGCHLD);
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK)
        };
        assert_eq!(leased, 0, "{}", std::io::Error::last_os_error());
        mine
    });
    let read = Request::Open { name: name("/leased"), access: Access::Read };
    let answer = as_user(ALICE, || Raw::connect(&host).ask(&read, &[]).expect("an answer"));
    assert!(answer.is_err(), "the lease stands");
    drop(mine);
}

#[test]
fn pages_are_written_at_their_place_whatever_flags_their_file_gets() {
    if !root_or_skip("other users") {
        return;
    }
    if !commonhold_sys::frames::writes_in_place_despite_append() {
        eprintln!("skipped: this kernel cannot (Linux 6.9 can)");
        return;
    }
    let host = TestHost::start();
    let file = file_of(host.scratch(), "file", 4, MALLORY);
    let mine = as_user(MALLORY, || {
        let mine = open(&file, OFlags::RDWR | OFlags::APPEND);
        made(&host, "/o", CreateOptions { mode: 0o600, ..on_file(0, true) }, &mine);
        mine
    });
    let worker = host.worker_of(MALLORY, MALLORY);
    worker.all("open o /o rw\nmap m o rw shared 0 0\nfill m 0 4 7\nsync o 0 16384");
    rustix::fs::fcntl_setfl(&mine, OFlags::empty()).unwrap();
    worker.all("fill m 0 4 8\nsync o 0 16384");
    rustix::fs::fcntl_setfl(&mine, OFlags::APPEND).unwrap();
    worker.all("fill m 0 4 9\nsync o 0 16384\ncheck m 0 4 9");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 4 * PAGE as u64, "nothing was appended");
    let mut bytes = vec![0; 4 * PAGE];
    std::fs::File::open(&file).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().any(|byte| *byte != 0));
}

#[test]
fn a_file_that_is_open_for_reading_alone_does_not_grow() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::start();
    let file = file_of(host.scratch(), "file", 4, ALICE);
    as_user(MALLORY, || {
        let theirs = open(&file, OFlags::RDONLY);
        is_refused(&host, "a longer object", on_file(1 << 20, false), &theirs);
        let options = CreateOptions { mode: 0o666, ..on_file(0, false) };
        made(&host, "/theirs", options, &theirs);
        let mut raw = Raw::connect(&host);
        let larger = Request::Resize { name: name("/theirs"), size_bytes: 1 << 20 };
        raw.ask(&larger, &[]).unwrap().unwrap_err();
        let write = Request::Open { name: name("/theirs"), access: Access::ReadWrite };
        raw.ask(&write, &[]).unwrap().unwrap_err();
    });
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 4 * PAGE as u64);
}

/// Another start of host and keeper, as after a reboot: backing files are found by their paths.
fn start_again(host: &TestHost) {
    host.kill_both();
    host.start_again().unwrap();
}

#[test]
fn a_path_that_leads_elsewhere_after_a_reboot() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::start();
    let directory = host.scratch().join("theirs");
    std::fs::create_dir(&directory).unwrap();
    chown(&directory, Some(MALLORY), Some(MALLORY)).unwrap();
    let secret = host.scratch().file_of("secret", &[7; 4 * PAGE]);
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = directory.join("file");
    let make = || {
        std::fs::write(&file, [0; 4 * PAGE]).unwrap();
        made(&host, "/o", on_file(0, false), &open(&file, OFlags::RDWR));
    };
    let swaps: [(&str, &(dyn Fn() + Sync)); 3] = [
        ("a link", &|| std::os::unix::fs::symlink(&secret, &file).unwrap()),
        ("a pipe", &|| {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                &file,
                rustix::fs::FileType::Fifo,
                Mode::RUSR | Mode::WUSR,
                0,
            )
            .unwrap();
        }),
        ("another file", &|| std::fs::write(&file, [1; 4 * PAGE]).unwrap()),
    ];
    for (what, swap) in swaps.into_iter() {
        as_user(MALLORY, make);
        // Its inode stays taken: else the new file might have the same.
        let _before = open(&file, OFlags::RDONLY);
        as_user(MALLORY, || {
            std::fs::remove_file(&file).unwrap();
            swap();
        });
        start_again(&host);
        as_user(MALLORY, || {
            let mut raw = Raw::connect(&host);
            let read = Request::Open { name: name("/o"), access: Access::Read };
            let (answer, fds) = raw.ask_with(&read, &[]);
            assert_eq!(answer.unwrap_err().kind, ErrorKind::Lost, "{what}");
            assert!(fds.is_empty(), "{what}");
            raw.ask(&Request::Remove { name: name("/o") }, &[]).unwrap().unwrap();
            std::fs::remove_file(&file).unwrap();
        });
    }
}

#[test]
fn a_file_that_its_user_may_not_open_any_more() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::start();
    let file = host.scratch().file("of-root", 4 * PAGE as u64);
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    as_user(MALLORY, || made(&host, "/o", on_file(0, false), &open(&file, OFlags::RDWR)));
    let opens = || {
        let write = Request::Open { name: name("/o"), access: Access::ReadWrite };
        as_user(MALLORY, || Raw::connect(&host).ask(&write, &[]).unwrap().map(drop))
    };
    start_again(&host);
    opens().unwrap();
    mode(0o600);
    opens().unwrap(); // what is open stays open, as elsewhere
    start_again(&host);
    let error = opens().unwrap_err();
    assert!(error.message.contains("mode"), "{error}");
    assert_eq!(std::fs::metadata(&file).unwrap().uid(), 0);
}
