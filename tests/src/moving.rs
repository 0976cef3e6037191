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

/// Five pages from page 240 on, of an object of `on_loss = error`, were lost: a process of that host that touches one dies,
/// and whoever reverts has the versions before again.
pub fn five_are_lost_until_revert(host: &TestHost, worker: &Worker, name: &str) {
    let doomed = host.worker();
    doomed.all(&format!("open o {name} r\nmap m o r shared 0 0"));
    doomed.dies("get m 983040", libc::SIGBUS);
    assert_eq!(worker.ok(&format!("revert {name}")), "5");
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
