//! The last process of a host closes an object of another: all that it wrote comes home, whatever keeps it from leaving at
//! once. What is looked at is what pages hold, never how long it took.

use commonhold_tests::cluster::{cluster, leased_cluster, sharers_from, until_says};
use commonhold_tests::cut::cut_connections;
use commonhold_tests::host::signal;
use commonhold_tests::{MIB, TestHost, Worker, left_out, wait};
use std::time::Duration;

/// Two hosts, the first of which keeps the list and is the home, and their workers, with an object mapped as `m`.
fn shared(size_bytes: u64, options: &str) -> (Vec<TestHost>, Vec<Worker>) {
    let hosts = leased_cluster(2, 120);
    let workers = sharers_from(&hosts, 0, "/shared", &format!("size={size_bytes} strict {options}"));
    (hosts, workers)
}

/// A process that is stopped until this is dropped.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Stopped {
        signal(pid, libc::SIGSTOP);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, libc::SIGCONT);
    }
}

/// The home stands still, and the other host cannot reach it until this is dropped.
fn home_that_is_away(hosts: &[TestHost]) -> Option<Stopped> {
    let home = Stopped::new(hosts[0].status().host_pid);
    if cut_connections(hosts[1].status().host_pid) == 0 {
        left_out("connections of another process cannot be cut here");
        return None;
    }
    until_says(&hosts[1], "host0 cannot be reached");
    Some(home)
}

#[test]
fn what_is_within_its_minimum_hold_comes_home_when_that_is_over() {
    let (_hosts, workers) = shared(MIB, "hold-us=900000");
    workers[0].ok("fill m 0 10 1");
    workers[1].all("fill m 0 10 2\ndrop m\nclose o");
    workers[0].ok("check m 0 10 2");
}

/// More than may be on its way at once, to a home that takes nothing for a while.
#[test]
fn what_a_slow_home_cannot_take_at_once_comes_home_when_it_can() {
    let pages = 20_000;
    let (hosts, workers) = shared(pages * 4096, "");
    workers[1].ok(&format!("fill m 0 {pages} 1"));
    let home = Stopped::new(hosts[0].status().host_pid);
    workers[1].all("drop m\nclose o");
    std::thread::sleep(Duration::from_secs(2)); // what would leave at once has left
    drop(home);
    workers[0].ok(&format!("check m 0 {pages} 1"));
    assert!(!hosts[1].log().contains("may be lost"), "{}", hosts[1].log());
}

/// Pages of 2 MiB, the last of which is short: what is on its way of that one keeps no other from leaving.
#[test]
fn large_pages_leave_after_a_short_one() {
    let pages = 2 * 512 + 100;
    let (_hosts, workers) = shared(pages * 4096, "page-size=2097152");
    workers[1].ok(&format!("fill m 0 {pages} 1"));
    workers[0].ok("fill m 1024 1 2"); // the last page goes home
    workers[1].all("drop m\nclose o");
    // It can be opened again when all of it has left, which nobody asked for.
    workers[1].eventually("open o /shared rw");
    workers[1].all("map m o rw shared 0 0\ncheck m 0 1024 1");
    workers[0].all("check m 0 1024 1\ncheck m 1024 1 2\ncheck m 1025 99 1");
}

/// The home is away when the object is closed, and the process that has the pages dies.
#[test]
fn what_waits_for_its_home_outlives_the_process() {
    let (hosts, workers) = shared(MIB, "");
    workers[1].ok("fill m 0 200 1");
    let Some(home) = home_that_is_away(&hosts) else { return };
    workers[1].all("drop m\nclose o");
    hosts[1].kill_host();
    hosts[1].status(); // of the next process
    drop(home);
    workers[0].ok("check m 0 200 1");
    workers[1].eventually("open o /shared rw");
    workers[1].all("map m o rw shared 0 0\ncheck m 0 200 1");
}

/// A host is stopped while its processes use what they wrote: the home gets it first, however the host is told.
#[test]
fn what_is_mapped_comes_home_before_a_host_ends() {
    for by_signal in [false, true] {
        let (hosts, workers) = shared(4 * MIB, "");
        workers[0].ok("fill m 0 1000 1");
        workers[1].ok("fill m 100 800 2");
        if by_signal {
            signal(hosts[1].status().host_pid, libc::SIGTERM);
        } else {
            hosts[1].command(&["host", "stop", "--force"], |_| {}).expect("it stops");
        }
        workers[0].all("check m 0 100 1\ncheck m 100 800 2\ncheck m 900 100 1");
        until_says(&hosts[0], "host1 is lost");
        assert!(!hosts[0].log().contains("are lost with"), "{}", hosts[0].log());
    }
}

/// A home that cannot be reached is not waited for; what it does not get is told.
#[test]
fn a_host_that_is_to_stop_does_not_wait_for_a_home_that_is_away() {
    let (hosts, workers) = shared(MIB, "");
    workers[1].ok("fill m 0 20 2");
    let Some(_home) = home_that_is_away(&hosts) else { return };
    hosts[1].command(&["host", "stop", "--force"], |_| {}).expect("it stops");
    let told = hosts[1].log();
    assert!(told.contains("what is newest here could not be given to"), "what is lost is told: {told}");
}

/// A host does not end in order while pages that it has newest are on their way.
#[test]
fn a_host_stops_when_all_is_home() {
    let (hosts, workers) = shared(MIB, "");
    workers[1].ok("fill m 0 200 1");
    let home = Stopped::new(hosts[0].status().host_pid);
    workers[1].all("drop m\nclose o");
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| hosts[1].command(&["host", "stop"], |_| {}));
        std::thread::sleep(Duration::from_secs(1));
        drop(home);
        stop.join().expect("it ran").expect("it stops");
    });
    workers[0].ok("check m 0 200 1");
}

/// The last process that uses the object closes it, and another of that host opens it at once. The host may be looking for the
/// home still when the object is closed.
#[test]
fn what_is_closed_and_opened_at_once_is_never_refused() {
    let hosts = cluster(2);
    let home = hosts[0].worker();
    let workers = [hosts[1].worker(), hosts[1].worker()];
    for (name, options) in [("/central", "central"), ("/forwarded", "forwarding"), ("/explicit", "explicit")]
    {
        home.ok(&format!("create h {name} size={} {options}", 4 * MIB));
        home.all("map m h rw shared 0 0\nfill m 0 100 1\nsync h 0 409600\ndrop m");
        workers[0].eventually(&format!("open o {name} r"));
        for number in 0..60 {
            let (last, next) = (&workers[number % 2], &workers[(number + 1) % 2]);
            last.ok("close o");
            next.ok(&format!("open o {name} r"));
            if number % 3 == 2 {
                next.all("map m o r shared 0 0\ncheck m 0 100 1\ndrop m");
            }
        }
        workers[0].ok("close o");
    }
}

/// The same of several processes that open it, in different ways, while others close it: none is given what the home then
/// refuses, for which it would cut the host off.
#[test]
fn who_opens_while_others_close_is_never_cut_off() {
    let hosts = cluster(2);
    let home = hosts[0].worker();
    let uses = [("r", "check m 0 4 1"), ("rw", "fill m 0 4 1"), ("r", "check m 3 1 1"), ("rw", "get m 0")];
    for options in ["central", "forwarding", "explicit"] {
        let (name, workers) = (format!("/{options}"), uses.map(|_| hosts[1].worker()));
        home.ok(&format!("create h {name} size={MIB} {options}"));
        home.all("map m h rw shared 0 0\nfill m 0 4 1\nsync h 0 16384\ndrop m");
        workers[0].eventually(&format!("open o {name} r"));
        workers[0].ok("close o");
        std::thread::scope(|scope| {
            for (worker, (rights, what)) in workers.into_iter().zip(uses) {
                let name = &name;
                scope.spawn(move || {
                    for _ in 0..40 {
                        worker.ok(&format!("open o {name} {rights}"));
                        worker.all(&format!("map m o {rights} shared 0 0\n{what}\ndrop m\nclose o"));
                    }
                });
            }
        });
    }
    assert!(!hosts[0].log().contains("may be lost"), "{}", hosts[0].log());
}

/// Objects are closed as soon as they are opened, most of them before their home is found. The home does not count them as used:
/// they end with their names.
#[test]
fn what_is_closed_before_its_home_is_found_can_end() {
    let hosts = cluster(2);
    let (home, other) = (hosts[0].worker(), hosts[1].worker());
    for options in ["central", "forwarding", "explicit"] {
        for number in 0..20 {
            let name = format!("/{options}{number}");
            home.ok(&format!("create h {name} size={MIB} {options}"));
            other.eventually(&format!("open o {name} r"));
            other.ok("close o");
            home.all(&format!("close h\nremove {name}"));
        }
    }
    wait::until("all have ended", || (hosts[0].status().objects == 0).then_some(()));
}

/// What the home's own processes use of an explicit object is found and ended again and again, until one of them has it open.
#[test]
fn objects_are_created_while_other_hosts_leave_others() {
    let hosts = cluster(2);
    let (home, other) = (hosts[0].worker(), hosts[1].worker());
    home.ok(&format!("create h /other size={MIB} explicit"));
    other.eventually("open o /other r");
    other.ok("close o");
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                other.all("open o /other r\nclose o");
            }
        });
        for number in 0..60 {
            let lines = [
                format!("create o /{number} size={MIB} explicit"),
                "close o".into(),
                format!("remove /{number}"),
            ];
            let refused = lines.iter().find_map(|line| home.ask(line).err());
            done.store(refused.is_some(), std::sync::atomic::Ordering::Relaxed);
            assert_eq!(refused, None, "{number}");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
