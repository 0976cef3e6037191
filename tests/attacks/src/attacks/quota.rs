//! More memory and disk than a user may have, by way of a host of root.

use super::{user, user_of, with};
use crate::scene::{ATTACKER, Local, Machine, name, on_file, open};
use crate::{Attack, leave_out};
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, CreateOptions, ErrorKind};
use commonhold_tests::raw::Raw;
use commonhold_tests::scratch::SmallDisk;
use commonhold_tests::user::as_user;
use commonhold_tests::{MIB, wait};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const SMALL: Machine = with(&["--quota", "16MiB"]);

pub(crate) const ATTACKS: &[Attack] = &[
    user("quota.the_file_size_limit", "a file larger than the process may make", file_size_limit),
    user("quota.space_kept_for_root", "the space that a disk keeps for root", space_kept_for_root),
    user("quota.setuid_bits", "keep setuid bits of a file that the host writes", setuid_bits),
    user_of(SMALL, "quota.memory_made_longer", "make an object's memory longer than the object", made_longer),
    user_of(
        SMALL,
        "quota.memory_given_as_a_file",
        "memory given as a file, that nobody counts",
        given_as_a_file,
    ),
];

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).expect("a file").len()
}

fn file_size_limit(scene: &Local) {
    let file = scene.new_file("file", 4096);
    let worker = scene.attacker();
    worker.ok(&format!("file-limit {MIB}"));
    for how in ["", "controlled"] {
        let line = |size: u64| format!("create o /o file={} size={size} reserve=yes {how}", file.display());
        let says = worker.refused(&line(2 * MIB), "Quota");
        assert!(says.contains("ulimit -f"), "{says}");
        assert_eq!(length(&file), 4096);
        worker.ok(&line(MIB));
        worker.refused(&format!("resize /o {}", 2 * MIB), "Quota");
        assert_eq!(length(&file), MIB);
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

/// Blocks that users may have, all that are free, and the bytes of one.
fn room(disk: &SmallDisk) -> (u64, u64, u64) {
    rustix::fs::statvfs(disk.path()).map(|now| (now.f_bavail, now.f_bfree, now.f_frsize)).expect("statvfs")
}

fn space_kept_for_root(scene: &Local) {
    let disk = SmallDisk::new(64).unwrap_or_else(|why| leave_out(why));
    if !keep_for_root(&disk, 40) {
        leave_out("findmnt and tune2fs are needed");
    }
    let (users, all, block) = room(&disk);
    assert!(users < all, "nothing is kept for root: {users} {all}");
    let file = disk.path().join("file");
    std::fs::File::create(&file).and_then(|file| file.set_len(4096)).expect("a file");
    chown(&file, Some(ATTACKER.0), Some(ATTACKER.1)).expect("a file of theirs");
    let worker = scene.attacker();
    // More than users may have, less than there is.
    let bytes = (users + (all - users) / 2) * block;
    for how in ["", "controlled"] {
        let line = format!("create o /o file={} size={bytes} reserve=yes {how}", file.display());
        worker.refused(&line, "NoSpace");
        assert_eq!(length(&file), 4096);
    }
    // Without a reservation each page takes its block when it is stored.
    worker.ok(&format!("create o /o file={} size={bytes} reserve=no controlled", file.display()));
    worker.ok("map m o rw shared 0 0");
    let refused = (0..bytes / 4096).step_by(1024).find_map(|first| {
        let count = 1024.min(bytes / 4096 - first);
        worker.ok(&format!("fill m {first} {count} 3"));
        worker.ask(&format!("sync o {} {}", first * 4096, count * 4096)).err()
    });
    let refused = refused.expect("what root has is taken");
    assert_eq!(refused.kind, "NoSpace", "{}", refused.message);
    let (_, left, _) = room(&disk);
    assert!(left >= (all - users) / 2, "{left} of {all} blocks are left");
    // The host lets go of the file, so that the disk can be unmounted.
    drop(worker);
    scene.host.worker().ok("remove /o");
}

fn setuid_bits(scene: &Local) {
    for sync in ["plain", "ordered", "atomic"] {
        let file = scene.new_file("file", 16384);
        let worker = scene.attacker();
        worker.ok(&format!("create o /o file={} controlled sync={sync}", file.display()));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o6755)).expect("setuid");
        worker.all("map m o rw shared 0 0\nfill m 0 4 5\nsync o 0 16384");
        let mode = std::fs::metadata(&file).expect("a file").mode() & 0o7777;
        assert_eq!(mode & 0o6000, 0, "{sync}: {mode:o}");
        worker.all("drop m\nclose o\nremove /o");
    }
}

/// Makes the memory of an object as long as 64 MiB; the memory.
fn lengthened(raw: &mut Raw, at: &str) -> OwnedFd {
    let memory = raw.ask_for(&open(at, Access::ReadWrite)).1.remove(0);
    rustix::fs::ftruncate(&memory, 64 * MIB).expect("a writer may");
    rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, 64 * MIB).expect("a writer may");
    memory
}

fn is_cut(memory: &OwnedFd) {
    wait::until("it is cut off", || {
        let now = rustix::fs::fstat(memory).expect("fstat");
        (now.st_size as u64 == MIB && now.st_blocks as u64 * 512 <= MIB).then_some(())
    });
}

fn made_longer(scene: &Local) {
    for (controlled, at) in [(false, "/direct"), (true, "/controlled")] {
        let options = CreateOptions { size_bytes: MIB, controlled, ..CreateOptions::default() };
        // While its session goes on, and when it ends.
        let mut raw = scene.raw();
        let create = Request::Create { name: name(at), options, nonce: 1, in_directory: false };
        raw.ask(&create, &[]).expect("an answer").expect("it is made");
        is_cut(&lengthened(&mut raw, at));
        let again = lengthened(&mut raw, at);
        drop(raw);
        is_cut(&again);
        // Its size changes as before.
        let mut raw = scene.raw();
        let resize = |raw: &mut Raw, size_bytes| {
            let resize = Request::Resize { name: name(at), size_bytes, of: None };
            raw.ask(&resize, &[]).expect("an answer").expect("it has another size");
        };
        resize(&mut raw, 2 * MIB);
        let memory = raw.ask_for(&open(at, Access::ReadWrite)).1.remove(0);
        assert_eq!(rustix::fs::fstat(&memory).expect("fstat").st_size as u64, 2 * MIB);
        resize(&mut raw, MIB);
        raw.ask(&Request::Remove { name: name(at), of: None }, &[])
            .expect("an answer")
            .expect("it is the attacker's");
    }
}

fn sealed(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let memory = rustix::fs::memfd_create("given", flags).expect("memory");
    rustix::fs::ftruncate(&memory, bytes).expect("a size");
    rustix::fs::fcntl_add_seals(&memory, SealFlags::GROW).expect("a seal");
    memory
}

fn given_as_a_file(scene: &Local) {
    let create = |at: &str, size_bytes, fd: &OwnedFd| {
        let options = on_file(size_bytes, false);
        let request =
            Request::Create { name: name(at), options, nonce: size_bytes.into(), in_directory: false };
        Raw::connect(&scene.host).ask(&request, &[fd.as_fd()]).expect("an answer")
    };
    let is_too_much = |at: &str, size_bytes, fd: &OwnedFd| {
        let refused = create(at, size_bytes, fd).expect_err("it counts");
        assert_eq!(refused.kind, ErrorKind::Quota, "{refused}");
    };
    as_user(ATTACKER.0, || {
        // Whatever part of it is the object.
        is_too_much("/large", 4096, &sealed(400 * MIB));
        let ten = sealed(10 * MIB);
        assert!(matches!(create("/ten", 0, &ten), Ok(Reply::Opened(_))));
        is_too_much("/more", 0, &sealed(10 * MIB));
        rustix::fs::ftruncate(&ten, 11 * MIB).expect_err("it is sealed");
        // Nor by a file of tmpfs.
        let directory = Path::new("/dev/shm");
        if directory.is_dir() {
            let file = tempfile::tempfile_in(directory).expect("a file in memory");
            file.set_len(10 * MIB).expect("a size");
            is_too_much("/shm", 4096, &file.into());
        }
    });
}
