//! Replicas: losing as many hosts as an object has replicas loses nothing that another host has read, or that was synced.

use commonhold_tests::cluster::{brief_cluster, sharers_of};
use commonhold_tests::{MIB, TestHost, Worker, wait};

/// Pages of the object.
const PAGES: u32 = 256;

/// Workers on all hosts, each with the object mapped as `m`; the first made it and wrote 1 to all its pages.
fn sharers(hosts: &[TestHost], options: &str) -> Vec<Worker> {
    let workers = sharers_of(hosts, "/kept", &format!("size={MIB} {options}"));
    workers[0].ok(&format!("fill m 0 {PAGES} 1"));
    workers
}

#[test]
fn what_another_host_has_read_survives_the_only_host_that_has_it() {
    for replicas in [0, 1] {
        let hosts = brief_cluster(3);
        let workers = sharers(&hosts, &format!("forwarding=revert replicas={replicas}"));
        workers[1].ok("fill m 0 256 2");
        // Read, and given up: from then on only the host that wrote has it. (What comes ahead of reading, too.)
        workers[2].all("check m 0 8 2\ndrop m\nclose o");
        hosts[1].kill_both();
        let read = if replicas > 0 { 2 } else { 1 };
        workers[0].all(&format!("check m 0 8 {read}\ncheck m 200 56 1"));
        workers[2].eventually("open o /kept rw");
        workers[2].all(&format!("map m o rw shared 0 0\ncheck m 0 8 {read}\nfill m 0 256 3"));
        workers[0].ok("check m 0 256 3");
    }
}

#[test]
fn what_another_host_has_read_can_be_had_back_where_a_loss_is_an_error() {
    let hosts = brief_cluster(3);
    let workers = sharers(&hosts, "forwarding=error replicas=1");
    workers[1].ok("fill m 0 64 2");
    workers[2].all("check m 0 64 2\ndrop m\nclose o");
    hosts[1].kill_both();
    // The dead host may have written since: whether it did, nobody knows.
    let doomed = hosts[0].worker();
    doomed.all("open o /kept r\nmap m o r shared 0 0");
    doomed.dies("get m 4096", libc::SIGBUS);
    assert_eq!(workers[0].ok("revert /kept"), "64");
    workers[0].all("check m 0 64 2\ncheck m 64 192 1");
}

#[test]
fn what_was_synced_survives_the_host_that_wrote_it() {
    for page_size in [4096, 65536] {
        let hosts = brief_cluster(3);
        let workers = sharers(&hosts, &format!("forwarding=revert replicas=1 page-size={page_size}"));
        workers[1].all(&format!("fill m 0 {PAGES} 2\nsync o 0 {MIB}\nfill m 0 16 3"));
        hosts[1].kill_both();
        workers[2].all("check m 0 256 2");
        workers[0].ok("check m 0 256 2");
    }
}

#[test]
fn what_another_host_has_a_copy_of_survives_the_process_of_the_home() {
    let hosts = brief_cluster(3);
    let workers = sharers(&hosts, "forwarding=revert replicas=1");
    workers[1].ok("fill m 0 64 2");
    workers[2].ok("check m 0 64 2");
    hosts[0].kill_host();
    workers[2].all("check m 0 64 2\ncheck m 64 192 1");
    workers[0].all("check m 0 64 2\nfill m 0 8 3");
    workers[1].all("check m 0 8 3\ncheck m 8 56 2");
}

#[test]
fn two_replicas_are_kept_while_four_hosts_write_the_same_pages() {
    let hosts = brief_cluster(4);
    let workers = sharers(&hosts, "forwarding=revert replicas=2");
    const TIMES: u64 = 100;
    let sum = |worker: &Worker| worker.ok("sum m 0 4").parse::<u64>().unwrap();
    let before = sum(&workers[0]);
    workers.iter().for_each(|worker| worker.send(&format!("add m 0 4 {TIMES}")));
    workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
    for worker in &workers {
        assert_eq!(sum(worker), before + 4 * TIMES);
    }
    // All have read it: whoever dies, it is there.
    hosts[3].kill_both();
    workers[..3].iter().for_each(|worker| assert_eq!(sum(worker), before + 4 * TIMES));
}

#[test]
fn an_object_says_its_replicas_and_whether_there_are_hosts_for_them() {
    let hosts = brief_cluster(3);
    let (first, second, third) = (hosts[0].worker(), hosts[1].worker(), hosts[2].worker());
    for options in ["central", "explicit", "forwarding=revert replicas=9"] {
        let more = if options.contains("replicas") { "" } else { " replicas=1" };
        first.refused(&format!("create o /not size={MIB} {options}{more}"), "Invalid");
    }
    first.all(&format!("create o /kept size={MIB} forwarding=revert replicas=2\nmap m o rw shared 0 0"));
    second.eventually("open o /kept rw");
    second.all("map m o rw shared 0 0\nfill m 0 1 1");
    let told = || hosts[0].command(&["stat", "/kept"], |_| {}).unwrap();
    assert!(told().contains("replicas") && told().contains("fewer than 3 hosts"), "{}", told());
    third.eventually("open o /kept rw");
    third.all("map m o rw shared 0 0\ncheck m 0 1 1");
    wait::until("enough hosts", || (!told().contains("fewer than")).then_some(()));
}
