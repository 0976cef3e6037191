//! Page-holding locks between hosts: asked of the object's home, which lets one host in after the other (`docs/LOCKS.md`).
//!
//! What is said about locks is handled as it comes in, in its order, and takes no time; only answers are sent by
//! others. It waits for no cache: who reads what a host sends reads its answers too, and whoever has a cache's lock
//! may wait for one.

use super::threads::begin;
use super::wire::{Answer, Call, Message};
use super::{Cluster, PATIENCE, lock};
use crate::cache::Cache;
use crate::shared::locks::{Locks, Outcome, Owner};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, PageRange, Result, SessionId, limits};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long whoever wants pages waits for hosts that hold them.
const WAIT: Duration = Duration::from_secs(30);
/// After the home's process is another one: how long those who held pages have to say so, before anybody else gets them.
const SAY_AGAIN: Duration = Duration::from_secs(5);
/// Between two attempts to reach a home that is away.
const AGAIN: Duration = Duration::from_millis(100);

/// How a request that waited is answered.
type Reply = Box<dyn FnOnce(Result<Answer>) + Send>;

/// A held run, as it is said: whose it is, the first page, and how many.
pub type Said = (SessionId, u64, u64);

/// The locks of this host's objects.
#[derive(Default)]
pub(super) struct AllLocks {
    objects: Mutex<HashMap<u128, Locks<Reply>>>,
    /// Objects that there were when this process began: processes of other hosts may hold pages of them.
    early: OnceLock<HashSet<u128>>,
    /// Objects whose home this host has become since.
    moved_here: Mutex<HashSet<u128>>,
}

impl AllLocks {
    /// Whether processes of other hosts may have held pages of an object when this process became its home.
    pub(super) fn were_there_before(&self, object: u128) -> bool {
        self.early.get().is_some_and(|early| early.contains(&object))
            || lock(&self.moved_here).contains(&object)
    }
}

fn range((_, first, count): &Said) -> Result<PageRange> {
    let end = first.checked_add(*count).filter(|end| *end <= u64::from(u32::MAX));
    end.map(|_| PageRange::new(*first, *count))
        .ok_or_else(|| Error::invalid("a lock past the end of all objects"))
}

fn said((session, pages): (SessionId, PageRange)) -> Said {
    (session, pages.first, pages.count)
}

impl Cluster {
    /// The objects that are there now may be locked by others.
    pub(super) fn note_early_objects(&self) {
        if let Ok(host) = self.host() {
            let objects = host.shared_claims().into_iter().map(|claim| claim.object).collect();
            let _ = self.locks.early.set(objects);
        }
    }

    /// This host has become the home: processes of other hosts may have held pages before.
    pub(super) fn note_moved_here(&self, object: u128) {
        lock(&self.locks.moved_here).insert(object);
    }

    /// When the locks of an object are known, if that is to be waited for.
    fn known_at(&self, object: u128) -> Option<Instant> {
        let early = self.locks.were_there_before(object);
        let begun = self.driver(object).and_then(|driver| driver.begun_at()).unwrap_or_else(Instant::now);
        Some(begun + SAY_AGAIN).filter(|at| early && *at > Instant::now())
    }

    /// A process of this host is to hold pages: waits until no other host does, and then holds them by `hold`. Where that
    /// fails, the caller says what is not held: the home may have let it in at the last moment.
    pub fn lock_pages<T>(
        self: &Arc<Self>,
        object: u128,
        session: SessionId,
        pages: PageRange,
        mut hold: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + WAIT;
        let pages = self.driver(object).map_or(pages, |driver| driver.whole_pages(pages));
        let mut held = None;
        loop {
            if Instant::now() >= deadline {
                // Not asked: the home would let it in for an answer that nobody waits for.
                let text = format!(
                    "the object's home was another or away while the pages were locked, for {} s: try again later",
                    WAIT.as_secs()
                );
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            let before = self.driver(object).map(|driver| driver.beginnings());
            let let_in = match before {
                Some((Some(home), _)) => self.ask_to_lock(home, object, session, pages, deadline),
                _ => Err(Error::new(ErrorKind::Disconnected, "the object's home is away: try again later")),
            };
            match let_in {
                Ok(()) => {}
                Err(error)
                    if error.kind == ErrorKind::Disconnected && Instant::now() + 2 * AGAIN < deadline =>
                {
                    std::thread::sleep(AGAIN);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let result = match held.take() {
                Some(held) => held,
                None => hold()?,
            };
            // A home that does not know of it is asked again: nobody else may have been let in there.
            if self.driver(object).map(|driver| driver.beginnings()) == before {
                return Ok(result);
            }
            held = Some(result);
        }
    }

    fn ask_to_lock(
        self: &Arc<Self>,
        home: HostId,
        object: u128,
        session: SessionId,
        pages: PageRange,
        deadline: Instant,
    ) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let said = (session, pages.first, pages.count);
        let result = if home == self.me.host {
            let (sender, receiver) = channel();
            let reply = Box::new(move |answer| drop(sender.send(answer)));
            self.lock_asked(home, object, said, reply);
            receiver.recv_timeout(left).unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "")))
        } else {
            self.ask(home, Call::Lock { object, lock: said }, left)
        };
        result.map(drop).map_err(|error| {
            if error.kind != ErrorKind::TimedOut {
                return error;
            }
            self.say_unlock(home, object, said, true);
            let text = format!(
                "other hosts held pages {}..{} for {} s: try again later",
                pages.first,
                pages.end(),
                WAIT.as_secs()
            );
            Error::new(ErrorKind::TimedOut, text)
        })
    }

    /// A process of this host holds pages no more.
    pub(super) fn say_unlocked(&self, object: u128, session: SessionId, pages: PageRange) {
        if let Some(home) = self.driver(object).and_then(|driver| driver.home()) {
            self.say_unlock(home, object, said((session, pages)), false);
        }
    }

    /// Said in the order of its asking, and not waited for. `only_waits`: what is held stays held.
    fn say_unlock(&self, home: HostId, object: u128, lock: Said, only_waits: bool) {
        if home == self.me.host {
            let _ = self.let_go_by(home, object, lock, only_waits);
        } else {
            let (number, call) = (self.calls.number(), Call::Unlock { object, lock, only_waits });
            let _ = self.send(home, &Message::Call { number, call }, &mut Vec::new());
        }
    }

    fn let_go_by(&self, from: HostId, object: u128, lock: Said, only_waits: bool) -> Result<Answer> {
        let (owner, pages) = (Owner { host: from, session: lock.0 }, range(&lock)?);
        self.change_locks(object, |locks| {
            if only_waits { locks.wait_no_more(owner, pages) } else { locks.let_go(owner, pages) }
        });
        Ok(Answer::Done)
    }

    /// Tells a home that is found (again) what is held here; what another host holds by now is lost here.
    pub(super) fn say_locks_again(self: &Arc<Self>, home: HostId, object: u128) -> Result<Vec<Said>> {
        let Some(cache) = self.cache_in_use(object) else { return Ok(Vec::new()) };
        let Some(driver) = self.driver(object) else { return Ok(Vec::new()) };
        let whole = |(session, pages)| said((session, driver.whole_pages(pages)));
        let locks: Vec<Said> = cache.locks().into_iter().map(whole).collect();
        if locks.is_empty() && driver.beginnings().1 == 0 {
            return Ok(locks); // nobody here ever held anything
        }
        let Answer::Locks(lost) = self.ask(home, Call::Locks { object, locks: locks.clone() }, PATIENCE)?
        else {
            return Ok(Vec::new());
        };
        for said in lost {
            cache.lose_hold(said.0, range(&said)?);
        }
        Ok(locks)
    }

    /// What was let go while the home was told of it, it is told now.
    pub(super) fn say_let_go_since(&self, home: HostId, object: u128, locks: Vec<Said>) {
        let Some(cache) = self.cache_in_use(object) else { return };
        for lock in locks {
            let Ok(pages) = range(&lock) else { continue };
            for part in cache.not_held_by(lock.0, pages) {
                self.say_unlock(home, object, said((lock.0, part)), false);
            }
        }
    }

    /// The cache of an object that processes of this host map.
    fn cache_in_use(&self, object: u128) -> Option<Arc<Cache>> {
        let host = self.host().ok()?;
        host.object_of(object, true).or_else(|| host.object_of(object, false))?.cache()
    }

    /// A process wants pages of an object of this host.
    pub(super) fn lock_asked(self: &Arc<Self>, from: HostId, object: u128, said: Said, reply: Reply) {
        let owner = Owner { host: from, session: said.0 };
        let mut reply = Some(reply);
        let mut waiting = || reply.take().expect("asked for once");
        let result = range(&said).and_then(|pages| {
            self.check_may_lock(from, object)?;
            let mut objects = lock(&self.locks.objects);
            let locks = objects.entry(object).or_insert_with(|| self.locks_at_first(object));
            self.check_room(object, locks, owner, pages)?;
            let outcome = locks.ask(owner, pages, &mut waiting);
            self.note_held(object, locks);
            Ok(outcome)
        });
        let answer = match result {
            Ok(Outcome::Waits) => return,
            Ok(Outcome::Held) => Ok(Answer::Done),
            Ok(Outcome::Deadlock) => Err(Error::new(
                ErrorKind::Busy,
                "that would be a deadlock: a process that holds these pages waits for pages that this one holds; unlock \
                 those first",
            )),
            Err(error) => Err(error),
        };
        if let Some(reply) = reply {
            self.answer_all(vec![reply], answer);
        }
    }

    fn check_may_lock(&self, from: HostId, object: u128) -> Result<()> {
        self.check_may_change(from)?;
        self.check_admitted(object, from, false)?;
        match self.driver(object).filter(|driver| driver.is_home()) {
            Some(_) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Disconnected,
                "this host is not the home of that object (any more)",
            )),
        }
    }

    /// What is held elsewhere stays in the home's memory too, where it has been there.
    fn check_room(&self, object: u128, locks: &Locks<Reply>, owner: Owner, pages: PageRange) -> Result<()> {
        if locks.of(owner) as u64 >= limits::LOCKS_PER_CLIENT {
            return Err(Error::new(
                ErrorKind::TooMany,
                "this client has as many locks as it may have: unlock some",
            ));
        }
        let Some(cache) = self.home_cache(object).filter(|_| owner.host != self.me.host) else {
            return Ok(());
        };
        let held: u64 = locks.held_elsewhere(self.me.host).iter().map(|run| run.count).sum();
        let most = cache.holdable_pages();
        if held + pages.count > most {
            let text = format!(
                "holding {} more pages would pass what other hosts may hold of the object, {most} pages ({held} are held): \
                 lock less, or give its home a larger budget",
                pages.count
            );
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        Ok(())
    }

    fn home_cache(&self, object: u128) -> Option<Arc<Cache>> {
        self.host().ok()?.object_of(object, false)?.cache()
    }

    /// This host's own processes held pages before their host's process was another one.
    fn locks_at_first(self: &Arc<Self>, object: u128) -> Locks<Reply> {
        let known_at = self.known_at(object);
        if let Some(at) = known_at {
            self.open_at(object, at);
        }
        let mut locks = Locks::new(known_at.is_some());
        let whole = |pages| self.driver(object).map_or(pages, |driver| driver.whole_pages(pages));
        for (session, pages) in self.cache_in_use(object).map(|cache| cache.locks()).unwrap_or_default() {
            locks.held_before(Owner { host: self.me.host, session }, whole(pages));
        }
        locks
    }

    fn note_held(&self, object: u128, locks: &Locks<Reply>) {
        if let Some(cache) = self.home_cache(object) {
            cache.set_held_elsewhere(&locks.held_elsewhere(self.me.host));
        }
    }

    /// When all that was held before is known, those who waited for that are let in.
    fn open_at(self: &Arc<Self>, object: u128, at: Instant) {
        let this = Arc::downgrade(self);
        begin("locks", move || {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if let Some(this) = this.upgrade() {
                this.change_locks(object, Locks::open);
            }
        });
    }

    /// Changes who holds what; those who are let in by that hear of it.
    fn change_locks(&self, object: u128, change: impl FnOnce(&mut Locks<Reply>) -> Vec<Reply>) {
        let let_in = {
            let mut objects = lock(&self.locks.objects);
            let Some(locks) = objects.get_mut(&object) else { return };
            let let_in = change(locks);
            self.note_held(object, locks);
            let_in
        };
        self.answer_all(let_in, Ok(Answer::Done));
    }

    /// Answers are sent by others: sending may have to wait for a connection.
    fn answer_all(&self, replies: Vec<Reply>, answer: Result<Answer>) {
        if !replies.is_empty() {
            self.pools.short.run(move || replies.into_iter().for_each(|reply| reply(answer.clone())));
        }
    }

    /// What a host says about its locks.
    pub(super) fn locks_said(self: &Arc<Self>, from: HostId, call: &Call) -> Result<Answer> {
        match call {
            Call::Unlock { object, lock, only_waits } => self.let_go_by(from, *object, *lock, *only_waits),
            Call::Locks { object, locks } => {
                if locks.is_empty() && !lock(&self.locks.objects).contains_key(object) {
                    return Ok(Answer::Locks(Vec::new()));
                }
                if !locks.is_empty() {
                    self.check_may_lock(from, *object)?;
                }
                let all: Vec<(SessionId, PageRange)> =
                    locks.iter().map(|said| Ok((said.0, range(said)?))).collect::<Result<_>>()?;
                lock(&self.locks.objects).entry(*object).or_insert_with(|| self.locks_at_first(*object));
                let mut lost = Vec::new();
                self.change_locks(*object, |table| {
                    let (by_others, let_in) = table.said_again(from, &all);
                    lost = by_others.into_iter().map(said).collect();
                    let_in
                });
                Ok(Answer::Locks(lost))
            }
            _ => Err(Error::new(ErrorKind::Protocol, "nothing about locks")),
        }
    }

    /// A host uses an object no more, or all of them.
    pub(super) fn locks_lost(&self, host: HostId, object: Option<u128>) {
        let objects: Vec<u128> = match object {
            Some(object) => vec![object],
            None => lock(&self.locks.objects).keys().copied().collect(),
        };
        objects.into_iter().for_each(|object| self.change_locks(object, |locks| locks.lose(host)));
    }

    /// An object of this host is used by nobody.
    pub(super) fn forget_locks(&self, object: u128) {
        lock(&self.locks.objects).remove(&object);
    }
}
