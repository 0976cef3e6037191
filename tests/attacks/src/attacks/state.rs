//! A state directory of which parts are gone, empty, cut off or of somebody else: nothing in it is
//! deleted, and no object comes back with other bytes without a word.

use super::{KILLED, alone, user_of};
use crate::Attack;
use crate::scene::{Local, MACHINE};
use commonhold_tests::host::{kill_together, signal};
use commonhold_tests::{MIB, PAGE, wait};
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(crate) const ATTACKS: &[Attack] = &[
    alone("state.no_registry", "take meta.redb away, or spoil it, beside files of objects", no_registry),
    alone("state.an_older_registry", "put an older meta.redb in its place", an_older_registry),
    alone("state.strays", "put files of one's own into the folders of the state", strays),
    alone("state.strays_that_stay", "the same, and have them not be moved", strays_that_stay),
    user_of(KILLED, "state.no_book", "take an object's book away, or cut it off", no_book),
    user_of(
        KILLED,
        "state.a_book_of_another_size",
        "name pages in a book that the object has not",
        another_size,
    ),
    alone("state.no_books_at_all", "take all books away", no_books_at_all),
];

const FOLDERS: [&str; 4] = ["journal", "spill", "live", "replicas"];

/// Files below a directory, with their length and the data in them.
type Content = BTreeMap<PathBuf, (u64, Vec<u8>)>;

fn content(directory: &Path) -> Content {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("its kind"));
        if kind.is_dir() {
            found.extend(content(&path));
        } else if kind.is_file() {
            found.insert(path.clone(), data(&path));
        }
    }
    found
}

/// Holes are passed over.
fn data(path: &Path) -> (u64, Vec<u8>) {
    let (mut file, mut bytes, mut at) = (File::open(path).expect("a file"), Vec::new(), 0);
    while let Ok(from) = seek(&file, SeekFrom::Data(at)) {
        let to = seek(&file, SeekFrom::Hole(from)).expect("its end");
        seek(&file, SeekFrom::Start(from)).expect("its start");
        file.by_ref().take(to - from).read_to_end(&mut bytes).expect("its data");
        at = to;
    }
    (file.metadata().expect("its length").len(), bytes)
}

/// What lies in the folders that hold files of objects.
fn of_objects(scene: &Local) -> Content {
    let folders = FOLDERS.iter().map(|folder| scene.state(folder)).filter(|path| path.is_dir());
    folders.flat_map(|path| content(&path)).collect()
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file");
}

/// `/stored` of the attacker, with a journal.
fn store_an_object(scene: &Local) {
    let file = scene.new_file("file", 64 * PAGE as u64);
    let worker = scene.attacker();
    worker.ok(&format!("create o /stored file={} sync=atomic", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 64 1\nsync o 0 262144");
}

fn is_stored(scene: &Local) {
    scene.attacker().all("open o /stored rw\nmap m o rw shared 0 0\ncheck m 0 64 1");
}

/// A host that had an object with a journal, and one with pages in memory and in its spill file;
/// both of its processes were killed.
fn with_objects() -> Local {
    let scene = Local::of(MACHINE);
    store_an_object(&scene);
    let worker = scene.attacker();
    worker.ok(&format!("create p /spilled size={} budget={MIB}", 8 * MIB));
    worker.all("map n p rw shared 0 0\nfill n 0 2048 2");
    // While pages are evicted, the host may tell the numbers of a moment before.
    wait::until("most pages are in the spill file", || {
        (worker.ok("info p spilled").parse::<u64>().expect("a number") > MIB).then_some(())
    });
    drop(worker);
    scene.host.kill_both();
    scene
}

fn start(scene: &Local) {
    scene.host.start_again().expect("the host starts");
}

fn refused_and_unchanged(scene: &Local, says: &[&str]) {
    let meta = scene.state("meta.redb");
    let before = (of_objects(scene), std::fs::read(&meta).ok());
    let refused = scene.host.start_again().expect_err("it may not start");
    assert!(says.iter().all(|part| refused.contains(part)), "{refused}");
    wait::until("host and keeper are gone", || scene.host.processes().is_empty().then_some(()));
    assert!(of_objects(scene) == before.0, "files of objects were changed");
    assert!(std::fs::read(&meta).ok() == before.1, "meta.redb was changed");
}

fn no_registry() {
    let scene = with_objects();
    let meta = scene.state("meta.redb");
    let whole = read(&meta);
    let gone = || std::fs::remove_file(&meta).expect("it goes");
    gone();
    let what_to_do = "mkdir old && mv journal spill live old/";
    refused_and_unchanged(&scene, &["is missing", "Restore meta.redb", what_to_do]);
    write(&meta, b"");
    refused_and_unchanged(&scene, &["is empty", "Restore meta.redb"]);
    for length in [1, 4096, whole.len() / 2, whole.len() - 4096] {
        write(&meta, &whole[..length]);
        refused_and_unchanged(&scene, &["is damaged", "restore it from a copy"]);
    }
    write(&meta, &vec![0xa5; whole.len()]);
    refused_and_unchanged(&scene, &["is damaged", "restore it from a copy"]);
    write(&meta, &whole);
    start(&scene);
    is_stored(&scene);
    // What the message says leads to a host that begins anew.
    scene.host.kill_both();
    gone();
    let old = scene.state("old");
    std::fs::create_dir(&old).expect("a directory");
    for folder in FOLDERS {
        std::fs::rename(scene.state(folder), old.join(folder)).expect("it is moved");
    }
    let before = content(&old);
    start(&scene);
    assert_eq!(scene.attacker().ok("list /"), "");
    assert!(content(&old) == before);
}

fn an_older_registry() {
    let scene = Local::of(MACHINE);
    drop(scene.attacker());
    scene.host.kill_both();
    let meta = scene.state("meta.redb");
    let old = read(&meta);
    start(&scene);
    store_an_object(&scene);
    scene.host.kill_both();
    let before = of_objects(&scene);
    write(&meta, &old);
    start(&scene);
    let place = scene.state("set-aside");
    let aside = content(&place);
    let kept = before.iter().filter(|(path, (_, data))| !data.is_empty() && !path.ends_with("clients"));
    for (path, found) in kept {
        let name =
            path.strip_prefix(scene.host.state()).expect("below it").to_string_lossy().replace('/', "-");
        assert!(aside.get(&place.join(&name)) == Some(found), "{name}: {:?}", aside.keys());
    }
    let log = scene.host.log();
    assert!(log.contains("which belongs to no object: it is set-aside/journal-"), "{log}");
}

const STRAYS: [&str; 5] = ["notes", "99999", "99998.a", "own-x", "99997/inside"];

fn strays() {
    let scene = with_objects();
    for folder in FOLDERS {
        let at = scene.state(folder);
        std::fs::create_dir(at.join("99997")).expect("a directory");
        STRAYS.iter().for_each(|name| write(&at.join(name), format!("{folder}/{name}").as_bytes()));
        std::os::unix::fs::symlink("/etc/passwd", at.join("99996")).expect("a link");
    }
    for _ in 0..2 {
        start(&scene);
        for folder in FOLDERS {
            for name in STRAYS {
                let there = std::fs::read_to_string(scene.state(folder).join(name));
                let aside = scene.state("set-aside").join(format!("{folder}-{name}"));
                let found = there.or_else(|_| std::fs::read_to_string(aside)).expect("it is there still");
                assert_eq!(found, format!("{folder}/{name}"));
            }
        }
        assert!(Path::new("/etc/passwd").exists());
        is_stored(&scene);
        scene.host.kill_both();
    }
}

/// One that cannot be moved does not keep the host from starting.
fn strays_that_stay() {
    let scene = with_objects();
    write(&scene.state("set-aside"), b"in the way");
    let stray = scene.state("journal/99999");
    write(&stray, b"stray");
    start(&scene);
    assert_eq!(read(&stray), b"stray");
    assert!(scene.host.log().contains("stays where it is"), "{}", scene.host.log());
    is_stored(&scene);
}

/// The host dies, and before the next one has begun somebody does something to that object's book.
/// The keeper has the frames still, but nobody knows which of their pages are the newest.
fn spoil(scene: &Local, id: &str, spoiling: impl FnOnce(&Path)) {
    let before = scene.host.status();
    signal(before.keeper_pid, libc::SIGSTOP);
    kill_together(&[before.host_pid]);
    spoiling(&scene.state("live").join(id));
    signal(before.keeper_pid, libc::SIGCONT);
    let after = scene.host.wait_for_other_host(before.host_pid);
    assert_eq!(after.keeper_pid, before.keeper_pid, "the keeper died, too:\n{}", scene.host.log());
}

fn writable(path: &Path) -> File {
    File::options().write(true).open(path).expect("a file")
}

fn no_book(scene: &Local) {
    for cut in [None, Some(0), Some(4096), Some(1 << 30)] {
        let worker = scene.attacker();
        worker.ok(&format!("create o /o size={} controlled budget={MIB}", 4 * MIB));
        worker.all("map m o rw shared 0 0\nfill m 0 1024 1");
        worker.ok("create p /other size=1048576 controlled");
        worker.all("map n p rw shared 0 0\nfill n 0 256 2");
        spoil(scene, &worker.ok("info o id"), |live| {
            let (length, kept) = data(live);
            assert!(length > 1 << 30 && !kept.is_empty());
            match cut {
                None => std::fs::remove_file(live).expect("it goes"),
                Some(to) => writable(live).set_len(to).expect("it is cut"),
            }
        });
        let next = scene.attacker();
        let refused = next.refused("open o /o rw", "Lost");
        assert!(refused.contains("its memory is lost") && refused.contains("remove the object"), "{refused}");
        next.all("open p /other rw\nmap n p rw shared 0 0\ncheck n 0 256 2");
        assert!(next.ok("stat /o warning").contains("its memory is lost"));
        next.ok("remove /o");
        next.refused("open o /o rw", "NotFound");
        next.ok("remove /other");
    }
}

/// Bits of `live/<id>` that name no page of the object are not believed.
fn another_size(scene: &Local) {
    let worker = scene.attacker();
    worker.ok("create o /o size=1048576 controlled");
    worker.all("map m o rw shared 0 0\nfill m 0 256 1");
    spoil(scene, &worker.ok("info o id"), |live| {
        writable(live).write_all_at(&u64::MAX.to_le_bytes(), 136).expect("it is written");
    });
    scene.attacker().refused("open o /o rw", "Lost");
}

/// Neither does an object come back that had its memory in clients.
fn no_books_at_all() {
    let scene = Local::of(MACHINE);
    let worker = scene.attacker();
    worker.ok("create o /controlled size=1048576 controlled");
    worker.all("map m o rw shared 0 0\nfill m 0 256 1");
    worker.ok("create p /direct size=1048576");
    worker.all("map n p rw shared 0 0\nfill n 0 256 1");
    worker.kill();
    scene.host.kill_both();
    std::fs::remove_dir_all(scene.state("live")).expect("it goes");
    start(&scene);
    for name in ["/controlled", "/direct"] {
        scene.attacker().refused(&format!("open o {name} rw"), "NotFound");
        let says = format!("{name} was anonymous, and its memory is gone");
        assert!(scene.host.log().contains(&says), "{}", scene.host.log());
    }
}
