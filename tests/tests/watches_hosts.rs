//! Watches between hosts: `docs/WAIT.md`.

use commonhold_tests::cluster::{another, cluster, secure_cluster, sharers, sharers_of};
use commonhold_tests::{MIB, PAGE, Scratch, Worker};

fn woken(worker: &Worker) -> bool {
    worker.ok("watching wait w 0") == "true"
}

/// Each of three hosts notifies, and all others are woken. What was written before is seen.
#[test]
fn a_notification_wakes_on_all_hosts() {
    for how in ["central", "forwarding", "explicit"] {
        let hosts = cluster(3);
        let workers = sharers(&hosts, PAGE as u64, how);
        let neighbours: Vec<Worker> = hosts.iter().map(|host| another(host, "/shared")).collect();
        let all: Vec<&Worker> = workers.iter().chain(&neighbours).collect();
        all.iter().for_each(|worker| drop(worker.ok("watching at w m 8 8")));
        for (round, notifies) in (0..9).zip([0, 1, 2].into_iter().cycle()) {
            let waiting: Vec<&&Worker> =
                all.iter().filter(|worker| worker.pid() != workers[notifies].pid()).collect();
            waiting.iter().for_each(|worker| worker.send("watching wait w -"));
            workers[notifies].all(&format!("put m 8 {}\nsync o 0 4096\nwatching notify o 8 1", round + 1));
            for worker in waiting {
                assert_eq!(worker.answer().unwrap(), "true", "{how}");
                assert_eq!(worker.ok("get m 8"), (round + 1).to_string(), "{how}");
            }
            assert_eq!(workers[notifies].ok("watching wait w -"), "true", "its own, too");
            // Of explicit coherence the sync may have woken before.
            all.iter().for_each(|worker| while woken(worker) {});
        }
    }
}

#[test]
fn only_bytes_that_overlap_wake_and_plain_stores_do_not() {
    for how in ["central", "forwarding"] {
        let hosts = cluster(2);
        let workers = sharers(&hosts, 2 * PAGE as u64, how);
        workers[1].all("get m 0\nwatching at w m 8 8\nwatching at v m 0 8192");
        for round in 1..20 {
            workers[0].all(&format!("fill m 0 2 {round}\nwatching notify o 7 1"));
            workers[1].ok(&format!("check m 0 2 {round}"));
            assert_eq!(workers[1].ok("watching wait v -"), "true", "{how}");
            assert!(!woken(&workers[1]), "{how}: another byte of the same page");
        }
        // Stores alone wake nobody: what is notified after them comes after what they would have caused.
        workers[0].ok("fill m 0 2 30");
        workers[1].ok("check m 0 2 30");
        workers[0].ok("put m 9 1");
        assert_eq!(workers[1].ok("get m 9"), "1");
        assert_eq!(workers[1].ok("watching wait v 0"), "false", "{how}");
        assert!(!woken(&workers[1]));
    }
}

#[test]
fn a_sync_of_another_host_wakes_whoever_sees_it() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, MIB, "explicit");
    workers.iter().for_each(|worker| drop(worker.ok("get m 0"))); // they know the home
    for (syncs, waits) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        workers[waits].all("watching at w m 20480 8\nwatching at v m 0 4096");
        workers[waits].send("watching wait w -");
        workers[syncs].all("put m 20481 77\nsync o 0 1048576");
        assert_eq!(workers[waits].answer().unwrap(), "true", "{syncs} {waits}");
        assert_eq!(workers[waits].ok("get m 20481"), "77");
        assert_eq!(workers[waits].ok("watching wait v 0"), "false", "another page");
        workers[syncs].all("put m 20481 0\nsync o 0 1048576");
        assert_eq!(workers[waits].ok("watching wait w -"), "true");
        // What was not synced, and what changes nothing, wakes nobody.
        workers[syncs].all("put m 20481 5\nsync o 0 4096");
        workers[waits].ok("get m 0");
        assert!(!woken(&workers[waits]));
        workers[syncs].ok("sync o 0 1048576");
    }
}

/// What is locked or was written here stays as it is, and so wakes nobody; what is let go may wake.
#[test]
fn a_sync_that_changes_nothing_here_wakes_nobody() {
    let hosts = cluster(2);
    let workers = sharers(&hosts, MIB, "explicit");
    workers[1].all("get m 0\nlock o 0 4096\nput m 4096 3\nwatching at w m 0 4096\nwatching at v m 4096 4096");
    workers[0].all("put m 1 7\nput m 4097 7\nput m 8192 7\nsync o 0 1048576");
    workers[1].all("get m 8192");
    assert!(!woken(&workers[1]));
    assert_eq!(workers[1].ok("watching wait v 0"), "false");
    workers[1].ok("unlock o 0 4096");
    assert!(woken(&workers[1]));
    assert_eq!(workers[1].ok("get m 1"), "7");
}

/// A host that was admitted for reading alone hears notifications, and may not notify.
#[test]
fn a_host_that_reads_alone_may_watch() {
    let authority = Scratch::new();
    let hosts = secure_cluster(&authority, 2);
    let workers = sharers_of(&hosts[..1], "/shared", "size=4096 central mode=666");
    let reader = hosts[1].worker();
    reader.eventually("open o /shared r");
    reader.all("map m o r shared 0 0\nget m 0\nwatching at w m 0 8");
    workers[0].all("put m 0 4\nwatching notify o 0 1");
    assert_eq!(reader.ok("watching wait w -"), "true");
    assert_eq!(reader.ok("get m 0"), "4");
    let why = reader.ask("open p /shared rw").and_then(|_| reader.ask("watching notify p 0 1")).unwrap_err();
    assert_eq!(why.kind, "Permission", "{why:?}");
}

/// Of others' syncs a host hears that has read the object: to make a watch is enough.
#[test]
fn a_host_where_nobody_has_read_hears_of_syncs() {
    let hosts = cluster(2);
    let workers = sharers(&hosts, MIB, "explicit");
    workers[1].ok("watching at w m 20480 8");
    workers[0].ok("watching notify o 20480 1");
    assert_eq!(workers[1].ok("watching wait w -"), "true");
    // When the home was found, and the notification.
    while workers[1].ok("watching wait w 300") == "true" {}
    workers[0].all("put m 20481 77\nsync o 0 1048576");
    assert_eq!(workers[1].ok("watching wait w -"), "true");
    assert_eq!(workers[1].ok("get m 20481"), "77");
}
