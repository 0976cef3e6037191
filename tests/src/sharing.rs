//! Clusters on the loopback device, and workers on all their hosts with one object mapped.

use crate::{TestHost, Worker};
use std::net::TcpListener;

/// A port of this machine that nobody has.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Hosts of one cluster, the first of which keeps its list. A host that died is lost `lease` seconds later.
pub fn cluster(count: usize, lease: u32) -> Vec<TestHost> {
    cluster_with(count, lease, |_| Vec::new())
}

/// The same with page sizes of their own.
pub fn cluster_of(pages: &[&str]) -> Vec<TestHost> {
    cluster_with(pages.len(), 10, |number| vec!["--page-size".to_owned(), pages[number].to_owned()])
}

fn cluster_with(count: usize, lease: u32, more: impl Fn(usize) -> Vec<String>) -> Vec<TestHost> {
    let (list, lease) = (free_address(), lease.to_string());
    (0..count)
        .map(|number| {
            let (own, name, more) = (free_address(), format!("host{number}"), more(number));
            let mut words =
                vec!["--plain", "--name", &name, "--listen", if number == 0 { &list } else { &own }];
            words.extend(if number == 0 { ["--lease", &lease] } else { ["--join", &list] });
            words.extend(more.iter().map(String::as_str));
            TestHost::with(&words)
        })
        .collect()
}

/// Workers on all hosts, each with the object mapped as `m`; that of host `home` made it.
pub fn sharers(hosts: &[TestHost], home: usize, name: &str, options: &str) -> Vec<Worker> {
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[home].eventually(&format!("create o {name} {options}"));
    workers[home].ok("map m o rw shared 0 0");
    for worker in workers.iter().enumerate().filter(|(number, _)| *number != home).map(|(_, worker)| worker) {
        worker.eventually(&format!("open o {name} rw"));
        worker.ok("map m o rw shared 0 0");
    }
    workers
}
