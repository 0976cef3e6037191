//! Homes of shared objects in trouble: out of disk while pages come home, and back with a state that is older than what
//! the others know.

use commonhold_tests::cluster::{another, brief_cluster, free_address, sharers_of};
use commonhold_tests::host::kill_together;
use commonhold_tests::scratch::RamDisk;
use commonhold_tests::{MIB, PAGE, Scratch, TestHost, Worker, left_out, page, wait};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SMALL: [&str; 2] = ["--budget", "4194304"];

/// A home whose state is on a disk of that size, another host, and the disk; both hosts have little memory.
fn on_small_disk(megabytes: u64) -> Option<(RamDisk, [TestHost; 2])> {
    let disk = RamDisk::new(megabytes).inspect_err(|why| left_out(&why.to_string())).ok()?;
    let (list, own) = (free_address(), free_address());
    let first = ["--plain", "--listen", &list, "--name", "home"];
    let home = TestHost::at(Scratch::new(), disk.path().join("state"), &[&first[..], &SMALL].concat());
    let second = ["--plain", "--listen", &own, "--join", &list, "--name", "other"];
    let other = TestHost::with(&[&second[..], &SMALL].concat());
    Some((disk, [home, other]))
}

/// What goes home because memory is short elsewhere has no room there: the home keeps it in memory beyond its budget.
#[test]
fn a_home_without_disk_loses_no_page_that_comes_home() {
    for how in ["central", "forwarding"] {
        let Some((disk, hosts)) = on_small_disk(96) else { return };
        let workers = sharers_of(&hosts, "/shared", &format!("size={} reserve=no {how}", 32 * MIB));
        workers[1].ok("fill m 0 512 1");
        let ballast = disk.use_up(64 << 10);
        // Four times what either may keep: most of it goes home, whose spill file has no room.
        workers[1].all("fill m 0 4096 2\ncheck m 0 4096 2");
        workers[0].all("check m 0 4096 2\nfill m 0 256 3");
        let before = hosts[0].status().host_pid;
        std::fs::remove_file(ballast).unwrap();
        workers[1].all("check m 0 256 3\ncheck m 256 3840 2\nfill m 4096 4096 4");
        workers[0].all("check m 4096 4096 4\ncheck m 0 256 3");
        assert_eq!(hosts[0].status().host_pid, before, "{}", hosts[0].log());
    }
}

/// A sync from elsewhere is refused with the reason; what was to be stored stays, and is stored when there is room.
#[test]
fn a_sync_that_the_home_has_no_room_for_says_so_and_works_again() {
    for how in ["central", "forwarding", "explicit"] {
        for sync in ["ordered", "atomic"] {
            let Some((disk, hosts)) = on_small_disk(96) else { return };
            let file = disk.path().join("file");
            std::fs::File::create(&file).unwrap().set_len(16 * MIB).unwrap();
            let options = format!("file={} sync={sync} reserve=no {how}", file.display());
            let workers = sharers_of(&hosts, "/stored", &options);
            workers[1].all("fill m 0 8 1\nsync o 0 32768");
            let ballast = disk.use_up(64 << 10);
            workers[1].ok("fill m 0 2048 2");
            let why = workers[1].ask("sync o 0 16777216").unwrap_err();
            assert!(!why.message.is_empty() && !why.message.contains('\n'), "{why:?}");
            let log = hosts[0].log();
            let says = |text: &str| text.contains("No space") || text.contains("space");
            assert!(
                why.kind == "NoSpace" || says(&why.message) || says(&log),
                "{how} {sync}: {why:?}\n{log}"
            );
            workers[1].ok("check m 0 2048 2");
            std::fs::remove_file(ballast).unwrap();
            workers[1].eventually("sync o 0 16777216");
            assert!(std::fs::read(&file).unwrap()[..8 << 20] == page::bytes(0, 2048, 2), "{how} {sync}");
            workers[0].ok("check m 0 2048 2");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to).status();
    assert!(copied.expect("cp").success());
}

fn end(host: &TestHost) {
    kill_together(&host.processes());
}

/// The directory of a host is brought back from a copy: it is that host, with what it had when the copy was made.
#[test]
fn a_host_with_old_state_takes_no_name_that_is_anothers_by_now() {
    let hosts = brief_cluster(3);
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    let file = hosts[1].scratch().file("file", MIB);
    let options = format!("file={} sync=ordered strict mode=666", file.display());
    workers[1].eventually(&format!("create o /old {options}"));
    workers[1].all("map m o rw shared 0 0\nfill m 0 16 1\nsync o 0 65536\ncreate k /kept size=65536 strict");
    workers[1].all("map k k rw shared 0 0\nfill k 0 1 1\ndrop m\nclose o\ndrop k\nclose k");
    end(&hosts[1]);
    let saved = hosts[1].scratch().join("saved");
    copy(hosts[1].state(), &saved);
    // It goes on: its object is removed, and another host makes one of that name.
    hosts[1].start_again().unwrap();
    let after = hosts[1].worker();
    after.eventually("open o /old rw");
    after.all("close o\nremove /old");
    workers[2].eventually("create o /old size=4096 strict mode=666");
    workers[2].all("map m o rw shared 0 0\nfill m 0 1 7");
    drop(after);
    end(&hosts[1]);
    let pages = std::fs::read(&file).unwrap();
    std::fs::remove_dir_all(hosts[1].state()).unwrap();
    copy(&saved, hosts[1].state());
    hosts[1].start_again().unwrap();
    wait::until("it belongs again", || {
        let hosts = hosts[0].connect().hosts().unwrap();
        (hosts.iter().any(|host| host.name == "host1")).then_some(())
    });
    // Everybody else finds the newer object; nothing of either is mixed.
    workers[0].eventually("open o /old rw");
    workers[0].all("map m o rw shared 0 0\ncheck m 0 1 7\nfill m 0 1 8");
    workers[2].ok("check m 0 1 8");
    let back = hosts[1].worker();
    back.ok("open o /old rw");
    assert_eq!(back.ok("info o size"), MIB.to_string(), "its own is its own alone");
    back.all("map m o rw shared 0 0\ncheck m 0 16 1");
    assert_eq!(std::fs::read(&file).unwrap(), pages);
    wait::until("its log says so", || {
        hosts[1]
            .log()
            .lines()
            .any(|line| line.contains("/old") && line.contains("another host"))
            .then_some(())
    });
    // Renamed it can be had from everywhere.
    back.ok("rename /old /older");
    workers[0].eventually("open p /older rw");
    workers[0].all("map p p rw shared 0 0\ncheck p 0 16 1");
}

/// The same directory twice, at two addresses: one of the two is the host.
#[test]
fn a_copy_of_a_host_beside_it_is_refused() {
    let hosts = brief_cluster(2);
    let workers = sharers_of(&hosts, "/shared", &format!("size={MIB} strict"));
    workers[1].ok("fill m 0 16 1");
    let list = {
        let known = hosts[0].connect().hosts().unwrap();
        known.iter().find(|host| host.is_this).unwrap().address.to_string()
    };
    let copied = hosts[1].scratch().join("copied");
    std::fs::create_dir(&copied).unwrap();
    for name in ["meta.redb", "incarnation"] {
        copy(&hosts[1].state().join(name), &copied.join(name));
    }
    let own = free_address();
    let words = ["--plain", "--listen", &own, "--join", &list, "--name", "host1"];
    let twin = TestHost::at(Scratch::new(), copied, &words);
    wait::until("it is refused", || {
        let said = ["there is a host named host1", "two hosts have one name"];
        said.iter().any(|said| twin.log().contains(said)).then_some(())
    });
    twin.worker().refused("open o /shared r", "Disconnected");
    workers[0].all("check m 0 16 1\nfill m 0 8 2");
    workers[1].all("check m 0 8 2\nfill m 8 1 3");
    assert!(!hosts[0].log().contains("host1 is lost"), "{}", hosts[0].log());
}

/// What the home cannot read is an error for who touches it elsewhere, as it is at home: nobody waits for what cannot come.
#[test]
fn what_the_home_cannot_read_is_an_error_elsewhere_too() {
    let hosts = brief_cluster(2);
    let file = hosts[0].scratch().file_of("short", &page::bytes(0, 256, 1));
    let workers = sharers_of(&hosts, "/short", &format!("file={} sync=ordered strict", file.display()));
    workers[1].ok("check m 0 1 1");
    let handle = std::fs::File::options().write(true).open(&file).unwrap();
    handle.set_len(100 * PAGE as u64).unwrap();
    for touch in ["check m 200 1 1", &format!("put m {} 1", 201 * PAGE), &format!("get m {}", 202 * PAGE)] {
        for host in &hosts {
            another(host, "/short").dies(touch, libc::SIGBUS);
        }
    }
    workers[1].ok("check m 90 10 1");
    handle.set_len(256 * PAGE as u64).unwrap();
    // Nobody has what could not be had: it is the home's, and can be had again.
    for (number, host) in hosts.iter().enumerate() {
        let worker = another(host, "/short");
        std::thread::sleep(Duration::from_millis(1500)); // an error is over after a second
        worker.ok(&format!("put m {} {}", 201 * PAGE, 5 + number));
        assert_eq!(worker.ok(&format!("get m {}", 200 * PAGE)), "0");
        workers
            .iter()
            .for_each(|w| assert_eq!(w.ok(&format!("get m {}", 201 * PAGE)), (5 + number).to_string()));
    }
}
