//! Hosts that die, stop, or are cut off: the others go on after the lease and not before, and nobody reads old pages. What
//! is looked at is the order of events, never how long they took.

use commonhold_tests::cluster::{free_address, says, sharers_from, until_says};
use commonhold_tests::host::{kill_together, signal};
use commonhold_tests::network::Network;
use commonhold_tests::{MIB, TestHost, Worker, left_out, wait};
use std::process::Command;
use std::time::Duration;

/// Words of the host of that number; the first keeps the list.
fn words(number: usize, own: &str, list: &str) -> Vec<String> {
    let name = format!("host{number}");
    let mut words: Vec<&str> = vec!["--plain", "--listen", if number == 0 { list } else { own }];
    words.extend(["--name", &name]);
    words.extend(if number == 0 { ["--lease", "5"] } else { ["--join", list] });
    words.into_iter().map(str::to_owned).collect()
}

fn start(number: usize, list: &str) -> TestHost {
    let words = words(number, &free_address(), list);
    TestHost::with(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn cluster(count: usize) -> Vec<TestHost> {
    let list = free_address();
    (0..count).map(|number| start(number, &list)).collect()
}

/// Workers of all hosts, with an object of a MiB mapped as `m` that the host of number `home` made.
fn sharers(hosts: &[TestHost], home: usize, options: &str) -> Vec<Worker> {
    sharers_from(hosts, home, "/shared", &format!("size={MIB} {options}"))
}

/// Stops a process, and waits until every thread of it stands.
fn stop(pid: u32) {
    signal(pid, libc::SIGSTOP);
    let stands = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    };
    let all = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(stands);
    wait::until("it is stopped", || all().then_some(()));
}

#[test]
fn who_is_lost_with_its_keeper_is_missed_after_its_lease_and_not_before() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, 0, "strict=revert");
    workers[0].ok("fill m 0 20 1");
    workers[1].ok("fill m 0 5 2");
    workers[2].ok("check m 10 10 1");
    hosts[1].kill_both();
    // The next needs the page from the dead host, or its consent: nobody has it before that one is lost.
    workers[2].ok("fill m 0 1 3");
    assert!(says(&hosts[0], "host1 is lost"), "{}", hosts[0].log());
    until_says(&hosts[2], "host1 is lost"); // the home may have heard it before
    workers[0].all("check m 0 1 3\ncheck m 1 19 1");
    // Those of other pages were never in anybody's way, and a host that comes back belongs again.
    hosts[1].start_again().unwrap();
    let back = hosts[1].worker();
    back.eventually("open o /shared rw");
    back.all("map m o rw shared 0 0\ncheck m 0 1 3\nfill m 1 1 4");
    workers[0].ok("check m 1 1 4");
}

/// A sharer's host process stops. Its own processes could go on reading what they have mapped.
#[test]
fn a_stopped_host_is_fenced_by_its_keeper_before_others_go_on() {
    let hosts = cluster(2);
    let workers = sharers(&hosts, 0, "strict");
    let local = hosts[1].worker();
    local.all("create l /local size=65536\nmap l l rw shared 0 0\nfill l 0 16 7");
    workers[0].ok("fill m 0 10 1");
    workers[1].ok("check m 0 10 1");
    let before = hosts[1].status();
    stop(before.host_pid);
    workers[1].ok("check m 0 10 1"); // nobody is in the way of that yet
    workers[0].ok("fill m 0 10 2"); // waits until nobody else can have the pages
    assert!(says(&hosts[1], "lets its lease run out"), "{}", hosts[1].log());
    assert!(says(&hosts[1], "fenced 1 shared objects"), "{}", hosts[1].log());
    workers[1].ok("check m 0 10 2");
    assert_ne!(hosts[1].status().host_pid, before.host_pid);
    workers[1].ok("fill m 3 1 5");
    workers[0].ok("check m 3 1 5");
    local.all("check l 0 16 7\nfill l 0 16 8\ncheck l 0 16 8");
}

/// The same with the home of the object.
#[test]
fn a_stopped_home_is_replaced_and_keeps_what_it_had() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, 1, "strict");
    workers[1].ok("fill m 0 200 1");
    workers[2].ok("check m 0 100 1");
    workers[1].ok("fill m 150 10 2");
    stop(hosts[1].status().host_pid);
    workers[2].all("check m 100 50 1\ncheck m 150 10 2\nfill m 0 1 3");
    assert!(says(&hosts[1], "fenced 1 shared objects"), "{}", hosts[1].log());
    workers[1].all("check m 0 1 3\ncheck m 1 149 1\ncheck m 150 10 2\ncheck m 160 40 1");
    workers[0].all("check m 0 1 3\ncheck m 150 10 2");
}

/// The registry dies: hosts go on until their leases end, then they wait, and go on with the next.
#[test]
fn hosts_go_on_without_the_registry_until_their_leases_end() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, 1, "strict");
    workers[1].ok("fill m 0 50 1");
    workers[2].all("check m 0 50 1\nfill m 0 10 2");
    workers[0].ok("drop m");
    let before = [1, 2].map(|number| hosts[number].status().host_pid);
    hosts[0].kill_both();
    workers[1].all("check m 0 10 2\nfill m 10 10 3");
    workers[2].all("check m 10 10 3\nfill m 0 1 4");
    workers[1].ok("check m 0 1 4");
    hosts[1..].iter().for_each(|host| until_says(host, "fenced: "));
    let refused = wait::until("another host process answers", || {
        (hosts[1].status().host_pid != before[0]).then(|| workers[1].ask("create x /new size=4096 strict"))
    });
    assert_eq!(refused.unwrap_err().kind, "Disconnected");
    workers[1].all("create l /local size=4096\nmap l l rw shared 0 0\nfill l 0 1 1\ncheck l 0 1 1");
    let said = hosts[1].command(&["hosts"], |_| {}).unwrap();
    assert!(said.contains("waits for the cluster's registry"), "{said}");
    workers[1].send("check m 20 30 1");
    hosts[0].start_again().unwrap();
    assert_eq!(workers[1].answer().as_deref(), Ok(""));
    workers[1].ok("fill m 20 1 6");
    workers[2].all("check m 20 1 6\ncheck m 21 29 1");
    assert_ne!(hosts[2].status().host_pid, before[1]);
}

#[test]
fn a_registry_that_is_away_at_the_start_is_waited_for() {
    let list = free_address();
    let early = start(1, &list);
    until_says(&early, "joining the cluster at|until then objects that hosts share wait|trying again");
    let worker = early.worker();
    let why = worker.refused("create o /shared size=4096 strict", "Disconnected");
    assert!(why.contains("registry"), "{why}");
    worker.refused("open o /shared r", "Disconnected");
    worker.all("create l /local size=4096\nmap l l rw shared 0 0\nfill l 0 1 1\ncheck l 0 1 1");
    let late = start(0, &list);
    worker.eventually("create o /shared size=4096 strict");
    worker.all("map m o rw shared 0 0\nfill m 0 1 1");
    let other = late.worker();
    other.eventually("open o /shared r");
    other.all("map m o r shared 0 0\ncheck m 0 1 1");
}

/// Both a sharer's host and its keeper stop, and go on when others have: what their processes wrote meanwhile is
/// discarded, never merged.
#[test]
fn what_is_written_after_the_lease_is_never_merged() {
    let hosts = cluster(2);
    let workers = sharers(&hosts, 0, "strict=revert");
    workers[0].ok("fill m 0 10 1");
    workers[1].ok("fill m 0 10 2");
    let status = hosts[1].status();
    [status.keeper_pid, status.host_pid].into_iter().for_each(stop);
    workers[0].ok("fill m 0 10 3");
    assert!(says(&hosts[0], "host1 is lost"));
    workers[1].ok("fill m 0 10 4"); // the one window: into pages that are the others' by now
    [status.keeper_pid, status.host_pid].iter().for_each(|pid| signal(*pid, libc::SIGCONT));
    until_says(&hosts[1], "fence");
    wait::until("its processes see what is so", || workers[1].ask("check m 0 10 3").ok());
    workers[0].ok("check m 0 10 3");
}

/// Two hosts in a network of their own, if that can be made here.
fn apart() -> Option<(Network, [TestHost; 2])> {
    let network = Network::new(2).map_err(|why| left_out(&why.to_string())).ok()?;
    let host = |number| {
        let words = words(number, &network.listen(number), &network.listen(0));
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--even-beyond-loopback"]).collect();
        let before = network.before(number);
        TestHost::by(&before.iter().map(String::as_str).collect::<Vec<_>>(), &words)
    };
    let hosts = [host(0), host(1)];
    Some((network, hosts))
}

/// Ends every connection, and nothing else. Whether that can be done here.
fn breaks_connections(network: &Network, seen_by: &TestHost) -> bool {
    let mut before = network.before(1).into_iter();
    let words = ["ss", "-K", "-t", "dport", "=", "7420", "or", "sport", "=", "7420"];
    let mut kill = Command::new(before.next().expect("a program"));
    let done = kill.args(before).args(words).status().is_ok_and(|status| status.success())
        && wait::within(Duration::from_secs(5), || says(seen_by, "host1 cannot be reached").then_some(()))
            .is_some();
    if !done {
        left_out("connections cannot be ended from outside here");
    }
    done
}

#[test]
fn a_host_that_is_cut_off_fences_itself_before_others_go_on() {
    let Some((network, hosts)) = apart() else { return };
    let workers = sharers(&hosts, 0, "strict");
    workers[0].ok("fill m 0 10 1");
    workers[1].ok("check m 0 10 1");
    network.wire(1, false);
    workers[1].ok("check m 0 10 1");
    workers[0].ok("fill m 0 10 2");
    assert!(says(&hosts[0], "host1 is lost"), "{}", hosts[0].log());
    assert!(says(&hosts[1], "fenced: "), "{}", hosts[1].log());
    workers[1].send("check m 0 10 2");
    assert!(workers[1].answer_within(Duration::from_millis(300)).is_none(), "no page without the registry");
    network.wire(1, true);
    assert_eq!(workers[1].answer().as_deref(), Ok(""));
    workers[1].ok("fill m 0 1 3");
    workers[0].ok("check m 0 1 3");
    drop(workers);
}

/// Connections that break are no losses: no page is lost, and nobody joins anew.
#[test]
fn a_wire_that_is_mended_in_time_costs_no_host() {
    let Some((network, hosts)) = apart() else { return };
    let workers = sharers(&hosts, 0, "strict");
    workers[0].ok("fill m 0 10 1");
    workers[1].ok("check m 0 10 1");
    let pids = || hosts.iter().map(|host| host.status().host_pid).collect::<Vec<_>>();
    let before = pids();
    if !breaks_connections(&network, &hosts[0]) {
        return;
    }
    workers[0].ok("fill m 0 5 2");
    workers[1].all("check m 0 5 2\ncheck m 5 5 1\nfill m 9 1 3");
    workers[0].ok("check m 9 1 3");
    assert_eq!(pids(), before);
    assert!(!says(&hosts[0], "is lost"), "{}", hosts[0].log());
}

/// Also where requests are forwarded: the session goes on by the next connection, and nobody begins anew.
#[test]
fn a_broken_wire_under_forwarding_costs_no_host_its_number() {
    let Some((network, hosts)) = apart() else { return };
    let workers = sharers(&hosts, 0, "forwarding");
    workers[0].ok("fill m 0 10 1");
    workers[1].ok("check m 0 10 1");
    let before = [0, 1].map(|number| hosts[number].status().host_pid);
    if !breaks_connections(&network, &hosts[0]) {
        return;
    }
    workers[0].ok("fill m 0 5 2");
    workers[1].all("check m 0 5 2\ncheck m 5 5 1\nfill m 9 1 3");
    workers[0].ok("check m 9 1 3");
    assert_eq!([0, 1].map(|number| hosts[number].status().host_pid), before);
    assert!(!says(&hosts[1], "were lost") && !says(&hosts[0], "is lost"), "{}", hosts[1].log());
}

/// Leases are counted from each machine's own boot: clocks that differ by an hour are nothing to them.
#[test]
fn clocks_that_differ_by_an_hour_do_not_matter() {
    let list = free_address();
    let first = start(0, &list);
    let words = words(1, &free_address(), &list);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let unshare = ["/usr/bin/env", "unshare", "--time", "--boottime", "3600", "--fork"];
    let possible = Command::new("unshare").args(["--time", "--boottime", "3600", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        left_out("clocks of a name space cannot be set here");
        return;
    }
    let hosts = [first, TestHost::by(&unshare, &words)];
    let workers = sharers(&hosts, 0, "strict");
    workers[0].ok("fill m 0 10 1");
    workers[1].ok("fill m 0 5 2");
    workers[0].all("check m 0 5 2\ncheck m 5 5 1");
    let stopped = hosts[1].status().host_pid;
    stop(stopped);
    until_says(&hosts[1], "lets its lease run out");
    until_says(&hosts[0], "host1 is lost");
    workers[1].eventually("check m 5 5 1");
    let pids = [hosts[1].status().host_pid];
    assert_ne!(pids, [stopped]);
    drop(workers);
    kill_together(&pids);
}
