//! The registry in etcd: the cluster outlives any host, and a member of etcd. Needs the feature `etcd`, and Debian's
//! `etcd-server`, which is installed if that is allowed.
#![cfg(feature = "etcd")]

use commonhold_tests::etcd::{Certificates, Etcd};
use commonhold_tests::{MIB, TestHost, Worker, wait};

fn sharers(hosts: &[TestHost], name: &str) -> Vec<Worker> {
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[0].eventually(&format!("create o {name} size={MIB} strict=revert"));
    workers[1..].iter().for_each(|worker| drop(worker.eventually(&format!("open o {name} rw"))));
    workers.iter().for_each(|worker| drop(worker.ok("map m o rw shared 0 0")));
    workers
}

/// As that host sees it, whichever of its processes heard of it.
fn is_lost(host: &TestHost, other: &str) -> bool {
    host.connect().hosts().is_ok_and(|hosts| hosts.iter().all(|host| host.name != other))
}

#[test]
fn the_cluster_outlives_any_host_and_a_member_of_etcd() {
    let Some(mut etcd) = Etcd::start() else { return };
    let mut hosts: Vec<TestHost> = (0..3).map(|number| etcd.host(number)).collect();
    let workers = sharers(&hosts, "/lab/shared");
    workers[0].ok("fill m 0 100 1");
    workers[1].ok("fill m 10 10 2");
    workers[2].all("check m 0 10 1\ncheck m 10 10 2");
    // Names of other hosts are seen, whichever registry there is.
    workers[2].ok("create l /lab/local size=4096");
    let why = workers[0].refused("open l /lab/local r", "Unsupported");
    assert!(why.contains("/lab/local is local to host2"), "{why}");
    assert_eq!(workers[1].ok("stat /lab/shared home"), "host0 elsewhere");
    assert_eq!(workers[1].ok("list /lab"), "/lab/local /lab/shared");
    etcd.kill(1);
    workers[2].ok("fill m 10 5 3");
    workers[1].all("check m 10 5 3\ncheck m 15 5 2");
    workers[2].refused("create x /lab/shared size=4096 strict", "Exists");
    workers[1].all("create y /lab/y size=8192 strict\nmap y y rw shared 0 0\nfill y 0 2 4");
    workers[2].all("open y /lab/y rw\nmap y y rw shared 0 0\ncheck y 0 2 4");
    // The first host goes, with its keeper: names and objects of the others are in nobody's way.
    hosts[0].kill_both();
    workers[2].ok("fill y 0 1 5");
    workers[1].all("check y 0 1 5\ncreate z /lab/z size=4096 strict");
    workers[2].eventually("open z /lab/z r");
    wait::until("the others hear of the loss", || is_lost(&hosts[2], "host0").then_some(()));
    etcd.run(1);
    etcd.kill(2);
    workers[1].ok("fill y 1 1 6");
    workers[2].ok("check y 1 1 6");
    // A sharer goes: the home goes on after its lease.
    hosts.pop().unwrap().kill_both();
    workers[1].ok("fill y 0 2 7");
    assert!(is_lost(&hosts[1], "host2"), "{}", hosts[1].log());
}

#[test]
fn a_host_process_that_dies_is_followed_at_once_and_a_namesake_is_refused() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts: Vec<TestHost> = (0..2).map(|number| etcd.host(number)).collect();
    let workers = sharers(&hosts, "/shared");
    workers[0].ok("fill m 0 100 1");
    workers[1].ok("check m 0 100 1");
    hosts[1].kill_host();
    workers[0].ok("fill m 0 10 2");
    workers[1].ok("check m 0 10 2");
    hosts[0].kill_host();
    workers[1].ok("check m 0 10 2");
    workers[0].ok("fill m 5 1 3");
    workers[1].ok("check m 5 1 3");
    let namesake = etcd.host(1);
    wait::until("it is refused", || {
        let said = ["there is a host named host1", "one name"];
        said.iter().any(|said| namesake.log().contains(said)).then_some(())
    });
    namesake.worker().refused("create n /n size=4096 strict", "Disconnected");
    workers[1].ok("check m 5 1 3");
}

/// All of etcd goes, and comes back with what it had.
#[test]
fn hosts_fence_themselves_without_etcd_and_go_on_with_it() {
    let Some(mut etcd) = Etcd::start() else { return };
    let hosts: Vec<TestHost> = (0..2).map(|number| etcd.host(number)).collect();
    let workers = sharers(&hosts, "/shared");
    workers[0].ok("fill m 0 100 1");
    workers[1].ok("check m 0 100 1");
    (0..3).for_each(|number| etcd.kill(number));
    workers[1].ok("check m 0 100 1");
    for host in &hosts {
        wait::until("it fences itself", || host.log().contains("fenced: ").then_some(()));
    }
    workers[0].send("fill m 0 10 2");
    (0..3).for_each(|number| etcd.run(number));
    assert_eq!(workers[0].answer().as_deref(), Ok(""));
    workers[1].all("check m 0 10 2\ncheck m 10 90 1");
}

/// A process that follows another takes its place by one change of the registry: what that one had newest is asked for.
#[test]
fn what_processes_had_newest_is_given_back() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts: Vec<TestHost> = (0..3).map(|number| etcd.host(number)).collect();
    let workers = sharers(&hosts, "/lab/shared");
    workers[0].ok("fill m 0 100 1");
    workers[1].ok("fill m 10 10 2");
    workers[2].ok("fill m 30 10 3");
    hosts[1].kill_host();
    workers[0].ok("check m 10 10 2");
    // The home's: with the sharer's, and by itself.
    workers[1].ok("fill m 50 5 4");
    let pids = [0, 2].map(|number| hosts[number].status().host_pid);
    commonhold_tests::host::kill_together(&pids);
    for worker in &workers {
        worker.all("check m 0 10 1\ncheck m 10 10 2\ncheck m 30 10 3\ncheck m 50 5 4");
    }
    hosts[0].kill_host();
    workers[2].all("check m 50 5 4\nfill m 0 1 5");
    workers[1].ok("check m 0 1 5");
    assert!(!hosts[0].log().contains("are lost with"), "{}", hosts[0].log());
}

/// Over TLS: whoever has a certificate of etcd's authority belongs; another has no part in the cluster, and is told why.
#[test]
fn etcd_and_hosts_know_each_other_by_certificates() {
    let (Some(ours), Some(theirs)) = (Certificates::make(), Certificates::make()) else { return };
    let Some(mut etcd) = Etcd::start_with_tls(&ours) else { return };
    let hosts: Vec<TestHost> = (0..2).map(|number| etcd.host_with_tls(number, &ours)).collect();
    let workers = sharers(&hosts, "/lab/shared");
    workers[0].ok("fill m 0 100 1");
    etcd.kill(1);
    workers[1].all("check m 0 100 1\nfill m 0 1 2");
    workers[0].ok("check m 0 1 2");
    let stranger = etcd.host_with_tls(2, &theirs);
    wait::until("it is refused", || stranger.log().contains("joining the cluster at etcds://").then_some(()));
    stranger.worker().refused("create x /lab/x size=4096 strict", "Disconnected");
    let plain = etcd.host(3);
    wait::until("it is refused", || plain.log().contains("joining the cluster at etcd://").then_some(()));
    plain.worker().refused("create x /lab/x size=4096 strict", "Disconnected");
    assert!(!hosts[0].command(&["hosts"], |_| {}).unwrap().contains("host2"));
}

#[test]
fn objects_of_a_cluster_have_addresses_of_their_own_that_hosts_keep_while_they_are_away() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts: Vec<TestHost> = (0..2).map(|number| etcd.host(number)).collect();
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    let file = hosts[0].scratch().file("file", MIB);
    let of_file = format!("create f /file file={} strict fixed", file.display());
    let address = |worker: &Worker, object: &str| worker.ok(&format!("info {object} address"));
    workers[0].eventually(&of_file);
    workers[1].eventually("create o /first size=4096 strict fixed");
    let mut given = vec![address(&workers[0], "f"), address(&workers[1], "o")];
    // Both at once, again and again: nobody gets what the other has.
    for round in 0..8 {
        let create =
            |host: usize| workers[host].send(&format!("create o /{host}/{round} size=4096 strict fixed"));
        (0..2).for_each(create);
        for worker in &workers {
            worker.answer().unwrap();
            given.push(address(worker, "o"));
        }
    }
    let kept = given[0].clone();
    workers[1].all("open f /file rw\nmap f f rw shared 0 0\nlink f 16 5");
    workers[0].ok("map f f rw shared 0 0");
    assert_eq!(workers[0].ok(&format!("walk {kept} 5")), "16");
    workers[1].all("sync f 0 1048576\ndrop f\nclose f");
    // A host goes; others are given addresses meanwhile.
    workers[0].kill();
    hosts[0].command(&["host", "stop", "--force"], |_| {}).unwrap();
    wait::until("the other hears that it goes", || is_lost(&hosts[1], "host0").then_some(()));
    for number in 0..4 {
        workers[1].ok(&format!("create o /more/{number} size=4096 strict fixed"));
        given.push(address(&workers[1], "o"));
    }
    hosts[0].start_again().unwrap();
    let again = hosts[0].worker();
    again.eventually("open f /file rw");
    assert_eq!(address(&again, "f"), kept);
    again.ok("map f f rw shared 0 0");
    assert_eq!(again.ok(&format!("walk {kept} 5")), "16");
    let count = given.len();
    given.sort();
    given.dedup();
    assert_eq!(given.len(), count);
    // One removed; what it had is not given again soon, and nothing of it is left in etcd.
    again.ok("remove /file");
    workers[1].eventually("create f /file size=4096 strict fixed");
    assert!(!given.contains(&address(&workers[1], "f")));
}
