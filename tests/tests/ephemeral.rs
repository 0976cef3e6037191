//! Ephemeral objects: their names, and they, go with their last user, however that ends (`docs/OBJECTS.md`).

use commonhold_tests::cluster::cluster;
use commonhold_tests::crash::rounds;
use commonhold_tests::{TestHost, Worker, wait};
use std::time::{Duration, Instant};

fn is_there(worker: &Worker, name: &str) -> bool {
    match worker.ask(&format!("stat {name} size")) {
        Ok(_) => true,
        Err(error) if error.kind == "NotFound" => false,
        Err(error) => panic!("{name}: {error:?}"),
    }
}

fn goes(worker: &Worker, name: &str) {
    wait::until("the name goes", || (!is_there(worker, name)).then_some(()));
}

/// Options of each kind of object.
const KINDS: &[&str] = &[
    "size=8192",
    "size=8192 controlled",
    "size=8192 freezable",
    "size=8192 budget=1048576 reserve=no",
    "size=8192 description=channel",
];

#[test]
fn a_name_goes_with_the_last_that_has_it_open_or_mapped() {
    let host = TestHost::start();
    let (first, second) = (host.worker(), host.worker());
    for kind in KINDS {
        first.ok(&format!("create o /e {kind} ephemeral=0"));
        first.all("map m o rw shared 0 0\nclose o");
        assert!(is_there(&second, "/e"), "{kind}: it is mapped");
        second.ok("open o /e rw");
        first.ok("unmap m 0 8192");
        first.ok("drop m");
        assert!(is_there(&first, "/e"), "{kind}: another has it open");
        second.all("map m o rw shared 0 0\nfill m 0 1 7\nclose o");
        assert!(is_there(&first, "/e"), "{kind}: another has it mapped");
        second.ok("drop m");
        goes(&first, "/e");
        // The name is free for another.
        first.ok("create o /e size=4096");
        first.all("close o\nremove /e");
    }
}

#[test]
fn it_lingers_for_as_long_as_it_was_told_to() {
    let host = TestHost::start();
    let (first, second) = (host.worker(), host.worker());
    let began = Instant::now();
    first.all("create o /e size=4096 ephemeral=1500\nclose o");
    assert!(is_there(&second, "/e"));
    std::thread::sleep(Duration::from_secs(1));
    second.all("open o /e rw\nclose o");
    goes(&second, "/e");
    assert!(began.elapsed() > Duration::from_millis(2400), "a use within that time begins it anew");
}

#[test]
fn it_goes_with_a_killed_process_and_not_with_a_killed_host() {
    let host = TestHost::start();
    let watches = host.worker();
    for (kind, linger_ms) in KINDS.iter().zip([0, 400, 0, 0, 400]) {
        let user = host.worker();
        user.ok(&format!("create o /e {kind} ephemeral={linger_ms}"));
        user.all("map m o rw shared 0 0\nclose o\nfill m 0 1 9");
        let before = host.status().host_pid;
        host.kill_host();
        host.wait_for_other_host(before);
        user.eventually("fill m 0 1 9");
        assert!(is_there(&watches, "/e"), "{kind}: it is mapped, and another host serves it");
        user.kill();
        goes(&watches, "/e");
        // Nobody is there to see the last one end.
        let user = host.worker();
        user.ok(&format!("create o /e {kind} ephemeral={linger_ms}"));
        let before = host.status().host_pid;
        host.kill_host();
        user.kill();
        host.wait_for_other_host(before);
        goes(&watches, "/e");
    }
}

#[test]
fn a_fork_child_is_a_user_of_its_own() {
    let host = TestHost::start();
    let watches = host.worker();
    watches.all("create f /flag size=4096\nmap flag f rw shared 0 0");
    for (round, kind) in KINDS.iter().filter(|kind| !kind.contains("channel")).enumerate() {
        let [forked, go, done] = [1, 2, 3].map(|word| 10 * round + word);
        let parent = host.worker();
        parent.all(&format!("open f /flag rw\nmap flag f rw shared 0 0\ncreate o /e {kind} ephemeral=0"));
        parent.all("map m o rw shared 0 0\nfill m 0 1 9");
        parent.send(&format!(
            "forks do put flag 0 {forked} then await flag 0 {go} then check m 0 1 9 then put flag 0 {done}"
        ));
        watches.ok(&format!("await flag 0 {forked}"));
        parent.kill();
        std::thread::sleep(Duration::from_millis(300));
        assert!(is_there(&watches, "/e"), "{kind}: the child has it");
        watches.all(&format!("put flag 0 {go}\nawait flag 0 {done}"));
        goes(&watches, "/e");
    }
}

#[test]
fn users_on_other_hosts_are_users() {
    let hosts = cluster(2);
    let (at_home, elsewhere) = (hosts[0].worker(), hosts[1].worker());
    at_home.ok("create o /e size=8192 strict ephemeral=0");
    elsewhere.all("open o /e rw\nmap m o rw shared 0 0\nfill m 0 1 3");
    at_home.ok("close o");
    assert!(is_there(&at_home, "/e"));
    assert!(is_there(&elsewhere, "/e"));
    elsewhere.kill();
    goes(&at_home, "/e");
    goes(&hosts[1].worker(), "/e");
}

#[test]
fn the_file_of_one_stays() {
    let host = TestHost::start();
    let worker = host.worker();
    let file = host.scratch().file("kept", 8192);
    worker.ok(&format!("create o /e file={} sync=atomic ephemeral=0", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 1 5\nsync o 0 8192\nclose o\ndrop m");
    goes(&worker, "/e");
    assert_ne!(std::fs::read(&file).expect("it is there")[0], 0);
}

/// Who opens it as the last one closes it has it, and so does everybody who asks by its name; or it was gone.
#[test]
fn who_finds_it_by_its_name_has_the_one_that_others_find() {
    let host = TestHost::start();
    let workers: Vec<Worker> = (0..3).map(|_| host.worker()).collect();
    let checks = host.worker();
    std::thread::scope(|scope| {
        for worker in workers {
            scope.spawn(move || {
                for _ in 0..rounds(400) {
                    for line in ["open o /e rw", "create o /e size=4096 ephemeral=0"] {
                        match worker.ask(line) {
                            Ok(_) => {
                                let mine = worker.ok("info o id");
                                assert_eq!(worker.ok("stat /e id"), mine);
                                worker.ok("close o");
                            }
                            Err(error) => {
                                assert!(["NotFound", "Exists"].contains(&&*error.kind), "{error:?}")
                            }
                        }
                    }
                }
            });
        }
    });
    goes(&checks, "/e");
}

#[test]
fn what_goes_with_its_last_user_has_one_home() {
    let host = TestHost::start();
    let worker = host.worker();
    let text = worker.refused("create o /e size=4096 strict home-moves replicas=1 ephemeral=0", "Invalid");
    assert!(text.contains("ephemeral"), "{text}");
    assert!(!is_there(&worker, "/e"));
}
