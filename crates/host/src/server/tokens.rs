//! Mutexes and monitors that hosts share (`docs/PRIMITIVES.md`, "Between hosts"): the words in memory of this host's clients, and
//! this host's part of where the tokens are.
//!
//! One lock for each object holds the part and what it wants done. Whoever has it exchanges words, wakes threads, and hands messages
//! to connections: it waits for nobody.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{
    CreateOptions, Credentials, Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PagerKind, Result, Translation,
};
use commonhold_primitives::between::{Monitor, Seen, free_monitors_of_the_dead};
use commonhold_primitives::{Kind, Mapped, Taken};
use commonhold_sys::frames;
use commonhold_sys::memory::FileWindow;
use commonhold_tokens::{Action, Event, Message, Part, Timer};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// How long a thread that was woken has to take what it was woken for, where others wait.
const TAKEN: Duration = Duration::from_millis(10);
/// How long the process that follows a lost one, and those who took part with the home's process before, have to say what they have.
const SAID: Duration = Duration::from_secs(5);

/// More memory for words the objects of one user do not have here, whole pages: it stays in memory, and is charged to
/// nobody.
const MOST_OF_ONE_USER: u64 = 32 << 20;

/// The tokens of all objects, as far as they are in use here.
#[derive(Default)]
pub(super) struct AllTokens {
    in_use: RwLock<HashMap<u128, Arc<Tokens>>>,
    /// Words that the process before this one left.
    kept: Mutex<HashMap<ObjectId, Arc<OwnedFd>>>,
}

/// The tokens of one object.
pub struct Tokens {
    object: u128,
    /// Whose object it is.
    owner: u32,
    kind: Kind,
    host: Weak<Host>,
    memory: Arc<OwnedFd>,
    mapped: Mapped,
    state: Mutex<State>,
    /// A user whose processes lock here.
    user: OnceLock<Credentials>,
    /// What is mapped. Dropped last.
    _window: FileWindow,
}

struct State {
    part: Part,
    /// Until when a thread that was woken may take a token.
    reserved: HashMap<u32, Instant>,
}

/// What an object holds that hosts share.
fn kind_of(options: &CreateOptions) -> Option<Kind> {
    let memory = options.pager == PagerKind::Anonymous && options.translation == Translation::Paged;
    let is_shared = memory && options.coherence.is_forwarded() && !options.home_moves;
    Kind::of_object(&options.description, options.size_bytes).filter(|_| is_shared)
}

/// Whether hosts share an object that holds primitives.
pub(super) fn are_shared(options: &CreateOptions) -> bool {
    kind_of(options).is_some()
}

impl Host {
    /// The memory in which a client locks.
    pub(super) fn words(self: &Arc<Self>, session: &Session, id: ObjectId) -> Result<Arc<OwnedFd>> {
        let access = session.access(id)?;
        let object = self.object(id)?;
        if !access.writes() {
            return Err(Error::new(
                ErrorKind::Permission,
                "who locks needs to have the object open to write",
            ));
        }
        self.member_of(session)?;
        let tokens = self.tokens_of(&object)?;
        tokens.user.get_or_init(|| session.credentials.clone());
        Ok(tokens.memory.clone())
    }

    /// What a client tells of a mutex: that it waits for its token, or let it go.
    pub(super) fn told_of_token(&self, session: &Session, id: ObjectId, index: u32, wanted: bool) {
        let writes = session.access(id).is_ok_and(|access| access.writes());
        let tokens = self.object(id).ok().and_then(|object| self.tokens_in_use(object.record().uuid));
        if let Some(tokens) = tokens.filter(|tokens| writes && index < tokens.mutexes()) {
            // Of a client that was here before this process.
            tokens.user.get_or_init(|| session.credentials.clone());
            if wanted { tokens.wanted(index) } else { tokens.let_go(index) }
        }
    }

    /// The tokens of an object whose tokens are in use.
    pub fn tokens_in_use(&self, object: u128) -> Option<Arc<Tokens>> {
        self.tokens.in_use.read().unwrap_or_else(PoisonError::into_inner).get(&object).cloned()
    }

    /// All of them.
    pub fn all_tokens(&self) -> Vec<Arc<Tokens>> {
        self.tokens.in_use.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The tokens of an object that holds mutexes which hosts share.
    pub fn tokens_of(self: &Arc<Self>, object: &Object) -> Result<Arc<Tokens>> {
        let record = object.record().clone();
        let Some(kind) = kind_of(&record.options) else {
            return Err(Error::new(ErrorKind::Mismatch, "the object holds no locks that hosts share"));
        };
        let _one_at_a_time = lock(&object.freeing);
        if let Some(tokens) = self.tokens_in_use(record.uuid) {
            return Ok(tokens);
        }
        let bytes = record.options.size_bytes;
        self.check_words(record.ownership.uid, bytes)?;
        let kept = lock(&self.tokens.kept).remove(&object.id);
        let left = kept.is_some();
        let new = || frames::create_of_fixed_size("commonhold-locks", bytes).map(Arc::new);
        let memory = kept.map_or_else(new, Ok).doing("making memory for locks")?;
        let window =
            FileWindow::for_writing(&*memory, 0, bytes as usize).doing("mapping memory for locks")?;
        let Some(start) = NonNull::new(window.as_ptr().cast_mut()) else {
            return Err(Error::new(ErrorKind::NoSpace, "memory for locks was mapped nowhere"));
        };
        // SAFETY: mapped shared, to read and to write, until the window is dropped, which is after it. The memory was made with its
        // size, and sealed. Nobody else is given the address.
        let mapped = unsafe { Mapped::new(start, bytes as usize) };
        let cluster = self.with_cluster();
        let me = cluster.map_or(HostId(0), |cluster| cluster.me.host);
        let was_there = cluster.is_some_and(|cluster| cluster.was_there_before(record.uuid));
        let part = begin(&mapped, kind, me, (record.is_elsewhere, left, was_there));
        // Locks that the next host would not know of must not be taken.
        self.vault.put(&super::kept::object_key(object.id, "tokens"), &[], Some(memory.clone()))?;
        let state = Mutex::new(State { part, reserved: HashMap::new() });
        let host = Arc::downgrade(self);
        let (object, owner) = (record.uuid, record.ownership.uid);
        let user = OnceLock::new();
        let tokens =
            Arc::new(Tokens { object, owner, kind, host, memory, mapped, state, user, _window: window });
        let mut in_use = self.tokens.in_use.write().unwrap_or_else(PoisonError::into_inner);
        in_use.insert(record.uuid, tokens.clone());
        drop(in_use);
        if let Some(cluster) = cluster {
            cluster.tokens_find_home(record.uuid);
        }
        Ok(tokens)
    }

    fn check_words(&self, owner: u32, bytes: u64) -> Result<()> {
        let pages = |bytes: u64| bytes.next_multiple_of(PAGE_SIZE_BYTES);
        let mine =
            |tokens: &Arc<Tokens>| (tokens.owner == owner).then(|| pages(tokens.mapped.bytes() as u64));
        let used: u64 = self.all_tokens().iter().filter_map(mine).sum();
        if used + pages(bytes) <= MOST_OF_ONE_USER {
            return Ok(());
        }
        let text = format!(
            "locks that hosts share take {} MiB of a host's memory at most for the objects of one user, {owner}: remove \
             some, close those of other hosts, or make objects with fewer",
            MOST_OF_ONE_USER >> 20
        );
        Err(Error::new(ErrorKind::NoSpace, text))
    }

    /// What the process before this one left.
    pub(super) fn adopt_words(&self, id: ObjectId, memory: Arc<OwnedFd>) {
        lock(&self.tokens.kept).insert(id, memory);
    }

    /// The tokens of an object whose words the process before this one left are in use.
    pub fn take_tokens_over(self: &Arc<Self>, object: &Object) -> Result<()> {
        let is_kept = lock(&self.tokens.kept).contains_key(&object.id);
        if is_kept { self.tokens_of(object).map(drop) } else { Ok(()) }
    }

    /// At the home: other hosts are about to take part.
    pub fn serve_tokens(self: &Arc<Self>, object: &Object) -> Result<()> {
        let shared = are_shared(&object.record().options);
        if shared { self.tokens_of(object).map(drop) } else { Ok(()) }
    }

    /// No process here uses an object any more.
    pub(super) fn leave_tokens(&self, object: &Object) {
        let record = object.record().clone();
        lock(&self.tokens.kept).remove(&object.id);
        // It is said under the lock: who opens the object anew must not be heard to join before that.
        let mut in_use = self.tokens.in_use.write().unwrap_or_else(PoisonError::into_inner);
        let left = in_use.remove(&record.uuid);
        if let Some(tokens) = left.as_ref().filter(|_| record.is_elsewhere) {
            tokens.leave();
        }
        drop(in_use);
    }
}

/// This host's part of an object as it comes into use. `left`: its words were kept for a process before; `was_there`: at the home, the
/// object is older than this process.
fn begin(
    mapped: &Mapped,
    kind: Kind,
    me: HostId,
    (is_elsewhere, left, was_there): (bool, bool, bool),
) -> Part {
    let number = (mapped.bytes() / kind.bytes()) as u32;
    let all = || (0..number).map(|index| (index, Monitor::nth(kind, index).seen(mapped)));
    let is_as_before = || all().all(|(_, seen)| seen.here && (kind == Kind::Mutex || !seen.wants));
    let part = if left && (is_elsewhere || !is_as_before()) {
        let is_known = |seen: &Seen| seen.here == is_elsewhere || seen.wants || seen.left.moves > 0;
        Part::following(me, number, !is_elsewhere, all().filter(|(_, seen)| is_known(seen)))
    } else if is_elsewhere || !left && was_there {
        (0..number).for_each(|index| Monitor::nth(kind, index).begin_away(mapped));
        Part::following(me, number, false, [])
    } else {
        Part::first(me, number)
    };
    if kind == Kind::Mutex { part } else { part.of_monitors() }
}

impl Tokens {
    fn mutexes(&self) -> u32 {
        (self.mapped.bytes() / self.kind.bytes()) as u32
    }

    fn word(&self, index: u32) -> Monitor {
        Monitor::nth(self.kind, index)
    }

    /// The object's home, as far as it is known.
    pub fn home(&self) -> Option<HostId> {
        lock(&self.state).part.home()
    }

    /// Whether this host is the home, and has counted what all said.
    pub fn has_counted(&self) -> bool {
        lock(&self.state).part.has_counted()
    }

    /// Something happened.
    pub fn hear(self: &Arc<Self>, event: Event) {
        self.go_on(&mut lock(&self.state), [event].into());
    }

    /// A thread here waits for a token: for one that is here too, if it was let go and its host has not heard that, or never does.
    fn wanted(self: &Arc<Self>, index: u32) {
        let mut state = lock(&self.state);
        let mut events = VecDeque::new();
        if state.part.is_at_hand(index) && !self.word(index).seen(&self.mapped).here {
            self.claim(&mut state, (index, false), &mut events);
        }
        events.push_back(Event::Wanted(index));
        self.go_on(&mut state, events);
    }

    /// A thread here let a token go that is wanted elsewhere, or has ended with it.
    fn let_go(self: &Arc<Self>, index: u32) {
        let mut state = lock(&self.state);
        let mut events = VecDeque::new();
        self.claim(&mut state, (index, false), &mut events);
        self.go_on(&mut state, events);
    }

    fn go_on(self: &Arc<Self>, state: &mut State, mut events: VecDeque<Event>) {
        let mut actions = Vec::new();
        while let Some(event) = events.pop_front() {
            state.part.handle(event, &mut actions);
            for action in actions.drain(..) {
                self.act(state, action, &mut events);
            }
        }
    }

    fn act(self: &Arc<Self>, state: &mut State, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Send(to, message) => self.say(to, message),
            Action::Claim { index, firmly } => self.claim(state, (index, firmly), events),
            Action::Give { index, died, wanted, given } => {
                let has_news = self.word(index).give(&self.mapped, died, wanted, &given);
                if wanted {
                    self.reserve(state, index);
                }
                if has_news {
                    self.claim(state, (index, false), events);
                }
            }
            Action::Void(index) => {
                if self.word(index).void(&self.mapped) {
                    events.push_back(Event::Wanted(index));
                }
            }
            Action::Wait(timer) => self.wait(timer),
        }
    }

    fn say(&self, to: HostId, message: Message) {
        if let Some(host) = self.host.upgrade()
            && let Some(cluster) = host.with_cluster()
        {
            cluster.say_of_tokens(to, self.object, message);
        }
    }

    fn claim(
        self: &Arc<Self>,
        state: &mut State,
        (index, firmly): (u32, bool),
        events: &mut VecDeque<Event>,
    ) {
        if !state.part.is_at_hand(index) {
            return;
        }
        let (taken, left) = self.word(index).take_away(&self.mapped, firmly);
        match taken {
            Taken::Yes { died, sleepers } => {
                events.push_back(Event::Released { index, died, sleepers, left });
            }
            Taken::Owned => {} // its owner says when it lets go
            Taken::Reserved => self.reserve(state, index),
        }
    }

    /// A thread that was woken may take the token. One clock for each token is enough: it is set anew for who was woken since.
    fn reserve(self: &Arc<Self>, state: &mut State, index: u32) {
        let until = Instant::now() + TAKEN;
        if state.reserved.insert(index, until).is_none() {
            self.look_at(index, until);
        }
    }

    fn look_at(self: &Arc<Self>, index: u32, when: Instant) {
        self.later(when, move |this| {
            let mut state = lock(&this.state);
            match state.reserved.get(&index).copied() {
                Some(until) if until > Instant::now() => this.look_at(index, until),
                Some(_) => {
                    state.reserved.remove(&index);
                    this.go_on(&mut state, [Event::Over(Timer::Taken(index))].into());
                }
                None => {}
            }
        });
    }

    fn wait(self: &Arc<Self>, timer: Timer) {
        self.later(Instant::now() + SAID, move |this| this.hear(Event::Over(timer)));
    }

    fn later(self: &Arc<Self>, when: Instant, job: impl FnOnce(&Arc<Tokens>) + Send + 'static) {
        let this = Arc::downgrade(self);
        if let Some(host) = self.host.upgrade()
            && let Some(cluster) = host.with_cluster()
        {
            cluster.clock.at(when, move || {
                if let Some(this) = this.upgrade() {
                    job(&this);
                }
            });
        }
    }

    /// Frees what processes have that are none of the living. What another host waits for is its then. `left`: that process closed
    /// the object.
    pub(super) fn free_of_the_dead(
        self: &Arc<Self>,
        living: impl FnMut() -> HashSet<u32>,
        left: Option<u32>,
    ) {
        let settles =
            free_monitors_of_the_dead(&self.mapped, 0..self.mapped.bytes(), self.kind, living, left);
        let is_away = |index| !self.word(index).seen(&self.mapped).here;
        let to_take = lock(&self.state).part.to_take(is_away);
        to_take.into_iter().for_each(|index| self.let_go(index));
        for index in settles {
            let is_at_hand = lock(&self.state).part.is_at_hand(index);
            if is_at_hand { self.let_go(index) } else { self.hear(Event::Wanted(index)) }
        }
    }

    /// No process here has the object open.
    fn leave(self: &Arc<Self>) {
        let state = lock(&self.state);
        let take = |index| match self.word(index).take_away(&self.mapped, true) {
            (Taken::Yes { died, .. }, left) => Some((died, left)),
            _ => None,
        };
        let (home, leaving) = (state.part.home(), state.part.clone().leaves(take));
        if let Some(host) = self.host.upgrade()
            && let Some(cluster) = host.with_cluster()
        {
            cluster.leave_tokens(self.object, home, leaving, self.user.get().cloned());
        }
    }
}
