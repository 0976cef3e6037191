//! One object's trouble is nobody else's: pagers that hang, cores that are dumped, mappings that come and go.

use commonhold::Pager;
use commonhold_tests::crash::{Chance, Job};
use commonhold_tests::{MIB, TestHost, wait};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Supplies pages of one byte, but nothing until it is let go.
#[derive(Clone, Default)]
struct Hanging {
    open: Arc<(Mutex<bool>, Condvar)>,
    asked: Arc<AtomicU64>,
}

impl Hanging {
    fn let_go(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }
}

impl Pager for Hanging {
    fn page_in(&mut self, _object: &str, _offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let open = self.open.0.lock().unwrap();
        drop(self.open.1.wait_while(open, |open| !*open).unwrap());
        buffer.fill(7);
        Ok(())
    }

    fn page_out(&mut self, _object: &str, _offset: u64, _data: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_pager_that_hangs_holds_up_nobody_but_who_touches_its_pages() {
    let host = TestHost::start();
    let pager = Hanging::default();
    let (serving, connection) = (pager.clone(), host.connect());
    let thread = std::thread::spawn(move || connection.serve_pager("/hanging", serving));
    let victim = host.worker();
    wait::until("the pager serves", || {
        victim.ask("create h /h size=4194304 pager=/hanging pager-deadline=600000").ok()
    });
    victim.ok("map m h rw shared 0 0");
    // More threads than a host has for slow work.
    victim.send("threads 200 get m {}0000");
    wait::until("it is asked", || (pager.asked.load(Ordering::SeqCst) > 0).then_some(()));
    let file = host.scratch().file("file", MIB);
    for round in 0..30 {
        let other = host.worker();
        other.ok(&format!("create o /o{round} file={} sync=atomic", file.display()));
        other.all("map m o rw shared 0 0\nfill m 0 256 1\nlock o 0 4096\nsync o 0 1048576\ndrop m\nclose o");
        other.ok(&format!("remove /o{round}"));
        // Faults that need room, which a worker has to make.
        other.all("create a /a size=8388608 budget=1048576\nmap m a rw shared 0 0\nfill m 0 2048 1\ncheck m 0 2048 1");
        other.all("drop m\nclose a\nremove /a");
    }
    assert!(victim.answer_within(std::time::Duration::ZERO).is_none(), "the pager did not hang");
    pager.let_go();
    let bytes = victim.answer().expect("the pages came");
    assert!(bytes.split(' ').all(|byte| byte == "7"), "{bytes}");
    drop(victim);
    drop(host);
    let _ = thread.join();
}

/// A core is dumped without the pages of controlled objects: none is faulted in, nothing waits for a host.
#[test]
fn cores_are_dumped_without_a_fault() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok(&format!("chdir {}", host.scratch().path().display()));
    worker.ok(&format!("create o /o size={} controlled reserve=no", 1024 * MIB));
    worker.all("map m o rw shared 0 0\nfill m 0 4 1\nlimit core 268435456");
    let before = host.status();
    commonhold_tests::host::signal(before.host_pid, libc::SIGSTOP);
    worker.dies("abort", libc::SIGABRT);
    commonhold_tests::host::signal(before.host_pid, libc::SIGCONT);
    let other = host.worker();
    other.all("open o /o rw\nmap m o rw shared 0 0\ncheck m 0 4 1");
    assert!(host.status().faults <= before.faults + 8);
}

/// Threads map, touch and unmap parts at random, while others fault, and pages are evicted.
#[test]
fn mappings_come_and_go_under_pressure() {
    let host = TestHost::start();
    let mut chance = Chance::new("mappings_come_and_go_under_pressure");
    let job = Job::begin(&host, "/job", "file=FILE sync=ordered budget=1048576", 1024, 2);
    let churners: Vec<_> = (0..2).map(|_| host.worker()).collect();
    churners.iter().for_each(|worker| drop(worker.ok("open o /job rw")));
    for _ in 0..300 {
        for worker in &churners {
            let first = chance.below(900);
            let (offset, length) = (first * 4096, (1 + chance.below(100)) * 4096);
            worker.ok(&format!("map m o r shared {offset} {length}"));
            worker.ok(&format!("get m {}", chance.below(length)));
            if chance.below(3) == 0 {
                worker.ok(&format!("prefetch o {offset} {length}"));
            }
            if chance.below(3) == 0 && length > 8192 {
                worker.ok("unmap m 4096 4096");
            }
            worker.ok("drop m");
        }
    }
    job.end(&host);
}
