//! Wired objects: `docs/REAL-MEMORY.md`. No touch of one is a fault, and all else is as with other objects.

use commonhold_tests::host::signal;
use commonhold_tests::huge::HugePages;
use commonhold_tests::user::as_user;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, Worker, is_root};

const KIB: u64 = 1024;

fn create(worker: &Worker, number: u64, kib: u64, more: &str) {
    worker.ok(&format!("create o{number} /w{number} size={} wired {more}", kib * KIB));
    worker.ok(&format!("map m{number} o{number} rw shared 0 0"));
}

fn open(host: &TestHost, number: u64) -> Worker {
    let worker = host.worker();
    worker.all(&format!("open o /w{number} rw\nmap m o rw shared 0 0"));
    worker
}

fn place(worker: &Worker, name: &str) -> (u64, u64) {
    let said = worker.ok(&format!("stat {name} place"));
    let numbers: Vec<u64> =
        said.split(' ').map(|word| word.parse().unwrap_or_else(|_| panic!("{said}"))).collect();
    (numbers[0], numbers[1])
}

/// How often this process has huge pages of the host mapped.
fn arenas_mapped(worker: &Worker) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", worker.ok("pid"))).unwrap();
    maps.lines().filter(|line| line.contains("commonhold-arena")).count()
}

#[test]
fn objects_of_a_class_are_one_mapping_without_a_fault() {
    let Some(pool) = HugePages::more(4) else { return };
    let host = TestHost::start();
    let first = host.worker();
    for number in 0..50 {
        create(&first, number, 40, "");
        first.ok(&format!("fill m{number} 0 10 {}", number + 1));
    }
    assert_eq!(arenas_mapped(&first), 1);
    let second = host.worker();
    for number in 0..50 {
        first.ok(&format!("no-faults m{number} 0 10"));
        second.all(&format!("open o{number} /w{number} rw\nmap m{number} o{number} rw shared 0 0"));
        second.ok(&format!("no-faults m{number} 0 10"));
        second.ok(&format!("check m{number} 0 10 {}", number + 1));
    }
    assert_eq!(arenas_mapped(&second), 1);
    // A child has them all, too.
    first.ok("forks no-faults m49 0 10");
    first.ok("forks check m7 0 10 8");
    // Twice, in part, and by calls.
    second.all("map again o3 rw shared 4096 8192\nput again 0 77\ndrop again");
    assert_eq!(first.ok("get m3 4096"), "77");
    assert_eq!(first.ok("read-at o3 4096 1"), "4d");
    first.all("fill m3 0 10 4\nwrite-at o3 5 xy");
    assert_eq!(second.ok("get m3 6"), u32::from(b'y').to_string());
    assert_eq!(first.ok("get m4 0"), second.ok("get m4 0"));
    // They lie apart, in an object that can be seen.
    assert_eq!(pool.free(), 3);
    assert_eq!(place(&first, "/w0").0, place(&first, "/w49").0);
    assert!(first.ok("list /").contains("/.arena-1"));
    assert_eq!(first.ok("stat /w7 mappings"), "2");
    for number in 0..50 {
        first.all(&format!("drop m{number}\nclose o{number}\nremove /w{number}"));
    }
    assert_eq!(second.ok("list /"), "/.arena-1", "as long as somebody has one open");
    drop(second);
    until("the arena is gone", || (pool.free() == 4).then_some(()));
    until("its name, too", || (first.ok("list /").is_empty()).then_some(()));
}

#[test]
fn sizes_change_by_a_call_and_what_is_new_is_zero() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    create(&worker, 1, 512, "");
    worker.all("fill m1 0 128 1\ndrop m1");
    worker.all("resize /w1 8192\nresize /w1 524288\nmap m1 o1 rw shared 0 0\ncheck m1 0 2 1");
    assert_eq!([worker.ok("get m1 8192"), worker.ok("get m1 520000")], ["0", "0"]);
    worker.ok("no-faults m1 0 128");
    // Into the free pages behind it, while it is mapped.
    worker.all("fill m1 0 128 2\nresize /w1 1048576\nmap more o1 rw shared 0 0\ncheck more 0 128 2");
    worker.ok("no-faults more 0 256");
    assert!(worker.ok("address more") != worker.ok("address m1"), "each ends by itself");
    create(&worker, 2, 512, "");
    let said = worker.refused("resize /w1 1572864", "Busy");
    assert!(said.contains("close it first"), "{said}");
    worker.ok("check more 0 128 2");
    worker.all("drop m1\ndrop more\nclose o1\nresize /w1 1572864\nopen o1 /w1 rw\nmap m1 o1 rw shared 0 0");
    worker.all("check m1 0 128 2\nno-faults m1 0 384");
    assert_eq!(worker.ok("get m1 1572863"), "0");
    worker.refused("resize /w1 0", "Invalid");
}

#[test]
fn what_nobody_has_open_moves_to_make_room() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    for number in 0..8 {
        create(&worker, number, 256, "");
        worker.all(&format!("fill m{number} 0 64 {}\ndrop m{number}\nclose o{number}", number + 1));
    }
    assert_eq!(pool.free(), 0);
    for number in [1, 3, 5, 7] {
        worker.ok(&format!("remove /w{number}"));
    }
    let open = open(&host, 4);
    let before = place(&worker, "/w4");
    create(&worker, 9, 768, "");
    worker.ok("no-faults m9 0 192");
    assert_eq!(worker.ok("get m9 786431"), "0");
    for number in [0, 2, 6] {
        let other = host.worker();
        other.all(&format!(
            "open o /w{number} rw\nmap m o rw shared 0 0\ncheck m 0 64 {}\nno-faults m 0 64",
            number + 1
        ));
    }
    assert_eq!(place(&worker, "/w4"), before, "it is open");
    open.ok("check m 0 64 5");
}

#[test]
fn who_may_reach_one_object_of_an_arena_may_reach_all() {
    let Some(_pool) = HugePages::more(8) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    create(&worker, 1, 64, "mode=600");
    create(&worker, 2, 64, "mode=644");
    create(&worker, 3, 64, "mode=644");
    worker.ok("create d /d/w4 size=65536 wired mode=644");
    let arena = |name: &str| place(&worker, name).0;
    assert_eq!(arena("/w2"), arena("/w3"));
    assert!(arena("/w1") != arena("/w2") && arena("/d/w4") != arena("/w2"));
    worker.all("fill m1 0 16 1\nfill m2 0 16 2");
    for change in ["chmod /w1 644", "rename /w1 /d/w1", "chown /w1 1234 -"] {
        let said = worker.refused(change, "Busy");
        assert!(said.contains("close it first"), "{said}");
    }
    as_user(1234, || {
        let reader = host.worker();
        reader.all("open o /w2 r\nmap m o r shared 0 0\ncheck m 0 16 2");
        reader.refused("map n o rw shared 0 0", "Permission");
        reader.refused("open x /w1 r", "Permission");
    });
    // Its pages lie in the other arena before anybody gets that.
    worker.all("drop m1\nclose o1\nchmod /w1 644");
    as_user(1234, || host.worker().all("open x /w1 r\nmap y x r shared 0 0\ncheck y 0 16 1"));
    assert_eq!(arena("/w1"), arena("/w2"));
    until("it is closed", || (worker.ok("stat /w1 opens") == "0").then_some(()));
    worker.ok("chmod /w1 600");
    as_user(1234, || {
        host.worker().refused("open x /w1 r", "Permission");
    });
    worker.all("open o1 /w1 rw\nmap m1 o1 rw shared 0 0\ncheck m1 0 16 1");
    assert!(arena("/w1") != arena("/w2"));
    worker.all("drop m1\nclose o1\nrename /w1 /d/w1\nchmod /d/w1 644\nopen o1 /d/w1 rw\nmap m1 o1 rw shared 0 0\ncheck m1 0 16 1");
    assert_eq!(arena("/d/w1"), arena("/d/w4"));
    // Arenas stay as they are as long as something is in them.
    for change in
        ["remove /d/.arena-1", "chmod /d/.arena-1 600", "rename /d/.arena-1 /x", "rename /w3 /d/.arena-1"]
    {
        assert!(worker.ask(change).is_err(), "{change}");
    }
    // A directory moves with all that is in it.
    worker.all("rename /d /e\nopen again /e/w1 rw");
}

#[test]
fn places_outlive_host_and_keeper() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    for number in 0..6 {
        create(&worker, number, 128, "");
        worker.ok(&format!("fill m{number} 0 32 {}", number + 1));
        if number > 2 {
            worker.all(&format!("drop m{number}\nclose o{number}"));
        }
    }
    worker.ok("remove /w4");
    let places = || [0, 1, 2, 3, 5].map(|number| place(&worker, &format!("/w{number}")));
    let before = places();
    for both in [false, true] {
        let pid = host.status().host_pid;
        if both {
            host.kill_both();
            host.start_again().unwrap();
        } else {
            host.kill_host();
        }
        host.wait_for_other_host(pid);
        worker.eventually("info o0 size");
        // Also what nobody has open: its neighbour's client brought the arena back.
        for number in [0, 1, 2, 3, 5] {
            let other = open(&host, number);
            other.all(&format!("check m 0 32 {}\nno-faults m 0 32", number + 1));
        }
        assert_eq!(places(), before);
        worker.ok("no-faults m0 0 32");
    }
    // New ones are placed where nothing is.
    create(&worker, 7, 128, "");
    worker.ok("fill m7 0 32 70");
    for number in [0, 1, 2, 3, 5] {
        open(&host, number).ok(&format!("check m 0 32 {}", number + 1));
    }
}

#[test]
fn what_nobody_has_open_goes_to_disk_and_comes_back_whole() {
    let Some(pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    for number in 0..4 {
        create(&worker, number, 512, "");
        worker.all(&format!("fill m{number} 0 128 {}\ndrop m{number}\nclose o{number}", number + 1));
    }
    worker.all("open o1 /w1 rw\nmap m1 o1 rw shared 0 0");
    // The first was not opened for longest; the second is open.
    create(&worker, 4, 512, "");
    worker.ok("fill m4 0 128 5");
    assert_eq!(pool.free(), 0);
    let on_disk = |number: u64| worker.ok(&format!("stat /w{number} spilled")) != "0";
    assert_eq!([0, 1, 2, 3, 4].map(on_disk), [true, false, false, false, false]);
    assert_eq!([worker.ok("stat /w0 place"), worker.ok("stat /w0 resident")], ["-", "0"]);
    for both in [false, true] {
        let pid = host.status().host_pid;
        match both {
            true => {
                host.kill_both();
                host.start_again().unwrap();
            }
            false => host.kill_host(),
        }
        host.wait_for_other_host(pid);
        worker.eventually("info o1 size");
        // One comes, another goes.
        for number in [0, 2, 3, 0, 2] {
            let other = open(&host, number);
            other.all(&format!("check m 0 128 {}\nno-faults m 0 128", number + 1));
            drop(other);
            until("it is closed", || (worker.ok(&format!("stat /w{number} opens")) == "0").then_some(()));
        }
        worker.all("check m1 0 128 2\ncheck m4 0 128 5");
    }
    // Of another size, and with another name, from disk.
    worker.all("drop m4\nclose o4\nremove /w4");
    let number = [0, 2, 3].into_iter().find(|number| on_disk(*number)).expect("one lies on disk");
    worker.all(&format!("rename /w{number} /x\nresize /x 1048576\nopen x /x rw\nmap x x rw shared 0 0"));
    worker.all(&format!("check x 0 128 {}\nno-faults x 0 256", number + 1));
    assert_eq!(worker.ok("get x 1048575"), "0");
    // Where nothing can go there is no room, and nothing is lost.
    let others: Vec<u64> = [0, 2, 3].into_iter().filter(|other| *other != number).collect();
    let (held, away) = (open(&host, others[0]), others[1]);
    let said = worker.refused(&format!("open y /w{away} rw"), "NoSpace");
    assert!(said.contains("lies on disk") && said.contains("nr_hugepages"), "{said}");
    drop(held);
    worker.all("drop x\nclose x\nremove /x");
    let other = open(&host, away);
    other.ok(&format!("check m 0 128 {}", away + 1));
    let files = || std::fs::read_dir(host.state().join("spill")).unwrap().count();
    for number in [0, 2, 3] {
        let _ = worker.ask(&format!("remove /w{number}")); // one of them is /x
    }
    drop(other);
    worker.all("drop m1\nclose o1\nremove /w1");
    until("all is gone", || (pool.free() == 1 && files() == 0).then_some(()));
}

#[test]
fn what_nobody_has_open_makes_room_for_other_classes_of_its_owner() {
    let Some(pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    let named = |name: &str| {
        worker.all(&format!("create o {name} size=1048576 wired\nmap m o rw shared 0 0"));
    };
    let closed = |name: &str, value: u64| {
        named(name);
        worker.all(&format!("fill m 0 256 {value}\ndrop m\nclose o"));
    };
    ["/a/1", "/a/2", "/b/1"].iter().zip(1..).for_each(|(name, value)| closed(name, value));
    assert_eq!(pool.free(), 0);
    let on_disk = || ["/a/1", "/a/2", "/b/1"].map(|name| worker.ok(&format!("stat {name} spilled")) != "0");
    // Of two arenas the one goes, whole, that was not used for longest. The keeper has not let go of
    // it yet.
    let keeper = host.status().keeper_pid;
    signal(keeper, libc::SIGSTOP);
    closed("/c/1", 4);
    signal(keeper, libc::SIGCONT);
    assert_eq!(on_disk(), [true, true, false]);
    // Where one object is open the others gain nothing by going.
    worker.all("open o /b/1 rw\nmap m o rw shared 0 0\ncheck m 0 256 3");
    let other = host.worker();
    other.all("open o /c/1 rw\nmap m o rw shared 0 0");
    let said = host.worker().refused("open o /a/1 rw", "NoSpace");
    assert!(said.contains("lies on disk") && said.contains("nr_hugepages"), "{said}");
    assert_eq!(on_disk(), [true, true, false]);
    drop(other);
    for (name, value) in [("/a/1", 1), ("/c/1", 4), ("/a/2", 2)] {
        until("it is closed", || (worker.ok("stat /c/1 opens") == "0").then_some(()));
        let other = host.worker();
        other
            .all(&format!("open o {name} rw\nmap m o rw shared 0 0\ncheck m 0 256 {value}\ndrop m\nclose o"));
    }
    worker.all("check m 0 256 3");
}

#[test]
fn without_huge_pages_pages_are_locked() {
    let _pool = HugePages::unchanged();
    let host = TestHost::start();
    let worker = host.worker();
    // More than the machine's pool has, whoever set it, and whoever is about to give pages back.
    let pages = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    let bytes = (pages.trim().parse::<u64>().unwrap() + 1) * 2 * MIB;
    worker.ok(&format!("create o /w1 size={bytes} wired"));
    worker.all("map m o rw shared 0 0\nfill m 0 512 1\nno-faults m 0 512");
    assert_eq!(worker.ok("stat /w1 place"), "-");
    worker.ok("forks no-faults m 0 512");
    let second = open(&host, 1);
    second.all("check m 0 512 1\nno-faults m 0 512");
    if is_root("a user who may lock little") {
        let said = as_user(1234, || {
            let user = host.worker();
            user.ok(&format!("create o /u1 size={bytes} wired"));
            user.ok("limit memlock 65536");
            user.refused("map m o rw shared 0 0", "NoSpace")
        });
        assert!(said.contains("ulimit -l") && said.contains("nr_hugepages"), "{said}");
    }
}

#[test]
fn what_a_wired_object_cannot_be_is_refused() {
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    create(&worker, 1, 64, "");
    for (line, why) in [
        ("map n o1 rw private 0 0", "map it shared"),
        ("map n o1 rw shared 0 0 fixed=105553116266496", "leave the fixed address out"),
        ("map n o1 rw shared 4096 65536", "past the object's"),
        ("create p /p size=4096 wired sync=atomic", "controlled"),
        ("create p /p size=4096 wired explicit", "coherence"),
        ("create p /p size=0 wired", "size is zero"),
        ("create p /p size=17592186044417 wired", "past the limit"),
    ] {
        let said = worker.ask(line).expect_err(line).message;
        assert!(said.contains(why), "{line}: {said}");
    }
    assert_eq!(worker.ok("list /"), "/.arena-1 /w1");
}
