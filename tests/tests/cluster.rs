//! Objects that hosts share: one writer or many readers, wherever they are.

use commonhold_tests::cluster::{cluster, cluster_with, free_address, secure_cluster, sharers, sharers_of};
use commonhold_tests::cut::cut_connections;
use commonhold_tests::{MIB, Scratch, TestHost, Worker, is_root, page, wait};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn what_one_host_writes_another_reads() {
    let hosts = cluster(3);
    let (a, b, c) = (hosts[0].worker(), hosts[1].worker(), hosts[2].worker());
    a.ok(&format!("create o /shared size={MIB} strict"));
    a.all("map m o rw shared 0 0\nfill m 0 256 1");
    b.eventually("open o /shared rw");
    b.all("map m o rw shared 0 0\ncheck m 0 256 1\nfill m 0 128 2");
    a.all("check m 0 128 2\ncheck m 128 128 1\nfill m 0 1 3");
    c.eventually("open o /shared r");
    c.all("map m o r shared 0 0\ncheck m 0 1 3\ncheck m 1 127 2\ncheck m 128 128 1");
    b.all("check m 0 1 3\nfill m 200 56 4");
    a.ok("check m 200 56 4");
    c.ok("check m 200 56 4");
}

#[test]
fn no_increment_is_lost() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, MIB, "strict");
    const TIMES: u64 = 300;
    for pages in [1, 3, 16] {
        let sum = |worker: &Worker| worker.ok(&format!("sum m 0 {pages}")).parse::<u64>().unwrap();
        let before = sum(&workers[0]);
        workers.iter().for_each(|worker| worker.send(&format!("add m 0 {pages} {TIMES}")));
        workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
        for worker in &workers {
            assert_eq!(sum(worker), before + 3 * TIMES);
        }
    }
}

/// Connections between the hosts are cut again and again, at any byte, while all add to the same pages.
#[test]
fn cut_connections_cost_no_increment() {
    if !is_root("cutting connections of other processes") {
        return;
    }
    let hosts = cluster(3);
    let pids: Vec<u32> = hosts.iter().map(|host| host.status().host_pid).collect();
    for (name, options) in [("/central", "size=65536 central"), ("/forwarded", "size=65536 forwarding")] {
        let workers = sharers_of(&hosts, name, options);
        let (over, cuts) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut times = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for pid in pids.iter().cycle() {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    cuts.fetch_add(cut_connections(*pid), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(25));
                }
            });
            // Ends the cutting also where a check fails.
            let _over = SetOnDrop(&over);
            while cuts.load(Ordering::Relaxed) < 100 {
                times += 20;
                workers.iter().for_each(|worker| worker.send("add m 0 5 20"));
                workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
            }
        });
        for worker in &workers {
            assert_eq!(worker.ok("sum m 0 5"), (3 * times).to_string(), "{name}");
        }
    }
    for (host, pid) in hosts.iter().zip(&pids) {
        assert_eq!(host.status().host_pid, *pid);
        let log = host.log();
        assert!(log.contains("trying again") && !log.contains("may be lost"), "{log}");
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn more_pages_than_memory() {
    let hosts = cluster_with(3, &["--budget", "4194304"]);
    let workers = sharers(&hosts, 16 * MIB, "strict");
    const PART: u64 = 1300;
    let parts = || (0..3).map(|number| format!("{} {PART} {}", number * PART, number + 1));
    workers.iter().zip(parts()).for_each(|(worker, part)| drop(worker.ok(&format!("fill m {part}"))));
    for worker in &workers {
        parts().for_each(|part| drop(worker.ok(&format!("check m {part}"))));
    }
    let other = sharers_of(&hosts, "/sums", &format!("size={} strict", 16 * MIB));
    for (first, pages) in [(0, 1200), (600, 1100)] {
        other.iter().for_each(|worker| worker.send(&format!("add m {first} {pages} {pages}")));
        other.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
    }
    for worker in &other {
        assert_eq!(worker.ok("sum m 0 4096"), (3 * 2300).to_string());
    }
}

#[test]
fn a_sync_stores_what_other_hosts_wrote() {
    let hosts = cluster(3);
    for sync in ["atomic", "ordered"] {
        let file = hosts[0].scratch().file(sync, MIB);
        let workers =
            sharers_of(&hosts, &format!("/{sync}"), &format!("file={} sync={sync} strict", file.display()));
        workers[1].ok("fill m 0 100 1");
        workers[2].ok("fill m 100 100 2");
        workers[0].ok("fill m 200 56 3");
        assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 0), "{sync}");
        workers[2].ok("sync o 0 409600");
        let stored = std::fs::read(&file).unwrap();
        assert!(stored[..100 * 4096] == page::bytes(0, 100, 1), "{sync}");
        assert!(stored[100 * 4096..].iter().all(|byte| *byte == 0), "{sync}: not asked for");
        workers[1].ok(&format!("sync o 0 {MIB}"));
        let stored = std::fs::read(&file).unwrap();
        assert!(stored[100 * 4096..200 * 4096] == page::bytes(100, 100, 2), "{sync}");
        assert!(stored[200 * 4096..] == page::bytes(200, 56, 3), "{sync}");
    }
}

#[test]
fn a_page_whose_newest_version_died_with_its_host_is_an_error_and_the_others_go_on() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, MIB, "strict");
    workers[0].ok("fill m 0 256 1");
    workers[1].ok("fill m 10 5 2");
    workers[2].ok("check m 100 10 1"); // far from there: a reader is sent what comes next, too
    let before = workers[0].ok("info o generation");
    hosts[1].kill_both();
    workers[2].ok("check m 20 200 1");
    let doomed = hosts[2].worker();
    doomed.all("open o /shared r\nmap m o r shared 0 0");
    doomed.dies("get m 45056", libc::SIGBUS);
    workers[0].all("check m 15 241 1\nfill m 100 3 4");
    workers[2].ok("check m 100 3 4");
    // The object says which, at its home and elsewhere.
    let teller = hosts[0].worker();
    teller.ok("open o /shared r");
    for worker in [&teller, &workers[2]] {
        let states = worker.ok("incore o 0 1048576");
        let lost: Vec<usize> = states.match_indices('L').map(|(page, _)| page).collect();
        assert_eq!(lost, [10, 11, 12, 13, 14], "{states}");
        assert_eq!(worker.ok("info o losses"), "5 0");
        assert_ne!(worker.ok("info o generation"), before, "who maps it can learn that pages are lost");
        let warning = worker.ok("info o warning");
        assert!(warning.contains("newest versions of 5 pages were lost"), "{warning}");
    }
    // Also for who wrote the page at its home before it went: protection left a marker there.
    workers[0].dies("put m 40960 1", libc::SIGBUS);
    let lost = teller.ok("info o generation");
    assert_eq!(teller.ok("revert /shared"), "5");
    workers[2].ok("check m 10 5 1");
    for worker in [&teller, &workers[2]] {
        assert!(!worker.ok("incore o 0 1048576").contains('L'));
        assert_eq!(worker.ok("info o losses"), "0 5");
        assert_ne!(worker.ok("info o generation"), lost, "who maps it can learn that it went back");
        assert_eq!(worker.ok("info o warning"), "", "nothing is lost any more");
    }
}

/// What could not be had is told as long as it cannot: here a home that is away, for longer than the object's deadline.
#[test]
fn a_warning_goes_with_its_cause() {
    let hosts = cluster(2);
    let file = hosts[0].scratch().file("kept", MIB);
    let how = format!("file={} sync=ordered strict fault-deadline=500", file.display());
    let workers = sharers_of(&hosts, "/kept", &how);
    workers[0].all("fill m 0 4 1\nsync o 0 16384");
    workers[1].ok("check m 0 4 1");
    assert_eq!(workers[1].ok("stat /kept home"), "host0 elsewhere");
    assert_eq!(
        (workers[1].ok("info o home"), workers[0].ok("info o home")),
        ("host0 elsewhere".into(), "host0".into())
    );
    assert_eq!(workers[1].ok("info o warning"), "");
    let doomed = hosts[1].worker();
    doomed.all("open o /kept r\nmap m o r shared 0 0");
    hosts[0].kill_both();
    doomed.dies("get m 409600", libc::SIGBUS);
    let warning = workers[1].ok("info o warning");
    assert!(warning.contains("page 100 waited for 500 ms, its fault deadline"), "{warning}");
    hosts[0].start_again().expect("the home starts again");
    workers[1].eventually("sync o 0 4096");
    assert_eq!(workers[1].ok("info o warning"), "");
}

/// The process of a host that is not the home dies; its keeper starts the next.
#[test]
fn a_host_process_that_dies_keeps_nobody_from_going_on() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, MIB, "strict");
    workers[0].ok("fill m 0 256 1");
    workers[1].ok("check m 0 256 1");
    workers[2].ok("fill m 50 10 3");
    hosts[1].kill_host();
    workers[2].all("check m 0 50 1\ncheck m 50 10 3\nfill m 70 5 4");
    // Its own processes go on, with what the others have.
    workers[1].all("check m 0 50 1\ncheck m 50 10 3\ncheck m 70 5 4\nfill m 100 1 5");
    workers[0].all("check m 100 1 5\ncheck m 75 25 1");
}

/// The process of the home dies: what it had lent comes back to the next.
#[test]
fn a_home_whose_process_dies_is_found_again() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, MIB, "strict");
    workers[0].ok("fill m 0 256 1");
    workers[1].ok("check m 0 256 1");
    workers[2].ok("fill m 50 10 3");
    hosts[0].kill_host();
    workers[1].all("check m 0 50 1\ncheck m 60 196 1\nfill m 70 5 4");
    workers[0].all("check m 0 50 1\ncheck m 70 5 4\ncheck m 50 10 3");
    let late = hosts[1].worker();
    late.eventually("open o /shared r");
    late.all("map m o r shared 0 0\ncheck m 50 10 3");
    assert_eq!(workers[0].ok("revert /shared"), "0");
    workers[2].all("check m 50 10 3\ncheck m 70 5 4\nfill m 50 1 5");
    workers[1].all("check m 50 1 5\ncheck m 51 9 3");
}

#[test]
fn a_page_of_an_object_that_reverts_is_the_one_before() {
    let hosts = cluster(2);
    let workers = sharers(&hosts, MIB, "strict=revert");
    workers[0].ok("fill m 0 256 1");
    workers[1].ok("fill m 10 5 2");
    assert_eq!(workers[0].ok("info o losses"), "0 0");
    hosts[1].kill_both();
    workers[0].ok("check m 0 256 1");
    assert_eq!(workers[0].ok("info o losses"), "0 5");
    assert_ne!(workers[0].ok("info o generation"), "0");
}

#[test]
fn names_belong_to_the_whole_cluster() {
    let hosts = cluster(3);
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[1].eventually("create o /lab/x size=4096 strict");
    workers[1].all("map m o rw shared 0 0\nfill m 0 1 1");
    workers[2].refused("create o /lab/x size=4096 strict", "Exists");
    workers[0].refused("create o /lab/x size=4096 strict", "Exists");
    workers[2].ok("create l /lab/local size=4096");
    // A local object's name is seen from other hosts; it is mapped on its own alone.
    let why = workers[0].refused("open l /lab/local r", "Unsupported");
    assert!(
        why.contains("/lab/local is local to host2: use it there, or create it with --coherence strict"),
        "{why}"
    );
    for (worker, local, shared) in [
        (&workers[0], "host2 elsewhere", "host1 elsewhere"),
        (&workers[1], "host2 elsewhere", "host1"),
        (&workers[2], "host2", "host1 elsewhere"),
    ] {
        assert_eq!(worker.ok("list /lab"), "/lab/local /lab/x");
        assert_eq!(worker.ok("list /"), "/lab");
        assert_eq!(
            (worker.ok("stat /lab/local home").as_str(), worker.ok("stat /lab/x home").as_str()),
            (local, shared)
        );
    }
    workers[0].refused("stat /lab/none size", "NotFound");
    workers[0].refused("list /none", "NotFound");
    workers[2].all("open o /lab/x r\nmap m o r shared 0 0\ncheck m 0 1 1\ndrop m\nclose o");
    workers[1].ok("rename /lab/x /lab/y");
    workers[2].refused("open o /lab/x r", "NotFound");
    workers[2].all("open o /lab/y rw\nmap m o rw shared 0 0\ncheck m 0 1 1\nfill m 0 1 2\ndrop m\nclose o");
    // What was newest there came home when the last one closed it: the next waits for that.
    workers[2].all("open o /lab/y r\nclose o");
    hosts[2].kill_both();
    workers[1].ok("check m 0 1 2");
    workers[1].ok("remove /lab/y");
    workers[0].refused("open o /lab/y r", "NotFound");
    workers[0].ok("create o /lab/y size=8192 strict");
    // Removed while it is used elsewhere: it lives until it is not.
    workers[1].all("open y /lab/y rw\nmap y y rw shared 0 0\nfill y 0 2 5");
    workers[0].all("close o\nremove /lab/y");
    workers[1].all("check y 0 2 5\nfill y 0 2 6");
    let objects = || hosts[0].status().objects;
    assert_eq!(objects(), 1);
    workers[1].all("drop y\nclose y");
    wait::until("it is gone", || (objects() == 0).then_some(()));
}

#[test]
fn a_user_has_the_rights_that_the_home_gives() {
    let hosts = cluster(2);
    let owner = hosts[0].worker_of(1001, 1001);
    owner.ok("create o /mine size=4096 strict mode=640");
    let (same, group, other) =
        (hosts[1].worker_of(1001, 1001), hosts[1].worker_of(1002, 1001), hosts[1].worker_of(1003, 1003));
    same.eventually("open o /mine rw");
    group.ok("open o /mine r");
    group.refused("open o /mine rw", "Permission");
    other.refused("open o /mine r", "Permission");
    // What may not be looked into is not seen from elsewhere either.
    owner.all("create a /own/a size=4096 mode=600\nchmod /own 700");
    assert_eq!(
        (same.ok("list /own"), same.ok("stat /own/a home")),
        ("/own/a".into(), "host0 elsewhere".into())
    );
    other.refused("stat /own/a home", "Permission");
    other.refused("open a /own/a r", "NotFound");
    assert_eq!(other.ask("list /own").unwrap_err().kind, "NotFound");
}

#[test]
fn hosts_with_certificates_share_and_one_for_reading_changes_nothing() {
    let authority = Scratch::new();
    let hosts = secure_cluster(&authority, 3);
    let (home, writer, reader) = (hosts[0].worker(), hosts[1].worker(), hosts[2].worker());
    home.all(&format!("create o /shared size={MIB} central\nmap m o rw shared 0 0\nfill m 0 256 1"));
    writer.eventually("open o /shared rw");
    writer.all("map m o rw shared 0 0\nfill m 0 10 2");
    reader.eventually("open o /shared r");
    reader.all("map m o r shared 0 0\ncheck m 0 10 2\ncheck m 10 246 1");
    reader.refused("open w /shared rw", "Permission");
    reader.refused("create w /another size=4096 strict", "Permission");
    let names: Vec<String> = hosts[2].connect().hosts().unwrap().into_iter().map(|host| host.name).collect();
    assert_eq!(names, ["host0", "host1", "host2"]);
}

/// Of another authority, or without a certificate: nobody speaks with it.
#[test]
fn strangers_stay_outside() {
    let (ours, theirs) = (Scratch::new(), Scratch::new());
    let hosts = secure_cluster(&ours, 2);
    let stranger = secure_cluster(&theirs, 1);
    let list = hosts[0].connect().hosts().unwrap()[0].address.to_string();
    let identity = theirs.join("host0").display().to_string();
    drop(stranger);
    let own = [free_address(), free_address()];
    let name = ["--name", "host0", "--join", &list];
    let foreign = TestHost::with(&[&["--listen", &own[0], "--identity", &identity], &name[..]].concat());
    let plain = TestHost::with(&[&["--listen", &own[1], "--plain"], &name[..]].concat());
    hosts[0].worker().ok("create o /shared size=4096 strict");
    for outsider in [foreign, plain] {
        wait::until("it tries", || outsider.log().contains("joining the cluster").then_some(()));
        outsider.worker().refused("open o /shared r", "Disconnected");
    }
    assert_eq!(hosts[1].connect().hosts().unwrap().len(), 2);
}
