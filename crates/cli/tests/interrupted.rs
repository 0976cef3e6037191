//! Copies that are interrupted, on a real host.

mod common;

use common::{Signal, TestHost, eventually, kill};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// An atomic object of that size on the file `store`.
fn atomic(host: &TestHost) {
    let words = ["create", "/a", "--size", "1TiB", "--file", "store", "--create-file", "--sync", "atomic"];
    host.run(&words).text();
}

fn dirty(host: &TestHost) -> u64 {
    host.run(&["stat", "/a", "--json"]).json()[0]["dirty_bytes"].as_u64().unwrap()
}

/// What was copied is in memory, nothing of it is stored, and it can be dropped.
fn nothing_is_stored(host: &TestHost) {
    let opens = || host.run(&["stat", "/a", "--json"]).json()[0]["opens"].as_u64().unwrap();
    eventually("the host has seen the copy end", || opens() == 0);
    assert!(dirty(host) > 0);
    assert_eq!(std::fs::metadata(host.file("store")).unwrap().blocks(), 0);
    assert!(host.run(&["revert", "/a", "--json"]).json()["dropped_pages"].as_u64().unwrap() > 0);
    assert_eq!(dirty(host), 0);
}

/// Starts a copy that takes far longer than the test, of something and then very much of nothing.
fn copying(host: &TestHost, to: &str) -> Child {
    host.run(&["create", "/large", "--size", "1TiB", "--reserve", "no"]).text();
    std::fs::write(host.file("in"), common::pattern(16 << 20)).unwrap();
    host.run(&["cp", "in", ":/large"]).text();
    host.command(&["cp", ":/large", to]).stderr(Stdio::piped()).spawn().unwrap()
}

/// Interrupts it; gives what it said. One that goes on would fill the disk.
fn interrupt(mut copy: Child) -> String {
    kill(Signal::INT, copy.id().into());
    let deadline = Instant::now() + Duration::from_secs(60);
    while copy.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            copy.kill().unwrap();
            panic!("the copy was interrupted and went on");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = copy.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_interrupted_copy_takes_away_what_it_made() {
    let host = TestHost::start();
    let copy = copying(&host, "out");
    eventually("the copy has begun", || host.file("out").exists());
    let said = interrupt(copy);
    assert!(said.contains("out was taken away again"), "{said}");
    assert!(!host.file("out").exists());
}

#[test]
fn an_interrupted_copy_into_an_atomic_object_stores_nothing() {
    let host = TestHost::start();
    atomic(&host);
    let copy = copying(&host, ":/a");
    eventually("some of it was copied", || dirty(&host) > 4 << 20);
    let said = interrupt(copy);
    assert!(said.contains("commonhold revert /a"), "{said}");
    nothing_is_stored(&host);
}

#[test]
fn a_copy_into_an_atomic_object_that_fails_stores_nothing() {
    let host = TestHost::start();
    atomic(&host);
    std::fs::write(host.file("in"), common::pattern(16 << 20)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(host.file("in")).unwrap();
    file.set_len(1 << 40).unwrap();
    let copy = host.command(&["cp", "in", ":/a"]).stderr(Stdio::piped()).spawn().unwrap();
    eventually("some of it was copied", || dirty(&host) > 4 << 20);
    file.set_len(0).unwrap();
    let output = copy.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("commonhold revert /a") && said.lines().count() == 1, "{said}");
    nothing_is_stored(&host);
}

#[test]
fn what_was_started_to_ignore_a_signal_ignores_it() {
    let host = TestHost::start();
    std::fs::write(host.file("in"), common::pattern(4096)).unwrap();
    // The shell's children inherit what it ignores; it sends itself the signal that the copy must survive.
    let script = "trap '' INT; \"$@\" & copy=$!; kill -INT $copy; wait $copy";
    let copy = host.command(&["cp", "in", ":/b"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(copy.get_program()).args(copy.get_args());
    let output = shell.current_dir(host.state().parent().unwrap()).env_remove("COMMONHOLD_HOST").output();
    assert!(output.unwrap().status.success());
    assert_eq!(host.run(&["cat", "/b"]).bytes(), common::pattern(4096));
}
