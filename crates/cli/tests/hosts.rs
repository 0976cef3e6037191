//! `host start|stop|restart|upgrade|status`, with real hosts.

mod common;

use common::{Signal, TestHost, eventually, kill, pattern, word};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

#[test]
fn a_second_host_on_the_same_directory_is_refused() {
    let host = TestHost::start();
    let before = host.pid("host_pid");
    assert!(host.run(&["host", "start"]).complaint().contains("already"));
    assert_eq!(host.run(&["host", "start", "--quiet"]).text(), "");
    assert_eq!(host.pid("host_pid"), before);
}

/// Processes that were killed have the lock until the kernel has taken all of theirs down.
#[test]
fn a_host_starts_where_the_ones_before_are_still_dying() {
    let host = TestHost::start();
    let lock = std::fs::File::options().write(true).open(host.state().join("lock")).unwrap();
    let (keeper, before) = (host.pid("keeper_pid"), host.pid("host_pid"));
    kill(Signal::STOP, keeper);
    [before, keeper].into_iter().for_each(|pid| kill(Signal::KILL, pid));
    lock.lock().unwrap();
    let starts = host.command(&["host", "start"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    drop(lock);
    let said = starts.wait_with_output().unwrap();
    assert!(said.status.success() && String::from_utf8_lossy(&said.stdout).contains("started"), "{said:?}");
    assert_ne!(host.pid("host_pid"), before);
}

#[test]
fn the_memory_of_direct_objects_is_told() {
    let host = TestHost::start();
    let direct = || host.status().unwrap()["direct_bytes"].as_u64().unwrap();
    assert_eq!(direct(), 0);
    host.run(&["create", "/reserved", "--size", "1MiB"]).text();
    assert_eq!(direct(), 1 << 20);
    host.run(&["create", "/sparse", "--size", "1MiB", "--reserve", "no"]).text();
    assert_eq!(direct(), 1 << 20, "what was never touched takes nothing");
    std::fs::write(host.file("in"), pattern(8192)).unwrap();
    host.run(&["cp", "in", ":/sparse"]).text();
    assert!(direct() >= (1 << 20) + 8192);
    host.run(&["create", "/controlled", "--size", "1MiB", "--controlled"]).text();
    host.run(&["rm", "/reserved"]).text();
    assert!(direct() < 1 << 20);
    let text = host.run(&["host", "status"]).text();
    assert!(text.lines().any(|line| line.starts_with("direct") && line.contains("of memory")), "{text}");
}

#[test]
fn many_who_start_a_host_at_once_get_one() {
    let host = TestHost::nowhere();
    let starting: Vec<Child> = (0..4)
        .map(|_| host.command(&["host", "start", "--quiet"]).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for child in starting {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(host.status().unwrap()["generation"], 1);
}

#[test]
fn stop_refuses_to_lose_anonymous_objects_unless_forced() {
    let host = TestHost::start();
    host.run(&["create", "/a", "--size", "4096"]).text();
    host.run(&["host", "stop"]).complaint();
    assert!(host.status().is_some());
    let (host_pid, keeper_pid) = (host.pid("host_pid"), host.pid("keeper_pid"));
    host.run(&["host", "stop", "--force"]).text();
    for pid in [host_pid, keeper_pid] {
        assert!(commonhold_sys::process::identity(pid as u32).is_err(), "process {pid} lives on");
    }
    assert!(host.run(&["host", "stop"]).complaint().contains("no host"));
}

#[test]
fn restart_and_upgrade_keep_everything() {
    let host = TestHost::start();
    std::fs::write(host.file("in"), pattern(100_000)).unwrap();
    host.run(&["cp", "in", ":/a"]).text();
    host.run(&["create", "/b", "--size", "1MiB", "--budget", "1MiB"]).text();
    host.run(&["cp", "in", ":/b"]).text();
    let (host_pid, keeper_pid) = (host.pid("host_pid"), host.pid("keeper_pid"));

    host.run(&["host", "restart"]).text();
    assert_ne!(host.pid("host_pid"), host_pid);
    assert_eq!(host.pid("keeper_pid"), keeper_pid);
    host.run(&["host", "restart", "--keeper"]).text();
    assert_ne!(host.pid("keeper_pid"), keeper_pid);
    let said = host.run(&["host", "upgrade", "--program", env!("CARGO_BIN_EXE_commonhold"), "--json"]).json();
    assert_eq!(said["running"], true);

    for name in ["/a", "/b"] {
        let kept = host.run(&["cat", name, "--length", "100000"]).bytes();
        assert!(kept == pattern(100_000), "{name} is not what it was");
    }
}

#[test]
fn the_limits_reach_the_host_and_its_successors() {
    let host = TestHost::nowhere();
    host.run(&["host", "start", "--budget", "64MiB", "--quota", "10MiB", "--max-objects", "2"]).text();
    host.run(&["host", "restart"]).text();
    let status = host.status().unwrap();
    assert_eq!((&status["budget_bytes"], &status["quota_bytes"]), (&(64 << 20).into(), &(10 << 20).into()));
    assert!(host.run(&["create", "/large", "--size", "11MiB"]).complaint().contains("10485760"));
    host.run(&["create", "/a", "--size", "4096"]).text();
    host.run(&["create", "/b", "--size", "4096"]).text();
    host.run(&["create", "/c", "--size", "4096"]).complaint();
}

/// A foreground process that has said that its host is there.
fn foreground(host: &TestHost) -> Child {
    let mut command = host.command(&["host", "start", "--foreground"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("started host"), "{line}");
    child
}

#[test]
fn the_foreground_process_follows_its_host_and_stops_it() {
    let host = TestHost::nowhere();
    let mut watcher = foreground(&host);
    let first = host.pid("host_pid");
    kill(Signal::KILL, first);
    eventually("another host serves", || host.status().is_some_and(|s| s["host_pid"] != first));
    kill(Signal::KILL, host.pid("keeper_pid"));
    eventually("the host answers", || host.status().is_some());
    assert!(watcher.try_wait().unwrap().is_none(), "it ended while there was a host");
    kill(Signal::TERM, watcher.id().into());
    let output = watcher.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(host.status().is_none());
}

#[test]
fn the_foreground_process_ends_in_order_with_an_ordered_stop() {
    let host = TestHost::nowhere();
    let watcher = foreground(&host);
    host.run(&["host", "stop"]).text();
    let output = watcher.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_foreground_process_fails_when_host_and_keeper_both_die() {
    let host = TestHost::nowhere();
    let watcher = foreground(&host);
    let (host_pid, keeper_pid) = (host.pid("host_pid"), host.pid("keeper_pid"));
    // Stopped first: each of the two is quick to replace the other.
    for signal in [Signal::STOP, Signal::KILL] {
        kill(signal, keeper_pid);
        kill(signal, host_pid);
    }
    let output = watcher.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("both died") && said.contains(word(&host.state())), "{said}");
    host.run(&["host", "start"]).text();
}

#[test]
fn a_host_that_cannot_start_says_why() {
    let host = TestHost::nowhere();
    std::fs::write(host.file("state"), b"not a directory").unwrap();
    assert!(host.run(&["host", "start"]).complaint().contains("state directory"));
}

#[test]
fn doctor_sees_the_host() {
    let host = TestHost::start();
    let said = host.run(&["doctor", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&said.out).unwrap();
    let check = said["checks"].as_array().unwrap().iter().find(|check| check["name"] == "host").unwrap();
    assert_eq!(check["state"], "ok", "{check}");
}
