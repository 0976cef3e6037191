//! Names of objects that hosts share are removed on any host, by who may.

use commonhold_tests::cluster::{Secure, another, cluster, secure_cluster_with, sharers_of};
use commonhold_tests::{Scratch, is_root};

#[test]
fn a_name_that_hosts_share_is_removed_on_each() {
    let hosts = cluster(3);
    for (number, options) in ["strict", "central", "explicit"].into_iter().enumerate() {
        let name = format!("/dir/{options}");
        let workers = sharers_of(&hosts, &name, &format!("size=65536 {options}"));
        workers[0].ok("fill m 0 16 1");
        let by = &workers[1 + number % 2];
        by.ok(&format!("remove {name}"));
        for host in &hosts {
            let said = host.worker().refused(&format!("open o {name} rw"), "NotFound");
            assert!(said.contains(&name), "{said}");
        }
        by.refused(&format!("remove {name}"), "NotFound");
        // Who has it open goes on, and the name is anybody's.
        workers[0].ok("check m 0 16 1");
        by.ok(&format!("create next {name} size=4096 {options}"));
        another(&hosts[0], &name).ok("check m 0 1 0");
        hosts[0].worker().ok(&format!("remove {name}"));
    }
}

#[test]
fn what_may_not_be_removed_stays() {
    let hosts = cluster(2);
    let workers = sharers_of(&hosts, "/shared", "size=4096 strict");
    workers[0].ok("create l /local size=4096");
    let said = workers[1].refused("remove /local", "Unsupported");
    assert!(said.contains("is local to host0: remove it there"), "{said}");
    workers[0].ok("create d /dir/below size=4096 strict");
    let said = workers[1].refused("remove /dir", "NotFound");
    assert!(said.contains("there is no /dir"), "{said}");
    if is_root("another user") {
        let other = hosts[1].worker_of(65534, 65534);
        other.refused("remove /shared", "Permission");
        // Of a host that the home trusts for its users: the user's rights decide, not the host's.
        other.refused("remove /dir/below", "Permission");
    }
    workers[0].all("info l size\ninfo d size\ninfo o size");
    another(&hosts[1], "/shared").ok("check m 0 1 0");
    // A home that is away: nothing is changed, and it is there again with its home.
    hosts[0].kill_both();
    assert!(workers[1].ask("remove /shared").is_err());
    hosts[0].start_again().expect("it starts");
    hosts[0].worker().eventually("open o /shared rw");
}

#[test]
fn a_host_that_may_read_alone_removes_nothing() {
    let authority = Scratch::new();
    let hosts = secure_cluster_with(&authority, 2, &Secure { before: &[], lease_s: None, last_reads: true });
    let home = hosts[0].worker();
    home.ok("create o /shared size=4096 central");
    let reader = hosts[1].worker();
    reader.eventually("open o /shared r");
    let said = reader.refused("remove /shared", "Permission");
    assert!(said.contains("read"), "{said}");
    another(&hosts[0], "/shared").ok("check m 0 1 0");
}
