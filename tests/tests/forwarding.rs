//! Objects that hosts share under forwarding: whoever has a page is found, and nobody needs the home for it.

use commonhold_tests::cluster::{brief_cluster, cluster, sharers, sharers_of};
use commonhold_tests::{MIB, PAGE, Worker, page};

#[test]
fn what_is_forwarded_has_one_writer_or_many_readers() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, MIB, "forwarding");
    workers[0].ok("fill m 0 256 1");
    workers[1].all("check m 0 256 1\nfill m 0 128 2");
    workers[2].all("check m 0 128 2\ncheck m 128 128 1\nfill m 100 28 3");
    for worker in &workers {
        worker.all("check m 0 100 2\ncheck m 100 28 3\ncheck m 128 128 1");
    }
    const TIMES: u64 = 200;
    let workers = sharers_of(&hosts, "/sums", "size=65536 forwarding");
    for (first, pages) in [(0, 1), (1, 15)] {
        let sum = |worker: &Worker| worker.ok(&format!("sum m {first} {pages}")).parse::<u64>().unwrap();
        let before = sum(&workers[0]);
        workers.iter().for_each(|worker| worker.send(&format!("add m {first} {pages} {TIMES}")));
        workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
        workers.iter().for_each(|worker| assert_eq!(sum(worker), before + 3 * TIMES));
    }
}

/// Hosts that read a page, write it, and give it to others who wait, all at once: nobody finds what was there before.
#[test]
fn who_reads_in_turn_finds_what_the_last_has_written() {
    let hosts = cluster(3);
    for (number, how) in ["hold-us=0", "hold-us=0 replicas=1", ""].into_iter().enumerate() {
        let name = format!("/turns{number}");
        let workers = sharers_of(&hosts, &name, &format!("size=65536 forwarding {how}"));
        for (own, worker) in workers.iter().enumerate() {
            worker.send(&format!("turns m 3 {own} 3 600"));
        }
        workers.iter().for_each(|worker| drop(worker.answer().expect(how)));
    }
}

#[test]
fn a_forwarded_object_stores_what_every_host_wrote() {
    let hosts = cluster(3);
    let file = hosts[0].scratch().file("file", MIB);
    let workers = sharers_of(&hosts, "/stored", &format!("file={} sync=ordered forwarding", file.display()));
    workers[1].ok("fill m 0 100 1");
    workers[2].ok("fill m 50 100 2");
    workers[1].ok("check m 50 50 2");
    workers[0].ok("sync o 0 1048576");
    let now = std::fs::read(&file).unwrap();
    assert!(
        now[..50 * PAGE] == page::bytes(0, 50, 1) && now[50 * PAGE..150 * PAGE] == page::bytes(50, 100, 2)
    );
    workers[2].all("fill m 0 1 3\nsync o 0 4096");
    assert!(std::fs::read(&file).unwrap()[..PAGE] == page::bytes(0, 1, 3));
}

#[test]
fn what_is_forwarded_goes_home_when_its_last_user_closes_it() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, MIB, "forwarding");
    workers[1].ok("fill m 0 100 1");
    workers[2].all("check m 0 50 1\nfill m 50 50 2");
    workers[1].all("drop m\nclose o");
    workers[2]
        .all("drop m\nclose o\nopen o /shared rw\nmap m o rw shared 0 0\ncheck m 50 50 2\nfill m 0 10 3");
    workers[1]
        .all("open o /shared rw\nmap m o rw shared 0 0\ncheck m 0 10 3\ncheck m 10 40 1\ncheck m 50 50 2");
    workers[1].all("drop m\nclose o");
    workers[2].all("drop m\nclose o\nopen o /shared r\nclose o");
    hosts[1].kill_both();
    hosts[2].kill_both();
    workers[0].all("check m 0 10 3\ncheck m 10 40 1\ncheck m 50 50 2\nfill m 0 100 4\ncheck m 0 100 4");
}

#[test]
fn forwarded_pages_whose_host_died_are_errors_or_the_version_before() {
    for on_loss in ["error", "revert"] {
        let hosts = brief_cluster(3);
        let workers = sharers(&hosts, MIB, &format!("forwarding={on_loss}"));
        workers[0].ok("fill m 0 256 1");
        workers[1].ok("fill m 0 20 2");
        workers[2].all("check m 0 10 2\nfill m 10 20 3");
        workers[1].ok("check m 20 10 3");
        // The copies of 20..30 live on; of 10..20 the newest version dies.
        hosts[2].kill_both();
        workers[0].all("check m 0 10 2\ncheck m 20 10 3\ncheck m 30 226 1");
        if on_loss == "error" {
            let doomed = hosts[0].worker();
            doomed.all("open o /shared r\nmap m o r shared 0 0");
            doomed.dies("get m 49152", libc::SIGBUS);
            for worker in &workers[..2] {
                let states = worker.ok("incore o 0 1048576");
                let lost: Vec<usize> = states.match_indices('L').map(|(page, _)| page).collect();
                assert_eq!(lost, (10..20).collect::<Vec<_>>(), "{states}");
                assert_eq!(worker.ok("info o losses"), "10 0");
            }
            assert_eq!(workers[0].ok("revert /shared"), "10");
        }
        workers[1].ok("check m 10 10 2");
        for worker in &workers[..2] {
            assert_eq!(worker.ok("info o losses"), "0 10", "{on_loss}");
            assert_ne!(worker.ok("info o generation"), "0");
            assert!(!worker.ok("incore o 0 1048576").contains('L'));
        }
        workers[1].ok("fill m 0 256 5");
        workers[0].ok("check m 0 256 5");
    }
}

#[test]
fn a_forwarded_object_outlives_the_process_of_its_home() {
    let hosts = brief_cluster(3);
    let workers = sharers(&hosts, MIB, "forwarding");
    workers[0].ok("fill m 0 256 1");
    workers[1].ok("fill m 0 100 2");
    workers[2].ok("check m 0 100 2");
    hosts[0].kill_host();
    workers[2].ok("check m 100 156 1");
    workers[0].all("check m 100 156 1\nfill m 200 10 3");
    workers[1].all("check m 200 10 3\nfill m 200 5 4");
    workers[2].ok("check m 200 5 4");
}
