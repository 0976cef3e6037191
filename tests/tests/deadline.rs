//! Objects with a fault deadline while the host is dead and cannot be started again, or was started and does not become
//! ready: the keeper ends the waits that are too long, and nobody else's, and the next host heals what it did.

use commonhold_tests::host::kill;
use commonhold_tests::{MIB, PAGE, TestHost, Worker, page, wait};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const EFAULT: &str = "errno14";
const PAGES: u64 = MIB / PAGE as u64;
const SEED: u64 = 7;
/// Far more than a host that lives needs for a page, on any machine.
const DEADLINE_MS: u32 = 2000;

/// What the keeper finds where the host's program was.
enum Instead {
    Nothing,
    Script(&'static str),
}

/// Puts something else in the program's place.
fn take_program_away(host: &TestHost, instead: &Instead) {
    let (program, away) = (host.program(), host.scratch().join("program-away"));
    if !away.exists() {
        std::fs::rename(program, away).unwrap();
    }
    match instead {
        Instead::Nothing => drop(std::fs::remove_file(program)),
        Instead::Script(text) => {
            let fresh = host.scratch().file_of("script", text.as_bytes());
            std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)).unwrap();
            std::fs::rename(fresh, program).unwrap();
        }
    }
}

fn put_program_back(host: &TestHost) {
    std::fs::rename(host.scratch().join("program-away"), host.program()).unwrap();
}

/// Puts the program back and waits until a host of it serves.
fn let_host_come_back(host: &TestHost) {
    put_program_back(host);
    host.status();
}

/// A host whose file objects `/late` and, without a deadline, `/patient` are full of known pages.
fn host_with_objects(deadline_ms: u32) -> TestHost {
    let host = TestHost::of_a_copy();
    let creator = host.worker();
    for (name, more) in [("late", format!("fault-deadline={deadline_ms}")), ("patient", String::new())] {
        let file = host.scratch().file_of(name, &page::bytes(0, PAGES, SEED));
        creator.ok(&format!("create o /{name} file={} sync=ordered {more}", file.display()));
    }
    host
}

fn mapper(host: &TestHost, name: &str, wishes: &str) -> Worker {
    let worker = host.worker();
    worker.all(&format!("open o {name} rw\nmap m o rw shared 0 0 {wishes}"));
    worker
}

fn first_byte_of(index: u64) -> String {
    page::bytes(index, 1, SEED)[0].to_string()
}

fn read_of(index: u64) -> String {
    format!("get m {}", index * PAGE as u64)
}

/// Has the kernel read a page: where the page cannot be had that is an error, and nobody dies of it.
fn by_the_kernel(index: u64) -> String {
    format!("write-out m {index} 1 {SEED}")
}

/// Kills the host, which cannot be started again: waits until the keeper has said so.
fn end_host_for_good(host: &TestHost, instead: &Instead, says: &str) {
    let pid = host.status().host_pid;
    let before = host.log().matches(says).count();
    take_program_away(host, instead);
    kill(pid);
    wait::until("the keeper tries in vain", || (host.log().matches(says).count() > before).then_some(()));
}

fn last_started(host: &TestHost) -> u32 {
    let log = host.log();
    let rest = log.rsplit("started host ").next().expect("a host was started");
    rest.split(',').next().and_then(|pid| pid.parse().ok()).expect("a process")
}

const ENDED: &str = "no host serves: pages given SIGBUS after their object's fault deadline: ";

#[test]
fn only_who_has_a_deadline_is_ended_while_no_host_can_be_started() {
    let host = host_with_objects(DEADLINE_MS);
    let kernel_faults = host.connect().kernel_faults().unwrap();
    let ways = [
        (Instead::Script("#!/bin/sh\nexit 1\n"), "(exit code 1)"),
        (Instead::Nothing, "cannot start"),
        (Instead::Script("#!/bin/sh\nexec sleep 60\n"), "started host"),
    ];
    for (instead, says) in ways {
        let patient = mapper(&host, "/patient", "");
        let killed = [3, 200].map(|index| (mapper(&host, "/late", ""), index));
        let survivors = [2, 201].map(|index| (mapper(&host, "/late", ""), index));
        // There are frames now, and of one of them its page table holds a mark.
        survivors[0].0.all(&format!("check m 0 4 {SEED}\nraw-dontneed m 2 1"));
        end_host_for_good(&host, &instead, says);
        // Waits from before the others do.
        patient.send(&read_of(200));
        killed.iter().for_each(|(worker, index)| worker.send(&read_of(*index)));
        if kernel_faults {
            survivors.iter().for_each(|(worker, index)| worker.send(&by_the_kernel(*index)));
            for (worker, _) in &survivors {
                assert_eq!(worker.answer().map_err(|refused| refused.kind), Err(EFAULT.to_owned()));
            }
        }
        for (worker, _) in &killed {
            assert_eq!(worker.wait().signal(), Some(libc::SIGBUS));
        }
        assert_eq!(patient.answer_within(Duration::from_millis(500)), None, "it has no deadline");
        assert!(host.log().contains(ENDED), "the log says what was ended");
        put_program_back(&host);
        if matches!(instead, Instead::Script(text) if text.contains("sleep")) {
            kill(last_started(&host));
        }
        assert_eq!(patient.answer(), Ok(first_byte_of(200)), "the next host answers");
        for (worker, index) in &survivors {
            if kernel_faults {
                wait::until("the page is healed", || worker.ask(&by_the_kernel(*index)).ok());
            }
            worker.ok(&format!("check m 0 {PAGES} {SEED}"));
        }
    }
}

#[test]
fn a_death_between_two_hosts_ends_nothing() {
    let host = host_with_objects(60_000);
    let worker = mapper(&host, "/late", "");
    for index in 100..105 {
        let before = host.status().host_pid;
        take_program_away(&host, &Instead::Script("#!/bin/sh\nexit 1\n"));
        kill(before);
        worker.send(&read_of(index));
        put_program_back(&host);
        assert_eq!(worker.answer(), Ok(first_byte_of(index)));
        host.wait_for_other_host(before);
    }
    assert!(!host.log().contains(ENDED));
}

/// In-thread service: what is in memory is had without any host, and what is not is asked for through another mapping,
/// whose faults have the same deadline.
#[test]
fn threads_that_serve_themselves_have_the_deadline_too() {
    let host = host_with_objects(DEADLINE_MS);
    let (own, other) = (mapper(&host, "/late", "in-thread"), mapper(&host, "/late", "in-thread"));
    // So that there are frames.
    other.ok(&format!("check m 0 4 {SEED}"));
    end_host_for_good(&host, &Instead::Nothing, "cannot start");
    own.ok(&format!("check m 0 4 {SEED}"));
    own.dies(&read_of(200), libc::SIGBUS);
    let_host_come_back(&host);
    other.ok(&format!("check m 0 {PAGES} {SEED}"));
}

/// What is known of writes under synchronous protection is in the protection alone: it stays, and the write waits.
#[test]
fn a_protected_write_is_not_let_through() {
    let host = TestHost::of_a_copy();
    let file = host.scratch().file_of("stored", &page::bytes(0, PAGES, SEED));
    let (writer, toucher) = (host.worker(), host.worker());
    writer.ok(&format!(
        "create o /late file={} sync=ordered freezable fault-deadline={DEADLINE_MS}",
        file.display()
    ));
    writer.all(&format!("map m o rw shared 0 0\ncheck m 0 4 {SEED}"));
    toucher.all("open o /late rw\nmap m o rw shared 0 0");
    end_host_for_good(&host, &Instead::Nothing, "cannot start");
    writer.send("put m 5 99");
    toucher.dies(&read_of(200), libc::SIGBUS);
    assert_eq!(writer.answer_within(Duration::from_millis(500)), None, "nobody may let it write");
    put_program_back(&host);
    assert!(writer.answer().is_ok());
    // (How many pages it stored may be said by a repetition, to which the host before was deaf.)
    writer.ok(&format!("sync o 0 {MIB}"));
    assert_eq!(std::fs::read(&file).unwrap()[5], 99, "the write was noticed");
}

#[test]
fn keeper_and_host_may_die_in_turn_meanwhile() {
    let host = host_with_objects(DEADLINE_MS);
    let worker = mapper(&host, "/late", "");
    for index in [100, 120, 140] {
        // The keeper that ends the wait was filled by the host that it survives.
        let filled = host.log().matches("filled by host").count();
        host.kill_keeper();
        wait::until("another keeper is filled", || {
            (host.log().matches("filled by host").count() > filled).then_some(())
        });
        let toucher = mapper(&host, "/late", "");
        end_host_for_good(&host, &Instead::Nothing, "cannot start");
        toucher.dies(&read_of(index), libc::SIGBUS);
        let_host_come_back(&host);
        worker.ok(&format!("check m {index} 8 {SEED}"));
    }
}
