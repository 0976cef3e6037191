//! What a fork child has of a mapping: `docs/MAPPING.md`, Inheritance.

use commonhold::{CreateOptions, Inherit, MapOptions};
use commonhold_tests::huge::HugePages;
use commonhold_tests::{MIB, TestHost, Worker, is_root, page};
use std::sync::atomic::{AtomicBool, Ordering};

const GIB: u64 = 1024 * MIB;
const SIGSEGV: &str = "signal 11";

/// Objects whose pages come in each of the ways there are.
fn kinds(host: &TestHost) -> Vec<(&'static str, String)> {
    let file = |name: &str| host.scratch().file(name, MIB).display().to_string();
    vec![
        ("anonymous", format!("size={MIB}")),
        ("file", format!("file={}", file("file"))),
        ("atomic", format!("file={} sync=atomic", file("atomic"))),
        ("controlled", format!("size={MIB} controlled")),
        ("freezable", format!("size={MIB} freezable")),
    ]
}

/// With the object mapped as `m`, filled, in a process whose children have it so.
fn mapped(host: &TestHost, name: &str, options: &str, how: &str) -> Worker {
    let worker = host.worker();
    worker.ok(&format!("create o /{name} {options}"));
    worker.all(&format!("map m o rw shared 0 0 {how}\nfill m 0 64 1"));
    worker
}

#[test]
fn a_copy_is_of_the_fork_and_the_childs_alone() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host) {
        let parent = mapped(&host, kind, &options, "inherit=copy");
        let other = host.worker();
        other.all(&format!("open o /{kind} rw\nmap m o rw shared 0 0"));
        // Nobody else has what the child writes.
        parent.ok("forks do check m 0 64 1 then get m 1000000 then fill m 0 32 2 then check m 0 32 2 then check m 32 32 1");
        parent.ok("check m 0 64 1");
        other.ok("check m 0 64 1");
        // The child has nothing of what others write from then on, and pages that were away are in its copy.
        parent.ok("create f /flag size=4096");
        parent.ok("map flag f rw shared 0 0");
        other.all("open f /flag rw\nmap flag f rw shared 0 0");
        parent.send("forks do put flag 0 1 then await flag 1 1 then check m 0 64 1");
        other.all("await flag 0 1\nfill m 0 64 3\nput flag 1 1");
        assert_eq!(parent.answer().as_deref(), Ok(""), "{kind}");
        parent.ok("check m 0 64 3");
        // A child's child has a copy of the copy.
        parent
            .ok("forks do fill m 0 64 4 then forks do check m 0 64 4 then fill m 0 64 5 then check m 0 64 5");
        parent.ok("forks do fill m 0 64 4 then forks fill m 0 64 5 then check m 0 64 4 then drop m");
        parent.all("check m 0 64 3\nsync o 0 1048576");
        // To the calls it is no object; unmapped it is as anything else.
        parent.ok("forks do unmap m 4096 4096 then check m 2 62 3 then drop m");
        assert_eq!(parent.ok("fork _exit do unmap m 4096 4096 then get m 4096"), SIGSEGV, "{kind}");
        // Who runs no handlers of fork has nothing there.
        assert_eq!(parent.ok("raw-clone get m 0"), SIGSEGV, "{kind}");
        parent.all("drop flag\nclose f\nremove /flag\ndrop m\nclose o");
    }
}

/// The kernel's own accesses do not bring such pages in.
#[test]
fn what_the_kernel_cannot_read_is_copied_all_the_same() {
    let host = TestHost::start();
    let parent = mapped(&host, "o", &format!("size={MIB} controlled"), "in-thread inherit=copy");
    parent.all("drop m\nmap m o rw shared 0 0 in-thread inherit=copy\nfill m 100 4 2");
    parent.ok("forks do check m 0 64 1 then check m 100 4 2 then fill m 0 128 3 then drop m");
    parent.all("check m 0 64 1\ncheck m 100 4 2");
    if !is_root("a user's own host, which may not serve the kernel's accesses") {
        return;
    }
    let user = host.worker_of(1234, 1234);
    user.ok(&format!("create o /u size={MIB} controlled"));
    user.all("map s o rw shared 0 0\nfill s 0 64 1\nmap m o rw private 0 0 inherit=copy\nfill m 0 1 2");
    user.ok("forks do check m 0 1 2 then check m 1 63 1");
}

/// Whatever other threads do meanwhile, a child has each mapping whole or not at all.
#[test]
fn threads_map_and_unmap_while_others_fork() {
    let host = TestHost::start();
    let client = host.connect();
    let options = CreateOptions { size_bytes: MIB, controlled: true, ..CreateOptions::default() };
    let object = client.create("/o", &options, None).unwrap();
    let other = client.create("/other", &CreateOptions { controlled: false, ..options }, None).unwrap();
    let copied = MapOptions { inherit: Inherit::Copy, ..MapOptions::default() };
    let mapping = object.map(&copied).unwrap();
    page::fill(page::words(mapping.as_ptr(), 3), 3, 7);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let other = other.map(&copied).unwrap();
                    other.inherit_range(4096, 8192, Inherit::None).unwrap();
                    other.unmap(8192, 8192).unwrap();
                }
            });
        }
        for _ in 0..30 {
            // SAFETY: the child looks at one page, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let found = page::check(page::words(mapping.as_ptr(), 3), 3, 7);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(found.is_err())) };
            }
            let mut status = 0;
            // SAFETY: waits for the child just made.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn where_nothing_is_inherited_nothing_is_there() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host) {
        let parent = mapped(&host, kind, &options, "inherit=none");
        for how in ["fork _exit", "fork exit", "raw-clone"] {
            assert_eq!(parent.ok(&format!("{how} get m 4096")), SIGSEGV, "{kind}");
        }
        // The child goes on with the object by a mapping of its own, which lies elsewhere.
        parent.ok("forks do drop m then map n o rw shared 0 0 then check n 0 64 1");
        parent.ok("check m 0 64 1");
    }
}

#[test]
fn parts_of_a_mapping_change_what_a_child_has_of_them() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host) {
        let parent = mapped(&host, kind, &options, "");
        parent.all("inherit m 4096 8192 none\ninherit m 16384 4096 copy");
        parent.ok("forks do check m 0 1 1 then check m 3 61 1 then fill m 4 2 2");
        parent.all("check m 4 1 1\ncheck m 5 1 2\nfill m 5 1 1");
        for page in [1, 2] {
            assert_eq!(parent.ok(&format!("fork _exit get m {}", page * 4096)), SIGSEGV, "{kind}");
        }
        // Each goes by itself, and the rest stays as it was.
        parent.all("unmap m 4096 4096\ncheck m 2 62 1");
        parent.ok("forks do check m 4 60 1 then unmap m 16384 8192 then check m 6 58 1");
        parent.ok("inherit m all share");
        parent.ok("forks fill m 2 6 7");
        parent.ok("check m 2 6 7");
        parent.ok("inherit m all copy");
        parent.ok("forks do check m 2 6 7 then fill m 2 62 8");
        parent.all("check m 2 6 7\ncheck m 8 56 1");
        // In a child a copy is nobody's to share, and may be left out.
        parent.ok("forks do inherit m all none then check m 2 6 7");
        assert!(parent.ok("fork _exit inherit m all share") == "code 1", "{kind}");
        assert!(parent.ok("fork _exit do inherit m all none then forks get m 8192") == "code 1", "{kind}");
    }
}

#[test]
fn a_private_mapping_and_one_to_read_are_copied_as_they_are() {
    let host = TestHost::start();
    for (kind, options) in kinds(&host) {
        let parent = mapped(&host, kind, &options, "");
        parent.ok("map p o rw private 0 0 inherit=copy");
        parent.all("fill p 0 8 2\nmap r o r shared 0 0 inherit=copy");
        parent.ok("forks do check p 0 8 2 then check p 8 56 1 then check r 0 64 1 then fill p 4 8 3 then check r 0 64 1");
        parent.all("check p 0 8 2\ncheck p 8 56 1\ncheck m 0 64 1");
        assert_eq!(parent.ok("fork _exit put r 0 1"), SIGSEGV, "{kind}");
    }
}

#[test]
fn holes_stay_holes_and_what_is_past_the_end_stays_away() {
    let host = TestHost::start();
    let parent = host.worker();
    parent.ok(&format!("create o /sparse size={} reserve=no", 64 * GIB));
    parent.all("map m o rw shared 0 0 inherit=copy\nfill m 0 4 1\nfill m 9000000 4 1");
    let resident = parent.ok("stat /sparse resident");
    parent.ok(&format!("limit data {}", 65 * GIB));
    parent
        .ok("forks do check m 0 4 1 then check m 9000000 4 1 then get m 40000000000 then fill m 9000000 8 2");
    assert_eq!(parent.ok("stat /sparse resident"), resident, "reading takes no memory");
    for options in ["size=1048576", "size=1048576 controlled"] {
        let parent = mapped(&host, "cut", options, "inherit=copy");
        parent.all("map again o rw shared 0 0 inherit=copy\nresize /cut 100000");
        parent.ok("forks do check m 0 24 1 then check again 0 24 1 then fill m 0 25 2");
        assert_eq!(parent.ok("fork _exit get m 102400"), SIGSEGV, "past the last page");
        parent.all("drop again\ndrop m\nclose o\nremove /cut");
    }
}

#[test]
fn without_memory_for_a_copy_the_child_has_nothing_there() {
    let host = TestHost::start();
    let parent = mapped(&host, "o", &format!("size={}", 512 * MIB), "inherit=copy");
    parent.all("create s /s size=4096\nmap s s rw shared 0 0\nfill s 0 1 1");
    parent.ok(&format!("limit data {}", 256 * MIB));
    assert_eq!(parent.ok("fork _exit get m 0"), SIGSEGV);
    parent.ok("forks do check s 0 1 1 then drop m then fill s 0 1 2");
    parent.all("check m 0 64 1\ncheck s 0 1 2");
}

#[test]
fn copies_are_whole_while_the_host_dies() {
    let host = TestHost::start();
    let parent = mapped(&host, "o", &format!("size={MIB} controlled"), "inherit=copy");
    parent.ok("map s o rw shared 0 0");
    for round in 1..20 {
        parent.ok(&format!("fill m 0 64 {round}"));
        parent.ok(&format!("forks do check m 0 64 {round} then fill m 0 64 99"));
        if round == 10 {
            host.kill_host();
        }
    }
    parent.ok("check s 0 64 19");
}

fn wired(host: &TestHost, count: u64, bytes: u64, how: &str) -> Worker {
    let worker = host.worker();
    for number in 0..count {
        worker.ok(&format!("create o{number} /w{number} size={bytes} wired"));
        worker.ok(&format!("map m{number} o{number} rw shared 0 0 inherit={how}"));
        worker.ok(&format!("fill m{number} 0 16 {}", number + 1));
    }
    worker
}

#[test]
fn a_wired_copy_never_faults_neither_does_its_parent() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let parent = wired(&host, 3, 65536, "share");
    parent.all("map c o1 rw shared 0 0 inherit=copy\nmap n o2 rw shared 0 0 inherit=none\nmap d o2 rw shared 0 0 inherit=copy");
    for _ in 0..3 {
        parent
            .ok("forks do no-faults c 0 16 then no-faults m0 0 16 then no-faults d 0 16 then check c 0 16 2");
        parent.all("no-faults c 0 16\nno-faults m0 0 16\nno-faults n 0 16\nno-faults d 0 16");
    }
    // The copy is the child's alone, and what else is in the arena is everybody's.
    parent.ok("forks do fill c 0 16 9 then check m1 0 16 2 then fill m0 0 16 8 then check d 0 16 3");
    parent.all("check c 0 16 2\ncheck m0 0 16 8");
    for how in ["fork _exit", "raw-clone"] {
        assert_eq!(parent.ok(&format!("{how} get n 0")), SIGSEGV);
    }
    // So in the next generation, and for who forked it.
    parent.ok(
        "forks do fill c 0 16 7 then forks no-faults c 0 16 then no-faults c 0 16 then forks check c 0 16 7 then forks fill \
         c 0 16 6 then check c 0 16 7 then forks check d 0 16 3 then no-faults m2 0 16 then no-faults c 0 16 then drop c then \
         drop d then drop n",
    );
    parent.all("drop c\ndrop n\nno-faults d 0 16\ndrop d\ncheck m1 0 16 2");
    assert_eq!(pool.free(), 0);
}

#[test]
fn what_lies_with_others_in_an_arena_changes_with_all_of_them() {
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let parent = wired(&host, 2, 65536, "share");
    let said = parent.refused("inherit m0 all copy", "Busy");
    assert!(said.contains("when it is mapped"), "{said}");
    parent.ok("forks fill m0 0 16 5");
    parent.all("check m0 0 16 5\ndrop m1\ninherit m0 all copy");
    parent.ok("forks do no-faults m0 0 16 then fill m0 0 16 6");
    parent.all("check m0 0 16 5\nmap m1 o1 rw shared 0 0\ninherit m0 all none");
    assert_eq!(parent.ok("fork _exit get m0 0"), SIGSEGV);
    parent.ok("forks do check m1 0 16 2 then no-faults m1 0 16");
    parent.ok("inherit m0 all share");
    parent.ok("forks do no-faults m0 0 16 then no-faults m1 0 16 then fill m0 0 16 7");
    parent.ok("check m0 0 16 7");
}

#[test]
fn a_wired_copy_that_may_not_be_locked_is_not_there() {
    let Some(_none) = HugePages::more(0) else { return };
    let (host, bytes) = (TestHost::start(), 2 * MIB);
    let parent = wired(&host, 1, bytes, "copy");
    parent.ok("forks do no-faults m0 0 512 then check m0 0 16 1 then forks no-faults m0 0 512");
    parent.ok("no-faults m0 0 512");
    let user = host.worker_of(1234, 1234);
    user.ok(&format!("create o /u size={bytes} wired"));
    user.all("map m o rw shared 0 0 inherit=copy\nfill m 0 16 1");
    user.ok("forks no-faults m 0 256");
    user.ok("limit memlock 65536");
    assert_eq!(user.ok("fork _exit get m 0"), SIGSEGV);
    user.ok("check m 0 16 1");
}

#[test]
fn what_cannot_be_said_of_a_mapping_is_refused() {
    let host = TestHost::start();
    let parent = mapped(&host, "o", &format!("size={MIB}"), "");
    for (line, kind) in [
        ("inherit m 0 4096000 copy", "Invalid"),
        ("inherit m 0 0 copy", "Invalid"),
        ("do unmap m 8192 4096 then inherit m all copy then forks check m 3 61 1", ""),
    ] {
        match kind {
            "" => drop(parent.ok(line)),
            kind => drop(parent.refused(line, kind)),
        }
    }
    let Some(_pool) = HugePages::more(1) else { return };
    parent.ok(&format!("create t /t size={} shared-tables", 2 * MIB));
    let said = parent.refused("map n t rw shared 0 0 inherit=copy", "Invalid");
    assert!(said.contains("own_tables"), "{said}");
    parent.ok("map n t rw shared 0 0");
    let said = parent.refused("inherit n all none", "Invalid");
    assert!(said.contains("own_tables"), "{said}");
    parent.all("drop n\nmap n t rw shared 0 0 own-tables inherit=copy\nfill n 0 512 1");
    parent.ok("forks do check n 0 512 1 then fill n 0 512 2 then drop n");
    parent.all("check n 0 512 1\ninherit n all none");
    assert_eq!(parent.ok("fork _exit get n 0"), SIGSEGV);
}
