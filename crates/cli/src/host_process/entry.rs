//! What the processes run that `keeper` starts: the hidden commands `serve` and `keeper`.

use crate::arguments::entry::{Keeper, Metrics, Place, Serve};
use commonhold::tags::Machine;
use commonhold::{Error, Result};
use commonhold_host::{ClusterOptions, MetricsOptions, Proof, RegistryPlace, ServeOptions, TlsFiles};
use commonhold_keeper::{KeeperConfig, RestartPolicy, Serves, StateLog, adopt_descriptor};
use commonhold_object::error::Doing;
use commonhold_peers::{Identity, is_nowhere};
use rustix::fs::Mode;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a host that says nothing belongs to its cluster, unless it was told.
const LEASE_SECONDS: u64 = 10;
/// How long a processor does not halt while pages are awaited, unless it was told.
const IDLE_POLL_MICROSECONDS: u64 = 200;

/// Runs a host until it is told to end.
pub fn serve(arguments: Serve) -> Result<()> {
    keep_files_private();
    let log = StateLog::new(&arguments.state, "host");
    let keeper = adopt_descriptor(arguments.keeper_fd).doing("cannot take the socket to the keeper")?;
    let state = arguments.state.clone();
    let options = ServeOptions {
        directory: arguments.state,
        keeper,
        budget_bytes: arguments.limits.budget,
        quota_bytes: arguments.limits.quota,
        max_objects: arguments.limits.max_objects,
        max_clients: arguments.limits.max_clients,
        file_systems: arguments.limits.file_system.clone(),
        program: own_program()?,
        machine: arguments.machine.machine.unwrap_or(Machine::HERE),
        arguments: [
            arguments.limits.words(),
            arguments.machine.words(),
            arguments.place.words(),
            arguments.metrics.words(),
        ]
        .concat(),
        metrics: metrics_options(&arguments.metrics),
        cluster: cluster_options(arguments.place, &state),
    };
    commonhold_host::serve(options).inspect_err(|error| log.say(&format!("ended by an error: {error}")))
}

fn cluster_options(place: Place, state: &Path) -> Option<ClusterOptions> {
    Some(ClusterOptions {
        registry: registry_place(&place),
        listen: place.listen?,
        listens_at: place.listens_at,
        lease: Duration::from_secs(place.lease.unwrap_or(LEASE_SECONDS)),
        name: place.name.unwrap_or_else(machine_name),
        idle_poll: Duration::from_micros(place.idle_poll.unwrap_or(IDLE_POLL_MICROSECONDS)),
        page_size: place.page_size.unwrap_or_default(),
        is_relay: !place.no_relay,
        proof: if place.plain {
            Proof::None { even_beyond_loopback: place.even_beyond_loopback }
        } else {
            Proof::Certificate(place.identity.unwrap_or_else(|| state.join("identity")))
        },
    })
}

fn registry_place(place: &Place) -> RegistryPlace {
    let own = place.registry_cert.clone().zip(place.registry_key.clone());
    let files = place.registry_ca.clone().map(|authority| TlsFiles { authority, own });
    match (&place.registry, &place.join) {
        (Some(etcd), _) => RegistryPlace::Etcd(etcd.clone(), files),
        (None, Some(address)) => RegistryPlace::Host(address.clone()),
        (None, None) => RegistryPlace::Here,
    }
}

/// Where Prometheus may ask, if it may.
pub fn metrics_options(metrics: &Metrics) -> Option<MetricsOptions> {
    Some(MetricsOptions { address: metrics.metrics?, even_beyond_loopback: metrics.metrics_beyond_loopback })
}

/// A place in a cluster with whole paths, because a host runs elsewhere. Refuses a certificate that the host could not
/// use: here, and not in a log that nobody reads.
pub fn checked_place(mut place: Place, state: &Path) -> Result<Place> {
    let files =
        [&mut place.identity, &mut place.registry_ca, &mut place.registry_cert, &mut place.registry_key];
    for path in files.into_iter().flatten() {
        *path = std::path::absolute(&*path).doing(format!("finding {}", path.display()))?;
    }
    let Some(listen) = &place.listen else { return Ok(place) };
    let address = listen.of_this_machine_if_named()?;
    if is_nowhere(&address) {
        return Err(Error::invalid(format!(
            "--listen {listen} is where other hosts of the cluster reach this one: give an address of this machine that they \
             can connect to, and a port, as in --listen 192.0.2.1:7420"
        )));
    }
    place.listens_at = Some(address);
    if !place.plain {
        let identity = Identity::load(&place.identity.clone().unwrap_or_else(|| state.join("identity")))?;
        let certified = identity.name().to_owned();
        if let Some(name) = place.name.filter(|name| *name != certified) {
            return Err(Error::invalid(format!(
                "the certificate is for host {certified:?}, and this host is {name:?}: give it its own by --identity, or leave \
                 out --name, as the name is the certificate's"
            )));
        }
        place.name = Some(certified);
    }
    Ok(place)
}

/// What this machine is called.
fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Runs a keeper until its host ends in order.
pub fn keeper(arguments: Keeper) -> Result<()> {
    keep_files_private();
    let adopt = |number| adopt_descriptor(number).doing("cannot take a descriptor of a keeper");
    let lock = adopt(arguments.lock_fd)?;
    let inherited = arguments.keeper_fd.map(adopt).transpose()?;
    let config = KeeperConfig {
        serves: if arguments.mount { Serves::Mount } else { Serves::Host },
        state_directory: arguments.state,
        program: own_program()?,
        host_arguments: arguments.host_arguments,
        restart: RestartPolicy::default(),
    };
    commonhold_keeper::run_keeper(config, inherited, arguments.host_pid, lock)
        .doing("the keeper cannot go on")
}

/// What a host writes to its state directory holds bytes of objects: nobody else reads it. The socket, which everybody
/// may use, has its mode set.
fn keep_files_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// The path under which this program was started. Not /proc/self/exe: of a program that was replaced on disk that
/// names a file which is gone, and the next host could not be started.
pub fn own_program() -> Result<PathBuf> {
    match std::env::args_os().next().map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ => std::env::current_exe().doing("cannot tell the path of this program"),
    }
}
