//! Watches: who waits for changes of bytes is woken when somebody says that there was one (`docs/WAIT.md`). On one machine.

use commonhold_tests::{TestHost, Worker};

/// Two processes that map an object of two pages and some bytes.
fn two(options: &str) -> (TestHost, Worker, Worker) {
    let host = TestHost::start();
    let (one, other) = (host.worker(), host.worker());
    one.all(&format!("create o /o size=8200 {options}\nmap m o rw shared 0 0"));
    other.all("open o /o rw\nmap m o rw shared 0 0");
    (host, one, other)
}

const KINDS: [&str; 3] = ["", "controlled", "strict"];

#[test]
fn who_watches_a_byte_is_woken_by_a_notification_of_it() {
    for kind in KINDS {
        let (_host, one, other) = two(kind);
        one.all("watching at w m 100 8\nwatching begin v o 108 1\nwatching begin end o 8199 1");
        assert_eq!(one.ok("watching polled w"), "false");
        other.ok("watching notify-at m 107 1");
        assert_eq!(one.ok("watching polled w"), "true", "{kind}");
        assert_eq!(one.ok("watching polled v"), "false", "bytes count, and not pages");
        assert_eq!(one.ok("watching wait w 0"), "true");
        assert_eq!(
            (one.ok("watching polled w"), one.ok("watching wait w 0")),
            ("false".into(), "false".into())
        );
        // Several are one; the last byte is one of the object's, also where its mapping goes on.
        other.all("watching notify o 0 8200\nwatching notify o 0 8200\nwatching notify-at m 8192 4096");
        for watch in ["w", "v", "end"] {
            assert_eq!(one.ok(&format!("watching wait {watch} 0")), "true");
            assert_eq!(one.ok(&format!("watching wait {watch} 0")), "false");
        }
        // A process wakes its own watches, too.
        one.ok("watching notify o 100 1");
        assert_eq!(one.ok("watching wait w -"), "true");
    }
}

#[test]
fn who_sleeps_is_woken() {
    for kind in KINDS {
        let (_host, one, other) = two(kind);
        for round in 1..=20 {
            one.ok("watching at w m 0 8");
            one.send("watching wait w -");
            other.all(&format!("put m 0 {round}\nwatching notify o 0 1"));
            assert_eq!(one.answer().unwrap(), "true");
            assert_eq!(one.ok("get m 0"), round.to_string());
        }
        one.send("watching wait-at m 0 8 -");
        // It may have come before the watch was made.
        while one.answer_within(std::time::Duration::from_millis(20)).is_none() {
            other.ok("watching notify o 0 1");
        }
    }
}

#[test]
fn plain_stores_and_syncs_of_the_same_host_wake_nobody() {
    for kind in ["", "controlled", "strict", "explicit"] {
        let (_host, one, other) = two(kind);
        one.all("watching at w m 0 8200\nget m 0\nget m 4096");
        other.all("fill m 0 2 1\nsync o 0 8200\nput m 1 5\nwatching begin other o 0 8");
        // What is asked of the host after it is answered: nothing is on its way any more.
        assert_eq!(one.ok("watching wait w 0"), "false", "{kind}");
        other.ok("watching notify o 0 1");
        assert_eq!(one.ok("watching wait w 0"), "true", "{kind}");
    }
}

#[test]
fn wrong_ranges_and_rights_are_refused_in_words() {
    for kind in KINDS {
        let (_host, one, other) = two(kind);
        for range in ["0 0", "8200 1", "0 8201", "8199 2", "18446744073709551615 1", "1 18446744073709551615"]
        {
            one.refused(&format!("watching begin w o {range}"), "Invalid");
            one.refused(&format!("watching notify o {range}"), "Invalid");
        }
        for range in ["0 0", "12288 1", "0 12289", "8200 1"] {
            one.refused(&format!("watching at w m {range}"), "Invalid");
        }
        one.refused("watching notify-at m 8200 1", "Invalid");
        // Who only reads may watch, and wakes nobody.
        other.all("drop m\nclose o\nopen o /o r\nmap m o r shared 0 0\nwatching at w m 0 8");
        let says = other.refused("watching notify o 0 1", "Permission");
        assert!(says.contains("open it for writing"), "{says}");
        assert_eq!(other.ok("watching wait w 0"), "false");
        one.ok("watching notify o 0 1");
        assert_eq!(other.ok("watching wait w 0"), "true");
    }
}

#[test]
fn a_fork_child_makes_its_own() {
    let (_host, one, other) = two("controlled");
    one.all("watching at w m 0 8\nfork _exit watching at v m 0 8");
    assert_eq!(one.ok("fork _exit watching wait w 0"), "code 1", "it is told that this is its parent's");
    other.ok("watching notify o 0 1");
    assert_eq!(one.ok("watching wait w 0"), "true", "the child has not taken it");
}

#[test]
fn a_watch_keeps_its_object_and_ends_with_it() {
    let (_host, one, other) = two("");
    one.all("watching begin w o 0 8\ndrop m\nclose o");
    other.ok("watching notify o 0 1");
    assert_eq!(one.ok("watching wait w 0"), "true");
    other.all("remove /o\nwatching notify o 0 1");
    assert_eq!(one.ok("watching wait w 0"), "true", "its name is not what is watched");
    one.ok("watching end w");
    other.ok("watching notify o 0 1");
}
