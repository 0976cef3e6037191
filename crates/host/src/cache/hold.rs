//! Page-holding locks: a held page stays in memory and away from its pager until a sync of it, or unlock
//! (Shirriff, section 6, mlock and munlock).

use super::{Cache, book, without};
use crate::budget::Holding;
use commonhold_object::{Error, ErrorKind, PageRange, PageState, Result, SessionId, SyncMode, limits};
use commonhold_sys::memory::Pin;
use commonhold_sys::process;
use roaring::RoaringBitmap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// How long pages of another host may take to come.
const PAGES_HERE: Duration = Duration::from_secs(30);

/// Numbers of holds.
static HOLDS: AtomicU64 = AtomicU64::new(0);

/// One held run.
pub struct Hold {
    /// Which call made it: parts that are left of it have the same.
    made_by: u64,
    /// Whose: it goes when they go.
    pub session: SessionId,
    /// Which pages.
    pub pages: PageRange,
    /// Keeps them from being swapped out.
    pin: Option<Arc<Pin>>,
    /// Counts them against the user.
    counted: Holding,
}

/// What is held of one object, under a lock of its own, within which no other lock is taken. The cache's lock may
/// wait for hosts that keep the object, and what hosts say about locks is handled by who reads what they send, their
/// answers too.
#[derive(Default)]
pub(super) struct Held {
    /// By processes of this host.
    here: Vec<Hold>,
    /// At the home of an object that hosts share: by processes of other hosts.
    elsewhere: RoaringBitmap,
}

impl Held {
    /// What processes of other hosts hold.
    pub fn elsewhere(&self) -> &RoaringBitmap {
        &self.elsewhere
    }

    /// The pages, with those that processes of this host hold.
    pub fn add_to(&self, pages: &mut RoaringBitmap) {
        self.here.iter().for_each(|hold| book::insert(pages, hold.pages));
    }

    /// The pages, without those.
    pub fn take_from(&self, pages: &mut RoaringBitmap) {
        self.here.iter().for_each(|hold| book::remove(pages, hold.pages));
    }

    /// Whether a process of this host holds the page.
    fn has(&self, page: u64) -> bool {
        self.here.iter().any(|hold| hold.pages.contains(page))
    }
}

/// What a call has come to hold.
#[derive(Clone, Copy)]
pub struct Made {
    /// By which [`Cache::drop_made`] knows it.
    number: u64,
    /// Whether it is pinned against swap.
    pub pinned: bool,
}

/// As long as this is there, a session asks for pages that it does not hold yet.
pub struct Asking<'c> {
    cache: &'c Cache,
    what: (SessionId, PageRange),
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let asking = &mut self.cache.lock().asking;
        if let Some(at) = asking.iter().position(|what| *what == self.what) {
            asking.swap_remove(at);
        }
    }
}

impl Cache {
    /// What is held at this moment.
    pub(super) fn held_now(&self) -> MutexGuard<'_, Held> {
        super::lock(&self.held)
    }

    /// Holds the pages and brings them in; shared pages, so that they can be written if it `writes`. Where that
    /// fails, what was held before is held still.
    pub fn hold(
        self: &Arc<Self>,
        session: SessionId,
        uid: u32,
        pages: PageRange,
        writes: bool,
    ) -> Result<Made> {
        let number = HOLDS.fetch_add(1, Ordering::Relaxed);
        {
            let mut held_now = self.held_now();
            let mine = held_now.here.iter().filter(|h| h.session == session).count() as u64;
            if mine >= limits::LOCKS_PER_CLIENT {
                return Err(Error::new(
                    ErrorKind::TooMany,
                    format!("this client has {mine} locks, the limit: unlock some, or lock larger ranges"),
                ));
            }
            let held: u64 = held_now.here.iter().map(|h| h.pages.count).sum();
            if held + pages.count > self.holdable_pages() {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    format!(
                        "holding {} more pages would pass what may be held of the object, {} pages ({held} are held): \
                         give a larger budget, or lock less",
                        pages.count,
                        self.holdable_pages()
                    ),
                ));
            }
            let limit = self.machine.holdable_pages(uid);
            let counted = self.machine.holdings.take(uid, pages.count, limit).map_err(|held| {
                Error::new(
                    ErrorKind::NoSpace,
                    format!(
                        "holding {} more pages would pass what user {uid} may hold at once, {limit} pages ({held} are \
                         held), half of the host's budget: unlock some, or start the host with a larger --budget",
                        pages.count
                    ),
                )
            })?;
            held_now.here.push(Hold { made_by: number, session, pages, pin: None, counted });
        }
        let pinned = self.bring_and_pin(number, pages, writes);
        let made = Made { number, pinned: *pinned.as_ref().unwrap_or(&false) };
        pinned.map(|_| made).inspect_err(|_| self.drop_made(session, pages, made))
    }

    /// Undoes that one hold, and none that was there before.
    pub fn drop_made(&self, session: SessionId, pages: PageRange, made: Made) {
        self.held_now().here.retain(|hold| hold.made_by != made.number);
        self.note_let_go(session, pages);
    }

    /// The session is about to ask the object's home for these pages: what it lets go meanwhile of what hosts cannot tell
    /// apart from them is not said to be free.
    pub fn asks_for(&self, session: SessionId, pages: PageRange) -> Asking<'_> {
        self.lock().asking.push((session, pages));
        Asking { cache: self, what: (session, pages) }
    }

    /// Pins only what is there: pinning a hole would make a page of zeros.
    fn bring_and_pin(self: &Arc<Self>, number: u64, pages: PageRange, writes: bool) -> Result<bool> {
        if self.driver().is_some() {
            self.note_holds(pages, true);
            self.fetch(pages, writes, PAGES_HERE)?;
        }
        for _ in 0..8 {
            self.bring_all(pages)?;
            let inner = self.lock();
            if !self.all_there(&inner, pages) {
                continue; // reverted in between
            }
            let pin = self.pin(pages);
            let pinned = pin.is_some();
            let whole = |hold: &&mut Hold| hold.made_by == number && hold.pages == pages;
            if let Some(hold) = self.held_now().here.iter_mut().find(whole) {
                hold.pin = pin;
            }
            return Ok(pinned);
        }
        Ok(false)
    }

    fn all_there(&self, inner: &super::Inner, pages: PageRange) -> bool {
        book::within(&inner.resident, pages).len() == pages.count
            && book::within(&inner.in_flight, pages).is_empty()
    }

    fn pin(&self, pages: PageRange) -> Option<Arc<Pin>> {
        Pin::new(&*self.frames, pages.offset_bytes(), pages.length_bytes() as usize).ok().map(Arc::new)
    }

    /// The session holds nothing of this object any more.
    pub fn remove_holds(&self, session: SessionId) {
        let mut gone = Vec::new();
        self.held_now().here.retain(|hold| {
            let stays = hold.session != session;
            gone.extend((!stays).then_some(hold.pages));
            stays
        });
        gone.into_iter().for_each(|pages| self.note_let_go(session, pages));
    }

    /// Other hosts are told too.
    fn note_let_go(&self, session: SessionId, pages: PageRange) {
        self.note_holds(pages, false);
        self.holds_not(session, pages);
    }

    /// The parts of these pages that the session neither holds nor asks for, as far as hosts can tell them apart.
    pub fn not_held_by(&self, session: SessionId, pages: PageRange) -> Vec<PageRange> {
        let whole = |pages| self.driver().map_or(pages, |driver| driver.whole_pages(pages));
        let mut free = book::set_of(whole(pages));
        let inner = self.lock();
        let held = self.held_now();
        let mine = held.here.iter().filter(|hold| hold.session == session);
        let asked = inner.asking.iter().filter(|(who, _)| *who == session).map(|(_, pages)| *pages);
        mine.map(|hold| hold.pages).chain(asked).for_each(|pages| book::remove(&mut free, whole(pages)));
        book::runs(&free)
    }

    /// Other hosts need not wait for those of the pages that the session does not hold.
    pub fn holds_not(&self, session: SessionId, pages: PageRange) {
        if let Some(driver) = self.driver() {
            self.not_held_by(session, pages).into_iter().for_each(|run| driver.unlocked(session, run));
        }
    }

    /// Pages of the object that may be held in memory.
    pub fn holdable_pages(&self) -> u64 {
        self.traits.limit_pages.min(self.machine.budget.limit_pages() / 2)
    }

    /// All held runs, and whose they are.
    pub fn locks(&self) -> Vec<(SessionId, PageRange)> {
        self.held_now().here.iter().map(|hold| (hold.session, hold.pages)).collect()
    }

    /// At the home: processes of other hosts hold these pages, which must not reach the pager.
    pub fn set_held_elsewhere(&self, pages: &[PageRange]) {
        let mut held = RoaringBitmap::new();
        pages.iter().for_each(|run| book::insert(&mut held, *run));
        self.held_now().elsewhere = held;
    }

    /// Another host holds these pages by now: this session does not any more.
    pub fn lose_hold(&self, session: SessionId, pages: PageRange) {
        if self.release(session, pages) {
            let text = format!("pages {}..{} are locked by another host", pages.first, pages.end());
            self.machine.log(format_args!("object {}: {text}: session {} lost them", self.id.0, session.0));
        }
    }

    /// All held runs.
    pub fn held(&self) -> Vec<PageRange> {
        self.held_now().here.iter().map(|hold| hold.pages).collect()
    }

    /// Lets the session's holds on the pages go. Refused when it holds none of them.
    pub fn let_go(self: &Arc<Self>, session: SessionId, pages: PageRange) -> Result<()> {
        if !self.release(session, pages) {
            return Err(Error::invalid(format!(
                "pages {}..{} are not locked by this client: lock them first",
                pages.first,
                pages.end()
            )));
        }
        if self.driver().is_some() {
            return Ok(()); // of an object that hosts share: by sync alone
        }
        // What was held back may be stored now, and of an ordered object it is (Shirriff: "or released by
        // munlock"). An atomic object changes only by sync.
        if self.traits.sync == SyncMode::Atomic || self.pager.is_anonymous() {
            return Ok(());
        }
        self.sync_unheld(pages).map(|_| ())
    }

    /// Whether anything was released.
    fn release(&self, session: SessionId, pages: PageRange) -> bool {
        let mut held = self.held_now();
        let mut released = false;
        let mut left = Vec::new();
        held.here.retain(|hold| {
            if hold.session != session || hold.pages.intersect(pages).is_empty() {
                return true;
            }
            released = true;
            left.extend(without(hold.pages, pages).into_iter().map(|part| Hold {
                made_by: hold.made_by,
                session,
                pages: part,
                pin: hold.pin.clone(),
                counted: hold.counted.part(part.count),
            }));
            false
        });
        held.here.extend(left);
        drop(held);
        self.note_let_go(session, pages);
        released
    }

    /// State of each page, as one byte (Shirriff, section 6, mincore).
    pub fn incore(&self, pages: PageRange) -> Vec<u8> {
        let mut inner = self.lock();
        self.collect(&mut inner, pages);
        let anonymous = self.pager.is_anonymous();
        (pages.first..pages.end())
            .map(|page| {
                let at = page as u32;
                let state = if page >= inner.size_pages() {
                    PageState::Invalid
                } else if !inner.may(page, false) {
                    PageState::Absent // with another host, or not asked for yet
                } else if inner.book.is_dirty(at) && (!anonymous || inner.resident.contains(at)) {
                    PageState::Dirty
                } else if inner.resident.contains(at) || inner.in_flight.contains(at) && self.has_frame(page)
                {
                    // In flight, with a frame: whoever waited for it may run on before this is noted.
                    PageState::Clean
                } else {
                    PageState::Absent
                };
                state.encode(self.held_now().has(page))
            })
            .collect()
    }

    /// Warns of a process that may write to the object past its page tables. Which memory is pinned the kernel does not
    /// tell, so nothing can be refused.
    pub fn pinned_warning(&self) -> Option<String> {
        let inner = self.lock_soon()?;
        let mut writers: Vec<u32> =
            inner.views.iter().filter(|v| v.mapping.writes_object()).map(|v| v.mapping.pid).collect();
        drop(inner);
        writers.sort_unstable();
        writers.dedup();
        writers.into_iter().find_map(|pid| {
            let bytes = process::pinned_bytes(pid);
            (bytes > 0).then(|| {
                format!(
                    "process {pid}, which maps the object for writing, has {bytes} bytes pinned for I/O: what devices \
                     write to pages of the object is not noticed, and may be lost; give them other memory"
                )
            })
        })
    }

    /// Held runs, to be held again by the next host.
    pub fn holds_of(&self, session: SessionId) -> Vec<PageRange> {
        self.held_now().here.iter().filter(|h| h.session == session).map(|h| h.pages).collect()
    }

    /// A hold that the host before granted: the pages are in memory still, and pinned again if all are.
    pub fn hold_again(&self, session: SessionId, uid: u32, pages: PageRange) {
        let inner = self.lock();
        let pin = if self.all_there(&inner, pages) { self.pin(pages) } else { None };
        let counted = self.machine.holdings.take_anyway(uid, pages.count);
        let made_by = HOLDS.fetch_add(1, Ordering::Relaxed);
        self.held_now().here.push(Hold { made_by, session, pages, pin, counted });
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::tests::{Memory, cache};
    use super::*;
    use std::sync::mpsc::channel;

    /// What a turn that waits for hosts has locked is in nobody's way who handles what they say about locks.
    #[test]
    fn what_hosts_say_about_locks_waits_for_no_cache() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), &Memory::new());
        let pages = PageRange::new(1, 2);
        cache.hold_again(SessionId(1), 0, PageRange::new(5, 1));
        let locked = cache.lock();
        let (done, is_done) = channel();
        let reader = cache.clone();
        std::thread::spawn(move || {
            reader.set_held_elsewhere(&[pages]);
            done.send((reader.locks(), reader.holdable_pages())).unwrap();
        });
        let (locks, _) = is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for the cache");
        assert_eq!(locks, [(SessionId(1), PageRange::new(5, 1))]);
        drop(locked);
        assert_eq!(*cache.held_now().elsewhere(), [1, 2].into());
        cache.remove_holds(SessionId(1));
        assert!(cache.locks().is_empty());
    }
}
