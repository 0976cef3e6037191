//! Controlled objects of every kind: what one process writes, others read; the kernel's own accesses; parts of
//! mappings; threads; users without privilege.

use commonhold_tests::{MIB, PAGE, TestHost, Worker, is_root, left_out};

/// One option line for each kind of controlled object, with a file where it needs one.
fn kinds(host: &TestHost, bytes: u64) -> Vec<(&'static str, String)> {
    let file = |name: &str| host.scratch().file(name, bytes).display().to_string();
    vec![
        ("anonymous", format!("size={bytes} controlled")),
        ("freezable", format!("size={bytes} freezable")),
        ("ordered", format!("file={} sync=ordered", file("ordered"))),
        ("atomic", format!("file={} sync=atomic", file("atomic"))),
        ("plain", format!("file={} controlled", file("plain"))),
    ]
}

/// A worker that has the object mapped as `m`, whole.
fn mapper(host: &TestHost, name: &str, access: &str) -> Worker {
    let worker = host.worker();
    worker.ok(&format!("open o {name} {access}"));
    worker.ok(&format!("map m o {access} shared 0 0"));
    worker
}

#[test]
fn what_one_process_writes_another_reads() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host, 8 * MIB) {
        let name = format!("/{kind}/x");
        let writer = host.worker();
        writer.ok(&format!("create o {name} mode=644 {options}"));
        writer.ok("map m o rw shared 0 0");
        let (reader, other) = (mapper(&host, &name, "r"), mapper(&host, &name, "rw"));
        // In order, behind the reader's back, and at single pages.
        writer.ok("fill m 0 1024 7");
        reader.ok("check m 0 1024 7");
        reader.ok("check m 1024 1024 0");
        other.ok("check m 0 1024 7");
        for page in [0, 1023, 1024, 2047, 500, 1500] {
            other.ok(&format!("fill m {page} 1 8"));
            reader.ok(&format!("check m {page} 1 8"));
            writer.ok(&format!("check m {page} 1 8"));
        }
        writer.ok("fill m 0 2048 9");
        reader.ok("check m 0 2048 9");
        assert_eq!(reader.ok("info o mappings"), "3", "{kind}");
    }
}

/// One fault shows what the reader comes to while it is shown: far more than the 512 pages that one
/// fault brings in.
#[test]
fn who_reads_in_order_what_is_in_memory_faults_seldom() {
    const PAGES: u64 = 65_536;
    let host = TestHost::start();
    let file = host.scratch().file("warm", PAGES * PAGE as u64).display().to_string();
    let first = host.worker();
    first
        .all(&format!("create o /warm file={file} sync=ordered\nmap m o rw shared 0 0\ncheck m 0 {PAGES} 0"));
    let second = mapper(&host, "/warm", "r");
    let before = host.status().faults;
    second.ok(&format!("check m 0 {PAGES} 0"));
    let faults = host.status().faults - before;
    assert!(faults < PAGES / 512 / 2, "{faults} faults");
}

#[test]
fn several_threads_fault_at_once() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host, 16 * MIB) {
        let worker = host.worker();
        worker.ok(&format!("create o /{kind} {options}"));
        worker.ok("map m o rw shared 0 0");
        // All at the same pages, then each at its own, then all read all.
        worker.ok("threads 8 check m 0 2048 0");
        worker.ok("threads 8 fill m 0 512 3");
        worker.ok("threads 4 fill m {}000 1000 5");
        worker.ok("threads 8 check m 0 4000 5");
    }
}

#[test]
fn readers_see_later_writes_and_cannot_write() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host, MIB) {
        let name = format!("/{kind}");
        let writer = host.worker();
        writer.ok(&format!("create o {name} mode=644 {options}"));
        writer.ok("map m o rw shared 0 0");
        let reader = mapper(&host, &name, "r");
        for seed in 1..6 {
            writer.ok(&format!("fill m 0 256 {seed}"));
            reader.ok(&format!("check m 0 256 {seed}"));
        }
        reader.refused("map n o rw shared 0 0", "Permission");
        // A private mapping of his own: nobody else sees what he writes there.
        reader.ok("map n o rw private 0 0");
        reader.ok("fill n 3 1 99");
        reader.ok("check n 3 1 99");
        writer.ok("check m 3 1 5");
        reader.ok("check m 3 1 5");
        reader.dies("put m 0 1", libc::SIGSEGV);
        writer.ok("check m 0 256 5");
    }
}

#[test]
fn the_kernel_reads_and_writes_missing_pages() {
    let host = TestHost::start();
    if !host.connect().kernel_faults().unwrap() {
        left_out("this host cannot serve the kernel's own accesses");
        return;
    }
    for (kind, options) in kinds(&host, 4 * MIB) {
        let writer = host.worker();
        writer.ok(&format!("create o /{kind} {options}"));
        writer.ok("map m o rw shared 0 0");
        let other = mapper(&host, &format!("/{kind}"), "rw");
        writer.ok("read-in m 0 300 4");
        other.ok("check m 0 300 4");
        // Out of pages that this process has never touched.
        other.ok("map n o rw shared 0 0");
        other.ok("write-out n 0 300 4");
        let file = host.scratch().file_of("source", &commonhold_tests::page::bytes(600, 100, 5));
        assert_eq!(writer.ok(&format!("read-file-in m 600 100 {}", file.display())), "409600");
        other.ok("write-out m 600 100 5");
        if kind != "anonymous" && kind != "freezable" {
            // What the kernel wrote is known to be newer than the file.
            assert_eq!(writer.ok("sync o 0 4194304"), "400", "{kind}");
        }
    }
}

#[test]
fn the_last_page_may_be_a_part_of_one() {
    let host = TestHost::start();
    let file = host.scratch().file_of("odd", &[7; 10_000]);
    for (name, sync) in [("/ordered", "ordered"), ("/atomic", "atomic")] {
        let worker = host.worker();
        worker.ok(&format!("create o {name} file={} sync={sync}", file.display()));
        worker.ok("map m o rw shared 0 0");
        assert_eq!(worker.ok("get m 9999"), "7");
        assert_eq!(worker.ok("get m 10000"), "0", "past the end of the file, in its last page");
        worker.ok("put m 9999 9");
        worker.ok("put m 10001 5");
        assert_eq!(worker.ok("sync o 0 10000"), "1");
        let content = std::fs::read(&file).unwrap();
        assert_eq!((content.len(), content[9999]), (10_000, 9));
        worker.ok("put m 9999 7");
        worker.ok("sync o 0 10000");
        worker.all("drop m\nclose o");
        worker.ok(&format!("remove {name}"));
    }
}

#[test]
fn parts_of_mappings_come_and_go() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host, 4 * MIB) {
        let worker = host.worker();
        worker.ok(&format!("create o /{kind} {options}"));
        worker.ok("map m o rw shared 0 0");
        worker.ok("fill m 0 1024 1");
        // A hole in the middle, then the ends.
        worker.ok("unmap m 1048576 1048576");
        worker.all("check m 0 256 1\ncheck m 512 512 1\nfill m 0 256 2\nfill m 512 512 2");
        worker.all("unmap m 0 4096\nunmap m 4190208 4096\ncheck m 1 255 2\ncheck m 512 511 2");
        // The same part again, elsewhere, beside it.
        worker.ok("map n o rw shared 1048576 1048576");
        worker.ok("map k o rw shared 0 0");
        worker.all("check k 1 255 2\ncheck k 256 256 1\ncheck k 512 511 2\nfill k 300 10 3");
        let other = mapper(&host, &format!("/{kind}"), "rw");
        other.ok("check m 300 10 3");
        let says = worker.refused("unmap m 100 4096", "Invalid");
        assert!(says.contains("not a multiple of the page size"), "{says}");
        worker.refused("unmap m 4190208 8192", "Invalid");
        worker.all("drop m\ncheck k 300 10 3\ncheck k 512 511 2");
    }
}

#[test]
fn many_mappings_of_one_object() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok(&format!("create o /many size={} controlled", 8 * MIB));
    let offsets: Vec<String> = (0..500).map(|n| (n * 16384).to_string()).collect();
    worker.ok(&format!("map-many o 16384 {}", offsets.join(" ")));
    worker.ok("map m o rw shared 0 0");
    for n in (0..500).step_by(17) {
        worker.ok(&format!("put many{n} 5 {}", n % 250));
        assert_eq!(worker.ok(&format!("get m {}", n * 16384 + 5)), (n % 250).to_string());
    }
    assert_eq!(worker.ok("info o mappings"), "501");
    // One of several cannot be made: none is.
    worker.refused("map-many o 16384 0 16384 8388608", "Invalid");
    assert_eq!(worker.ok("info o mappings"), "501");
}

#[test]
fn users_without_privilege_get_the_full_service() {
    if !is_root("a host for everybody") {
        return;
    }
    let host = TestHost::start();
    let nobody = host.worker_of(65534, 65534);
    nobody.ok("create o /nobody/x size=1048576 controlled mode=660");
    nobody.ok("map m o rw shared 0 0");
    nobody.all("fill m 0 100 1\nread-in m 100 50 2\nwrite-out m 0 100 1");
    let root = mapper(&host, "/nobody/x", "rw");
    root.all("check m 0 100 1\ncheck m 100 50 2\nfill m 200 10 3");
    nobody.ok("check m 200 10 3");
    let stranger = host.worker_of(65533, 65533);
    stranger.refused("open o /nobody/x r", "Permission");
    assert_eq!(nobody.ok("fork _exit check m 0 100 1"), "code 0");
    root.ok("chmod /nobody/x 664");
    stranger.ok("open o /nobody/x r");
    stranger.ok("map m o r shared 0 0");
    stranger.ok("check m 200 10 3");
    stranger.refused("open p /nobody/x rw", "Permission");
}

/// What was on its way into a mapping must not arrive in the next one at the same addresses.
#[test]
fn addresses_are_reused_at_once() {
    let host = TestHost::start();
    let worker = host.worker();
    for (name, seed) in [("a", 1), ("b", 2)] {
        let file = host.scratch().file_of(name, &commonhold_tests::page::bytes(0, 4096, seed));
        worker.ok(&format!("create {name} /{name} file={} sync=ordered budget=33554432", file.display()));
    }
    worker.ok("map m a rw shared 0 0");
    let address = worker.ok("address m");
    worker.ok("drop m");
    for round in 0..60 {
        let (name, seed) = [("a", 1), ("b", 2)][round % 2];
        // Out of memory again, so that all is brought in anew; then in order, so that much is brought in ahead.
        worker.ok(&format!("map m {name} rw shared 0 0 fixed={address}"));
        worker.ok(&format!("check m 0 {} {seed}", 40 + round * 7));
        worker.ok("drop m");
        let (other, seed) = [("b", 2), ("a", 1)][round % 2];
        worker.ok(&format!("map m {other} rw shared 0 0 fixed={address}"));
        worker.ok(&format!("check m 0 4096 {seed}"));
        worker.ok("drop m");
        worker.ok(&format!("touch-file {}", host.scratch().join(name).display()));
        worker.ok(&format!("touch-file {}", host.scratch().join(other).display()));
    }
}

#[test]
fn fork_children_see_the_same_object_and_their_writes_are_known() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host, MIB) {
        let worker = host.worker();
        worker.ok(&format!("create o /{kind} {options}"));
        worker.all("map m o rw shared 0 0\nfill m 0 64 1");
        assert_eq!(worker.ok("fork _exit check m 0 64 1"), "code 0", "{kind}");
        assert_eq!(worker.ok("fork _exit fill m 64 64 2"), "code 0", "{kind}");
        assert_eq!(worker.ok("fork exit fill m 128 64 3"), "code 0", "{kind}");
        worker.all("check m 64 64 2\ncheck m 128 64 3");
        if kind != "anonymous" && kind != "freezable" {
            let synced: u64 = worker.ok("sync o 0 1048576").parse().unwrap();
            assert!(synced >= 128, "{kind}: {synced} pages were known to be written");
            let file = std::fs::read(host.scratch().join(kind)).unwrap();
            assert_eq!(file[64 * 4096..128 * 4096], commonhold_tests::page::bytes(64, 64, 2)[..]);
            assert_eq!(file[128 * 4096..192 * 4096], commonhold_tests::page::bytes(128, 64, 3)[..]);
        }
        // A raw clone has no handlers: it gets a fault, never zeros.
        assert_eq!(worker.ok("raw-clone check m 0 1 1"), format!("signal {}", libc::SIGSEGV), "{kind}");
        worker.all("fill m 0 64 4\ncheck m 0 64 4");
        // A child that forks on, while its parent writes.
        assert_eq!(worker.ok("fork _exit fork _exit fill m 0 8 5"), "code 0");
        worker.all("check m 0 8 5\ncheck m 8 56 4");
        commonhold_tests::wait::until("the children's mappings go", || {
            (worker.ok("info o mappings") == "1").then_some(())
        });
    }
}

#[test]
fn a_child_outlives_its_parent() {
    let host = TestHost::start();
    let worker = host.worker();
    let file = host.scratch().file("file", MIB);
    worker.ok(&format!("create o /o file={} sync=atomic", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 64 1");
    let other = mapper(&host, "/o", "rw");
    worker.ok("orphan 400 fill m 64 64 2");
    worker.kill();
    commonhold_tests::wait::until("the child writes", || other.ask("check m 64 64 2").ok());
    let synced: u64 = other.ok("sync o 0 1048576").parse().unwrap();
    assert!(synced >= 128, "{synced}");
    let content = std::fs::read(&file).unwrap();
    assert_eq!(content[64 * 4096..128 * 4096], commonhold_tests::page::bytes(64, 64, 2)[..]);
}
