//! One shared object at this host: events go to its scheduler, one at a time, and what that wants done is done before the
//! next (`turn`).

use super::dealt_with::HeldBack;
use super::freezing::PutOff;
use super::give_back::OnTheirWay;
use super::held_here::Kept;
use super::holds::Held;
use super::inbox::{Inbox, Later, Touch};
use super::late::Late;
use super::outbox::Outbox;
use super::part::{How, Part, Said};
use super::size::SizeKnown;
use super::turn::{Came, Parked, Turn, first_stamp};
use super::users::Users;
use super::{About, Carrier, Role, Sizes};
use crate::cache::Cache;
use crate::cache::kept::Lent;
use crate::cache::versions::Version;
use crate::clock::Clock;
use crate::handovers::Handovers;
use crate::machine::Machine;
use crate::seeing::Seen;
use crate::waiting::may_wait;
use commonhold_coherence::{Action, Event, HostId, Span, Why};
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, PageRange, Result};
use commonhold_tags::Types;
use roaring::RoaringBitmap;
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

/// Pages of 4 KiB of one message: twice what any host asks for.
pub(super) const MOST_PAGES: u32 = 1024;
pub(super) const PAGE: usize = PAGE_SIZE_BYTES as usize;

/// How long a thread that others need waits for the lock of an object's state.
const SOON: Duration = Duration::from_micros(500);

/// How an object is shared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its identity in the cluster.
    pub object: u128,
    /// This host.
    pub me: HostId,
    /// Whether this host is the object's home: it keeps the name, the pager and, but under forwarding, the scheduler.
    pub is_home: bool,
    /// Its size in pages of 4 KiB, as this host begins with it.
    pub pages: u64,
    /// What pages are to its scheduler, and to this host.
    pub sizes: Sizes,
    /// How.
    pub how: How,
    /// A page that was granted stays this long, so that the instruction that faulted retires.
    pub hold: Duration,
    /// Another host becomes the home when the home is lost.
    pub home_moves: bool,
    /// Other hosts keep what the home has stored: it waits for them.
    pub is_replicated: bool,
}

/// One object.
pub struct Driver {
    pub(super) plan: Plan,
    pub(super) carrier: Arc<dyn Carrier>,
    pub(super) clock: Arc<Clock>,
    pub(super) machine: Arc<Machine>,
    /// What is counted of it.
    pub(super) seen: Arc<Seen>,
    /// What is in its pages.
    pub(super) types: RwLock<Types>,
    state: Mutex<State>,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    /// What processes of this host map. Of explicit coherence none, while nobody uses the object at its home.
    cache: RwLock<Weak<Cache>>,
    /// At the home: the saved copies. The same cache, but under explicit coherence.
    saved: Weak<Cache>,
    /// At the home: whose syncs are being stored.
    pub(super) storing: Mutex<VecDeque<HostId>>,
    /// This host must do nothing with the object any more.
    pub(super) fenced: AtomicBool,
    /// With which process of the home this host speaks of the object, or spoke last: plus one; 0: with none yet.
    speaks_with: AtomicU64,
    /// Of forwarding: this host ends, and asks for nothing any more.
    pub(super) ends: AtomicBool,
    pub(super) size: SizeKnown,
    /// At the home: since when this process lets hosts use the object.
    pub(super) begun_at: OnceLock<Instant>,
    /// At the home: whoever freezes the object.
    pub(super) freezing: Mutex<()>,
    /// At another host: whoever looks for the home.
    pub(super) seeking: Mutex<()>,
    /// At the home: of which pages an older version serves.
    pub(super) reverted: AtomicU64,
    /// Frames of lost pages, as they were counted last.
    pub(super) lost: AtomicU64,
    /// At another host, of forwarding: what its next process is to know.
    pub(super) handovers: Option<Handovers>,
}

/// Who schedules, and this host's part of it.
pub(super) struct State {
    /// None while it is not known: whoever touches a page waits.
    pub home: Option<HostId>,
    /// This host has left the object off, and only says so to whoever asks.
    pub has_left: bool,
    pub part: Part,
    /// Pages within their minimum hold.
    pub held: Held,
    /// Bytes of syncs whose turn has not come.
    pub kept: VecDeque<Came>,
    /// Of forwarding: what was handed over and is kept (`crate::handovers`), in case it does not arrive or its newest version
    /// is lost.
    pub sent: HashMap<u32, Version>,
    /// Room for what the scheduler wants done, between its turns.
    pub actions: Vec<Action<Said>>,
    /// This host's syncs under way: who waits for each, and which pages it is of.
    pub syncs: VecDeque<(Sender<Result<()>>, RoaringBitmap)>,
    /// Pages that came when the object had shrunk: they go as soon as they may.
    pub late: Late,
    /// At the home: a turn that cannot go on now.
    pub parked: Option<Box<Parked>>,
    /// Something could not be done that the scheduler counts as done: it hears nothing more until this host begins anew.
    pub stuck: bool,
    /// At the home, explicit: not all pages of the sync that comes to its end could be kept.
    pub not_kept: bool,
    /// Something that may be old could not be taken out of page tables.
    pub keeps_old: bool,
    /// Pages that are held here.
    pub held_here: Kept,
    /// At the home: what waits for the end of a freeze.
    pub put_off: PutOff,
    /// What waits until the home has dealt with what it was sent.
    pub held_back: HeldBack,
    /// How often it was begun to speak with a home.
    pub beginnings: u64,
    /// At another host: who uses the object here, as the home was told.
    pub users: Users,
    /// At a home that has not begun: what the process before had lent, and nobody has given back yet.
    pub lent: Lent,
    /// At such a home, of forwarding: what was on its way between others.
    pub on_their_way: OnTheirWay,
    /// At the home: of the last grant.
    pub stamp: u64,
    /// At another host: which home granted what is here, and was not told that it is given up.
    pub granted_by: Option<HostId>,
}

impl Plan {
    pub(super) fn part(&self, home: HostId) -> Part {
        self.how.part(self.me, home, !self.hold.is_zero())
    }

    /// What the frames are that processes of this host map.
    pub(super) fn role(&self) -> Role {
        match (self.how, self.is_home) {
            (How::Central(_), true) => Role::Saved,
            (How::Forwarding(_), true) => Role::Origin,
            (How::Central(_) | How::Forwarding(_), false) => Role::Copies,
            (How::Explicit, _) => Role::Own,
        }
    }
}

impl Driver {
    /// The driver of an object whose cache is `cache`. Its home is to be said; if it is this host, when it may begin, and what
    /// the process before had lent.
    pub fn start(
        plan: Plan,
        carrier: Arc<dyn Carrier>,
        clock: Arc<Clock>,
        cache: &Arc<Cache>,
        lent: Lent,
        handovers: Option<Handovers>,
    ) -> Arc<Driver> {
        let part = plan.part(plan.me);
        let size = SizeKnown::new(plan.pages);
        let state = State {
            home: None,
            has_left: false,
            part,
            held: Held::default(),
            kept: VecDeque::new(),
            sent: HashMap::new(),
            actions: Vec::new(),
            syncs: VecDeque::new(),
            late: Late::default(),
            parked: None,
            stuck: false,
            not_kept: false,
            keeps_old: false,
            held_here: Kept::default(),
            put_off: PutOff::default(),
            held_back: HeldBack::default(),
            beginnings: 0,
            users: Users::default(),
            lent,
            on_their_way: OnTheirWay::default(),
            stamp: first_stamp(),
            granted_by: None,
        };
        cache.seen.is_scheduled(plan.sizes.page(), plan.pages);
        let apart = plan.is_home && plan.how == How::Explicit;
        let driver = Arc::new(Driver {
            saved: if plan.is_home { Arc::downgrade(cache) } else { Weak::new() },
            cache: RwLock::new(if apart { Weak::new() } else { Arc::downgrade(cache) }),
            plan,
            carrier,
            clock,
            machine: cache.machine().clone(),
            seen: cache.seen.clone(),
            types: RwLock::default(),
            state: state.into(),
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            storing: Mutex::default(),
            fenced: AtomicBool::new(false),
            speaks_with: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            size,
            begun_at: OnceLock::new(),
            freezing: Mutex::default(),
            seeking: Mutex::default(),
            reverted: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            handovers,
        });
        if !apart {
            cache.share(&driver, driver.plan.role());
        }
        if driver.plan.is_home && driver.plan.how != How::Explicit && cache.loss_generation() == 0 {
            driver.has_losses(); // it is new, or what was known of it is lost
        }
        driver
    }

    /// What processes of this host map from now on: of explicit coherence at the home, and of forwarding where the object
    /// is used again.
    pub fn attach(self: &Arc<Self>, cache: &Arc<Cache>) {
        let mut state = self.state();
        if self.handovers.is_some()
            && let Err(error) = cache.is_held_by(self.plan.me)
        {
            cache.report(&error);
        }
        *self.cache.write().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(cache);
        self.fail_syncs(&mut state); // of a use that ended
        state.users.are_gone();
        self.begin_anew(&mut state);
        self.put_back(&mut state, cache);
        drop(state);
        cache.share(self, self.plan.role());
    }

    /// Nobody here uses the object any more. Whether this goes on without: of explicit coherence at the home, and of
    /// forwarding, because requests of others may come by here.
    pub fn detach(&self) -> bool {
        let goes_on = match self.plan.how {
            How::Explicit => self.plan.is_home,
            How::Forwarding(_) => !self.plan.is_home,
            How::Central(_) => false,
        };
        if !goes_on {
            return false;
        }
        let mut state = self.state();
        *self.cache.write().unwrap_or_else(PoisonError::into_inner) = Weak::new();
        if let Part::Explicit(node) = &mut state.part {
            node.begin_anew([]);
        }
        true
    }

    /// Whether it may be used here again without beginning anew: under forwarding, once it was.
    pub fn goes_on(&self) -> bool {
        matches!(self.plan.how, How::Forwarding(_)) && !self.plan.is_home
    }

    /// Where the object ends for processes of this host, in frames: they ask for nothing behind it.
    pub(super) fn end(&self) -> u64 {
        self.size.end()
    }

    /// Up to where messages may speak of it, in frames. A page that ends behind it is sent without what is.
    pub(super) fn room(&self) -> u64 {
        self.size.room()
    }

    /// The frames of scheduler pages.
    pub(super) fn frames(&self, span: Span) -> PageRange {
        self.plan.sizes.frames(span, self.room())
    }

    /// How many frames those scheduler pages have.
    pub(super) fn count_frames(&self, pages: &[u32]) -> u64 {
        pages.iter().map(|page| self.frames(Span::one(*page)).count).sum()
    }

    /// How far pages of this host reach around those frames.
    pub(super) fn reach(&self, frames: PageRange) -> PageRange {
        self.plan.sizes.reach(frames, self.end())
    }

    /// Whether this host is the object's home.
    pub fn is_home(&self) -> bool {
        self.plan.is_home
    }

    /// How it is shared.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A process of this host touched pages without the right to.
    pub fn fault(self: &Arc<Self>, pages: PageRange, touch: Touch) {
        if self.ends.load(Ordering::SeqCst) {
            return; // it waits for the next process of this host
        }
        let at_once = if self.plan.is_home { self.home_turn_at_once([pages]) } else { Some(self.state()) };
        match at_once {
            Some(mut state) => self.do_now(&mut state, Later::Fault(pages, touch)),
            None => drop(self.later(Later::Fault(pages, touch))), // without bytes nothing is refused
        }
    }

    /// The minimum hold of some page is over, and somebody waits for it.
    pub(super) fn hold_over(self: &Arc<Self>) {
        let at_once = if self.plan.is_home { self.home_turn_at_once([]) } else { Some(self.state()) };
        match at_once {
            Some(mut state) => self.do_now(&mut state, Later::HoldOver),
            None => drop(self.later(Later::HoldOver)), // as above
        }
    }

    /// At the home: pages whose newest version is lost serve again, from the version before. Gives how many they were.
    pub fn revert(self: &Arc<Self>) -> u64 {
        let Some(cache) = self.saved() else { return 0 };
        let mut state = self.state();
        let reverted = match &mut state.part {
            Part::Central(node) => node.revert(),
            Part::Forwarding(node) => {
                let lost = node.lost_pages();
                Turn::take(self, &mut state, Event::Revert, Vec::new());
                return self.count_frames(&lost);
            }
            Part::Explicit(_) => return 0,
        };
        reverted.iter().for_each(|page| cache.returned(self.frames(Span::one(*page))));
        let frames = self.count_frames(&reverted);
        self.older_serve(frames);
        frames
    }

    pub(super) fn state(&self) -> Locked<'_> {
        if self.plan.is_home {
            may_wait("a wait for a turn of an object's home");
        }
        self.state_after_all()
    }

    /// The same for a thread that others need, which waits for a turn that takes long: only for what is asked seldom, and
    /// known nowhere else.
    pub(super) fn state_after_all(&self) -> Locked<'_> {
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { driver: self, guard: Some(guard) }
    }

    /// The same, unless somebody has it for long: a turn that waits for a page, or for another host.
    pub(super) fn state_soon(&self) -> Option<Locked<'_>> {
        let begun = Instant::now();
        loop {
            let guard = match self.state.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if begun.elapsed() < SOON => {
                    std::thread::yield_now();
                    continue;
                }
                Err(TryLockError::WouldBlock) => return None,
            };
            return Some(Locked { driver: self, guard: Some(guard) });
        }
    }

    /// This host begins anew with the object, or stops: what it has not said it does not say.
    pub(super) fn forget_conversation(&self, state: &mut State) {
        state.sent.clear();
        state.put_off.clear();
        state.held = Held::default();
        state.held_back.clear();
        state.late.clear();
        state.parked = None;
        state.stuck = false;
        self.outbox.clear();
    }

    /// At another host, of forwarding: what its next process is to know.
    pub fn handovers(&self) -> Option<&Handovers> {
        self.handovers.as_ref()
    }

    /// What processes of this host map.
    pub(super) fn cache(&self) -> Option<Arc<Cache>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// The saved copies, at the home.
    pub fn saved(&self) -> Option<Arc<Cache>> {
        self.saved.upgrade()
    }

    /// A hold is over then that somebody waits for.
    pub(super) fn holds_end_at(self: &Arc<Self>, when: Instant) {
        let this = Arc::downgrade(self);
        self.clock.at(when, move || {
            if let Some(this) = this.upgrade() {
                this.hold_over();
            }
        });
    }

    /// What is seen of the object.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The only way to other hosts: said when the lock of the state is let go.
    pub(super) fn say(&self, _locked: &State, to: HostId, message: Said, bytes: Vec<u8>) {
        self.seen.said(self.plan.me, to, &message);
        self.outbox.push(to, vec![message], bytes);
    }

    /// The same of several messages, with the bytes of all of them.
    pub(super) fn say_together(&self, _locked: &State, to: HostId, messages: Vec<Said>, bytes: Vec<u8>) {
        messages.iter().for_each(|message| self.seen.said(self.plan.me, to, message));
        self.outbox.push(to, messages, bytes);
    }

    /// What is said from now on is said under that process of the home. Nothing is left that was to be said before.
    pub(super) fn speaks_with(&self, home: HostId) {
        self.speaks_with.store(u64::from(home.0) + 1, Ordering::SeqCst);
    }

    /// What messages are about.
    fn about(&self) -> About {
        let home = self.speaks_with.load(Ordering::SeqCst).checked_sub(1);
        About { object: self.plan.object, home: home.map(|home| HostId(home as u32)) }
    }

    /// The only way into the scheduler.
    pub(super) fn happened(self: &Arc<Self>, event: Event<Said>, bytes: Vec<u8>) {
        let mut state = self.state();
        if state.home.is_some() && !state.stuck {
            Turn::take(self, &mut state, event, bytes);
        } // else whoever waits asks again when it is known
    }
}

/// The lock of the state. When it is let go, what the scheduler wants said is said.
pub(super) struct Locked<'d> {
    driver: &'d Driver,
    guard: Option<MutexGuard<'d, State>>,
}

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.guard.as_ref().expect("it is there until the drop")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.guard.as_mut().expect("it is there until the drop")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let driver = self.driver;
        driver
            .outbox
            .send_all(|to, messages, bytes| driver.carrier.send(to, driver.about(), messages, bytes));
    }
}

pub(super) fn why_not(why: Why) -> Error {
    let text = match why {
        Why::NewestLost => {
            "its newest version was lost with a host: `commonhold revert` makes the version before it serve again"
        }
        Why::HomeLost => "the object's home cannot be reached",
        Why::NotRead => "the object's home could not read it (its log says why): try again",
        Why::NotStored => "the object's home could not store what was synced (its log says why): try again",
    };
    let kind = if why == Why::HomeLost { ErrorKind::Disconnected } else { ErrorKind::Lost };
    Error::new(kind, text)
}
