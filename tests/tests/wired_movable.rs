//! Wired objects that move while they are open: `docs/REAL-MEMORY.md`, Movable.

use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, ErrorKind, Name, ObjectId};
use commonhold_tests::huge::HugePages;
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, Worker};
use std::time::{Duration, Instant};

const KIB: u64 = 1024;

fn create(host: &TestHost, number: u64, kib: u64, more: &str) {
    let worker = host.worker();
    worker.ok(&format!("create o /w{number} size={} wired {more}", kib * KIB));
    worker.all("write-at o 16 z\nclose o");
    is_closed(&worker, &format!("/w{number}"));
}

fn movable(host: &TestHost, number: u64) -> Worker {
    let worker = host.worker();
    worker.ok(&format!("open-movable o /w{number} rw"));
    worker
}

fn is_closed(worker: &Worker, name: &str) {
    until("it is closed", || (worker.ok(&format!("stat {name} opens")) == "0").then_some(()));
}

fn place(worker: &Worker, name: &str) -> String {
    worker.ok(&format!("stat {name} place"))
}

fn numbers(said: &str) -> Vec<u64> {
    said.split(' ').map(|word| word.parse().unwrap_or_else(|_| panic!("{said}"))).collect()
}

#[test]
fn objects_move_under_who_uses_them_without_a_fault() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let asker = host.worker();
    for number in [1, 2] {
        create(&host, number, 64, "");
    }
    let users = [movable(&host, 1), movable(&host, 2)];
    users.iter().for_each(|user| user.send("work o 16 4000"));
    let (mut round, mut moves, mut before) =
        (0, 0, [1, 2].map(|number| place(&asker, &format!("/w{number}"))));
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        round += 1;
        for (number, before) in [1, 2].into_iter().zip(&mut before) {
            let name = format!("/w{number}");
            match (round + number) % 3 {
                0 => asker.ok(&format!("chmod {name} 6{}0", round % 2 * 4)),
                _ => asker.ok(&format!("resize {name} {}", (64 + round * 52 % 400) * KIB)),
            };
            let now = place(&asker, &name);
            moves += u64::from(now != std::mem::replace(before, now.clone()));
        }
    }
    assert!(moves > 20, "{moves} moves");
    for user in users {
        let said = user.answer().unwrap_or_else(|refused| panic!("{refused:?}"));
        let numbers = numbers(&said);
        assert!(numbers[0] > 1000 && numbers[1] > 20, "{said}");
    }
}

#[test]
fn what_is_open_movable_makes_room_and_goes_to_disk() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let asker = host.worker();
    for number in 0..8 {
        create(&host, number, 256, "");
        is_closed(&asker, &format!("/w{number}"));
    }
    for number in [1, 3, 5, 7] {
        asker.ok(&format!("remove /w{number}"));
    }
    let users: Vec<Worker> = [0, 2, 4, 6].map(|number| movable(&host, number)).into_iter().collect();
    for (n, user) in (1..).zip(&users) {
        user.ok(&format!("guarded o fill 0 64 {n}"));
    }
    // In place of what lies between them.
    asker.all(&format!("create big /big size={} wired\nmap m big rw shared 0 0\nno-faults m 0 256", MIB));
    assert_eq!(pool.free(), 0);
    for (n, user) in (1..).zip(&users) {
        user.ok(&format!("guarded o check 0 64 {n}"));
    }
    // And all of them, one after the other, where nothing lies between.
    asker.all(&format!(
        "create more /more size={} wired\nmap n more rw shared 0 0\nno-faults n 0 128",
        512 * KIB
    ));
    let on_disk = |number: u64| asker.ok(&format!("stat /w{number} spilled")) != "0";
    let away = [0, 2, 4, 6].into_iter().filter(|number| on_disk(*number)).count();
    assert!(away >= 2, "{away}");
    asker.all("drop n\nclose more\nremove /more");
    for (n, user) in (1..).zip(&users) {
        user.ok(&format!("guarded o check 0 64 {n}"));
    }
    // What a guard holds stays.
    users[0].ok("guard o");
    let before = place(&asker, "/w0");
    assert!(asker.ask(&format!("create x /x size={MIB} wired")).is_ok());
    assert_eq!((place(&asker, "/w0"), place(&asker, "/x").as_str()), (before, "-"));
    users[0].all("guarded o check 0 64 1\nleave o");
}

#[test]
fn modes_and_names_change_while_an_object_is_open_movable() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let asker = host.worker();
    create(&host, 1, 64, "mode=644");
    create(&host, 2, 64, "mode=644");
    let user = movable(&host, 1);
    user.ok("guarded o fill 0 16 1");
    let reader = host.worker_of(1234, 1234);
    reader.all("open-movable o /w1 r\nguarded o check 0 16 1");
    let arena = || place(&asker, "/w1").split(' ').next().unwrap().to_owned();
    let before = arena();
    asker.ok("chmod /w1 600");
    user.ok("guarded o check 0 16 1");
    assert!(arena() != before, "it lies with its like");
    reader.refused("guarded o check 0 16 1", "Permission");
    asker.ok("rename /w1 /d/w1");
    user.all("guarded o check 0 16 1\nguarded o fill 0 16 2");
    asker.all("open o /d/w1 rw\nmap m o rw shared 0 0\ncheck m 0 16 2");
    // Who has it mapped keeps it where it is.
    let said = asker.refused("rename /d/w1 /w1", "Busy");
    assert!(said.contains("close it first"), "{said}");
    asker.all("drop m\nclose o\nrename /d/w1 /w1\nremove /w1");
    user.ok("guarded o check 0 16 2");
}

#[test]
fn a_holder_that_does_not_answer_is_waited_for_by_nobody_else() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let asker = host.worker();
    create(&host, 1, 64, "");
    create(&host, 2, 64, "");
    let (user, quick) = (movable(&host, 1), movable(&host, 1));
    user.all("guarded o fill 0 16 1\nguard o");
    quick.ok("guarded o check 0 16 1");
    let before = place(&asker, "/w1");
    let began = Instant::now();
    asker.send("resize /w1 131072");
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..20 {
        host.worker().all("stat /w1 place\nopen o /w2 rw\nread-at o 0 1");
    }
    assert!(began.elapsed() < Duration::from_millis(1900), "others went on meanwhile");
    // Who answered is back when it is over.
    quick.ok("guarded o check 0 16 1");
    let refused = asker.answer().unwrap_err();
    assert!(began.elapsed() > Duration::from_millis(1500) && began.elapsed() < Duration::from_secs(5));
    assert_eq!((refused.kind.as_str(), place(&asker, "/w1")), ("Busy", before.clone()));
    // A late answer is one.
    user.all("guarded o check 0 16 1\nleave o");
    let began = Instant::now();
    asker.ok("resize /w1 131072");
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(place(&asker, "/w1") != before);
    for worker in [&user, &quick] {
        worker.ok("guarded o check 0 16 1");
    }
    // The last guard of several ends the wait; so does its holder's death.
    user.all("guard o\nguard o");
    asker.send("resize /w1 65536");
    assert_eq!(asker.answer().as_deref(), Ok(""), "shorter is in place");
    user.all("leave o\nleave o");
    user.refused("leave o", "Invalid");
    create(&host, 3, 64, "");
    user.ok("guard o");
    let began = Instant::now();
    asker.send("resize /w1 1048576");
    std::thread::sleep(Duration::from_millis(200));
    user.kill();
    assert_eq!(asker.answer().as_deref(), Ok(""));
    assert!(began.elapsed() < Duration::from_millis(1900));
    quick.ok("guarded o check 0 16 1");
}

#[test]
fn whoever_dies_an_object_is_whole_at_one_place() {
    let Some(_pool) = HugePages::more(8) else { return };
    let host = TestHost::start();
    for number in [1, 2] {
        create(&host, number, 64, "");
    }
    let (user, other, idle) = (movable(&host, 1), movable(&host, 2), movable(&host, 1));
    other.ok("guarded o fill 0 16 7");
    idle.ok("guard o");
    idle.ok("leave o");
    user.send("work o 16 6000");
    for round in 0..12 {
        let asker = host.worker();
        let pid = host.status().host_pid;
        for number in [1, 2] {
            asker.send(&format!("resize /w{number} {}", (64 + 4 * (round % 5)) * KIB));
            std::thread::sleep(Duration::from_millis(round * 3 % 7));
            if number == 1 + round % 2 {
                if round % 6 == 5 {
                    host.kill_both();
                    host.start_again().unwrap();
                } else {
                    host.kill_host();
                }
            }
            let _ = asker.answer();
        }
        host.wait_for_other_host(pid);
        other.ok("guarded o check 0 16 7");
    }
    let said = user.answer().unwrap_or_else(|refused| panic!("{refused:?}"));
    assert!(numbers(&said)[0] > 1000, "{said}");
    // It may move still, once all have said again that it may.
    let asker = host.worker();
    for number in [1, 2] {
        until("it may move", || asker.ask(&format!("resize /w{number} {}", 512 * KIB)).ok());
    }
    other.ok("guarded o check 0 16 7");
    idle.ok("work o 0 10");
}

#[test]
fn a_child_is_a_client_of_its_own() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let asker = host.worker();
    for number in [1, 2] {
        create(&host, number, 64, "");
    }
    let user = movable(&host, 1);
    user.ok("guarded o fill 0 16 1");
    user.ok("forks do guarded o check 0 16 1 then guarded o fill 0 16 2");
    user.ok("guarded o check 0 16 2");
    // While a child lives that does not use it, it moves.
    user.ok("orphan 600 guarded o fill 0 16 3");
    let before = place(&asker, "/w1");
    asker.ok("resize /w1 131072");
    assert!(place(&asker, "/w1") != before);
    until("the child has written", || user.ask("guarded o check 0 16 3").ok());
    // Under a guard of the forking thread the child has it where it is.
    user.ok("guard o");
    user.ok("forks do guarded o check 0 16 3 then leave o then guarded o fill 0 16 4");
    user.all("guarded o check 0 16 4\nleave o");
    until("the children are gone", || (asker.ok("stat /w1 opens") == "1").then_some(()));
    create(&host, 3, 64, "");
    asker.ok("resize /w1 1048576");
    user.ok("guarded o check 0 16 4");
}

#[test]
fn answers_that_nobody_asked_for_are_none() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let asker = host.worker();
    for number in [1, 2, 3] {
        create(&host, number, 64, "");
    }
    let user = movable(&host, 2);
    user.all("guarded o fill 0 16 2\nguard o");
    let looker = host.worker();
    let id = |name: &str| ObjectId(looker.ok(&format!("stat {name} id")).parse().unwrap());
    let mut raw = Raw::connect(&host);
    raw.ask(&Request::Hello { program: "hostile".into() }, &[]).unwrap().unwrap();
    let open = Request::Open { name: Name::new("/w1").unwrap(), access: Access::ReadWrite };
    raw.ask(&open, &[]).unwrap().unwrap();
    let said = raw.ask(&Request::Place { object: id("/w2") }, &[]).unwrap();
    assert_eq!(said.unwrap_err().kind, ErrorKind::NotFound, "it has that not open");
    let placed = raw.ask(&Request::Place { object: id("/w1") }, &[]).unwrap();
    let Ok(Reply::Placed { given, .. }) = placed else { panic!("{placed:?}") };
    // For another's object, under all numbers that may be; unasked, twice, for its own.
    asker.send("resize /w2 1048576");
    for number in 0..20 {
        assert!(raw.throw(&bytes_of(0, &Request::Released { object: id("/w2"), given: number }), &[]));
    }
    for number in given.saturating_sub(20)..given + 20 {
        assert!(raw.throw(&bytes_of(0, &Request::Released { object: id("/w2"), given: number }), &[]));
    }
    assert_eq!(asker.answer().unwrap_err().kind, "Busy");
    user.all("guarded o check 0 16 2\nleave o");
    // It answers nothing for what it has, and later twice.
    asker.refused("resize /w1 1048576", "Busy");
    for _ in 0..2 {
        assert!(raw.throw(&bytes_of(0, &Request::Released { object: id("/w1"), given }), &[]));
    }
    asker.all("resize /w1 1048576\nresize /w2 524288");
    user.ok("guarded o check 0 16 2");
}

#[test]
fn what_does_not_move_is_not_opened_so() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    create(&host, 1, 64, "");
    worker.all(&format!("create p /p size={MIB}\nclose p"));
    worker.refused("open-movable p /p rw", "Unsupported");
    worker.ok("open-movable o /w1 rw");
    worker.refused("map m o rw shared 0 0", "Invalid");
    worker.refused("leave o", "Invalid");
    worker.refused("open q /w1 rw", "Busy");
    worker.all("open-movable again /w1 rw\nguarded o fill 0 16 1\nguarded again check 0 16 1\nclose o\nguarded again check 0 16 1");
    worker.all("write-at again 5 xy");
    assert_eq!(worker.ok("read-at again 5 2"), "7879");
    worker.refused("read-at again 65535 2", "Invalid");
    worker.all("close again\nopen q /w1 rw\nmap m q rw shared 0 0");
    worker.refused("open-movable o /w1 rw", "Busy");
    worker.refused("guard q", "Invalid");
    drop(pool);
    let Some(_none) = HugePages::more(0) else { return };
    create(&host, 2, 64, "mode=640");
    let said = worker.refused("open-movable o /w2 rw", "Unsupported");
    assert!(said.contains("nr_hugepages"), "{said}");
}
