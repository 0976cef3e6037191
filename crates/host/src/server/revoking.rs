//! Wired objects that move while they are open: who let them, and is asked to give a place up. Which request waits for whom is a
//! value (`commonhold_wired::Revocations`); here is what it says to do. No thread waits: a request that an open object stands in
//! the way of is put aside with all it needs, and worked on once more when its holders have answered, or the time is up.

use super::dispatch::Place;
use super::object::Object;
use super::session::Session;
use super::wired::gone;
use super::{Host, lock};
use crate::workers::Share;
use commonhold_object::wire::{Event as Told, OpenReply, Reply, Request};
use commonhold_object::{Access, Error, ErrorKind, ObjectId, Result};
use commonhold_sys::clock;
use commonhold_wired::{Action, Event, Revocations};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

type Job = Box<dyn FnOnce() + Send>;

/// By which threads, for whom, and what.
type Aside = (Place, Arc<Share>, Job);

thread_local! {
    /// Open objects that stood in the way of the request which this thread works on, and which may be let move.
    static WANTED: RefCell<Vec<ObjectId>> = const { RefCell::new(Vec::new()) };
    /// That request is worked on once more if some do.
    static AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the request that this thread works on, if it is refused now, is worked on once more, with more room.
pub(super) fn comes_again() -> bool {
    AGAIN.get() && WANTED.with_borrow(|wanted| !wanted.is_empty())
}

/// What waits for holders.
pub(super) struct Revoking {
    value: Mutex<Revocations>,
    jobs: Mutex<HashMap<u64, Aside>>,
    numbers: AtomicU64,
}

impl Default for Revoking {
    fn default() -> Self {
        // Later hosts of this boot number places higher.
        let value = Mutex::new(Revocations::new(clock::now()));
        Revoking { value, jobs: Mutex::default(), numbers: AtomicU64::new(1) }
    }
}

impl Revoking {
    /// Whether some of those who have an object open use it, or may.
    pub(super) fn is_used(&self, object: &Object) -> bool {
        let value = lock(&self.value);
        object.opens.load(Ordering::Acquire) > value.released(object.id)
    }

    /// A request to be worked on once more if open objects stand in its way. None: nobody lets any move, or it moves none.
    pub(super) fn again(&self, request: &Request, until: Instant) -> Option<Request> {
        WANTED.take();
        let moves = matches!(
            request,
            Request::Create { .. }
                | Request::Open { .. }
                | Request::Place { .. }
                | Request::Resize { .. }
                | Request::ResizeOpened { .. }
                | Request::Rename { .. }
                | Request::SetMode { .. }
                | Request::SetOwner { .. }
        );
        AGAIN.set(moves && Instant::now() < until && !lock(&self.value).is_empty());
        AGAIN.get().then(|| request.clone())
    }

    /// What stood in its way.
    pub(super) fn wanted(&self, reply: &Result<Reply>) -> Vec<ObjectId> {
        let wanted = WANTED.take();
        AGAIN.set(false);
        match reply {
            Err(error) if matches!(error.kind, ErrorKind::Busy | ErrorKind::NoSpace) => wanted,
            _ => Vec::new(),
        }
    }

    fn keep(&self, place: Place, share: Arc<Share>, job: Job) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        lock(&self.jobs).insert(number, (place, share, job));
        number
    }
}

impl Host {
    /// An open object stands in the way of what this thread does. It is noted, if all who have it open let it move.
    pub(super) fn stands_in_the_way(&self, object: &Object) {
        let all_let_it = || {
            let value = lock(&self.revoking.value);
            let opens = object.opens.load(Ordering::Acquire);
            opens > 0 && value.holders(object.id) == opens
        };
        let movable = all_let_it() && !self.returning.expects(object.id) && object.record().name.is_some();
        if movable {
            WANTED.with_borrow_mut(|wanted| {
                if !wanted.contains(&object.id) {
                    wanted.push(object.id);
                }
            });
        }
    }

    /// Puts a job aside until nobody uses the objects, or for so long as holders have to answer.
    pub(super) fn put_aside(
        self: &Arc<Self>,
        (place, share): (Place, Arc<Share>),
        objects: Vec<ObjectId>,
        job: impl FnOnce() + Send + 'static,
    ) {
        let number = Arc::new(AtomicU64::new(0));
        let (this, own) = (self.clone(), number.clone());
        let whole = move || {
            job();
            this.take_in(Event::Done { job: own.load(Ordering::Acquire) });
        };
        let kept = self.revoking.keep(place, share, Box::new(whole));
        number.store(kept, Ordering::Release);
        self.take_in(Event::Wanted { job: kept, objects });
    }

    /// What was told of an object is not so any more: who lets it move asks anew.
    pub(super) fn tell_anew(self: &Arc<Self>, object: &Object) {
        let holders = lock(&self.revoking.value).holders(object.id);
        if holders > 0 {
            let share = self.share_of(object.record().charged_uid);
            let place = Place::Pool(self.machine.workers.clone());
            self.put_aside((place, share), vec![object.id], || {});
        }
    }

    /// Runs a job that tells a session where an object lies: not while that is about to move.
    pub(super) fn when_it_lies_still(
        self: &Arc<Self>,
        session: &Arc<Session>,
        place: Place,
        object: ObjectId,
        job: impl FnOnce() + Send + 'static,
    ) {
        let job = self.revoking.keep(place, session.share.clone(), Box::new(job));
        self.take_in(Event::Asks { session: session.id, object, job });
    }

    /// Takes in what happened, and does what follows.
    pub(super) fn take_in(self: &Arc<Self>, event: Event) {
        self.take_in_with(event, || {});
    }

    /// A session has an object open no more. Of a wired one, how many have it open, and how many of those do not use it, change as
    /// one: who looked in between would take somebody who has it mapped for one who does not use it.
    pub(super) fn is_open_no_more(self: &Arc<Self>, session: &Session, object: &Object) {
        let one_less = || {
            object.opens.fetch_sub(1, Ordering::AcqRel);
        };
        let is_wired = object.record().options.is_wired();
        if is_wired {
            self.take_in_with(Event::Closed { session: session.id, object: object.id }, one_less);
        } else {
            one_less();
        }
    }

    fn take_in_with(self: &Arc<Self>, event: Event, beside: impl FnOnce()) {
        let (actions, waits) = {
            let mut value = lock(&self.revoking.value);
            beside();
            let actions = value.handle(event, clock::now() / 1_000_000);
            (actions, value.waits())
        };
        if waits {
            self.machine.arm();
        }
        for action in actions {
            match action {
                Action::Revoke { session, object, given } => {
                    let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
                    if let Some(session) = sessions.get(&session) {
                        session.tell(Told::Revoke { object, given });
                    }
                }
                Action::Run { job } => {
                    let found = lock(&self.revoking.jobs).remove(&job);
                    if let Some((place, share, job)) = found {
                        place.run(share, job);
                    }
                }
            }
        }
    }

    /// Time has passed.
    pub(super) fn look_at_revocations(self: &Arc<Self>) {
        let waits = lock(&self.revoking.value).waits();
        if waits {
            self.take_in(Event::Tick);
        }
    }

    /// A session does not use a place any more; without a number: none that this host process gave it.
    pub(super) fn released(self: &Arc<Self>, session: &Session, object: ObjectId, given: u64) -> Result<()> {
        session.access(object)?;
        match self.place_in_arena(object) {
            Some(place) if given == 0 => {
                lock(&self.revoking.value).does_not_hold(session.id, object, place.arena);
                // It may have ended meanwhile.
                if session.access(object).is_err() {
                    self.take_in(Event::Closed { session: session.id, object });
                }
            }
            _ => self.take_in(Event::Released { session: session.id, object, given }),
        }
        Ok(())
    }

    /// Tells a session where an object lies that it lets move, and gives it the memory.
    pub(super) fn place(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: ObjectId,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let object = self.object(id)?;
        let placed = object.hold().and_then(|_held| self.place_held(session, &object, give));
        self.settle_object(id); // its name and its last user may have gone meanwhile
        placed
    }

    fn place_held(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let access = session.access(object.id)?;
        object.check_access(access)?;
        let _making = lock(&object.making);
        let had = lock(&self.revoking.value).arena_of(session.id, object.id);
        let lies_in = self.place_in_arena(object.id).map(|place| place.arena);
        // What was removed lies where it did. It has no users that it could be kept from.
        let (memory, given) = if object.record().name.is_some() || had.is_none() || had != lies_in {
            /// So often its name, owner or mode may change meanwhile.
            const TRIES: u32 = 16;
            let mut tries = 0..TRIES;
            loop {
                self.settle_place(object)?;
                let memory = self.memory_for(object, access)?;
                // Who does not use it does not keep it from changing, until it is given to him.
                let give = || self.give_place(session, object);
                match self.check_settled_and(session, object, access, give) {
                    Err(error) if error.kind == ErrorKind::Busy && tries.next().is_some() => {}
                    settled => break (memory, settled??),
                }
            }
        } else {
            (self.memory_for(object, access)?, self.give_place(session, object)?)
        };
        // It may have been closed meanwhile. Then it is not held, and nobody would ever hear that it was let go.
        let is_open = lock(&session.opened).contains_key(&object.id);
        if !is_open {
            self.take_in(Event::Closed { session: session.id, object: object.id });
            return Err(Error::new(
                ErrorKind::NotFound,
                "the object was closed while its place was asked for",
            ));
        }
        let opened = Box::new(OpenReply { info: self.short_info(object), access });
        give.push(memory);
        Ok(Reply::Placed { opened, given })
    }

    fn memory_for(&self, object: &Object, access: Access) -> Result<Arc<OwnedFd>> {
        let memory = object.descriptor().ok_or_else(gone)?;
        Ok(if access.writes() { memory } else { Arc::new(super::tables::for_readers(object, &memory)?) })
    }

    /// The session holds the place from now on.
    fn give_place(&self, session: &Session, object: &Object) -> Result<u64> {
        let place = self.place_in_arena(object.id).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the object lies in no arena, so that it does not move")
        })?;
        Ok(lock(&self.revoking.value).give(session.id, object.id, place.arena))
    }
}
