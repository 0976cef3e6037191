//! Arguments of the two hidden commands under which host and keeper run. Both are written by the crate `keeper`, not
//! by people; and of the one by which a new program is asked whether it can go on where another is.

use crate::units::{parse_machine, parse_page_size};
use clap::Args;
use commonhold::PageSize;
use commonhold::tags::Machine;
use commonhold_host::EtcdPlace;
use commonhold_peers::HostAddress;
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

/// `check-state`.
#[derive(Debug, Args)]
pub struct CheckState {
    /// State directory of the host
    #[arg(long)]
    pub state: PathBuf,
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
    /// Listen there for the other hosts of a cluster, such as 10.0.0.1:7420: an address of this machine, or a name of it
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<HostAddress>,
    /// Which address that name was when the host was started
    #[arg(long, hide = true)]
    pub listens_at: Option<SocketAddr>,
    /// Join the cluster of the host that listens there, by its address or a name, which is resolved anew at each attempt;
    /// unless given, this host begins one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub join: Option<HostAddress>,
    /// Members, names and losses are kept in etcd: etcd://HOST:PORT,HOST:PORT or etcds:// for TLS, /NAME where several
    /// clusters share it. No host is needed by the others then
    #[arg(long, value_name = "URL", conflicts_with = "join")]
    pub registry: Option<EtcdPlace>,
    /// Certificate of the authority that issued etcd's, PEM
    #[arg(long, value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,
    /// This host's certificate for etcd, PEM
    #[arg(long, value_name = "FILE")]
    pub registry_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE")]
    pub registry_key: Option<PathBuf>,
    /// A host that is not heard of for so long is lost; 10 unless given. Of the host that others join; with --registry the
    /// same for all
    #[arg(long, value_name = "SECONDS", conflicts_with = "join",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lease: Option<u64>,
    /// What the other hosts call this one: its certificate's name; with --plain the machine's unless given
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A fault on an object that hosts share asks for that much at once, and that much goes at once, as on a machine with
    /// such pages: a power of two from 4KiB, which it is unless given, to 2MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_page_size,
        allow_negative_numbers = true)]
    pub page_size: Option<PageSize>,
    /// While an answer of another host about pages is awaited, for at most so long, a processor that has nothing else to do
    /// does not halt; 200 unless given, 0: never
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub idle_poll: Option<u64>,
    /// Pass nothing on between hosts that cannot reach each other, and reach this one
    #[arg(long)]
    pub no_relay: bool,
    /// This host's certificate, made by `commonhold ca issue`; the directory `identity` of the state unless given
    #[arg(long, value_name = "DIR")]
    pub identity: Option<PathBuf>,
    /// Encrypt nothing and believe everybody: for trials on one machine
    #[arg(long, conflicts_with = "identity")]
    pub plain: bool,
    /// With --plain, also between machines
    #[arg(long)]
    pub even_beyond_loopback: bool,
}

impl Place {
    /// Refuses what needs something else that is not given. The command line and the file of the host are looked at together,
    /// so the parser of either cannot.
    pub fn check_needs(&self) -> Result<(), String> {
        let [registry, ca] = [self.registry.is_some(), self.registry_ca.is_some()];
        let [cert, key] = [self.registry_cert.is_some(), self.registry_key.is_some()];
        let listen = self.listen.is_some();
        let needs = [
            ("--join", self.join.is_some(), "--listen", listen),
            ("--registry", registry, "--listen", listen),
            ("--lease", self.lease.is_some(), "--listen", listen),
            ("--name", self.name.is_some(), "--listen", listen),
            ("--page-size", self.page_size.is_some(), "--listen", listen),
            ("--idle-poll", self.idle_poll.is_some(), "--listen", listen),
            ("--no-relay", self.no_relay, "--listen", listen),
            ("--identity", self.identity.is_some(), "--listen", listen),
            ("--plain", self.plain, "--listen", listen),
            ("--even-beyond-loopback", self.even_beyond_loopback, "--plain", self.plain),
            ("--registry-ca", ca, "--registry", registry),
            ("--registry-cert", cert, "--registry-ca", ca),
            ("--registry-cert", cert, "--registry-key", key),
            ("--registry-key", key, "--registry-cert", cert),
        ];
        let missing = needs.iter().find(|(_, is_given, _, has)| *is_given && !*has);
        missing.map_or(Ok(()), |(what, _, needed, _)| {
            Err(format!("{what} needs {needed}, on the command line or in the host's configuration"))
        })
    }

    /// The words of a command line that say the same.
    pub fn words(&self) -> Vec<OsString> {
        let pairs = [
            ("--listen", self.listen.as_ref().map(HostAddress::to_string)),
            ("--listens-at", self.listens_at.map(|address| address.to_string())),
            ("--join", self.join.as_ref().map(HostAddress::to_string)),
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
