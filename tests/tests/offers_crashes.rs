//! Objects in flight while clients, hosts and keepers are killed or stopped, and while the disk is full. Nothing that was sent is
//! lost or another's, and nothing stays of what nobody can receive any more.

use commonhold_object::wire::{Offered, Reply, Request};
use commonhold_object::{Access, Name, ObjectId};
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::host::{kill, signal, stop};
use commonhold_tests::huge::HugePages;
use commonhold_tests::raw::Raw;
use commonhold_tests::scratch::RamDisk;
use commonhold_tests::wait::until;
use commonhold_tests::{Scratch, TestHost, Worker, is_root, left_out};

const PAGE: u64 = 4096;

fn files(host: &TestHost, folder: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(host.state().join(folder)) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn offers(host: &TestHost) -> usize {
    files(host, "live").iter().filter(|name| name.contains(".offer-")).count()
}

/// No note of what was in flight, nothing set aside, and so many objects.
fn nothing_is_left(host: &TestHost, objects: u64) {
    let is_note = |name: &String| [".record", ".offer-", ".of"].iter().any(|part| name.contains(part));
    until("no note is left", || (!files(host, "live").iter().any(is_note)).then_some(()));
    until("all others ended", || (host.status().objects == objects).then_some(()));
    assert_eq!(files(host, "set-aside"), Vec::<String>::new());
}

fn sender(host: &TestHost, ring: u64) -> Worker {
    let sender = host.worker();
    sender.ok(&format!("channel create c /c/ch {ring} mode=666"));
    sender
}

fn receiver(host: &TestHost) -> Worker {
    let receiver = host.worker();
    receiver.ok("channel open c /c/ch");
    receiver
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn what_its_receiver_may_not_have_goes_with_the_message() {
    if !is_root("processes of two users") {
        return;
    }
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let sender = sender(&host, 65536);
    let receiver = host.worker_of(65534, 65534);
    receiver.ok("channel open c /c/ch");
    sender.ok("create o /o size=4096 wired mode=600");
    for _ in 0..3 {
        sender.ok("channel object c 1 mine o r 1000");
        let said = receiver.refused("channel receive c 1000", "Permission");
        assert!(said.contains("the message is dropped"), "{said}");
    }
    assert_eq!(offers(&host), 0, "nobody can take what no message says any more");
    sender.ok("create-nameless n size=4096");
    sender.all("channel object c 2 yours n rw 1000\nclose n");
    assert_eq!(receiver.ok("channel receive c 1000 as=n"), "2 yours object 4096 rw");
    receiver.ok("close n");
    sender.all("close o\nremove /o");
    nothing_is_left(&host, 1);
}

/// Who offers and dies before the message leaves an offer that nobody takes: as who receives the message, and dies before he takes.
fn orphans(host: &TestHost, object: ObjectId, count: u128) {
    let mut raw = Raw::connect(host);
    raw.ask(&Request::Hello { program: "raw".into() }, &[]).unwrap().unwrap();
    let open = |name: &str| Request::Open { name: Name::new(name).unwrap(), access: Access::ReadWrite };
    let (reply, _) = raw.ask_for(&open("/c/ch"));
    let Reply::Opened(channel) = reply else { panic!("{reply:?}") };
    raw.ask_for(&open("/o"));
    for token in 1..=count {
        let what = Offered::Object { object, access: Access::Read };
        raw.ask(&Request::Offer { channel: channel.info.id, token, what }, &[]).unwrap().unwrap();
    }
}

#[test]
fn who_died_with_offers_leaves_room_for_others() {
    let host = TestHost::start();
    let sender = sender(&host, 4096);
    let receiver = receiver(&host);
    sender.ok("create o /o size=4096");
    let object = ObjectId(sender.ok("info o id").parse().unwrap());
    orphans(&host, object, 1100);
    // The order of what is in flight outlives the host: the oldest go first.
    sender.ok("channel object c 7 first o r 1000");
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    for number in 0..90 {
        sender.ok(&format!("channel object c {number} more o r 1000"));
    }
    assert_eq!(receiver.ok("channel receive c 1000"), "7 first object 4096 r");
    for number in 0..90 {
        assert_eq!(receiver.ok("channel receive c 1000"), format!("{number} more object 4096 r"));
    }
    for number in 0..1100 {
        sender.ok(&format!("channel object c {number} more o r 1000"));
        assert_eq!(receiver.ok("channel receive c 1000"), format!("{number} more object 4096 r"));
    }
    assert!(offers(&host) <= 130, "{} offers", offers(&host));
    sender.all("close o\nremove /o\nremove /c/ch\nchannel close c");
    receiver.ok("channel close c");
    nothing_is_left(&host, 0);
}

/// Sessions that took, and channels with messages in flight, end while the host is killed.
#[test]
fn ends_that_are_cut_short_leave_nothing() {
    let host = TestHost::start();
    let mut chance = Chance::new("ends of takers and channels");
    for round in 0..rounds(8) {
        let sender = sender(&host, 65536);
        let receivers = [receiver(&host), receiver(&host)];
        sender.ok(&format!("create o /o size={} controlled freezable", 16 * PAGE));
        sender.all("map m o rw shared 0 0\nfill m 0 16 1\ncreate-nameless n size=65536");
        for number in 0..6 {
            sender.all("channel object c 1 n n rw 1000\nfill m 0 4 2");
            sender.ok(&format!("channel by-reference c 2 r o 0 {} 1000", 16 * PAGE));
            let receiver = &receivers[number % 2];
            receiver.ok(&format!("channel receive c 1000 as=n{number}"));
            receiver.ok(&format!("channel receive c 1000 as=r{number}"));
        }
        sender.ok("remove /o");
        for number in 0..4 {
            sender.ok(&format!("fill m 0 4 {number}"));
            sender.ok(&format!("channel by-reference c 2 left o 0 {} 1000", 16 * PAGE));
        }
        let before = host.status();
        sender.ok("remove /c/ch");
        kill(receivers[0].pid());
        kill(sender.pid());
        if round % 2 == 0 {
            kill(receivers[1].pid());
        }
        chance.pause(4);
        if round % 8 == 7 {
            host.kill_both();
            host.start_again().unwrap();
        } else {
            kill(before.host_pid);
        }
        host.wait_for_other_host(before.host_pid);
        drop(receivers);
        drop(sender);
        nothing_is_left(&host, 0);
        assert_eq!(files(&host, "spill"), Vec::<String>::new());
    }
}

/// Clients are killed at any moment of offers and takes: what they had goes, and of host and keeper nothing grows.
#[test]
fn clients_that_are_killed_leave_nothing() {
    let host = TestHost::start();
    let mut chance = Chance::new("clients with objects in flight");
    let keeper = sender(&host, 65536);
    let mut first = [0; 2];
    let many = rounds(200);
    for round in 0..many {
        let workers = Worker::start_many(host.state(), 2);
        workers[1].ok("channel open c /c/ch");
        workers[0].ok("channel open c /c/ch");
        workers[0].ok(&format!("create-nameless o size={} controlled freezable", 16 * PAGE));
        workers[0].all("map m o rw shared 0 0\nfill m 0 16 1");
        for _ in 0..4 {
            workers[0].send("channel object c 1 o o rw 1000");
            workers[0].send(&format!("channel by-reference c 2 r o 0 {} 1000", 16 * PAGE));
            workers[0].send("fill m 0 16 2");
            workers[1].send("channel receive c 1000 as=x");
            workers[1].send("channel receive c 1000 as=y");
            workers[1].send("map z y r shared 0 0");
            workers[1].send("get z 0");
        }
        chance.pause(8);
        kill(workers[round % 2].pid());
        chance.pause(2);
        kill(workers[(round + 1) % 2].pid());
        drop(workers);
        // What was sent, and not received.
        while keeper.ask("channel receive c 20").is_ok() {}
        if round == many / 4 || round == many - 1 {
            // What was offered by who died before the message, and received by who died before he took
            // it, stays with the channel.
            until("their objects ended", || {
                (host.status().objects <= 1 + offers(&host) as u64 * 2).then_some(())
            });
            let status = host.status();
            let now = [status.host_pid, status.keeper_pid].map(descriptors);
            let in_flight = offers(&host) * 6;
            if round == many / 4 {
                first = now;
            } else {
                assert!(
                    now.iter().zip(first).all(|(now, first)| *now <= first + 16 + in_flight),
                    "{first:?} {now:?}"
                );
            }
        }
    }
    keeper.all("remove /c/ch\nchannel close c");
    nothing_is_left(&host, 0);
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let disk = match RamDisk::new(64) {
        Ok(disk) => disk,
        Err(why) => return left_out(&why),
    };
    let host = TestHost::at(Scratch::new(), disk.path().join("state"), &[]);
    let sender = sender(&host, 65536);
    let receiver = receiver(&host);
    sender.ok(&format!("create o /o size={} controlled freezable", 16 * PAGE));
    sender.all("map m o rw shared 0 0\nfill m 0 16 1\ncreate-nameless n size=4096");
    let by_reference = format!("channel by-reference c 2 region o 0 {} 1000", 16 * PAGE);
    // In flight when it gets full.
    sender.all(&by_reference);
    sender.ok("channel object c 1 handle n rw 1000");
    let before = files(&host, "live").len();
    for leave in [0, 1, 2, 3] {
        let ballast = disk.use_up(leave * PAGE);
        let mut sent = 0;
        for line in ["channel object c 1 handle n rw 1000", &by_reference, "create-nameless x size=4096"] {
            match sender.ask(line) {
                Ok(_) if line.starts_with("create") => drop(sender.ok("close x")),
                Ok(_) => sent += 1,
                Err(refused) => assert_eq!(refused.kind, "NoSpace", "{line}: {refused:?}"),
            }
        }
        assert!(leave > 0 || sent == 0, "there was no room for a note");
        // What is there can be received.
        if leave == 0 {
            assert_eq!(
                receiver.ok("channel receive c 1000 as=r"),
                format!("2 region object {} r", 16 * PAGE)
            );
            assert_eq!(receiver.ok("channel receive c 1000 as=h"), "1 handle object 4096 rw");
            receiver.all("map r r r shared 0 0\ncheck r 0 16 1\ndrop r\nclose r\nclose h");
        }
        for _ in 0..sent {
            receiver.ok("channel receive c 1000 as=x");
            receiver.ok("close x");
        }
        std::fs::remove_file(ballast).unwrap();
        until("the notes are gone", || (files(&host, "live").len() <= before - 4).then_some(()));
    }
    sender.ok(&by_reference);
    sender.all("fill m 0 16 2\nclose n");
    assert_eq!(receiver.ok("channel receive c 1000 as=r"), format!("2 region object {} r", 16 * PAGE));
    receiver.all("map r r r shared 0 0\ncheck r 0 16 1\ndrop r\nclose r");
    sender.all("drop m\nclose o\nremove /o");
    nothing_is_left(&host, 1);
}

#[test]
fn an_upgrade_loses_no_message() {
    let host = TestHost::start();
    let sender = sender(&host, 65536);
    let receiver = receiver(&host);
    sender.ok(&format!("create o /o size={} controlled freezable", 64 * PAGE));
    sender.ok("map m o rw shared 0 0");
    for (round, words) in [["host", "upgrade"], ["host", "restart"], ["host", "restart"]].iter().enumerate() {
        for number in 0..20 {
            sender.all(&format!(
                "fill m 0 64 {}\ncreate-nameless n size=4096\nmap k n rw shared 0 0",
                1 + number
            ));
            sender.ok(&format!("fill k 0 1 {}", 1 + number));
            sender.ok(&format!("channel by-reference c {number} region o 0 {} 1000", 64 * PAGE));
            sender.all(&format!("channel object c {number} given n r 1000\ndrop k\nclose n"));
        }
        let before = host.status().host_pid;
        // While the next host begins there is more to do for it.
        sender.send("fill m 0 64 99");
        sender.send(&format!("channel by-reference c 99 region o 0 {} 20000", 64 * PAGE));
        host.command(words, |_| {}).unwrap();
        host.wait_for_other_host(before);
        sender.answer().unwrap();
        sender.answer().unwrap();
        for number in (0..20).chain([99]) {
            let seed = if number == 99 { 99 } else { number + 1 };
            let said = receiver.ok("channel receive c 1000 as=r");
            assert_eq!(said, format!("{number} region object {} r", 64 * PAGE), "{round}");
            receiver.all(&format!("map r r r shared 0 0\ncheck r 0 64 {seed}\ndrop r\nclose r"));
            if number != 99 {
                let said = receiver.ok("channel receive c 1000 as=k");
                assert_eq!(said, format!("{number} given object 4096 r"), "{round}");
                receiver.all(&format!("map k k r shared 0 0\ncheck k 0 1 {seed}\ndrop k\nclose k"));
            }
        }
    }
    sender.all("drop m\nclose o\nremove /o");
    nothing_is_left(&host, 1);
}

/// Thousands of regions of an object that is written and grows, to a receiver that is stopped.
#[test]
fn what_a_stopped_receiver_leaves_in_flight_is_bounded() {
    let host = TestHost::with(&["--budget", "64MiB"]);
    let sender = sender(&host, 1 << 20);
    let receiver = receiver(&host);
    sender.ok(&format!("create o /o size={} controlled freezable", 8 * PAGE));
    sender.ok("map m o rw shared 0 0");
    stop(&[receiver.pid()]);
    let mut pages = 8;
    let mut sent = Vec::new();
    let said = loop {
        let number = sent.len() as u64 + 1;
        if number.is_multiple_of(64) {
            pages += 8;
            sender.all(&format!("drop m\nresize /o {}\nmap m o rw shared 0 0", pages * PAGE));
        }
        sender.ok(&format!("fill m 0 {pages} {number}"));
        match sender.ask(&format!("channel by-reference c {number} r o 0 {} 1000", pages * PAGE)) {
            Ok(_) => sent.push(pages),
            Err(refused) => break refused,
        }
    };
    assert_eq!(said.kind, "TooMany", "{said:?}");
    assert!(said.message.contains("receive some first"), "{said:?}");
    assert_eq!(sent.len(), 1024);
    sender.ok("channel send c 7 still 1000");
    signal(receiver.pid(), libc::SIGCONT);
    for (number, pages) in sent.iter().enumerate() {
        let said = receiver.ok("channel receive c 1000 as=r");
        assert_eq!(said, format!("{} r object {} r", number + 1, pages * PAGE));
        receiver.all(&format!("map r r r shared 0 0\ncheck r 0 {pages} {}\ndrop r\nclose r", number + 1));
        if number == 0 {
            sender.ok(&format!("channel by-reference c 1025 r o 0 {PAGE} 1000"));
        }
    }
    assert_eq!(receiver.ok("channel receive c 1000"), "7 still");
    receiver.all("channel receive c 1000 as=r\nclose r");
    sender.all("drop m\nclose o\nremove /o");
    nothing_is_left(&host, 1);
}

/// Many times what the host may have in memory, in flight and written meanwhile, while the host is killed.
#[test]
fn what_is_larger_than_the_budget_is_of_one_instant() {
    const PAGES: u64 = 96 << 8;
    let host = TestHost::with(&["--budget", "16MiB"]);
    let sender = sender(&host, 65536);
    let receiver = receiver(&host);
    sender.ok(&format!("create o /o size={} controlled freezable", PAGES * PAGE));
    sender.all(&format!("map m o rw shared 0 0\nfill m 0 {PAGES} 1"));
    sender.ok(&format!("channel by-reference c 1 large o 0 {} 60000", PAGES * PAGE));
    sender.send(&format!("fill m 0 {PAGES} 2"));
    assert_eq!(receiver.ok("channel receive c 1000 as=r"), format!("1 large object {} r", PAGES * PAGE));
    receiver.send("map r r r shared 0 0");
    receiver.send(&format!("check r 0 {PAGES} 1"));
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    for worker in [&sender, &receiver, &receiver] {
        worker.answer().unwrap();
    }
    receiver.ok(&format!("check r 0 {PAGES} 1"));
    sender.ok(&format!("check m 0 {PAGES} 2"));
    receiver.all("drop r\nclose r");
    sender.all("drop m\nclose o\nremove /o");
    nothing_is_left(&host, 1);
    assert_eq!(files(&host, "spill"), Vec::<String>::new());
}
