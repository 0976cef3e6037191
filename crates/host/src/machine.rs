//! What all objects of a host share: the budget, the evictor, the workers, the counters, and where files lie.

use crate::arriving::Arriving;
use crate::budget::{Budget, Holdings};
use crate::cache::evictor::Pipe;
use crate::cache::{Cache, Evictor, Family, Parent};
use crate::on_way::OnWay;
use crate::patience::{LITTLE, PATIENCE, Patience};
use crate::refuge::Refuge;
use crate::seeing::Seen;
use crate::types::HostTypes;
use crate::watches::Watches;
use crate::workers::{PagerThreads, Share, Workers};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, ObjectId, Result};
use rustix::event::EventfdFlags;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// One host's shared means.
pub struct Machine {
    /// Frames of all controlled objects.
    pub budget: Budget,
    /// Who holds how many of them.
    pub holdings: Arc<Holdings>,
    /// How many of them are on their way to and from pagers that are other processes, and for whom.
    pub arriving: Arc<Arriving>,
    /// The pipes through which frames leave.
    pub evictor: Evictor,
    /// Where bytes are while their frames are taken out of page tables.
    pub refuge: Refuge,
    /// Pages that are on their way home.
    pub on_way: OnWay,
    /// For calls that clients can make wait.
    pub patience: Arc<Patience>,
    /// Threads for what takes long.
    pub workers: Arc<Workers>,
    /// Threads for clients that come back after the death of host and keeper, for whom others wait.
    pub returning: Arc<Workers>,
    /// Threads for locks of objects that hosts share: they wait for other hosts, and must not be in the way of unlocks.
    pub locking: Arc<Workers>,
    /// Threads for faults that must wait, for room or for a disk. Requests wait for pages that are brought here.
    pub bringing: Arc<Workers>,
    /// Threads for what must never wait behind what clients ask for: ends of sessions, evictions, another keeper.
    pub urgent: Arc<Workers>,
    /// Threads that evict before anybody waits for it. They wait for evictions on the urgent ones,
    /// and for clients.
    pub ahead: Arc<Workers>,
    /// Threads for what happens to objects that replicas keep: they wait for other hosts, and nobody else does for them.
    pub scheduling: Arc<Workers>,
    /// What happened so far.
    pub counters: Counters,
    /// What the bytes in its memory mean.
    pub types: Arc<HostTypes>,
    /// The state directory.
    pub directory: PathBuf,
    /// The kernel's name for this boot.
    pub boot_id: String,
    caches: Mutex<Vec<Weak<Cache>>>,
    seen: Mutex<HashMap<u128, Weak<Seen>>>,
    pager_threads: Mutex<HashMap<u32, Weak<PagerThreads>>>,
    /// The share of all objects of root, and of who runs the host, that others have opened.
    pub opened_share: Arc<Share>,
    owner_shares: Mutex<HashMap<u32, Weak<Share>>>,
    /// Users of whom a client did not let its page tables be scanned in time, or its file be
    /// written, when this host took over.
    held_up_by: Mutex<HashSet<u32>>,
    log: Mutex<crate::log::Log>,
    alarm: Alarm,
    /// Objects of explicit coherence of which pages have changed, since the control thread told those who watch them.
    changed: Mutex<HashSet<ObjectId>>,
    /// Somebody has watched one.
    watched: AtomicBool,
    /// Who waits for changes of which bytes.
    pub watches: Watches,
    taking_over: AtomicBool,
    family: OnceLock<Box<dyn Family>>,
}

/// A machine of one cache, in tests of it.
struct Alone;

impl Family for Alone {
    fn cache(&self, _id: ObjectId) -> Result<Arc<Cache>> {
        Err(Error::new(ErrorKind::NotFound, "there are no other objects"))
    }

    fn parent(&self, _id: ObjectId) -> Result<Option<Parent>> {
        Ok(None)
    }

    fn wait_for(&self, _id: ObjectId) -> Result<()> {
        Ok(())
    }

    fn is_broken(&self, _id: ObjectId, _why: &Error) {}
}

/// Threads of each kind that wait for the pagers of one ordinary user's objects.
const PAGER_THREADS: usize = 64;
/// The same of root, and of who runs the host.
const PAGER_THREADS_OF_OWN: usize = 256;

/// Wakes the control thread when something has a deadline, which it otherwise has no reason to look for.
struct Alarm {
    armed: AtomicBool,
    event: OwnedFd,
}

/// What happened since the host process began.
#[derive(Default)]
pub struct Counters {
    /// Faults served.
    pub faults: AtomicU64,
    /// Pages brought in or mapped by them.
    pub installed: AtomicU64,
    /// Pages evicted.
    pub evicted: AtomicU64,
    /// Evicted pages that a writer had touched in the last instant, and that were put back.
    pub rescued: AtomicU64,
    /// Syncs.
    pub syncs: AtomicU64,
}

impl Machine {
    /// The shared means of the host whose state is in `directory`.
    pub fn new(
        directory: &Path,
        boot_id: String,
        budget_pages: u64,
        evictor: Evictor,
        refuge: Refuge,
        on_way: OnWay,
    ) -> Result<Arc<Machine>> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(std::io::Error::from)
            .doing("making an eventfd")?;
        Ok(Arc::new(Machine {
            budget: Budget::new(budget_pages),
            holdings: Arc::default(),
            arriving: Arriving::new(budget_pages),
            evictor,
            refuge,
            on_way,
            patience: Arc::default(),
            workers: Workers::new(64),
            returning: Workers::new(8),
            locking: Workers::new(64),
            bringing: Workers::new(64),
            urgent: Workers::new(32),
            ahead: Workers::new(16),
            scheduling: Workers::new(64),
            counters: Counters::default(),
            types: Arc::default(),
            directory: directory.to_owned(),
            boot_id,
            caches: Mutex::default(),
            seen: Mutex::default(),
            pager_threads: Mutex::default(),
            opened_share: Arc::new(Share::of_user()),
            owner_shares: Mutex::default(),
            held_up_by: Mutex::default(),
            log: Mutex::default(),
            alarm: Alarm { armed: AtomicBool::new(false), event },
            changed: Mutex::default(),
            watched: AtomicBool::new(false),
            watches: Watches::default(),
            taking_over: AtomicBool::new(true),
            family: OnceLock::new(),
        }))
    }

    /// Said once: who knows all objects.
    pub fn set_family(&self, family: Box<dyn Family>) {
        let set = self.family.set(family);
        debug_assert!(set.is_ok(), "it is said once");
    }

    /// Who knows all objects.
    pub fn family(&self) -> &dyn Family {
        self.family.get().map_or(&Alone, |family| &**family)
    }

    /// Whether this host makes a host again of what the one before left: all wait for that.
    pub fn takes_over(&self) -> bool {
        self.taking_over.load(Ordering::Relaxed)
    }

    /// It serves.
    pub fn has_taken_over(&self) {
        self.taking_over.store(false, Ordering::Relaxed);
    }

    /// Something has a deadline from now on: the control thread looks at it every now and then.
    pub fn arm(&self) {
        if !self.alarm.armed.swap(true, Ordering::Relaxed) {
            let _ = rustix::io::write(&self.alarm.event, &1u64.to_ne_bytes());
        }
    }

    /// Somebody watches an object from now on.
    pub fn is_watched(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// Pages of an object are not what they were: the control thread tells those who watch it.
    pub fn has_changed(&self, object: ObjectId) {
        if self.watched.load(Ordering::Relaxed) {
            self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(object);
            let _ = rustix::io::write(&self.alarm.event, &1u64.to_ne_bytes()); // full: it was noticed by nobody yet
        }
    }

    /// The objects of which pages have changed since this was asked last.
    pub fn take_changed(&self) -> HashSet<ObjectId> {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Nothing has a deadline any more, unless [`arm`](Self::arm) says so again.
    pub fn disarm(&self) {
        self.alarm.armed.store(false, Ordering::Relaxed);
    }

    /// The alarm was noticed.
    pub fn hear_alarm(&self) {
        let _ = rustix::io::read(&self.alarm.event, &mut [0; 8]);
    }

    /// Whether something has a deadline.
    pub fn is_armed(&self) -> bool {
        self.alarm.armed.load(Ordering::Relaxed)
    }

    /// Readable when something got a deadline.
    pub fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.event.as_fd()
    }

    /// Makes a cache known, so that it can be asked for frames when others need room.
    pub fn add(&self, cache: &Arc<Cache>) {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        if caches.len() == caches.capacity() {
            caches.retain(|c| c.strong_count() > 0); // looked at only before it grows
            let more = caches.len().max(64);
            caches.reserve(more);
        }
        caches.push(Arc::downgrade(cache));
    }

    /// What is counted of the object of that identity: the same for all who have something of it.
    pub fn seen_of(&self, object: u128) -> Arc<Seen> {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = all.get(&object).and_then(Weak::upgrade) {
            return seen;
        }
        if all.len() == all.capacity() {
            all.retain(|_, seen| seen.strong_count() > 0); // looked at only before it grows
            let more = all.len().max(64);
            all.reserve(more);
        }
        let seen = Arc::<Seen>::default();
        all.insert(object, Arc::downgrade(&seen));
        seen
    }

    /// The threads that wait for the pagers of a user's objects, if those are other processes.
    pub fn pager_threads(&self, uid: u32) -> Arc<PagerThreads> {
        let mut all = self.pager_threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = all.get(&uid).and_then(Weak::upgrade) {
            return threads;
        }
        all.retain(|_, threads| threads.strong_count() > 0);
        let limit = if self.is_ordinary(uid) { PAGER_THREADS } else { PAGER_THREADS_OF_OWN };
        let threads = PagerThreads::new(limit);
        all.insert(uid, Arc::downgrade(&threads));
        threads
    }

    /// The share that a user's objects have of the threads that all objects use, and the user's
    /// clients of those that all clients use; none: as many as there are.
    pub fn share_of_user(&self, uid: u32) -> Option<Arc<Share>> {
        if !self.is_ordinary(uid) {
            return None;
        }
        let mut all = self.owner_shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = all.get(&uid).and_then(Weak::upgrade) {
            return Some(share);
        }
        all.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Share::of_user());
        all.insert(uid, Arc::downgrade(&share));
        Some(share)
    }

    /// Whether a client of that user held this host up when it took over.
    pub fn holds_up(&self, uid: u32) -> bool {
        self.held_up_by.lock().unwrap_or_else(PoisonError::into_inner).contains(&uid)
    }

    /// One did.
    pub fn note_holds_up(&self, uid: u32) {
        self.held_up_by.lock().unwrap_or_else(PoisonError::into_inner).insert(uid);
    }

    /// What comes of what that user's clients can make wait for as long as they like. While this
    /// host takes over everybody waits for it: none, if it takes long, and then it goes on by
    /// itself.
    pub fn soon<T: Send + 'static>(&self, uid: u32, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let Some(share) = self.share_of_user(uid).filter(|_| self.takes_over()) else {
            return Some(job());
        };
        let (tell, told) = sync_channel(1);
        // Nobody hears it any more, where it took too long.
        share.run(&self.workers, move || drop(tell.send(job())));
        let wait = if self.holds_up(uid) { LITTLE } else { PATIENCE };
        told.recv_timeout(wait).inspect_err(|_| self.note_holds_up(uid)).ok()
    }

    /// The pipe by which a user's objects are evicted.
    pub fn pipe_of(&self, uid: u32) -> Result<Arc<Mutex<Pipe>>> {
        self.evictor.pipe_of(Some(uid).filter(|uid| self.is_ordinary(*uid)))
    }

    /// The same, if the host before had it.
    pub fn kept_pipe_of(&self, uid: u32) -> Option<Arc<Mutex<Pipe>>> {
        self.evictor.kept_pipe_of(Some(uid).filter(|uid| self.is_ordinary(*uid)))
    }

    /// The caches that have frames: those of the user who has most first, and of these the one with most. So a user who
    /// fills the budget makes room for others, not they for him.
    pub fn by_size(&self) -> Vec<Arc<Cache>> {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut caches: Vec<_> = caches
            .iter()
            .filter_map(Weak::upgrade)
            .map(|cache| (cache.used_pages(), cache))
            .filter(|(pages, _)| *pages > 0)
            .collect();
        let mut of_user: HashMap<u32, u64> = HashMap::new();
        for (pages, cache) in &caches {
            *of_user.entry(cache.traits.uid).or_default() += pages;
        }
        let rank = |pages: u64, uid: u32| std::cmp::Reverse((of_user.get(&uid).copied(), uid, pages));
        caches.sort_by_key(|(pages, cache)| rank(*pages, cache.traits.uid));
        caches.into_iter().map(|(_, cache)| cache).collect()
    }

    /// Whether the user is neither root nor who runs this host: one of those who may not have everything.
    pub fn is_ordinary(&self, uid: u32) -> bool {
        uid != 0 && uid != rustix::process::geteuid().as_raw()
    }

    /// Pages that a user may hold at once, of all objects.
    pub fn holdable_pages(&self, uid: u32) -> u64 {
        if self.is_ordinary(uid) { self.budget.limit_pages() / 2 } else { u64::MAX }
    }

    /// Where a file of an object lies.
    pub fn path(&self, folder: &str, id: commonhold_object::ObjectId) -> PathBuf {
        self.directory.join(folder).join(id.0.to_string())
    }

    /// The two files of an object's journal.
    pub fn journal_paths(&self, id: commonhold_object::ObjectId) -> [PathBuf; 2] {
        ["a", "b"].map(|side| self.directory.join("journal").join(format!("{}.{side}", id.0)))
    }

    /// One line in the host's log (standard error, which the keeper leads to `log`).
    pub fn log(&self, line: impl std::fmt::Display) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).say(line);
    }
}
