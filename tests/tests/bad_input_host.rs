//! What a host meets besides wrong requests: too much of everything, a full state directory, a journal that was cut, a
//! pager that never answers, a clock that jumps back. What storage does is in `storage`, what liars do in `hostile`.

use commonhold_object::wire::Request;
use commonhold_object::{Access, Error, ErrorKind, Name, ObjectId};
use commonhold_tests::raw::Raw;
use commonhold_tests::scratch::RamDisk;
use commonhold_tests::{MIB, PAGE, Scratch, TestHost, page, wait};
use std::os::unix::fs::FileExt;
use std::process::Command;

#[test]
fn too_many_objects_and_clients() {
    let host = TestHost::with(&["--max-objects", "3", "--max-clients", "4"]);
    let worker = host.worker();
    for name in ["/a", "/b", "/c"] {
        worker.ok(&format!("create o {name} size=4096"));
    }
    let says = worker.refused("create o /d size=4096", "Quota");
    assert!(says.contains("3 objects, the limit: remove some"), "{says}");
    assert_eq!(worker.ok("list /"), "/a /b /c");
    worker.all("close o\nremove /b\ncreate o /d size=4096");
    // A removed one counts for as long as it is in use.
    worker.all("remove /d\nremove /c\ncreate p /e size=4096");
    worker.refused("create q /f size=4096", "Quota");
    worker.all("close o\ncreate q /f size=4096");
    let mut silent: Vec<Raw> = (0..3).map(|_| Raw::connect(&host)).collect();
    wait::until("all are counted", || (worker_clients(&mut silent[0]) == 4).then_some(()));
    let error = Raw::connect(&host).last_words().expect("an error");
    assert_eq!(error.kind, ErrorKind::TooMany);
    assert!(
        error.message.contains("4 clients, its limit: end some, or start it with --max-clients"),
        "{error}"
    );
    let refused = commonhold::Host::connect_to(host.state()).and_then(|host| host.status()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooMany, "{refused}");
    worker.all("map m q rw shared 0 0\nfill m 0 1 1");
    silent.pop();
    wait::until("there is room", || {
        commonhold::Host::connect_to(host.state()).and_then(|host| host.status()).ok()
    });
    worker.ok("check m 0 1 1");
}

/// Clients as the host counts them, asked over a connection that is there already.
fn worker_clients(raw: &mut Raw) -> u64 {
    match raw.ask(&Request::Status, &[]) {
        Some(Ok(commonhold_object::wire::Reply::Status(status))) => status.clients,
        other => panic!("{other:?}"),
    }
}

#[test]
fn too_many_mappings_of_one_client() {
    let host = TestHost::start();
    let (worker, other) = (host.worker(), host.worker());
    worker.ok(&format!("create o /x size={} controlled mode=600", 256 * MIB));
    let limit = commonhold_object::limits::MAPPINGS_PER_CLIENT;
    // Every other page, so that no two of them are one.
    let offsets = |count: u64| (0..count).map(|n| (n * 8192).to_string()).collect::<Vec<_>>().join(" ");
    let says = worker.refused(&format!("map-many o 4096 {}", offsets(limit + 1)), "TooMany");
    assert!(says.contains("16384") && says.contains("unmap some, or map larger parts"), "{says}");
    assert_eq!(worker.ok("info o mappings"), "0", "all or none");
    worker.all("map m o rw shared 0 0\nfill m 0 10 1\ndrop m");
    other.all("open o /x rw\nmap m o rw shared 0 0\ncheck m 0 10 1");
}

#[test]
fn a_host_checks_what_the_library_checks() {
    let host = TestHost::start();
    let file = host.scratch().file("file", 32768);
    let worker = host.worker();
    worker.ok(&format!("create o /x file={} sync=atomic", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 8 1");
    let object = ObjectId(worker.ok("info o id").parse().unwrap());
    let mut raw = Raw::connect(&host);
    let mut refused = |request: &Request| -> Error {
        raw.ask(request, &[])
            .expect("the connection stays")
            .expect_err(&format!("{request:?} was not refused"))
    };
    let unopened = refused(&Request::Sync { object, offset: 0, length: 4096, freeze: false });
    assert_eq!(unopened.kind, ErrorKind::NotFound, "{unopened}");
    assert!(unopened.message.contains("open it first"), "{unopened}");
    let name = Name::new("/x").unwrap();
    assert_eq!(refused(&Request::Resize { name: name.clone(), size_bytes: 0 }).kind, ErrorKind::Invalid);
    assert_eq!(
        refused(&Request::Resize { name: name.clone(), size_bytes: u64::MAX }).kind,
        ErrorKind::Invalid
    );
    assert_eq!(refused(&Request::SetMode { name: name.clone(), mode: 0o4777 }).kind, ErrorKind::Invalid);
    raw.ask(&Request::Open { name: name.clone(), access: Access::ReadWrite }, &[]).unwrap().unwrap();
    let mut refused = |request: &Request| -> Error {
        raw.ask(request, &[])
            .expect("the connection stays")
            .expect_err(&format!("{request:?} was not refused"))
    };
    for (offset, length) in [(0, 0), (0, 32769), (32768, 1), (u64::MAX, 2), (u64::MAX, u64::MAX)] {
        for request in [
            Request::Sync { object, offset, length, freeze: false },
            Request::Lock { object, offset, length },
            Request::Unlock { object, offset, length },
            Request::Prefetch { object, offset, length },
        ] {
            assert_eq!(refused(&request).kind, ErrorKind::Invalid, "{request:?}");
        }
    }
    for (first_page, pages) in [(0, 0), (0, u64::MAX), (u64::MAX, 2)] {
        assert_eq!(refused(&Request::Incore { object, first_page, pages }).kind, ErrorKind::Invalid);
    }
    for (address, length) in [(0, 0), (1, 4096), (4096, 1), (!4095, 8192)] {
        assert_eq!(refused(&Request::Unmap { address, length }).kind, ErrorKind::Invalid);
    }
    let frozen = refused(&Request::Sync { object, offset: 0, length: 4096, freeze: true });
    assert_eq!(frozen.kind, ErrorKind::Unsupported, "{frozen}");
    assert_eq!(worker.ok("incore o 0 32768"), "DDDDDDDD", "nothing was stored");
    assert!(std::fs::read(&file).unwrap() == [0; 32768]);
    assert_eq!((worker.ok("info o size"), worker.ok("list /")), ("32768".to_owned(), "/x".to_owned()));
    worker.ok("check m 0 8 1");
}

#[test]
fn a_full_state_directory_changes_nothing() {
    let disk = match RamDisk::new(48) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let host = TestHost::at(Scratch::new(), disk.path().join("state"), &[]);
    let file = host.scratch().file("file", 8 * MIB);
    let worker = host.worker();
    worker.ok(&format!("create o /x file={} sync=atomic", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 2048 1");
    let ballast = disk.use_up(0);
    // The journal has no room for this sync: nothing reaches the file, everything stays in memory.
    let mut refused = 0;
    for seed in 2..30 {
        worker.ok(&format!("fill m 0 2048 {seed}"));
        let stored = std::fs::read(&file).unwrap();
        if let Err(error) = worker.ask(&format!("sync o 0 {}", 8 * MIB)) {
            assert_eq!(error.kind, "NoSpace", "{}", error.message);
            assert!(error.message.contains("try again"), "{}", error.message);
            assert!(std::fs::read(&file).unwrap() == stored, "a refused sync changed the stored object");
            assert_eq!(worker.ok(&format!("incore o 0 {}", 8 * MIB)), "D".repeat(2048));
            refused += 1;
        }
        worker.ok(&format!("check m 0 2048 {seed}"));
    }
    assert!(refused > 0, "the journal found room");
    // Names: refused, or done for good; never half.
    let plain = host.scratch().file("plain", 4096).display().to_string();
    for number in 0..200 {
        match worker.ask(&format!("create n /new/{number} file={plain}")) {
            Ok(_) => continue,
            Err(error) => {
                assert_eq!(error.kind, "NoSpace", "{}", error.message);
                assert!(
                    error.message.contains("free disk space") && error.message.contains("try again"),
                    "{}",
                    error.message
                );
                worker.refused(&format!("stat /new/{number} id"), "NotFound");
                break;
            }
        }
    }
    let (names, size) = (worker.ask("list /new"), worker.ok("info o size"));
    std::fs::remove_file(&ballast).unwrap();
    worker.all(&format!("sync o 0 {}\ncreate n /after file={plain}", 8 * MIB));
    assert!(std::fs::read(&file).unwrap() == page::bytes(0, 2048, 29));
    assert_eq!((worker.ask("list /new"), worker.ok("info o size")), (names.clone(), size));
    // What was said holds past the host.
    worker.kill();
    host.kill_both();
    host.start_again().unwrap();
    let worker = host.worker();
    worker.all("stat /after id\nopen o /x r\nmap m o r shared 0 0\ncheck m 0 2048 29");
    assert_eq!(worker.ask("list /new"), names);
}

#[test]
fn a_journal_that_was_cut_is_refused_until_it_is_given_up() {
    let host = TestHost::start();
    let file = host.scratch().file("file", 65536);
    let worker = host.worker();
    worker.ok(&format!("create o /x file={} sync=atomic", file.display()));
    worker.ok("map m o rw shared 0 0");
    for seed in 1..4 {
        worker.all(&format!("fill m 0 16 {seed}\nsync o 0 65536"));
    }
    let id = worker.ok("info o id");
    worker.kill();
    host.kill_both();
    let journal = ["a", "b"].map(|side| host.state().join("journal").join(format!("{id}.{side}")));
    let cut = std::fs::File::options().write(true).open(&journal[0]).unwrap();
    cut.set_len(8192 + 3 * 4096).unwrap();
    let kept = journal.each_ref().map(|path| std::fs::read(path).unwrap());
    host.start_again().unwrap();
    let next = host.worker();
    let says = next.refused("open o /x r", "Corrupt");
    assert!(
        says.contains("byte") && says.contains("remove both to accept the stored object as it is"),
        "{says}"
    );
    assert!(journal.each_ref().map(|path| std::fs::read(path).unwrap()) == kept, "the evidence was changed");
    next.all("create n /fine size=4096 controlled\nmap m n rw shared 0 0\nfill m 0 1 1");
    // What the error advises works.
    journal.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    wait::until("it opens", || next.ask("open o /x rw").ok());
    next.all("map k o rw shared 0 0\ncheck k 0 16 3\nfill k 0 16 4\nsync o 0 65536");
    assert!(std::fs::read(&file).unwrap() == page::bytes(0, 16, 4));
}

#[test]
fn a_pager_that_never_answers_fails_whoever_waits_for_it_alone() {
    let host = TestHost::start();
    let mut pager = Raw::connect(&host);
    pager.ask(&Request::ServePager { pager: Name::new("/silence").unwrap() }, &[]).unwrap().unwrap();
    let (worker, other) = (host.worker(), host.worker());
    worker.ok("create o /x size=65536 pager=/silence pager-deadline=300 mode=600");
    worker.ok("map m o rw shared 0 0");
    other.all("create p /y size=65536 controlled\nmap m p rw shared 0 0");
    let says = worker.refused("lock o 0 4096", "Pager");
    assert!(says.contains("300 ms"), "{says}");
    worker.send("get m 0");
    other.all("fill m 0 16 1\ncheck m 0 16 1\nopen o /x r\nsync p 0 65536");
    let status = worker.wait();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGBUS));
    other.all("check m 0 16 1\ninfo o mappings\nclose o\nremove /x");
    drop(pager);
}

#[test]
fn a_direct_write_to_the_file_is_seen_as_documented() {
    let host = TestHost::start();
    for options in ["", "sync=ordered", "sync=atomic"] {
        let path = host.scratch().file_of("file", &page::bytes(0, 64, 1));
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let write = |first: u64, count: u64, seed| {
            file.write_all_at(&page::bytes(first, count, seed), first * PAGE as u64).unwrap();
        };
        let worker = host.worker();
        worker.ok(&format!("create o /x file={} {options}", path.display()));
        worker.all("map m o rw shared 0 0\ncheck m 0 4 1");
        write(0, 4, 2);
        write(60, 4, 2);
        if options.is_empty() {
            worker.all("check m 0 4 2\ncheck m 60 4 2"); // the same page cache
        } else {
            assert_eq!(worker.ok("incore o 0 16384"), "CCCC");
            worker.ok("check m 0 4 1"); // in memory: stays as it is
            assert_eq!(worker.ok("incore o 245760 16384"), "AAAA");
            worker.ok("check m 60 4 2"); // brought in now
        }
        // Modified in memory: wins at the next sync.
        worker.ok("fill m 8 1 3");
        write(8, 2, 4);
        worker.ok("sync o 0 262144");
        let found = std::fs::read(&path).unwrap();
        let kept = if options.is_empty() { page::bytes(8, 1, 4) } else { page::bytes(8, 1, 3) };
        assert!(
            found[8 * PAGE..9 * PAGE] == kept && found[9 * PAGE..10 * PAGE] == page::bytes(9, 1, 4),
            "{options}"
        );
        // When nobody maps it, the next mapper sees what the file has.
        worker.ok("drop m");
        write(0, 64, 5);
        worker.all("map m o rw shared 0 0\ncheck m 0 64 5\ndrop m\nclose o\nremove /x");
    }
}

/// Overrides the clock of the day: a year earlier for as long as the file is there that `COMMONHOLD_TESTS_CLOCK` names.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long earlier(void) {
    const char *file = getenv("COMMONHOLD_TESTS_CLOCK");
    return file && access(file, F_OK) == 0 ? 365L * 86400 : 0;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec -= earlier();
    return (int)result;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec time;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"#;

#[test]
fn a_clock_that_jumps_back_a_year_changes_nothing() {
    let scratch = Scratch::new();
    let (source, shim) = (scratch.file_of("shim.c", SHIM.as_bytes()), scratch.join("shim.so"));
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&shim, &source]).output();
    if !compiled.as_ref().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no C compiler for the clock's shim: {compiled:?}");
    }
    let (state, shim, jump) = (scratch.join("state"), shim.display().to_string(), scratch.join("jump"));
    let variables = [("LD_PRELOAD", &*shim), ("COMMONHOLD_TESTS_CLOCK", jump.to_str().unwrap())];
    let host = TestHost::not_started(scratch, state, &[], &variables);
    host.start_again().unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", host.status().host_pid)).unwrap();
    assert!(maps.contains("shim.so"), "the shim is not in the host");
    let file = host.scratch().file("file", 65536);
    let worker = host.worker();
    worker.ok(&format!("create o /x file={} sync=atomic", file.display()));
    worker.all(&format!(
        "map m o rw shared 0 0\ncreate a /a size={} budget={MIB}\nmap n a rw shared 0 0",
        4 * MIB
    ));
    let waits = host.worker();
    waits.ok("create w /w size=65536 pager=/nobody pager-deadline=300");
    for seed in 1..60 {
        worker
            .all(&format!("fill m 0 16 {seed}\nsync o 0 65536\nfill n 0 1024 {seed}\ncheck n 0 1024 {seed}"));
        worker.all(&format!("create t /t{seed} size=4096\nremove /t{seed}\nclose t"));
        match seed {
            20 => drop(std::fs::write(&jump, "")),
            30 => {
                // A deadline is none the longer, and the next host begins in the year before.
                waits.refused("lock w 0 4096", "Pager");
                let before = host.status().host_pid;
                host.command(&["host", "restart"], |_| {}).unwrap();
                host.wait_for_other_host(before);
            }
            40 => drop(std::fs::remove_file(&jump)),
            50 => drop(std::fs::write(&jump, "")),
            _ => {}
        }
    }
    host.kill_both();
    host.start_again().unwrap();
    worker.all("check m 0 16 59\ncheck n 0 1024 59\nfill m 0 16 60\nsync o 0 65536\nfill n 0 1024 60\ncheck n 0 1024 60");
    assert!(std::fs::read(&file).unwrap() == page::bytes(0, 16, 60));
    let other = host.worker();
    other.all("open o /x r\nmap m o r shared 0 0\ncheck m 0 16 60\nopen a /a r\nmap n a r shared 0 0\ncheck n 0 1024 60");
    // It did jump: the lines of the log are of two years, the later one first.
    let years: Vec<String> = host.log().lines().filter_map(|line| line.get(..4).map(str::to_owned)).collect();
    assert!(years.iter().any(|year| *year < years[0]), "{years:?}");
}
