//! The commands on objects, on a real host.

mod common;

use common::{TestHost, pattern};
use commonhold::{Access, Host, MapOptions};
use std::os::unix::fs::MetadataExt;

#[test]
fn an_object_lives_through_all_its_commands() {
    let host = TestHost::start();
    let made = host.run(&["create", "/lab/a", "--size", "64KiB", "--mode", "0640"]).text();
    assert_eq!(made, "/lab/a: 64.0 KiB, anonymous\n");
    assert_eq!(host.run(&["ls"]).text(), "/lab/\n");
    assert_eq!(host.run(&["ls", "/lab"]).text(), "/lab/a\n");
    let line = host.run(&["ls", "-l", "/lab"]).text();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[0], "rw-r-----", "{line}");
    assert_eq!(
        words[3..],
        ["64.0", "KiB", "anonymous", "local,", "plain", "0", "mappings", "/lab/a"],
        "{line}"
    );

    let resized = host.run(&["resize", "/lab/a", "128KiB", "--json"]).json();
    assert_eq!(resized["size_bytes"], 131_072);
    host.run(&["chmod", "0600", "/lab/a"]).text();
    host.run(&["mv", "/lab/a", "/elsewhere/b"]).text();
    let stat = host.run(&["stat", "/elsewhere/b", "--json"]).json();
    assert_eq!((&stat[0]["mode"], &stat[0]["size_bytes"]), (&"0600".into(), &131_072.into()));
    assert_eq!((&stat[0]["pager"], &stat[0]["sync"]), (&"anonymous".into(), &"plain".into()));
    assert!(host.run(&["stat", "/elsewhere/b"]).text().contains("128.0 KiB (131072 bytes)"));

    assert!(host.run(&["stat", "/lab/a"]).complaint().contains("/lab/a"));
    assert!(host.run(&["rm", "/elsewhere"]).complaint().contains("not empty"));
    let removed = host.run(&["rm", "-r", "/", "--json"]).json();
    assert!(removed["removed"].as_array().unwrap().contains(&"/elsewhere/b".into()), "{removed}");
    assert_eq!(host.run(&["ls", "-R"]).text(), "");
}

#[test]
fn one_bad_name_does_not_stop_the_others() {
    let host = TestHost::start();
    host.run(&["create", "/a", "--size", "4096"]).text();
    host.run(&["create", "/c", "--size", "4096"]).text();
    let said = host.run(&["stat", "/a", "/b", "/c", "--json"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(1), 1));
    let entries: serde_json::Value = serde_json::from_slice(&said.out).unwrap();
    assert_eq!(entries.as_array().unwrap().len(), 2);
    assert!(host.run(&["rm", "/a", "/b", "/c"]).complaint().contains("/b"));
    assert_eq!(host.run(&["ls"]).text(), "");
}

#[test]
fn bytes_go_in_and_come_out() {
    let host = TestHost::start();
    let bytes = pattern(3 * 1024 * 1024 + 17);
    std::fs::write(host.file("in"), &bytes).unwrap();
    let said = host.run(&["cp", "in", ":/a", "--json"]).json();
    assert_eq!((&said["created"], &said["size_bytes"]), (&true.into(), &bytes.len().into()));
    assert!(host.run(&["cat", "/a"]).bytes() == bytes);
    assert_eq!(host.run(&["cat", "/a", "--offset", "4095", "--length", "3"]).bytes(), bytes[4095..4098]);
    host.run(&["cp", ":/a", ":/b"]).text();
    host.run(&["cp", ":/b", "out"]).text();
    assert!(std::fs::read(host.file("out")).unwrap() == bytes);
    assert!(host.run(&["cat", "/a", "--offset", "4M"]).complaint().contains("past"));
    host.run_on(host.file("in"), &["cp", "-", ":/c"]).text();
    assert!(host.run(&["cat", "/c"]).bytes() == bytes);
    assert!(host.run_on("/dev/null".into(), &["cp", "-", ":/d"]).complaint().contains("empty"));
    // Input without an end: no more of it is taken than there is room for.
    assert!(host.run_on("/dev/zero".into(), &["cp", "-", ":/c"]).complaint().contains("resize"));
    assert!(host.run_on("/dev/zero".into(), &["cp", "-", "out"]).complaint().contains("colon"));
    assert!(host.run(&["cat", "/c"]).bytes() == bytes);
    assert!(host.run(&["cp", ":/a", "-"]).complaint().contains("commonhold cat"));
    assert_eq!(host.run(&["ls"]).text(), "/a\n/b\n/c\n");
    assert_eq!(host.run(&["ls", "/c", "/a"]).text(), "/c\n/a\n");
}

#[test]
fn what_cannot_be_copied_is_refused_and_nothing_changes() {
    let host = TestHost::start();
    std::fs::write(host.file("backing"), pattern(8192)).unwrap();
    std::fs::write(host.file("large"), pattern(8193)).unwrap();
    host.run(&["create", "/a", "--file", "backing"]).text();
    assert!(host.run(&["cp", "large", ":/a"]).complaint().contains("too small"));
    assert!(host.run(&["cp", ":/a", "backing"]).complaint().contains("both source and target"));
    assert!(host.run(&["cp", "backing", ":/a"]).complaint().contains("both source and target"));
    assert!(host.run(&["cp", ":/a", ":/a"]).complaint().contains("both source and target"));
    assert!(host.run(&["cp", "backing", "copy"]).complaint().contains(":/lab/weights"));
    assert!(host.run(&["cp", "missing", ":/b"]).complaint().contains(":/lab/weights"));
    assert!(host.run(&["cp", "/proc", ":/b"]).complaint().contains("regular file"));
    assert!(std::fs::read(host.file("backing")).unwrap() == pattern(8192));
    assert!(!host.file("copy").exists());
    assert!(host.run(&["cp", ":/a", "/dev/null"]).complaint().contains("commonhold cat"));
    std::fs::write(host.file("empty"), b"").unwrap();
    assert!(host.run(&["cp", "empty", ":/b"]).complaint().contains("empty"));
    assert_eq!(host.run(&["ls"]).text(), "/a\n");
}

#[test]
fn stretches_of_zeros_become_holes() {
    let host = TestHost::start();
    host.run(&["create", "/sparse", "--size", "64MiB", "--reserve", "no"]).text();
    std::fs::write(host.file("page"), pattern(4096)).unwrap();
    host.run(&["cp", "page", ":/sparse"]).text();
    let said = host.run(&["cp", ":/sparse", "out", "--json"]).json();
    assert_eq!((&said["size_bytes"], &said["written_bytes"]), (&(64 << 20).into(), &4096.into()));
    let out = std::fs::metadata(host.file("out")).unwrap();
    assert_eq!(out.len(), 64 << 20);
    assert!(out.blocks() * 512 < 1 << 20, "{} blocks", out.blocks());
}

#[test]
fn a_copy_into_an_atomic_file_object_is_stored() {
    let host = TestHost::start();
    let bytes = pattern(40_960);
    std::fs::write(host.file("in"), &bytes).unwrap();
    host.run(&["create", "/a", "--size", "40960", "--file", "store", "--create-file", "--sync", "atomic"])
        .text();
    host.run(&["cp", "in", ":/a"]).text();
    assert!(std::fs::read(host.file("store")).unwrap() == bytes);
    let said = host.run(&["incore", "/a", "--json"]).json();
    assert_eq!((&said["pages"], &said["dirty"]), (&10.into(), &0.into()));
    assert_eq!(host.run(&["sync", "/a", "--json"]).json()["stored_pages"], 0);
    assert_eq!(host.run(&["revert", "/a", "--json"]).json()["dropped_pages"], 0);
    host.run(&["rm", "/a"]).text();
    assert!(host.file("store").exists(), "rm must not delete a backing file");
}

#[test]
fn a_file_that_was_made_for_nothing_is_taken_away_again() {
    let host = TestHost::start();
    host.run(&["create", "/a", "--size", "4096"]).text();
    host.run(&["create", "/a", "--size", "4096", "--file", "new", "--create-file"]).complaint();
    assert!(!host.file("new").exists());
    std::fs::write(host.file("old"), pattern(4096)).unwrap();
    host.run(&["create", "/a", "--size", "4096", "--file", "old", "--create-file"]).complaint();
    assert!(std::fs::read(host.file("old")).unwrap() == pattern(4096));
    assert!(host.run(&["create", "/b", "--file", "missing"]).complaint().contains("--create-file"));
    assert!(host.run(&["create", "b", "--size", "4096"]).complaint().contains("slash"));
    for option in [["--fault-deadline", "5s"], ["--on-last-death", "revert"]] {
        let words = ["create", "/b", "--size", "4096", option[0], option[1]];
        assert!(host.run(&words).complaint().contains("make it controlled"));
    }
}

#[test]
fn what_others_named_reaches_no_terminal_as_it_is() {
    let host = TestHost::start();
    std::fs::write(host.file("a\nb\u{1b}[31m"), pattern(4096)).unwrap();
    host.run(&["create", "/a", "--file", "a\nb\u{1b}[31m", "--description", "x\ty"]).text();
    for words in [&["ls", "-l"][..], &["stat", "/a"]] {
        let text = host.run(words).text();
        assert!(text.contains("a\\nb\\u{1b}[31m"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\t'), "{text}");
    }
    assert_eq!(host.run(&["stat", "/a", "--json"]).json()[0]["description"], "x\ty");
    assert!(host.run(&["stat", "/"]).text().starts_with("name    /\n"));
}

#[test]
fn who_maps_an_object_is_told() {
    let host = TestHost::start();
    host.run(&["create", "/a", "--size", "64KiB", "--controlled"]).text();
    assert!(host.run(&["map-info", "/a"]).text().contains("nobody"));
    let client = Host::connect_to(&host.state()).unwrap();
    let object = client.open("/a", Access::ReadWrite).unwrap();
    let mapping = object.map(&MapOptions { offset: 4096, length: Some(8192), ..Default::default() }).unwrap();
    let said = host.run(&["map-info", "/a", "--json"]).json();
    assert_eq!(said.as_array().unwrap().len(), 1, "{said}");
    assert_eq!(said[0]["pid"], std::process::id());
    assert_eq!(said[0]["address"], format!("{:#x}", mapping.as_ptr() as usize));
    assert_eq!((&said[0]["length_bytes"], &said[0]["offset_bytes"]), (&8192.into(), &4096.into()));
    assert_eq!((&said[0]["protection"], &said[0]["sharing"]), (&"read-write".into(), &"shared".into()));
    object.write_at(&[7; 100], 4096).unwrap();
    let said = host.run(&["incore", "/a", "--json"]).json();
    assert_eq!(
        said["runs"].as_array().unwrap().iter().map(|run| run["pages"].as_u64().unwrap()).sum::<u64>(),
        16
    );
    assert!(host.run(&["ls", "-l", "/a"]).text().contains("mapping"));
    drop(mapping);
    assert!(host.run(&["map-info", "/a"]).text().contains("nobody"));
}

#[test]
fn an_object_with_one_address_says_where_it_is() {
    let host = TestHost::start();
    let words = ["create", "/lab/graph", "--size", "64KiB", "--fixed", "--room", "3MiB"];
    host.run(&words).text();
    let stat = host.run(&["stat", "/lab/graph", "--json"]).json();
    let address = stat[0]["address"].as_str().unwrap().to_owned();
    assert!(address.starts_with("0x2") && address.len() == 14, "{address}");
    assert_eq!(stat[0]["room_bytes"], 4 << 20);
    let said = host.run(&["stat", "/lab/graph"]).text();
    assert!(said.contains(&format!("{address} in all processes, room for 4.0 MiB")), "{said}");
    host.run(&["create", "/lab/other", "--size", "4096"]).text();
    assert!(host.run(&["stat", "/lab/other", "--json"]).json()[0]["address"].is_null());
    assert_eq!(
        host.run(&["create", "/x", "--size", "4096", "--room", "1MiB"]).code,
        Some(2),
        "without --fixed"
    );
    let why = host.run(&["create", "/x", "--size", "8TiB", "--fixed", "--room", "9TiB"]).complaint();
    assert!(why.contains("do not fit the region of fixed addresses"), "{why}");
    assert!(host.run(&["resize", "/lab/graph", "5MiB"]).complaint().contains("has addresses for"));
    // What the commands do with its bytes needs no address.
    std::fs::write(host.file("in"), b"bytes").unwrap();
    host.run(&["cp", "in", ":/lab/graph"]).text();
    assert!(host.run(&["cat", "/lab/graph", "--length", "5"]).text().starts_with("bytes"));
}

#[test]
fn who_waits_is_woken_by_who_notifies() {
    let host = TestHost::start();
    host.run(&["create", "/a", "--size", "8192"]).text();
    assert!(host.run(&["wait", "/a", "--timeout", "1ms"]).complaint().contains("nobody has notified of /a"));
    assert!(host.run(&["wait", "/a", "--offset", "8192", "--length", "1"]).complaint().contains("8192"));
    assert!(host.run(&["notify", "/a", "--offset", "8192"]).complaint().contains("length is zero"));
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| host.run(&["wait", "/a", "--offset", "4096", "--json"]).json());
        while !waits.is_finished() {
            assert_eq!(host.run(&["notify", "/a", "--offset", "8191", "--json"]).json()["notified_bytes"], 1);
        }
        assert_eq!(waits.join().unwrap()["woken"], true);
    });
}
