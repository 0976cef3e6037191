//! Wired objects of a pager whose clients, hosts and keepers are killed.

use commonhold_object::wire::Request;
use commonhold_object::{Access, ObjectId};
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::host::{kill, signal, stop};
use commonhold_tests::huge::{HugePages, nothing_is_left};
use commonhold_tests::raw::Raw;
use commonhold_tests::store::{Store, assert_file, file, kill_both};
use commonhold_tests::{TestHost, page};
use std::path::PathBuf;

const PAGE: usize = 4096;

#[test]
fn who_is_away_after_both_died_is_waited_for_and_never_given_a_second_truth() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let path = file(&host, "file", 16, 1);
    let (holder, worker) = (host.worker(), host.worker());
    holder.all(&format!("create o /x wired file={}\nmap m o rw shared 0 0\nfill m 0 16 2", path.display()));
    let id: u64 = worker.ok("stat /x id").parse().unwrap();
    // Nobody brings other memory for it.
    let mut raw = Raw::connect(&host);
    raw.ask(&Request::Hello { program: "raw".into() }, &[]).unwrap().unwrap();
    let access = Access::ReadWrite;
    let other = commonhold_sys::frames::create("commonhold-wired", 65536).unwrap();
    let bring = Request::Reattach { object: ObjectId(id), access };
    for fds in [&[][..], &[std::os::fd::AsFd::as_fd(&other)]] {
        raw.ask(&bring, fds).unwrap().unwrap_err();
    }
    drop(raw);
    stop(&[holder.pid()]);
    host.kill_both();
    host.start_again().unwrap();
    worker.eventually("list /");
    let said = worker.refused("open o /x rw", "Busy");
    assert!(said.contains(&holder.pid().to_string()), "{said}");
    // It dies while somebody waits: that one gets what is stored.
    worker.send("open o /x rw");
    std::thread::sleep(std::time::Duration::from_millis(100));
    signal(holder.pid(), libc::SIGKILL);
    worker.answer().unwrap();
    worker.all("map m o rw shared 0 0\ncheck m 0 16 1\nno-faults m 0 16");
}

/// Where the bytes of an object are stored, of a file or in this process.
enum Stored {
    File(PathBuf),
    Store(Store),
}

impl Stored {
    fn begin(&self, pages: u64, seed: u64) -> String {
        match self {
            Stored::File(path) => {
                std::fs::write(path, page::bytes(0, pages, seed)).unwrap();
                format!("file={}", path.display())
            }
            Stored::Store(store) => {
                *store.bytes.lock().unwrap() = page::bytes(0, pages, seed);
                format!("pager=/store size={}", pages as usize * PAGE)
            }
        }
    }

    #[track_caller]
    fn assert(&self, pages: u64, seed: u64) {
        match self {
            Stored::File(path) => assert_file(path, pages, seed),
            Stored::Store(store) => assert!(*store.bytes.lock().unwrap() == page::bytes(0, pages, seed)),
        }
    }
}

fn kills(host: &TestHost, stored: &Stored, chance: &mut Chance, rounds: usize) {
    let (pages, worker) = (1024, host.worker());
    let mut killed_while = |line: &str, most_ms: u64| {
        let before = host.status().host_pid;
        worker.send(line);
        chance.pause(most_ms);
        kill(before);
        worker.answer().unwrap_or_else(|why| panic!("{line}: {why:?}"));
        host.wait_for_other_host(before);
    };
    let serve = || match stored {
        Stored::Store(store) => Some(store.serve(host, "/store")),
        Stored::File(_) => None,
    };
    let mut serving = vec![serve()];
    for round in 0..rounds as u64 {
        let seed = 3 * round + 1;
        let source = stored.begin(pages, seed);
        killed_while(&format!("create o /x wired {source}"), 15);
        worker
            .all(&format!("map m o rw shared 0 0\ncheck m 0 {pages} {seed}\nfill m 0 {pages} {}", seed + 1));
        killed_while(&format!("sync o 0 {}", pages as usize * PAGE), 20);
        stored.assert(pages, seed + 1);
        worker.all(&format!("fill m 0 {pages} {}\ndrop m\nclose o", seed + 2));
        kill_both(host, &worker);
        serving.push(serve());
        stored.assert(pages, seed + 1);
        killed_while("open o /x rw", 15);
        worker.all(&format!("map m o rw shared 0 0\ncheck m 0 {pages} {}\nno-faults m 0 {pages}", seed + 1));
        worker.all("drop m\nclose o\nremove /x");
    }
}

#[test]
fn kills_at_any_moment_leave_it_whole() {
    let Some(pool) = HugePages::more(8) else { return };
    let host = TestHost::start();
    let mut chance = Chance::new("wired objects of a pager, and kills");
    for stored in [Stored::File(host.scratch().join("file")), Stored::Store(Store::default())] {
        kills(&host, &stored, &mut chance, rounds(2));
        nothing_is_left(&host, &pool, 8);
    }
}
