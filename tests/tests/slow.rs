//! A home whose pager takes its time: only who touches pages that it must read waits for it.

use commonhold_tests::cluster::{another, cluster_where, says, sharers_of};
use commonhold_tests::fuse::{Fuse, READ};
use commonhold_tests::host::{signal, stop};
use commonhold_tests::{Scratch, Worker, is_root};
use std::time::{Duration, Instant};

const PAGES: u64 = 64;

#[test]
fn others_do_not_wait_for_a_page_that_a_home_reads() {
    if !is_root("a file system whose files are not read") {
        return;
    }
    let below = Scratch::new();
    let Some(fuse) = Fuse::mount(below.path(), 0) else { return };
    let words = |number| if number == 0 { &["--lease", "2", "--file-system", "fuse"][..] } else { &[] };
    let hosts = cluster_where(2, |number| words(number).iter().map(|word| (*word).to_owned()).collect());
    let options = format!("file={} sync=ordered fault-deadline=60000 central", fuse.file().display());
    let slow = sharers_of(&hosts, "/slow", &options);
    let fast = sharers_of(&hosts, "/fast", &format!("size={} central", PAGES * 4096));
    fuse.fall_silent(READ);
    slow[1].send("get m 0");
    // Several pages, by several processes: more than one thread would wait.
    let more: Vec<Worker> = (0..3).map(|_| another(&hosts[1], "/slow")).collect();
    more.iter()
        .enumerate()
        .for_each(|(number, worker)| worker.send(&format!("get m {}", 4096 * (8 + number))));
    slow[0].send("get m 53248");
    // For as long as two leases, and at least so often.
    let until = Instant::now() + Duration::from_secs(4);
    for seed in 1u64.. {
        if seed > 40 && Instant::now() > until {
            break;
        }
        let turn = (seed % 2) as usize;
        let (writer, reader) = (&fast[turn], &fast[1 - turn]);
        writer.ok(&format!("fill m 0 {PAGES} {seed}"));
        reader.ok(&format!("check m 0 {PAGES} {seed}"));
    }
    // Who opens the object, or asks what there is, does not ask the pager.
    drop(another(&hosts[1], "/slow"));
    for host in &hosts {
        host.command(&["ls", "--long"], |_| {}).expect("what there is can be listed");
        host.command(&["stat", "/slow"], |_| {}).expect("all there is to know of an object can be told");
    }
    assert!(slow[1].answer_within(Duration::ZERO).is_none(), "the page is there, though nobody gave it");
    assert!(fuse.waiting() > 0, "nobody asked for the page");
    fuse.end(); // whoever waits gets an error
    for host in &hosts {
        assert!(!says(host, "is lost") && !says(host, "fenced"), "{}", host.log());
    }
}

/// Pages of an explicit object that were written go home before they leave memory. Where the home stands still, others'
/// pages leave.
#[test]
fn a_home_that_stands_still_stops_no_local_object_of_another_host() {
    let hosts = cluster_where(2, |number| {
        let words = if number == 0 { ["--lease", "60"] } else { ["--budget", "16MiB"] };
        words.iter().map(|word| (*word).to_owned()).collect()
    });
    let pages = 3072;
    let shared = sharers_of(&hosts, "/shared", &format!("size={} explicit", pages * 4096));
    shared[1].ok(&format!("fill m 0 {pages} 1"));
    let local = hosts[1].worker();
    local.all(&format!("create l /local size={} controlled\nmap l l rw shared 0 0", pages * 4096));
    let status = hosts[0].status();
    stop(&[status.host_pid, status.keeper_pid]);
    let mut in_time = true;
    for seed in 2..6 {
        local.send(&format!("fill l 0 {pages} {seed}"));
        in_time &= local.answer_within(Duration::from_secs(10)).is_some_and(|answer| answer.is_ok());
    }
    for pid in [status.host_pid, status.keeper_pid] {
        signal(pid, libc::SIGCONT);
    }
    assert!(in_time, "the local object waits for another host");
    local.ok(&format!("check l 0 {pages} 5"));
    shared[1].ok(&format!("check m 0 {pages} 1"));
}
