//! More memory and disk than a user may have, by way of a host of root.

use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, CreateOptions, ErrorKind, Name, PagerKind};
use commonhold_tests::raw::Raw;
use commonhold_tests::scratch::SmallDisk;
use commonhold_tests::user::as_user;
use commonhold_tests::{MIB, TestHost, root_or_skip, wait};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Who attacks.
const MALLORY: u32 = 4203;

fn make_file(path: &Path, bytes: u64) {
    std::fs::File::create(path).and_then(|file| file.set_len(bytes)).unwrap();
    chown(path, Some(MALLORY), Some(MALLORY)).unwrap();
}

#[test]
fn files_larger_than_the_process_may_make() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::start();
    let file = host.scratch().join("file");
    make_file(&file, 4096);
    let worker = host.worker_of(MALLORY, MALLORY);
    worker.ok(&format!("file-limit {MIB}"));
    for how in ["", "controlled"] {
        let line = |size: u64| format!("create o /o file={} size={size} reserve=yes {how}", file.display());
        let says = worker.refused(&line(2 * MIB), "Quota");
        assert!(says.contains("ulimit -f"), "{says}");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 4096);
        worker.ok(&line(MIB));
        worker.refused(&format!("resize /o {}", 2 * MIB), "Quota");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), MIB);
        worker.all("resize /o 4096\nclose o\nremove /o");
    }
}

/// Keeps a part of a disk for root.
fn keep_for_root(disk: &SmallDisk, percent: u32) -> bool {
    let source = Command::new("findmnt").args(["-no", "SOURCE"]).arg(disk.path()).output();
    let Ok(source) = source else { return false };
    let device = String::from_utf8_lossy(&source.stdout).trim().to_owned();
    let set = Command::new("tune2fs").args(["-m", &percent.to_string(), &device]).output();
    set.is_ok_and(|set| set.status.success())
}

#[test]
fn space_that_a_disk_keeps_for_root() {
    let disk = match SmallDisk::new(64) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    if !keep_for_root(&disk, 40) {
        return eprintln!("skipped: findmnt and tune2fs are needed");
    }
    let room =
        || rustix::fs::statvfs(disk.path()).map(|now| (now.f_bavail, now.f_bfree, now.f_frsize)).unwrap();
    let (users, all, block) = room();
    assert!(users < all, "nothing is kept for root: {users} {all}");
    let host = TestHost::start();
    let file = disk.path().join("file");
    make_file(&file, 4096);
    let worker = host.worker_of(MALLORY, MALLORY);
    // More than users may have, less than there is.
    let bytes = (users + (all - users) / 2) * block;
    for how in ["", "controlled"] {
        worker.refused(
            &format!("create o /o file={} size={bytes} reserve=yes {how}", file.display()),
            "NoSpace",
        );
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 4096);
    }
    // Without a reservation each page takes its block when it is stored.
    worker.ok(&format!("create o /o file={} size={bytes} reserve=no controlled", file.display()));
    worker.ok("map m o rw shared 0 0");
    let pages = bytes / 4096;
    let mut refused = None;
    for first in (0..pages).step_by(1024) {
        let count = 1024.min(pages - first);
        worker.ok(&format!("fill m {first} {count} 3"));
        if let Err(error) = worker.ask(&format!("sync o {} {}", first * 4096, count * 4096)) {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("what root has is taken");
    assert_eq!(refused.kind, "NoSpace", "{}", refused.message);
    let (_, left, _) = room();
    assert!(left >= (all - users) / 2, "{left} of {all} blocks are left");
}

#[test]
fn setuid_bits_go_when_a_host_writes() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::start();
    let file = host.scratch().join("file");
    for sync in ["plain", "ordered", "atomic"] {
        make_file(&file, 16384);
        let worker = host.worker_of(MALLORY, MALLORY);
        worker.ok(&format!("create o /o file={} controlled sync={sync}", file.display()));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o6755)).unwrap();
        worker.all("map m o rw shared 0 0\nfill m 0 4 5\nsync o 0 16384");
        let mode = std::fs::metadata(&file).unwrap().mode() & 0o7777;
        assert_eq!(mode & 0o6000, 0, "{sync}: {mode:o}");
        worker.all("drop m\nclose o\nremove /o");
    }
}

#[test]
fn memory_that_is_made_longer_than_its_object() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::with(&["--quota", "16MiB"]);
    for controlled in [false, true] {
        let at = Name::directory(if controlled { "/controlled" } else { "/direct" }).unwrap();
        let options = CreateOptions { size_bytes: MIB, controlled, ..CreateOptions::default() };
        let create = Request::Create { name: at.clone(), options, nonce: 1 };
        let grow = |raw: &mut Raw| {
            let open = Request::Open { name: at.clone(), access: Access::ReadWrite };
            let memory = raw.ask_for(&open).1.remove(0);
            rustix::fs::ftruncate(&memory, 64 * MIB).unwrap();
            rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, 64 * MIB).unwrap();
            memory
        };
        let is_cut = |memory: &OwnedFd| {
            wait::until("it is cut off", || {
                let now = rustix::fs::fstat(memory).unwrap();
                (now.st_size as u64 == MIB && now.st_blocks as u64 * 512 <= MIB).then_some(())
            });
        };
        // While its session goes on, and when it ends.
        let mut raw = as_user(MALLORY, || Raw::connect(&host));
        raw.ask(&create, &[]).unwrap().unwrap();
        is_cut(&grow(&mut raw));
        let again = grow(&mut raw);
        drop(raw);
        is_cut(&again);
        // Its size changes as before.
        let mut raw = as_user(MALLORY, || Raw::connect(&host));
        let resize = |size_bytes| Request::Resize { name: at.clone(), size_bytes };
        raw.ask(&resize(2 * MIB), &[]).unwrap().unwrap();
        let open = Request::Open { name: at.clone(), access: Access::ReadWrite };
        let memory = raw.ask_for(&open).1.remove(0);
        assert_eq!(rustix::fs::fstat(&memory).unwrap().st_size as u64, 2 * MIB);
        raw.ask(&resize(MIB), &[]).unwrap().unwrap();
        raw.ask(&Request::Remove { name: at.clone() }, &[]).unwrap().unwrap();
    }
}

fn sealed(bytes: u64) -> OwnedFd {
    let memory = rustix::fs::memfd_create("given", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&memory, SealFlags::GROW).unwrap();
    memory
}

#[test]
fn memory_given_as_a_file_counts() {
    if !root_or_skip("other users") {
        return;
    }
    let host = TestHost::with(&["--quota", "16MiB"]);
    let create = |at: &str, size_bytes, fd: &OwnedFd| {
        let reserve = Some(false);
        let options =
            CreateOptions { pager: PagerKind::File, size_bytes, reserve, ..CreateOptions::default() };
        let request =
            Request::Create { name: Name::directory(at).unwrap(), options, nonce: size_bytes.into() };
        Raw::connect(&host).ask(&request, &[fd.as_fd()]).expect("an answer")
    };
    as_user(MALLORY, || {
        // Whatever part of it is the object.
        assert_eq!(create("/large", 4096, &sealed(400 * MIB)).unwrap_err().kind, ErrorKind::Quota);
        let ten = sealed(10 * MIB);
        assert!(matches!(create("/ten", 0, &ten), Ok(Reply::Opened(_))));
        assert_eq!(create("/more", 0, &sealed(10 * MIB)).unwrap_err().kind, ErrorKind::Quota);
        rustix::fs::ftruncate(&ten, 11 * MIB).unwrap_err();
        // Nor by a file of tmpfs.
        let directory = Path::new("/dev/shm");
        if directory.is_dir() {
            let file = tempfile::tempfile_in(directory).unwrap();
            file.set_len(10 * MIB).unwrap();
            let fd = OwnedFd::from(file);
            assert_eq!(create("/shm", 4096, &fd).unwrap_err().kind, ErrorKind::Quota);
        }
    });
}
