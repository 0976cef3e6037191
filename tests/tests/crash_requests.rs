//! Hosts killed while requests are on their way to them: each has its effect once, and its answer.

use commonhold::{Errand, PATIENCE};
use commonhold_object::wire::{Event, FromHost, Reply, Request};
use commonhold_object::{Access, ErrorKind, Name};
use commonhold_tests::crash::{Chance, Victim, kill_and_recover, rounds};
use commonhold_tests::host::{kill_together, signal};
use commonhold_tests::raw::Raw;
use commonhold_tests::{PAGE, TestHost, wait};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Pages of an object when it is long.
const LONG: u64 = 16;

/// Cuts an object, makes it long again and writes, until `over`. Gives how often; the error says what was not there any more.
fn cut_grow_and_write(
    host: &TestHost,
    name: &str,
    over: &AtomicBool,
    done: &AtomicU64,
) -> Result<(), String> {
    let mut errand = Errand::to(host.state(), PATIENCE).map_err(|e| e.to_string())?;
    let (_, memory) = errand.open(name, Access::ReadWrite).map_err(|e| e.to_string())?;
    let memory = std::fs::File::from(memory);
    let client = host.connect();
    let mut round = 0_u64;
    while !over.load(Ordering::Relaxed) {
        round += 1;
        // By two connections in turn: one of one thread, and one of many.
        let mut resize = |pages: u64| match round % 2 {
            0 => errand.resize(name, None, pages * PAGE as u64),
            _ => client.resize(name, pages * PAGE as u64),
        };
        resize(1).and_then(|()| resize(LONG)).map_err(|e| format!("{name}, round {round}: {e}"))?;
        let at = (LONG - 1) * PAGE as u64;
        memory.write_all_at(&round.to_le_bytes(), at).map_err(|e| e.to_string())?;
        for _ in 0..4 {
            let mut read = [0; 8];
            let found = memory.read_at(&mut read, at).map_err(|e| e.to_string())?;
            if found != 8 || u64::from_le_bytes(read) != round {
                return Err(format!(
                    "{name}: round {round} was written, and {found} bytes {read:?} are there"
                ));
            }
            std::thread::yield_now();
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[test]
fn a_resize_cuts_nothing_that_was_written_after_it() {
    let mut chance = Chance::new("a_resize_cuts_nothing_that_was_written_after_it");
    let done = AtomicU64::new(0);
    for _ in 0..rounds(20) {
        let (host, over) = (TestHost::start(), AtomicBool::new(false));
        let names: Vec<String> = (0..8).map(|n| format!("/o{n}")).collect();
        for name in &names {
            host.worker().ok(&format!("create o {name} size={} reserve=no", LONG * PAGE as u64));
        }
        std::thread::scope(|scope| {
            let begin = |name| {
                let (host, over, done) = (&host, &over, &done);
                scope.spawn(move || cut_grow_and_write(host, name, over, done))
            };
            let clients: Vec<_> = names.iter().map(|name| begin(name.as_str())).collect();
            // No more: the keeper would make longer and longer pauses.
            for _ in 0..5 {
                chance.pause(60);
                kill_and_recover(&host, Victim::Host);
            }
            over.store(true, Ordering::Relaxed);
            let said: Vec<_> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
            assert!(said.iter().all(Result::is_ok), "{said:?}");
        });
    }
    eprintln!("{} times", done.into_inner());
}

/// Kills the host, runs something while there is none, and waits for the next one.
fn while_no_host_lives(host: &TestHost, run: impl FnOnce()) {
    let before = host.status();
    signal(before.keeper_pid, libc::SIGSTOP);
    kill_together(&[before.host_pid]);
    run();
    signal(before.keeper_pid, libc::SIGCONT);
    host.wait_for_other_host(before.host_pid);
}

fn size_of(host: &TestHost, name: &str) -> u64 {
    host.worker().ok(&format!("stat {name} size")).parse().unwrap()
}

/// What a client sent while there was no host comes again when it hears of the next one. It may come late, after what the client
/// asked meanwhile in other threads: so only what comes again is worked on, and not even that by the host after the next.
#[test]
fn what_was_sent_to_a_dead_host_is_done_only_when_it_comes_again() {
    let host = TestHost::start();
    let long = LONG * PAGE as u64;
    host.worker().ok(&format!("create o /o size={long} reserve=no"));
    let mut raw = Raw::connect(&host);
    let resize = |size_bytes| Request::Resize { name: Name::new("/o").unwrap(), of: None, size_bytes };
    raw.ask(&Request::Hello { program: "raw".into() }, &[]).unwrap().unwrap();
    let is_told = |raw: &Raw| {
        wait::until("the client is told of the host", || match raw.hear()? {
            Some((_, FromHost::Event(Event::HostReplaced { generation }))) => Some(generation),
            Some(other) => panic!("{other:?}"),
            None => None,
        })
    };
    while_no_host_lives(&host, || assert!(raw.throw(&raw.bytes_for(100, false, &resize(0)), &[])));
    assert_eq!(is_told(&raw), 2);
    // Both are asked of this host after what was sent before; so what was sent before was passed by.
    assert!(matches!(raw.ask(&Request::Status, &[]), Some(Ok(Reply::Status(_)))));
    assert_eq!(size_of(&host, "/o"), long);
    // The client repeats it, but the host dies before it reads that, and the next one is told of what the client asks then.
    while_no_host_lives(&host, || assert!(raw.throw(&raw.bytes_for(100, true, &resize(0)), &[])));
    assert_eq!(is_told(&raw), 3);
    assert!(matches!(raw.ask(&Request::Status, &[]), Some(Ok(Reply::Status(_)))));
    assert_eq!(size_of(&host, "/o"), long);
    // What was asked while there was no host is asked for the first time by what comes again.
    let remove = Request::Remove { name: Name::new("/none").unwrap(), of: None };
    while_no_host_lives(&host, || assert!(raw.throw(&raw.bytes_for(101, false, &remove), &[])));
    assert_eq!(is_told(&raw), 4);
    assert!(raw.throw(&raw.bytes_for(101, true, &remove), &[]));
    assert!(matches!(raw.answer_to(101), Some(Err(error)) if error.kind == ErrorKind::NotFound));
    assert!(raw.throw(&raw.bytes_for(100, true, &resize(PAGE as u64)), &[]));
    assert_eq!(raw.answer_to(100), Some(Ok(Reply::Done)));
    assert_eq!(size_of(&host, "/o"), PAGE as u64);
}
