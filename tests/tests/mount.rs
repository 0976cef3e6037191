//! Objects as files: `docs/MOUNT.md`.

use commonhold::{Access, CreateOptions, Errand, PATIENCE, Sizing};
use commonhold_tests::cluster::{cluster, sharers, sharers_of};
use commonhold_tests::host::{kill, signal};
use commonhold_tests::left_out::has;
use commonhold_tests::mounted::{MappedFile, Mounted};
use commonhold_tests::user::as_user;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, is_root};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or_else(|| panic!("{error}"))
}

/// A word of an error that `commonhold` gives.
fn says(result: Result<String, String>, word: &str) {
    let error = result.expect_err("it is refused");
    assert!(error.contains(word), "{error}");
}

#[test]
fn tools_work_on_objects() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    mounted.shell("echo hello > $M/a; test \"$(cat $M/a)\" = hello; test $(stat -c %s $M/a) = 6");
    mounted.shell("mkdir $M/d; mv $M/a $M/d/b; cat $M/d/b; ! rmdir $M/d 2>&1; rm $M/d/b; rmdir $M/d");
    mounted.shell("cp /bin/ls $M/ls; cmp /bin/ls $M/ls; chmod 755 $M/ls; $M/ls $M | grep -qx ls");
    mounted.shell("echo 1 >> $M/l; echo 2 >> $M/l; test \"$(tr -d '\\n' < $M/l)\" = 12");
    mounted.shell("truncate -s 1M $M/l; test $(stat -c %s $M/l) = 1048576; : > $M/l; test ! -s $M/l");
    mounted.shell("dd if=/dev/urandom of=$M/r bs=1000 count=777 status=none; dd if=$M/r of=$M/s bs=3333 status=none; cmp $M/r $M/s");
    mounted.shell("echo x > $M/x; echo y > $M/y; mv $M/x $M/y; test \"$(cat $M/y)\" = x; test ! -e $M/x");
    mounted.shell("mkdir -p $M/p/q/r; touch -d 2001-02-03 $M/p/t; test $(stat -c %Y $M/p/t) = $(date -d 2001-02-03 +%s)");
    mounted.shell(
        "df $M > /dev/null; find $M -type f | grep -q /p/t; ln $M/y $M/z 2>/dev/null && exit 1; exit 0",
    );
    // What the mount made the host has, and the other way round.
    let names: Vec<String> =
        host.connect().list("/").unwrap().iter().filter_map(|e| e.name().map(ToString::to_string)).collect();
    assert_eq!(names, ["/l", "/ls", "/p", "/r", "/s", "/y"]);
    let made = CreateOptions { size_bytes: 5, mode: 0o640, ..CreateOptions::default() };
    host.connect().create("/p/made", &made, None).unwrap().write_at(b"bytes", 0).unwrap();
    assert_eq!(std::fs::read(mounted.path("p/made")).unwrap(), b"bytes");
    assert_eq!(std::fs::metadata(mounted.path("p/made")).unwrap().mode(), 0o100_640);
    host.connect().remove("/p/made").unwrap();
    assert_eq!(errno(&File::open(mounted.path("p/made")).unwrap_err()), Errno::NOENT);
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(mounted.path("y"), "user.commonhold.pager", &mut value).unwrap();
    assert_eq!(&value[..length], b"anonymous");
}

#[test]
fn a_mapped_file_is_the_objects_own_memory() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    let path = mounted.path("shared");
    File::create(&path).unwrap().set_len(MIB).unwrap();
    let file = MappedFile::of(&path, MIB as usize).unwrap();
    let object = host.connect().open("/shared", Access::ReadWrite).unwrap();
    let (mut byte, at) = ([0], 12345);
    file.set(at as usize, 7);
    object.read_at(&mut byte, at).unwrap();
    assert_eq!(byte, [7]);
    object.write_at(&[8], at).unwrap();
    assert_eq!(file.get(at as usize), 8);
    file.file.read_exact_at(&mut byte, at).unwrap();
    assert_eq!(byte, [8]);
    file.file.write_all_at(&[9], at).unwrap();
    assert_eq!(file.get(at as usize), 9);
    // Who reads has the kernel's own way; the object grows under him.
    let mut reader = File::open(&path).unwrap();
    file.file.write_all_at(b"end", MIB).unwrap();
    reader.seek(SeekFrom::Start(MIB)).unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"end");
    assert_eq!(object.info().unwrap().options.size_bytes, MIB + 3);
}

/// Files are made, written, read, renamed and removed, until it is told to stop; each step has to succeed.
fn busy(mounted: &Mounted<'_>, number: usize, stop: &AtomicBool, done: &AtomicU64) {
    let (path, renamed) = (mounted.path(&format!("w{number}")), mounted.path(&format!("r{number}")));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    while !stop.load(Ordering::Relaxed) {
        let count = done.fetch_add(1, Ordering::Relaxed).to_string();
        let file = options.open(&path).expect("open");
        file.write_all_at(count.as_bytes(), 0).expect("write");
        std::fs::rename(&path, &renamed).expect("rename");
        assert_eq!(std::fs::read_to_string(&renamed).expect("read"), count);
        std::fs::remove_file(&renamed).expect("remove");
    }
}

/// Strikes while four threads are busy; gives what they had done in the end.
fn under_load(mounted: &Mounted<'_>, strike: impl Fn(usize)) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for number in 0..4 {
            let (stop, done) = (&stop, &done);
            threads.spawn(move || busy(mounted, number, stop, done));
        }
        for round in 0..3 {
            let before = done.load(Ordering::Relaxed);
            until("they go on", || (done.load(Ordering::Relaxed) > before + 20).then_some(()));
            strike(round);
        }
        let before = done.load(Ordering::Relaxed);
        until("they go on", || (done.load(Ordering::Relaxed) > before + 20).then_some(()));
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn calls_outlive_the_server() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    std::fs::create_dir(mounted.path("d")).unwrap();
    std::fs::write(mounted.path("d/kept"), b"kept").unwrap();
    let directory = File::open(mounted.path("d")).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mounted.path("gone"))
        .unwrap();
    file.write_all_at(b"still", 0).unwrap();
    std::fs::remove_file(mounted.path("gone")).unwrap();
    let mapped = MappedFile::of(&mounted.path("d/kept"), 4).unwrap();
    let number = std::fs::metadata(mounted.path("d/kept")).unwrap().ino();
    under_load(&mounted, |_| mounted.kill_server());
    // A directory that was open, a file without a name, a mapping, a number: all are what they were.
    let inside = format!("/proc/self/fd/{}/kept", std::os::fd::AsRawFd::as_raw_fd(&directory));
    assert_eq!(std::fs::read(inside).unwrap(), b"kept");
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"still");
    mapped.set(0, b'K');
    assert_eq!(std::fs::read(mounted.path("d/kept")).unwrap(), b"Kept");
    assert_eq!(std::fs::metadata(mounted.path("d/kept")).unwrap().ino(), number);
}

#[test]
fn calls_outlive_the_mounts_keeper() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mounted.path("open"))
        .unwrap();
    under_load(&mounted, |round| {
        let before = mounted.keeper();
        kill(before);
        until("another keeper", || (mounted.keeper() != before).then_some(()));
        // Until it has all, the server's death is the death of both.
        let filled = format!("keeper[{}]: filled", mounted.keeper());
        until("it has all", || mounted.log().contains(&filled).then_some(()));
        if round == 1 {
            mounted.kill_server();
        }
    });
    file.write_all_at(b"on", 0).unwrap();
    assert_eq!(std::fs::read(mounted.path("open")).unwrap(), b"on");
}

#[test]
fn calls_wait_for_the_next_host() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    under_load(&mounted, |round| match round {
        0 => host.kill_host(),
        1 => host.kill_keeper(),
        _ => drop(host.command(&["host", "upgrade"], |_| {})),
    });
}

#[test]
fn the_server_is_replaced_when_it_is_told_to() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    under_load(&mounted, |_| {
        let before = mounted.server();
        signal(before, libc::SIGHUP);
        until("another serves", || (mounted.server() != before).then_some(()));
    });
}

#[test]
fn a_mount_that_lost_both_processes_ends_cleanly_and_is_made_anew() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    std::fs::write(mounted.path("file"), b"bytes").unwrap();
    let file = File::open(mounted.path("file")).unwrap();
    mounted.kill_both();
    // Whoever uses it hears so at once, and waits for nobody.
    assert_eq!(errno(&std::fs::metadata(mounted.path("file")).unwrap_err()), Errno::NOTCONN);
    drop(file);
    mounted.mount().unwrap();
    assert_eq!(std::fs::read(mounted.path("file")).unwrap(), b"bytes");
}

#[test]
fn users_have_their_own_rights_and_quota() {
    const GROUP: u32 = 4321;
    let host = TestHost::with(&["--quota", "1MiB"]);
    let Some(mounted) = Mounted::of(&host) else { return };
    std::fs::set_permissions(host.scratch().path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let own = mounted.path("own");
    as_user(1234, || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o640).open(&own).unwrap();
        file.write_all(b"mine").unwrap();
        // As much as the user may have, and no more; what is there stays.
        let error = file.write_all(&vec![1; 2 << 20]).unwrap_err();
        assert!([Errno::DQUOT, Errno::NOSPC].contains(&errno(&error)), "{error}");
        assert!(file.metadata().unwrap().len() <= MIB);
        file.set_len(4).unwrap();
    });
    let found = std::fs::metadata(&own).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (1234, 0o640));
    as_user(1235, || {
        assert_eq!(errno(&File::open(&own).unwrap_err()), Errno::ACCESS);
        assert_eq!(errno(&std::fs::remove_file(&own).unwrap_err()), Errno::ACCESS);
        assert_eq!(
            errno(&std::fs::set_permissions(&own, PermissionsExt::from_mode(0o777)).unwrap_err()),
            Errno::PERM
        );
        assert!(File::options().write(true).open(&own).is_err());
    });
    // A supplementary group counts, for the program that has it.
    rustix::fs::chown(&own, None, Some(rustix::fs::Gid::from_raw(GROUP))).unwrap();
    let read = |groups: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1236", "--regid", "1236", groups, "cat"]).arg(&own);
        command.stderr(Stdio::null()).output().expect("setpriv runs")
    };
    assert_eq!(read(&format!("--groups={GROUP}")).stdout, b"mine");
    assert!(!read("--clear-groups").status.success());
    // Closed directories are closed, whatever another user has just looked at in them.
    std::fs::create_dir(mounted.path("closed")).unwrap();
    std::fs::write(mounted.path("closed/open"), b"o").unwrap();
    std::fs::set_permissions(mounted.path("closed/open"), PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::set_permissions(mounted.path("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(std::fs::read(mounted.path("closed/open")).unwrap(), b"o");
    as_user(1235, || assert_eq!(errno(&File::open(mounted.path("closed/open")).unwrap_err()), Errno::ACCESS));
}

#[test]
fn strict_objects_are_read_and_written_but_not_mapped() {
    let hosts = cluster(2);
    let Some(mounted) = Mounted::of(&hosts[1]) else { return };
    let workers = sharers(&hosts, MIB, "strict");
    workers[0].ok("fill m 0 256 1");
    let file = OpenOptions::new().read(true).write(true).open(mounted.path("shared")).unwrap();
    let mut all = Vec::new();
    (&file).read_to_end(&mut all).unwrap();
    assert!(all == commonhold_tests::page::bytes(0, 256, 1));
    file.write_all_at(&commonhold_tests::page::bytes(200, 56, 2), 200 * 4096).unwrap();
    workers[0].all("check m 0 200 1\ncheck m 200 56 2");
    let refused = MappedFile::of(&mounted.path("shared"), 4096).err().expect("it is not mapped");
    assert_eq!(errno(&refused), Errno::NODEV);
}

#[test]
fn explicit_objects_are_mapped_and_published_by_msync() {
    let hosts = cluster(2);
    let Some(mounted) = Mounted::of(&hosts[1]) else { return };
    let workers = sharers_of(&hosts[..1], "/sprite", &format!("size={} explicit", 8 * MIB));
    workers[0].all("fill m 0 2048 1\nsync o 0 8388608");
    let path = mounted.path("sprite");
    let file = until("it is seen", || MappedFile::of(&path, 8 << 20).ok());
    let first = commonhold_tests::page::bytes(0, 2048, 1);
    assert!((0..2048).all(|page| file.get(page * 4096) == first[page * 4096]));
    // What is written here is seen elsewhere after msync.
    let changed = first[5 * 4096].wrapping_add(1);
    file.set(5 * 4096, changed);
    file.set(2000 * 4096 + 9, 77);
    workers[0].ok("check m 0 2048 1");
    file.sync().unwrap();
    let object = hosts[0].connect().open("/sprite", Access::Read).unwrap();
    let mut byte = [0];
    object.read_at(&mut byte, 5 * 4096).unwrap();
    assert_eq!(byte, [changed]);
    object.read_at(&mut byte, 2000 * 4096 + 9).unwrap();
    assert_eq!(byte, [77]);
    // Another host's sync is seen here; what was written here, and not published, stays.
    file.set(7 * 4096, 99);
    workers[0].all("fill m 0 100 2\nsync o 0 8388608");
    let second = commonhold_tests::page::bytes(0, 100, 2);
    until("another host's sync is seen", || (file.get(6 * 4096) == second[6 * 4096]).then_some(()));
    assert_eq!(file.get(7 * 4096), 99);
    file.sync().unwrap();
    object.read_at(&mut byte, 7 * 4096).unwrap();
    assert_eq!(byte, [99]);
    // A server that is told to go publishes what it was given before: nobody is told of a loss.
    let by_calls = OpenOptions::new().write(true).open(&path).unwrap();
    by_calls.write_all_at(&[55], 9 * 4096).unwrap();
    let before = mounted.server();
    signal(before, libc::SIGHUP);
    until("another serves", || (mounted.server() != before).then_some(()));
    by_calls.sync_all().unwrap();
    object.read_at(&mut byte, 9 * 4096).unwrap();
    assert_eq!(byte, [55]);
    // So after the host was replaced, and after the server was.
    for round in 3..5u8 {
        if round == 3 {
            hosts[1].kill_host()
        } else {
            mounted.kill_server()
        }
        workers[0].all(&format!("fill m 0 100 {round}\nsync o 0 8388608"));
        let next = commonhold_tests::page::bytes(0, 100, u64::from(round));
        until("another host's sync is seen", || (file.get(6 * 4096) == next[6 * 4096]).then_some(()));
    }
}

#[test]
fn locks_databases_and_archives_work() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    mounted.shell("flock $M/lock true; flock -n $M/lock sh -c '! flock -n $M/lock true'");
    for tool in ["sqlite3", "rsync", "tar"] {
        if !has(tool, tool, "databases and archives on a mount") {
            return;
        }
    }
    let queries = "pragma mmap_size=67108864; create table t(n integer primary key, text); \
        with recursive c(n) as (select 1 union all select n+1 from c where n<20000) \
        insert into t select n, hex(randomblob(50)) from c; select count(*), sum(n) from t; pragma integrity_check;";
    let answer = mounted.shell(&format!("sqlite3 $M/base '{queries}'"));
    assert_eq!(answer.lines().skip(1).collect::<Vec<_>>(), ["20000|200010000", "ok"]);
    mounted.shell("sqlite3 $M/base 'pragma journal_mode=truncate; delete from t where n%2; vacuum; pragma integrity_check;'");
    let from = host.scratch().join("from");
    std::fs::create_dir_all(from.join("sub/deep")).unwrap();
    for number in 0..50 {
        std::fs::write(from.join(format!("sub/deep/{number}")), vec![number as u8; number * 321]).unwrap();
    }
    let from = from.display();
    mounted.shell(&format!("rsync -a {from}/ $M/copy/; diff -r {from} $M/copy"));
    let again = mounted.shell(&format!("rsync -ai {from}/ $M/copy/"));
    assert!(!again.lines().any(|line| line.starts_with(">f")), "copied again: {again}");
    mounted.shell(&format!(
        "tar -C {from} -cf $M/all.tar .; mkdir $M/out; tar -C $M/out -xf $M/all.tar; diff -r {from} $M/out"
    ));
}

#[test]
fn mount_points_that_cannot_be_used_are_refused() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    says(mounted.mount(), "is a mount of");
    let file = host.scratch().file("file", 10);
    let at = |path: &Path| {
        host.command(&["mount"], |command| {
            command.arg(path);
        })
    };
    says(at(&file), "is not a directory");
    says(at(&host.scratch().join("nothing")), "make the directory first");
    let unmount = |path: &Path| {
        host.command(&["umount"], |command| {
            command.arg(path);
        })
    };
    says(unmount(host.scratch().path()), "is no mount of Commonhold");
    // In use: refused, and it goes on; lazily it ends when it is let go.
    let held = File::create(mounted.path("held")).unwrap();
    says(mounted.unmount(&[]), "is in use");
    std::fs::write(mounted.path("more"), b"x").unwrap();
    mounted.unmount(&["--lazy"]).unwrap();
    held.write_all_at(b"on", 0).unwrap();
    drop(held);
    until("its processes end", || mounted.log().trim_end().ends_with("ended").then_some(()));
    mounted.mount().unwrap();
    assert_eq!(std::fs::read(mounted.path("held")).unwrap(), b"on");
}

#[test]
fn a_server_that_hangs_can_be_ended() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    let server = mounted.server();
    signal(server, libc::SIGSTOP);
    let path = mounted.path("file");
    let waits = std::thread::spawn(move || std::fs::write(path, b"x").map_err(|error| errno(&error)));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!waits.is_finished());
    mounted.unmount(&["--abort", "--lazy"]).unwrap();
    let error = waits.join().unwrap().unwrap_err();
    assert!([Errno::CONNABORTED, Errno::NOTCONN].contains(&error), "{error}");
    signal(server, libc::SIGCONT);
}

#[test]
fn a_file_of_the_mount_is_no_objects_file() {
    let host = TestHost::start();
    let Some(mounted) = Mounted::of(&host) else { return };
    std::fs::write(mounted.path("file"), b"bytes").unwrap();
    let path = mounted.path("file");
    let made = host.command(&["create", "/other", "--file"], |command| {
        command.arg(&path);
    });
    says(made, "is a file of a mount of Commonhold");
    assert!(host.connect().stat("/other").is_err());
}

#[test]
fn ordinary_users_mount_for_themselves() {
    /// `nobody`: the helper wants a user with a name.
    const USER: u32 = 65534;
    if !is_root("a process of another user") {
        return;
    }
    if !has("fusermount3", "fuse3", "a mount of an ordinary user") {
        return;
    }
    let host = TestHost::start();
    let home = tempfile::Builder::new().prefix("commonhold-tests-").tempdir().unwrap();
    let directory = home.path().join("mount");
    std::fs::create_dir(&directory).unwrap();
    for path in [home.path(), &directory] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    std::fs::set_permissions(host.scratch().path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // In a mount name space of its own, where /dev/fuse is everybody's, as it is where udev makes it.
    let script = "mount -t tmpfs none /mnt; mknod -m 666 /mnt/fuse c 10 229; mount --bind /mnt/fuse /dev/fuse; \
        user() { setpriv --reuid $U --regid $U --clear-groups sh -euc \"$1\"; }; \
        user '$C mount $M; echo own > $M/file; test $(cat $M/file) = own; mv $M/file $M/other; $C stat /other'; \
        if ls $M 2>/dev/null; then echo 'others are let in'; exit 1; fi; \
        user 'python3 -c \"import mmap,os; mmap.mmap(os.open(os.environ[\\\"M\\\"]+\\\"/other\\\", os.O_RDWR), 3)\" 2>&1 | grep -q \"No such device\"'; \
        user '$C umount $M'";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", script]).env("U", USER.to_string());
    command.env("C", host.program()).env("M", &directory).env("HOME", home.path());
    command.env_remove("XDG_STATE_HOME").env("COMMONHOLD_HOST", host.state());
    let output = command.output().expect("unshare runs");
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{text}");
    let found = host.connect().stat("/other").unwrap();
    let commonhold::EntryInfo::Object(info) = found else { panic!("an object") };
    assert_eq!(info.ownership.uid, USER);
}

#[test]
fn what_is_asked_of_the_host_for_the_mount_has_rules() {
    let host = TestHost::start();
    let ask = || Errand::to(host.state(), PATIENCE).unwrap();
    let options = CreateOptions { size_bytes: 10, ..CreateOptions::default() };
    let (info, _) = ask().create("/a", &options).unwrap();
    let mut errand = ask();
    assert!(errand.resize_opened(info.id, 20, Sizing::Exactly).is_err(), "it is not open there");
    errand.open("/a", Access::Read).unwrap();
    assert!(errand.resize_opened(info.id, 20, Sizing::Exactly).is_err(), "it is open for reading");
    errand.open("/a", Access::ReadWrite).unwrap();
    errand.resize_opened(info.id, 5, Sizing::AtLeast).unwrap();
    assert_eq!(errand.stat("/a").unwrap().options.size_bytes, 10, "it only grows");
    errand.resize_opened(info.id, 0, Sizing::Exactly).unwrap();
    assert_eq!(errand.stat("/a").unwrap().options.size_bytes, 0);
    errand.set_modified("/a", None, 1_000_000_007).unwrap();
    assert_eq!(errand.stat("/a").unwrap().modified_ns, 1_000_000_007);
    assert!(errand.make_directory("/d/e", 0o700).is_err(), "in one that is not there");
    errand.make_directory("/d", 0o700).unwrap();
    errand.make_directory("/d/e", 0o700).unwrap();
    assert!(errand.make_directory("/d/e", 0o700).is_err());
    assert!(errand.rename("/a", "/d", true, None).is_err(), "a directory is not replaced by an object");
    assert!(errand.rename("/d", "/d/e/f", true, None).is_err(), "nor moved into itself");
    errand.rename("/d/e", "/d2", true, None).unwrap();
    errand.rename("/d", "/d2", true, None).unwrap(); // an empty one is replaced
    assert!(errand.look("/d").is_err());
}
