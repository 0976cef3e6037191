//! Objects that hosts share under explicit coherence: what is written is seen elsewhere after a sync.

use commonhold_tests::cluster::{cluster, cluster_with, sharers, sharers_of};
use commonhold_tests::{MIB, PAGE, page};

#[test]
fn explicit_writes_are_seen_after_a_sync() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, MIB, "explicit");
    workers[0].all("fill m 0 256 1\nsync o 0 1048576");
    workers[1].all("check m 0 256 1\nfill m 0 10 2\ncheck m 0 10 2");
    workers[2].ok("check m 0 256 1");
    workers[0].ok("check m 0 256 1");
    // The same on that host, for all of its processes.
    let neighbour = hosts[1].worker();
    neighbour.all("open o /shared rw\nmap m o rw shared 0 0\ncheck m 0 10 2");
    assert_eq!(workers[1].ok("sync o 0 1048576"), "10");
    workers[2].all("check m 0 10 2\ncheck m 10 246 1");
    workers[0].all("check m 0 10 2\ncheck m 10 246 1");
    // What was written here stays when another host syncs it, and wins with the next sync.
    workers[2].ok("fill m 20 5 3");
    workers[1].all("fill m 20 1 4\nsync o 0 1048576");
    workers[2].all("check m 20 5 3\nsync o 0 1048576");
    for worker in &workers {
        worker.ok("check m 20 5 3");
    }
    // An orderly last unmap is a sync.
    workers[2].all("fill m 30 3 5\ndrop m");
    workers[0].ok("check m 30 3 5");
    workers[1].ok("check m 30 3 5");
}

#[test]
fn explicit_locks_keep_pages_as_they_are() {
    let hosts = cluster(2);
    let workers = sharers(&hosts, MIB, "explicit");
    workers[0].all("fill m 0 16 1\nsync o 0 65536");
    workers[1].all("check m 0 16 1\nlock o 0 8192");
    workers[0].all("fill m 0 16 2\nsync o 0 65536");
    workers[1].all("check m 0 2 1\ncheck m 2 14 2\nunlock o 0 8192\ncheck m 0 16 2");
}

#[test]
fn explicit_syncs_are_stored_at_the_home() {
    let hosts = cluster(3);
    let file = hosts[0].scratch().file("file", 16 * MIB);
    let options = format!("file={} sync=atomic explicit", file.display());
    let workers = sharers_of(&hosts, "/stored", &options);
    workers[1].all("fill m 0 3000 1\nsync o 0 16777216");
    assert!(std::fs::read(&file).unwrap()[..3000 * PAGE] == page::bytes(0, 3000, 1));
    workers[2].all("check m 0 3000 1\nfill m 1000 10 2");
    workers[0].all("fill m 2000 10 3\nsync o 0 16777216");
    let now = std::fs::read(&file).unwrap();
    assert!(now[1000 * PAGE..1010 * PAGE] == page::bytes(1000, 10, 1), "not synced");
    assert!(now[2000 * PAGE..2010 * PAGE] == page::bytes(2000, 10, 3));
    workers[2].ok("check m 2000 10 3");
    // The home's process dies: what was written anywhere and not synced is there still.
    workers[0].ok("fill m 2500 10 4");
    hosts[0].kill_host();
    workers[0].ok("check m 2500 10 4");
    workers[2].all("check m 1000 10 2\ncheck m 0 1000 1\ncheck m 2500 10 1\nsync o 0 16777216");
    workers[0].all("check m 1000 10 2\nsync o 0 16777216");
    workers[1].all("check m 1000 10 2\ncheck m 2500 10 4\nfill m 1 1 5");
    hosts[1].kill_host();
    workers[1].all("check m 1 1 5\ncheck m 2 998 1");
    workers[1].eventually("sync o 0 16777216");
    workers[0].ok("check m 1 1 5");
}

#[test]
fn explicit_pages_beyond_memory_go_home() {
    let hosts = cluster_with(2, &["--budget", "4194304"]);
    let workers = sharers(&hosts, 16 * MIB, "explicit");
    workers[1].all("fill m 0 4096 1\ncheck m 0 4096 1\nsync o 0 16777216");
    workers[0].all("check m 0 4096 1\nfill m 0 2000 2\nsync o 0 16777216");
    workers[1].all("check m 0 2000 2\ncheck m 2000 2096 1");
}
