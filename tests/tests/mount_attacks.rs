//! What hostile users, and fate, tried against mounts.

use commonhold::{Access, CreateOptions, Errand, PATIENCE};
use commonhold_tests::cluster::{cluster, sharers_of};
use commonhold_tests::mounted::{MappedFile, Mounted};
use commonhold_tests::user::as_user;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const VICTIM: u32 = 2001;
const ATTACKER: u32 = 2002;

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or_else(|| panic!("{error}"))
}

/// A directory in which both may do all.
fn common_directory(mounted: &Mounted<'_>, host: &TestHost) {
    std::fs::set_permissions(host.scratch().path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(mounted.path("d")).unwrap();
    std::fs::set_permissions(mounted.path("d"), Permissions::from_mode(0o777)).unwrap();
}

/// Renames as that user, past the mount.
fn rename_as(host: &TestHost, uid: u32, from: &str, to: &str) {
    as_user(uid, || Errand::to(host.state(), PATIENCE).unwrap().rename(from, to, false, None)).unwrap();
}

fn explicit(host: &TestHost, uid: u32, name: &str, mode: u32) {
    let options = CreateOptions {
        size_bytes: MIB,
        mode,
        coherence: commonhold::Coherence::Explicit,
        reserve: Some(false),
        ..CreateOptions::default()
    };
    static NONCE: AtomicU64 = AtomicU64::new(1);
    let nonce = u128::from(NONCE.fetch_add(1, Ordering::Relaxed));
    let create = || Errand::to(host.state(), PATIENCE).unwrap().create_by(name, &options, nonce);
    as_user(uid, create).unwrap();
}

#[test]
fn an_object_that_takes_a_name_is_not_the_one_before() {
    let hosts = cluster(1);
    let Some(mounted) = Mounted::of(&hosts[0]) else { return };
    common_directory(&mounted, &hosts[0]);
    explicit(&hosts[0], VICTIM, "/d/secret", 0o600);
    let path = mounted.path("d/secret");
    let victims = as_user(VICTIM, || {
        let file = until("it is opened", || MappedFile::of(&path, 4096).ok());
        file.set(0, 77);
        file.sync().unwrap();
        file
    });
    as_user(ATTACKER, || assert_eq!(errno(&File::open(&path).unwrap_err()), Errno::ACCESS));
    rename_as(&hosts[0], ATTACKER, "/d/secret", "/d/moved");
    explicit(&hosts[0], ATTACKER, "/d/secret", 0o666);
    as_user(ATTACKER, || {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [1];
        file.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [0], "another's bytes");
        file.write_all_at(&[5], 0).unwrap();
    });
    assert_eq!(victims.get(0), 77);
}

#[test]
fn the_next_server_opens_nothing_else_by_the_name() {
    let hosts = cluster(1);
    let Some(mounted) = Mounted::of(&hosts[0]) else { return };
    common_directory(&mounted, &hosts[0]);
    explicit(&hosts[0], ATTACKER, "/d/x", 0o600);
    as_user(VICTIM, || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(mounted.path("d/s")).unwrap();
        file.write_all(b"secret").unwrap();
    });
    let open = || OpenOptions::new().read(true).write(true).open(mounted.path("d/x"));
    let file = as_user(ATTACKER, || until("it is opened", || open().ok()));
    rename_as(&hosts[0], ATTACKER, "/d/x", "/d/t");
    rename_as(&hosts[0], ATTACKER, "/d/s", "/d/x");
    mounted.kill_server();
    let mut bytes = [0; 6];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => assert_eq!(bytes, [0; 6], "another's bytes"),
        Err(error) => assert_eq!(errno(&error), Errno::STALE),
    }
    let _ = file.write_all_at(b"mine!!", 0);
    assert_eq!(std::fs::read(mounted.path("d/x")).unwrap(), b"secret");
}

#[test]
fn one_users_open_files_are_not_anothers_lack() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    common_directory(&mounted, &host);
    let options =
        CreateOptions { size_bytes: MIB, mode: 0o666, controlled: true, ..CreateOptions::default() };
    host.connect().create("/d/served", &options, None).unwrap();
    let path = mounted.path("d/served");
    let many = as_user(ATTACKER, || {
        let (mut many, mut byte) = (Vec::new(), [0]);
        while let Ok(file) = File::open(&path) {
            file.read_exact_at(&mut byte, 0).unwrap();
            many.push(file);
            assert!(many.len() < 1000, "as many as he likes");
        }
        many
    });
    as_user(VICTIM, || assert_eq!(std::fs::read(&path).unwrap().len() as u64, MIB));
    drop(many);
    as_user(ATTACKER, || until("he may again", || File::open(&path).ok()));
}

#[test]
fn data_and_holes_are_found_whatever_others_ask() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    let options = CreateOptions { size_bytes: MIB, controlled: true, ..CreateOptions::default() };
    host.connect().create("/served", &options, None).unwrap();
    let served = File::open(mounted.path("served")).unwrap();
    assert_eq!(rustix::fs::seek(&served, SeekFrom::Data(5)), Ok(5));
    assert_eq!(rustix::fs::seek(&served, SeekFrom::Hole(5)), Ok(MIB));
    assert_eq!(rustix::fs::seek(&served, SeekFrom::Data(MIB)), Err(Errno::NXIO));
    let sparse = File::create(mounted.path("sparse")).unwrap();
    sparse.write_all_at(b"x", MIB / 2).unwrap();
    sparse.set_len(MIB).unwrap();
    let sparse = File::open(mounted.path("sparse")).unwrap();
    assert_eq!(rustix::fs::seek(&sparse, SeekFrom::Data(0)), Ok(MIB / 2));
}

#[test]
fn appended_records_are_there_once_and_whole() {
    const RECORD: usize = 100;
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    let path = mounted.path("log");
    File::create(&path).unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                let mut file = OpenOptions::new().append(true).read(true).open(&path).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let number = done.fetch_add(1, Ordering::SeqCst);
                    let mut record = format!("{number:0>width$}", width = RECORD - 1).into_bytes();
                    record.push(b'\n');
                    file.write_all(&record).unwrap();
                }
            });
        }
        // Who follows it reads no byte that nobody wrote.
        threads.spawn(|| {
            let mut file = File::open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let mut more = Vec::new();
                file.read_to_end(&mut more).unwrap();
                assert!(!more.contains(&0), "bytes that nobody wrote");
            }
        });
        for round in 0..4 {
            let before = done.load(Ordering::SeqCst);
            until("they go on", || (done.load(Ordering::SeqCst) > before + 30).then_some(()));
            if round < 3 {
                mounted.kill_server();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let all = std::fs::read_to_string(&path).unwrap();
    let mut numbers: Vec<u64> = all.lines().map(|line| line.parse().expect("a whole record")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..done.load(Ordering::SeqCst)).collect::<Vec<_>>());
}

#[test]
fn what_is_made_in_a_directory_that_is_renamed_is_in_it() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    std::fs::create_dir(mounted.path("a")).unwrap();
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(mounted.path("a"), flags, Mode::empty()).unwrap();
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let name = made.fetch_add(1, Ordering::SeqCst).to_string();
                    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                    rustix::fs::openat(&directory, name.as_str(), new, Mode::RUSR | Mode::WUSR).unwrap();
                    rustix::fs::statat(&directory, name.as_str(), rustix::fs::AtFlags::empty()).unwrap();
                }
            });
        }
        for _ in 0..40 {
            std::fs::rename(mounted.path("a"), mounted.path("b")).unwrap();
            std::fs::rename(mounted.path("b"), mounted.path("a")).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let top: Vec<_> =
        std::fs::read_dir(mounted.directory()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(top, ["a"], "directories that nobody made");
    let inside = std::fs::read_dir(mounted.path("a")).unwrap().count() as u64;
    assert_eq!(inside, made.load(Ordering::SeqCst));
}

#[test]
fn a_sync_does_not_succeed_of_what_is_lost() {
    let hosts = cluster(1);
    let Some(mounted) = Mounted::of(&hosts[0]) else { return };
    let workers = sharers_of(&hosts, "/x", &format!("size={MIB} explicit"));
    let path = mounted.path("x");
    let open = || OpenOptions::new().read(true).write(true).open(&path).ok();
    let file = until("it is opened", open);
    file.write_all_at(&[9], 5).unwrap();
    mounted.kill_server();
    assert_eq!(errno(&file.sync_all().unwrap_err()), Errno::IO, "what was written may be lost");
    assert_eq!(mounted.says("fails (EIO): what a server had written"), 1);
    file.write_all_at(&[9], 5).unwrap();
    file.sync_all().unwrap();
    mounted.kill_server();
    file.sync_all().unwrap();
    drop(workers);
}

#[test]
fn a_renamed_object_is_watched_on() {
    let hosts = cluster(2);
    let Some(mounted) = Mounted::of(&hosts[1]) else { return };
    let workers = sharers_of(&hosts[..1], "/before", &format!("size={MIB} explicit"));
    let path = mounted.path("before");
    let file = until("it is opened", || MappedFile::of(&path, 4096).ok());
    let _ = file.get(0);
    hosts[0].connect().rename("/before", "/after").unwrap();
    until("its new name is seen", || std::fs::metadata(mounted.path("after")).ok());
    for round in 1..4u8 {
        workers[0].all(&format!("fill m 0 1 {round}\nsync o 0 4096"));
        let now = commonhold_tests::page::bytes(0, 1, u64::from(round))[0];
        until("a sync is seen", || (file.get(0) == now).then_some(()));
        match round {
            1 => mounted.kill_server(),
            _ => hosts[1].kill_host(),
        }
    }
}

#[test]
fn what_a_descriptor_was_opened_for_holds_past_the_server() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    common_directory(&mounted, &host);
    let file = as_user(VICTIM, || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o444).open(mounted.path("d/pack")).unwrap()
    });
    file.write_all_at(b"first", 0).unwrap();
    mounted.kill_server();
    as_user(VICTIM, || file.write_all_at(b"second", 5)).unwrap();
    assert_eq!(std::fs::read(mounted.path("d/pack")).unwrap(), b"firstsecond");
    assert!(host.connect().open("/d/pack", Access::Read).is_ok());
}
