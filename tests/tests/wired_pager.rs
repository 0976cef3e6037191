//! Wired objects on files and of external pagers: all pages are there before anybody gets them, and `sync` stores them.

use commonhold::{EntryInfo, PagerKind, Translation};
use commonhold_object::wire::{Event, FromHost, PagerReply, Request};
use commonhold_object::{Access, Name};
use commonhold_tests::huge::{HugePages, nothing_is_left};
use commonhold_tests::mounted::Mounted;
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::store::{Store, assert_file, file, kill_both};
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, Worker, is_root, page};
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;

#[test]
fn a_file_is_there_without_a_fault_and_sync_stores_it() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let (pages, size) = (301u64, 300 * PAGE + 100);
    let mut content = page::bytes(0, 300, 1);
    content.extend([77; 100]);
    let path = host.scratch().file_of("map.bin", &content);
    let (worker, other) = (host.worker(), host.worker());
    worker.all(&format!("create o /robot/map wired file={}\nmap m o rw shared 0 0", path.display()));
    worker.all(&format!("no-faults m 0 {pages}\ncheck m 0 300 1"));
    assert_eq!([300 * PAGE + 99, size].map(|at| worker.ok(&format!("get m {at}"))), ["77", "0"]);
    let EntryInfo::Object(info) = host.connect().stat("/robot/map").unwrap() else { panic!("an object") };
    assert_eq!((&info.options.pager, info.options.translation), (&PagerKind::File, Translation::Wired));
    assert_eq!((info.file_path.as_str(), info.resident_bytes), (path.to_str().unwrap(), size as u64));
    assert!(!info.controlled && info.place.is_some() && info.mappings == 1);
    // What is written is everybody's at once, and in the file when it is synced: the range, and no more.
    other.all("open o /robot/map rw\nmap m o rw shared 0 0\nfill m 0 300 2\nno-faults m 0 301");
    worker.ok("check m 0 300 2");
    assert!(std::fs::read(&path).unwrap() == content);
    assert_eq!(other.ok(&format!("sync o {PAGE} {}", 2 * PAGE)), "2");
    content[PAGE..3 * PAGE].copy_from_slice(&page::bytes(1, 2, 2));
    assert!(std::fs::read(&path).unwrap() == content);
    other.ok(&format!("put m {} 5", 300 * PAGE + 99));
    assert_eq!(worker.ok(&format!("sync o 0 {size}")), "301");
    let stored = std::fs::read(&path).unwrap();
    assert!(stored[..300 * PAGE] == page::bytes(0, 300, 2) && stored.len() == size && stored[size - 1] == 5);
    worker.refused(&format!("sync o 0 {}", size + PAGE), "Invalid");
    // One file is not two sets of pages.
    let said = worker.refused(&format!("create p /p file={}", path.display()), "Busy");
    assert!(said.contains("/robot/map: use that one"), "{said}");
    // An orderly end loses nothing without a word, and the next host fetches what was synced.
    worker.all("put m 0 1\ndrop m\nclose o");
    other.all("drop m\nclose o");
    // Nobody waits for a close: the host may not have heard of both yet.
    until("what was never synced is named", || {
        worker.refused("stop no", "Busy").contains("never synced").then_some(())
    });
    worker.all(&format!("open o /robot/map rw\nsync o 0 {PAGE}\nclose o"));
    worker.eventually("stop no");
    until("it has ended", || host.processes().is_empty().then_some(()));
    host.start_again().unwrap();
    let next = host.worker();
    next.all("open o /robot/map rw\nmap m o rw shared 0 0\nno-faults m 0 301\ncheck m 1 299 2");
    assert_eq!([next.ok("get m 0"), next.ok(&format!("get m {}", size - 1))], ["1", "5"]);
}

#[test]
fn what_was_not_synced_outlives_the_host_and_both_where_somebody_has_it() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let path = file(&host, "file", 64, 1);
    let worker = host.worker();
    worker.all(&format!("create o /x wired file={}\nmap m o rw shared 0 0\nfill m 0 64 2", path.display()));
    let pid = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(pid);
    worker.ok("check m 0 64 2");
    kill_both(&host, &worker);
    host.worker().all("open o /x rw\nmap m o rw shared 0 0\ncheck m 0 64 2\nno-faults m 0 64");
    assert_file(&path, 64, 1);
    let pid = host.status().host_pid;
    host.connect().replace(None, true).unwrap();
    host.wait_for_other_host(pid);
    worker.ok(&format!("sync o 0 {}", 32 * PAGE));
    let half = [page::bytes(0, 32, 2), page::bytes(32, 32, 1)].concat();
    assert!(std::fs::read(&path).unwrap() == half);
    // Nobody has it: as last synced.
    worker.all("drop m\nclose o\nopen o /x r\nclose o");
    kill_both(&host, &worker);
    worker.all("open o /x rw\nmap m o rw shared 0 0\ncheck m 0 32 2\ncheck m 32 32 1\nno-faults m 0 64");
}

#[test]
fn on_disk_it_keeps_what_was_not_synced() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let path = file(&host, "file", 256, 1);
    let worker = host.worker();
    worker.all(&format!("create o /x wired file={}\nmap m o rw shared 0 0", path.display()));
    worker.all(&format!("fill m 0 256 2\nsync o 0 {PAGE}\ndrop m\nclose o"));
    worker.all("create a /a size=2097152 wired\nmap m a rw shared 0 0\nfill m 0 512 3");
    assert_eq!(worker.ok("stat /x spilled"), (256 * PAGE).to_string());
    assert_eq!(worker.ok("stat /x place"), "-");
    let stored = [page::bytes(0, 1, 2), page::bytes(1, 255, 1)].concat();
    assert!(std::fs::read(&path).unwrap() == stored, "nothing is stored but by sync");
    kill_both(&host, &worker);
    worker.all("check m 0 512 3\ndrop m\nclose a\nremove /a");
    until("there is room", || worker.ask("open o /x rw").ok());
    worker.all("map m o rw shared 0 0\ncheck m 0 256 2\nno-faults m 0 256");
    worker.ok(&format!("sync o 0 {}", 256 * PAGE));
    assert_file(&path, 256, 2);
    worker.all("drop m\nclose o\nremove /x");
    nothing_is_left(&host, &pool, 1);
}

#[test]
fn an_external_pager_is_asked_for_all_pages_and_gets_what_is_synced() {
    let Some(pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let store = Store::of(page::bytes(0, 100, 1));
    let thread = store.serve(&host, "/squares");
    let worker = host.worker();
    worker.all("create o /x size=524288 wired pager=/squares\nmap m o rw shared 0 0\nno-faults m 0 128");
    worker.all("check m 0 100 1\ncheck m 100 28 0\nfill m 0 128 2");
    assert_eq!(worker.ok("sync o 0 8192"), "2");
    assert!(store.bytes.lock().unwrap()[..2 * PAGE] == page::bytes(0, 2, 2));
    assert!(store.bytes.lock().unwrap()[2 * PAGE..] == page::bytes(2, 98, 1));
    // It grows, and does not shrink.
    worker.refused("resize /x 4096", "Unsupported");
    worker.all("resize /x 528384\nopen p /x rw\nmap n p rw shared 524288 4096\nput n 0 9");
    worker.all("sync p 0 528384\ndrop n\nclose p\ndrop m\nclose o");
    kill_both(&host, &worker);
    let thread = (thread, store.serve(&host, "/squares"));
    worker.all("open o /x rw\nmap m o rw shared 0 0\ncheck m 0 128 2\nno-faults m 0 129");
    assert_eq!(worker.ok("get m 524288"), "9");
    // A pager that fails refuses a sync and a creation, and nothing changes.
    store.fails.store(true, Ordering::SeqCst);
    let said = worker.refused("sync o 0 4096", "Pager");
    assert!(said.contains("no such square"), "{said}");
    let said = worker.refused("create q /q size=4096 wired pager=/squares", "Pager");
    assert!(said.contains("no such square"), "{said}");
    worker.refused("stat /q id", "NotFound");
    store.fails.store(false, Ordering::SeqCst);
    worker.all("sync o 0 4096\ndrop m\nclose o\nremove /x");
    nothing_is_left(&host, &pool, 2);
    drop(host);
    thread.0.join().unwrap();
    thread.1.join().unwrap();
}

#[test]
fn sizes_change_with_the_file() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let path = file(&host, "file", 4, 1);
    let length = || std::fs::metadata(&path).unwrap().len();
    let worker = host.worker();
    worker.all(&format!("create o /x wired file={} size=32768\nmap m o rw shared 0 0", path.display()));
    assert_eq!(length(), 32768);
    worker.all("check m 0 4 1\ncheck m 4 4 0\ndrop m\nresize /x 8192");
    assert_eq!(length(), 8192);
    worker.all("resize /x 16384\nmap m o rw shared 0 0\ncheck m 0 2 1\ncheck m 2 2 0\nno-faults m 0 4");
    assert_eq!(length(), 16384);
    worker.refused("resize /x 0", "Invalid");
    // Also of what is not in memory, which nothing need be fetched for.
    worker.all("drop m\nclose o");
    kill_both(&host, &worker);
    worker.all(
        "resize /x 4096\nresize /x 12288\nopen o /x rw\nmap m o rw shared 0 0\ncheck m 0 1 1\ncheck m 1 2 0",
    );
    assert_eq!((length(), worker.ok("stat /x size")), (12288, "12288".into()));
}

#[test]
fn without_huge_pages_it_is_locked_in_ordinary_ones() {
    let _pool = HugePages::unchanged();
    let host = TestHost::start();
    let pages = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    let size = (pages.trim().parse::<u64>().unwrap() + 1) * 2 * MIB;
    let path = file(&host, "file", 128, 1);
    let worker = host.worker();
    worker.all(&format!("create o /x size={size} wired file={}", path.display()));
    worker.all("map m o rw shared 0 0\ncheck m 0 128 1\ncheck m 128 128 0\nno-faults m 0 256");
    assert_eq!([worker.ok("stat /x place"), worker.ok("stat /x resident")], ["-".into(), size.to_string()]);
    worker.all(&format!("fill m 0 128 2\nsync o 0 {}\nput m 0 7", 128 * PAGE));
    assert!(std::fs::read(&path).unwrap()[..128 * PAGE] == page::bytes(0, 128, 2));
    for both in [false, true] {
        let pid = host.status().host_pid;
        if both {
            kill_both(&host, &worker);
        } else {
            host.kill_host();
            host.wait_for_other_host(pid);
        }
        let other = host.worker();
        other.all("open o /x rw\nmap m o rw shared 0 0\ncheck m 1 127 2\nno-faults m 0 128");
        assert_eq!(other.ok("get m 0"), "7", "its client has it");
    }
    worker.all(&format!("drop m\nresize /x {}\nresize /x {size}", 64 * PAGE));
    worker.all("map m o rw shared 0 0\ncheck m 1 63 2\ncheck m 64 64 0\ndrop m\nclose o");
    kill_both(&host, &worker);
    worker.all("open o /x rw\nmap m o rw shared 0 0\ncheck m 0 64 2\ncheck m 64 64 0\nno-faults m 0 128");
}

#[test]
fn nobody_writes_an_object_whose_file_was_open_for_reading() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let path = file(&host, "file", 16, 1);
    let worker = host.worker();
    worker
        .all(&format!("create o /x wired file-ro={}\nmap m o r shared 0 0\ncheck m 0 16 1", path.display()));
    worker.refused("map n o rw shared 0 0", "Permission");
    worker.refused("open p /x rw", "Permission");
    worker.refused("sync o 0 4096", "Permission");
    worker.refused("write-at o 0 x", "Permission");
    assert!(worker.ask("resize /x 4096").is_err());
    // Nor does whoever does without the library.
    let mut raw = Raw::connect(&host);
    raw.ask(&Request::Hello { program: "raw".into() }, &[]).unwrap().unwrap();
    let open = Request::Open { name: Name::new("/x").unwrap(), access: Access::Read };
    let (_, memory) = raw.ask_for(&open);
    let flags = rustix::fs::fcntl_getfl(&memory[0]).unwrap();
    assert_eq!(flags & rustix::fs::OFlags::RWMODE, rustix::fs::OFlags::RDONLY);
    assert!(rustix::io::pwrite(&memory[0], b"x", 0).is_err());
    worker.ok("close o");
    assert_file(&path, 16, 1);
}

#[test]
fn what_does_not_go_with_a_pager_is_refused() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let path = file(&host, "file", 16, 1);
    let on_file = format!("file={}", path.display());
    let worker = host.worker();
    for (more, why) in [
        ("sync=ordered", "what needs its faults to be served"),
        ("sync=atomic", "what needs its faults to be served"),
        ("freezable", "what needs its faults to be served"),
        ("budget=1048576", "what needs its faults to be served"),
        ("strict=error", "another coherence than local"),
        ("death=revert", "on_last_death"),
        ("fault-deadline=100", "a fault deadline"),
    ] {
        for pager in [&on_file[..], "pager=/nobody size=65536"] {
            let line = format!("create o /x wired {pager} {more}");
            let said = worker.ask(&line).expect_err(&line).message;
            assert!(said.contains(why), "{line}: {said}");
        }
    }
    // The same of shared page tables, as ever.
    let said = worker.refused(&format!("create o /x shared-tables {on_file}"), "Invalid");
    assert!(said.contains("a file or an external pager"), "{said}");
    worker.refused("create o /x wired pager=/p size=4096 reserve=yes", "Invalid");
    worker.refused("create-nameless o wired pager=/p size=4096", "Unsupported");
    let empty = host.scratch().file("empty", 0);
    worker.refused(&format!("create o /x wired file={}", empty.display()), "Invalid");
    worker.ok(&format!("create o /x wired {on_file} reserve=no"));
    for line in ["freeze o 0 4096", "lock o 0 4096", "snapshot s o /s"] {
        worker.refused(line, "Unsupported");
    }
    worker.refused("revert /x", "Unsupported");
    worker.refused("map m o rw private 0 0", "Invalid");
    worker.all("close o\nremove /x");
    assert_file(&path, 16, 1);
    nothing_is_left(&host, &pool, 1);
}

#[test]
fn a_file_that_others_cut_is_refused_and_nothing_in_memory_is_lost() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let path = file(&host, "file", 16, 1);
    let cut = |pages: u64| {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(pages * PAGE as u64).unwrap();
    };
    let worker = host.worker();
    worker.all(&format!("create o /x wired file={}\nmap m o rw shared 0 0\nfill m 0 16 2", path.display()));
    cut(4);
    for line in ["sync o 0 4096", "resize /x 131072"] {
        let said = worker.refused(line, "Lost");
        assert!(said.contains("truncated"), "{line}: {said}");
    }
    worker.all("check m 0 16 2\ndrop m\nclose o");
    kill_both(&host, &worker);
    for _ in 0..2 {
        let said = worker.refused("open o /x rw", "Lost");
        assert!(said.contains("truncated"), "{said}");
    }
    cut(16);
    worker.all(
        "open o /x rw\nmap m o rw shared 0 0\ncheck m 0 4 1\ncheck m 4 12 0\nfill m 0 16 3\nsync o 0 65536",
    );
    assert_file(&path, 16, 3);
    // Or the object is cut as its file was.
    worker.all("drop m\nclose o");
    cut(4);
    kill_both(&host, &worker);
    worker.all("resize /x 16384\nopen o /x rw\nmap m o rw shared 0 0\ncheck m 0 4 3");
    // Another file of that name is not taken for it.
    worker.all("drop m\nclose o");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, page::bytes(0, 4, 4)).unwrap();
    kill_both(&host, &worker);
    let said = worker.refused("open o /x rw", "Lost");
    assert!(said.contains("is not the file that the object was created from"), "{said}");
}

#[test]
fn a_pager_that_hangs_or_lies_holds_up_nobody_else() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let store = Store::of(page::bytes(0, 16, 1));
    store.hang(true);
    let thread = store.serve(&host, "/slow");
    let (worker, waits, other) = (host.worker(), host.worker(), host.worker());
    until("it serves, and is given up", || {
        let said = worker.refused("create o /x size=65536 wired pager=/slow pager-deadline=300", "Pager");
        said.contains("did not answer within 300 ms").then_some(())
    });
    worker.refused("stat /x id", "NotFound");
    store.hang(false);
    let asked = || store.asked.load(Ordering::SeqCst);
    until("its late answers are out", || (store.answered.load(Ordering::SeqCst) == asked()).then_some(()));
    store.hang(true);
    let before = asked();
    worker.send("create o /x size=65536 wired pager=/slow pager-deadline=600000");
    until("it is asked", || (asked() > before).then_some(()));
    // Many wait for it, and none of them for who does not.
    let many = Worker::start_many(host.state(), 20);
    for (number, one) in many.iter().enumerate() {
        one.send(&format!("create o /many{number} size=65536 wired pager=/slow pager-deadline=600000"));
    }
    let path = file(&host, "file", 16, 5);
    for _ in 0..20 {
        other.all(&format!(
            "create f /f wired file={}\nmap m f rw shared 0 0\ncheck m 0 16 5",
            path.display()
        ));
        other.all("sync f 0 65536\ndrop m\nclose f\nremove /f");
    }
    assert!(worker.answer_within(std::time::Duration::ZERO).is_none(), "the pager did not hang");
    store.hang(false);
    worker.answer().unwrap();
    many.iter().for_each(|one| drop(one.answer().unwrap()));
    worker.all("map m o rw shared 0 0\ncheck m 0 16 1\ndrop m\nclose o");
    drop(many);
    // The same of who opens it when it is not in memory: others who do wait with it, and are all given the same.
    kill_both(&host, &other);
    worker.eventually("list /");
    store.hang(true);
    let again = store.serve(&host, "/slow");
    let before = asked();
    waits.send("open o /x rw");
    until("it is asked", || (asked() > before).then_some(()));
    worker.send("open o /x rw");
    other.all("stat /x size\ncreate g /g size=65536 wired\nclose g");
    store.hang(false);
    [&waits, &worker].iter().for_each(|one| drop(one.answer().unwrap()));
    waits.all("map m o rw shared 0 0\nput m 0 9");
    worker.ok("map m o rw shared 0 0");
    assert_eq!(worker.ok("get m 0"), "9");
    lies(&host, &other);
    drop(host);
    thread.join().unwrap();
    again.join().unwrap();
}

/// A pager that answers something else than what it was asked for.
fn lies(host: &TestHost, worker: &Worker) {
    let mut pager = Raw::connect(host);
    pager.ask(&Request::ServePager { pager: Name::new("/lies").unwrap() }, &[]).unwrap().unwrap();
    for answer in [PagerReply::Data(vec![1; 5]), PagerReply::Stored] {
        worker.send("create l /l size=65536 wired pager=/lies");
        let call = until("it is asked", || match pager.hear() {
            Some(Some((_, FromHost::Event(Event::PageIn { call, .. })))) => Some(call),
            _ => None,
        });
        assert!(pager.throw(&bytes_of(0, &Request::PagerAnswer { call, result: answer }), &[]));
        assert_eq!(worker.answer().unwrap_err().kind, "Pager");
    }
    worker.refused("stat /l id", "NotFound");
}

/// What may move lies in an arena, or on disk, or is waited for with the file that another creation came with.
#[test]
fn what_may_move_is_synced_wherever_it_is() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let (path, second) = (file(&host, "file", 256, 1), file(&host, "second", 384, 5));
    let (worker, other) = (host.worker(), host.worker());
    other.ok("create anchor /anchor size=4096 wired");
    worker.all(&format!("create o /x wired file={}\nclose o\nopen-movable o /x rw", path.display()));
    worker.all("guarded o check 0 256 1\nguarded o fill 0 256 2\nsync o 0 4096");
    assert!(std::fs::read(&path).unwrap() == [page::bytes(0, 1, 2), page::bytes(1, 255, 1)].concat());
    // It makes room for an object that needs more than half of their arena.
    other
        .all(&format!("create a /a wired file={}\nmap m a rw shared 0 0\ncheck m 0 384 5", second.display()));
    other.ok("no-faults m 0 384");
    assert_eq!(worker.ok("stat /x spilled"), (256 * PAGE).to_string());
    worker.ok(&format!("sync o 0 {}", 256 * PAGE));
    assert_file(&path, 256, 2);
    assert_eq!(worker.ok("stat /x spilled"), (256 * PAGE).to_string(), "it is where it was");
    kill_both(&host, &other);
    other.all("check m 0 384 5\nno-faults m 0 384");
    other.all("drop m\nclose a\nremove /a");
    worker.ok("guarded o check 0 256 2");
    worker.all("guarded o fill 0 256 3\nsync o 0 1048576\nresize /x 1052672\nguarded o check 256 1 0");
    assert!(std::fs::read(&path).unwrap() == [page::bytes(0, 256, 3), vec![0; PAGE]].concat());
    worker.all("close o\nremove /x");
    other.all("close anchor\nremove /anchor");
    nothing_is_left(&host, &pool, 1);
}

#[test]
fn a_mount_shows_it_and_fsync_stores_it() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let path = file(&host, "file", 16, 1);
    let worker = host.worker();
    worker.ok(&format!("create o /x wired file={}", path.display()));
    let Some(mounted) = Mounted::of(&host) else { return };
    assert_eq!(std::fs::read(mounted.path("x")).unwrap(), page::bytes(0, 16, 1));
    let mut value = [0; 64];
    for (attribute, is) in [("pager", "file"), ("translation", "wired")] {
        let name = format!("user.commonhold.{attribute}");
        let length = rustix::fs::getxattr(mounted.path("x"), name, &mut value).unwrap();
        assert_eq!(&value[..length], is.as_bytes());
    }
    mounted.shell("printf new | dd of=$M/x conv=notrunc status=none");
    assert_eq!(worker.ok("read-at o 0 3"), "6e6577");
    assert_file(&path, 16, 1);
    mounted.shell("printf newer | dd of=$M/x conv=notrunc,fsync status=none");
    assert!(std::fs::read(&path).unwrap().starts_with(b"newer"));
    // By a write past its end, and cut.
    mounted.shell("printf end | dd of=$M/x conv=notrunc,fsync seek=65536 oflag=seek_bytes status=none");
    assert_eq!((worker.ok("stat /x size"), std::fs::metadata(&path).unwrap().len()), ("65539".into(), 65539));
    assert!(std::fs::read(&path).unwrap().ends_with(b"end"));
    mounted.shell("truncate -s 4096 $M/x");
    assert_eq!((worker.ok("stat /x size"), std::fs::metadata(&path).unwrap().len()), ("4096".into(), 4096));
}

#[test]
fn quotas_count_what_is_taken() {
    if !is_root("processes of another user") {
        return;
    }
    let Some(pool) = HugePages::more(2) else { return };
    let host = TestHost::with(&["--quota", "9MiB"]);
    let path = file(&host, "file", 256, 1);
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    let user = host.worker_of(65534, 65534);
    let has_room = |bytes: u64| {
        let made = user.ask(&format!("create-nameless probe size={bytes} reserve=yes")).is_ok();
        user.ok("close probe");
        made
    };
    user.all(&format!("create o /x wired file={}\nmap m o rw shared 0 0\nfill m 0 256 2", path.display()));
    assert_eq!((has_room(7 * MIB), has_room(7 * MIB + 4096)), (true, false), "its arena counts");
    user.all("drop m\nclose o\ncreate a /a size=4194304 wired\nmap m a rw shared 0 0");
    // It lies on disk, of ordinary pages or of an arena the other.
    assert_eq!(user.ok("stat /x spilled"), "1048576");
    assert!(!has_room(4 * MIB + 4096));
    user.all("drop m\nclose a\nremove /a\nremove /x");
    until("all is given back", || has_room(9 * MIB).then_some(()));
    nothing_is_left(&host, &pool, 2);
}
