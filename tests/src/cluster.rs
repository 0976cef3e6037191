//! Clusters on this machine: hosts that share objects by way of loopback, and a client of each.

use crate::host::program;
use crate::{Scratch, TestHost, Worker, wait};
use commonhold::ObjectCounts;
use std::net::TcpListener;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports of which the kernel gives none to who connects: else one that is free now is another's when a host listens.
const PORTS: Range<u32> = 12_000..32_000;

/// A port of this machine that nobody has.
pub fn free_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(101);
    let next = || first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
    let is_free = |address: &String| TcpListener::bind(address).is_ok();
    let mut addresses = PORTS.map(|_| format!("127.0.0.1:{}", PORTS.start + next()));
    addresses.find(is_free).expect("a port")
}

/// Hosts of one cluster, the first of which keeps its list.
pub fn cluster(count: usize) -> Vec<TestHost> {
    cluster_with(count, &[])
}

/// The same, with more words for each.
pub fn cluster_with(count: usize, more: &[&str]) -> Vec<TestHost> {
    cluster_where(count, |_| more.iter().map(|word| (*word).to_owned()).collect())
}

/// The same, with words for each of its own.
pub fn cluster_where(count: usize, more: impl Fn(usize) -> Vec<String>) -> Vec<TestHost> {
    let list = free_address();
    let start = |number: usize| {
        let (own, name, more) = (free_address(), format!("host{number}"), more(number));
        let mut words = vec!["--plain", "--name", &name, "--listen", if number == 0 { &list } else { &own }];
        if number > 0 {
            words.extend(["--join", &list]);
        }
        words.extend(more.iter().map(String::as_str));
        TestHost::with(&words)
    };
    (0..count).map(start).collect()
}

/// The same; a host that died is lost so many seconds later.
pub fn leased_cluster(count: usize, lease_s: u32) -> Vec<TestHost> {
    let lease = || vec!["--lease".to_owned(), lease_s.to_string()];
    cluster_where(count, |number| if number == 0 { lease() } else { Vec::new() })
}

/// Hosts of one cluster that are lost two seconds after they died.
pub fn brief_cluster(count: usize) -> Vec<TestHost> {
    leased_cluster(count, 2)
}

/// Hosts with pages of these sizes.
pub fn paged_cluster(sizes: &[&str]) -> Vec<TestHost> {
    cluster_where(sizes.len(), |number| vec!["--page-size".to_owned(), sizes[number].to_owned()])
}

/// Hosts that prove who they are by certificates; the last may read alone.
pub fn secure_cluster(authority: &Scratch, count: usize) -> Vec<TestHost> {
    secure_cluster_with(authority, count, &Secure { before: &[], lease_s: None, last_reads: true })
}

/// How hosts with certificates are started.
pub struct Secure<'a> {
    /// Words before the program.
    pub before: &'a [String],
    /// A host that died is lost so many seconds later.
    pub lease_s: Option<u32>,
    /// The last may read alone.
    pub last_reads: bool,
}

/// Hosts that prove who they are by certificates.
pub fn secure_cluster_with(authority: &Scratch, count: usize, how: &Secure<'_>) -> Vec<TestHost> {
    let list = free_address();
    let before: Vec<&str> = how.before.iter().map(String::as_str).collect();
    let lease = how.lease_s.map(|seconds| seconds.to_string());
    ca(&authority.join("ca"), &["init"]);
    (0..count)
        .map(|number| {
            let (own, name) = (free_address(), format!("host{number}"));
            let identity = authority.join(&name).display().to_string();
            let reader = if how.last_reads && number + 1 == count { vec!["--read-only"] } else { vec![] };
            ca(&authority.join("ca"), &[vec!["issue", &name, "--into", &identity], reader].concat());
            let listen = if number == 0 { &list } else { &own };
            let mut words = vec!["--listen", listen, "--name", &name, "--identity", &identity];
            match &lease {
                _ if number > 0 => words.extend(["--join", &list]),
                Some(seconds) => words.extend(["--lease", seconds]),
                None => {}
            }
            TestHost::by(&before, &words)
        })
        .collect()
}

/// Where that host listens.
pub fn address_of(host: &TestHost) -> String {
    let hosts = host.connect().hosts().expect("the hosts");
    hosts.iter().find(|host| host.is_this).expect("this host").address.to_string()
}

/// `commonhold ca` with these words, which must work, for the authority in that directory.
pub fn ca(directory: &Path, words: &[&str]) {
    let mut command = Command::new(program("commonhold-tests-host"));
    let output = command.arg("ca").args(words).arg("--dir").arg(directory).output().expect("it runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two hosts of one cluster; the first is the home of what `sharing_pair` makes, and is started with more words.
pub fn pair(more: &[&str]) -> [TestHost; 2] {
    let (list, own) = (free_address(), free_address());
    let place = ["--plain", "--listen", &list, "--name", "home"];
    let first = TestHost::with(&[place.as_slice(), more].concat());
    let place = ["--plain", "--listen", &own, "--join", &list, "--name", "other"];
    [first, TestHost::with(&place)]
}

/// A worker on each, with one centrally scheduled object of so many pages mapped as `m`: each message of that is known.
pub fn sharing_pair(hosts: &[TestHost; 2], pages: u64) -> [Worker; 2] {
    sharing_pair_of(hosts, &format!("size={} central", pages * 4096))
}

/// A worker on each, with one object mapped as `m`.
pub fn sharing_pair_of(hosts: &[TestHost; 2], options: &str) -> [Worker; 2] {
    let workers = sharers_of(hosts, "/shared", options);
    workers.try_into().unwrap_or_else(|_| unreachable!("two hosts, two workers"))
}

/// Workers on all hosts, each with `/shared` mapped as `m`; the first made it.
pub fn sharers(hosts: &[TestHost], size_bytes: u64, more: &str) -> Vec<Worker> {
    sharers_of(hosts, "/shared", &format!("size={size_bytes} {more}"))
}

/// The same with an object of that name.
pub fn sharers_of(hosts: &[TestHost], name: &str, options: &str) -> Vec<Worker> {
    sharers_from(hosts, 0, name, options)
}

/// The same; the host of number `home` made it.
pub fn sharers_from(hosts: &[TestHost], home: usize, name: &str, options: &str) -> Vec<Worker> {
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    let create = format!("create o {name} {options}");
    // The first keeps the list: it belongs from the start.
    drop(if home == 0 { workers[0].ok(&create) } else { workers[home].eventually(&create) });
    for (number, worker) in workers.iter().enumerate() {
        if number != home {
            worker.eventually(&format!("open o {name} rw"));
        }
        worker.ok("map m o rw shared 0 0");
    }
    workers
}

/// Another process of a host, with the object open and mapped.
pub fn another(host: &TestHost, name: &str) -> Worker {
    let worker = host.worker();
    worker.eventually(&format!("open o {name} rw"));
    worker.ok("map m o rw shared 0 0");
    worker
}

/// Whether a line of the host's log has all of these words, which `|` divides.
pub fn says(host: &TestHost, words: &str) -> bool {
    host.log().lines().any(|line| words.split('|').all(|word| line.contains(word)))
}

/// Waits until it does.
pub fn until_says(host: &TestHost, words: &str) {
    wait::until(&format!("the log says {words}"), || says(host, words).then_some(()));
}

/// The numbers of an object at a host.
pub fn counts(host: &TestHost, name: &str) -> ObjectCounts {
    host.connect().counts(name, 1024).expect("numbers").objects.remove(0)
}
