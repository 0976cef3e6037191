//! Watches when processes die: of who waits, of who notifies, of the host, and of host and keeper.

use commonhold::CreateOptions;
use commonhold_tests::cluster::{another, brief_cluster, cluster, sharers};
use commonhold_tests::host::kill_together;
use commonhold_tests::{PAGE, TestHost, wait};
use std::time::{Duration, Instant};

#[test]
fn a_killed_process_leaves_nothing_and_wakes_nobody() {
    let host = TestHost::start();
    let stays = host.worker();
    stays.all("create o /o size=4096 controlled\nwatching begin w o 0 8");
    for _ in 0..5 {
        let dies = host.worker();
        dies.all("open o /o rw\nwatching many o 500");
        dies.send("watching wait 0 -");
        dies.kill();
        let notifies = host.worker();
        notifies.all("open o /o rw\nwatching begin v o 0 8");
        notifies.send("watching flood o 1000000");
        assert_eq!(stays.ok("watching wait w -"), "true");
        notifies.kill();
    }
    wait::until("all others are forgotten", || (host.status().clients <= 2).then_some(()));
    stays.ok("watching wait w 0");
    assert_eq!(stays.ok("watching wait w 0"), "false", "nobody notifies any more");
    stays.ok("watching many o 1000");
}

/// The next host process watches, and wakes once: what came between is not known. The descriptor stays the same.
#[test]
fn another_host_process_watches_on() {
    for kind in ["", "controlled", "strict", "explicit"] {
        let host = TestHost::start();
        let (one, other) = (host.worker(), host.worker());
        one.all(&format!(
            "create o /o size=4096 {kind}\nmap m o rw shared 0 0\nput m 0 1\nwatching begin w o 0 8"
        ));
        other.all("open o /o rw\nmap m o rw shared 0 0\nget m 0");
        for both in [false, true] {
            if both && kind.is_empty() {
                continue; // nobody begins another host for memory that needs none
            }
            one.send("watching wait w -");
            if both {
                host.kill_both();
                host.start_again().unwrap();
            } else {
                host.kill_host();
            }
            assert_eq!(one.answer().unwrap(), "true", "{kind} {both}");
            assert_eq!(one.ok("watching wait w 0"), "false", "{kind} {both}");
            assert_eq!(one.ok("watching polled w"), "false");
            other.ok("watching notify o 0 1");
            assert_eq!(one.ok("watching polled w"), "true");
            assert_eq!(one.ok("watching wait w 0"), "true");
        }
    }
}

/// One that has no time asks for the next host; one that has some returns before there is one.
#[test]
fn a_wait_ends_in_time_while_another_thread_waits_without_end() {
    let host = TestHost::start();
    let client = host.connect();
    let options = CreateOptions { size_bytes: PAGE as u64, controlled: true, ..CreateOptions::default() };
    let watch = client.create("/o", &options, None).unwrap().watch(0, 8).unwrap();
    host.kill_both();
    std::thread::scope(|threads| {
        let endless = threads.spawn(|| watch.wait(None));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!watch.wait(Some(Instant::now() + Duration::from_millis(200))).unwrap());
        host.start_again().unwrap();
        assert!(endless.join().unwrap().unwrap());
    });
    assert!(!watch.wait(Some(Instant::now())).unwrap(), "one wake for both");
}

#[test]
fn an_upgrade_of_the_host_is_a_wake() {
    let host = TestHost::start();
    let (one, other) = (host.worker(), host.worker());
    one.all("create o /o size=4096\nwatching begin w o 0 8");
    let before = host.status().host_pid;
    host.command(&["host", "restart"], |_| {}).unwrap();
    host.wait_for_other_host(before);
    wait::until("the descriptor says so", || (one.ok("watching polled w") == "true").then_some(()));
    // Until the next host has answered, who has no time is told nothing.
    wait::until("it is a wake", || (one.ok("watching wait w 0") == "true").then_some(()));
    other.all("open o /o rw\nwatching notify o 0 1");
    assert_eq!(one.ok("watching wait w 0"), "true");
}

/// A notification that returned is not lost with the process of any host: who was to hear it is woken.
#[test]
fn no_notification_is_lost_with_a_host_process() {
    for how in ["central", "forwarding", "explicit"] {
        let hosts = cluster(3);
        let workers = sharers(&hosts, PAGE as u64, how);
        for (killed, notifies, waits) in [(0, 1, 2), (0, 0, 1), (1, 1, 2), (2, 1, 2), (1, 2, 0)] {
            workers[waits].ok("watching at w m 0 8");
            workers[waits].send("watching wait w -");
            workers[notifies].send("watching notify o 0 1");
            let before = hosts[killed].status().host_pid;
            hosts[killed].kill_host();
            workers[notifies].answer().unwrap_or_else(|why| panic!("{how} {killed} {notifies}: {why:?}"));
            assert_eq!(workers[waits].answer().unwrap(), "true", "{how} {killed} {notifies}");
            hosts[killed].wait_for_other_host(before);
            // And all go on.
            workers.iter().for_each(|worker| drop(worker.eventually("watching notify o 0 1")));
        }
    }
}

/// A machine is lost, maybe with what it was to say: all that wait for the object look.
#[test]
fn a_lost_machine_wakes_who_waits() {
    let mut hosts = brief_cluster(3);
    let workers = sharers(&hosts, PAGE as u64, "central");
    let local = another(&hosts[0], "/shared");
    local.all("create p /local size=4096\nwatching begin w p 0 8");
    workers[0].all("get m 0\nwatching at w m 0 8");
    workers[1].all("get m 0\nwatching at w m 0 8");
    workers[0].send("watching wait w -");
    workers[1].send("watching wait w -");
    let machine = hosts.remove(2);
    kill_together(&[machine.processes(), vec![workers[2].pid()]].concat());
    assert_eq!(workers[0].answer().unwrap(), "true");
    assert_eq!(workers[1].answer().unwrap(), "true");
    assert_eq!(local.ok("watching wait w 0"), "false", "no other host has that");
}
