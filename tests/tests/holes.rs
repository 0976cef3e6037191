//! Parts of mappings that a program has unmapped without a word, with other memory in their place: what lies behind them is
//! seen, stored and taken away as if nothing had happened.

use commonhold_tests::cluster::{pair, sharing_pair_of};
use commonhold_tests::{TestHost, page, wait};
use std::os::unix::fs::FileExt;

const PAGES: u64 = 64;

#[test]
fn what_is_written_behind_a_filled_hole_is_stored() {
    let host = TestHost::start();
    for options in ["freezable sync=ordered", "freezable sync=atomic", "sync=ordered", "sync=atomic"] {
        let file = host.scratch().file(&options.replace(' ', "-"), PAGES * 4096);
        let worker = host.worker();
        worker.ok(&format!("create o /{} file={} {options}", options.replace(' ', "-"), file.display()));
        worker.ok("map m o rw shared 0 0");
        worker.all(&format!("fill m 0 {PAGES} 1\nraw-mmap m 8 4\nraw-mmap m 40 1"));
        for seed in 2..5 {
            worker.ok(&format!("sync o 0 {}", PAGES * 4096));
            for first in [0, 12, 41] {
                worker.ok(&format!("fill m {first} 8 {seed}"));
            }
        }
        worker.ok(&format!("sync o 0 {}", PAGES * 4096));
        let other = host.worker();
        other.all(&format!("open o /{} r\nmap m o r shared 0 0", options.replace(' ', "-")));
        let stored = std::fs::read(&file).unwrap();
        for first in [0u64, 12, 41] {
            other.ok(&format!("check m {first} 8 4"));
            let expected = page::bytes(first, 8, 4);
            let at = first as usize * 4096;
            assert!(stored[at..at + expected.len()] == expected, "{options}: pages from {first} are old");
        }
    }
}

#[test]
fn what_is_written_behind_a_filled_hole_is_seen_by_other_hosts() {
    let hosts = pair(&[]);
    for options in ["central", "forwarding"] {
        let [home, other] = sharing_pair_of(&hosts, &format!("size={} {options}", PAGES * 4096));
        home.all(&format!("fill m 0 {PAGES} 1\nraw-mmap m 3 2"));
        for seed in 2..6 {
            other.ok(&format!("check m 8 48 {}", seed - 1));
            home.ok(&format!("fill m 8 48 {seed}"));
            other.ok(&format!("check m 8 48 {seed}"));
        }
        home.all("close o");
        other.all("drop m\nclose o");
        home.ok("remove /shared");
    }
}

#[test]
fn a_page_that_was_refused_can_be_had_from_the_next_host() {
    let host = TestHost::start();
    let file = host.scratch().file("file", PAGES * 4096);
    let worker = host.worker();
    worker.ok(&format!("create o /x file={} sync=ordered", file.display()));
    worker.ok("map m o rw shared 0 0");
    for (number, words) in [(5, vec!["host", "restart"]), (9, vec!["host", "upgrade"]), (13, vec![])] {
        let opened = std::fs::File::options().write(true).open(&file).unwrap();
        opened.set_len(0).unwrap();
        assert!(worker.ask(&format!("write-out m {number} 1 3")).is_err(), "the page is not there");
        opened.write_all_at(&page::bytes(0, PAGES, 3), 0).unwrap();
        match &words[..] {
            [] => host.kill_host(),
            words => drop(host.command(words, |_| {}).unwrap()),
        }
        wait::until("the page is there again", || worker.ask(&format!("write-out m {number} 1 3")).ok());
    }
}
