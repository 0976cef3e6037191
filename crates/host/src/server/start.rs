//! The beginning of a host process: what the keeper held, what the state directory holds, and what neither
//! explains is repaired or set aside.

use super::expecting::Returning;
use super::{Host, Limits, control::Control};
use crate::cache::evictor::Ends;
use crate::cache::{Evictor, frames_survive_in_pipe};
use crate::cluster::lease::Lease;
use crate::cluster::link::{self, Door, Proof};
use crate::cluster::registry::place::Place;
use crate::cluster::{Cluster, wire::Member};
use crate::faults::service::FaultService;
use crate::machine::Machine;
use crate::on_way::OnWay;
use crate::pagers::PagerLines;
use crate::refuge::Refuge;
use crate::seeing::endpoint::MetricsOptions;
use crate::{formats, set_aside, types};
use commonhold_coherence::HostId;
use commonhold_keeper::{Kept, Key, STUCK_PART, Vault};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, PageSize, Result, limits};
use commonhold_peers::HostAddress;
use commonhold_registry::{Quota, Quotas, Registry};
use commonhold_sys::userfaultfd::Userfaultfd;
use commonhold_sys::{kernel, process, socket};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

/// What a host process is started with.
pub struct ServeOptions {
    /// The state directory; it exists, and its lock is held by the keeper.
    pub directory: PathBuf,
    /// The socket to the keeper.
    pub keeper: OwnedFd,
    /// Limits; `None`: the default.
    pub budget_bytes: Option<u64>,
    /// Quota of each user.
    pub quota_bytes: Option<u64>,
    /// Objects of each user.
    pub max_objects: Option<u64>,
    /// Clients at once.
    pub max_clients: Option<u64>,
    /// File systems from which files of ordinary users are taken too.
    pub file_systems: Vec<String>,
    /// This program: what a new keeper is started from.
    pub program: PathBuf,
    /// Its place in a cluster, if it has one.
    pub cluster: Option<ClusterOptions>,
    /// Where Prometheus may ask for its numbers.
    pub metrics: Option<MetricsOptions>,
    /// The type of the machine that its processes are on.
    pub machine: commonhold_tags::Machine,
    /// The arguments that gave these limits, for the hosts that a new keeper starts.
    pub arguments: Vec<OsString>,
}

/// A host's place in a cluster.
pub struct ClusterOptions {
    /// Where it listens for other hosts.
    pub listen: HostAddress,
    /// Which address that is, where it was resolved before.
    pub listens_at: Option<SocketAddr>,
    /// Where the cluster's registry is.
    pub registry: Place,
    /// How long a host that says nothing belongs to the cluster, if this host keeps the list.
    pub lease: Duration,
    /// What the others call it.
    pub name: String,
    /// In pages of which size processes here use objects that hosts share.
    pub page_size: PageSize,
    /// How long a processor is kept from halting while pages of other hosts are awaited.
    pub idle_poll: Duration,
    /// How hosts prove who they are.
    pub proof: Proof,
    /// Whether hosts that cannot reach each other may speak through this one.
    pub is_relay: bool,
}

/// Descriptors that the host keeps open for an object in use, at most: its file (once for itself, once for its pager), its
/// frames, `live/<id>`, `spill/<id>`, and the two files of its journal.
const DESCRIPTORS_AN_OBJECT: u64 = 7;

/// A message with the most pages that are asked for at once, and some more: there is always a next one.
const LONG_MESSAGE_BYTES: i32 = 4 << 20;

/// Whatever failed first would not say why.
fn refuse_old_kernels(release: &str) -> Result<()> {
    if kernel::is_enough(release) {
        return Ok(());
    }
    let (major, minor) = kernel::NEEDED;
    let why = format!("this machine runs Linux {release}, and a host needs Linux {major}.{minor} or later");
    Err(Error::new(ErrorKind::Unsupported, why))
}

/// Serves until the process is told to stop.
pub fn serve(options: ServeOptions) -> Result<()> {
    refuse_old_kernels(&kernel::release())?;
    super::backing::check_file_systems(&options.file_systems)?;
    let limits = limits_of(&options, commonhold_keeper::raise_descriptor_limit());
    // Before there is another thread: each has rights of its own.
    process::give_up_rights_over_limits().doing("giving up rights that the host does not need")?;
    let (vault, inheritance) = Vault::inherited(options.keeper)?;
    let vault = Arc::new(vault);
    let kept = inheritance.kept;
    let directory = &options.directory;
    set_aside::refuse_to_begin_anew(directory)?;
    formats::check(directory, &kept)?;
    options.metrics.as_ref().map_or(Ok(()), MetricsOptions::check)?;
    let door = options.cluster.as_ref().map(|cluster| Door::open(cluster, directory)).transpose()?;
    for folder in set_aside::FOLDERS {
        std::fs::create_dir_all(directory.join(folder))
            .doing(format!("creating {}/{folder}", directory.display()))?;
    }
    let registry = Registry::open(directory, limits.quotas)?;
    end_on_panic();
    if options.cluster.is_some() {
        commonhold_sys::memory::keep_freed(LONG_MESSAGE_BYTES);
    }
    crate::log::keep_short(directory);
    let boot_id = process::boot_id().doing("asking for the boot's name")?;
    types::begins_as(options.machine, directory, &boot_id)?;
    let machine = Machine::new(
        directory,
        boot_id,
        limits.budget_bytes / 4096,
        evictor(&vault, &kept),
        Refuge::new(kept_memory(&vault, &kept, "refuge", crate::refuge::new_memory)?),
        OnWay::open(kept_memory(&vault, &kept, "on-way", crate::on_way::new_memory)?)
            .doing("reading pages on their way")?,
    )?;
    machine.types.is_of(options.machine);
    let faults = FaultService::new(fault_threads(), &machine);
    let host = Arc::new(Host {
        machine,
        registry: Mutex::new(registry),
        objects: RwLock::default(),
        sessions: RwLock::default(),
        faults,
        pagers: Arc::new(PagerLines::default()),
        readers: Arc::default(),
        queues: Arc::default(),
        limits,
        program: options.program,
        arguments: options.arguments,
        device: Userfaultfd::open_device().ok(),
        started: Instant::now(),
        repairs: Default::default(),
        returning: Returning::default(),
        lapsed: Mutex::default(),
        closers: Mutex::default(),
        wired: Mutex::default(),
        snapshots: Mutex::default(),
        offers: Mutex::default(),
        revoking: super::revoking::Revoking::default(),
        handovers: Mutex::default(),
        tokens: super::tokens::AllTokens::default(),
        lingering_clock: Mutex::default(),
        next_session: AtomicU64::new(first_session()),
        cluster: OnceLock::new(),
        stuck_before: Mutex::new(stuck_before(&vault, &kept)),
        stopping: AtomicBool::new(false),
        direct_bytes: Mutex::default(),
        small_frames: frames_survive_in_pipe().unwrap_or(false),
        vault,
    });
    host.enter_cluster(options.cluster.as_ref().zip(door.as_ref()), &kept)?;
    host.take_over(&kept, inheritance.complete)?;
    super::trimming::start(&host)?;
    super::segments::start(&host)?;
    let listener = host.listener(directory, &kept)?;
    drop(kept);
    host.tell_clients();
    host.machine.has_taken_over();
    host.vault.ready();
    if let (Some(options), Some(door), Some(cluster)) = (options.cluster, door, host.cluster.get()) {
        link::start(cluster, door, options.is_relay, options.lease)?;
    }
    if let Some(metrics) = options.metrics {
        metrics.serve(&host)?;
    }
    Control::new(host, listener)?.run()
}

/// From now on a panic in any thread ends the process: the keeper starts the next host, for which everything is kept.
/// One that went on without a fault thread, or with a lock's data half changed, would let its clients hang. (Opening
/// the registry, which is over by now, catches panics of the database over a damaged file.)
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed").to_owned();
        let what = panic.to_string().replace('\n', " ");
        crate::log::write(format_args!("fault in this program, thread {name}: {what}; ending"));
        std::process::abort();
    }));
}

/// What the options say, and where they say nothing, enough for everybody: what they do say is for everybody alike, but
/// by default root and who runs the host may have more than other users.
fn limits_of(options: &ServeOptions, descriptors: u64) -> Limits {
    let memory = super::status::memory_bytes();
    let quota = |bytes, objects| {
        let objects = options.max_objects.unwrap_or(objects);
        Quota { bytes: options.quota_bytes.unwrap_or(bytes), objects, directories: objects }
    };
    let ordinary_objects = limits::OBJECTS_PER_ORDINARY_USER.min(descriptors / DESCRIPTORS_AN_OBJECT / 4);
    Limits {
        budget_bytes: options.budget_bytes.unwrap_or(memory / 4),
        quotas: Quotas {
            owner: rustix::process::geteuid().as_raw(),
            trusted: quota(u64::MAX, limits::OBJECTS_PER_USER),
            ordinary: quota(memory / 2, ordinary_objects),
        },
        clients: options.max_clients.unwrap_or(limits::CLIENTS),
        watches: limits::WATCHES_PER_ORDINARY_USER.min(descriptors as usize / 16),
        file_systems: options.file_systems.clone(),
    }
}

fn fault_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| (n.get() / 2).clamp(1, 8))
}

/// Sessions are numbered from the clock, so that a host which knows nothing of its predecessor's sessions
/// (both host and keeper died) does not give their numbers again.
fn first_session() -> u64 {
    process::boottime_ms() << 16 & (u64::MAX >> 2)
}

/// Memory whose content outlives this process too.
fn kept_memory(
    vault: &Vault,
    kept: &[Kept],
    name: &str,
    new: impl FnOnce() -> std::io::Result<OwnedFd>,
) -> Result<Arc<OwnedFd>> {
    if let Some(memory) = kept.iter().find(|k| k.key.0 == name).and_then(|k| k.fd.clone()) {
        return Ok(memory);
    }
    let memory = Arc::new(new().doing(format!("making the memory called {name}"))?);
    vault.put(&Key(name.into()), &[], Some(memory.clone()))?;
    Ok(memory)
}

/// Hosts that were killed and cannot end yet. Of one that has nothing is kept any more.
fn stuck_before(vault: &Vault, kept: &[Kept]) -> Vec<Arc<OwnedFd>> {
    let all = kept.iter().filter(|entry| entry.key.0.starts_with(STUCK_PART));
    let (ended, stuck): (Vec<_>, Vec<_>) =
        all.partition(|entry| entry.fd.as_ref().is_none_or(|fd| process::has_ended(&**fd)));
    ended.into_iter().for_each(|entry| vault.forget(&entry.key));
    stuck.into_iter().filter_map(|entry| entry.fd.clone()).collect()
}

/// Under what name an end of a pipe is kept, through which a user's frames leave.
fn pipe_key(user: Option<u32>, end: &str) -> Key {
    Key(user.map_or_else(|| format!("evict/{end}"), |uid| format!("evict/{uid}/{end}")))
}

/// The pipes through which frames leave, and which outlive this process.
fn evictor(vault: &Arc<Vault>, kept: &[Kept]) -> Evictor {
    let find = |key: Key| kept.iter().find(|k| k.key == key).and_then(|k| k.fd.clone());
    let whose = |key: &Key| match key.0.strip_prefix("evict/")?.strip_suffix("read")? {
        "" => Some(None),
        user => user.strip_suffix('/')?.parse().ok().map(Some),
    };
    let users = kept.iter().filter_map(|entry| whose(&entry.key));
    let ends = |user| Some([find(pipe_key(user, "read"))?, find(pipe_key(user, "write"))?]);
    let pipes: Vec<_> = users.filter_map(|user| Some((user, ends(user)?))).collect();
    let vault = vault.clone();
    let keep = move |user: Option<u32>, ends: Option<&Ends>| {
        for (at, end) in ["read", "write"].into_iter().enumerate() {
            match ends {
                Some(ends) => vault.put(&pipe_key(user, end), &[], Some(ends[at].clone()))?,
                None => vault.forget(&pipe_key(user, end)),
            }
        }
        Ok(())
    };
    Evictor::new(pipes, Box::new(keep))
}

impl Host {
    /// Its part of a cluster; of none but itself, where it was not told of others.
    fn enter_cluster(
        self: &Arc<Self>,
        through: Option<(&ClusterOptions, &Door)>,
        kept: &[Kept],
    ) -> Result<()> {
        let options = through.map(|(options, _)| options);
        let mut number = [0; 4];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)
            .doing("choosing this host's number")?;
        let me = Member {
            host: HostId(u32::from_le_bytes(number) >> 1),
            name: options.map_or_else(String::new, |options| options.name.clone()),
            address: through.map_or_else(|| ([0, 0, 0, 0], 0).into(), |(_, door)| door.address()),
            former: Vec::new(),
        };
        let lease = Lease::new(&self.vault, kept)?;
        let place = options.map_or(Place::Here, |o| o.registry.clone());
        let returning = options.map(|o| o.lease);
        let page_size = options.map_or(PageSize::SMALLEST, |o| o.page_size);
        let idle_poll = options.map_or(Duration::ZERO, |o| o.idle_poll);
        let cluster = Cluster::new(self, me, place, lease, returning, page_size, idle_poll)
            .doing("starting a thread")?;
        let _ = self.cluster.set(cluster);
        Ok(())
    }

    /// The socket that clients connect to: the same one for as long as the keeper lives, so that nobody who
    /// connects between two hosts is turned away.
    fn listener(&self, directory: &Path, kept: &[Kept]) -> Result<Arc<OwnedFd>> {
        if let Some(fd) = kept.iter().find(|k| k.key.0 == "listener").and_then(|k| k.fd.clone()) {
            return Ok(fd);
        }
        // Put in the place of a dead host's socket in one step: where there is none, clients take the host for stopped
        // and wait for no other, and one that they may not use is an error to them.
        let fd = socket::listen(directory, "host.sock.new", 1024).doing("listening on host.sock")?;
        let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
        let path = directory.join("host.sock.new");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .doing("setting the mode of host.sock")?;
        std::fs::rename(path, directory.join("host.sock")).doing("putting host.sock in its place")?;
        let fd = Arc::new(fd);
        self.vault.put(&Key("listener".into()), &[], Some(fd.clone()))?;
        Ok(fd)
    }
}
