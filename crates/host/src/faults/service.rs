//! The fault threads: each serves the userfaultfds of many clients from one epoll set.
//!
//! An answer may wait for as long as a client likes: calls about its address space wait for a lock
//! that it can hold (`docs/SECURITY.md`, "Locks that clients hold"). So each ordinary user has
//! threads of their own, which come with the first client and leave with the last.
//!
//! Waking a sleeping thread costs more than serving a fault, so after a fault a thread looks again for a few
//! tens of microseconds before it sleeps. It stops doing so when that does not pay (adaptive), and an idle host
//! uses no processor at all.

use super::space::{AddressSpace, Served};
use crate::cache::Ahead;
use crate::machine::Machine;
use crate::waiting::serves_all;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use commonhold_sys::slice;
use commonhold_sys::userfaultfd::{Fault, Userfaultfd};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Longest look before a thread sleeps.
const SPIN: Duration = Duration::from_micros(60);
/// After so many looks in vain a thread sleeps at once, until faults come close together again.
const VAIN_LIMIT: u32 = 16;

/// While faults come without a pause, what was promised to sequential readers goes on every so many rounds.
const AHEAD_EVERY: u32 = 4;
/// Of more clusters what is not owed to anybody is not remembered.
const MOST_AHEAD: usize = 64;

/// One userfaultfd and whose it is.
struct Source {
    space: Arc<AddressSpace>,
    uffd: Arc<Userfaultfd>,
    /// Its owner made it a blocking one, which cannot be polled, once before.
    mended: AtomicBool,
}

/// What a thread shares with those who add and remove clients.
struct Shared {
    machine: Arc<Machine>,
    epoll: OwnedFd,
    sources: RwLock<HashMap<u64, Arc<Source>>>,
    /// Written to when nothing is left to serve, and the thread may leave.
    leave: OwnedFd,
    place: Place,
    /// All threads, of which it is one until it leaves. One that waits for a client is not replaced
    /// by another.
    all: Threads,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The token of `leave`.
const LEAVE: u64 = u64::MAX;

/// Whose a thread is (none: of root and of who runs the host), and which of theirs.
type Place = (Option<u32>, usize);

type Threads = Arc<Mutex<HashMap<Place, Arc<Shared>>>>;

/// All fault threads.
pub struct FaultService {
    machine: Arc<Machine>,
    /// So many of each user, at most.
    of_each: usize,
    threads: Threads,
    next: AtomicU64,
}

/// A userfaultfd that is served, for [`FaultService::remove`].
#[derive(Clone, Copy, Debug)]
pub struct Token {
    number: u64,
    place: Place,
}

impl FaultService {
    /// One of at most so many threads for each user.
    pub fn new(of_each: usize, machine: &Arc<Machine>) -> FaultService {
        let of_each = of_each.max(1);
        FaultService {
            machine: machine.clone(),
            of_each,
            threads: Threads::default(),
            next: AtomicU64::new(0),
        }
    }

    /// Serves the faults of `uffd`, whose client is of that user, from now on.
    pub fn add(&self, space: Arc<AddressSpace>, uffd: Arc<Userfaultfd>, uid: u32) -> Result<Token> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let user = Some(uid).filter(|uid| self.machine.is_ordinary(*uid));
        let place = (user, number as usize % self.of_each);
        let mut threads = lock(&self.threads);
        let shared = match threads.get(&place) {
            Some(shared) => shared.clone(),
            None => {
                let shared = Shared::start(&self.machine, place, &self.threads)?;
                threads.entry(place).or_insert(shared).clone()
            }
        };
        let source = Arc::new(Source { space, uffd: uffd.clone(), mended: AtomicBool::new(false) });
        shared.sources().insert(number, source);
        let added = epoll::add(&shared.epoll, &*uffd, EventData::new_u64(number), EventFlags::IN);
        let token = Token { number, place };
        added.map(|()| token).map_err(|errno| {
            drop(threads);
            self.remove(token);
            Error::new(ErrorKind::Io, format!("watching a userfaultfd: {errno}"))
        })
    }

    /// Stops serving it. A user's thread that has nothing left to serve leaves.
    pub fn remove(&self, token: Token) {
        let Some(shared) = lock(&self.threads).get(&token.place).cloned() else { return };
        shared.remove(token.number);
        if token.place.0.is_some() && shared.sources().is_empty() {
            // It fails only where it was written to 2⁶⁴ times without being read.
            let _ = rustix::io::write(&shared.leave, &1u64.to_ne_bytes()); // then it is readable
        }
    }
}

impl Shared {
    /// Starts a thread.
    fn start(machine: &Arc<Machine>, place: Place, all: &Threads) -> Result<Arc<Shared>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).doing("creating an epoll set")?;
        let leave = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(std::io::Error::from)
            .doing("making an eventfd")?;
        epoll::add(&epoll, &leave, EventData::new_u64(LEAVE), EventFlags::IN)
            .map_err(std::io::Error::from)
            .doing("watching an eventfd")?;
        let (machine, all, sources) = (machine.clone(), all.clone(), RwLock::default());
        let shared = Arc::new(Shared { machine, epoll, sources, leave, place, all });
        let this = shared.clone();
        // The kernel keeps 15 letters.
        let name = match place {
            (None, n) => format!("faults-{n}"),
            (Some(uid), n) => format!("f{n}-{uid}"),
        };
        points::thread(|| std::thread::Builder::new().name(name).spawn(move || Thread::new(this).run()))
            .map_err(|e| Error::io("starting a fault thread", &e))?;
        Ok(shared)
    }

    fn sources(&self) -> RwLockWriteGuard<'_, HashMap<u64, Arc<Source>>> {
        self.sources.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this thread may leave: nothing is left to serve, and nothing comes any more.
    fn leaves(&self) -> bool {
        let _ = rustix::io::read(&self.leave, &mut [0; 8]); // it may have been read before
        let mut all = lock(&self.all);
        let leaves = self.sources().is_empty();
        if leaves {
            all.remove(&self.place);
        }
        leaves
    }

    fn remove(&self, token: u64) {
        let source = self.sources().remove(&token);
        if let Some(source) = source {
            let _ = epoll::delete(&self.epoll, &*source.uffd);
        }
    }

    /// The descriptor cannot be polled: its owner cleared O_NONBLOCK. Done by mistake, it is set again; done again,
    /// its owner keeps this thread from sleeping, and is not served any more.
    fn mend(&self, token: u64, source: &Source) {
        if !source.mended.swap(true, Ordering::Relaxed) && source.uffd.set_nonblocking().is_ok() {
            return;
        }
        self.machine.log("a client's userfaultfd cannot be polled: its faults are not served any more");
        self.remove(token);
    }
}

/// The state of one fault thread.
struct Thread {
    shared: Arc<Shared>,
    faults: Vec<Fault>,
    ahead: VecDeque<Ahead>,
    /// Where the last fault came from: looked at most often.
    hot: Option<Arc<Source>>,
    vain: u32,
    looks: u32,
    last_fault: Instant,
    /// Nothing is left to serve.
    leaves: bool,
}

impl Thread {
    fn new(shared: Arc<Shared>) -> Self {
        Thread {
            shared,
            faults: Vec::new(),
            ahead: VecDeque::new(),
            hot: None,
            vain: 0,
            looks: 0,
            last_fault: Instant::now(),
            leaves: false,
        }
    }

    fn run(mut self) {
        // Without it faults beside a busy program take longer; that is no reason to do without them.
        let _ = slice::ask_for_short();
        let mut busy = 0u32;
        while !self.leaves {
            let found = if self.ahead.is_empty() { self.spin() || self.wait(true) } else { self.wait(false) };
            busy = if found { busy + 1 } else { 0 };
            if !busy.is_multiple_of(AHEAD_EVERY) {
                continue;
            }
            // Nobody waits at the moment, or somebody always does: go on with what sequential readers will want next,
            // and may be waiting for by now.
            if let Some(ahead) = self.ahead.pop_front()
                && let Some(rest) = ahead.go_on()
            {
                self.ahead.push_back(rest);
            }
        }
    }

    /// Takes what the epoll set has; whether there was a fault.
    fn wait(&mut self, sleep: bool) -> bool {
        let mut events = [const { Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 32];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if sleep { None } else { Some(&zero) };
        // An error is an interruption: nothing came.
        let count = epoll::wait(&self.shared.epoll, &mut events[..], timeout).unwrap_or(0);
        let mut found = false;
        for event in &events[..count] {
            let sources = self.shared.sources.read().unwrap_or_else(PoisonError::into_inner);
            let source = sources.get(&event.data.u64()).cloned();
            drop(sources);
            self.leaves |= event.data.u64() == LEAVE && self.shared.leaves();
            if let Some(source) = source {
                let flags = event.flags; // the kernel's structure is packed
                if flags.contains(EventFlags::ERR) {
                    self.shared.mend(event.data.u64(), &source);
                }
                found |= self.serve(&source);
            }
        }
        found
    }

    /// Reads and answers what waits at one source.
    fn serve(&mut self, source: &Arc<Source>) -> bool {
        let _serves_all = serves_all();
        let mut faults = std::mem::take(&mut self.faults);
        let found = source.uffd.read_faults(&mut faults).is_ok() && !faults.is_empty();
        let mut answered = false;
        for fault in &faults {
            let served = source.space.serve(&source.uffd, *fault);
            answered |= !matches!(served, Served::Elsewhere);
            match served {
                Served::Done | Served::Elsewhere => {}
                Served::Ahead(ahead) if ahead.is_owed() || self.ahead.len() < MOST_AHEAD => {
                    self.ahead.push_back(ahead);
                }
                Served::Ahead(_) => {} // who wants it faults
                Served::Parked => self.shared.machine.arm(),
            }
        }
        self.faults = faults;
        if found {
            let now = Instant::now();
            if now - self.last_fault < SPIN {
                self.vain = 0;
            }
            self.last_fault = now;
            // Whoever waits for another host faults again only when that has answered: looking for it would take the
            // processor from those who bring the answer.
            self.hot = answered.then(|| source.clone());
        }
        found
    }

    /// Looks for the next fault for a while; whether one came and was served.
    fn spin(&mut self) -> bool {
        let Some(hot) = self.hot.take() else { return false };
        if self.vain >= VAIN_LIMIT {
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < SPIN {
            self.looks = self.looks.wrapping_add(1);
            // The hot one mostly, all of them now and then, also where faults come without a pause.
            let found = if self.looks.is_multiple_of(8) { self.wait(false) } else { self.serve(&hot) };
            if found {
                self.vain = 0;
                return true;
            }
            std::hint::spin_loop();
        }
        self.vain += 1;
        false
    }
}
