//! Hosts of different machine types share objects: byte orders, and floats of a VAX (`docs/TYPES.md`).

use commonhold_tests::cluster::{cluster_where, counts, sharers_of};
use commonhold_tests::typed::{self, PAGES, is_stored, numbers};
use commonhold_tests::{PAGE, TestHost, Worker};

const TYPES: [&str; 3] = ["little-ieee", "big-ieee", "vax"];
/// Hosts of these machine types, the first of which keeps the list.
fn hosts_of(types: &[&str]) -> Vec<TestHost> {
    cluster_where(types.len(), |number| vec!["--machine".to_owned(), types[number].to_owned()])
}

/// A worker on each host with the object mapped as `m`, whose pages got their tags before others opened it.
fn typed_sharers(hosts: &[TestHost], name: &str, options: &str) -> Vec<Worker> {
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[0].ok(&format!("create o {name} {options}"));
    typed::tag_all(&workers[0]);
    for (number, worker) in workers.iter().enumerate() {
        if number > 0 {
            worker.eventually(&format!("open o {name} rw"));
        }
        worker.ok("map m o rw shared 0 0");
    }
    workers
}

fn translated(host: &TestHost) -> u64 {
    host.status().translated.pages
}

#[test]
fn each_type_is_the_same_number_on_each_machine() {
    for options in ["central", "strict", "explicit"] {
        let hosts = hosts_of(&TYPES);
        let workers = typed_sharers(&hosts, "/shared", &format!("size={} {options}", PAGES * 4096));
        // Each writes what the other two read, and write in turn.
        for (round, writer) in [0, 1, 2, 1, 0].into_iter().enumerate() {
            let seed = round as u64 + 1;
            numbers(&workers[writer], "fill", seed, TYPES[writer]);
            if options == "explicit" {
                workers[writer].ok(&format!("sync o 0 {}", PAGES * 4096));
            }
            for (reader, worker) in workers.iter().enumerate() {
                numbers(worker, "check", seed, TYPES[reader]);
            }
        }
        for host in &hosts {
            let losses = host.status().translated.losses;
            assert_eq!(losses.count(), 0, "{options}: {losses:?}");
        }
    }
}

#[test]
fn a_page_is_translated_once_for_a_host_of_another_type_and_never_for_others() {
    for (options, is_central) in [("central", true), ("strict", false)] {
        let hosts = hosts_of(&["little-ieee", "big-ieee", "little-ieee"]);
        let options = format!("size={} {options}", PAGES * 4096);
        let workers = typed_sharers(&hosts, "/shared", &options);
        numbers(&workers[0], "fill", 1, "little-ieee");
        for worker in [1, 2, 1, 2, 0] {
            numbers(&workers[worker], "check", 1, ["little-ieee", "big-ieee", "little-ieee"][worker]);
        }
        // All but the page of bytes.
        assert_eq!([0, 1, 2].map(|host| translated(&hosts[host])), [0, PAGES - 1, 0], "{options}");
        assert_eq!(counts(&hosts[1], "/shared").counts.translated.pages, PAGES - 1);
        // Under the central scheduler the right to write a page that is there comes without bytes. By forwarding the page comes
        // once more, with its ownership.
        numbers(&workers[1], "fill", 1, "big-ieee");
        numbers(&workers[1], "check", 1, "big-ieee");
        let come = if is_central { PAGES - 1 } else { 2 * (PAGES - 1) };
        assert_eq!([0, 1, 2].map(|host| translated(&hosts[host])), [0, come, 0], "{options}");
    }
}

#[test]
fn what_has_no_tag_is_bytes_everywhere() {
    for options in ["central", "strict", "explicit"] {
        let hosts = hosts_of(&TYPES);
        let workers = sharers_of(&hosts, "/shared", &format!("size={} {options}", PAGES * 4096));
        workers[0].all(&format!("fill m 0 {PAGES} 1\nsync o 0 {}", PAGES * 4096));
        for worker in &workers {
            worker.ok(&format!("check m 0 {PAGES} 1"));
        }
        workers[2].all(&format!("fill m 0 {PAGES} 2\nsync o 0 {}", PAGES * 4096));
        workers[0].ok(&format!("check m 0 {PAGES} 2"));
        hosts.iter().for_each(|host| assert_eq!(translated(host), 0));
    }
}

#[test]
fn what_has_no_counterpart_is_counted_where_it_comes() {
    let hosts = hosts_of(&["little-ieee", "vax"]);
    let home = hosts[0].worker();
    home.all("create o /odd size=4096 central\ntag o 0 0 float64\nmap m o rw shared 0 0");
    let odd = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, 1e-300, -0.0, 1.5];
    for (index, byte) in odd.iter().flat_map(|number| number.to_le_bytes()).enumerate() {
        home.ok(&format!("put m {index} {byte}"));
    }
    let other = hosts[1].worker();
    other.eventually("open o /odd rw");
    other.all("map m o rw shared 0 0\nget m 0");
    let seen = counts(&hosts[1], "/odd").counts.translated;
    assert_eq!(seen, hosts[1].status().translated);
    let losses = seen.losses;
    assert_eq!((seen.pages, losses.overflows, losses.underflows), (1, 3, 1));
    assert_eq!((losses.nans, losses.negative_zeros, losses.rounded), (1, 1, 0));
    assert_eq!(hosts[0].status().translated.pages, 0);
    let told = hosts[1].command(&["stat", "/odd"], |_| {}).unwrap();
    assert!(told.contains("3 too large, 1 too small, 1 not a number, 1 -0"), "{told}");
}

#[test]
fn tags_that_cannot_be_are_refused() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok("create o /typed size=10000 controlled");
    for (line, words) in [
        ("tag o 100 4096 int32", "a part of one"),
        ("tag o 0 100 int32", "a part of one"),
        ("tag o 0 16384 int32", "not all within"),
        ("tag o 12288 0 int32", "not all within"),
        ("tag o 0 0 int24", "no tag that is known"),
        ("tag o 0 0 complex", "no tag that is known"),
        ("tag o 0 0 #00000000deadbeef", "no tag that is known"),
        ("tag o 0 0 {24: 4 float64}", "a record of 24 bytes does not fit pages"),
        ("tag o 0 0 {10: 0 int16, 2 int64}", "a record of 10 bytes does not fit pages"),
    ] {
        let why = worker.refused(line, "Invalid");
        assert!(why.contains(words), "{line}: {why}");
    }
    assert_eq!(worker.ok("tags o"), "");
    worker.all(
        "tag o 0 4096 {24: 0 int32, 8 float64*2}\ntag o 8192 0 float32\ntag-name /typed 4096 4096 offset",
    );
    assert_eq!(worker.ok("tags o"), "0 4096 {24: 0 int32, 8 float64*2}; 4096 4096 offset; 8192 4096 float32");
    worker.ok("tag o 0 0 bytes");
    assert_eq!(worker.ok("tags o"), "");
    let reader = host.worker();
    reader.ok("open p /typed r");
    reader.refused("tag p 0 0 int32", "Permission");
    worker.ok("create w /wired size=8192 wired");
    worker.all("tag w 0 4096 int64\ncreate d /direct size=4096\ntag d 0 0 int64");
    assert_eq!(worker.ok("tags w"), "0 4096 int64");
    assert_eq!(worker.ok("tags d"), "0 4096 int64");
}

#[test]
fn tags_do_not_change_while_another_host_has_the_object() {
    for options in ["central", "strict", "explicit"] {
        let hosts = hosts_of(&TYPES);
        let workers = typed_sharers(&hosts, "/shared", &format!("size={} {options}", PAGES * 4096));
        numbers(&workers[1], "fill", 1, TYPES[1]);
        workers[1].ok(&format!("sync o 0 {}", PAGES * 4096));
        // Also where it is said on one of them.
        for worker in &workers {
            let why = worker.refused("tag o 0 4096 int32", "Busy");
            assert!(why.contains("host1, host2") && why.contains("Close it there"), "{why}");
        }
        for worker in &workers[1..] {
            worker.all("drop m\nclose o");
        }
        workers[0].eventually("tag o 0 4096 int32");
        workers[0].ok("numbers fill m 0 1 2 little-ieee int32");
        workers[0].ok(&format!("sync o 0 {}", PAGES * 4096));
        // By its name, from a host that does not have it open.
        workers[1].ok("tag-name /shared 4096 4096 bytes");
        workers[2].all("open o /shared rw\nmap m o rw shared 0 0\nnumbers check m 0 1 2 vax int32");
        workers[2].ok(&format!("numbers check m 9 2 1 vax {}", "float64"));
        workers[1].all("open o /shared rw\nmap m o rw shared 0 0\nnumbers check m 0 1 2 big-ieee int32");
        assert!(workers[1].ok("tags o").starts_with("0 4096 int32; 8192 4096 int64"), "{options}");
    }
}

#[test]
fn an_unknown_machine_type_is_refused() {
    let scratch = commonhold_tests::Scratch::new();
    let state = scratch.join("state");
    let host = TestHost::not_started(scratch, state, &["--machine", "pdp-11"], &[]);
    let why = host.start_again().unwrap_err();
    assert!(why.contains("pdp-11") && why.contains("little-ieee, big-ieee, vax"), "{why}");
}

#[test]
fn a_peer_of_an_unknown_machine_type_is_refused() {
    let hosts = hosts_of(&["little-ieee", "big-ieee"]);
    let address = commonhold_tests::cluster::address_of(&hosts[0]);
    let stranger =
        commonhold_tests::stranger::Stranger::speaking(77, "odd", |hello| hello.machine = "pdp-11".into());
    let why = stranger.connect(&address).unwrap_err().message;
    assert!(why.contains("\"pdp-11\"") && why.contains("little-ieee, big-ieee, vax"), "{why}");
    commonhold_tests::cluster::until_says(&hosts[0], "odd|pdp-11");
    // Of a known one it is let in.
    let stranger =
        commonhold_tests::stranger::Stranger::speaking(78, "even", |hello| hello.machine = "vax".into());
    stranger.connect(&address).unwrap();
}

#[test]
fn a_home_that_is_killed_has_its_numbers_again() {
    for options in ["central", "strict", "explicit"] {
        let hosts = hosts_of(&TYPES);
        let workers = typed_sharers(&hosts, "/shared", &format!("size={} {options}", PAGES * 4096));
        numbers(&workers[1], "fill", 1, TYPES[1]);
        if options == "explicit" {
            workers[1].ok(&format!("sync o 0 {}", PAGES * 4096));
        }
        let pid = hosts[0].status().host_pid;
        hosts[0].kill_host();
        hosts[0].wait_for_other_host(pid);
        for (reader, worker) in workers.iter().enumerate() {
            numbers(worker, "check", 1, TYPES[reader]);
        }
        numbers(&workers[2], "fill", 2, TYPES[2]);
        if options == "explicit" {
            workers[2].eventually(&format!("sync o 0 {}", PAGES * 4096));
        }
        // The one that has the newest dies, and gives it back.
        let pid = hosts[2].status().host_pid;
        hosts[2].kill_host();
        hosts[2].wait_for_other_host(pid);
        for (reader, worker) in workers.iter().enumerate() {
            numbers(worker, "check", 2, TYPES[reader]);
        }
    }
}

#[test]
fn pages_beyond_memory_come_back_as_the_same_numbers() {
    let more = |number: usize| {
        let machine = ["--machine", TYPES[number]];
        [&machine[..], &["--budget", "4194304"]].concat().into_iter().map(str::to_owned).collect()
    };
    let (pages, bytes) = (2048, 2048 * PAGE);
    for options in ["central", "strict", "explicit"] {
        let hosts = cluster_where(3, more);
        let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
        workers[0].all(&format!(
            "create o /large size={bytes} {options}\ntag o 0 0 float64\nmap m o rw shared 0 0"
        ));
        for worker in &workers[1..] {
            worker.eventually("open o /large rw");
            worker.ok("map m o rw shared 0 0");
        }
        workers[1].all(&format!("numbers fill m 0 {pages} 1 big-ieee float64\nsync o 0 {bytes}"));
        workers[2].ok(&format!("numbers check m 0 {pages} 1 vax float64"));
        workers[0].ok(&format!("numbers check m 0 {pages} 1 little-ieee float64"));
        workers[1].ok(&format!("numbers check m 0 {pages} 1 big-ieee float64"));
    }
}

/// The file of an object has the format of the home that gave it tags, whichever home it has later.
#[test]
fn a_file_keeps_its_format_when_its_home_becomes_another_machine() {
    for sync in ["ordered", "atomic"] {
        let scratch = commonhold_tests::Scratch::new();
        let file = scratch.file("numbers", PAGES * 4096);
        let state = scratch.join("state");
        let started = |machine: &str| {
            let host = TestHost::not_started(
                commonhold_tests::Scratch::new(),
                state.clone(),
                &["--machine", machine],
                &[],
            );
            host.start_again().map(|()| host)
        };
        let host = started("big-ieee").unwrap();
        let worker = host.worker();
        worker.ok(&format!("create o /stored file={} sync={sync}", file.display()));
        typed::tag_all(&worker);
        worker.ok("map m o rw shared 0 0");
        numbers(&worker, "fill", 1, "big-ieee");
        worker.ok(&format!("sync o 0 {}", PAGES * 4096));
        assert_eq!(host.status().stored_translated.pages, 0);
        // Its memory may be needed still: another type waits for an orderly end.
        host.kill_both();
        let why = started("vax").err().unwrap();
        assert!(why.contains("--machine big-ieee"), "{why}");
        drop(worker);
        host.start_again().unwrap();
        stop(&host);
        let host = started("vax").unwrap();
        let worker = host.worker();
        worker.all("open o /stored rw\nmap m o rw shared 0 0");
        numbers(&worker, "check", 1, "vax");
        numbers(&worker, "fill", 2, "vax");
        let why = worker.refused("tag o 0 0 float64", "Invalid");
        assert!(why.contains("stored is in the format of a big-ieee machine"), "{why}");
        worker.ok(&format!("sync o 0 {}", PAGES * 4096));
        assert_eq!(worker.ok("revert /stored"), "0");
        numbers(&worker, "check", 2, "vax");
        is_stored(&file, 2, "big-ieee");
        assert!(host.status().stored_translated.pages > 0);
        // A process of the host dies between a sync and the next: what is redone is in the format of the file.
        let pid = host.status().host_pid;
        numbers(&worker, "fill", 3, "vax");
        worker.ok(&format!("sync o 0 {}", PAGES * 4096));
        host.kill_host();
        host.wait_for_other_host(pid);
        numbers(&worker, "check", 3, "vax");
        drop(worker);
        stop(&host);
        let host = started("big-ieee").unwrap();
        let worker = host.worker();
        worker.all("open o /stored rw\nmap m o rw shared 0 0");
        numbers(&worker, "check", 3, "big-ieee");
        is_stored(&file, 3, "big-ieee");
        drop(worker);
        stop(&host);
    }
}

fn stop(host: &TestHost) {
    commonhold_tests::wait::until("the host stops", || {
        host.command(&["host", "stop", "--force"], |_| {}).ok()
    });
}
