//! Objects in messages: handles and regions by reference. `docs/MESSAGES.md`, "Handles".

use commonhold_tests::crash::rounds;
use commonhold_tests::huge::HugePages;
use commonhold_tests::wait::until;
use commonhold_tests::{TestHost, Worker, is_root};

const PAGE: u64 = 4096;

/// A sender and a receiver, which have the channel `/c/ch`.
fn pair(host: &TestHost) -> (Worker, Worker) {
    let (sender, receiver) = (host.worker(), host.worker());
    sender.ok("channel create c /c/ch 65536 mode=666");
    receiver.ok("channel open c /c/ch");
    (sender, receiver)
}

/// Notes of objects without a name, and of what is on its way.
fn notes(host: &TestHost) -> Vec<String> {
    let folder = std::fs::read_dir(host.state().join("live")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".record") || name.contains(".offer-")).collect()
}

/// Eight bytes of a mapping, which are others on each page.
fn word(worker: &Worker, mapping: &str, at: u64) -> Vec<String> {
    (at..at + 8).map(|at| worker.ok(&format!("get {mapping} {at}"))).collect()
}

fn nothing_is_left(host: &TestHost) {
    until("no note is left", || notes(host).is_empty().then_some(()));
}

#[test]
fn a_handle_gives_the_stated_right_and_no_more() {
    if !is_root("processes of two users") {
        return;
    }
    for controlled in ["", "controlled"] {
        let host = TestHost::start();
        let sender = host.worker();
        let receiver = host.worker_of(65534, 65534);
        sender.ok("channel create c /c/ch 65536 mode=666");
        receiver.ok("channel open c /c/ch");
        sender.ok(&format!("create o /o size={} mode=600 {controlled}", 4 * PAGE));
        sender.all("map m o rw shared 0 0\nfill m 0 4 7");
        receiver.refused("open x /o r", "Permission");
        sender.ok("channel object c 5 look o r 1000");
        sender.ok("channel object c 6 change o rw 1000");
        assert_eq!(receiver.ok("channel receive c 1000 as=look"), "5 look object 16384 r");
        receiver.all("map r look r shared 0 0\ncheck r 0 4 7");
        receiver.refused("map w look rw shared 0 0", "Permission");
        assert_eq!(receiver.ok("channel receive c 1000 as=change"), "6 change object 16384 rw");
        receiver.all("map w change rw shared 0 0\nfill w 0 2 8");
        sender.all("check m 0 2 8\ncheck m 2 2 7");
        // Nobody sends more than he has.
        let other = host.worker();
        other.all("channel open c /c/ch\nopen o /o r");
        let said = other.refused("channel object c 1 no o rw 1000", "Permission");
        assert!(said.contains("open for reading"), "{said}");
        // Past its name, and its sender.
        sender.ok("channel object c 7 last o r 1000");
        sender.ok("remove /o");
        drop(sender);
        drop(other);
        receiver.all("drop r\ndrop w\nclose look\nclose change");
        assert_eq!(receiver.ok("channel receive c 1000 as=last"), "7 last object 16384 r");
        receiver.all("map r last r shared 0 0\ncheck r 0 2 8\ncheck r 2 2 7\ndrop r\nclose last");
        nothing_is_left(&host);
        until("the object ended", || (host.status().objects == 1).then_some(()));
    }
}

#[test]
fn memory_without_a_name_is_given_away() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host);
    for controlled in ["", "controlled"] {
        sender.ok(&format!("create-nameless o size={} {controlled}", 16 * PAGE));
        sender.all("map m o rw shared 0 0\nfill m 0 16 3");
        assert_eq!(sender.ok("info o name"), "-");
        sender.all("channel object c 1 yours o rw 1000\ndrop m\nclose o");
        assert_eq!(receiver.ok("channel receive c 1000 as=mine"), "1 yours object 65536 rw");
        receiver.all("map m mine rw shared 0 0\ncheck m 0 16 3\nfill m 0 16 4");
        // And on to the next.
        receiver.all("channel object c 2 back mine r 1000\ndrop m\nclose mine");
        assert_eq!(sender.ok("channel receive c 1000 as=o"), "2 back object 65536 r");
        sender.all("map m o r shared 0 0\ncheck m 0 16 4\ndrop m\nclose o");
    }
    nothing_is_left(&host);
    for (wish, says) in
        [("wired", "is paged"), ("strict=error", "local to its host"), ("pager=/p", "is anonymous")]
    {
        let said = sender.refused(&format!("create-nameless o size={PAGE} {wish}"), "Unsupported");
        assert!(said.contains("without a name") && said.contains(says), "{said}");
    }
    sender.ok(&format!("create-nameless o size={PAGE}"));
    drop(sender);
    nothing_is_left(&host);
}

#[test]
fn a_region_by_reference_is_of_one_instant_and_not_copied() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host);
    sender.ok(&format!("create o /o size={} controlled freezable", 64 * PAGE));
    sender.all("map m o rw shared 0 0\nfill m 0 64 1");
    let copied: u64 = sender
        .ok(&format!("channel by-reference c 1 part o {} {} 1000", 8 * PAGE, 16 * PAGE))
        .parse()
        .unwrap();
    assert!(copied < 200, "{copied} bytes were copied");
    let before = word(&sender, "m", 8 * PAGE);
    sender.ok("fill m 0 64 2");
    sender.ok(&format!("channel by-reference c 2 all o 0 {} 1000", 64 * PAGE));
    sender.ok("fill m 0 64 3");
    assert_eq!(receiver.ok("channel receive c 1000 as=part"), format!("1 part object {} r", 16 * PAGE));
    receiver.ok("map p part r shared 0 0");
    assert_eq!(word(&receiver, "p", 0), before);
    receiver.refused("map w part rw shared 0 0", "Permission");
    assert_eq!(receiver.ok("channel receive c 1000 as=all"), format!("2 all object {} r", 64 * PAGE));
    // The sender gives up the object that they are of.
    sender.all("drop m\nclose o\nremove /o");
    receiver.all("map a all r shared 0 0\ncheck a 0 64 2");
    assert_eq!(word(&receiver, "p", 0), before);
    // What nobody writes goes on by itself.
    receiver.ok(&format!("channel by-reference c 3 on all 0 {} 1000", 64 * PAGE));
    assert_eq!(sender.ok("channel receive c 1000 as=on"), format!("3 on object {} r", 64 * PAGE));
    sender.all("map n on r shared 0 0\ncheck n 0 64 2\ndrop n\nclose on");
    receiver.all("drop a\ndrop p\nclose all\nclose part");
    nothing_is_left(&host);
    until("all ended", || (host.status().objects == 1).then_some(()));
}

#[test]
fn what_has_no_snapshot_is_copied() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host);
    for (kind, offset) in [("", 0), ("controlled", 2 * PAGE), ("controlled freezable", PAGE + 8)] {
        sender.ok(&format!("create o /o size={} {kind}", 16 * PAGE));
        sender.all("map m o rw shared 0 0\nfill m 0 16 5");
        let length = 4 * PAGE;
        let copied = || sender.ok(&format!("channel by-reference c 1 copy o {offset} {length} 1000"));
        let (first, second): (u64, u64) = (copied().parse().unwrap(), copied().parse().unwrap());
        assert!(second - first >= length && second - first < length + 200, "{kind}: {first} {second}");
        let before = word(&sender, "m", offset);
        sender.ok("fill m 0 16 6");
        receiver.ok("channel receive c 1000");
        assert_eq!(receiver.ok("channel receive c 1000 as=x"), format!("1 copy object {length} r"));
        receiver.ok("map x x r shared 0 0");
        assert_eq!(word(&receiver, "x", 0), before);
        receiver.all("drop x\nclose x");
        sender.all("drop m\nclose o\nremove /o");
    }
    let said = sender.refused("channel by-reference c 1 no o 0 1 1000", "Wrong");
    assert!(said.contains("no object"), "{said}");
    sender.ok(&format!("create o /o size={PAGE}"));
    for (offset, length) in [(0, 0), (0, 4097), (4096, 1), (u64::MAX, 2)] {
        let said =
            sender.refused(&format!("channel by-reference c 1 no o {offset} {length} 1000"), "Invalid");
        assert!(said.contains("no part of the 4096 bytes"), "{said}");
    }
    nothing_is_left(&host);
}

#[test]
fn what_is_not_sent_or_not_received_is_freed() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host);
    sender.ok(&format!("create-nameless o size={PAGE}"));
    // An end that never reads.
    sender.all("channel fill c 1 65440 1000");
    sender.ok("channel object c 1 fits o r 1000");
    sender.ok("channel object c 1 fits o r 1000");
    sender.refused("channel object c 1 does-not o r 20", "TimedOut");
    assert_eq!(notes(&host).iter().filter(|name| name.contains("offer")).count(), 2);
    sender.ok("close o");
    assert_eq!(receiver.ok("channel receive c 1000"), "1 65440 bytes");
    assert_eq!(receiver.ok("channel receive c 1000"), "1 fits object 4096 r");
    // The channel ends with a message in it.
    sender.ok("remove /c/ch");
    drop(sender);
    drop(receiver);
    nothing_is_left(&host);
}

#[test]
fn wired_memory_goes_to_those_alone_who_may_have_all_of_its_arena() {
    if !is_root("processes of two users") {
        return;
    }
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let (sender, receiver) = (host.worker(), host.worker_of(65534, 65534));
    sender.all(
        "channel create c /c/ch 65536 mode=666\ncreate o /o size=65536 wired mode=600\nmap m o rw shared 0 0",
    );
    sender.ok("fill m 0 16 9");
    receiver.ok("channel open c /c/ch");
    sender.ok("channel object c 1 mine o r 1000");
    let said = receiver.refused("channel receive c 1000", "Permission");
    assert!(said.contains("the message is dropped") && said.contains("/o"), "{said}");
    sender.ok("channel object c 2 ours o rw 1000");
    let other = host.worker();
    other.all("channel open c /c/ch\nchannel receive c 1000 as=o\nmap m o rw shared 0 0\ncheck m 0 16 9\nno-faults m 0 16");
}

#[test]
fn a_message_in_flight_outlives_the_host() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host);
    sender.ok(&format!("create o /o size={} controlled freezable", 32 * PAGE));
    sender.all("map m o rw shared 0 0\nfill m 0 32 1");
    sender.ok(&format!("create-nameless n size={}", 8 * PAGE));
    sender.all("map k n rw shared 0 0\nfill k 0 8 2\nchannel object c 1 direct n rw 1000\ndrop k\nclose n");
    sender.ok(&format!("channel by-reference c 2 region o 0 {} 1000", 32 * PAGE));
    sender.ok("fill m 0 16 3");
    sender.ok("channel object c 3 handle o r 1000");
    let pid = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(pid);
    assert_eq!(receiver.ok("channel receive c 1000 as=direct"), "1 direct object 32768 rw");
    receiver.all("map d direct rw shared 0 0\ncheck d 0 8 2");
    assert_eq!(receiver.ok("channel receive c 1000 as=region"), "2 region object 131072 r");
    receiver.all("map r region r shared 0 0\ncheck r 0 32 1");
    assert_eq!(receiver.ok("channel receive c 1000 as=handle"), "3 handle object 131072 r");
    receiver.all("map h handle r shared 0 0\ncheck h 0 16 3\ncheck h 16 16 1");
    // What is received is brought back after the death of both.
    let pid = host.status().host_pid;
    host.kill_both();
    host.start_again().unwrap();
    host.wait_for_other_host(pid);
    receiver.eventually("info direct size");
    receiver.all("check d 0 8 2\ncheck r 0 32 1\ncheck h 0 16 3");
    receiver.all("drop d\ndrop r\ndrop h\nclose direct\nclose region\nclose handle");
    nothing_is_left(&host);
}

#[test]
fn kills_at_any_moment_lose_no_message() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host);
    sender.ok(&format!("create o /o size={} controlled freezable", 16 * PAGE));
    sender.all("map m o rw shared 0 0");
    for round in 1..=rounds(8) as u64 {
        let pid = host.status().host_pid;
        sender.ok(&format!("fill m 0 16 {round}"));
        sender.send(&format!("channel by-reference c {round} region o 0 {} 10000", 16 * PAGE));
        receiver.send("channel receive c 10000 as=x");
        std::thread::sleep(std::time::Duration::from_micros(round % 25 * 300));
        host.kill_host();
        sender.answer().unwrap();
        assert_eq!(receiver.answer().unwrap(), format!("{round} region object 65536 r"));
        receiver.all(&format!("map x x r shared 0 0\ncheck x 0 16 {round}\ndrop x\nclose x"));
        host.wait_for_other_host(pid);
    }
    nothing_is_left(&host);
}

#[test]
fn after_the_death_of_both_what_was_in_flight_is_there_or_said_to_be_lost() {
    let host = TestHost::start();
    let (sender, receiver) = pair(&host);
    sender.ok(&format!("create o /o size={} controlled freezable", 16 * PAGE));
    sender.all("map m o rw shared 0 0\nfill m 0 16 1");
    sender.ok(&format!("create-nameless n size={PAGE}"));
    sender.all("channel object c 1 gone n rw 1000\nclose n\nchannel object c 2 held o r 1000");
    let pid = host.status().host_pid;
    host.kill_both();
    host.start_again().unwrap();
    host.wait_for_other_host(pid);
    sender.eventually("info o size");
    // Nobody had its memory.
    let said = receiver.refused("channel receive c 1000", "Lost");
    assert!(said.contains("the message is dropped"), "{said}");
    assert_eq!(receiver.ok("channel receive c 1000 as=o"), "2 held object 65536 r");
    receiver.all("map m o r shared 0 0\ncheck m 0 16 1\ndrop m\nclose o");
    nothing_is_left(&host);
}
