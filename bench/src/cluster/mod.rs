//! A cluster of a row's own: hosts of the program beside this one, each with its certificate and its place in a
//! network that the row made. All of it goes when this is dropped; what a row that dies leaves is killed by who
//! started the row.

pub mod etcd;
pub mod floor;
pub mod hotspot;
mod namespaces;
mod network;
mod sharer;
mod traffic;

pub use network::Network;
pub use sharer::Sharer;
pub use traffic::Traffic;

use crate::context::Context;
use crate::failure::{Doing, Failure, Result, failed};
use crate::host::{self, BenchHost};
use commonhold::Host;
use commonhold_peers::Identity;
use etcd::Etcd;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long hosts may take to know each other.
const DEADLINE: Duration = Duration::from_secs(30);

/// Hosts that know each other; the first keeps the list, if it is not in etcd.
#[derive(Debug)]
pub struct Cluster {
    hosts: Vec<BenchHost>,
    etcd: Option<Etcd>,
    network: Network,
    directory: PathBuf,
}

/// What a processor of a host does while an answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaiting {
    /// It may halt, as that of the other side of a comparison does.
    Asleep,
    /// As hosts are started without a word about it: it does not halt for a while.
    AsUsual,
}

/// How the hosts of a cluster are started.
struct Settings {
    /// Of each host, in bytes, if not what the host takes by itself.
    page_sizes: Vec<Option<u64>>,
    /// Seconds.
    lease: Option<u64>,
    awaiting: Awaiting,
    /// Of each host, if not that of this machine.
    machines: Vec<&'static str>,
    /// More words of the command line of each host.
    words: Vec<OsString>,
}

impl Settings {
    fn of(count: usize) -> Settings {
        Settings {
            page_sizes: vec![None; count],
            lease: None,
            awaiting: Awaiting::AsUsual,
            machines: Vec::new(),
            words: Vec::new(),
        }
    }
}

impl Cluster {
    /// Starts one of that many hosts, with TLS.
    pub fn start(context: &Context, count: usize) -> Result<Cluster> {
        Cluster::start_in(context.new_directory(&format!("cluster-{count}"))?, count, None)
    }

    /// The same, of two hosts that await answers in that way.
    pub fn start_two(context: &Context, awaiting: Awaiting) -> Result<Cluster> {
        let directory = context.new_directory("cluster-2")?;
        Cluster::start_on(directory, Network::create(2), Settings { awaiting, ..Settings::of(2) })
    }

    /// The same, where each host, and what uses it, has processors of its own, as far as there are enough.
    pub fn start_two_apart(context: &Context, awaiting: Awaiting) -> Result<Cluster> {
        Cluster::start_apart(context, 2, awaiting)
    }

    /// The same of so many hosts.
    pub fn start_apart(context: &Context, count: usize, awaiting: Awaiting) -> Result<Cluster> {
        let directory = context.new_directory(&format!("cluster-{count}-apart"))?;
        let network = Network::create(count).with_processors(count)?;
        Cluster::start_on(directory, network, Settings { awaiting, ..Settings::of(count) })
    }

    /// A client of each host.
    pub fn clients(&self) -> Result<Vec<Host>> {
        self.hosts.iter().map(BenchHost::connect).collect()
    }

    /// Starts one of that many hosts, with TLS, in a folder of its own, with leases of so many seconds.
    pub fn start_in(directory: PathBuf, count: usize, lease: Option<u64>) -> Result<Cluster> {
        Cluster::start_on(directory, Network::create(count), Settings { lease, ..Settings::of(count) })
    }

    /// The same, where each host is started with more words on its command line.
    pub fn start_with_words(
        context: &Context,
        count: usize,
        lease: Option<u64>,
        words: &[&str],
    ) -> Result<Cluster> {
        let directory = context.new_directory(&format!("cluster-{count}"))?;
        let words = words.iter().map(Into::into).collect();
        Cluster::start_on(directory, Network::create(count), Settings { lease, words, ..Settings::of(count) })
    }

    /// The same with the registry in etcd, at a place of its own, and without TLS; skipped where etcd, or a program that was
    /// built for it, is not there.
    pub fn start_with_etcd(directory: PathBuf, count: usize, lease: u64) -> Result<Cluster> {
        std::fs::create_dir_all(&directory)?;
        let network = Network::create(count + 1);
        let etcd = Etcd::start(&network, count, &directory)?;
        let (list, lease) = (List::InEtcd(etcd.url()), Some(lease));
        let mut cluster = Cluster { hosts: Vec::new(), etcd: Some(etcd), network, directory };
        cluster.start_hosts(&list, &Settings { lease, ..Settings::of(count) })?;
        Ok(cluster)
    }

    /// Starts one, with TLS, of hosts of these machine types.
    pub fn of_machines(context: &Context, machines: &[&'static str]) -> Result<Cluster> {
        let count = machines.len();
        let directory = context.new_directory("cluster-of-machines")?;
        let settings = Settings { machines: machines.to_vec(), ..Settings::of(count) };
        Cluster::start_on(directory, Network::create(count), settings)
    }

    /// Starts one, with TLS, of hosts with pages of these sizes, in bytes.
    pub fn of_page_sizes(context: &Context, sizes: &[u64]) -> Result<Cluster> {
        let settings =
            Settings { page_sizes: sizes.iter().copied().map(Some).collect(), ..Settings::of(sizes.len()) };
        let directory = context.new_directory("cluster-of-page-sizes")?;
        Cluster::start_on(directory, Network::create(sizes.len()), settings)
    }

    fn start_on(directory: PathBuf, network: Network, settings: Settings) -> Result<Cluster> {
        let count = settings.page_sizes.len();
        std::fs::create_dir_all(&directory)?;
        certificates(&directory, count)?;
        let list = List::OfFirst(network.host_address(0)?);
        let mut cluster = Cluster { hosts: Vec::new(), etcd: None, network, directory };
        cluster.start_hosts(&list, &settings)?;
        Ok(cluster)
    }

    fn start_hosts(&mut self, list: &List, settings: &Settings) -> Result<()> {
        for number in 0..settings.page_sizes.len() {
            self.start_host(number, list, settings).map_err(unless_it_cannot)?;
        }
        self.wait_until_complete()
    }

    fn start_host(&mut self, number: usize, list: &List, settings: &Settings) -> Result<()> {
        let own = match list {
            List::OfFirst(list) if number == 0 => *list,
            _ => self.network.host_address(number)?,
        };
        let name = host_name(number);
        let mut words: Vec<OsString> = ["--listen", &own.to_string(), "--name", &name].map(Into::into).into();
        match list {
            List::InEtcd(url) => {
                words.extend(["--registry", url, "--plain", "--even-beyond-loopback"].map(Into::into));
            }
            List::OfFirst(list) => {
                words.extend(["--identity".into(), self.directory.join(&name).into()]);
                words.extend((number > 0).then(|| format!("--join={list}").into()));
            }
        }
        let keeps_list = number == 0 || self.etcd.is_some();
        words
            .extend(settings.lease.filter(|_| keeps_list).map(|seconds| format!("--lease={seconds}").into()));
        if settings.awaiting == Awaiting::Asleep {
            words.extend(["--idle-poll", "0"].map(Into::into));
        }
        words.extend(settings.page_sizes[number].map(|bytes| format!("--page-size={bytes}").into()));
        let machine = settings.machines.get(number);
        words.extend(machine.map(|machine| format!("--machine={machine}").into()));
        words.extend(settings.words.iter().cloned());
        let state = self.directory.join(format!("state-{number}"));
        self.hosts.push(self.network.at(number, || BenchHost::start_with(&state, words))?);
        Ok(())
    }

    fn wait_until_complete(&self) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        for host in &self.hosts {
            let client = host.connect()?;
            while client.hosts()?.len() < self.hosts.len() {
                if Instant::now() > deadline {
                    return failed("the hosts of the cluster did not find each other within 30 s");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// One of the hosts.
    pub fn host(&self, number: usize) -> &BenchHost {
        &self.hosts[number]
    }

    /// Starts a host again whose processes are gone.
    pub fn start_again(&self, number: usize) -> Result<()> {
        self.network.at(number, || self.hosts[number].start_again())
    }

    /// All hosts.
    pub fn hosts(&self) -> &[BenchHost] {
        &self.hosts
    }

    /// Where the list is, if no host keeps it.
    pub fn etcd(&self) -> Option<&Etcd> {
        self.etcd.as_ref()
    }

    /// What they reach each other by.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Where the certificate of a host is.
    pub fn identity_directory(&self, number: usize) -> PathBuf {
        self.directory.join(host_name(number))
    }

    /// The certificate of a host.
    pub fn identity(&self, number: usize) -> Result<Identity> {
        Identity::load(&self.identity_directory(number)).doing("loading a certificate")
    }

    /// A process that uses the memory of one host.
    pub fn sharer(&self, number: usize) -> Result<Sharer> {
        self.network.at(number, || Sharer::start(self.hosts[number].state()))
    }
}

/// Who keeps the list of members.
enum List {
    /// The first host, at that address.
    OfFirst(SocketAddr),
    /// etcd.
    InEtcd(String),
}

/// A program that cannot do what a row needs is no failure of it.
fn unless_it_cannot(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(why) if why.contains("built without etcd") => Failure::Skipped(why),
        other => other,
    }
}

fn host_name(number: usize) -> String {
    format!("host{number}")
}

/// An authority, and a certificate of it for each host.
fn certificates(directory: &Path, count: usize) -> Result<()> {
    let program = host::program()?;
    let authority = directory.join("ca");
    let ca = |words: &[OsString]| {
        let mut command = Command::new(&program);
        command.arg("ca").args(words).arg("--dir").arg(&authority).stdin(Stdio::null());
        let output = command.output().doing(format!("starting {}", program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return failed(format!("`commonhold ca` said: {said}"));
        }
        Ok(())
    };
    ca(&["init".into()])?;
    (0..count).map(host_name).try_for_each(|name| {
        ca(&["issue".into(), name.clone().into(), "--into".into(), directory.join(name).into()])
    })
}
