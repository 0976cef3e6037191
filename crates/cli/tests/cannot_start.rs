//! Hosts that cannot start: whoever asks is told why, at once, and nothing is left behind.

mod common;

use common::{Signal, TestHost, eventually, kill};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

/// An address that somebody has, and who has it.
fn taken() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// What the command says on standard error, which ends without waiting for a host.
fn said_at_once(host: &TestHost, words: &[&str]) -> String {
    let child = host.command(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = Ending(child);
    eventually(&format!("{words:?} has ended"), || child.0.try_wait().unwrap().is_some());
    std::io::read_to_string(child.0.stderr.take().unwrap()).unwrap()
}

struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn plain<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["host", "start", "--plain", "--name", "a"], more].concat()
}

#[test]
fn a_host_that_cannot_begin_says_why_and_leaves_nothing() {
    let (_taken, address) = taken();
    let free = "127.0.0.1:1"; // which an error that comes first keeps from being taken
    let cases = [
        (plain(&["--listen", &address]), "in use"),
        (plain(&["--listen", &address, "--quiet"]), "in use"),
        (plain(&["--listen", &address, "--foreground"]), "in use"),
        (plain(&["--listen", free, "--registry", "etcds://127.0.0.1:1", "--registry-ca", "nothing"]), "etcd"),
        (plain(&["--listen", "192.0.2.1:1"]), "192.0.2.1"),
        (vec!["host", "start", "--plain", "--name", "", "--listen", &address], "name"),
    ];
    for (words, why) in cases {
        let host = TestHost::nowhere();
        let said = said_at_once(&host, &words);
        assert!(said.contains(why) && said.lines().count() == 1, "{words:?}: {said}");
        assert!(!host.state().exists(), "{words:?} left {}", host.state().display());
        std::fs::create_dir(host.state()).unwrap();
        said_at_once(&host, &words);
        assert_eq!(std::fs::read_dir(host.state()).unwrap().count(), 0, "{words:?} left files");
        assert!(said_at_once(&host, &["host", "status"]).contains("no host answers"));
        assert!(said_at_once(&host, &["host", "stop", "--force"]).contains("no host answers"));
    }
}

#[test]
fn a_host_that_cannot_begin_leaves_the_state_of_the_one_before() {
    let host = TestHost::start();
    std::fs::write(host.file("in"), "kept").unwrap();
    host.run(&["create", "/kept", "--size", "4096", "--file", "store", "--create-file"]).text();
    host.run(&["host", "stop"]).text();
    std::fs::write(host.state().join("members"), "no list").unwrap();
    for _ in 0..2 {
        let said = said_at_once(&host, &["host", "start", "--plain", "--name", "a", "--listen", &taken().1]);
        assert!(said.contains("holds no list of members"), "{said}");
        assert!(!host.state().join("host.sock").exists());
    }
    host.run(&["host", "start"]).text();
    host.run(&["stat", "/kept"]).text();
}

/// A host of a cluster whose address another has by now: its keeper cannot start the next one.
fn without_its_address() -> (TestHost, TcpListener, u64) {
    let (listener, address) = taken();
    drop(listener);
    let host = TestHost::nowhere();
    host.run(&["host", "start", "--plain", "--name", "a", "--listen", &address]).text();
    host.run(&["create", "/a", "--size", "4096"]).text();
    let (host_pid, keeper) = (host.pid("host_pid"), host.pid("keeper_pid"));
    kill(Signal::STOP, keeper);
    kill(Signal::KILL, host_pid);
    let mut taken = None;
    eventually("the address is free", || {
        taken = TcpListener::bind(&address).ok(); // not yet
        taken.is_some()
    });
    kill(Signal::CONT, keeper);
    let log = host.state().join("log");
    let failed = || std::fs::read_to_string(&log).unwrap().contains("ended by an error");
    eventually("the next host has failed", failed);
    (host, taken.unwrap(), keeper)
}

#[test]
fn where_no_next_host_can_start_every_command_says_why_and_goes_on_when_one_can() {
    let (host, address, keeper) = without_its_address();
    for words in
        [&["host", "status"][..], &["host", "start"], &["host", "start", "--quiet"], &["host", "stop"]]
    {
        let said = said_at_once(&host, words);
        assert!(said.contains("in use") && said.lines().count() == 1, "{words:?}: {said}");
    }
    drop(address);
    eventually("the next host serves", || host.status().is_some());
    assert_eq!(host.pid("keeper_pid"), keeper);
    host.run(&["stat", "/a"]).text();
}

#[test]
fn stop_with_force_ends_a_keeper_that_has_no_host() {
    let (host, _address, keeper) = without_its_address();
    host.run(&["host", "stop", "--force"]).text();
    assert!(commonhold_sys::process::identity(keeper as u32).is_err(), "the keeper lives on");
    assert!(!host.state().join("host.sock").exists());
    host.run(&["host", "start"]).text();
}

/// What a lock says is the word of whoever may write it.
#[test]
fn stop_with_force_ends_no_process_that_a_lock_of_another_names() {
    let (host, _address, keeper) = without_its_address();
    let victim = Ending(Command::new("sleep").arg("600").spawn().unwrap());
    let lock = host.state().join("lock");
    let lives = || commonhold_sys::process::identity(victim.0.id()).is_ok();
    if rustix::process::geteuid().is_root() {
        std::fs::write(&lock, format!("{:<10}\n", victim.0.id())).unwrap();
        std::os::unix::fs::chown(&lock, Some(64_001), None).unwrap();
        assert!(said_at_once(&host, &["host", "stop", "--force"]).contains("is not the owner's"));
        assert!(lives(), "it was told to end by another user's word");
        std::fs::write(&lock, keeper.to_string()).unwrap();
        std::os::unix::fs::chown(&lock, Some(0), None).unwrap();
    }
    // The lock is another's file.
    let (other, away) = (host.file("other"), host.state().join("away"));
    std::fs::write(&other, victim.0.id().to_string()).unwrap();
    std::fs::rename(&lock, &away).unwrap();
    std::os::unix::fs::symlink(&other, &lock).unwrap();
    assert!(said_at_once(&host, &["host", "stop", "--force"]).contains("lock"));
    assert!(lives(), "it was told to end by a link");
    std::fs::rename(&away, &lock).unwrap();
}
