//! Objects with one address: what lies there, what does not fit, and what is refused.

use commonhold::{CreateOptions, ErrorKind, Fixed};
use commonhold_tests::cluster::pair;
use commonhold_tests::{TestHost, Worker};

const ROOM: u64 = 2 << 20;

fn address(worker: &Worker, object: &str) -> u64 {
    worker.ok(&format!("info {object} address")).parse().expect("an address")
}

#[test]
fn what_lies_there_is_named_and_stays() {
    let host = TestHost::start();
    let (maker, other) = (host.worker(), host.worker());
    for (kind, options) in [("direct", ""), ("controlled", "controlled")] {
        maker.ok(&format!("create {kind} /{kind} size={ROOM} {options} fixed"));
        let at = address(&maker, kind);
        other.ok(&format!("occupy {} 4096", at + 8192));
        other.ok(&format!("open {kind} /{kind} rw"));
        for way in ["rw shared", "r shared", "rw private"] {
            let why = other.refused(&format!("map m {kind} {way} 0 0"), "Busy");
            let said = why.contains("memory without a name") && why.contains(&format!("{:#x}", at + 8192));
            assert!(said && why.contains("unmap that") && why.contains(&format!("/{kind} is at")), "{why}");
        }
        other.ok(&format!("still-own {} 4096", at + 8192));
        // What is free of it can be had, and calls need no address.
        other.ok(&format!("map m {kind} rw shared 0 8192"));
        assert_eq!(other.ok("address m"), at.to_string());
        other.ok(&format!("write-at {kind} 8192 hello"));
        other.ok(&format!("still-own {} 4096", at + 8192));
        other.ok(&format!("map a {kind} r shared 0 0 anywhere"));
        assert_ne!(other.ok("address a"), at.to_string());
        assert_eq!(other.ok("get a 8193"), u64::from(b'e').to_string());
        other.all("drop a\ndrop m");
    }
    // Another object, which the program put there.
    maker.ok("create plain /plain size=4096");
    let at = address(&maker, "direct");
    maker.ok(&format!("map p plain rw shared 0 0 fixed={at}"));
    let why = maker.refused("map m direct rw shared 0 0", "Busy");
    assert!(why.contains("here object /plain lies there"), "{why}");
    // A file.
    maker.all("drop p\nmap m direct rw shared 0 0\ndrop m");
}

#[test]
fn one_process_has_it_once_in_parts_and_in_its_children() {
    let host = TestHost::start();
    let worker = host.worker();
    for (kind, options) in [("direct", ""), ("controlled", "controlled"), ("ordered", "sync=ordered")] {
        worker.ok(&format!("create o /{kind} size=65536 {options} fixed"));
        let at = address(&worker, "o");
        // Parts are where they are in the whole; in any order.
        worker.all("map b o rw shared 8192 8192\nmap a o rw shared 0 4096");
        assert_eq!(worker.ok("address b"), (at + 8192).to_string());
        let why = worker.refused("map m o rw shared 0 0", "Busy");
        assert!(why.contains("has mapped it there already") && why.contains("use that mapping"), "{why}");
        worker.refused("map m o rw private 0 0", "Busy");
        // Once more elsewhere: the same memory.
        worker.all("map e o rw shared 0 0 anywhere\nput e 8192 9");
        assert_eq!(worker.ok("get b 0"), "9");
        worker.all("drop e\ndrop b\ndrop a\nmap m o rw shared 0 0\nlink m 16 3");
        worker.ok(&format!("fork exit walk {at} 3"));
        worker.ok("drop m");
        // A private mapping is a process's own, at the same address.
        worker.all("map m o rw private 0 0\nput m 0 1\ndrop m");
        // Another address is not to be had; its own may be said.
        let why = worker.refused(&format!("map m o rw shared 0 0 fixed={}", at + 0x1000_0000), "Invalid");
        assert!(why.contains("is at") && why.contains("leave the address out"), "{why}");
        worker.ok(&format!("map m o rw shared 4096 4096 fixed={}", at + 4096));
        worker.ok("drop m");
        worker.ok(&format!("map m o rw shared 0 0 hint={}", at + 0x1000_0000));
        assert_eq!(worker.ok("address m"), at.to_string());
        worker.all("drop m\nclose o");
    }
    worker.ok("create o /threads size=65536 controlled fixed");
    worker.all("map m o rw shared 0 0 in-thread\nfill m 0 16 1\ncheck m 0 16 1");
}

#[test]
fn it_grows_as_far_as_it_has_room() {
    let host = TestHost::start();
    let worker = host.worker();
    for (kind, options) in [("direct", ""), ("controlled", "controlled reserve=no")] {
        worker.ok(&format!("create o /{kind} size=65536 {options} fixed={}", 2 * ROOM));
        let at = address(&worker, "o");
        worker.all("map m o rw shared 0 0\nput m 65535 1");
        worker.ok(&format!("resize /{kind} {}", 2 * ROOM));
        worker.ok(&format!("map n o rw shared 65536 {}", 2 * ROOM - 65536));
        assert_eq!(worker.ok("address n"), (at + 65536).to_string(), "what is new lies behind the rest");
        let why = worker.refused(&format!("resize /{kind} {}", 2 * ROOM + 1), "Invalid");
        assert!(why.contains("has addresses for") && why.contains("--room"), "{why}");
        worker.ok(&format!("resize /{kind} 4096"));
        worker.all("drop n\ndrop m\nclose o");
    }
    // What comes next to it is another's.
    worker.ok("create o /next size=4096 fixed");
    worker.ok("map m o rw shared 0 0");
}

#[test]
fn what_cannot_have_one_address_is_refused_with_the_reason() {
    let host = TestHost::start();
    let worker = host.worker();
    for (options, kind, says) in [
        ("size=4096 wired", "Invalid", "lies where its arena is mapped"),
        ("size=2097152 shared-tables", "Invalid", "lies where its page tables reach"),
        ("size=4096 description=channel", "Invalid", "by offsets"),
        ("size=4096 strict", "Unsupported", "start it with --listen"),
        ("size=4096 explicit", "Unsupported", "start it with --listen"),
        ("size=4096 central home-moves replicas=1", "Invalid", "leave home_moves out"),
        ("size=9000000000000 reserve=no", "Invalid", "do not fit the region"),
    ] {
        let why = worker.refused(&format!("create o /x {options} fixed"), kind);
        assert!(why.contains(says), "{options}: {why}");
    }
    let why = worker.refused("create o /x size=8192 fixed=4096", "Invalid");
    assert!(why.contains("addresses for 4096 bytes, and 8192 do not fit"), "{why}");
    worker.refused("create-nameless o size=4096 fixed", "Invalid");
    // Who asks does not choose.
    let chosen = Some(Fixed { address: 0x2000_0000_0000, room_bytes: ROOM });
    let options = CreateOptions { size_bytes: 4096, fixed: chosen, ..CreateOptions::default() };
    let why = host.connect().create("/x", &options, None).unwrap_err();
    assert!(why.kind == ErrorKind::Invalid && why.message.contains("the host gives addresses"), "{why}");
    worker.refused("open o /x r", "NotFound");
    // A snapshot is another object, which has none.
    worker.ok("create o /frozen size=65536 freezable fixed");
    worker.ok("snapshot s o /frozen@1");
    assert_eq!(worker.ok("info s address"), "-");
    worker.all("map m o rw shared 0 0\nmap s s r shared 0 0");
}

#[test]
fn neither_one_user_nor_everybody_together_has_more_than_there_is() {
    let host = TestHost::start();
    let (root, user, other) = (host.worker(), host.worker_of(4711, 4711), host.worker_of(4712, 4712));
    let many = 200u64 << 30;
    user.ok(&format!("create a /u/a size=4096 fixed={many}"));
    let why = user.refused(&format!("create b /u/b size=4096 fixed={many}"), "Quota");
    assert!(why.contains("user 4711 has 214748364800 bytes of fixed addresses"), "{why}");
    user.ok("create b /u/b size=4096 fixed");
    other.ok(&format!("create a /o/a size=4096 fixed={many}"));
    // What is removed is given back when nobody uses it any more.
    user.ok("remove /u/a");
    user.refused(&format!("create c /u/c size=4096 fixed={many}"), "Quota");
    user.ok("close a");
    user.ok(&format!("create c /u/c size=4096 fixed={many}"));
    // Who runs the host may have all; then there is no more, and nothing is left of the attempt.
    let mut made = 0;
    let why = loop {
        match root.ask(&format!("create o /r/{made} size=4096 reserve=no fixed={}", 1u64 << 40)) {
            Ok(_) => made += 1,
            Err(refused) => break refused,
        }
        assert!(made <= 8, "there are 8 TiB");
    };
    assert!(made >= 5 && why.kind == "NoSpace" && why.message.contains("free addresses in a row"), "{why:?}");
    root.refused(&format!("stat /r/{made} size"), "NotFound");
    root.all("close o\nremove /r/0");
    root.ok(&format!("create o /r/again size=4096 reserve=no fixed={}", 1u64 << 40));
}

#[test]
fn neither_one_user_nor_one_host_has_all_that_hosts_share() {
    let hosts = pair(&[]);
    let (user, root) = (hosts[1].worker_of(4711, 4711), hosts[1].worker());
    let half = 300u64 << 30;
    user.eventually(&format!("create a /u/a size=4096 strict fixed={half}"));
    let why = user.refused(&format!("create b /u/b size=4096 strict fixed={half}"), "Quota");
    assert!(why.contains("user 4711 has 322122547200 bytes"), "{why}");
    // Nothing is left of it: neither its name nor its addresses.
    user.ok("create b /u/b size=4096 strict fixed");
    for number in 0..3 {
        root.ok(&format!("create o /r/{number} size=4096 strict reserve=no fixed={}", 1u64 << 40));
    }
    let why = root.refused(&format!("create o /r/3 size=4096 strict fixed={}", 1u64 << 40), "Quota");
    assert!(why.starts_with("other has"), "{why}");
    // The other host has its share.
    let first = hosts[0].worker();
    first.ok(&format!("create o /h/0 size=4096 strict fixed={}", 1u64 << 40));
    // What is removed can be had again at once.
    root.all("close o\nremove /r/0");
    root.ok(&format!("create o /r/3 size=4096 strict fixed={}", 1u64 << 40));
    user.ok("remove /u/a");
    user.ok(&format!("create c /u/c size=4096 strict fixed={half}"));
}
