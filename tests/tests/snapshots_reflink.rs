//! Snapshots of files on XFS and Btrfs: the file is cloned (`docs/SNAPSHOTS.md`, Files on XFS and Btrfs).

use commonhold::{Access, CreateOptions, ErrorKind, Host, Object, PagerKind, SnapshotOptions};
use commonhold_tests::crash::rounds;
use commonhold_tests::left_out::has;
use commonhold_tests::scratch::{RamDisk, Scratch, SmallDisk};
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, PAGE, TestHost, Worker, is_root, left_out};
use std::fs::{File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What makes a file system, the package that it is in, and some more than the least that it takes, MiB.
type Kind = (&'static str, &'static str, u64);
const XFS: Kind = ("mkfs.xfs", "xfsprogs", 320);
const BTRFS: Kind = ("mkfs.btrfs", "btrfs-progs", 128);

/// None: it cannot be had here, and that was said.
fn disk((mkfs, package, megabytes): Kind) -> Option<SmallDisk> {
    let what = format!("clones of files ({mkfs})");
    if !is_root(&what) || !has(mkfs, package, &what) {
        return None;
    }
    let made = SmallDisk::made_by(Scratch::in_memory(), megabytes, mkfs, &["-q"]);
    made.inspect_err(|why| left_out(&format!("{what}: {why}"))).ok()
}

/// Tries it on all that can be had.
fn on_each(try_it: impl Fn(&SmallDisk, &TestHost)) {
    for kind in [XFS, BTRFS] {
        if let Some(disk) = disk(kind) {
            let scratch = Scratch::in_memory();
            let state = scratch.join("state");
            try_it(&disk, &TestHost::at(scratch, state, &[]));
        }
    }
}

/// A direct object on a new file of so many bytes of 1.
fn create(client: &Host, name: &str, path: &Path, bytes: usize) -> Object {
    std::fs::write(path, vec![1; bytes]).expect("it is written");
    on_file(client, name, path)
}

fn on_file(client: &Host, name: &str, path: &Path) -> Object {
    let file = File::options().read(true).write(true).open(path).expect("it is there");
    let options =
        CreateOptions { pager: PagerKind::File, description: "<u4".into(), ..CreateOptions::default() };
    client.create(name, &options, Some(file.as_fd())).expect("it is made")
}

fn to(path: &Path) -> SnapshotOptions {
    SnapshotOptions { file: Some(path.to_owned()), ..SnapshotOptions::default() }
}

fn writable(path: &Path) -> SnapshotOptions {
    SnapshotOptions { writable: true, ..to(path) }
}

fn part(path: &Path, offset: u64, length: Option<u64>) -> SnapshotOptions {
    SnapshotOptions { offset, length, ..to(path) }
}

fn bytes(object: &Object) -> Vec<u8> {
    let mut bytes = vec![0; object.size_bytes() as usize];
    object.read_at(&mut bytes, 0).expect("it is read");
    bytes
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}

#[test]
fn a_clone_has_what_was_there() {
    on_each(|disk, host| {
        let client = host.connect();
        let at = |name: &str| disk.path().join(name);
        let size = 3 * PAGE + 100;
        let object = create(&client, "/a", &at("a"), size);
        let monday = object.snapshot("/a@monday", &to(&at("monday"))).expect("a snapshot");
        object.write_at(&[2; 2 * PAGE], PAGE as u64).expect("it is written");
        assert_eq!(bytes(&monday), vec![1; size]);
        assert_eq!((monday.access(), monday.options().description.as_str()), (Access::Read, "<u4"));
        assert_eq!(std::fs::read(at("monday")).expect("a file"), vec![1; size]);
        assert_eq!(std::fs::metadata(at("monday")).expect("a file").mode() & 0o777, 0o600);
        let refused = client.open("/a@monday", Access::ReadWrite).expect_err("nobody writes to it");
        assert_eq!(refused.kind, ErrorKind::Permission, "{refused}");
        // One that is written. It is of a snapshot, which is open for reading alone.
        let clone = monday.snapshot("/clone", &writable(&at("clone"))).expect("a clone");
        clone.write_at(&[3; PAGE], 0).expect("it is written");
        assert_eq!((bytes(&monday)[0], bytes(&object)[0], bytes(&clone)[PAGE]), (1, 1, 1));
        // Parts: of whole pages, and to the end.
        let middle = object.snapshot("/middle", &part(&at("middle"), PAGE as u64, Some(2 * PAGE as u64)));
        assert_eq!(bytes(&middle.expect("a snapshot")), [2; 2 * PAGE]);
        let end = object.snapshot("/end", &part(&at("end"), 2 * PAGE as u64, None)).expect("a snapshot");
        assert_eq!(bytes(&end), [vec![2; PAGE], vec![1; 100]].concat());
        // Whoever may read it may take one; of what is removed, too, as long as it is open.
        let reader = client.open("/a", Access::Read).expect("it is there");
        client.remove("/a").expect("it has a name");
        let last = reader.snapshot("/last", &to(&at("last"))).expect("a snapshot");
        assert_eq!(bytes(&last), bytes(&object));
        // The files are their maker's, as any file of an object.
        client.remove("/a@monday").expect("it has a name");
        assert_eq!(std::fs::read(at("monday")).expect("a file"), vec![1; size]);
        clone.resize(PAGE as u64).expect("it shrinks");
        assert_eq!(std::fs::metadata(at("clone")).expect("a file").len(), PAGE as u64);
    });
}

#[test]
fn a_clone_takes_room_for_what_differs() {
    on_each(|disk, host| {
        let client = host.connect();
        let free = || {
            let state = rustix::fs::statvfs(disk.path()).expect("statvfs");
            state.f_bavail * state.f_frsize
        };
        let object = create(&client, "/a", &disk.path().join("a"), 16 * MIB as usize);
        object.sync(0, 16 * MIB).expect("it is stored");
        let before = free();
        for number in 0..8 {
            let path = disk.path().join(number.to_string());
            object.snapshot(&format!("/{number}"), &to(&path)).expect("a snapshot");
        }
        assert!(before.saturating_sub(free()) < 8 * MIB, "{before} bytes were free, and {} are", free());
    });
}

/// As `snapshots::a_snapshot_is_of_one_instant`: processes that write their words in turn, and two that write to one page and
/// then to the other, upwards and downwards.
#[test]
fn a_clone_is_of_one_instant() {
    // Of each of two file systems.
    let (least, instants_least) = (rounds(30), rounds(10));
    on_each(|disk, host| {
        let client = host.connect();
        let object = create(&client, "/a", &disk.path().join("a"), 512 * PAGE);
        object.write_at(&vec![0; 512 * PAGE], 0).expect("it is written");
        let in_turn: [u64; 3] = [0, 320, 160];
        let pairs: [(u64, u64); 2] = [(80, 400), (401, 81)];
        // What lies between is written too, so that the kernel has to store it before the next of them.
        let between = [(1, 79), (82, 78), (161, 159), (321, 79), (402, 110)];
        let lines = [(160, 0), (0, 320), (320, 160)].map(|(before, own)| format!("follow m {before} {own}"));
        let pair_lines = pairs.map(|(first, second)| format!("pair m {first} {second}"));
        let begin = |line: &String| {
            let worker = host.worker();
            worker.all(&format!("open o /a rw\nmap m o rw shared 0 0\n{line}"));
            worker
        };
        let writers: Vec<Worker> = lines.iter().chain(&pair_lines).map(begin).collect();
        let path = disk.path().join("clone");
        let (begun, mut clones, mut instants, mut seen) = (Instant::now(), 0, 0, 0);
        while clones < least || instants < instants_least {
            assert!(begun.elapsed() < Duration::from_secs(100), "the writers stand still at {seen}");
            for (first, pages) in between {
                object
                    .write_at(&vec![clones as u8; pages * PAGE], first * PAGE as u64)
                    .expect("it is written");
            }
            let one = object.snapshot("/s", &to(&path)).expect("a snapshot");
            let word = |page: u64| {
                let mut word = [0; 8];
                one.read_at(&mut word, page * PAGE as u64).expect("it is read");
                u64::from_le_bytes(word)
            };
            let words = in_turn.map(word);
            let in_order = words.is_sorted_by(|one, next| one >= next);
            assert!(in_order && words[0] - words[2] <= 1, "{words:?} at one instant");
            assert!(words[0] >= seen, "{words:?} after {seen}");
            for (first, second) in pairs {
                let (one, other) = (word(first), word(second));
                assert!(one >= other && one - other <= 1, "{one} and {other} at one instant");
            }
            assert_eq!(in_turn.map(word), words, "the writers go on");
            (clones, instants) = (clones + 1, instants + usize::from(words[0] > seen));
            seen = words[0];
            client.remove("/s").expect("it has a name");
            std::fs::remove_file(&path).expect("it is there");
        }
        writers.iter().for_each(|writer| drop(writer.ok("halt")));
    });
}

#[test]
fn what_cannot_be_cloned_leaves_nothing() {
    on_each(|disk, host| {
        let client = host.connect();
        let at = |name: &str| disk.path().join(name);
        let size = 4 * PAGE as u64;
        let object = create(&client, "/a", &at("a"), size as usize);
        std::fs::write(at("there"), b"bytes").expect("it is written");
        let elsewhere = host.scratch().join("s");
        let (files_before, objects_before) = (files(disk.path()), host.status().objects);
        let new = at("s");
        let wrong_mode = SnapshotOptions { mode: 0o7777, ..to(&new) };
        for (name, options, kind, says) in [
            ("/s", to(&at("there")), ErrorKind::Exists, "is there already"),
            ("/a", to(&new), ErrorKind::Exists, "/a"),
            ("/s", to(&at("no/such")), ErrorKind::NotFound, "no directory"),
            ("/s", to(Path::new("")), ErrorKind::Invalid, "names no file"),
            ("/s", to(&at("..")), ErrorKind::Invalid, "names no file"),
            ("/s", to(&elsewhere), ErrorKind::Unsupported, "XFS, Btrfs"),
            ("/s", to(&elsewhere), ErrorKind::Unsupported, "--freezable"),
            ("/s", wrong_mode, ErrorKind::Invalid, "mode"),
            ("s", to(&new), ErrorKind::Invalid, "s"),
            ("/s", part(&new, 100, None), ErrorKind::Invalid, "multiple of 4096"),
            ("/s", part(&new, 0, Some(100)), ErrorKind::Invalid, "multiple of 4096"),
            ("/s", part(&new, size, None), ErrorKind::Invalid, "has 16384"),
            ("/s", part(&new, 0, Some(size + 1)), ErrorKind::Invalid, "has 16384"),
            ("/s", part(&new, 4096, Some(u64::MAX)), ErrorKind::Invalid, "has 16384"),
            ("/s", part(&new, 0, Some(0)), ErrorKind::Invalid, "no bytes"),
            ("/s", SnapshotOptions::default(), ErrorKind::Unsupported, "--file"),
        ] {
            let error = object.snapshot(name, &options).expect_err(says);
            assert_eq!(error.kind, kind, "{options:?}: {error}");
            assert!(error.message.contains(says), "{options:?}: {error}");
        }
        // Its file was cut by somebody else.
        File::options().write(true).open(at("a")).and_then(|file| file.set_len(4096)).expect("it is cut");
        let error = object.snapshot("/s", &to(&new)).expect_err("it is not whole");
        assert!(error.kind == ErrorKind::Invalid && error.message.contains("was cut"), "{error}");
        assert_eq!(std::fs::read(at("there")).expect("a file"), b"bytes");
        let by_command = |name: &str| {
            let file = new.to_str().expect("text");
            host.command(&["snapshot", name, "/s", "--file", file], |_| {})
        };
        client.remove("/a").expect("it has a name");
        let refused = by_command("/a").expect_err("it is removed");
        assert!(refused.contains("/a"), "{refused}");
        assert_eq!((files(disk.path()), elsewhere.exists()), (files_before, false));
        assert_eq!(host.status().objects, objects_before);
    });
}

/// Objects that are no file of a file system with clones.
#[test]
fn what_is_no_file_to_be_cloned() {
    let disk = match RamDisk::new(16) {
        Ok(disk) => disk,
        Err(why) => return left_out(&why),
    };
    let host = TestHost::start();
    let client = host.connect();
    let path = disk.path().join("s");
    let refused = |object: &Object, says: &str| {
        let error = object.snapshot("/s", &to(&path)).expect_err(says);
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
        assert!(error.message.contains(says), "{error}");
    };
    let anonymous = CreateOptions { size_bytes: 4096, ..CreateOptions::default() };
    refused(&client.create("/anonymous", &anonymous, None).expect("it is made"), "is memory");
    let freezable = CreateOptions { freezable: true, ..anonymous };
    refused(&client.create("/freezable", &freezable, None).expect("it is made"), "is controlled");
    refused(&create(&client, "/on-tmpfs", &disk.path().join("a"), 4096), "--freezable");
    let memory = commonhold_sys::frames::create("memfd", 4096).expect("memory");
    let on_file = CreateOptions { pager: PagerKind::File, ..CreateOptions::default() };
    refused(&client.create("/memfd", &on_file, Some(memory.as_fd())).expect("it is made"), "XFS, Btrfs");
    assert!(!path.exists());
    assert_eq!(host.status().objects, 4);
}

#[test]
fn by_the_command() {
    on_each(|disk, host| {
        let client = host.connect();
        let object = create(&client, "/db", &disk.path().join("db"), 4 * PAGE + 7);
        let command = |words: &[&str]| {
            let line = [&["snapshot", "/db"][..], words].concat();
            host.command(&line, |command| {
                command.current_dir(disk.path());
            })
        };
        let said = command(&["/db@monday", "--file", "./monday.bin", "--whole"]).expect("a snapshot");
        assert!(said.contains("/db@monday"), "{said}");
        command(&["/part", "--file", "part.bin", "--offset", "4096", "--length", "8KiB", "--writable"])
            .expect("a snapshot");
        object.write_at(&[2; PAGE], 0).expect("it is written");
        assert_eq!(std::fs::read(disk.path().join("monday.bin")).expect("a file"), [1; 4 * PAGE + 7]);
        let part = client.open("/part", Access::ReadWrite).expect("it may be written");
        assert_eq!(bytes(&part), [1; 2 * PAGE]);
        let again = command(&["/db@tuesday", "--file", "monday.bin"]).expect_err("it is there");
        assert!(again.contains("is there already"), "{again}");
        // The next host finds the file by its path.
        drop((part, object));
        host.kill_both();
        host.start_again().expect("the next begins");
        let monday = host.connect().open("/db@monday", Access::Read).expect("it is there");
        assert_eq!(bytes(&monday), [1; 4 * PAGE + 7]);
    });
}

/// It is the caller who makes the file: with his rights, and as his.
#[test]
fn other_users() {
    on_each(|disk, host| {
        let at = |name: &str| disk.path().join(name);
        drop(create(&host.connect(), "/a", &at("a"), 4 * PAGE));
        host.connect().set_mode("/a", 0o644).expect("a mode");
        let user = host.worker_of(65533, 65533);
        user.ok("open o /a r");
        let asked = |name: &str| format!("snapshot s o /s file={}", at(name).display());
        user.refused(&asked("s"), "Permission");
        std::fs::create_dir(at("own")).expect("a directory");
        std::fs::set_permissions(at("own"), Permissions::from_mode(0o777)).expect("a mode");
        user.ok(&asked("own/s"));
        user.all("map m s r shared 0 0\nmap n o r shared 0 0");
        assert_eq!(std::fs::metadata(at("own/s")).expect("a file").uid(), 65533);
        assert!(!at("s").exists());
        host.worker_of(65532, 65532).refused("chmod /s 600", "Permission");
    });
}

#[test]
fn a_full_disk_leaves_nothing() {
    const PIECES: u64 = 4096;
    on_each(|disk, host| {
        let client = host.connect();
        // A file in many pieces: so much of a clone is metadata, which has some room of its own.
        let path = disk.path().join("a");
        let file = File::create(&path).expect("a file");
        file.set_len(PIECES * 2 * PAGE as u64).expect("holes");
        for piece in 0..PIECES {
            file.write_all_at(&[1; PAGE], piece * 2 * PAGE as u64).expect("it is written");
        }
        file.sync_all().expect("it is stored");
        let object = on_file(&client, "/a", &path);
        let ballast = disk.use_up(0);
        let mut made = 0;
        let error = loop {
            let (name, path) = (format!("/{made}"), disk.path().join(made.to_string()));
            match object.snapshot(&name, &to(&path)) {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 500, "the disk has room without end");
        };
        assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
        assert_eq!(files(disk.path()).len(), made + 2);
        assert_eq!(host.status().objects as usize, made + 1);
        std::fs::remove_file(ballast).expect("it is there");
        for number in 0..made {
            client.remove(&format!("/{number}")).expect("it has a name");
            std::fs::remove_file(disk.path().join(number.to_string())).expect("it is there");
        }
        let last = until("there is room again", || {
            // Btrfs has the room when it has stored that the files are gone.
            rustix::fs::syncfs(File::open(disk.path()).expect("a directory")).expect("it is stored");
            object.snapshot("/last", &to(&disk.path().join("last"))).ok()
        });
        assert!(bytes(&last) == bytes(&object), "they differ");
    });
}

#[test]
fn who_is_killed_leaves_a_whole_file_or_none() {
    let rounds = rounds(8) as u32;
    on_each(|disk, host| {
        let client = host.connect();
        let object = create(&client, "/a", &disk.path().join("a"), 64 * PAGE);
        let (mut whole, mut none) = (0, 0);
        for round in 0..rounds {
            let path = disk.path().join(format!("s{round}"));
            let worker = host.worker();
            worker.ok("open o /a r");
            object.write_at(&vec![round as u8; 64 * PAGE], 0).expect("it is written");
            worker.send(&format!("snapshot s o /s{round} file={}", path.display()));
            // From before it begins until after its end.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(12) * round / rounds {
                std::thread::yield_now();
            }
            worker.kill();
            match std::fs::read(&path) {
                Ok(bytes) => {
                    assert!(bytes == vec![round as u8; 64 * PAGE], "round {round}");
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
                    let object = client.open(&format!("/s{round}"), Access::Read);
                    assert_eq!(object.expect_err("no file").kind, ErrorKind::NotFound);
                    none += 1;
                }
            }
        }
        assert_eq!(files(disk.path()).len(), whole + 1, "{none} left none");
    });
}
