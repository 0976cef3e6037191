//! Channels: `docs/MESSAGES.md`. What they do, and what they refuse.

use commonhold_tests::huge::HugePages;
use commonhold_tests::{MIB, TestHost, Worker, is_root};
use std::time::Duration;

/// Two processes that have the channel `/c/ch`.
fn pair(host: &TestHost, create: &str) -> (Worker, Worker) {
    let (first, second) = (host.worker(), host.worker());
    first.ok(&format!("channel create c /c/ch {create}"));
    second.ok("channel open c /c/ch");
    (first, second)
}

#[test]
fn messages_go_from_process_to_process() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host, "4096");
    assert_eq!(receiver.ok("channel try-receive c"), "nothing");
    sender.all("channel send c 1 left 1000\nchannel send c 2 right 1000\nchannel fill c 9 4000 1000");
    assert_eq!(receiver.ok("channel receive c 1000"), "1 left");
    assert_eq!(receiver.ok("channel try-receive c"), "2 right");
    assert_eq!(receiver.ok("channel receive c 1000"), "9 4000 bytes");
    // Who waits for ever is woken.
    receiver.send("channel receive c -");
    assert!(receiver.answer_within(Duration::from_millis(50)).is_none());
    sender.ok("channel send c 3 late 1000");
    assert_eq!(receiver.answer().unwrap(), "3 late");
    // So is who waits for room.
    sender.ok("channel fill c 1 4080 1000");
    sender.send("channel send c 4 behind -");
    assert!(sender.answer_within(Duration::from_millis(50)).is_none());
    assert_eq!(receiver.ok("channel receive c -"), "1 4080 bytes");
    assert!(sender.answer().is_ok());
    assert_eq!(receiver.ok("channel receive c 1000"), "4 behind");
    // Both ways, in one process, and past its name.
    receiver.ok("channel send c 5 back 1000");
    sender.ok("remove /c/ch");
    assert_eq!(sender.ok("channel receive c 1000"), "5 back");
    assert_eq!(sender.ok("channel most c"), "4080");
}

#[test]
fn deadlines_are_errors_that_say_what_was_waited_for() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host, "4096");
    let said = receiver.refused("channel receive c 20", "TimedOut");
    assert!(said.contains("/c/ch") && said.contains("no message came"), "{said}");
    sender.ok("channel fill c 1 4000 1000");
    // A receiver that never reads.
    let said = sender.refused("channel fill c 1 100 20", "TimedOut");
    assert!(said.contains("no room for 100 bytes"), "{said}");
    assert_eq!(
        sender.ok("channel try-send c 1 0123456789012345678901234567890123456789012345678901234567"),
        "true"
    );
    assert_eq!(sender.ok("channel try-send c 1 a"), "false");
    let said = sender.refused("channel fill c 1 4081 20", "Invalid");
    assert!(said.contains("4081") && said.contains("4080"), "{said}");
    // A thread that is stopped in the queue, or a number that somebody wrote there.
    receiver.all("open o /c/ch rw\nmap m o rw shared 0 0\nput m 4 17");
    let said = sender.refused("channel send c 1 a 50", "TimedOut");
    assert!(said.contains("thread 17 is in the queue"), "{said}");
    let said = sender.refused("channel try-send c 1 a", "Busy");
    assert!(said.contains("thread 17"), "{said}");
    receiver.all("put m 4 0\nchannel receive c 1000");
}

#[test]
fn what_is_no_channel_is_not_taken_for_one() {
    let host = TestHost::start();
    let (worker, _other) = pair(&host, "4096 mode=640");
    worker.ok("create o /plain size=65536");
    let said = worker.refused("channel open d /plain", "Mismatch");
    assert!(said.contains("/plain is no channel"), "{said}");
    worker.refused("channel open d /nothing", "NotFound");
    worker.refused("channel create d /c/ch 4096", "Exists");
    worker.refused("channel create d /c/d 4096 shared-tables", "Invalid");
    let said = worker.refused("channel create d /c/d 1073741825", "Invalid");
    assert!(said.contains("1 GiB at most"), "{said}");
    // It keeps its size, and while it is open its name and mode.
    worker.refused("resize /c/ch 4096", "Unsupported");
    worker.refused("resize /c/ch 1048576", "Unsupported");
    worker.refused("rename /c/ch /c/other", "Busy");
    worker.refused("chmod /c/ch 666", "Busy");
    // The tag alone makes none: an object of another layout.
    worker.all("create o /tagged size=45056 description=channel\nopen t /tagged rw\nmap m t rw shared 0 0");
    let said = worker.refused("channel open d /tagged", "Mismatch");
    assert!(said.contains("none of this version"), "{said}");
    worker.all(
        "create e /sized size=36864 description=channel\nopen t /sized rw\nmap m t rw shared 0 0\nput m 0 7",
    );
    let said = worker.refused("channel open d /sized", "Mismatch");
    assert!(said.contains("none of this version"), "{said}");
}

#[test]
fn who_may_not_write_it_may_not_receive() {
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let _pair = pair(&host, "4096 mode=644");
    let stranger = host.worker_of(4711, 4711);
    let said = stranger.refused("channel open c /c/ch", "Permission");
    assert!(said.contains("also by who only receives"), "{said}");
}

#[test]
fn a_channel_goes_on_without_its_host() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host, "4096");
    let before = host.status().host_pid;
    sender.ok("channel send c 1 before 1000");
    host.kill_both();
    sender.ok("channel send c 2 without 1000");
    assert_eq!(receiver.ok("channel receive c 1000"), "1 before");
    assert_eq!(receiver.ok("channel receive c 1000"), "2 without");
    sender.ok("channel send c 3 over 1000");
    host.start_again().unwrap();
    host.wait_for_other_host(before);
    let third = host.worker();
    assert_eq!(third.eventually("channel open c /c/ch"), "");
    assert_eq!(third.ok("channel receive c 1000"), "3 over");
    third.refused("chmod /c/ch 666", "Busy");
    // And through an upgrade.
    let before = host.status().host_pid;
    host.connect().replace(None, true).unwrap();
    host.wait_for_other_host(before);
    third.ok("channel send c 4 after 1000");
    assert_eq!(receiver.ok("channel receive c 1000"), "4 after");
    assert_eq!(host.worker().ok("channel open c /c/ch"), "");
}

#[test]
fn a_fork_child_has_its_parents_channels() {
    let host = TestHost::start();
    let (parent, other) = pair(&host, "4096");
    parent.ok("channel send c 1 before 1000");
    parent.ok("fork _exit channel receive c 1000");
    assert_eq!(other.ok("channel try-receive c"), "nothing", "the child received it");
    parent.ok("fork exit channel send c 2 child 1000");
    assert_eq!(other.ok("channel receive c 1000"), "2 child");
    // A child that dies in the queue frees it, as any thread.
    for _ in 0..20 {
        parent.ok("orphan 0 channel send c 3 orphan 1000");
        assert_eq!(other.ok("channel receive c 10000"), "3 orphan");
    }
}

#[test]
fn regions_land_in_the_receivers_memory() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    for channel in ["4096", "4096 wired"] {
        let (sender, receiver) = pair(&host, channel);
        receiver.ok(&format!("create o /c/input size={} wired", 2 * MIB));
        receiver.ok("map m o rw shared 0 0");
        let landing = receiver.ok("channel post c o 4096 1000000");
        let copied = sender.ok("channel region c 7 samples 1000000 42 1000");
        assert_eq!(receiver.ok("channel receive c 1000"), format!("7 samples {landing} 1000000"));
        assert_eq!(receiver.ok("get m 4095"), "0");
        assert_eq!([receiver.ok("get m 4096"), receiver.ok("get m 1004095")], ["42", "42"]);
        assert_eq!(receiver.ok("get m 1004096"), "0");
        // Once, and what says where.
        assert!((1_000_000..1_000_100).contains(&copied.parse::<u64>().unwrap()), "{copied}");
        // Who sends waits until something is posted.
        let said = sender.refused("channel region c 7 x 5 1 20", "TimedOut");
        assert!(said.contains("posted no landing for 5 bytes"), "{said}");
        sender.send("channel region c 8 late 5 1 -");
        assert!(sender.answer_within(Duration::from_millis(50)).is_none());
        let landing = receiver.ok("channel post c o 0 4096");
        assert!(sender.answer().is_ok());
        assert_eq!(receiver.ok("channel receive c 1000"), format!("8 late {landing} 5"));
        // In a child, too.
        let landing = receiver.ok("channel post c o 0 64");
        sender.ok("fork _exit channel region c 9 child 64 3 1000");
        assert_eq!(receiver.ok("channel receive c 1000"), format!("9 child {landing} 64"));
        drop((sender, receiver));
        let cleaner = host.worker();
        cleaner.eventually("remove /c/ch");
        cleaner.ok("remove /c/input");
    }
}

#[test]
fn landings_that_cannot_be_are_refused() {
    let Some(_pool) = HugePages::more(8) else { return };
    let host = TestHost::start();
    let (sender, receiver) = pair(&host, "4096 mode=660");
    receiver.ok("create plain /c/plain size=65536 mode=660");
    let said = receiver.refused("channel post c plain 0 4096", "Unsupported");
    assert!(said.contains("not wired"), "{said}");
    for (name, mode) in [("/c/other", "600"), ("/d/other", "660")] {
        receiver.ok(&format!("create o {name} size=65536 wired mode={mode}"));
        let said = receiver.refused("channel post c o 0 4096", "Permission");
        assert!(said.contains("not of the class"), "{said}");
    }
    receiver.ok("create o /c/mine size=65536 wired mode=660");
    receiver.refused("channel post c o 0 0", "Invalid");
    receiver.refused("channel post c o 4096 65536", "Invalid");
    receiver.refused("channel withdraw c 77", "Lost");
    // One that was withdrawn is nobody's any more, and of what another posted the first is told.
    let first = receiver.ok("channel post c o 0 4096");
    receiver.ok(&format!("channel withdraw c {first}"));
    receiver.refused(&format!("channel withdraw c {first}"), "Lost");
    receiver.ok("channel post c o 0 4096");
    sender.ok("channel region c 1 x 4096 1 1000");
    let third = host.worker();
    third.ok("channel open c /c/ch");
    let said = third.refused("channel receive c 1000", "Lost");
    assert!(said.contains("posted no landing"), "{said}");
    // After a receiver died its landings can be cleared away.
    for _ in 0..28 {
        receiver.ok("channel post c o 0 64");
    }
    receiver.refused("channel post c o 0 64", "TooMany");
    receiver.kill();
    assert_eq!(third.ok("channel withdraw c all"), "28");
    // The object of the landing was replaced.
    third.all("open o /c/mine rw\nchannel post c o 0 64\nremove /c/mine");
    third.ok("create p /c/mine size=65536 wired mode=660");
    let fresh = host.worker();
    fresh.ok("channel open c /c/ch");
    let said = fresh.refused("channel region c 1 x 64 1 100", "Lost");
    assert!(said.contains("another object"), "{said}");
}

#[test]
fn nobody_has_others_write_where_he_may_not() {
    let Some(_pool) = HugePages::more(8) else { return };
    let host = TestHost::start();
    let (sender, attacker) = pair(&host, "4096 mode=666");
    // Only the sender may write this; the attacker has its number and name put into a landing.
    sender.all("create secret /c/secret size=65536 wired mode=600\nmap s secret rw shared 0 0");
    let id: u64 = sender.ok("stat /c/secret id").parse().unwrap();
    attacker.all("create own /c/own size=65536 wired mode=666\nchannel post c own 0 4096");
    attacker.all("open o /c/ch rw\nmap m o rw shared 0 0");
    for (at, byte) in id.to_le_bytes().into_iter().enumerate() {
        attacker.ok(&format!("put m {} {byte}", 1024 + 8 + at));
    }
    let name = b"/c/secret";
    attacker.ok(&format!("put m {} {}", 1024 + 32, name.len()));
    for (at, byte) in name.iter().enumerate() {
        attacker.ok(&format!("put m {} {byte}", 1024 + 64 + at));
    }
    let said = sender.refused("channel region c 1 x 4096 9 100", "Permission");
    assert!(said.contains("not of the class"), "{said}");
    assert_eq!(sender.ok("get s 0"), "0");
}

#[test]
fn files_are_read_straight_into_objects() {
    let Some(_pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    let path = host.scratch().join("samples");
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|n| (n / 7) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let path = path.display();
    worker.ok("create plain /plain size=2000000");
    worker.ok(&format!("create wired /wired size={} wired", MIB));
    let other = host.worker();
    other.all("open wired /wired rw\nmap m wired rw shared 0 0");
    for object in ["plain", "wired"] {
        let read = worker.ok(&format!("channel read-into {object} 0 1000003 {path} 0"));
        let direct: u64 = read.strip_prefix("1000003 ").unwrap().parse().unwrap();
        // All of it, also its cut last block, where the disk can.
        assert!(direct == 0 || direct >= 1_000_003 / 4096 * 4096, "{read}");
        let tail = worker.ok(&format!("read-at {object} 1000000 3"));
        assert_eq!(tail, bytes[1_000_000..].iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        // Past the end of the file; where nothing is aligned; nothing.
        assert_eq!(
            worker.ok(&format!("channel read-into {object} 4096 8192 {path} 999424")).split(' ').next(),
            Some("579")
        );
        assert_eq!(worker.ok(&format!("channel read-into {object} 5 100 {path} 1000")), "100 0");
        assert_eq!(worker.ok(&format!("read-at {object} 5 1")), format!("{:02x}", bytes[1000]));
        assert_eq!(worker.ok(&format!("channel read-into {object} 0 100 {path} 2000000")), "0 0");
        worker.refused(&format!("channel read-into {object} 0 2000001 {path} 0"), "Invalid");
        worker.refused(&format!("channel read-into {object} 0 0 {path} 0"), "Invalid");
    }
    assert_eq!(other.ok("get m 4101"), bytes[999_429].to_string(), "what another process sees");
    worker.ok("create served /served size=8192 controlled");
    worker.refused(&format!("channel read-into served 0 4096 {path} 0"), "Unsupported");
    worker.refused("channel read-into plain 0 4096 / 0", "Io");
}
