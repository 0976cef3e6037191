//! What stays: over restarts and upgrades, over the death of both processes, after a killed last mapper; hosts side by
//! side, and the one that a user's first client starts.

use commonhold::{Access, Host};
use commonhold_tests::{MIB, Scratch, TestHost, Worker, left_out, page, wait};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn restarts_and_upgrades_keep_everything() {
    let host = TestHost::start();
    let (mapper, passing) = (host.worker(), host.worker());
    for (kind, options) in host.kinds() {
        mapper.ok(&format!("create {kind} /used/{kind} {options} mode=640 description=<u4"));
        mapper.ok(&format!("map m{kind} {kind} rw shared 0 0"));
        mapper.ok(&format!("fill m{kind} 0 16 1"));
        // And one that no process has open while its host is replaced.
        let options = options.replace(&format!("/{kind}"), &format!("/{kind}-idle"));
        if options.contains("file=") {
            host.scratch().file(&format!("{kind}-idle"), 65536);
        }
        passing.ok(&format!("create o /idle/{kind} {options}"));
        passing.all("map m o rw shared 0 0\nfill m 0 16 7\ndrop m\nclose o");
    }
    passing.kill();
    let ways: [&[&str]; 4] =
        [&["host", "restart"], &["host", "upgrade"], &["host", "restart", "--keeper"], &["host", "upgrade"]];
    for (round, words) in ways.into_iter().enumerate() {
        let before = host.status();
        host.command(words, |_| {}).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let after = host.wait_for_other_host(before.host_pid);
        assert_eq!(after.objects, before.objects);
        if words.len() == 3 || words[1] == "upgrade" {
            assert_ne!(after.keeper_pid, before.keeper_pid, "{words:?}");
        }
        let (reader, seed) = (host.worker(), round + 1);
        for (kind, _) in kinds_without_files() {
            mapper.ok(&format!("check m{kind} 0 16 {seed}"));
            mapper.ok(&format!("fill m{kind} 0 16 {}", seed + 1));
            reader.ok(&format!("open o /used/{kind} r"));
            reader.all(&format!("map m o r shared 0 0\ncheck m 0 16 {}", seed + 1));
            assert_eq!(reader.ok("info o description"), "<u4");
            assert!(reader.ok("info o owner").ends_with(" 640"));
            reader.ok(&format!("open i /idle/{kind} r"));
            reader.all("map i i r shared 0 0\ncheck i 0 16 7\ndrop i\nclose i\ndrop m\nclose o");
        }
    }
    // Nothing was only half there: what was never synced is still known to be newer than the file.
    assert_eq!(mapper.ok("sync atomic 0 65536"), "16");
    assert!(std::fs::read(host.scratch().join("atomic")).unwrap() == page::bytes(0, 16, 5));
}

fn kinds_without_files() -> [(&'static str, ()); 6] {
    ["direct", "file", "controlled", "freezable", "ordered", "atomic"].map(|kind| (kind, ()))
}

#[test]
fn after_the_death_of_both_the_objects_of_files_are_there() {
    let host = TestHost::start();
    let (worker, holder) = (host.worker(), host.worker());
    for (kind, options) in host.kinds() {
        worker.ok(&format!("create o /{kind} {options} mode=604"));
        worker.all("map m o rw shared 0 0\nfill m 0 16 3\nsync o 0 65536\ndrop m\nclose o");
    }
    holder.ok(&format!("create h /held size={MIB} controlled"));
    holder.all("map m h rw shared 0 0\nfill m 0 256 4");
    worker.kill();
    for _ in 0..2 {
        host.kill_both();
        host.start_again().unwrap();
        let reader = host.worker();
        for kind in ["file", "ordered", "atomic"] {
            reader.all(&format!("open o /{kind} rw\nmap m o rw shared 0 0\ncheck m 0 16 3\ndrop m\nclose o"));
            assert!(reader.ok(&format!("stat /{kind} owner")).ends_with(" 604"));
        }
        // Of the anonymous ones those that nobody had are lost, and only they.
        for kind in ["direct", "controlled", "freezable"] {
            let refused = reader.ask(&format!("open o /{kind} r")).expect_err("it is gone");
            assert!(["Lost", "NotFound"].contains(&refused.kind.as_str()), "{kind}: {refused:?}");
        }
        reader.all("open o /held r\nmap m o r shared 0 0\ncheck m 0 256 4");
        holder.ok("check m 0 256 4");
    }
}

#[test]
fn an_orderly_stop_refuses_what_would_lose_something() {
    let host = TestHost::start();
    let file = host.scratch().file("stop", 65536);
    let worker = host.worker();
    worker.ok(&format!("create o /lab/x file={} sync=atomic mode=660", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 16 1\nsync o 0 65536\nfill m 0 1 2");
    let stop = || host.command(&["host", "stop"], |_| {});
    let says = stop().unwrap_err();
    assert!(says.contains(&worker.pid().to_string()) && says.contains("--force"), "{says}");
    // Not unmapped: the written page is nowhere but in memory.
    worker.kill();
    let says = wait::until("the client is forgotten", || stop().err().filter(|says| says.contains("/lab/x")));
    assert!(says.contains("sync or revert"), "{says}");
    let worker = host.worker();
    worker.ok("revert /lab/x");
    worker.ok(&format!("create a /anonymous size={MIB} reserve=no"));
    worker.kill();
    let says =
        wait::until("the client is forgotten", || stop().err().filter(|says| says.contains("/anonymous")));
    assert!(says.contains("anonymous and would be lost"), "{says}");
    let idle = host.worker();
    idle.ok("remove /anonymous");
    stop().expect("a client that has nothing open does not count");
    wait::until("both are gone", || host.processes().is_empty().then_some(()));
    host.start_again().unwrap();
    let worker = host.worker();
    worker.all("open o /lab/x rw\nmap m o rw shared 0 0\ncheck m 0 16 1");
    assert!(worker.ok("stat /lab/x owner").ends_with(" 660"));
    assert!(worker.ok("stat /lab owner").starts_with("directory "));
}

/// A writer that synced seed 1, wrote seed 2 into the first eight pages, and was killed. Waits until that is known:
/// until only `others` have the object open.
fn killed_writer(host: &TestHost, name: &str, others: &str) {
    let writer = host.worker();
    writer.all(&format!(
        "open o {name} rw\nmap m o rw shared 0 0\nfill m 0 16 1\nsync o 0 65536\nfill m 0 8 2"
    ));
    writer.kill();
    let looker = host.worker();
    wait::until("its mapping is gone", || (looker.ok(&format!("stat {name} mappings")) == "0").then_some(()));
    wait::until("it is settled", || (looker.ok(&format!("stat {name} opens")) == others).then_some(()));
}

#[test]
fn unsynced_pages_of_a_killed_last_mapper_are_kept_or_dropped() {
    let host = TestHost::start();
    for sync in ["ordered", "atomic"] {
        for death in ["keep", "revert"] {
            let name = format!("/{sync}-{death}");
            let file = host.scratch().file(&format!("{sync}{death}"), 65536);
            let creator = host.worker();
            creator.ok(&format!("create o {name} file={} sync={sync} death={death}", file.display()));
            creator.ok("close o");
            killed_writer(&host, &name, "0");
            let next = host.worker();
            next.all(&format!("open o {name} rw\nmap m o rw shared 0 0"));
            let stored =
                |first: u64, seed| std::fs::read(&file).unwrap()[..32768] == page::bytes(first, 8, seed);
            assert!(stored(0, 1), "{name}: only a sync reaches the file");
            if death == "revert" {
                next.all("check m 0 16 1\nput m 0 1");
            } else {
                next.ok("check m 0 8 2");
                assert_eq!(next.ok("incore o 0 32768"), "DDDDDDDD");
                // Reverted under a mapping, which shows what is stored from then on.
                assert_eq!(next.ok(&format!("revert {name}")), "8");
                next.all("check m 0 16 1\ndrop m");
                killed_writer(&host, &name, "1");
                next.ok("map m o rw shared 0 0");
                assert_eq!(next.ok("sync o 0 65536"), "8", "kept: the next mapper may store them");
                assert!(stored(0, 2));
            }
        }
    }
}

#[test]
fn while_another_maps_it_a_killed_writer_loses_nothing() {
    let host = TestHost::start();
    let file = host.scratch().file("shared", 65536);
    let (other, writer) = (host.worker(), host.worker());
    other.ok(&format!("create o /x file={} sync=atomic death=revert", file.display()));
    other.ok("map m o r shared 0 0");
    writer.all("open o /x rw\nmap m o rw shared 0 0\nfill m 0 16 1");
    writer.kill();
    wait::until("its mapping is gone", || (other.ok("info o mappings") == "1").then_some(()));
    other.ok("check m 0 16 1");
    assert_eq!(other.ok("sync o 0 65536"), "16");
    let says = host.command(&["revert", "/x"], |_| {});
    assert!(says.is_ok(), "{says:?}");
    let direct = host.worker();
    direct.ok("create d /direct size=4096");
    let says = direct.refused("revert /direct", "Unsupported");
    assert!(says.contains("sync = ordered or atomic"), "{says}");
}

#[test]
fn two_hosts_serve_two_state_directories() {
    let (one, two) = (TestHost::start(), TestHost::start());
    // One process that is a client of both.
    let (first, second) = (Host::connect_to(one.state()).unwrap(), Host::connect_to(two.state()).unwrap());
    for (host, text) in [(&first, b"one"), (&second, b"two")] {
        let options = commonhold::CreateOptions {
            size_bytes: MIB,
            controlled: true,
            ..commonhold::CreateOptions::default()
        };
        host.create("/same/name", &options, None).unwrap().write_at(text, 5000).unwrap();
    }
    let read = |host: &Host| {
        let mut found = [0; 3];
        host.open("/same/name", Access::Read).unwrap().read_at(&mut found, 5000).unwrap();
        found
    };
    assert_eq!((read(&first), read(&second)), (*b"one", *b"two"));
    first.remove("/same/name").unwrap();
    one.kill_both();
    assert_eq!(read(&second), *b"two");
    let workers: [Worker; 2] = [two.worker(), two.worker()];
    workers.iter().for_each(|worker| worker.all("open o /same/name rw\nmap m o rw shared 0 0\nput m 9 1"));
    one.start_again().unwrap();
    assert_eq!(one.connect().list("/same").unwrap().len(), 0);
}

#[test]
fn the_first_client_of_a_user_starts_a_host_of_his_own() {
    if std::path::Path::new("/var/lib/commonhold/host.sock").exists() {
        left_out("this machine has a host for everybody, which comes first");
        return;
    }
    let root = rustix::process::geteuid().is_root();
    for variable in ["HOME", "XDG_STATE_HOME"] {
        let scratch = Scratch::new();
        let home = scratch.join("home");
        std::fs::create_dir(&home).unwrap();
        if root {
            std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
        }
        let state = home.join(if variable == "HOME" { ".local/state/commonhold" } else { "commonhold" });
        let host = TestHost::not_started(scratch, state.clone(), &[], &[]);
        let run = |words: &[&str]| {
            host.command(words, |command| {
                command
                    .env_remove("COMMONHOLD_HOST")
                    .env_remove("XDG_STATE_HOME")
                    .env("HOME", "/nonexistent");
                command.env(variable, &home).env("COMMONHOLD_PROGRAM", host.program()).stderr(Stdio::piped());
                if root {
                    command.uid(65534).gid(65534);
                }
            })
        };
        let says = run(&["create", "/mine/x", "--size", "1MiB", "--reserve", "no"]);
        says.unwrap_or_else(|error| panic!("{variable}: {error}"));
        assert!(state.join("host.sock").exists(), "{variable}: where the user keeps state");
        // The next one finds it, and what the first had made.
        let pids = host.processes();
        let listed = run(&["ls", "/mine"]).unwrap();
        assert!(listed.contains('x'), "{listed}");
        assert_eq!(host.processes(), pids);
        assert_eq!(pids.len(), 2, "a host and its keeper");
        let says = run(&["host", "stop"]).unwrap_err();
        assert!(says.contains("/mine/x is anonymous"), "{says}");
        run(&["host", "stop", "--force"]).unwrap();
        wait::until("both are gone", || host.processes().is_empty().then_some(()));
    }
}

/// A host that was killed may need a moment to end, and holds the state directory until then, after its keeper said that it ended.
#[test]
fn a_host_starts_where_the_one_before_is_still_dying() {
    let scratch = Scratch::new();
    let state = scratch.join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("log"), "2026-01-01T00:00:00Z keeper[1]: ended\n").unwrap();
    let dying = std::fs::File::create(state.join("lock")).unwrap();
    dying.lock().unwrap();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(dying);
    });
    let host = TestHost::at(scratch, state, &[]);
    assert_eq!(host.status().objects, 0);
    ends.join().unwrap();
}
