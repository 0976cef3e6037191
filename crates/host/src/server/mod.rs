//! The server: sessions, requests, objects.
//!
//! | file | does |
//! |---|---|
//! | `control` | the control thread: connections, messages, deaths |
//! | `dispatch` | one request to one call |
//! | `opening` | open and close |
//! | `names` | stat, list, remove, rename, mode, owner, revert |
//! | `create`, `backing`, `resize` | an object's making, its file, its size |
//! | `typing` | what is in its pages |
//! | `caches` | the frames of controlled objects, made or adopted |
//! | `mappings`, `direct` | map, unmap, sync, lock, incore; who maps direct objects |
//! | `closing` | what came from clients, closed where nobody waits for it |
//! | `lifetime` | ends of sessions and objects |
//! | `begun` | requests for much memory, of which a host may die |
//! | `shared` | objects that hosts share, as the server sees them |
//! | `elsewhere` | what other hosts have, in what is told of names and pages |
//! | `moving` | those of them whose home moves |
//! | `seeing` | what was counted and traced of objects |
//! | `snapshots` | objects that have the pages of another as they were |
//! | `synchronisation` | what processes that ended had locked |
//! | `tokens` | the same of hosts: where the words of a mutex are |
//! | `wired_pager` | wired objects that are fetched from a file or an external pager |
//! | `nameless`, `offers` | objects without a name, and objects on their way through channels |
//! | `watching` | who waits for changes of bytes, and who says that there was one |
//! | `versions` | what snapshots are of, when that changes |
//! | `slots` | what one user may take of what all share |
//! | `kept` | what the keeper holds |
//! | `start`, `takeover`, `returning` | beginning, after a death, after two |
//! | `expecting` | who is to come back, and what waits for them |
//! | `repairs` | what was repaired, for `host status` |
//! | `clients` | the list of those who could bring things back |
//! | `reading` | messages of clients, as they come |
//! | `session`, `object` | the things themselves |

mod arenas;
mod backing;
mod begun;
mod caches;
mod channels;
mod clients;
mod closing;
pub mod control;
mod create;
mod direct;
mod dispatch;
mod elsewhere;
mod ephemeral;
mod expecting;
mod fencing;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod kept;
mod lifetime;
mod mappings;
mod moving;
mod nameless;
mod names;
pub mod object;
mod offers;
mod opening;
mod queues;
mod reading;
mod repairs;
mod resize;
mod returning;
mod revoking;
mod seeing;
pub mod segments;
mod session;
mod shared;
mod slots;
mod snapshots;
mod snapshots_asked;
pub mod start;
mod status;
mod swapping;
mod synchronisation;
mod tables;
mod takeover;
pub mod tokens;
mod trimming;
mod typing;
mod versions;
mod watching;
mod wired;
mod wired_pager;

pub(crate) use clients::check_clients;

use crate::cluster::Cluster;
use crate::faults::service::FaultService;
use crate::machine::Machine;
use crate::pagers::PagerLines;
use commonhold_keeper::Vault;
use commonhold_object::{CreateOptions, Error, ErrorKind, ObjectId, PagerKind, Result, SessionId};
use commonhold_registry::{Quotas, Registry};
use commonhold_sys::closing::Closer;
use object::Object;
use session::Session;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

/// Limits and sizes an operator may choose.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Frames of all controlled objects, bytes.
    pub budget_bytes: u64,
    /// What each user may have.
    pub quotas: Quotas,
    /// Clients at once.
    pub clients: u64,
    /// Watches of all clients of one ordinary user.
    pub watches: usize,
    /// File systems from which files of ordinary users are taken, besides those that everybody's are taken from.
    pub file_systems: Vec<String>,
}

impl Limits {
    /// What an object counts against the quota of who creates it: what is reserved for it. Of other users' anonymous
    /// objects the whole size: nothing but the size bounds what their pages will take of memory, or of the spill file. So of
    /// their files in memory, which have `memory_bytes`.
    fn counted(&self, uid: u32, options: &CreateOptions, memory_bytes: u64) -> u64 {
        let is_ours = options.pager == PagerKind::Anonymous || options.is_replicated();
        let bounded = is_ours && self.quotas.is_ordinary(uid);
        let reserved = if options.reserves() || bounded { options.size_bytes } else { 0 };
        if self.quotas.is_ordinary(uid) { reserved.max(memory_bytes) } else { reserved }
    }
}

/// A running host.
pub struct Host {
    /// What all objects share.
    pub machine: Arc<Machine>,
    /// What outlives this process.
    pub vault: Arc<Vault>,
    /// Names.
    pub registry: Mutex<Registry>,
    /// Objects in the registry, and nameless ones in use.
    pub objects: RwLock<HashMap<ObjectId, Arc<Object>>>,
    /// Clients.
    pub sessions: RwLock<HashMap<SessionId, Arc<Session>>>,
    /// Fault threads.
    pub faults: FaultService,
    /// Processes that serve pagers.
    pub pagers: Arc<PagerLines>,
    /// Threads that read what they answer.
    readers: Arc<reading::Readers>,
    /// Threads that take the answers of pagers from queues.
    queues: Arc<reading::Readers>,
    /// Limits.
    pub limits: Limits,
    /// This program, which a new keeper starts.
    pub program: PathBuf,
    /// With these arguments.
    pub arguments: Vec<OsString>,
    /// /dev/userfaultfd, to be passed to clients; absent in an unprivileged host.
    pub device: Option<OwnedFd>,
    /// When this process began to serve.
    pub started: Instant,
    /// What was repaired at start.
    pub repairs: repairs::Repairs,
    /// Clients of a host that died together with its keeper, which are expected back.
    pub returning: expecting::Returning,
    /// Direct objects that clients closed a moment ago.
    lapsed: Mutex<HashSet<(SessionId, ObjectId)>>,
    /// Who closes what came from each user.
    closers: Mutex<HashMap<u32, Closer>>,
    /// The other hosts.
    pub cluster: OnceLock<Arc<Cluster>>,
    /// Where wired objects lie. Nothing is waited for while it is locked.
    wired: Mutex<commonhold_wired::Arenas>,
    /// What snapshots are of.
    snapshots: Mutex<snapshots::Snapshots>,
    /// Objects on their way to who receives a message. Nothing is waited for while it is locked.
    offers: Mutex<commonhold_offers::Offers>,
    /// Who is asked to give up places of them.
    revoking: revoking::Revoking,
    /// Of objects that are scheduled by forwarding: what the process before this one handed over, until they are used.
    handovers: Mutex<HashMap<ObjectId, Arc<OwnedFd>>>,
    /// Mutexes that hosts share.
    tokens: tokens::AllTokens,
    /// Looks at ephemeral objects that nobody uses: from the first on that lingers.
    lingering_clock: Mutex<Option<Arc<crate::clock::Clock>>>,
    next_session: AtomicU64,
    /// Memory of direct objects, of so many that it is not counted each time, and when it was.
    direct_bytes: Mutex<Option<(Instant, u64)>>,
    /// Processes of hosts before this one that were killed, and had not ended when this one began.
    stuck_before: Mutex<Vec<Arc<OwnedFd>>>,
    stopping: AtomicBool,
    /// Whether frames survive in a pipe here (needed for eviction).
    small_frames: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// The object with that identity.
    pub fn object(&self, id: ObjectId) -> Result<Arc<Object>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects
            .get(&id)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no object {} any more", id.0)))
    }

    fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
