//! Everything a program can ask wrongly: a clear error, and nothing changed.

use commonhold_tests::{MIB, TestHost, Worker, root_or_skip, wait};

/// A worker with a controlled object `o` of 16 pages, filled and mapped as `m`.
fn filled(host: &TestHost) -> Worker {
    let worker = host.worker();
    worker.all("create o /o size=65536 controlled mode=644\nmap m o rw shared 0 0\nfill m 0 16 1");
    worker
}

fn is_unchanged(worker: &Worker) {
    worker.ok("check m 0 16 1");
    assert_eq!(worker.ok("info o size"), "65536");
    assert_eq!(worker.ok("info o mappings"), "1");
    assert_eq!(worker.ok("list /"), "/o");
}

#[test]
fn misaligned_empty_and_past_the_end() {
    let host = TestHost::start();
    let worker = filled(&host);
    let address: u64 = worker.ok("address m").parse().unwrap();
    for line in [
        "map n o rw shared 100 4096".to_owned(),
        "map n o rw shared 4095 4096".to_owned(),
        "map n o rw shared 0 0 empty".to_owned(),
        "map n o rw shared 65536 4096".to_owned(),
        "map n o rw shared 61440 8192".to_owned(),
        "map n o rw shared 18446744073709547520 8192".to_owned(),
        "map n o rw shared 0 4096 fixed=0".to_owned(),
        "map n o rw shared 0 4096 fixed=4097".to_owned(),
        "map n o rw shared 0 4096 hint=18446744073709547520".to_owned(),
        "sync o 0 0".to_owned(),
        "sync o 0 65537".to_owned(),
        "sync o 18446744073709551615 2".to_owned(),
        "sync o 65536 1".to_owned(),
        "lock o 0 0".to_owned(),
        "lock o 4096 1048576".to_owned(),
        "unlock o 0 4096".to_owned(),
        "incore o 0 0".to_owned(),
        "prefetch o 65536 1".to_owned(),
        "unmap m 1 4096".to_owned(),
        "unmap m 0 1".to_owned(),
        "unmap m 0 0".to_owned(),
        "unmap m 65536 4096".to_owned(),
        "unmap m 0 18446744073709547520".to_owned(),
        "resize /o 0".to_owned(),
        "resize /o 18446744073709551615".to_owned(),
        "create p /p size=0".to_owned(),
        "create p /p size=18446744073709551615".to_owned(),
        "create p /p size=4096 mode=7777".to_owned(),
        "create p /p size=4096 budget=4096".to_owned(),
        "create p /p size=4096 fault-deadline=0".to_owned(),
        "chmod /o 1777".to_owned(),
    ] {
        worker.refused(&line, "Invalid");
    }
    worker.refused(&format!("map n o rw shared 0 4096 fixed={address}"), "Busy");
    // Past the end of what is there is a state, not an error.
    assert_eq!(worker.ok("incore o 61440 8192"), "DI");
    is_unchanged(&worker);
}

#[test]
fn names() {
    let host = TestHost::start();
    let worker = filled(&host);
    let (long, longer) = (format!("/{}", "x".repeat(256)), "/x".repeat(600));
    for name in ["lab", "", "/", "/a//b", "/a/../b", "/a/./b", "/a\u{7}b", &long, &longer] {
        for line in [
            format!("create p {name} size=4096"),
            format!("open p {name} r"),
            format!("remove {name}"),
            format!("resize {name} 4096"),
            format!("rename /o {name}"),
        ] {
            worker.refused(&line, "Invalid");
        }
    }
    let nul = host.connect().open("/a\0b", commonhold::Access::Read).unwrap_err();
    assert_eq!(nul.kind, commonhold::ErrorKind::Invalid);
    for line in [
        "open p /nothing r",
        "stat /nothing size",
        "remove /nothing",
        "rename /nothing /p",
        "resize /nothing 4096",
        "revert /nothing",
        "chmod /nothing 600",
        "chown /nothing 1 1",
        "list /nothing",
        "open p /no/thing/at/all r",
    ] {
        worker.refused(line, "NotFound");
    }
    worker.refused("create p /o size=4096", "Exists");
    worker.ok("create p /dir/p size=4096 controlled");
    worker.refused("rename /o /dir/p", "Exists");
    // An object is no directory, a directory no object.
    for line in ["create q /o/q size=4096", "create q /dir size=4096", "open q /dir r", "rename /dir /o/dir"]
    {
        let refused = worker.ask(line).expect_err(line);
        assert!(["Mismatch", "NotFound", "Exists"].contains(&refused.kind.as_str()), "{line}: {refused:?}");
    }
    worker.refused("remove /dir", "Busy");
    worker.all("close p\nremove /dir/p\nremove /dir");
    is_unchanged(&worker);
}

#[test]
fn permissions() {
    if !root_or_skip("several users") {
        return;
    }
    let host = TestHost::start();
    let (owner, member, stranger) =
        (host.worker_of(1001, 2000), host.worker_of(1002, 2000), host.worker_of(1003, 3000));
    owner.all("create o /home/o size=65536 controlled mode=640\nmap m o rw shared 0 0\nfill m 0 16 1");
    member.ok("open o /home/o r");
    member.all("map m o r shared 0 0\ncheck m 0 16 1");
    for (worker, line) in [
        (&member, "open p /home/o rw"),
        (&member, "map n o rw shared 0 0"),
        (&member, "sync o 0 4096"),
        (&member, "resize /home/o 4096"),
        (&member, "revert /home/o"),
        (&member, "remove /home/o"),
        (&member, "chmod /home/o 666"),
        (&member, "chown /home/o 1002 -"),
        (&member, "create p /home/p size=4096"),
        (&member, "rename /home/o /o"),
        (&stranger, "open p /home/o r"),
        (&stranger, "stop force"),
        (&owner, "chown /home/o 1003 -"),
        (&owner, "chown /home/o - 3000"),
    ] {
        worker.refused(line, "Permission");
    }
    owner.all("check m 0 16 1\nchmod /home/o 600");
    assert_eq!(owner.ok("stat /home/o owner"), "1001 2000 600");
    assert_eq!(owner.ok("stat /home x"), "directory 1001 2000 755");
    // What was opened before stays open, as files do; anew it is refused.
    member.ok("check m 0 16 1");
    member.refused("open p /home/o r", "Permission");
    owner.ok("chmod /home 700");
    member.refused("stat /home/o size", "Permission");
    member.refused("list /home", "Permission");
    let root = host.worker();
    root.ok("chown /home/o 1003 3000");
    assert_eq!(root.ok("stat /home/o owner"), "1003 3000 600");
}

/// By no means that a reader has can he change the object.
#[test]
fn a_reader_cannot_change_the_object() {
    if !root_or_skip("several users") {
        return;
    }
    let host = TestHost::start();
    for options in ["size=65536 controlled", "size=65536"] {
        let owner = host.worker_of(1001, 1001);
        owner.ok(&format!("create o /o mode=644 {options}"));
        owner.all("map m o rw shared 0 0\nfill m 0 16 1");
        let reader = host.worker_of(1002, 1002);
        reader.ok("open o /o r");
        reader.ok("map m o r shared 0 0");
        for line in ["write-at o 0 x", "map n o rw shared 0 0"] {
            reader.refused(line, "Permission");
        }
        // Neither by making its mapping writable, nor by opening its descriptor once more, nor by punching it.
        assert_eq!(reader.ok("regain m"), "");
        owner.ok("check m 0 16 1");
        reader.ok("check m 0 16 1");
        owner.all("drop m\nclose o\nremove /o");
    }
}

#[test]
fn read_only_files() {
    let host = TestHost::start();
    let file = host.scratch().file_of("file", &commonhold_tests::page::bytes(0, 16, 1));
    let worker = host.worker();
    for (name, more) in [("/direct", ""), ("/atomic", " sync=atomic")] {
        worker.ok(&format!("create o {name} file-ro={} mode=666{more}", file.display()));
        worker.ok("map m o r shared 0 0");
        worker.ok("check m 0 16 1");
        worker.refused("map n o rw shared 0 0", "Permission");
        worker.refused(&format!("open p {name} rw"), "Permission");
        worker.refused(&format!("resize {name} 4096"), "Permission");
        worker.all("map n o rw private 0 0\nfill n 0 1 7\ncheck m 0 16 1");
        worker.all("drop m\ndrop n\nclose o");
        worker.ok(&format!("remove {name}"));
    }
    worker.refused(&format!("create o /o file-ro={} size=1048576", file.display()), "Invalid");
    assert_eq!(std::fs::read(&file).unwrap(), commonhold_tests::page::bytes(0, 16, 1));
}

#[test]
fn a_refused_creation_leaves_the_file_as_it_was() {
    let host = TestHost::with(&["--quota", "1MiB"]);
    let worker = host.worker();
    worker.ok("create o /taken size=4096 controlled");
    let file = host.scratch().file_of("file", b"small");
    for line in ["/taken size=65536", "/taken/x size=65536", "/quota size=16777216 reserve=yes"] {
        worker.ask(&format!("create p {line} file={}", file.display())).expect_err(line);
        assert_eq!(std::fs::read(&file).unwrap(), b"small", "{line}");
    }
    worker.ok(&format!("create p /grown size=65536 file={}", file.display()));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 65536);
    // One file, two caches: each would believe to know what is in it.
    worker.refused(&format!("create q /second file={} sync=atomic", file.display()), "Busy");
    for path in ["/dev/null", "/proc/self/maps", "/dev/zero"] {
        worker.refused(&format!("create q /special size=4096 file-ro={path}"), "Invalid");
    }
    assert_eq!(worker.ok("list /"), "/grown /taken");
}

#[test]
fn objects_that_come_and_go_while_they_are_opened() {
    let host = TestHost::start();
    for options in ["size=65536", "size=65536 controlled"] {
        let opener = host.worker();
        let maker = host.worker();
        let mut opened = 0;
        let mut missed = 0;
        wait::until("some opens meet the object and some do not", || {
            maker.send(&format!("create o /o {options}"));
            opener.send("open o /o r");
            match opener.answer() {
                Ok(_) => {
                    opened += 1;
                    opener.ok("map m o r shared 0 0");
                    maker.answer().unwrap();
                    maker.ok("remove /o");
                    opener.all("check m 0 16 0\ndrop m\nclose o");
                }
                Err(refused) => {
                    missed += 1;
                    assert_eq!(refused.kind, "NotFound", "{refused:?}");
                    maker.answer().unwrap();
                    maker.send("remove /o");
                    if let Err(refused) = opener.ask("open o /o r") {
                        assert_eq!(refused.kind, "NotFound", "{refused:?}");
                    }
                    maker.answer().unwrap();
                    opener.ok("close o");
                }
            }
            maker.ok("close o");
            (opened > 5 && missed > 5 || opened + missed > 400).then_some(())
        });
    }
    let status = host.status();
    assert_eq!(status.objects, 0);
}

#[test]
fn stated_limits() {
    let host = TestHost::with(&["--max-clients", "6", "--max-objects", "5", "--quota", "8MiB"]);
    let workers: Vec<Worker> = (0..4).map(|_| host.worker()).collect();
    let first = &workers[0];
    for n in 0..4 {
        first.ok(&format!("create o{n} /o{n} size=65536 controlled"));
    }
    first.refused("create p /p size=16777216 controlled", "Quota");
    first.refused("create p /p size=16777216", "Quota");
    first.ok("create p /p size=16777216 reserve=no");
    assert!(first.refused("create q /q size=65536", "Quota").contains("5"), "the limit is stated");
    first.refused("resize /o0 16777216", "Quota");
    assert_eq!(first.ok("info o0 size"), "65536");
    first.all("close p\nremove /p\ncreate p /p size=4194304");
    // More clients than there may be: the last are told, the others notice nothing.
    let mut refused = 0;
    for _ in 0..4 {
        let socket = commonhold_sys::socket::connect(host.state(), "host.sock").unwrap();
        let mut buffer = vec![0; 4096];
        let mut fds = Vec::new();
        rustix::net::sockopt::set_socket_timeout(
            &socket,
            rustix::net::sockopt::Timeout::Recv,
            Some(std::time::Duration::from_millis(300)),
        )
        .unwrap();
        if let Ok(n) =
            commonhold_sys::socket::receive(&socket, &mut buffer, &mut fds, commonhold_sys::socket::Wait::Yes)
        {
            assert!(String::from_utf8_lossy(&buffer[..n]).contains("its limit"));
            refused += 1;
        } else {
            std::mem::forget(socket); // stays connected, and says nothing
        }
    }
    assert!(refused >= 1, "nobody was refused");
    first.all("map m o0 rw shared 0 0\nfill m 0 16 1\ncheck m 0 16 1");
    let offsets: Vec<&str> = std::iter::repeat_n("0", 16_400).collect();
    let refused = first.refused(&format!("map-many o0 4096 {}", offsets.join(" ")), "TooMany");
    assert!(refused.contains("16384"), "{refused}");
    assert_eq!(first.ok("info o0 mappings"), "1");
}

#[test]
fn a_budget_larger_than_the_hosts_is_refused() {
    let host = TestHost::with(&["--budget", "4MiB"]);
    let worker = host.worker();
    worker.refused("create o /o size=65536 budget=8388608", "Invalid");
    worker.ok(&format!("create o /o size={} reserve=no controlled", 64 * MIB));
    worker.all("map m o rw shared 0 0\nfill m 0 2000 1\ncheck m 0 2000 1");
    assert_eq!(worker.ok("list /"), "/o");
}
