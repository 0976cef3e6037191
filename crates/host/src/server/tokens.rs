//! Mutexes that hosts share (`docs/PRIMITIVES.md`, "Between hosts"): the words in memory of this host's clients, and this host's
//! part of where the tokens are.
//!
//! One lock for each object holds the part and what it wants done. Whoever has it exchanges words, wakes threads, and hands messages
//! to connections: it waits for nobody.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{
    CreateOptions, Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PagerKind, Result, Translation,
};
use commonhold_primitives::{Kind, Mapped, Mutex as Word, Taken, free_of_the_dead};
use commonhold_sys::frames;
use commonhold_sys::memory::FileWindow;
use commonhold_tokens::{Action, Event, Message, Part, Timer};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
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
    host: Weak<Host>,
    memory: Arc<OwnedFd>,
    mapped: Mapped,
    state: Mutex<State>,
    /// What is mapped. Dropped last.
    _window: FileWindow,
}

struct State {
    part: Part,
    /// Until when a thread that was woken may take a token.
    reserved: HashMap<u32, Instant>,
}

/// Whether hosts share an object that holds mutexes.
pub(super) fn are_shared(options: &CreateOptions) -> bool {
    let memory = options.pager == PagerKind::Anonymous && options.translation == Translation::Paged;
    memory
        && options.coherence.is_forwarded()
        && !options.home_moves
        && Kind::of_object(&options.tag, options.size_bytes) == Some(Kind::Mutex)
}

fn word(index: u32) -> Word {
    Word(index as usize * Kind::Mutex.bytes())
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
        Ok(self.tokens_of(&object)?.memory.clone())
    }

    /// What a client tells of a mutex: that it waits for its token, or let it go.
    pub(super) fn told_of_token(&self, session: &Session, id: ObjectId, index: u32, wanted: bool) {
        let writes = session.access(id).is_ok_and(|access| access.writes());
        let tokens = self.object(id).ok().and_then(|object| self.tokens_in_use(object.record().uuid));
        if let Some(tokens) = tokens.filter(|tokens| writes && index < tokens.mutexes()) {
            if wanted { tokens.hear(Event::Wanted(index)) } else { tokens.let_go(index) }
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
        if !are_shared(&record.options) {
            return Err(Error::new(ErrorKind::Mismatch, "the object holds no mutexes that hosts share"));
        }
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
        let part = begin(&mapped, me, record.is_elsewhere, left, was_there);
        // Locks that the next host would not know of must not be taken.
        self.vault.put(&super::kept::object_key(object.id, "tokens"), &[], Some(memory.clone()))?;
        let state = Mutex::new(State { part, reserved: HashMap::new() });
        let host = Arc::downgrade(self);
        let (object, owner) = (record.uuid, record.ownership.uid);
        let tokens = Arc::new(Tokens { object, owner, host, memory, mapped, state, _window: window });
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
            "mutexes that hosts share take {} MiB of a host's memory at most for the objects of one user, {owner}: remove \
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
fn begin(mapped: &Mapped, me: HostId, is_elsewhere: bool, left: bool, was_there: bool) -> Part {
    let mutexes = (mapped.bytes() / Kind::Mutex.bytes()) as u32;
    let all_here = || (0..mutexes).all(|index| word(index).seen(mapped).here);
    if left && (is_elsewhere || !all_here()) {
        let seen = (0..mutexes).map(|index| (index, word(index).seen(mapped)));
        let changed = seen.filter(|(_, seen)| seen.here == is_elsewhere || seen.sleepers);
        let words: Vec<_> = changed.map(|(index, seen)| (index, seen.here, seen.sleepers)).collect();
        return Part::following(me, mutexes, !is_elsewhere, words);
    }
    if is_elsewhere || !left && was_there {
        (0..mutexes).for_each(|index| word(index).begin_away(mapped));
        return Part::following(me, mutexes, false, []);
    }
    Part::first(me, mutexes)
}

impl Tokens {
    fn mutexes(&self) -> u32 {
        (self.mapped.bytes() / Kind::Mutex.bytes()) as u32
    }

    /// The object's home, as far as it is known.
    pub fn home(&self) -> Option<HostId> {
        lock(&self.state).part.home()
    }

    /// Something happened.
    pub fn hear(self: &Arc<Self>, event: Event) {
        self.go_on(&mut lock(&self.state), [event].into());
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
            Action::Give { index, died, wanted } => {
                word(index).give(&self.mapped, died, wanted);
                if wanted {
                    self.reserve(state, index);
                }
            }
            Action::Void(index) => {
                if word(index).void(&self.mapped) {
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
        match word(index).take_away(&self.mapped, firmly) {
            Taken::Yes { died, sleepers } => events.push_back(Event::Released { index, died, sleepers }),
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

    /// Frees what processes have that are none of the living. What another host waits for is its then.
    pub(super) fn free_of_the_dead(self: &Arc<Self>, living: impl FnMut() -> HashSet<u32>) {
        free_of_the_dead(&self.mapped, 0..self.mapped.bytes(), Kind::Mutex, living, None);
        let claimed = lock(&self.state).part.claimed();
        claimed.into_iter().for_each(|index| self.let_go(index));
    }

    /// No process here has the object open.
    fn leave(self: &Arc<Self>) {
        let state = lock(&self.state);
        let part = &state.part;
        let mut died = HashSet::new();
        for index in (0..self.mutexes()).filter(|index| part.is_here(*index)) {
            if let Taken::Yes { died: true, .. } = word(index).take_away(&self.mapped, true) {
                died.insert(index);
            }
        }
        if let Some(home) = part.home() {
            self.say(home, part.leaves(|index| died.contains(&index)));
        }
    }
}
