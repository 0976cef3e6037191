//! Objects whose page tables all processes share: `docs/PAGE-TABLES.md`. What the kernel shares is counted by the tests of
//! `crates/tables`; these are about the host, and about what it refuses.

use commonhold_sys::memory::{self, Wish};
use commonhold_tests::huge::HugePages;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, Worker, is_root};
use std::path::PathBuf;

const SIZE: u64 = 64 * MIB;
const PAGES: u64 = SIZE / 4096;
const HUGE_PAGES: u64 = SIZE / (2 * MIB);

fn create(host: &TestHost, more: &str) -> Worker {
    let worker = host.worker();
    worker.ok(&format!("create o /segment size={SIZE} shared-tables {more}"));
    worker.ok("map m o rw shared 0 0");
    worker
}

fn attach(host: &TestHost) -> Worker {
    let worker = host.worker();
    worker.all("open o /segment rw\nmap m o rw shared 0 0");
    worker
}

fn tables(worker: &Worker) -> String {
    worker.ok("stat /segment page-tables")
}

#[test]
fn processes_share_the_tables_that_the_host_holds() {
    let Some(pool) = HugePages::more(HUGE_PAGES) else { return };
    let host = TestHost::start();
    let first = create(&host, "mode=644");
    first.ok(&format!("fill m 0 {PAGES} 1"));
    let others = [attach(&host), attach(&host)];
    others.iter().for_each(|other| {
        other.ok(&format!("check m 0 {PAGES} 1"));
    });
    others[0].ok(&format!("fill m 0 {PAGES} 2"));
    let reader = host.worker();
    reader.all("open o /segment r\nmap m o r shared 0 0");
    for worker in [&first, &others[1], &reader] {
        worker.ok(&format!("check m 0 {PAGES} 2"));
    }
    assert_eq!(tables(&first), "2", "one for who writes, one for who reads: the host's own");
    assert_eq!(first.ok("stat /segment mappings"), "4");
    // Tables of a process's own, beside them.
    others[1].ok("map own o rw shared 0 0 own-tables");
    others[1].ok(&format!("check own 0 {PAGES} 2"));
    assert_eq!(tables(&first), "3");
    assert_eq!(pool.free(), 0);
    assert_eq!(first.ok("stat /segment resident"), SIZE.to_string());
    drop(others);
    first.all("drop m\nclose o\nremove /segment");
    drop((first, reader));
    until("the pages are back in the pool", || (pool.free() == HUGE_PAGES).then_some(()));
}

#[test]
fn a_segment_outlives_its_host_and_all_its_processes() {
    let Some(_pool) = HugePages::more(HUGE_PAGES) else { return };
    let host = TestHost::start();
    let first = create(&host, "");
    first.ok(&format!("fill m 0 {PAGES} 1"));
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    first.ok(&format!("check m 0 {PAGES} 1"));
    let other = attach(&host);
    other.ok(&format!("check m 0 {PAGES} 1"));
    assert_eq!(tables(&other), "2", "the next host joins the tables that were there");
    first.kill();
    drop(other);
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    let last = attach(&host);
    last.ok(&format!("check m 0 {PAGES} 1"));
    assert_eq!(tables(&last), "2");
    // With its keeper nobody has the memory but who has it attached.
    let before = host.status().host_pid;
    host.kill_both();
    host.start_again().unwrap();
    host.wait_for_other_host(before);
    last.ok(&format!("fill m 0 {PAGES} 2"));
    // It comes back when it asks for something: of a direct object nothing else needs the host.
    last.eventually("info o size");
    let other = host.worker();
    other.ok("open o /segment rw");
    other.all(&format!("map m o rw shared 0 0\ncheck m 0 {PAGES} 2"));
    assert_eq!(tables(&other), "2");
}

#[test]
fn what_would_end_the_sharing_is_refused() {
    let Some(_pool) = HugePages::more(HUGE_PAGES) else { return };
    let host = TestHost::start();
    let worker = create(&host, "mode=644");
    for (line, why) in [
        ("map n o rw shared 4096 4096", "map all of it"),
        ("map n o r shared 0 0", "who opened it to read"),
        ("map n o rw private 0 0", "no copies are made"),
        ("map n o rw shared 4096 4096 own-tables", "no multiple of 0x200000; 0x0 is"),
        ("map n o rw shared 0 0 fixed=105553116266496", "not such an address"),
        ("map n o rw shared 0 0 fixed=105553118367744", "the nearest is 0x600000000000"),
        ("unmap m 0 2097152", "unmap all of it"),
        ("resize /segment 134217728", "keeps its size"),
    ] {
        let said = worker.ask(line).expect_err(line).message;
        assert!(said.contains(why), "{line}: {said}");
    }
    worker.ok(&format!("fill m 0 {PAGES} 3"));
    let (reader, plain) = (host.worker(), host.worker());
    reader.ok("open o /segment r");
    let said = reader.refused("map m o rw shared 0 0", "Permission");
    assert!(said.contains("open it for writing"), "{said}");
    for (words, why) in [
        ("controlled", "controlled"),
        ("sync=atomic", "controlled"),
        ("explicit", "coherence"),
        ("reserve=no", "reserve"),
    ] {
        let said = plain.ask(&format!("create p /p size=4096 shared-tables {words}")).expect_err(words);
        assert!(said.message.contains(why), "{words}: {said:?}");
    }
    plain.ok("create p /p size=4096");
    let said = plain.ask("map m p rw shared 0 0 own-tables").expect_err("own tables of a plain object");
    assert!(said.message.contains("no shared page tables"), "{said:?}");
}

#[test]
fn a_segment_larger_than_the_pool_leaves_nothing_behind() {
    let Some(pool) = HugePages::more(HUGE_PAGES) else { return };
    let host = TestHost::start();
    let worker = host.worker();
    let said = worker.refused(&format!("create o /segment size={} shared-tables", 4 * SIZE), "NoSpace");
    assert!(said.contains("vm.nr_hugepages="), "{said}");
    assert_eq!(worker.ok("list /"), "");
    assert_eq!(pool.free(), HUGE_PAGES);
    // Rounded up to whole huge pages.
    worker.ok("create o /segment size=5000000 shared-tables");
    assert_eq!(worker.ok("stat /segment size"), (6 * MIB).to_string());
    worker.ok("map m o rw shared 0 0");
    worker.ok("unmap m 0 5001216");
    assert_eq!(pool.free(), HUGE_PAGES - 3);
}

#[test]
fn what_a_hostile_writer_adds_to_a_segment_is_cut_off() {
    if !is_root("huge pages, and another user") {
        return;
    }
    let Some(pool) = HugePages::more(2 * HUGE_PAGES) else { return };
    let host = TestHost::start();
    let worker = host.worker_of(65534, 65534);
    worker.ok(&format!("create o /segment size={SIZE} shared-tables"));
    let is_segment = |path: &PathBuf| {
        std::fs::read_link(path)
            .is_ok_and(|name| name.to_string_lossy().starts_with("/memfd:commonhold-segment"))
    };
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", worker.pid())).unwrap();
    let path = descriptors.map(|entry| entry.unwrap().path()).find(is_segment).unwrap();
    let memory = std::fs::File::options().read(true).write(true).open(path).unwrap();
    memory.set_len(2 * SIZE).expect_err("it is sealed");
    // A mapping enlarges it all the same.
    let wish = Wish {
        hint: std::ptr::null_mut(),
        fixed: false,
        write: true,
        private: false,
        not_inherited: false,
        controlled: false,
    };
    let longer = memory::map(&memory, 0, 2 * SIZE as usize, wish).unwrap();
    memory::populate_read(longer, 2 * SIZE as usize).unwrap();
    assert_eq!((pool.free(), memory.metadata().unwrap().len()), (0, 2 * SIZE));
    until("it is cut off", || (pool.free() == HUGE_PAGES).then_some(()));
    worker.all("map m o rw shared 0 0\nfill m 0 16 1\ncheck m 0 16 1");
}

#[test]
fn bytes_are_copied_into_and_out_of_a_segment() {
    let Some(_pool) = HugePages::more(HUGE_PAGES) else { return };
    let host = TestHost::start();
    let worker = create(&host, "mode=644");
    // Neither begins nor ends with a huge page.
    let bytes: Vec<u8> = (0..5_000_001u32).map(|n| (n % 251) as u8).collect();
    let (from, to) = (host.scratch().path().join("from"), host.scratch().path().join("to"));
    std::fs::write(&from, &bytes).unwrap();
    let words = |words: [&std::path::Path; 2]| {
        let line = ["cp", words[0].to_str().unwrap(), words[1].to_str().unwrap()];
        host.command(&line, |_| {}).unwrap();
    };
    words([&from, ":/segment".as_ref()]);
    words([":/segment".as_ref(), &to]);
    let copied = std::fs::read(&to).unwrap();
    assert_eq!(copied.len() as u64, SIZE);
    assert!(copied.starts_with(&bytes) && copied[bytes.len()..].iter().all(|byte| *byte == 0));
    drop(worker);
}
