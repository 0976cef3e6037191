//! The connection of this process to one host, shared by all its threads.
//!
//! There is one [`Shared`] for each state directory that the process ever named; it is never freed, so that
//! fork and exit handlers can walk all of them. What lives shorter is the connection: it is made when the
//! first [`Lease`] is taken and closed when the last is dropped. Every host handle, open object and mapping
//! holds a lease.
//!
//! Order of locks: HOSTS, then the address map (`addresses.rs`), then `opens`, then `state`, then
//! the changes of in-thread service.

mod dispatch;
mod exchange;
mod failed;
mod guard;
mod handshake;
mod opens;
mod recovery;
mod unheard;
mod watcher;

pub(crate) use dispatch::wrong_reply;
pub(crate) use exchange::{Answer, Call, OnLoss};
pub(crate) use guard::Guard;
pub(crate) use handshake::{Handshake, prepare};
pub(crate) use opens::Opens;
use unheard::Unheard;

use crate::controlled::Kinds;
use crate::{Error, Result, fork, locate};
use commonhold_object::wire::HelloReply;
use commonhold_object::{MappingId, SessionId};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Every host that this process ever named.
pub(crate) static HOSTS: Mutex<Vec<&'static Shared>> = Mutex::new(Vec::new());

/// Locks, whatever a panicking thread left: each critical section here leaves its data whole.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the threads of this process share of one host.
pub(crate) struct Shared {
    pub(crate) directory: PathBuf,
    may_start: AtomicBool,
    users: AtomicUsize,
    numbers: AtomicU64,
    mapping_ids: AtomicU64,
    pub(crate) opens: Mutex<Opens>,
    /// No request to open is under way.
    all_opened: Condvar,
    pub(crate) state: Mutex<State>,
}

/// The connection itself.
pub(crate) struct State {
    /// The socket, while connected.
    pub(crate) socket: Option<Arc<OwnedFd>>,
    /// Changes whenever a connection is lost or given up: what was said before may have been said in vain.
    pub(crate) generation: u64,
    /// The generation of the host process that took over this connection, as it said last; 0: none has.
    host: u64,
    /// A thread is making a new connection.
    recovering: bool,
    /// The right to read from the socket: whoever takes it reads for all.
    reader: Option<Box<dispatch::Reader>>,
    pending: HashMap<u64, exchange::Pending>,
    hello: Hello,
    /// The last session known, for the return to another host.
    session: Option<SessionId>,
    /// Sessions that were begun for such a return, and of which the last may have ended before it was done.
    begun: Vec<SessionId>,
    pub(crate) kinds: Kinds,
    watcher: Option<Arc<OwnedFd>>,
    /// What this process lets move the host has to be told.
    says_what_may_move: bool,
    /// Further sockets (of pagers, and of connections being made): a fork child must not keep them open.
    guarded: Vec<Arc<OwnedFd>>,
    /// When a host could not be started, and why.
    start_failed: Option<(Instant, Error)>,
    /// Connections that were lost before the host said anything.
    unheard: Unheard,
    /// Since when hosts refuse something for a reason that may pass.
    refused_since: Option<Instant>,
}

/// What the host said of itself and of the session.
enum Hello {
    /// Not connected.
    Unknown,
    /// Asked, under that number.
    Asked(u64),
    /// Answered.
    Known(Greeting),
}

/// The answer to `Hello`.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) reply: HelloReply,
    /// An open /dev/userfaultfd, where the host could give one.
    pub(crate) device: Option<Arc<OwnedFd>>,
}

impl State {
    fn new() -> Self {
        State {
            socket: None,
            generation: 0,
            host: 0,
            recovering: false,
            reader: Some(Box::default()),
            pending: HashMap::new(),
            hello: Hello::Unknown,
            session: None,
            begun: Vec::new(),
            kinds: Kinds::default(),
            watcher: None,
            says_what_may_move: false,
            guarded: Vec::new(),
            start_failed: None,
            unheard: Unheard::default(),
            refused_since: None,
        }
    }

    /// Forgets the connection; what was asked and not answered has to be asked again.
    fn lose_connection(&mut self) {
        self.socket = None;
        self.host = 0;
        self.hello = Hello::Unknown;
        self.generation += 1;
        self.kinds.forget_introductions();
    }

    /// In a fork child: nothing of the parent's conversation is ours, and none of its threads exist here.
    pub(crate) fn begin_anew_after_fork(&mut self) {
        let open = self.socket.iter().chain(&self.watcher).chain(&self.guarded);
        // Also what reaches into the parent's address space: the child may be one that gives up rights. Those of mappings that serve
        // themselves are never closed.
        fork::deaden(open.map(|fd| fd.as_raw_fd()).chain(self.kinds.descriptors()));
        let (generation, pending) = (self.generation, std::mem::take(&mut self.pending));
        *self = State { generation: generation + 1, ..State::new() };
        drop(pending);
    }
}

impl Shared {
    fn new(directory: PathBuf) -> Self {
        Shared {
            directory,
            may_start: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            numbers: AtomicU64::new(1),
            mapping_ids: AtomicU64::new(1),
            opens: Mutex::default(),
            all_opened: Condvar::new(),
            state: Mutex::new(State::new()),
        }
    }

    /// The one of that directory, made if need be.
    fn of(directory: &Path) -> &'static Shared {
        fork::register_handlers();
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
        let mut hosts = lock(&HOSTS);
        if let Some(known) = hosts.iter().find(|shared| shared.directory == directory) {
            return known;
        }
        let shared: &'static Shared = Box::leak(Box::new(Shared::new(directory)));
        hosts.push(shared);
        shared
    }

    /// Whether anything of this process still uses the host.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::SeqCst) > 0
    }

    /// A number for a request.
    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// An identity for a mapping.
    pub(crate) fn next_mapping(&self) -> MappingId {
        MappingId(self.mapping_ids.fetch_add(1, Ordering::Relaxed))
    }

    /// See [`State::generation`].
    pub(crate) fn generation(&self) -> u64 {
        lock(&self.state).generation
    }

    /// Ends the connection when nobody uses it.
    fn close_if_unused(&self) {
        let mut state = lock(&self.state);
        if self.is_used() || state.recovering {
            return;
        }
        state.lose_connection();
        state.session = None;
        state.kinds = Kinds::default();
        let watcher = state.watcher.take();
        drop(state);
        if let Some(wake) = watcher {
            watcher::wake(&wake);
        }
    }
}

/// The right to use a connection; the last one dropped closes it.
pub(crate) struct Lease(&'static Shared);

impl Lease {
    /// Connects to the host of `directory` unless this process is connected already. `may_start`: where no
    /// host answers, one may be started, now and whenever host and keeper died.
    pub(crate) fn connect(directory: &Path, may_start: bool) -> Result<Lease> {
        if !may_start && !directory.join(locate::SOCKET_NAME).exists() {
            let missing = std::io::Error::from_raw_os_error(libc::ENOENT);
            return Err(locate::no_host(directory, &missing));
        }
        let shared = Shared::of(directory);
        let lease = Lease::of(shared);
        if may_start {
            shared.may_start.store(true, Ordering::Relaxed);
        }
        shared.ensure_connected()?;
        Ok(lease)
    }

    fn of(shared: &'static Shared) -> Lease {
        shared.users.fetch_add(1, Ordering::SeqCst);
        Lease(shared)
    }

    /// The connection's home, for threads and handlers that hold no lease.
    pub(crate) fn shared(&self) -> &'static Shared {
        self.0
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        Lease::of(self.0)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.close_if_unused();
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lease").field(&self.0.directory).finish()
    }
}
