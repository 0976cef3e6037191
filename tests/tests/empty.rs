//! Objects without a byte, which grow: of every kind that takes nothing at creation.

use commonhold_tests::TestHost;
use commonhold_tests::cluster::cluster;

const KINDS: [&str; 4] = ["controlled", "freezable", "sync=ordered", "budget=1048576"];

#[test]
fn an_object_begins_empty_and_becomes_so_again() {
    let host = TestHost::start();
    for kind in KINDS {
        let (worker, other) = (host.worker(), host.worker());
        worker.ok(&format!("create o /o size=0 reserve=no {kind}"));
        assert_eq!(worker.ok("info o size"), "0", "{kind}");
        let said = worker.ask("map m o rw shared 0 0").expect_err("nothing to map").message;
        assert!(said.contains("past the 0 bytes"), "{kind}: {said}");
        other.ok("open o /o rw");
        for round in 1..=2 {
            worker.all(&format!("resize /o 16384\nmap m o rw shared 0 0\nfill m 0 4 {round}"));
            other.all(&format!("map m o rw shared 0 0\ncheck m 0 4 {round}"));
            // What a process has mapped and the object has not any more is SIGBUS, and nothing of it comes back.
            worker.ok("drop m");
            other.ok("drop m");
            worker.ok("resize /o 0");
            assert_eq!(other.ok("stat /o resident"), "0", "{kind}");
        }
        let before = host.status().host_pid;
        host.kill_host();
        host.wait_for_other_host(before);
        other.eventually("info o size");
        assert_eq!(other.ok("info o size"), "0", "{kind}");
        other.all("resize /o 4096\nmap m o rw shared 0 0");
        assert_eq!(other.ok("get m 0"), "0", "{kind}: what was cut off does not come back");
        other.all("drop m\nclose o\nremove /o");
    }
}

#[test]
fn what_has_a_file_is_made_empty_with_it() {
    let host = TestHost::start();
    for kind in ["", "controlled", "sync=ordered", "sync=atomic"] {
        let file = host.scratch().file("file", 16384);
        let (worker, other) = (host.worker(), host.worker());
        worker.ok(&format!("create o /o file={} {kind}", file.display()));
        worker.all("map m o rw shared 0 0\nfill m 0 4 1\nsync o 0 16384\ndrop m\nresize /o 0");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 0, "{kind}");
        worker.ok("close o");
        let before = host.status().host_pid;
        host.kill_both();
        host.start_again().unwrap();
        host.wait_for_other_host(before);
        other.ok("open o /o rw");
        assert_eq!(other.ok("info o size"), "0", "{kind}");
        other.all("resize /o 8192\nmap m o rw shared 0 0");
        assert_eq!(other.ok("get m 4096"), "0", "{kind}: what was cut off does not come back");
        other.all("fill m 0 2 2\nsync o 0 8192\ndrop m\nclose o\nremove /o");
        assert!(std::fs::read(&file).unwrap() == commonhold_tests::page::bytes(0, 2, 2), "{kind}");
    }
}

#[test]
fn what_has_space_taken_for_it_stays() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok("create o /o size=4096 controlled");
    let said = worker.refused("resize /o 0", "Invalid");
    assert!(said.contains("remove it instead"), "{said}");
    assert_eq!(worker.ok("info o size"), "4096");
    // Memory that the kernel maps by itself is given back.
    worker.all("create d /d size=4096\nresize /d 0");
    assert_eq!(worker.ok("info d size"), "0");
}

#[test]
fn so_does_one_that_hosts_share() {
    let hosts = cluster(2);
    for kind in ["explicit", "strict=error", "central=error"] {
        let (home, sharer) = (hosts[0].worker(), hosts[1].worker());
        home.ok(&format!("create o /o size=0 reserve=no {kind}"));
        sharer.ok("open o /o rw");
        assert_eq!(sharer.ok("info o size"), "0", "{kind}");
        for round in 1..=2 {
            sharer
                .all(&format!("resize /o 16384\nmap m o rw shared 0 0\nfill m 0 4 {round}\nsync o 0 16384"));
            home.all(&format!("map m o rw shared 0 0\ncheck m 0 4 {round}"));
            home.ok("drop m");
            sharer.ok("drop m");
            home.ok("resize /o 0");
            assert_eq!(sharer.ok("info o size"), "0", "{kind}");
        }
        home.ok("resize /o 4096");
        sharer.ok("map m o rw shared 0 0");
        assert_eq!(sharer.ok("get m 0"), "0", "{kind}: what was cut off does not come back");
        sharer.all("drop m\nclose o");
        home.all("close o\nremove /o");
    }
}

#[test]
fn clients_that_empty_it_and_fill_it_at_once_bring_nothing_back() {
    let host = TestHost::start();
    for kind in KINDS {
        let owner = host.worker();
        owner.ok(&format!("create o /o size=0 reserve=no {kind} mode=666"));
        std::thread::scope(|threads| {
            for number in 0..3 {
                let host = &host;
                threads.spawn(move || {
                    let mut worker = host.worker();
                    worker.ok("open o /o rw");
                    for round in 0..20 {
                        let size = if (round + number) % 3 == 0 { 0 } else { 4096 * (1 + round * 37 % 600) };
                        worker.ok(&format!("resize /o {size}"));
                        if size > 0 {
                            let bytes = "x".repeat(64);
                            let written = worker.ask(&format!("write-at o {} {bytes}", size / 2));
                            // Others make it shorter meanwhile: who writes then may end by SIGBUS.
                            if written.is_err_and(|why| why.kind == "Ended") {
                                worker = host.worker();
                                worker.ok("open o /o rw");
                            }
                        }
                    }
                });
            }
        });
        owner.all("resize /o 0\nresize /o 2457600\nmap m o rw shared 0 0");
        for page in 0..600 {
            assert_eq!(owner.ok(&format!("get m {}", page * 4096)), "0", "{kind}: page {page}");
        }
        let stat = ["resident", "spilled", "dirty"].map(|what| owner.ok(&format!("stat /o {what}")));
        owner.all("drop m\nresize /o 0");
        assert_eq!(owner.ok("stat /o resident"), "0", "{kind}: {stat:?} before");
        assert_eq!(owner.ok("stat /o spilled"), "0", "{kind}: {stat:?} before");
        owner.all("close o\nremove /o");
    }
}

#[test]
#[ignore = "write_at copies by itself: who makes the object shorter meanwhile ends the process that writes"]
fn who_writes_by_a_call_to_what_becomes_shorter_is_told_so() {
    let host = TestHost::start();
    let [writer, other] = [(); 2].map(|()| host.worker());
    writer.ok("create o /o size=0 reserve=no controlled");
    let write = format!("write-at o 0 {}", "x".repeat(100_000));
    for round in 0..500 {
        other.ok("resize /o 409600");
        writer.send(&write);
        std::thread::sleep(std::time::Duration::from_micros(100 * (round % 30)));
        other.ok("resize /o 0");
        assert!(!writer.answer().is_err_and(|why| why.kind == "Ended"), "the writer ended by a signal");
    }
}
