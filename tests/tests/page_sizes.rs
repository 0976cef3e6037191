//! Strict objects in pages of any size, on hosts with pages of any size: several scheduler pages to one of a host's, and
//! the other way round.

use commonhold::ObjectCounts;
use commonhold_tests::cluster::{cluster_where, free_address, sharers_of};
use commonhold_tests::{MIB, TestHost, Worker, wait};

const KIB: u64 = 1024;
const PAGE: u64 = commonhold_tests::PAGE as u64;

/// Hosts of one cluster with pages of these sizes, in KiB; the first keeps the list.
fn cluster(sizes_kib: &[u64], more: &[&str]) -> Vec<TestHost> {
    cluster_with(sizes_kib, more, &[])
}

/// The same, with more words for the first host, and for all.
fn cluster_with(sizes_kib: &[u64], first: &[&str], all: &[&str]) -> Vec<TestHost> {
    cluster_where(sizes_kib.len(), |number| {
        let size = format!("{}KiB", sizes_kib[number]);
        let mut words = vec!["--page-size", &size];
        words.extend(if number == 0 { first } else { &[] });
        words.extend(all);
        words.into_iter().map(str::to_owned).collect()
    })
}

/// Workers on all hosts, each with the object mapped as `m`; the first made it, in pages of so many KiB.
fn sharers(hosts: &[TestHost], name: &str, page_kib: u64, options: &str) -> Vec<Worker> {
    sharers_of(hosts, name, &format!("page-size={} {options}", page_kib * KIB))
}

/// Every host adds to a page of its own and to one that all have, all of them neighbours: none may be lost, whichever of
/// the hosts looks. Then each writes a part of an object that ends within a page, and all read all of it.
fn share(hosts: &[TestHost], page_kib: u64, scheduler: &str) {
    let name = format!("/{scheduler}{page_kib}");
    // A part of a page of every size, and of one of 4 KiB.
    let pages = 5 * MIB / PAGE + 4;
    let size = pages * PAGE - 1000;
    let workers = sharers(hosts, &name, page_kib, &format!("size={size} {scheduler}"));
    let count = workers.len() as u64;
    assert_eq!(workers[count as usize - 1].ok("info o page-size"), (page_kib * KIB).to_string());
    const TIMES: u64 = 60;
    for first in [0, pages - count - 1] {
        for (number, worker) in workers.iter().enumerate() {
            let own = first + number as u64;
            worker.send(&format!("add m {own} 1 {TIMES}"));
            worker.send(&format!("add m {} 1 {TIMES}", first + count));
        }
        for worker in &workers {
            worker.answer().expect("it adds");
            worker.answer().expect("it adds");
        }
        for worker in &workers {
            for number in 0..count {
                assert_eq!(worker.ok(&format!("sum m {} 1", first + number)), TIMES.to_string(), "{name}");
            }
            assert_eq!(
                worker.ok(&format!("sum m {} 1", first + count)),
                (TIMES * count).to_string(),
                "{name}"
            );
        }
    }
    // Parts that begin and end within pages of the scheduler. What is past the end, in the last one, is nobody's.
    let (whole, part) = (pages - 1, pages / count);
    let parts = || {
        (0..count)
            .map(|number| (number * part, if number + 1 == count { whole - number * part } else { part }))
    };
    for (number, (first, count)) in parts().enumerate() {
        workers[number].ok(&format!("fill m {first} {count} {}", number + 1));
    }
    for worker in &workers {
        for (number, (first, count)) in parts().enumerate() {
            worker.ok(&format!("check m {first} {count} {}", number + 1));
        }
        worker.all("drop m\nclose o");
    }
    workers[0].ok(&format!("remove {name}"));
}

#[test]
fn nothing_is_lost_among_hosts_with_pages_of_4_and_64_kib() {
    let hosts = cluster(&[4, 64, 4], &[]);
    [4, 16, 64, 2048].into_iter().for_each(|page| share(&hosts, page, "central"));
}

#[test]
fn nothing_is_lost_where_the_home_has_the_larger_pages() {
    let hosts = cluster(&[64, 4, 64], &[]);
    [4, 16, 64, 2048].into_iter().for_each(|page| share(&hosts, page, "central"));
}

#[test]
fn nothing_is_lost_between_the_largest_pages_and_others() {
    let hosts = cluster(&[2048, 16], &[]);
    [4, 2048].into_iter().for_each(|page| share(&hosts, page, "central"));
}

#[test]
fn nothing_is_lost_by_forwarding() {
    let hosts = cluster(&[4, 16, 4], &[]);
    [16, 64, 2048].into_iter().for_each(|page| share(&hosts, page, "forwarding"));
}

/// Messages of a name between hosts that were sent and received, and bytes of pages that came.
fn seen(host: &TestHost, name: &str, message: &str) -> (u64, u64, u64) {
    let counts: ObjectCounts = host.connect().counts(name, 16).unwrap().objects.remove(0);
    let of = counts.messages.iter().find(|m| m.name == message);
    (of.map_or(0, |m| m.sent), of.map_or(0, |m| m.received), counts.counts.bytes_received)
}

#[test]
fn smaller_requests_are_rounded_up_and_larger_ones_met_by_several_pages_at_once() {
    let hosts = cluster(&[4, 64], &[]);
    for (page_kib, reader) in [(64, 0), (4, 1)] {
        let name = format!("/in{page_kib}");
        let workers = sharers(&hosts, &name, page_kib, &format!("size={MIB} central"));
        // The home is always the first: it is the other that reads from it, or it that reads back.
        let (writer, asker) = (&workers[1 - reader], &workers[reader]);
        writer.ok("fill m 0 64 1");
        let before = seen(&hosts[reader], &name, if reader == 0 { "recall" } else { "request" });
        asker.ok("check m 21 1 1");
        asker.ok("check m 18 1 1");
        asker.ok("check m 28 4 1");
        let after = seen(&hosts[reader], &name, if reader == 0 { "recall" } else { "request" });
        assert_eq!(after.0 - before.0, 1, "one question for {page_kib} KiB");
        assert_eq!(after.2 - before.2, 64 * KIB, "all of it came");
        let counts = hosts[0].connect().counts(&name, 64).unwrap().objects.remove(0);
        let wrong = counts.pages.iter().find(|page| !(page.page * PAGE).is_multiple_of(page_kib * KIB));
        assert_eq!(wrong, None, "a page is called by its first 4 KiB");
        assert!(!counts.pages.is_empty() && counts.pages.iter().all(|page| page.page * PAGE < MIB));
    }
}

/// What a larger page of a host has lost a part of, no process of it may use, and none of it is lost.
#[test]
fn a_larger_page_is_taken_as_a_whole_and_its_other_parts_are_not_lost() {
    for sizes in [[4, 64], [64, 4]] {
        let hosts = cluster(&sizes, &[]);
        let workers = sharers(&hosts, "/x", 4, &format!("size={MIB} central"));
        let (large, small) = if sizes[0] == 64 { (0, 1) } else { (1, 0) };
        workers[large].ok("fill m 32 16 1");
        assert_eq!(workers[large].ok("incore o 131072 65536"), "D".repeat(16));
        workers[small].ok("fill m 40 1 2");
        assert_eq!(workers[large].ok("incore o 131072 65536"), "A".repeat(16), "no part of it may be used");
        // Its parts are asked for one after the other, by who has smaller pages...
        workers[small].ok("check m 32 3 1");
        // ... and all at once, by who has not.
        workers[large].all("check m 32 8 1\ncheck m 40 1 2\ncheck m 41 7 1\nfill m 47 1 3");
        workers[small].all("check m 32 8 1\ncheck m 40 1 2\ncheck m 41 6 1\ncheck m 47 1 3");
    }
}

#[test]
fn larger_pages_are_given_up_when_memory_is_short() {
    let hosts = cluster_with(&[16, 4, 64], &[], &["--budget", "8MiB"]);
    for page_kib in [16, 512] {
        let workers =
            sharers(&hosts, &format!("/of{page_kib}"), page_kib, &format!("size={} central", 16 * MIB));
        const PART: u64 = 1300;
        let parts = || (0..3).map(|number| format!("{} {PART} {}", number * PART, number + 1));
        workers.iter().zip(parts()).for_each(|(worker, part)| drop(worker.ok(&format!("fill m {part}"))));
        for worker in &workers {
            parts().for_each(|part| drop(worker.ok(&format!("check m {part}"))));
        }
        workers.iter().for_each(|worker| worker.all("drop m\nclose o"));
    }
}

#[test]
fn a_sync_stores_the_last_page_too() {
    let hosts = cluster(&[4, 64, 4], &[]);
    for page_kib in [16, 2048] {
        let size = MIB + 5 * PAGE;
        let file = hosts[0].scratch().file(&format!("stored{page_kib}"), size);
        let options = format!("file={} sync=atomic central", file.display());
        let workers = sharers(&hosts, &format!("/stored{page_kib}"), page_kib, &options);
        workers[1].ok("fill m 0 100 1");
        workers[2].ok("fill m 100 161 2");
        assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 0));
        workers[2].ok(&format!("sync o 0 {size}"));
        let stored = std::fs::read(&file).unwrap();
        assert_eq!(stored.len() as u64, size);
        assert_eq!(stored[..100 * PAGE as usize], commonhold_tests::page::bytes(0, 100, 1));
        assert_eq!(stored[100 * PAGE as usize..], commonhold_tests::page::bytes(100, 161, 2));
    }
}

/// What a lost host had newest is an error as far as its pages went, until somebody reverts it.
#[test]
fn a_loss_takes_whole_pages() {
    let hosts = cluster(&[4, 4, 64], &["--lease", "2"]);
    let workers = sharers(&hosts, "/shared", 16, &format!("size={MIB} central"));
    workers[0].ok("fill m 0 256 1");
    workers[2].all("check m 0 256 1\nfill m 64 1 3");
    hosts[2].kill_both();
    // 64 KiB are one page of the host that is lost: four of the scheduler's.
    workers[1].all("check m 0 64 1\ncheck m 80 176 1");
    for page in [64, 79] {
        let doomed = hosts[1].worker();
        doomed.all("open o /shared r\nmap m o r shared 0 0");
        doomed.dies(&format!("get m {}", page * PAGE), libc::SIGBUS);
    }
    assert_eq!(workers[0].ok("revert /shared"), "16", "counted in pages of 4 KiB");
    workers[1].ok("check m 0 256 1");
    workers[0].ok("check m 0 256 1");
}

/// A page of a host of which a part is lost cannot be used there; on hosts with smaller ones the rest can.
#[test]
fn what_is_lost_of_a_larger_page_keeps_all_of_it_from_being_used() {
    let hosts = cluster(&[4, 64, 4], &["--lease", "2"]);
    let workers = sharers(&hosts, "/shared", 4, &format!("size={MIB} central"));
    workers[0].ok("fill m 0 256 1");
    workers[2].ok("fill m 70 1 3");
    hosts[2].kill_both();
    workers[0].all("check m 64 6 1\ncheck m 71 9 1");
    workers[1].all("check m 0 64 1\ncheck m 80 10 1");
    let doomed = hosts[1].worker();
    doomed.all("open o /shared r\nmap m o r shared 0 0");
    doomed.dies(&format!("get m {}", 65 * PAGE), libc::SIGBUS);
    assert_eq!(workers[0].ok("revert /shared"), "1");
    workers[1].ok("check m 0 256 1");
}

/// The home's process dies: the next knows which pages were lent, has them given back whole, and asks for no other.
#[test]
fn a_home_that_begins_anew_has_larger_pages_given_back_whole() {
    for home_kib in [4, 64] {
        let hosts = cluster(&[home_kib, 4], &[]);
        let workers = sharers(&hosts, "/shared", 16, &format!("size={MIB} central=revert"));
        workers[0].ok("fill m 0 256 1");
        workers[1].all("check m 0 256 1\nfill m 50 1 3");
        hosts[0].kill_host();
        workers[0].all("check m 0 50 1\ncheck m 50 1 3\ncheck m 51 205 1");
        workers[1].all("check m 50 1 3\ncheck m 51 205 1\nfill m 70 1 4");
        workers[0].all("check m 70 1 4\ncheck m 71 1 1");
        // The same when the process of the host that has them dies.
        hosts[1].kill_host();
        workers[0].all("check m 70 1 4\ncheck m 50 1 3\ncheck m 71 180 1");
    }
}

#[test]
fn a_host_with_larger_pages_takes_no_part_in_forwarding() {
    let hosts = cluster(&[4, 64], &[]);
    let (small, large) = (hosts[0].worker(), hosts[1].worker());
    small.ok(&format!("create o /small size={MIB} forwarding page-size=16384"));
    let why = large.refused("create x /large size=65536 forwarding page-size=16384", "Unsupported");
    assert!(why.contains("64 KiB") && why.contains("16 KiB") && why.contains("--page-size 65536"), "{why}");
    wait::until("it finds the object, and says why not", || {
        large.ask("open o /small r").err().filter(|refused| refused.kind == "Unsupported")
    });
    // Nobody waits for it then.
    small.all("close o\nremove /small");
    wait::until("it is gone", || (hosts[0].status().objects == 0).then_some(()));
    large.ok("create o /large size=65536 forwarding page-size=65536");
    small.eventually("open o /large rw");
}

#[test]
fn bad_page_sizes_are_refused() {
    let hosts = cluster(&[4], &[]);
    let create = |size: &str, more: &[&str]| {
        let words = ["create", "/x", "--size", "4MiB", "--page-size", size];
        hosts[0].command(&[&words, more].concat(), |_| ())
    };
    let strict = ["--coherence", "strict"];
    for size in ["0", "1", "4095", "5000", "12KiB", "4MiB", "1TiB", "-4096", "x", ""] {
        let why = create(size, &strict).unwrap_err();
        assert!(why.contains("--page-size"), "{size}: {why}");
    }
    let why = create("12KiB", &strict).unwrap_err();
    assert!(why.contains("12288 bytes") && why.contains("power of two from 4096"), "{why}");
    for coherence in ["local", "explicit"] {
        let why = create("8KiB", &["--coherence", coherence]).unwrap_err();
        assert!(why.contains("8 KiB") && why.contains("strict"), "{why}");
        create("4KiB", &["--coherence", coherence]).unwrap();
        hosts[0].command(&["rm", "/x"], |_| ()).unwrap();
    }
    let why = create("2MiB", &["--coherence", "strict", "--budget", "3MiB"]).unwrap_err();
    assert!(why.contains("two pages of 2 MiB"), "{why}");
    create("2MiB", &strict).unwrap();
    assert!(hosts[0].command(&["stat", "/x"], |_| ()).unwrap().contains("2 MiB"));
    let json = hosts[0].command(&["stat", "/x", "--json"], |_| ()).unwrap();
    assert!(json.contains("\"page_size\":2097152") || json.contains("\"page_size\": 2097152"), "{json}");
}

#[test]
fn bad_page_sizes_of_hosts_are_refused() {
    let host = TestHost::not_started(commonhold_tests::Scratch::new(), "unused".into(), &[], &[]);
    let start = |more: &[&str]| {
        let scratch = commonhold_tests::Scratch::new();
        host.command(&["host", "start", "--state"], |command| {
            command.arg(scratch.join("state")).args(more);
        })
    };
    let address = free_address();
    for size in ["0", "2KiB", "65535", "12KiB", "4MiB", "-1", "page"] {
        let why = start(&["--plain", "--listen", &address, "--page-size", size]).unwrap_err();
        assert!(why.contains("--page-size"), "{size}: {why}");
    }
    let why = start(&["--page-size", "64KiB"]).unwrap_err();
    assert!(why.contains("--listen"), "{why}");
}

/// The largest pages are many records of an encrypted connection.
#[test]
fn the_largest_pages_go_by_encrypted_connections() {
    let authority = commonhold_tests::Scratch::new();
    let (dir, list) = (authority.join("ca").display().to_string(), free_address());
    let unused = TestHost::not_started(commonhold_tests::Scratch::new(), "unused".into(), &[], &[]);
    let ca = |words: &[&str]| unused.command(&[&["ca"], words, &["--dir", &dir]].concat(), |_| ()).unwrap();
    ca(&["init"]);
    let hosts: Vec<TestHost> = [("a", list.clone()), ("b", free_address())]
        .iter()
        .map(|(name, address)| {
            let identity = authority.join(name).display().to_string();
            ca(&["issue", name, "--into", &identity]);
            let mut words = vec!["--listen", address, "--name", name, "--identity", &identity];
            words.extend(["--page-size", if *name == "a" { "4KiB" } else { "2MiB" }]);
            words.extend(if *name == "a" { vec![] } else { vec!["--join", &list] });
            TestHost::with(&words)
        })
        .collect();
    [4, 2048].into_iter().for_each(|page| share(&hosts, page, "central"));
}

/// A host that is started again with larger pages cannot go on with what it scheduled by forwarding in smaller ones.
#[test]
fn a_home_started_again_with_larger_pages_says_what_it_cannot_do() {
    let scratch = commonhold_tests::Scratch::new();
    let state = scratch.join("state");
    let file = scratch.file("forwarded", MIB);
    let address = free_address();
    let start = |size: &str| {
        let words = ["--plain", "--listen", &address, "--name", "a", "--page-size", size];
        TestHost::at(commonhold_tests::Scratch::new(), state.clone(), &words)
    };
    for (size, fits) in [("4KiB", true), ("64KiB", false), ("16KiB", true)] {
        let host = start(size);
        let worker = host.worker();
        if size == "4KiB" {
            let options = format!("file={} forwarding page-size=16384", file.display());
            worker.eventually(&format!("create o /x {options}"));
            worker.all("map m o rw shared 0 0\nfill m 0 256 1");
            worker.ok(&format!("sync o 0 {MIB}"));
        } else if fits {
            worker.eventually("open o /x rw");
            worker.all("map m o rw shared 0 0\ncheck m 0 256 1");
        } else {
            let why = worker.refused("open o /x rw", "Unsupported");
            assert!(why.contains("64 KiB") && why.contains("16 KiB"), "{why}");
        }
        drop(worker);
        host.command(&["host", "stop", "--force"], |_| ()).unwrap();
    }
}
