//! What tests of homes that move ask of their hosts.

use crate::cluster::says;
use crate::worker::Worker;
use crate::{TestHost, wait};

/// Which of the hosts, but those, says that it becomes the home; one alone does. Asked again at the end of what is tried: a
/// second may say it later.
pub fn claimant(hosts: &[TestHost], but: &[usize]) -> usize {
    let said = |number: &usize| !but.contains(number) && says(&hosts[*number], "becomes the home of");
    let mut claimants = wait::until("a host becomes the home", || {
        let all: Vec<usize> = (0..hosts.len()).filter(said).collect();
        (!all.is_empty()).then_some(all)
    });
    assert_eq!(claimants.len(), 1, "two homes");
    claimants.remove(0)
}

/// Five pages from page 250 on, of an object of `on_loss = error`, were lost: a process of that host that touches one dies,
/// and whoever reverts has the versions before again.
pub fn five_are_lost_until_revert(host: &TestHost, worker: &Worker, name: &str) {
    let doomed = host.worker();
    doomed.all(&format!("open o {name} r\nmap m o r shared 0 0"));
    doomed.dies("get m 1024000", libc::SIGBUS);
    assert_eq!(worker.ok(&format!("revert {name}")), "5");
}

/// Checks pages, mapped as `m`, so that none is read ahead.
pub fn check_one_by_one(worker: &Worker, pages: std::ops::Range<u32>, version: u32) {
    pages.rev().for_each(|page| drop(worker.ok(&format!("check m {page} 1 {version}"))));
}

/// Of each of these pages, mapped as `m`: whether that version is seen. Otherwise it must be the first.
pub fn is_version(worker: &Worker, pages: impl Iterator<Item = u32>, version: u32) -> Vec<bool> {
    let is_it = |page: u32| {
        worker.ask(&format!("check m {page} 1 {version}")).is_ok() || {
            worker.ok(&format!("check m {page} 1 1"));
            false
        }
    };
    pages.map(is_it).collect()
}

/// The machine of that host is no more, and with it its processes, and its disk.
pub fn lose(host: &TestHost, worker: &Worker) {
    host.kill_both();
    worker.kill();
    hide(host, true);
}

/// The machine of a host that was lost is there again, and was only cut off: what it kept is there.
pub fn comes_back(host: &TestHost) {
    hide(host, false);
    host.start_again().unwrap();
}

/// Nobody but a host itself can open what it keeps; in tests all have one file system.
fn hide(host: &TestHost, hidden: bool) {
    let (own, away) = (host.state().join("replicas"), host.state().join("not-here"));
    let (from, to) = if hidden { (own, away) } else { (away, own) };
    std::fs::rename(from, to).unwrap();
}

/// Whether that host keeps no other's pages.
pub fn nothing_is_kept(host: &TestHost) -> bool {
    std::fs::read_dir(host.state().join("replicas")).unwrap().next().is_none()
}
