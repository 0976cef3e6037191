//! What a host meets besides wrong requests of its clients: requests that no library sends, a full state directory, a
//! journal that was cut, a pager that never answers, a file that others write to. What storage does is in `storage`, what
//! liars do in `hostile`, too much of everything in `limits`, a clock that jumps in `clock`.

use commonhold_object::wire::Request;
use commonhold_object::{Access, Error, ErrorKind, Name, ObjectId};
use commonhold_tests::raw::Raw;
use commonhold_tests::scratch::RamDisk;
use commonhold_tests::{MIB, PAGE, Scratch, TestHost, left_out, page, wait};
use std::os::unix::fs::FileExt;

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
    assert_eq!(
        refused(&Request::Resize { name: name.clone(), size_bytes: u64::MAX, of: None }).kind,
        ErrorKind::Invalid
    );
    assert_eq!(
        refused(&Request::SetMode { name: name.clone(), mode: 0o4777, of: None }).kind,
        ErrorKind::Invalid
    );
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
        Err(why) => return left_out(&why.to_string()),
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

#[test]
fn memory_pinned_for_io_is_warned_of() {
    let host = TestHost::start();
    let (worker, other) = (host.worker(), host.worker());
    worker.all("create o /x size=65536 controlled mode=666\nmap m o rw shared 0 0\nfill m 0 16 1");
    assert_eq!(worker.ok("stat /x warning"), "");
    if let Err(why) = worker.ask("pin m 0 4") {
        return left_out(&format!("io_uring pins nothing here: {}", why.message));
    }
    let says = other.ok("stat /x warning");
    assert!(
        says.contains(&format!("process {}", worker.pid())) && says.contains("16384 bytes pinned"),
        "{says}"
    );
    // Nobody is held up by it, and nobody else is blamed.
    other.all("create p /y size=65536 controlled\nmap n p rw shared 0 0\nfill n 0 16 1");
    assert_eq!(other.ok("stat /y warning"), "");
    other.all("open o /x rw\nmap m o rw shared 0 0\ncheck m 0 16 1\nfill m 0 16 2");
    worker.all("check m 0 16 2\nunpin");
    wait::until("the warning goes", || (other.ok("stat /x warning").is_empty()).then_some(()));
}
