//! Stated limits: who reaches one is told which and what to do, and nobody else notices.

use commonhold_object::ErrorKind;
use commonhold_object::limits::MAPPINGS_PER_CLIENT;
use commonhold_object::wire::{Reply, Request};
use commonhold_tests::raw::Raw;
use commonhold_tests::{MIB, TestHost, Worker, page, wait};

#[test]
fn objects_and_quotas_of_a_user() {
    let host = TestHost::with(&["--max-objects", "5", "--quota", "8MiB"]);
    let worker = host.worker();
    for n in 0..4 {
        worker.ok(&format!("create o{n} /o{n} size=65536 controlled"));
    }
    let says = worker.refused("create p /p size=16777216 controlled", "Quota");
    assert!(says.contains("8388608"), "the limit is stated: {says}");
    worker.refused("create p /p size=16777216", "Quota");
    worker.ok("create p /p size=16777216 reserve=no");
    let says = worker.refused("create q /q size=65536", "Quota");
    assert!(says.contains('5'), "the limit is stated: {says}");
    worker.refused("resize /o0 16777216", "Quota");
    assert_eq!(worker.ok("info o0 size"), "65536");
    // What was refused took nothing of the quota, what is removed gives back.
    worker.all("close p\nremove /p\ncreate p /p size=8126464\nclose p\nremove /p\ncreate p /p size=8126464");
    assert_eq!(worker.ok("list /"), "/o0 /o1 /o2 /o3 /p");
}

#[test]
fn a_refused_creation_leaves_the_file_as_it_was() {
    let host = TestHost::with(&["--quota", "1MiB"]);
    let worker = host.worker();
    worker.ok("create o /taken size=4096 controlled");
    let file = host.scratch().file_of("file", b"small");
    for line in ["/taken size=65536", "/taken/x size=65536", "/quota size=16777216 reserve=yes"] {
        worker.ask(&format!("create p {line} file={}", file.display())).expect_err(line);
        assert_eq!(std::fs::read(&file).unwrap(), b"small", "{line}");
    }
    worker.ok(&format!("create p /grown size=65536 file={}", file.display()));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 65536);
}

#[test]
fn objects_that_are_removed_count_while_they_are_in_use() {
    let host = TestHost::with(&["--max-objects", "3"]);
    let worker = host.worker();
    for name in ["/a", "/b", "/c"] {
        worker.ok(&format!("create o {name} size=4096"));
    }
    let says = worker.refused("create o /d size=4096", "Quota");
    assert!(says.contains("3 objects, the limit: remove some"), "{says}");
    assert_eq!(worker.ok("list /"), "/a /b /c");
    worker.all("close o\nremove /b\ncreate o /d size=4096");
    worker.all("remove /d\nremove /c\ncreate p /e size=4096");
    worker.refused("create q /f size=4096", "Quota");
    worker.all("close o\ncreate q /f size=4096");
}

/// Clients as the host counts them, asked over a connection that is there already.
fn clients(raw: &mut Raw) -> u64 {
    match raw.ask(&Request::Status, &[]) {
        Some(Ok(Reply::Status(status))) => status.clients,
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_at_once() {
    let host = TestHost::with(&["--max-clients", "6"]);
    let workers: Vec<Worker> = (0..4).map(|_| host.worker()).collect();
    workers[0].all("create o /o size=65536 controlled\nmap m o rw shared 0 0\nfill m 0 16 1");
    let mut more: Vec<Raw> = (0..2).map(|_| Raw::connect(&host)).collect();
    wait::until("all are counted", || (clients(&mut more[0]) == 6).then_some(()));
    for _ in 0..2 {
        let refused = Raw::connect(&host).last_words().expect("an error");
        assert_eq!(refused.kind, ErrorKind::TooMany);
        let says = "6 clients, its limit: end some, or start it with --max-clients";
        assert!(refused.message.contains(says), "{refused}");
    }
    let refused = commonhold::Host::connect_to(host.state()).and_then(|host| host.status()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooMany, "{refused}");
    workers.iter().for_each(|worker| drop(worker.ok("list /")));
    workers[0].all("check m 0 16 1\nfill m 0 16 2\ncheck m 0 16 2");
    drop(more);
    // Who went makes room.
    wait::until("there is room again", || {
        commonhold::Host::connect_to(host.state()).and_then(|h| h.status()).ok()
    });
}

#[test]
fn mappings_of_a_client() {
    let host = TestHost::start();
    let (worker, other) = (host.worker(), host.worker());
    worker.ok(&format!("create o /x size={} controlled mode=600", 256 * MIB));
    // Every other page, so that no two of them are one.
    let offsets: Vec<String> = (0..=MAPPINGS_PER_CLIENT).map(|n| (n * 8192).to_string()).collect();
    let says = worker.refused(&format!("map-many o 4096 {}", offsets.join(" ")), "TooMany");
    assert!(says.contains("16384") && says.contains("unmap some, or map larger parts"), "{says}");
    assert_eq!(worker.ok("info o mappings"), "0", "all or none");
    worker.all("map m o rw shared 0 0\nfill m 0 10 1\ndrop m");
    other.all("open o /x rw\nmap m o rw shared 0 0\ncheck m 0 10 1");
}

#[test]
fn the_hosts_budget() {
    let host = TestHost::with(&["--budget", "4MiB"]);
    let worker = host.worker();
    worker.refused("create o /o size=65536 budget=8388608", "Invalid");
    worker.ok(&format!("create o /o size={} reserve=no controlled", 64 * MIB));
    worker.all("map m o rw shared 0 0\nfill m 0 2000 1\ncheck m 0 2000 1");
    assert!(host.status().resident_bytes <= 4 * MIB);
    // Everything held: who needs another page is told, by SIGBUS for a touch and an error for a call.
    worker.refused("lock o 0 8388608", "NoSpace");
    worker.ok("check m 0 2000 1");
}

/// Every descriptor that a host takes for a client goes with it.
#[test]
fn nothing_is_left_of_clients_that_are_gone() {
    let host = TestHost::start();
    let file = host.scratch().file_of("file", &page::bytes(0, 16, 1));
    let keeper = host.worker();
    keeper.ok(&format!("create o /o file={} sync=atomic", file.display()));
    let status = host.status();
    let open = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let one_more = || {
        let worker = host.worker();
        worker.all("open o /o rw\nmap m o rw shared 0 0\ncheck m 0 16 1\nfill m 0 1 1\nlock o 0 4096");
        worker.kill();
        wait::until("its mapping goes", || (keeper.ok("stat /o mappings") == "0").then_some(()));
    };
    one_more();
    wait::until("it is forgotten", || (host.status().clients == 2).then_some(()));
    let before = (open(status.host_pid), open(status.keeper_pid));
    for _ in 0..20 {
        one_more();
    }
    wait::until("nothing is left of them", || {
        let now = (open(status.host_pid), open(status.keeper_pid));
        (now.0 <= before.0 && now.1 <= before.1).then_some(())
    });
}

#[test]
fn a_deadline_of_an_external_pager_of_more_than_an_hour_is_refused() {
    let host = TestHost::start();
    let worker = host.worker();
    let says = worker.refused("create o /o size=65536 pager=/p pager-deadline=3600001", "Invalid");
    assert!(says.contains("the most is 3600000 ms, an hour"), "{says}");
    worker.ok("create o /o size=65536 pager=/p pager-deadline=3600000");
}

/// What the first eviction of a user's pages needs is taken with the user's first object: later
/// others may have it.
#[test]
fn evictions_need_no_descriptor_that_others_can_take() {
    let host = TestHost::by(&["prlimit", "--nofile=160:160"], &[]);
    let user = host.worker_of(40_001, 40_001);
    user.all("create o /o size=2097152 budget=1048576\nmap m o rw shared 0 0\nfill m 0 8 1");
    let taker = host.worker();
    let taken =
        (0..400).take_while(|n| taker.ask(&format!("create t{n} /t{n} size=4096 controlled")).is_ok());
    assert!(taken.count() < 400, "there is a limit");
    user.all("fill m 0 512 2\ncheck m 0 512 2\nfill m 0 512 3\ncheck m 0 512 3");
}
