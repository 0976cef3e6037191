//! What a client asks wrongly: a clear error of the right kind, and nothing changed. What goes wrong with hosts, files
//! and disks is in `bad_input_host`.

use commonhold::{Access, CreateOptions, ErrorKind};
use commonhold_tests::{TestHost, Worker, is_root};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A worker with `/x` of eight pages filled and mapped as `m`, direct and controlled in turn.
fn each_kind(check: impl Fn(&TestHost, &Worker)) {
    let host = TestHost::start();
    for options in ["size=32768", "size=32768 controlled", "file=FILE sync=atomic", "size=32768 freezable"] {
        let file = host.scratch().file("backing", 32768);
        let worker = host.worker();
        worker.ok(&format!("create o /x {} mode=640", options.replace("FILE", &file.display().to_string())));
        worker.all("map m o rw shared 0 0\nfill m 0 8 1");
        let before = state(&worker);
        check(&host, &worker);
        assert_eq!(state(&worker), before, "{options}");
        worker.all("check m 0 8 1\nremove /x\ndrop m\nclose o");
    }
}

/// Everything about `/x` that a refused request must leave as it was.
fn state(worker: &Worker) -> Vec<String> {
    let lines =
        ["info o size", "info o owner", "info o mappings", "info o name", "info o description", "list /"];
    lines.iter().map(|line| worker.ok(line)).chain([worker.ok("check m 0 8 1")]).collect()
}

#[test]
fn misaligned_empty_and_outside_ranges() {
    each_kind(|_, worker| {
        let free = worker.ok("address m").parse::<u64>().unwrap() + (1 << 30);
        let refused = |line: &str, says: &str| {
            let text = worker.refused(line, "Invalid");
            assert!(text.contains(says), "{line}: {text}");
        };
        refused("map n o rw shared 100 4096", "offset 0x64 is not a multiple of the page size");
        refused(&format!("map n o rw shared 0 4096 fixed={}", free + 1), "not a multiple of the page size");
        refused(&format!("map n o rw shared 0 4096 hint={}", free + 9), "not a multiple of the page size");
        refused("map n o rw shared 0 4096 fixed=0", "give a hint");
        refused("map n o rw shared 0 4096 fixed=0xfffffffffffff000", "");
        refused("map n o rw shared 0 4096 empty", "length is zero");
        refused("map n o rw shared 4096 32768", "past the object's 32768 bytes: resize it");
        refused("map n o rw shared 32768 4096", "past the object's 32768 bytes: resize it");
        refused("map n o rw shared 32768 0", "past the 32768 bytes");
        refused("map n o rw shared 0xfffffffffffff000 8192", "overflows");
        refused("map-many o 4096 0 4096 32768", "past the object's 32768 bytes");
        refused("unmap m 1 4096", "not a multiple of the page size");
        refused("unmap m 0 0", "");
        refused("unmap m 0 1000000", "");
        let verbs: &[&str] = if worker.ask("lock o 0 4096").is_ok() {
            worker.ok("unlock o 0 4096");
            &["sync", "lock", "unlock", "prefetch"]
        } else {
            &["sync", "prefetch"]
        };
        for verb in verbs {
            refused(&format!("{verb} o 0 0"), "length is zero: name at least one byte");
            refused(&format!("{verb} o 28672 4097"), "past the object's 32768 bytes: resize it");
            refused(&format!("{verb} o 0xffffffffffffffff 2"), "overflows");
        }
        refused("incore o 0 0", "length is zero");
        refused("incore o 0xfffffffffffff000 8192", "overflows");
        refused("incore o 0x7ffffffffffff000 4096", "past the limit of 4294967296");
        refused("read-at o 32768 1", "past");
        refused("write-at o 32767 ab", "past");
        refused("resize /x 0x7fffffffffffffff", "past the limit of 17592186044416");
        refused("chmod /x 1777", "beyond rwxrwxrwx");
        let text = worker.refused(&format!("map n o rw shared 0 4096 fixed={}", free - (1 << 30)), "Busy");
        assert!(text.contains("in use: choose others"), "{text}");
    });
}

#[test]
fn creations_that_cannot_be() {
    let host = TestHost::start();
    let worker = host.worker();
    for (options, says) in [
        ("size=0", "the size is zero: give --size, or --file"),
        ("size=0x7fffffffffffffff", "past the limit of 17592186044416 bytes"),
        ("size=4096 mode=7777", "beyond rwxrwxrwx"),
        ("size=4096 budget=4096", "the least is 1048576"),
        ("size=4096 fault-deadline=0", "leave it out for none"),
        ("size=4096 pager=relative", "must start with a slash"),
        ("size=4096 pager=/p reserve=yes", "keeps its own space"),
        (&format!("size=4096 description={}", "t".repeat(4097)), "4097 bytes: the limit is 4096"),
        ("size=4096 budget=0x7ffffffffff", "more than the whole host's"),
    ] {
        let text = worker.refused(&format!("create o /lab/x {options}"), "Invalid");
        assert!(text.contains(says), "{options}: {text}");
        worker.refused("stat /lab owner", "NotFound");
    }
    let empty = host.scratch().file("empty", 0);
    worker.refused(&format!("create o /x file={}", empty.display()), "Invalid");
    let text = worker.refused(&format!("create o /x file-ro={} size=4096", empty.display()), "Invalid");
    assert!(text.contains("open for reading alone"), "{text}");
    assert_eq!(std::fs::metadata(&empty).unwrap().len(), 0);
    worker.refused("create o /x file-ro=/dev/zero size=4096", "Invalid");
    worker.refused(&format!("create o /x file-ro={} size=4096", host.scratch().path().display()), "Invalid");
    // What no file can be given to, asked through the library itself.
    let file = std::fs::File::open("/dev/null").unwrap();
    let options = CreateOptions { size_bytes: 4096, ..CreateOptions::default() };
    let error = host.connect().create("/x", &options, Some(std::os::fd::AsFd::as_fd(&file))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    // One file is not two controlled objects.
    let file = host.scratch().file("one", 4096);
    worker.ok(&format!("create o /one file={} sync=atomic", file.display()));
    let text = worker.refused(&format!("create p /two file={}", file.display()), "Busy");
    assert!(text.contains("/one: use that one"), "{text}");
    let text = worker.refused("create p /one size=4096", "Exists");
    assert!(text.contains("open it, or remove it first"), "{text}");
    assert_eq!(worker.ok("list /"), "/one");
}

#[test]
fn names_that_cannot_be_and_names_that_are_not() {
    each_kind(|host, worker| {
        let (long, longer) = (format!("/{}", "x".repeat(256)), "/xy".repeat(400));
        for (name, says) in [
            ("x", "must start with a slash, as /lab/weights"),
            ("../x", "must start with a slash"),
            ("/a/../x", "a `..` part: names are never relative"),
            ("/./x", "a `.` part"),
            ("//x", "an empty part between two slashes"),
            ("/a\0b", "NUL"),
            ("/a\tb", "control character"),
            (&long, "256 bytes in a name is too long: the limit is 255"),
            (&longer, "1200 bytes is too long: the limit is 1024"),
        ] {
            let lines = [
                "create n NAME size=4096",
                "open n NAME r",
                "remove NAME",
                "rename NAME /y",
                "rename /x NAME",
                "chmod NAME 600",
                "chown NAME 0 0",
                "resize NAME 4096",
                "stat NAME id",
                "list NAME",
                "revert NAME",
            ];
            for line in lines {
                let text = worker.refused(&line.replace("NAME", name), "Invalid");
                assert!(text.contains(says), "{line} of {name:?}: {text}");
            }
        }
        for line in ["open n / r", "create n / size=4096", "remove /", "rename / /y"] {
            let text = worker.refused(line, "Invalid");
            assert!(text.contains("`/` is the root directory"), "{line}: {text}");
        }
        for line in [
            "open n /none r",
            "remove /none",
            "rename /none /y",
            "chmod /none 600",
            "chown /none 0 0",
            "resize /none 4096",
            "stat /none id",
            "list /none",
            "revert /none",
            "open n /no/where r",
        ] {
            let text = worker.refused(line, "NotFound");
            assert!(text.contains("/no"), "{line}: {text}");
        }
        let _ = host;
    });
}

#[test]
fn objects_are_not_directories_nor_directories_objects() {
    each_kind(|_, worker| {
        for line in
            ["create n /x/y size=4096", "open n /x/y r", "rename /x /x/y", "stat /x/y id", "remove /x/y"]
        {
            let refused = worker.ask(line).unwrap_err();
            assert!(["Mismatch", "Invalid"].contains(&refused.kind.as_str()), "{line}: {refused:?}");
            assert!(refused.message.contains("/x"), "{line}: {refused:?}");
        }
        let text = worker.refused("create n /x/y size=4096", "Mismatch");
        assert!(text.contains("/x is an object, not a directory"), "{text}");
        worker.ok("create n /d/e/f size=4096");
        for line in ["open k /d/e rw", "create k /d/e size=4096", "resize /d 8192", "revert /d/e"] {
            let text = worker.refused(line, "Mismatch");
            assert!(text.contains("is a directory"), "{line}: {text}");
        }
        worker.refused("remove /d/e", "Busy");
        worker.refused("rename /x /d/e/f", "Exists");
        worker.refused("rename /d /d/g", "Invalid");
        worker.all("close n\nremove /d/e/f\nremove /d/e\nremove /d");
    });
    // The type of its pages is stored and shown, for programs that compare it.
    let host = TestHost::start();
    host.worker().ok("create o /typed size=4096 description=<u4");
    let worker = host.worker();
    worker.ok("open o /typed r");
    assert_eq!(worker.ok("info o description"), "<u4");
    // As long as they may be, they are listed in several messages.
    let long = "t".repeat(4096);
    (10..60).for_each(|n| worker.ok(&format!("create o{n} /long/{n} size=4096 description={long}")).clear());
    assert_eq!(worker.ok("list /long").split(' ').count(), 50);
    assert_eq!(worker.ok("stat /long/59 description"), long);
}

#[test]
fn without_permission_nothing_is_had_and_nothing_changes() {
    if !is_root("several users") {
        return;
    }
    let host = TestHost::start();
    let (owner, group, stranger) =
        (host.worker_of(65533, 65533), host.worker_of(65532, 65533), host.worker_of(65531, 65531));
    owner.all("create o /mine/x size=4096 mode=640\nmap m o rw shared 0 0\nfill m 0 1 1");
    owner.ok("create p /top size=4096 mode=666");
    group.all("open o /mine/x r\nmap m o r shared 0 0\ncheck m 0 1 1");
    group.refused("open w /mine/x rw", "Permission");
    group.refused("map w o rw shared 0 0", "Permission");
    group.refused("resize /mine/x 8192", "Permission");
    group.refused("revert /mine/x", "Permission");
    for worker in [&group, &stranger] {
        for line in [
            "chmod /mine/x 666",
            "chown /mine/x 65531 -",
            "remove /mine/x",
            "rename /mine/x /stolen",
            "create n /mine/new size=4096",
            "chmod /mine 777",
            "remove /mine",
            "chown /mine 65531 -",
        ] {
            let refused = worker.ask(line).unwrap_err();
            assert!(["Permission", "Busy"].contains(&refused.kind.as_str()), "{line}: {refused:?}");
        }
        // Everybody may write it, and nobody but its owner take it out of the sticky root.
        worker.all("open t /top rw\nmap t t rw shared 0 0\nput t 0 1");
        worker.refused("remove /top", "Permission");
        worker.refused("rename /top /other", "Permission");
        worker.refused("rename /mine /other", "Permission");
    }
    let text = stranger.refused("open o /mine/x r", "Permission");
    assert!(text.contains("65531") && text.contains("65533:65533 with mode 640"), "{text}");
    stranger.refused("stop force", "Permission");
    // Not to be reached at all.
    owner.ok("chmod /mine 700");
    for line in ["open o /mine/x r", "stat /mine/x id", "list /mine"] {
        let text = group.refused(line, "Permission");
        assert!(text.contains("/mine"), "{text}");
    }
    group.ok("check m 0 1 1");
    // Giving away is root's, and a group must be one's own.
    owner.refused("chown /mine/x 65531 -", "Permission");
    owner.refused("chown /mine/x - 65531", "Permission");
    assert_eq!(owner.ok("stat /mine/x owner"), "65533 65533 640");
    owner.all("check m 0 1 1\nchmod /mine/x 600\nremove /mine/x\nremove /mine\nremove /top");
    host.worker().ok("create o /roots size=4096 mode=644");
    stranger.refused("remove /roots", "Permission");
}

#[test]
fn what_may_be_read_alone_is_never_written() {
    let host = TestHost::start();
    // A file that was given open for reading alone: nobody can write the object, whoever he is.
    for sync in ["plain", "ordered", "plain controlled"] {
        let file = host.scratch().file_of("read-only", &[7; 8192]);
        let worker = host.worker();
        worker.ok(&format!("create o /ro file-ro={} sync={sync} mode=666", file.display()));
        worker.all("map m o r shared 0 0\nget m 8191");
        let text = worker.refused("map n o rw shared 0 0", "Permission");
        assert!(text.contains("open it for writing, or map it private"), "{text}");
        let text = worker.refused("open p /ro rw", "Permission");
        assert!(text.contains("create it again from a file opened for reading and writing"), "{text}");
        worker.refused("write-at o 0 x", "Permission");
        assert!(worker.ask("resize /ro 4096").is_err(), "{sync}");
        worker.all("map n o rw private 0 0\nput n 0 1");
        assert_eq!(worker.ok("get m 0"), "7");
        worker.dies("put m 0 1", libc::SIGSEGV);
        assert_eq!(std::fs::read(&file).unwrap(), [7; 8192]);
        host.worker().ok("remove /ro");
    }
    if !is_root("a reader of another user") {
        return;
    }
    for options in ["size=8192", "size=8192 controlled", "file=FILE", "file=FILE sync=atomic"] {
        let file = host.scratch().file("theirs", 8192);
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let owner = host.worker();
        owner.ok(&format!("create o /x {} mode=644", options.replace("FILE", &file.display().to_string())));
        owner.all("map m o rw shared 0 0\nfill m 0 2 1");
        let reader = host.worker_of(65534, 65534);
        reader.all("open o /x r\nmap m o r shared 0 0\ncheck m 0 2 1");
        assert_eq!(reader.ok("regain m"), "", "{options}");
        owner.ok("check m 0 2 1");
        assert_eq!(owner.ok("info o size"), "8192", "{options}");
        for line in ["sync o 0 4096", "write-at o 0 x"] {
            if let Err(refused) = reader.ask(line) {
                assert_eq!(refused.kind, "Permission", "{options}: {line}: {}", refused.message);
            } else {
                assert!(
                    line.starts_with("sync") && !options.contains("atomic"),
                    "{options}: {line} was done"
                );
            }
        }
        owner.all("check m 0 2 1\nremove /x");
    }
}

#[test]
fn the_table_of_bad_input_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let table = std::fs::read_to_string(root.join("docs/BAD_INPUT.md")).unwrap();
    let names: Vec<&str> =
        table.split('`').filter(|word| word.contains("::") && *word != "file::function").collect();
    assert!(names.len() > 20, "{names:?}");
    let mut sources = Vec::new();
    for folder in ["tests", "crates"] {
        sources_below(&root.join(folder), &mut sources);
    }
    for name in names {
        // As `file::function`, or the whole path of a unit test.
        let mut parts = name.rsplit("::").filter(|part| *part != "tests");
        let (function, file) = (parts.next().unwrap(), parts.next().unwrap());
        let there = |path: &&PathBuf| {
            path.components().any(|part| Path::new(part.as_os_str()).file_stem() == Some(OsStr::new(file)))
        };
        let has =
            |path: &PathBuf| std::fs::read_to_string(path).unwrap().contains(&format!("fn {function}("));
        assert!(sources.iter().filter(there).any(has), "there is no test {name}");
    }
}

/// The tests of a folder: files that are or belong to a test, in whatever crate.
fn sources_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources_below(&path, found);
        } else if path.extension() == Some(OsStr::new("rs")) {
            found.push(path);
        }
    }
}

/// Sets it when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_object_may_be_removed_while_it_is_opened() {
    let host = TestHost::start();
    // So often the name must be there when it is asked for, and so often it must not.
    const SEEN: u32 = 20;
    for controlled in [false, true] {
        let options = CreateOptions { size_bytes: 8192, controlled, ..CreateOptions::default() };
        let (maker, opener) = (host.connect(), host.connect());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let object = maker.create("/race", &options, None).expect("the name is free");
                    object.write_at(&[5; 10], 4096).expect("written");
                    maker.remove("/race").expect("removed");
                }
            });
            // Also where an assertion ends this thread.
            let _over = Over(&over);
            let (mut opened, mut missed) = (0, 0);
            while opened < SEEN || missed < SEEN {
                let Ok(object) = opener.open("/race", Access::ReadWrite).inspect_err(|error| {
                    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
                }) else {
                    missed += 1;
                    continue;
                };
                // Whoever got it in time has all of it, removed or not.
                opened += 1;
                let mut found = [1; 10];
                object.read_at(&mut found, 4096).unwrap();
                // Shared memory: of what is being written any part may be seen.
                assert!(found.iter().all(|byte| [0, 5].contains(byte)), "{found:?}");
                object.write_at(&[9], 0).unwrap();
                object.read_at(&mut found[..1], 0).unwrap();
                assert_eq!(found[0], 9);
            }
        });
    }
    commonhold_tests::wait::until("nothing is left", || (host.status().objects == 0).then_some(()));
}
