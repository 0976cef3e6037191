//! Objects that were opened *movable*: where one lies holds while somebody has a guard. Between guards the host may move it
//! (`docs/REAL-MEMORY.md`, Movable).
//!
//! A guard is one atomic change of a word (`commonhold_wired::Guards`), and no call. When the host revokes the place, whichever
//! thread reads that answers, if there is no guard; else the last guard wakes the watcher, which does. The next guard asks where
//! the object lies, and maps its arena, if this process does not have it: replacing a mapping under its users would be a fault.
//!
//! All that is not the word is under one lock, which is held for moments, and never while another is waited for: fork takes it.

use crate::link::{Answer, Call, Shared, lock};
use crate::object::Core;
use crate::wired::{self, Hold};
use crate::{Access, Error, ErrorKind, ObjectId, Protection, Result, complain};
use commonhold_object::error::Doing;
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{PAGE_SIZE_BYTES, Place, pages_of};
use commonhold_wired::{DEADLINE_MS, Guards};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What is known of each.
static SEATS: LazyLock<Mutex<Seats>> = LazyLock::new(Mutex::default);
/// Somebody has asked.
static ASKED: Condvar = Condvar::new();

/// Of all that this process has open so.
#[derive(Default)]
pub(crate) struct Seats {
    all: HashMap<u64, Seat>,
    next: u64,
}

struct Seat {
    of: Weak<Movable>,
    /// A thread asks where it lies.
    asking: bool,
    /// The largest number that was revoked.
    revoked: u64,
    /// The host waits for the last guard.
    owes: bool,
    /// What it lies in.
    lies: Option<Arc<Lies>>,
}

/// Where an object lies, as this process has it mapped.
#[derive(Debug)]
pub(crate) struct Lies {
    pub(crate) memory: OwnedFd,
    pub(crate) place: Place,
    hold: Hold,
}

/// An object of this process that may move, whoever of its threads opened it.
pub(crate) struct Movable {
    key: u64,
    shared: &'static Shared,
    object: ObjectId,
    access: Access,
    guards: Guards,
    address: AtomicUsize,
    length: AtomicUsize,
    generation: AtomicU64,
    /// A fork child of a thread that had a guard: the object stays where it is.
    stays: AtomicBool,
}

/// Until it is dropped, an object that was opened movable lies where it does.
///
/// It takes no call, unless the object has moved. What it points to is shared with other processes, as a mapping is.
pub struct Guard<'o> {
    movable: &'o Movable,
    address: usize,
    length: usize,
    generation: u64,
}

impl Guard<'_> {
    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// Bytes, whole pages.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: an object that may move has at least one page.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Another number than that of the guard before: the object may lie elsewhere, or have another size.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Keeps the guard past this value: [`Object::leave`](crate::Object::leave) ends it.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl std::fmt::Debug for Movable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Movable")
            .field("object", &self.object)
            .field("guards", &self.guards)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Guard { address, length, generation, .. } = self;
        write!(f, "Guard({length} bytes at {address:#x}, generation {generation})")
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.movable.leave();
    }
}

fn seats() -> MutexGuard<'static, Seats> {
    lock(&SEATS)
}

impl Movable {
    /// The one of an object that this process has open so, made if need be.
    pub(crate) fn of(shared: &'static Shared, object: ObjectId, access: Access) -> Result<Arc<Movable>> {
        let mut seats = seats();
        let known: Vec<_> = seats.all.values().filter_map(|seat| seat.of.upgrade()).collect();
        let is_it = |other: &&Arc<Movable>| other.object == object && std::ptr::eq(other.shared, shared);
        let found = known.iter().find(is_it).cloned();
        if found.is_none() {
            seats.next += 1;
            let key = seats.next;
            let movable = Arc::new(Movable {
                key,
                shared,
                object,
                access,
                guards: Guards::default(),
                address: AtomicUsize::new(0),
                length: AtomicUsize::new(0),
                generation: AtomicU64::new(0),
                stays: AtomicBool::new(false),
            });
            let of = Arc::downgrade(&movable);
            seats.all.insert(key, Seat { of, asking: false, revoked: 0, owes: false, lies: None });
            return Ok(movable);
        }
        drop(seats);
        drop(known); // their end takes the lock
        found.filter(|found| found.access == access).ok_or_else(|| {
            let what =
                "this process has the object open movable, to read, or to write: open it in the same way";
            Error::new(ErrorKind::Busy, what)
        })
    }

    /// Whether this process has the object open so.
    pub(crate) fn is_known(shared: &'static Shared, object: ObjectId) -> Option<Arc<Movable>> {
        of(shared).into_iter().find(|movable| movable.object == object)
    }

    /// A guard: without a call, unless the place was revoked.
    pub(crate) fn guard(&self, core: &Core) -> Result<Guard<'_>> {
        while !self.guards.enter() {
            if !self.wait_for_guards() && self.guards.enter_beside() {
                break;
            }
            self.ask(core)?;
        }
        Ok(Guard {
            movable: self,
            address: self.address.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
            generation: self.generation.load(Ordering::Relaxed),
        })
    }

    /// One guard less.
    pub(crate) fn leave(&self) {
        if self.guards.leave() {
            self.shared.wake_watcher();
        }
    }

    /// The same for who may have none.
    pub(crate) fn leave_kept(&self) -> Result<()> {
        match self.guards.leave_if_inside() {
            Some(true) => self.shared.wake_watcher(),
            Some(false) => {}
            None => return Err(Error::invalid("nobody has a guard of the object")),
        }
        Ok(())
    }

    /// Where it lies, while this process may use it.
    pub(crate) fn lies(&self) -> Option<Arc<Lies>> {
        self.lay().filter(|_| !self.guards.are_revoked() || self.guards.count() > 0)
    }

    /// Where it lay last: what lies in that arena may need its memory when host and keeper die.
    pub(crate) fn lay(&self) -> Option<Arc<Lies>> {
        seats().all.get(&self.key)?.lies.clone()
    }

    /// Waits until what was revoked is answered; not for longer than the host does. Then it lies where it lay, as long as somebody
    /// has a guard: it may be this thread.
    fn wait_for_guards(&self) -> bool {
        self.shared.answer_revokes();
        let until = Instant::now() + Duration::from_millis(DEADLINE_MS);
        let mut all = seats();
        while all.all.get(&self.key).is_some_and(|seat| seat.owes) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            all = ASKED.wait_timeout(all, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Asks where it lies, unless another thread does.
    fn ask(&self, core: &Core) -> Result<()> {
        let mut all = seats();
        while all.all.get(&self.key).is_some_and(|seat| seat.asking) {
            all = ASKED.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        if all.all.get(&self.key).is_some_and(|seat| seat.owes) {
            return Ok(()); // revoked again: who asks has answered before
        }
        if !self.guards.are_revoked() {
            return Ok(());
        }
        if let Some(seat) = all.all.get_mut(&self.key) {
            seat.asking = true;
        }
        drop(all);
        let told = self.be_told(core);
        if let Some(seat) = seats().all.get_mut(&self.key) {
            seat.asking = false;
        }
        ASKED.notify_all();
        told
    }

    fn be_told(&self, core: &Core) -> Result<()> {
        core.open_again_if_needed()?;
        self.shared.ensure_watcher().doing("starting the thread that watches the connection to the host")?;
        let request = Request::Place { object: self.object };
        let Answer::Reply(Reply::Placed { opened, given }, fds, _) = self.shared.call(Call::new(&request))?
        else {
            return Err(crate::link::wrong_reply());
        };
        let memory = fds.into_iter().next();
        let memory =
            memory.ok_or_else(|| crate::controlled::no_descriptor_left("the memory of the object"))?;
        crate::own::note(&memory);
        let place = opened.info.place.ok_or_else(crate::link::wrong_reply)?;
        let length = pages_of(opened.info.options.size_bytes) * PAGE_SIZE_BYTES;
        core.is_of_size(opened.info.options.size_bytes);
        let protection = if self.access.writes() { Protection::ReadWrite } else { Protection::Read };
        let (address, hold) = wired::lie_in(&core.label(), &memory, place, protection, length)?;
        self.settle(given, address.as_ptr() as usize, length as usize, Lies { memory, place, hold });
        Ok(())
    }

    /// It lies there, unless that was revoked already.
    fn settle(&self, given: u64, address: usize, length: usize, lies: Lies) {
        let mut all = seats();
        let Some(seat) = all.all.get_mut(&self.key) else { return };
        let before = seat.lies.replace(Arc::new(lies));
        if seat.revoked < given {
            seat.owes = false;
            self.address.store(address, Ordering::Relaxed);
            self.length.store(length, Ordering::Relaxed);
            self.generation.store(given, Ordering::Relaxed);
            self.guards.settle();
        }
        drop(all);
        drop(before); // the arena goes with the last that is in it
    }

    /// The host knows again that it may move. It lies where it did: until now it could not.
    pub(crate) fn tell_again(&self) -> Result<()> {
        let request = Request::Place { object: self.object };
        match self.shared.call(Call::new(&request))? {
            Answer::Reply(Reply::Placed { opened, .. }, ..) => {
                if let Some(lies) = self.lies().filter(|lies| Some(lies.place) != opened.info.place) {
                    drop(lies);
                    self.lose("was moved while no host knew of this process");
                }
                Ok(())
            }
            _ => Err(crate::link::wrong_reply()),
        }
    }

    /// By now its place may be another's: what this process has of it goes.
    pub(crate) fn lose(&self, why: &str) {
        let used = !self.guards.revoke();
        if used {
            complain(&format!(
                "wired object {}, which was in use, {why}; its arena is not mapped any more",
                self.object.0
            ));
            self.lay().iter().for_each(|lies| wired::bury_hold(&lies.hold));
        }
    }
}

impl Drop for Movable {
    fn drop(&mut self) {
        let seat = seats().all.remove(&self.key);
        drop(seat); // without the lock
    }
}

/// Those of a host.
fn of(shared: &Shared) -> Vec<Arc<Movable>> {
    let all: Vec<Arc<Movable>> = seats().all.values().filter_map(|seat| seat.of.upgrade()).collect();
    all.into_iter().filter(|movable| std::ptr::eq(movable.shared, shared)).collect()
}

impl Shared {
    /// The host revokes a place.
    pub(crate) fn revoke(&'static self, object: ObjectId, given: u64) {
        let Some(movable) = Movable::is_known(self, object) else { return };
        {
            let mut seats = seats();
            let Some(seat) = seats.all.get_mut(&movable.key).filter(|seat| seat.revoked < given) else {
                return;
            };
            (seat.revoked, seat.owes) = (given, true);
            movable.guards.revoke();
        }
        self.answer_revokes();
    }

    /// Answers what was revoked and is used no more. The watcher does.
    pub(crate) fn answer_revokes(&'static self) {
        for movable in of(self) {
            let given = {
                let mut seats = seats();
                let Some(seat) = seats.all.get_mut(&movable.key) else { continue };
                let free = seat.owes && movable.guards.count() == 0;
                free.then_some(seat.revoked)
            };
            let Some(given) = given else { continue };
            self.note(&Request::Released { object: movable.object, given }, self.generation());
            // Only now: who asks anew comes after the answer. Said twice it is said once.
            if let Some(seat) = seats().all.get_mut(&movable.key).filter(|seat| seat.revoked == given) {
                seat.owes = false;
            }
        }
        ASKED.notify_all();
    }

    /// Another host process knows of these only that they are open. The watcher says the rest.
    pub(crate) fn say_what_may_move(&'static self) {
        for movable in of(self).into_iter().filter(|movable| !movable.stays.load(Ordering::Relaxed)) {
            if movable.lies().is_none() {
                self.note(&Request::Released { object: movable.object, given: 0 }, self.generation());
            } else if let Err(error) = movable.tell_again()
                && error.kind != ErrorKind::Disconnected
            {
                complain(&format!("wired object {} stays where it is: {error}", movable.object.0));
            }
        }
    }
}

/// What a fork child has in use of what may move. To be dropped without any lock.
pub(crate) struct Stays {
    /// Hosts of which it has something in use.
    pub(crate) hosts: Vec<*const Shared>,
    _gone: Vec<Arc<Lies>>,
    _kept: Vec<Arc<Movable>>,
}

/// For the forking thread: nobody is about to change them.
pub(crate) fn lock_all() -> MutexGuard<'static, Seats> {
    seats()
}

/// In a fork child, by who holds the lock: what has no guard has to be asked for. Where there are guards they may be this
/// thread's, and the object stays where it is.
pub(crate) fn begin_anew_after_fork(seats: &mut Seats) -> Stays {
    let (mut hosts, mut gone, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for seat in seats.all.values_mut() {
        (seat.asking, seat.owes) = (false, false);
        let Some(movable) = seat.of.upgrade() else { continue };
        if movable.guards.revoke() {
            gone.extend(seat.lies.take());
        } else {
            movable.stays.store(true, Ordering::Relaxed);
            movable.guards.settle();
            hosts.push(std::ptr::from_ref(movable.shared));
        }
        kept.push(movable);
    }
    Stays { hosts, _gone: gone, _kept: kept }
}

/// Takes those of a host away that are in use.
pub(crate) fn lose_all(shared: &Shared, why: &str) {
    for movable in of(shared).into_iter().filter(|movable| movable.guards.count() > 0) {
        movable.lose(why);
    }
}
