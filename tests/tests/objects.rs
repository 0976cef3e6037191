//! Objects and names: whose they are, what removing frees, sizes, reservations, states of pages, parts.

use commonhold_tests::{MIB, TestHost, Worker, is_root, page, wait};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

/// A user that owns nothing.
const NOBODY: u32 = 65534;

/// One option line for each kind of object of eight pages, with a file where it needs one.
fn kinds(host: &TestHost, name: &str) -> Vec<(&'static str, String)> {
    let file = |kind: &str| host.scratch().file(&format!("{kind}-{name}"), 32768).display().to_string();
    vec![
        ("direct", "size=32768".to_owned()),
        ("file", format!("file={}", file("file"))),
        ("controlled", "size=32768 controlled".to_owned()),
        ("ordered", format!("file={} sync=ordered", file("ordered"))),
        ("atomic", format!("file={} sync=atomic", file("atomic"))),
        ("freezable", "size=32768 freezable".to_owned()),
    ]
}

fn number(worker: &Worker, line: &str) -> u64 {
    worker.ok(line).parse().expect("a number")
}

/// Memory of objects that host and keeper hold: inodes of memfds.
fn memories(host: &TestHost) -> HashSet<u64> {
    let status = host.status();
    let descriptors =
        [status.host_pid, status.keeper_pid].map(|pid| std::fs::read_dir(format!("/proc/{pid}/fd")));
    let all = descriptors.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
    all.filter_map(|path| {
        let link = std::fs::read_link(&path).ok()?.to_string_lossy().into_owned();
        let memory =
            link.starts_with("/memfd:commonhold-object") || link.starts_with("/memfd:commonhold-frames");
        memory.then(|| std::fs::metadata(&path).ok().map(|m| m.ino())).flatten()
    })
    .collect()
}

#[test]
fn names_and_directories_belong_to_who_used_them_first() {
    if !is_root("several users") {
        return;
    }
    let host = TestHost::start();
    let (nobody, root) = (host.worker_of(NOBODY, NOBODY), host.worker());
    nobody.ok("create o /lab/deep/weights size=4096 mode=640");
    for directory in ["/lab", "/lab/deep", "/lab/deep/"] {
        assert_eq!(root.ok(&format!("stat {directory} owner")), "directory 65534 65534 755");
    }
    assert_eq!(root.ok("stat /lab/deep/weights owner"), "65534 65534 640");
    // Root used them second: they stay whose they were.
    root.ok("create r /lab/deep/roots size=4096");
    assert_eq!(root.ok("stat /lab/deep owner"), "directory 65534 65534 755");
    assert_eq!(root.ok("stat /lab/deep/roots owner"), "0 0 600");
    assert_eq!(nobody.ok("list /lab/deep"), "/lab/deep/roots /lab/deep/weights");
    // Another name, mode, owner: the open object is the same one all the time.
    nobody.all("map m o rw shared 0 0\nfill m 0 1 5\nrename /lab/deep/weights /lab/w\nchmod /lab/w 666");
    nobody.refused("stat /lab/deep/weights id", "NotFound");
    root.ok("chown /lab/w 65533 65532");
    assert_eq!(nobody.ok("info o owner"), "65533 65532 666");
    assert_eq!(nobody.ok("info o name"), "/lab/w");
    let other = host.worker_of(65533, 65533);
    other.all("open o /lab/w rw\nmap m o rw shared 0 0\ncheck m 0 1 5");
    // A whole directory moves with what is in it.
    nobody.ok("rename /lab /hall");
    assert_eq!(nobody.ok("info o name"), "/hall/w");
    assert_eq!(root.ok("list /"), "/hall");
    // An empty directory is removed, no other.
    let says = nobody.refused("remove /hall/deep", "Busy");
    assert!(says.contains("not empty"), "{says}");
    root.ok("remove /hall/deep/roots");
    nobody.all("remove /hall/deep\nremove /hall/w\nremove /hall");
    assert_eq!(root.ok("list /"), "");
    nobody.ok("check m 0 1 5");
}

#[test]
fn removing_frees_the_name_at_once_and_the_memory_with_the_last_mapping() {
    let host = TestHost::start();
    let before = memories(&host);
    for (kind, options) in kinds(&host, "remove").into_iter().filter(|(_, o)| o.contains("size=")) {
        let (first, second) = (host.worker(), host.worker());
        first.ok(&format!("create o /x {options}"));
        first.all("map m o rw shared 0 0\nfill m 0 8 1\nclose o");
        second.all("open o /x rw\nmap m o r shared 0 16384");
        let memory = &memories(&host) - &before;
        assert_eq!(memory.len(), 1, "{kind}");
        first.ok("remove /x");
        first.refused("open p /x r", "NotFound");
        assert_eq!(second.ok("info o name"), "-");
        // The name is free, and what gets it is another object.
        second.ok(&format!("create p /x {options}"));
        second.all("map n p rw shared 0 0\ncheck n 0 8 0\ncheck m 0 4 1\nremove /x\ndrop n\nclose p");
        first.all("check m 0 8 1\nfill m 0 8 2\ndrop m");
        second.all("check m 0 4 2\nclose o\ncheck m 0 4 2");
        assert!(memory.is_subset(&memories(&host)), "{kind}: still mapped");
        second.ok("drop m");
        wait::until("the memory is given back", || memory.is_disjoint(&memories(&host)).then_some(()));
        // The same when whoever has it is killed instead.
        first.ok(&format!("create o /x {options}"));
        let memory = &memories(&host) - &before;
        first.all("map m o rw shared 0 0\nfill m 0 8 1\nremove /x");
        first.kill();
        wait::until("the memory is given back", || memory.is_disjoint(&memories(&host)).then_some(()));
    }
    wait::until("no memory is left", || memories(&host).is_subset(&before).then_some(()));
    assert_eq!(host.status().objects, 0);
}

#[test]
fn removing_never_deletes_a_backing_file() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host, "kept").into_iter().filter(|(_, o)| o.contains("file=")) {
        let path = host.scratch().join(&format!("{kind}-kept"));
        let worker = host.worker();
        worker.ok(&format!("create o /x {options}"));
        worker.all(
            "map m o rw shared 0 0\nfill m 0 8 3\nsync o 0 32768\nremove /x\ncheck m 0 8 3\ndrop m\nclose o",
        );
        assert!(std::fs::read(&path).unwrap() == page::bytes(0, 8, 3), "{kind}: the file lost its bytes");
        wait::until("the file is free for another object", || {
            worker.ask(&format!("create o /y {options}")).ok()
        });
        worker.all("map m o rw shared 0 0\ncheck m 0 8 3\nremove /y");
    }
}

#[test]
fn an_object_shrinks_and_grows_under_mappings() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host, "size") {
        let name = format!("/{kind}");
        let (one, two) = (host.worker(), host.worker());
        one.ok(&format!("create o {name} {options} mode=640"));
        one.all("map m o rw shared 0 0\nfill m 0 8 1");
        two.ok(&format!("open o {name} rw"));
        two.all("map m o rw shared 0 0\nmap tail o r shared 20480 0\ncheck m 0 8 1");
        one.ok(&format!("resize {name} 12388"));
        assert_eq!(two.ok("info o size"), "12388");
        one.ok("check m 0 3 1");
        for line in ["get m 20480", "put m 16384 1", "get tail 0"] {
            let dead = host.worker();
            // Mapped while it was large, then cut.
            one.ok(&format!("resize {name} 32768"));
            dead.ok(&format!("open o {name} rw"));
            dead.all("map m o rw shared 0 0\nmap tail o r shared 20480 0");
            one.ok(&format!("resize {name} 12388"));
            dead.dies(line, libc::SIGBUS);
        }
        // Nothing else changed.
        two.ok("check m 0 3 1");
        assert_eq!(one.ok("info o owner").split(' ').next_back(), Some("640"), "{kind}");
        assert_eq!(two.ok("incore o 0 24576").chars().skip(4).collect::<String>(), "II", "{kind}");
        two.refused("map n o rw shared 16384 0", "Invalid");
        // What comes back is zeros, for those who had it and those who had not.
        one.ok(&format!("resize {name} 32768"));
        for worker in [&one, &two, &host.worker()] {
            if worker.ask("address m").is_err() {
                worker.ok(&format!("open o {name} r"));
                worker.ok("map m o r shared 0 0");
            }
            worker.all("check m 0 3 1\ncheck m 4 4 0");
            assert_eq!(worker.ok("get m 12388"), "0", "{kind}: past the end within the last page");
            assert_eq!(worker.ok("get m 16383"), "0", "{kind}");
        }
        one.all("fill m 4 4 2\nfill m 3 1 2");
        two.ok("check m 3 5 2");
        assert_eq!(two.ok("get tail 0"), one.ok("get m 20480"));
        // Longer than it ever was.
        one.ok(&format!("resize {name} {MIB}"));
        one.all("map n o rw shared 0 1048576\ncheck n 8 248 0\nfill n 8 248 4\ncheck n 3 5 2");
        assert_eq!(one.ok("info o size"), MIB.to_string());
        if let Ok(file) = std::fs::metadata(host.scratch().join(&format!("{kind}-size"))) {
            assert_eq!(file.len(), MIB, "{kind}");
            one.ok(&format!("sync o 0 {MIB}"));
            let found = std::fs::read(host.scratch().join(&format!("{kind}-size"))).unwrap();
            assert!(
                found[32768..] == page::bytes(8, 248, 4) && found[..12288] == page::bytes(0, 3, 1),
                "{kind}"
            );
        }
    }
}

#[test]
fn reserving_takes_at_creation_and_within_the_quota() {
    let host = TestHost::with(&["--quota", "16MiB"]);
    let worker = host.worker();
    worker.ok(&format!("create a /a size={}", 12 * MIB));
    assert!(number(&worker, "info a resident") >= 12 * MIB, "its memory is there before it is touched");
    for kind in ["", "controlled"] {
        let says = worker.refused(&format!("create b /b size={} {kind}", 8 * MIB), "Quota");
        assert!(says.contains("16777216") && says.contains("--reserve no"), "{says}");
        assert_eq!(worker.ok("list /"), "/a", "nothing is left of it");
    }
    worker.refused(&format!("resize /a {}", 17 * MIB), "Quota");
    assert_eq!(number(&worker, "info a size"), 12 * MIB);
    worker.ok(&format!("create b /b size={} reserve=no", 64 * MIB));
    assert_eq!(number(&worker, "info b resident"), 0);
    // What shrinks or goes makes room.
    worker.all(&format!("resize /a {}\ncreate c /c size={} controlled", 4 * MIB, 8 * MIB));
    let spill = host.state().join("spill").join(worker.ok("info c id"));
    assert!(std::fs::metadata(&spill).unwrap().blocks() * 512 >= 8 * MIB, "its spill space is taken");
    worker.refused(&format!("create d /d size={}", 8 * MIB), "Quota");
    worker.all(&format!("remove /c\nclose c\ncreate d /d size={}", 8 * MIB));
    assert!(!spill.exists(), "its spill space is given back");
    if is_root("the quota of another user") {
        host.worker_of(NOBODY, NOBODY).ok(&format!("create e /e size={}", 16 * MIB));
    }
    let file = host.scratch().file("sparse", 2 * MIB);
    worker.ok(&format!("create f /f file={} reserve=yes sync=ordered", file.display()));
    assert!(std::fs::metadata(&file).unwrap().blocks() * 512 >= 2 * MIB, "its disk space is taken");
    // More memory than any machine has left.
    let says = host_without_quota_refuses();
    assert!(says.contains("reserve"), "{says}");
}

fn host_without_quota_refuses() -> String {
    let host = TestHost::start();
    let worker = host.worker();
    let says = worker.refused(&format!("create o /x size={}", 1u64 << 43), "NoSpace");
    assert_eq!(worker.ok("list /"), "");
    says
}

#[test]
fn a_sparse_tebibyte_costs_what_is_touched() {
    let host = TestHost::start();
    let size = 1u64 << 40;
    for kind in ["", "controlled", "sync=atomic file=FILE"] {
        let worker = host.worker();
        let file = host.scratch().file("tebibyte", 0);
        let options = kind.replace("FILE", &file.display().to_string());
        worker.ok(&format!("create o /x size={size} reserve=no {options}"));
        worker.ok("map m o rw shared 0 0");
        let at = |n: u64| n * (size / 10) / 4096 * 4096 + 17;
        for n in 0..10 {
            worker.ok(&format!("put m {} {}", at(n), n + 1));
        }
        for n in 0..10 {
            assert_eq!(worker.ok(&format!("get m {}", at(n))), (n + 1).to_string(), "{kind}");
        }
        // A thread runs on before the host has noted the page that it was given: the last may be missing.
        let resident = number(&worker, "info o resident");
        assert!((9 * 4096..=MIB).contains(&resident), "{kind}: {resident} bytes are in memory");
        let state = worker.ok(&format!("incore o {} 4096", at(5) - 17));
        assert!("CD".contains(&state), "{kind}: {state}");
        assert_eq!(worker.ok(&format!("incore o {} 4096", (size / 20 * 11) & !4095)), "A", "{kind}");
        if kind.contains("atomic") {
            assert_eq!(worker.ok(&format!("sync o 0 {size}")), "10");
            assert!(std::fs::metadata(&file).unwrap().blocks() * 512 <= MIB);
        }
        worker.all("drop m\nremove /x\nclose o");
    }
}

#[test]
fn states_of_pages_through_their_life() {
    let host = TestHost::start();
    for sync in ["ordered", "atomic"] {
        let file = host.scratch().file(sync, 16 * 4096);
        let worker = host.worker();
        worker.ok(&format!("create o /{sync} file={} sync={sync}", file.display()));
        let states =
            |first: u64, count: u64| worker.ok(&format!("incore o {} {}", first * 4096, count * 4096));
        assert_eq!(states(0, 18), "AAAAAAAAAAAAAAAAII");
        worker.all("map m o rw shared 0 0\nget m 0\nput m 40960 1");
        assert_eq!(states(0, 1), "C");
        assert_eq!(states(10, 1), "D");
        worker.ok("lock o 40960 4096");
        assert_eq!(states(10, 2).chars().next(), Some('d'));
        worker.ok("sync o 0 65536");
        assert_eq!(states(10, 1), "c");
        worker.ok("unlock o 40960 4096");
        assert_eq!(states(10, 1), "C");
        // A reader's touch, and a write of somebody else.
        let other = host.worker();
        other.all(&format!("open o /{sync} rw\nmap m o rw shared 0 0\nget m 40960"));
        assert_eq!(states(10, 1), "C");
        other.ok("put m 40961 1");
        assert_eq!(states(10, 1), "D");
        // An orderly last unmap is a sync.
        other.ok("drop m");
        assert_eq!(states(10, 1), "D", "still mapped by another");
        worker.ok("drop m");
        assert!("CA".contains(&states(10, 1)));
        assert_eq!(std::fs::read(&file).unwrap()[40960..40962], [1, 1]);
        worker.ok(&format!("resize /{sync} 40960"));
        assert_eq!(states(9, 3).chars().skip(1).collect::<String>(), "II");
    }
    // Out of memory again: paged out.
    let worker = host.worker();
    let file = host.scratch().file("large", 8 * MIB);
    worker.ok(&format!("create o /large file={} sync=ordered budget={MIB}", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 2048 1");
    let states = worker.ok(&format!("incore o 0 {}", 8 * MIB));
    let in_memory = states.chars().filter(|state| "CD".contains(*state)).count();
    assert!(states.contains('A') && in_memory <= 256, "{in_memory} pages of 256 are in memory");
}

#[test]
fn several_mappings_of_parts() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host, "parts") {
        let worker = host.worker();
        worker.ok(&format!("create o /{kind} {options}"));
        // Overlapping parts, for reading and for writing, shared and private, in one process.
        worker.all(
            "map all o rw shared 0 0
             map low o r shared 0 16384
             map high o rw shared 16384 16384
             map middle o rw shared 8192 16384
             map own o rw private 8192 8192
             fill all 0 8 1
             check low 0 4 1
             put high 100 7
             put middle 1 9
             put own 2 33",
        );
        assert_eq!(worker.ok("get all 16484"), "7", "{kind}");
        assert_eq!(worker.ok("get middle 8292"), "7", "{kind}");
        assert_eq!(worker.ok("get low 8193"), "9", "{kind}");
        assert_ne!(worker.ok("get all 8194"), "33", "{kind}: a private write is seen by others");
        assert_eq!(worker.ok("get own 2"), "33", "{kind}");
        // What is shared arrives in private pages that were not written.
        worker.ok("put all 12290 44");
        assert_eq!(worker.ok("get own 4098"), "44", "{kind}");
        assert_eq!(worker.ok("info o mappings"), "5", "{kind}");
        worker.all("drop all\ndrop own\nfill high 2 2 6\ncheck high 2 2 6");
        assert_eq!(worker.ok("info o mappings"), "3", "{kind}");
        worker.dies("put low 0 1", libc::SIGSEGV);
    }
}
