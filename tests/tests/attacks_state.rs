//! A state directory of which parts are gone, empty, cut off or of somebody else: nothing in it is deleted, and no object
//! comes back with other bytes without a word.

use commonhold_tests::{MIB, PAGE, TestHost, wait};
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 4] = ["journal", "spill", "live", "replicas"];

/// Every file below a directory, with its length and the data in it. Holes are passed over.
fn content(directory: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(content(&path));
        } else if kind.is_file() {
            found.insert(path.clone(), data(&path));
        }
    }
    found
}

fn data(path: &Path) -> (u64, Vec<u8>) {
    let (mut file, mut bytes, mut at) = (File::open(path).unwrap(), Vec::new(), 0);
    while let Ok(from) = seek(&file, SeekFrom::Data(at)) {
        let to = seek(&file, SeekFrom::Hole(from)).unwrap();
        seek(&file, SeekFrom::Start(from)).unwrap();
        file.by_ref().take(to - from).read_to_end(&mut bytes).unwrap();
        at = to;
    }
    (file.metadata().unwrap().len(), bytes)
}

/// What lies in the folders that hold files of objects.
fn of_objects(host: &TestHost) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let folders = FOLDERS.iter().map(|folder| host.state().join(folder)).filter(|path| path.is_dir());
    folders.flat_map(|path| content(&path)).collect()
}

/// A host that had an object with a journal, and one with pages in memory and in its spill file; both of its processes
/// were killed.
fn with_objects() -> TestHost {
    let host = TestHost::start();
    let file = host.scratch().file("file", 64 * PAGE as u64);
    let worker = host.worker();
    worker.ok(&format!("create o /stored file={} sync=atomic", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 64 1\nsync o 0 262144");
    worker.ok(&format!("create p /spilled size={} budget={MIB}", 8 * MIB));
    worker.all("map n p rw shared 0 0\nfill n 0 2048 2");
    assert!(worker.ok("info p spilled").parse::<u64>().unwrap() > MIB);
    drop(worker);
    host.kill_both();
    host
}

fn refused_and_unchanged(host: &TestHost, says: &[&str]) {
    let before = of_objects(host);
    let meta = std::fs::read(host.state().join("meta.redb")).ok();
    let refused = host.start_again().unwrap_err();
    assert!(says.iter().all(|part| refused.contains(part)), "{refused}");
    wait::until("host and keeper are gone", || host.processes().is_empty().then_some(()));
    assert!(of_objects(host) == before, "files of objects were changed");
    assert!(std::fs::read(host.state().join("meta.redb")).ok() == meta, "meta.redb was changed");
}

#[test]
fn a_host_without_its_registry_changes_nothing_and_says_what_to_do() {
    let host = with_objects();
    let meta = host.state().join("meta.redb");
    let whole = std::fs::read(&meta).unwrap();
    std::fs::remove_file(&meta).unwrap();
    refused_and_unchanged(
        &host,
        &["is missing", "Restore meta.redb", "mkdir old && mv journal spill live old/"],
    );
    std::fs::write(&meta, b"").unwrap();
    refused_and_unchanged(&host, &["is empty", "Restore meta.redb"]);
    for length in [1, 4096, whole.len() / 2, whole.len() - 4096] {
        std::fs::write(&meta, &whole[..length]).unwrap();
        refused_and_unchanged(&host, &["is damaged", "restore it from a copy"]);
    }
    std::fs::write(&meta, vec![0xa5; whole.len()]).unwrap();
    refused_and_unchanged(&host, &["is damaged", "restore it from a copy"]);
    std::fs::write(&meta, &whole).unwrap();
    host.start_again().unwrap();
    host.worker().all("open o /stored rw\nmap m o rw shared 0 0\ncheck m 0 64 1");
    // What the message says leads to a host that begins anew.
    host.kill_both();
    std::fs::remove_file(&meta).unwrap();
    let old = host.state().join("old");
    std::fs::create_dir(&old).unwrap();
    FOLDERS.iter().for_each(|folder| std::fs::rename(host.state().join(folder), old.join(folder)).unwrap());
    let before = content(&old);
    host.start_again().unwrap();
    assert_eq!(host.worker().ok("list /"), "");
    assert!(content(&old) == before);
}

#[test]
fn an_older_registry_costs_no_file() {
    let host = TestHost::start();
    drop(host.worker());
    host.kill_both();
    let meta = host.state().join("meta.redb");
    let old = std::fs::read(&meta).unwrap();
    host.start_again().unwrap();
    let file = host.scratch().file("file", 64 * PAGE as u64);
    let worker = host.worker();
    worker.ok(&format!("create o /stored file={} sync=atomic", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 64 1\nsync o 0 262144");
    drop(worker);
    host.kill_both();
    let before = of_objects(&host);
    std::fs::write(&meta, old).unwrap();
    host.start_again().unwrap();
    let aside = content(&host.state().join("set-aside"));
    for (path, found) in
        before.iter().filter(|(path, (_, data))| !data.is_empty() && !path.ends_with("clients"))
    {
        let name = path.strip_prefix(host.state()).unwrap().to_string_lossy().replace('/', "-");
        assert!(
            aside.get(&host.state().join("set-aside").join(&name)) == Some(found),
            "{name}: {:?}",
            aside.keys()
        );
    }
    assert!(host.log().contains("which belongs to no object: it is set-aside/journal-"), "{}", host.log());
}

#[test]
fn what_somebody_put_into_the_folders_is_set_aside_or_left() {
    let host = with_objects();
    for folder in FOLDERS {
        let at = host.state().join(folder);
        for name in ["notes", "99999", "99998.a", "own-x"] {
            std::fs::write(at.join(name), format!("{folder}/{name}")).unwrap();
        }
        std::fs::create_dir(at.join("99997")).unwrap();
        std::fs::write(at.join("99997/inside"), "inside").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at.join("99996")).unwrap();
    }
    for _ in 0..2 {
        host.start_again().unwrap();
        for folder in FOLDERS {
            for name in ["notes", "99999", "99998.a", "own-x", "99997/inside"] {
                let there = std::fs::read_to_string(host.state().join(folder).join(name));
                let aside = host.state().join("set-aside").join(format!("{folder}-{name}"));
                let found = there.or_else(|_| std::fs::read_to_string(aside)).unwrap();
                assert!(found == format!("{folder}/{name}") || found == "inside", "{found}");
            }
        }
        assert!(Path::new("/etc/passwd").exists());
        host.worker().all("open o /stored rw\nmap m o rw shared 0 0\ncheck m 0 64 1");
        host.kill_both();
    }
}

/// One that cannot be moved does not keep the host from starting.
#[test]
fn strays_that_cannot_be_moved_stay() {
    let host = with_objects();
    std::fs::write(host.state().join("set-aside"), "in the way").unwrap();
    let stray = host.state().join("journal/99999");
    std::fs::write(&stray, "stray").unwrap();
    host.start_again().unwrap();
    assert_eq!(std::fs::read_to_string(stray).unwrap(), "stray");
    assert!(host.log().contains("stays where it is"), "{}", host.log());
    host.worker().all("open o /stored rw\nmap m o rw shared 0 0\ncheck m 0 64 1");
}

/// The keeper has the frames still, but nobody knows which of their pages are the newest.
#[test]
fn an_object_without_its_book_is_lost_and_says_so() {
    for cut in [None, Some(0), Some(4096), Some(1 << 30)] {
        let host = TestHost::start();
        let worker = host.worker();
        worker.ok(&format!("create o /o size={} controlled budget={MIB}", 4 * MIB));
        worker.all("map m o rw shared 0 0\nfill m 0 1024 1");
        worker.ok("create p /other size=1048576 controlled");
        worker.all("map n p rw shared 0 0\nfill n 0 256 2");
        let before = host.status();
        let live = host.state().join("live").join(worker.ok("info o id"));
        let (length, kept) = data(&live);
        commonhold_tests::host::signal(before.keeper_pid, libc::SIGSTOP);
        commonhold_tests::host::kill_together(&[before.host_pid]);
        match cut {
            None => std::fs::remove_file(&live).unwrap(),
            Some(to) => File::options().write(true).open(&live).unwrap().set_len(to).unwrap(),
        }
        commonhold_tests::host::signal(before.keeper_pid, libc::SIGCONT);
        host.wait_for_other_host(before.host_pid);
        let next = host.worker();
        let refused = next.refused("open o /o rw", "Lost");
        assert!(refused.contains("its memory is lost") && refused.contains("remove the object"), "{refused}");
        next.all("open p /other rw\nmap n p rw shared 0 0\ncheck n 0 256 2");
        assert!(next.ok("stat /o warning").contains("its memory is lost"));
        assert!(length > 1 << 30 && !kept.is_empty());
        next.ok("remove /o");
        next.refused("open o /o rw", "NotFound");
    }
}

/// Neither does an object come back that had its memory in clients.
#[test]
fn without_live_anonymous_objects_are_gone_and_not_zeros() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok("create o /controlled size=1048576 controlled");
    worker.all("map m o rw shared 0 0\nfill m 0 256 1");
    worker.ok("create p /direct size=1048576");
    worker.all("map n p rw shared 0 0\nfill n 0 256 1");
    worker.kill();
    host.kill_both();
    std::fs::remove_dir_all(host.state().join("live")).unwrap();
    host.start_again().unwrap();
    for name in ["/controlled", "/direct"] {
        host.worker().refused(&format!("open o {name} rw"), "NotFound");
        let says = format!("{name} was anonymous, and its memory is gone");
        assert!(host.log().contains(&says), "{}", host.log());
    }
}

/// Bits of `live/<id>` that name no page of the object are not believed.
#[test]
fn a_book_of_another_size_is_refused() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok("create o /o size=1048576 controlled");
    worker.all("map m o rw shared 0 0\nfill m 0 256 1");
    let before = host.status();
    let live = host.state().join("live").join(worker.ok("info o id"));
    commonhold_tests::host::signal(before.keeper_pid, libc::SIGSTOP);
    commonhold_tests::host::kill_together(&[before.host_pid]);
    File::options().write(true).open(&live).unwrap().write_all_at(&u64::MAX.to_le_bytes(), 136).unwrap();
    commonhold_tests::host::signal(before.keeper_pid, libc::SIGCONT);
    host.wait_for_other_host(before.host_pid);
    host.worker().refused("open o /o rw", "Lost");
}
