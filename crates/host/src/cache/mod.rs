//! The cache of one controlled object: its frames, who maps them, and which are newer than what is stored.
//!
//! One lock an object (`Inner`) guards the bookkeeping; it is never held across I/O that may wait. What a
//! page is doing while the lock is free is said by sets: `in_flight` (being brought in or evicted: faults on
//! it wait), `writing` in the book (being stored: not evicted).
//!
//! | file | does |
//! |---|---|
//! | `book` | dirty bookkeeping, mirrored on disk |
//! | `view`, `views` | a mapping as the object sees it; all of them |
//! | `fault` | answers one fault |
//! | `deadlines` | waits that have lasted too long |
//! | `bring` | brings pages into memory |
//! | `track` | asks page tables what was written |
//! | `room` | finds room, by evicting from whoever has most |
//! | `evict`, `evictor` | takes frames away; the pipes through which they leave |
//! | `unfinished` | evictions that the host before left in the middle |
//! | `sync`, `atomic`, `stored`, `flushes` | stores; the same, all or nothing; the journal under it; when a flush can be believed |
//! | `stamp` | what others did to the stored object while nobody mapped it |
//! | `hold` | page-holding locks |
//! | `explicit` | of an object under explicit coherence, what is this host's own |
//! | `coherent`, `install` | what the scheduler of an object that hosts share has done to pages here |
//! | `inherited` | what page tables have by grants of the host process before |
//! | `ask` | what it is asked for |
//! | `snapshots` | what snapshots of it have, or must have before a page is written |
//! | `larger` | what of that is about pages of more than 4 KiB |
//! | `telling` | what replicas must hear before a page is written |
//! | `leaving` | what is newest here when nobody here uses it any more |
//! | `memory` | calls on frames, for which writers of them can make the host wait |
//! | `resize`, `recover` | what the names say |

mod ask;
mod asked;
mod atomic;
mod bell;
pub mod book;
mod bring;
pub mod coherent;
mod deadlines;
mod evict;
pub mod evictor;
mod explicit;
mod fault;
mod flushes;
mod hold;
mod inherited;
mod install;
pub mod kept;
mod larger;
mod leaving;
mod losses;
mod memory;
mod moving;
mod recover;
mod resize;
mod room;
mod show;
mod shrink;
mod snapshots;
mod stamp;
pub mod stored;
mod sync;
mod telling;
mod track;
mod troubles;
mod unfinished;
pub mod versions;
pub mod view;
mod views;

pub use evictor::{Evictor, frames_survive_in_pipe};
pub use fault::{Ahead, Answer};
pub use snapshots::{Family, Parent, Read};

use crate::asker::Waits;
use crate::budget::Budget;
use crate::machine::Machine;
use crate::pagers::Pager;
use crate::shared::{Driver, Role};
use crate::spill::Spill;
use crate::workers::{ObjectThreads, Share, Workers};
use book::Book;
use commonhold_object::{ObjectId, PAGE_SIZE_BYTES, PageRange, SessionId, SyncMode, pages_of};
use commonhold_points as points;
use roaring::RoaringBitmap;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};
use view::{Mapping, View, Views};

/// What the cache must know of the object's options.
#[derive(Clone, Debug)]
pub struct Traits {
    /// Against whom it counts.
    pub uid: u32,
    /// What sync promises.
    pub sync: SyncMode,
    /// Writers can be held.
    pub freezable: bool,
    /// Disk space for every page is taken already.
    pub space_reserved: bool,
    /// SIGBUS after this long.
    pub fault_deadline_ms: Option<u32>,
    /// Most frames.
    pub limit_pages: u64,
    /// Another host becomes the home when the home is lost.
    pub home_moves: bool,
}

/// The cache of one controlled object.
pub struct Cache {
    /// Which object.
    pub id: ObjectId,
    /// 128-bit identity, for the journal.
    pub uuid: u128,
    /// Its options.
    pub traits: Traits,
    /// One memfd holds all frames.
    pub frames: Arc<OwnedFd>,
    /// Processes of other users may write to them past the host.
    written_by_others: AtomicBool,
    /// Processes of other users have opened it, at least for reading.
    used_by_others: AtomicBool,
    /// What tells them from others, once it was needed.
    frames_inode: OnceLock<u64>,
    /// Where pages come from.
    pub pager: Box<dyn Pager>,
    machine: Arc<Machine>,
    budget: Budget,
    spill: Mutex<Spill>,
    inner: Mutex<Inner>,
    held: Mutex<hold::Held>,
    settled: bell::Bell,
    /// One sync at a time; the journal belongs to whoever has the turn.
    turn: Mutex<atomic::Turn>,
    /// The stored object is what the last sync made it: nothing is left to be redone.
    whole: AtomicBool,
    /// For what waits for its pager, if that is another process: it may hang, and others shall not notice.
    own_threads: Option<ObjectThreads>,
    /// Its owner's share of the threads that all objects use.
    share: Option<Arc<Share>>,
    /// Its own part of that, for faults that wait for its lock.
    apart: Arc<Share>,
    /// How many faults do.
    apart_faults: AtomicUsize,
    /// Somebody ends waits that are past their deadline.
    pub ends_waits: AtomicBool,
    /// An eviction of it that others asked for has not come to its end.
    leaves_apart: AtomicBool,
    /// Whoever asked for the last of these went on without it.
    left_late: AtomicBool,
    /// How many views there are, for who must not wait for the lock.
    view_count: AtomicUsize,
    /// What was last told, for the same.
    last_numbers: Mutex<Numbers>,
    checkpointing: AtomicBool,
    /// One checkpoint at a time, from flush to reset: a second flush after a failed one would lie.
    checkpoint_turn: Mutex<()>,
    /// One eviction of this object at a time.
    evict_turn: Mutex<()>,
    /// Clients that have newer pages are expected back: nothing may be judged clean until they are.
    incomplete: AtomicBool,
    evicting: AtomicBool,
    /// How much of the budget is of versions that outlive the cache.
    versions: AtomicU64,
    flushes: flushes::Flushes,
    syncs: AtomicU64,
    /// What was counted of it; of an object that hosts share, by all its caches here.
    pub seen: Arc<crate::seeing::Seen>,
    /// Of an object that hosts share: who speaks with its scheduler, and what the frames are.
    driver: OnceLock<(Weak<Driver>, Role)>,
    /// The same since this host became the object's home, if it was not at first.
    as_home: OnceLock<(Weak<Driver>, Role)>,
    /// Of an object that hosts share page by page; zero: not known.
    loss_generation: AtomicU64,
    /// How many pages are one to this host: its processes may use all of them or none.
    host_page: AtomicU64,
    /// Whoever tells replicas what may be newer.
    telling: Mutex<()>,
    this: Weak<Cache>,
}

/// The bookkeeping.
struct Inner {
    machine: Arc<Machine>,
    has_deadline: bool,
    size_bytes: u64,
    resident: RoaringBitmap,
    in_flight: RoaringBitmap,
    /// Pages for which no thread was free yet, a part of `in_flight`: whoever must wait for one brings it.
    queued: RoaringBitmap,
    /// Pages that an eviction is saving at this moment, without the lock: a part of `in_flight`.
    leaving: RoaringBitmap,
    /// Those of them that were found written since: they stay.
    touched: RoaringBitmap,
    /// A sync waits for the end of an eviction: no other begins before it.
    sync_waits: bool,
    book: Book,
    views: Views,
    /// Dirty pages whose last writer unmapped them in order while readers still mapped them: the last of those stores
    /// them. The next host does not know them: they stay in memory until a sync.
    left_in_order: RoaringBitmap,
    /// What sessions ask their object's home to hold, and do not hold yet.
    asking: Vec<(SessionId, PageRange)>,
    /// Faults that wait for pages in flight, or for the end of a freeze.
    waiting: Vec<Waiting>,
    /// Frames in the order in which they came: what is evicted first.
    order: VecDeque<PageRange>,
    frozen: bool,
    /// Of explicit coherence: another host's sync is being looked at, first writes wait.
    writers_stopped: bool,
    /// Pages from here on are being given up, because the object shrinks: who touches one waits.
    closing: u64,
    /// Of another host's object: it is about to grow, and other hosts may write past the end before this one.
    grows: bool,
    /// Syncs that replaced another host's version which nobody here had seen.
    conflicts: u64,
    /// Addresses that were given SIGBUS: after a while the client may ask again.
    refused: Vec<Refused>,
    /// State of the stored object when nobody mapped it any more; none if it cannot be known.
    stamp: Option<stamp::Seen>,
    /// Pages that cannot be had, for `stat`.
    troubles: troubles::Troubles,
    /// How often pages could not be had, and which they were the last time, and why.
    failures: u64,
    last_failure: Option<(PageRange, commonhold_object::Error)>,
    /// Of an object that hosts share: what may be done here with which pages.
    rights: Option<coherent::Rights>,
    /// A thread tells replicas what may be newer, and looks again.
    is_telling: bool,
    /// Its snapshots that may lack pages.
    children: Vec<snapshots::Child>,
    /// Pages whose writers wait until those have them.
    giving: RoaringBitmap,
    /// Pages that some mapping under synchronous protection may be able to write without a fault: those that were written since
    /// the last instant that held them, and all frames of the host before.
    unprotected: RoaringBitmap,
}

struct Waiting {
    mapping: Arc<Mapping>,
    page: u32,
    write: bool,
    since: Instant,
    _counted: Waits,
}

/// A page of a mapping whose touch was answered with SIGBUS.
struct Refused {
    session: SessionId,
    address: u64,
    since: Instant,
}

/// How long others' threads wait for an object's lock.
const SOON: Duration = Duration::from_micros(500);

/// Numbers for `stat`.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Frames in memory.
    pub resident_pages: u64,
    /// Pages newer than what is stored.
    pub dirty_pages: u64,
    /// Pages in the spill file.
    pub spilled_pages: u64,
    /// Views.
    pub views: u64,
    /// Warning for people.
    pub warning: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    /// A cache over `frames` with the book `book`. Frames that exist already are taken to be resident.
    #[allow(clippy::too_many_arguments, reason = "made in one place, from parts that have no other home")]
    pub fn new(
        machine: Arc<Machine>,
        id: ObjectId,
        uuid: u128,
        traits: Traits,
        size_bytes: u64,
        frames: Arc<OwnedFd>,
        pager: Box<dyn Pager>,
        book: Book,
        spill: Spill,
    ) -> Arc<Cache> {
        let own_threads = pager.may_block().then(|| ObjectThreads::new(machine.pager_threads(traits.uid)));
        let loss_generation = AtomicU64::new(book.live().loss_generation());
        Arc::new_cyclic(|this| Cache {
            this: this.clone(),
            loss_generation,
            telling: Mutex::default(),
            id,
            uuid,
            frames,
            written_by_others: AtomicBool::new(false),
            used_by_others: AtomicBool::new(false),
            frames_inode: OnceLock::new(),
            pager,
            budget: Budget::new(traits.limit_pages),
            spill: Mutex::new(spill),
            inner: Mutex::new(Inner {
                machine: machine.clone(),
                has_deadline: traits.fault_deadline_ms.is_some(),
                size_bytes,
                resident: RoaringBitmap::new(),
                in_flight: RoaringBitmap::new(),
                queued: RoaringBitmap::new(),
                leaving: RoaringBitmap::new(),
                touched: RoaringBitmap::new(),
                sync_waits: false,
                book,
                views: Views::default(),
                left_in_order: RoaringBitmap::new(),
                asking: Vec::new(),
                waiting: Vec::new(),
                order: VecDeque::new(),
                frozen: false,
                writers_stopped: false,
                closing: u64::MAX,
                grows: false,
                conflicts: 0,
                refused: Vec::new(),
                stamp: None,
                troubles: troubles::Troubles::default(),
                failures: 0,
                last_failure: None,
                rights: None,
                is_telling: false,
                children: Vec::new(),
                giving: RoaringBitmap::new(),
                unprotected: RoaringBitmap::new(),
            }),
            held: Mutex::default(),
            settled: bell::Bell::default(),
            turn: Mutex::default(),
            whole: AtomicBool::new(false),
            own_threads,
            share: machine.share_of_user(traits.uid),
            apart: Arc::default(),
            apart_faults: AtomicUsize::new(0),
            ends_waits: AtomicBool::new(false),
            leaves_apart: AtomicBool::new(false),
            left_late: AtomicBool::new(false),
            view_count: AtomicUsize::new(0),
            last_numbers: Mutex::default(),
            checkpointing: AtomicBool::new(false),
            checkpoint_turn: Mutex::default(),
            evict_turn: Mutex::default(),
            incomplete: AtomicBool::new(false),
            evicting: AtomicBool::new(false),
            versions: AtomicU64::new(0),
            flushes: flushes::Flushes::default(),
            syncs: AtomicU64::new(0),
            seen: machine.seen_of(uuid),
            driver: OnceLock::new(),
            as_home: OnceLock::new(),
            host_page: AtomicU64::new(1),
            machine,
            traits,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// The lock, if it can be had at once or nearly so. Who holds it may wait for a client, and
    /// that for ever: a thread that serves others too takes it so.
    fn lock_soon(&self) -> Option<MutexGuard<'_, Inner>> {
        let begun = Instant::now();
        loop {
            match self.inner.try_lock() {
                Ok(inner) => return Some(inner),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() < SOON => std::thread::yield_now(),
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// Waits until some pages left `in_flight`, or for a short while.
    fn wait_settled<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.settled.wait(inner, Duration::from_millis(50))
    }

    /// Does what may wait for the pager, as a job of `of` if that is given.
    pub fn run_request(&self, of: Option<Arc<Share>>, job: impl FnOnce() + Send + 'static) {
        match (&self.own_threads, of) {
            (Some(own), of) => own.run_request(of, job),
            (None, Some(of)) => of.run(&self.machine.workers, job),
            (None, None) => self.run_on(&self.machine.workers, job),
        }
    }

    /// Answers a fault that must wait.
    fn run_fault(&self, job: impl FnOnce() + Send + 'static) {
        match &self.own_threads {
            Some(own) => own.run_fault(job),
            None => self.run_on(&self.machine.bringing, job),
        }
    }

    /// Does what may wait for this object on threads that other objects use too: no more of them
    /// than its owner's share.
    fn run_on(&self, pool: &Arc<Workers>, job: impl FnOnce() + Send + 'static) {
        match self.share_now() {
            Some(share) => share.run(pool, job),
            None => pool.run(job),
        }
    }

    /// Says whether clients with newer pages of this object are expected back (host and keeper died at once).
    pub fn set_incomplete(&self, incomplete: bool) {
        self.incomplete.store(incomplete, Ordering::SeqCst);
    }

    /// Whether they are: then nothing is evicted, reverted or trimmed.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::SeqCst)
    }

    /// Size of the object in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.lock().size_bytes
    }

    /// Numbers for people. Who holds the lock may wait for a client: then those that were told last.
    pub fn numbers(&self) -> Numbers {
        let Some(inner) = self.lock_soon() else { return lock(&self.last_numbers).clone() };
        let numbers = Numbers {
            resident_pages: inner.resident.len(),
            dirty_pages: inner.book.dirty_pages(),
            spilled_pages: inner.book.spilled().len(),
            views: inner.views.len() as u64,
            warning: inner.troubles.warning(),
        };
        drop(inner);
        *lock(&self.last_numbers) = numbers.clone();
        numbers
    }

    /// Frees room in both budgets.
    fn give_back(&self, pages: u64) {
        self.budget.give(pages);
        self.machine.budget.give(pages);
    }

    /// Takes room in both budgets, or in neither.
    fn try_take(&self, pages: u64) -> bool {
        if !self.budget.try_take(pages) {
            return false;
        }
        if !self.machine.budget.try_take(pages) {
            self.budget.give(pages);
            return false;
        }
        true
    }

    /// Frames in memory now.
    pub fn used_pages(&self) -> u64 {
        self.budget.used_pages()
    }

    /// Ends the cache of a removed object: its files go, the frames go with the last descriptor.
    pub fn discard(&self) {
        // What the journal holds for the file must be in the file before the journal goes.
        if let Err(error) = self.checkpoint_all() {
            self.machine.log(format_args!("object {}: its last checkpoint: {error}", self.id.0));
            return;
        }
        lock(&self.spill).remove();
        let _ = std::fs::remove_file(self.lock().book.live().path());
        lock(&self.turn).remove_files();
    }
}

impl Drop for Cache {
    /// Whatever still brought pages in held the cache until now.
    fn drop(&mut self) {
        self.machine.budget.give(self.budget.used_pages() - self.versions.load(Ordering::Relaxed));
    }
}

impl Inner {
    fn size_pages(&self) -> u64 {
        pages_of(self.size_bytes)
    }

    fn whole(&self) -> PageRange {
        PageRange::new(0, self.size_pages())
    }
}

/// The parts of `whole` outside `hole`.
pub fn without(whole: PageRange, hole: PageRange) -> Vec<PageRange> {
    let before = PageRange::new(whole.first, hole.first.clamp(whole.first, whole.end()) - whole.first);
    let after_first = hole.end().clamp(whole.first, whole.end());
    let after = PageRange::new(after_first, whole.end() - after_first);
    [before, after].into_iter().filter(|r| !r.is_empty()).collect()
}

/// Bytes of a run of frames, into `buffer`.
fn read_frames(frames: &OwnedFd, first_page: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(frames, &mut buffer[done..], first_page * PAGE_SIZE_BYTES + done as u64) {
            Ok(0) => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Bytes into a run of frames, which come into being.
fn write_frames(frames: &OwnedFd, first_page: u64, data: &[u8]) -> std::io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match points::pwrite(|| {
            rustix::io::pwrite(frames, &data[done..], first_page * PAGE_SIZE_BYTES + done as u64)
        }) {
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
