//! A cluster with certificates, and one who has a certificate as well.

use super::unit;
use commonhold_tests::cluster::{Secure, address_of, ca, secure_cluster_with};
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{Scratch, TestHost, Worker};

/// What an attack wants of the cluster.
#[derive(Clone, Copy)]
pub struct Cluster {
    /// Hosts.
    pub hosts: usize,
    /// A host that died is lost so many seconds later, if not after the time that all clusters have.
    pub lease_s: Option<u32>,
    /// The last host may only read.
    pub last_reads: bool,
    /// The host where `/bystander` is at home.
    pub home: usize,
    /// The host whose process uses it.
    pub user: usize,
    /// The host that the scene kills.
    pub kills: Option<usize>,
}

/// Three hosts, of which the last reads alone; all are the same processes in the end.
pub const CLUSTER: Cluster =
    Cluster { hosts: 3, lease_s: None, last_reads: true, home: 1, user: 0, kills: None };

/// A cluster of hosts with the unit's capabilities.
pub struct Members {
    /// The hosts; the first keeps the list.
    pub hosts: Vec<TestHost>,
    authority: Scratch,
    user: usize,
}

impl Members {
    /// Starts one.
    pub fn of(cluster: Cluster) -> Members {
        let authority = Scratch::new();
        let secure =
            Secure { before: &unit::words(), lease_s: cluster.lease_s, last_reads: cluster.last_reads };
        let hosts = secure_cluster_with(&authority, cluster.hosts, &secure);
        let maker = hosts[cluster.home].worker();
        maker.eventually("create b /bystander size=65536 central mode=600");
        Members { hosts, authority, user: cluster.user }
    }

    /// A process that uses `/bystander`.
    pub fn user(&self) -> Worker {
        let worker = self.hosts[self.user].worker();
        // This one stays open: a host's last use of an object ends only when its pages are home.
        worker.eventually("open kept /bystander rw");
        worker
    }

    /// A host with a valid certificate of that name, which may write or read alone.
    pub fn stranger(&self, number: u32, name: &str, rights: Rights) -> Stranger {
        let identity = self.authority.join(name);
        let into = identity.display().to_string();
        let mut words = vec!["issue", name, "--into", &into];
        if matches!(rights, Rights::Read) {
            words.push("--read-only");
        }
        ca(&self.authority.join("ca"), &words);
        Stranger::certified(number, name, &identity)
    }

    /// The authority's directory, with that of each certificate.
    pub fn authority(&self) -> &Scratch {
        &self.authority
    }

    /// Where a host listens.
    pub fn address(&self, host: usize) -> String {
        address_of(&self.hosts[host])
    }
}

/// What a certificate allows.
#[derive(Clone, Copy)]
pub enum Rights {
    /// Everything.
    Write,
    /// Reading.
    Read,
}
