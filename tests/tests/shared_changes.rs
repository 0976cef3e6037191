//! What changes of an object that several hosts use: its size, and all of it at one instant.

use commonhold_tests::cluster::{another, counts, leased_cluster, paged_cluster, sharers_from};
use commonhold_tests::crash::rounds;
use commonhold_tests::host::{kill_together, signal};
use commonhold_tests::{MIB, PAGE, TestHost, Worker, page, wait};
use std::time::Duration;

const PAGES: u64 = MIB / PAGE as u64;
const WAYS: [&str; 3] = ["central", "forwarding", "explicit"];

fn size_is(worker: &Worker, bytes: u64) {
    assert_eq!(worker.ok("info o size"), bytes.to_string());
}

/// What one wrote all see.
fn all_see(workers: &[Worker], writer: usize, first: u64, pages: u64, seed: u64) {
    workers[writer].ok(&format!("fill m {first} {pages} {seed}"));
    workers[writer].ok(&format!("sync o {} {}", first * PAGE as u64, pages * PAGE as u64));
    workers.iter().for_each(|worker| drop(worker.ok(&format!("check m {first} {pages} {seed}"))));
}

#[test]
fn what_is_asked_on_one_host_holds_on_all() {
    let hosts = leased_cluster(3, 10);
    for how in WAYS {
        let name = format!("/{how}");
        let workers = sharers_from(&hosts, 1, &name, &format!("size={MIB} {how}"));
        all_see(&workers, 2, 0, 256, 1);
        // It grows, asked elsewhere than at its home: the new pages are zero everywhere, and are shared.
        workers[0].ok(&format!("resize {name} {}", 2 * MIB));
        for worker in &workers {
            size_is(worker, 2 * MIB);
            worker.all("drop m\nmap m o rw shared 0 0");
            assert_eq!(worker.ok(&format!("get m {}", 2 * MIB - 1)), "0");
            worker.ok("check m 0 256 1");
        }
        all_see(&workers, 0, 256, 256, 2);
        // It shrinks: who touches what is gone gets SIGBUS, everywhere; what is left stays.
        workers[2].ok(&format!("fill m {PAGES} 10 3"));
        workers[2].ok(&format!("resize {name} {}", MIB / 2));
        for (worker, host) in workers.iter().zip(&hosts) {
            size_is(worker, MIB / 2);
            worker.ok("check m 0 128 1");
            let doomed = another(host, &name);
            doomed.refused(&format!("map n o rw shared {MIB} 4096"), "Invalid");
            worker.refused(&format!("sync o {MIB} 4096"), "Invalid");
        }
        // It grows again: what was there is gone, for those too that had it mapped all the time.
        workers[1].ok(&format!("resize {name} {MIB}"));
        for worker in &workers {
            assert_eq!(worker.ok("sum m 128 128"), "0", "{how}");
            worker.ok("check m 0 128 1");
        }
        all_see(&workers, 1, 0, 256, 4);
        workers[0].ok(&format!("resize {name} {}", 3 * PAGE));
        for host in &hosts {
            let doomed = host.worker();
            doomed.eventually(&format!("open o {name} rw"));
            size_is(&doomed, 3 * PAGE as u64);
        }
        for worker in workers {
            worker.dies(&format!("put m {} 1", 3 * PAGE), libc::SIGBUS);
        }
    }
}

/// With larger pages too, of the scheduler and of hosts; such an object's size goes from one multiple to another.
#[test]
fn larger_pages_come_and_go() {
    let hosts = paged_cluster(&["4KiB", "64KiB", "16KiB"]);
    for page in [4096, 16384, 65536] {
        let name = format!("/pages{page}");
        let workers = sharers_from(&hosts, 1, &name, &format!("size={MIB} central page-size={page}"));
        all_see(&workers, 2, 0, 256, 1);
        workers[2].ok("fill m 64 192 2");
        workers[0].ok(&format!("resize {name} {}", MIB / 4));
        workers[0].ok(&format!("resize {name} {MIB}"));
        for worker in &workers {
            worker.ok("check m 0 64 1");
            assert_eq!(worker.ok("sum m 64 192"), "0", "{page}");
        }
        all_see(&workers, 0, 0, 256, 3);
        if page > 4096 {
            let told = workers[2].refused(&format!("resize {name} {}", MIB + PAGE as u64), "Invalid");
            assert!(told.contains("multiple"), "{told}");
        }
    }
}

#[test]
fn only_who_may_write_changes_the_size() {
    let hosts = leased_cluster(2, 10);
    let workers = sharers_from(&hosts, 0, "/mine", &format!("size={MIB} strict mode=644"));
    let other = hosts[1].worker_of(12345, 12345);
    other.refused(&format!("resize /mine {}", 2 * MIB), "Permission");
    workers[1].refused("resize /mine 0", "Invalid");
    workers[1].refused(&format!("resize /none {MIB}"), "NotFound");
    hosts[0].worker().ok(&format!("create o /local size={MIB}"));
    workers[1].refused(&format!("resize /local {}", 2 * MIB), "NotFound");
    workers.iter().for_each(|worker| size_is(worker, MIB));
}

/// A file has the bytes up to its end; those past a smaller end are zero when it grows again.
#[test]
fn a_file_has_the_size_and_the_bytes() {
    let hosts = leased_cluster(2, 10);
    for how in WAYS {
        let file = hosts[0].scratch().file(how, MIB);
        let name = format!("/{how}");
        let workers = sharers_from(&hosts, 0, &name, &format!("file={} sync=ordered {how}", file.display()));
        all_see(&workers, 1, 0, 256, 1);
        let odd = MIB / 2 + 100;
        workers[1].ok(&format!("resize {name} {odd}"));
        assert_eq!(std::fs::metadata(&file).unwrap().len(), odd);
        workers[1].ok(&format!("resize {name} {MIB}"));
        for worker in &workers {
            worker.ok("check m 0 128 1");
            assert_eq!(worker.ok(&format!("get m {}", odd)), "0", "{how}");
            assert_eq!(worker.ok("sum m 129 127"), "0", "{how}");
        }
        workers[0].ok(&format!("sync o 0 {MIB}"));
        let stored = std::fs::read(&file).unwrap();
        assert!(stored.len() as u64 == MIB && stored[odd as usize..].iter().all(|byte| *byte == 0), "{how}");
        assert_eq!(stored[..4096], commonhold_tests::page::bytes(0, 1, 1), "{how}");
    }
}

/// Of a page with the end in it, what lies past the end is zero when the object grows: also what was on its way when it shrank,
/// and what programs wrote there.
#[test]
fn past_the_end_is_nothing_when_it_grows() {
    let odd = 2 * PAGE as u64 + 100;
    let host = TestHost::start();
    for more in ["controlled", "controlled sync=ordered file"] {
        let file = host.scratch().file("own", MIB);
        let options = more.replace("file", &format!("file={}", file.display()));
        let worker = host.worker();
        let size = if more.ends_with("file") { String::new() } else { format!("size={MIB}") };
        worker.ok(&format!("create o /{} {options} {size}", more.len()));
        worker.ok("map m o rw shared 0 0");
        worker.ok("fill m 0 4 1");
        worker.ok(&format!("resize /{} {odd}", more.len()));
        worker.ok(&format!("put m {} 7", odd + 50));
        worker.ok(&format!("resize /{} {MIB}", more.len()));
        assert_eq!(worker.ok(&format!("get m {}", odd + 50)), "0", "{more}");
    }
    let hosts = leased_cluster(3, 10);
    for how in WAYS {
        let name = format!("/{how}");
        let workers = sharers_from(&hosts, 1, &name, &format!("size={MIB} {how}"));
        for (round, writer) in workers.iter().enumerate() {
            writer.ok("fill m 0 4 1");
            writer.ok(&format!("sync o 0 {}", 4 * PAGE));
            // It goes to and fro while its end moves into it.
            workers.iter().for_each(|worker| worker.send("add m 0 2 300"));
            let changer = another(&hosts[round], &name);
            changer.ok(&format!("resize {name} {odd}"));
            workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
            writer.ok(&format!("put m {} 7", odd + 50));
            changer.ok(&format!("resize {name} {MIB}"));
            for worker in &workers {
                assert_eq!(worker.ok(&format!("get m {}", odd + 50)), "0", "{how} {round}");
            }
            // What is written where it has grown stays.
            writer.ok(&format!("put m {} 9", odd + 50));
            writer.ok(&format!("sync o 0 {MIB}"));
            for worker in &workers {
                assert_eq!(worker.ok(&format!("get m {}", odd + 50)), "9", "{how} {round}");
            }
        }
    }
}

/// All hosts write, read and sync all the time, while one changes the size to and fro.
#[test]
fn sizes_change_under_load() {
    let hosts = leased_cluster(3, 10);
    for how in WAYS {
        let name = format!("/{how}");
        let workers = sharers_from(&hosts, 0, &name, &format!("size={MIB} {how}"));
        // Everything that others touch stays; they are told of sizes, and asked for pages, all the same.
        workers.iter().for_each(|worker| worker.send("add m 0 5 3000"));
        let changer = hosts[1].worker();
        changer.eventually(&format!("open o {name} rw"));
        changer.ok("map m o rw shared 0 0");
        for round in 1..=12 {
            changer.ok(&format!("fill m 100 100 {round}"));
            changer.ok(&format!("resize {name} {}", MIB / 4));
            changer.ok(&format!("resize {name} {MIB}"));
            assert_eq!(changer.ok("sum m 64 192"), "0", "{how}, round {round}");
        }
        workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
        let sum = 3000 * if how == "explicit" { 1 } else { 3 };
        let last = &workers[2];
        assert_eq!(last.ok("sum m 0 5"), sum.to_string(), "{how}");
    }
}

/// A host that is asked to give up what lies past the end is killed, or stands still until its lease ends: the others have
/// the new size, and what was lost past the end is no loss.
#[test]
fn a_sharer_that_dies_meanwhile_does_not_keep_the_size() {
    let hosts = leased_cluster(3, 2);
    for how in ["central", "explicit"] {
        let name = format!("/{how}");
        let workers = sharers_from(&hosts[..2], 0, &name, &format!("size={MIB} {how}"));
        let third = another(&hosts[2], &name);
        third.ok("fill m 0 256 1");
        let (host, keeper) = (hosts[2].status().host_pid, hosts[2].status().keeper_pid);
        signal(keeper, libc::SIGSTOP);
        signal(host, libc::SIGSTOP);
        workers[1].send(&format!("resize {name} {}", MIB / 2));
        std::thread::sleep(Duration::from_millis(300)); // so that the others have heard of it
        kill_together(&[host, keeper, third.pid()]);
        workers[1].answer().expect("the host is lost, and the size is what was asked for");
        workers[0].ok(&format!("resize {name} {MIB}"));
        for worker in &workers {
            assert_eq!(worker.ok("sum m 128 128"), "0", "{how}: nothing past the end was lost");
        }
        hosts[2].start_again().unwrap();
        let back = another(&hosts[2], &name);
        assert_eq!(back.ok("sum m 128 128"), "0");
    }
}

/// The home is killed while it changes the size: it is the one or the other everywhere, and all go on.
#[test]
fn a_home_that_dies_meanwhile_has_the_one_size_or_the_other() {
    let hosts = leased_cluster(3, 5);
    for how in WAYS {
        let name = format!("/{how}");
        let workers = sharers_from(&hosts, 1, &name, &format!("size={MIB} {how}"));
        all_see(&workers, 1, 0, 64, 1);
        for round in 0..4u64 {
            let (from, to) = if round % 2 == 0 { (MIB, MIB / 2) } else { (MIB / 2, MIB) };
            let before = hosts[1].status().host_pid;
            workers[2].send(&format!("resize {name} {to}"));
            std::thread::sleep(Duration::from_millis(2 * round));
            kill_together(&[before]);
            let done = workers[2].answer().is_ok();
            hosts[1].wait_for_other_host(before);
            let size = wait::until("all have one size", || {
                let sizes: Vec<u64> = hosts
                    .iter()
                    .map(|host| another(host, &name).ok("info o size").parse().unwrap())
                    .collect();
                sizes.iter().all(|size| *size == sizes[0]).then_some(sizes[0])
            });
            assert!(size == to || !done && size == from, "{how}: {size} is neither");
            workers.iter().for_each(|worker| drop(worker.ok("check m 0 64 1")));
            workers[0].eventually(&format!("resize {name} {to}"));
            all_see(&workers, 1, 0, 64, 1); // at the home: what others alone have a home that dies may cost
        }
    }
}

fn word(bytes: &[u8], page: usize) -> u64 {
    u64::from_le_bytes(bytes[page * PAGE..page * PAGE + 8].try_into().unwrap())
}

/// Processes of all hosts each count two words up in turn, on pages of their own; what is stored is of one instant if of
/// none of them the second is before the first, or the first more than one before it.
#[test]
fn what_is_stored_is_of_one_instant() {
    let hosts = leased_cluster(3, 10);
    for sync in ["ordered", "atomic"] {
        let file = hosts[0].scratch().file(sync, MIB);
        let name = format!("/{sync}");
        let options = format!("file={} sync={sync} freezable central", file.display());
        let workers = sharers_from(&hosts, 0, &name, &options);
        for (number, worker) in workers.iter().enumerate() {
            // Far apart, and the first before the second or behind it.
            let pages = [number, 200 + number];
            let (first, second) = if number % 2 == 0 { (pages[0], pages[1]) } else { (pages[1], pages[0]) };
            worker.ok(&format!("pair m {first} {second}"));
        }
        let mut before = 0;
        for round in 0..24 {
            let syncer = another(&hosts[round % 3], &name);
            syncer.ok(&format!("freeze o 0 {MIB}"));
            let stored = std::fs::read(&file).unwrap();
            for number in 0..3 {
                let pages = [word(&stored, number), word(&stored, 200 + number)];
                let (first, second) =
                    if number % 2 == 0 { (pages[0], pages[1]) } else { (pages[1], pages[0]) };
                assert!(first == second || first == second + 1, "{sync} {round} {number}: {first} {second}");
            }
            let sum = (0..3).map(|number| word(&stored, number)).sum();
            assert!(before <= sum, "what was stored is newer than what was");
            before = sum;
        }
        workers.iter().for_each(|worker| drop(worker.ok("halt")));
        assert!(before > 0, "they counted");
    }
}

/// The home's own process asks to write a page in the instant in which it went to another host, and the sync wants to read it.
#[test]
fn an_instant_is_had_while_hosts_write_the_same_pages() {
    let hosts = leased_cluster(3, 10);
    let file = hosts[0].scratch().file("contended", MIB);
    let options = format!("file={} sync=ordered freezable central", file.display());
    let workers = sharers_from(&hosts, 0, "/contended", &options);
    workers.iter().for_each(|worker| drop(worker.ok("pair m 0 1")));
    let syncers = [another(&hosts[0], "/contended"), another(&hosts[1], "/contended")];
    for _ in 0..rounds(200).max(60) {
        syncers.iter().for_each(|syncer| drop(syncer.ok("freeze o 0 16384")));
    }
    workers.iter().for_each(|worker| drop(worker.ok("halt")));
}

/// Of explicit coherence: of the host that syncs it is its memory at one instant, of the others what they synced last.
#[test]
fn an_explicit_sync_is_of_one_instant_of_its_host() {
    let hosts = leased_cluster(2, 10);
    let file = hosts[0].scratch().file("instant", MIB);
    let options = format!("file={} sync=ordered freezable explicit", file.display());
    let workers = sharers_from(&hosts, 0, "/instant", &options);
    for (number, worker) in workers.iter().enumerate() {
        worker.ok(&format!("pair m {} {}", number, 200 + number));
        let counts = || std::fs::read(&file).is_ok_and(|stored| word(&stored, number) > 0);
        wait::until("it counts", || {
            worker.ok(&format!("freeze o 0 {MIB}"));
            counts().then_some(())
        });
        for _ in 0..20 {
            worker.ok(&format!("freeze o 0 {MIB}"));
            let stored = std::fs::read(&file).unwrap();
            let (first, second) = (word(&stored, number), word(&stored, 200 + number));
            assert!(first == second || first == second + 1, "{number}: {first} {second}");
        }
        worker.ok("halt");
        worker.ok(&format!("freeze o 0 {MIB}"));
        let stored = std::fs::read(&file).unwrap();
        assert!(word(&stored, number) > 0 && word(&stored, number) == word(&stored, 200 + number));
    }
}

/// The home is lost while it stores a sync: what is sent to the next one is of one instant again, not what was sent before as
/// it is by then.
#[test]
fn an_explicit_sync_that_is_tried_again_is_of_one_instant() {
    let hosts = leased_cluster(2, 60);
    let file = hosts[0].scratch().file("again", MIB);
    let options = format!("file={} sync=ordered freezable explicit", file.display());
    let workers = sharers_from(&hosts, 0, "/again", &options);
    let other = another(&hosts[1], "/again");
    other.all(&format!("fill m 0 1 7\nfill m 100 1 7\nsync o 0 {MIB}\nfill m 0 1 1"));
    let syncs = || {
        counts(&hosts[1], "/again").messages.iter().map(|m| if m.name == "sync" { m.sent } else { 0 }).sum()
    };
    let (home, before): (_, u64) = (hosts[0].status().host_pid, syncs());
    assert!(before > 0, "what was synced was said to the home");
    signal(home, libc::SIGSTOP);
    workers[1].send(&format!("freeze o 0 {MIB}"));
    wait::until("it has begun, and its home does not answer", || (syncs() > before).then_some(()));
    // In this order, as soon as writers are let go.
    other.send("fill m 100 1 2");
    other.send("fill m 0 1 2");
    kill_together(&[home]);
    workers[1].answer().expect("the home's next process stores it");
    let stored = std::fs::read(&file).unwrap();
    let has = |number: usize, seed| stored[number * PAGE..][..PAGE] == page::bytes(number as u64, 1, seed);
    assert!(has(0, 1) || has(100, 2), "of two writes the second is stored, and the first is not");
    (0..2).for_each(|_| drop(other.answer().expect("it writes")));
}

/// What cannot be held at one instant is refused when it is made; and a host that dies while all are held keeps nobody.
#[test]
fn a_freeze_ends_and_what_cannot_be_frozen_is_refused() {
    let hosts = leased_cluster(3, 3);
    let maker = hosts[0].worker();
    let told = maker.refused(&format!("create o /no size={MIB} freezable forwarding"), "Invalid");
    assert!(told.contains("forwarding"), "{told}");
    let file = hosts[0].scratch().file("frozen", MIB);
    let workers = sharers_from(
        &hosts[..2],
        0,
        "/frozen",
        &format!("file={} sync=ordered freezable central=revert", file.display()),
    );
    let third = another(&hosts[2], "/frozen");
    third.ok("fill m 0 64 1");
    let (host, keeper) = (hosts[2].status().host_pid, hosts[2].status().keeper_pid);
    signal(keeper, libc::SIGSTOP);
    signal(host, libc::SIGSTOP);
    workers[1].send(&format!("freeze o 0 {MIB}"));
    workers[0].send("fill m 100 8 2");
    std::thread::sleep(Duration::from_millis(300)); // so that it has begun
    kill_together(&[host, keeper, third.pid()]);
    // The host is lost, and so is what it alone had: whoever syncs is told so once.
    assert_eq!(workers[1].answer().expect_err("it is told").kind, "Lost");
    workers[0].answer().expect("nobody is held any more");
    workers[1].all("check m 100 8 2\nfill m 0 64 3");
    workers[0].refused(&format!("freeze o 0 {MIB}"), "Lost");
    workers[0].ok(&format!("freeze o 0 {MIB}"));
    assert_eq!(std::fs::read(&file).unwrap()[..PAGE], page::bytes(0, 1, 3));
    let local = hosts[0].worker();
    local.ok(&format!("create o /plain size={MIB} strict"));
    local.refused("freeze o 0 4096", "Unsupported");
}
