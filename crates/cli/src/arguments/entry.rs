//! Arguments of the two hidden commands under which host and keeper run. Both are written by the crate `keeper`, not
//! by people.

use crate::units::{parse_machine, parse_page_size};
use clap::Args;
use commonhold::PageSize;
use commonhold::tags::Machine;
use commonhold_host::EtcdPlace;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Limits of a host; `None` leaves one to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Limits {
    /// Most memory for the pages of all controlled objects, bytes
    #[arg(long)]
    pub budget: Option<u64>,
    /// Most memory and spill space of one user, bytes
    #[arg(long)]
    pub quota: Option<u64>,
    /// Most objects of one user
    #[arg(long)]
    pub max_objects: Option<u64>,
    /// Most clients at once
    #[arg(long)]
    pub max_clients: Option<u64>,
    /// File systems from which files of other users are taken too
    #[arg(long)]
    pub file_system: Vec<String>,
}

impl Limits {
    /// The words of a command line that say the same.
    pub fn words(&self) -> Vec<OsString> {
        let pairs = [
            ("--budget", self.budget),
            ("--quota", self.quota),
            ("--max-objects", self.max_objects),
            ("--max-clients", self.max_clients),
        ];
        let given = pairs.into_iter().filter_map(|(word, value)| Some((word, value?)));
        let mut words: Vec<OsString> =
            given.flat_map(|(word, value)| [word.into(), value.to_string().into()]).collect();
        // As one word: whatever it begins with, it is no option.
        words.extend(self.file_system.iter().map(|name| format!("--file-system={name}").into()));
        words
    }
}

/// A host's place in a cluster, as people and the keeper write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Place {
    /// Listen there for the other hosts of a cluster, such as 10.0.0.1:7420
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Join the cluster of the host that listens there; unless given, this host begins one
    #[arg(long, value_name = "ADDRESS:PORT", requires = "listen")]
    pub join: Option<SocketAddr>,
    /// Members, names and losses are kept in etcd: etcd://HOST:PORT,HOST:PORT or etcds:// for TLS, /NAME where several
    /// clusters share it. No host is needed by the others then
    #[arg(long, value_name = "URL", requires = "listen", conflicts_with = "join")]
    pub registry: Option<EtcdPlace>,
    /// Certificate of the authority that issued etcd's, PEM
    #[arg(long, value_name = "FILE", requires = "registry")]
    pub registry_ca: Option<PathBuf>,
    /// This host's certificate for etcd, PEM
    #[arg(long, value_name = "FILE", requires = "registry_ca", requires = "registry_key")]
    pub registry_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "registry_cert")]
    pub registry_key: Option<PathBuf>,
    /// A host that is not heard of for so long is lost; 10 unless given. Of the host that others join; with --registry the
    /// same for all
    #[arg(long, value_name = "SECONDS", requires = "listen", conflicts_with = "join",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lease: Option<u64>,
    /// What the other hosts call this one; the machine's name unless given
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub name: Option<String>,
    /// A fault on an object that hosts share asks for that much at once, and that much goes at once, as on a machine with
    /// such pages: a power of two from 4KiB, which it is unless given, to 2MiB
    #[arg(long, value_name = "SIZE", requires = "listen", value_parser = parse_page_size,
        allow_negative_numbers = true)]
    pub page_size: Option<PageSize>,
    /// While an answer of another host about pages is awaited, for at most so long, a processor that has nothing else to do
    /// does not halt; 200 unless given, 0: never
    #[arg(long, value_name = "MICROSECONDS", requires = "listen", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub idle_poll: Option<u64>,
    /// Pass nothing on between hosts that cannot reach each other, and reach this one
    #[arg(long, requires = "listen")]
    pub no_relay: bool,
    /// This host's certificate, made by `commonhold ca issue`; the directory `identity` of the state unless given
    #[arg(long, value_name = "DIR", requires = "listen")]
    pub identity: Option<PathBuf>,
    /// Encrypt nothing and believe everybody: for trials on one machine
    #[arg(long, requires = "listen", conflicts_with = "identity")]
    pub plain: bool,
    /// With --plain, also between machines
    #[arg(long, requires = "plain")]
    pub even_beyond_loopback: bool,
}

impl Place {
    /// The words of a command line that say the same.
    pub fn words(&self) -> Vec<OsString> {
        let pairs = [
            ("--listen", self.listen.map(|address| address.to_string())),
            ("--join", self.join.map(|address| address.to_string())),
            ("--registry", self.registry.as_ref().map(EtcdPlace::to_string)),
            ("--lease", self.lease.map(|seconds| seconds.to_string())),
            ("--name", self.name.clone()),
            ("--idle-poll", self.idle_poll.map(|microseconds| microseconds.to_string())),
            ("--page-size", self.page_size.map(|size| size.bytes().to_string())),
        ];
        let given = pairs.into_iter().filter_map(|(word, value)| Some((word, value?)));
        let mut words: Vec<OsString> = given.flat_map(|(word, value)| [word.into(), value.into()]).collect();
        let files = [
            ("--identity", &self.identity),
            ("--registry-ca", &self.registry_ca),
            ("--registry-cert", &self.registry_cert),
            ("--registry-key", &self.registry_key),
        ];
        let given = files.into_iter().filter_map(|(word, path)| Some((word, path.clone()?)));
        words.extend(given.flat_map(|(word, path)| [word.into(), path.into()]));
        let flags = [
            ("--no-relay", self.no_relay),
            ("--plain", self.plain),
            ("--even-beyond-loopback", self.even_beyond_loopback),
        ];
        words.extend(flags.into_iter().filter(|(_, given)| *given).map(|(word, _)| word.into()));
        words
    }
}

/// What bytes in a host's memory mean, as people and the keeper write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct MachineType {
    /// Byte order and floats of the programs here: little-ieee, big-ieee or vax; those of this machine unless given
    #[arg(long, value_name = "TYPE", value_parser = parse_machine)]
    pub machine: Option<Machine>,
}

impl MachineType {
    /// The words of a command line that say the same.
    pub fn words(&self) -> Vec<OsString> {
        self.machine.map_or_else(Vec::new, |machine| vec!["--machine".into(), machine.word().into()])
    }
}

/// Where Prometheus may ask for a host's numbers, as people and the keeper write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Metrics {
    /// Tell the numbers of this host to whoever asks there (Prometheus); the names of objects are among them
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// With --metrics, also at an address that other machines reach: nothing asks them who they are
    #[arg(long, requires = "metrics")]
    pub metrics_beyond_loopback: bool,
}

impl Metrics {
    /// The words of a command line that say the same.
    pub fn words(&self) -> Vec<OsString> {
        let Some(address) = self.metrics else { return Vec::new() };
        let mut words = vec!["--metrics".into(), address.to_string().into()];
        words.extend(self.metrics_beyond_loopback.then(|| "--metrics-beyond-loopback".into()));
        words
    }
}

/// `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// State directory
    #[arg(long)]
    pub state: PathBuf,
    /// Inherited descriptor of the socket to the keeper
    #[arg(long)]
    pub keeper_fd: i32,
    /// Limits.
    #[command(flatten)]
    pub limits: Limits,
    /// What its bytes mean.
    #[command(flatten)]
    pub machine: MachineType,
    /// Its cluster.
    #[command(flatten)]
    pub place: Place,
    /// Its numbers.
    #[command(flatten)]
    pub metrics: Metrics,
}

/// `keeper`.
#[derive(Debug, Args)]
pub struct Keeper {
    /// What is started is the server of a mount, not a host
    #[arg(long)]
    pub mount: bool,
    /// State directory
    #[arg(long)]
    pub state: PathBuf,
    /// Process of the host that started this keeper
    #[arg(long, requires = "keeper_fd")]
    pub host_pid: Option<u32>,
    /// Inherited descriptor of the socket to that host
    #[arg(long, requires = "host_pid")]
    pub keeper_fd: Option<i32>,
    /// Inherited descriptor of the state directory's lock
    #[arg(long)]
    pub lock_fd: i32,
    /// Further words for the command lines of hosts
    #[arg(last = true)]
    pub host_arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Command, CommandLine};
    use clap::Parser;

    #[test]
    fn limits_survive_the_way_through_the_keeper_to_the_host() {
        let file_system = vec!["nfs4".to_owned(), "fuse".to_owned()];
        let limits =
            Limits { budget: Some(1 << 30), max_clients: Some(7), file_system, ..Default::default() };
        let words = ["commonhold", "keeper", "--state", "/x", "--lock-fd", "3", "--"].map(OsString::from);
        let machine = MachineType { machine: Some(Machine::VAX) };
        let given = limits.words().into_iter().chain(machine.words());
        let line = CommandLine::try_parse_from(words.into_iter().chain(given)).unwrap();
        let Command::Keeper(keeper) = line.command else { panic!("not keeper") };
        assert_eq!(keeper.lock_fd, 3);
        let words = ["commonhold", "serve", "--state", "/x", "--keeper-fd", "4"].map(OsString::from);
        let line = CommandLine::try_parse_from(words.into_iter().chain(keeper.host_arguments)).unwrap();
        let Command::Serve(serve) = line.command else { panic!("not serve") };
        assert_eq!((serve.keeper_fd, serve.limits, serve.machine), (4, limits, machine));
    }
}
