//! Room for frames: within the budgets of object and host, by evicting from whoever has most. An
//! eviction may wait for clients, and that for ever (docs/SECURITY.md, "Locks that clients hold"):
//! nobody else waits for that.

use super::Cache;
use crate::live::INTENT_PAGES;
use crate::patience::{LITTLE, PATIENCE};
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, Result};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Evictions that may fail before whoever needs the room is told.
const MOST_FAILURES: u32 = 20;

/// How long whoever needs room waits for evictions that are under way, if there is nothing else to be had.
const MOST_WAIT: Duration = Duration::from_secs(300);

/// What came of an attempt to make room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evicted {
    /// Some left.
    Pages,
    /// None can.
    Nothing,
    /// Some may, if clients let them.
    UnderWay,
}

impl Evicted {
    fn of(pages: usize) -> Evicted {
        if pages == 0 { Evicted::Nothing } else { Evicted::Pages }
    }
}

impl Cache {
    /// Takes room for `pages` frames, evicting as needed. An error says what holds the memory.
    pub(super) fn make_room(self: &Arc<Self>, pages: u64) -> Result<()> {
        let (mut fruitless, mut failures, mut waits_since) = (0, 0, None);
        while !self.try_take(pages) {
            if self.is_incomplete() {
                // Nothing may leave until all clients are back: for that while the budget gives way.
                self.budget.take_anyway(pages);
                self.machine.budget.take_anyway(pages);
                return Ok(());
            }
            let short_here = self.budget.used_pages() + pages > self.budget.limit_pages();
            // What could not be saved stays, and comes last the next time: others may go in its place.
            let gone = match self.evict_somewhere(short_here) {
                Err(error) if failures == MOST_FAILURES => return Err(error),
                Err(_) => {
                    failures += 1;
                    Evicted::Nothing
                }
                Ok(gone) => gone,
            };
            match gone {
                Evicted::Pages => (fruitless, waits_since) = (0, None),
                Evicted::Nothing => fruitless += 1,
                Evicted::UnderWay if !short_here && self.take_beyond(pages) => return Ok(()),
                Evicted::UnderWay => {
                    let since = *waits_since.get_or_insert_with(Instant::now);
                    fruitless += if since.elapsed() > MOST_WAIT { 1 } else { 0 };
                }
            }
            if fruitless > 200 {
                return Err(self.nothing_leaves(short_here));
            }
            if gone != Evicted::Pages {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    fn nothing_leaves(&self, short_here: bool) -> Error {
        let (what, limit) = if short_here {
            ("the object's memory budget", self.budget.limit_pages())
        } else {
            ("the host's memory budget", self.machine.budget.limit_pages())
        };
        Error::new(
            ErrorKind::NoSpace,
            format!(
                "no page of {what} ({} bytes) can be evicted, all are held or in use: unlock some, or give a larger \
                 budget",
                limit * PAGE_SIZE_BYTES
            ),
        )
    }

    /// Frames of others do not leave, since they wait for a client: takes room beyond the budget
    /// for as many, up to a quarter of it, unless they are of this object's owner.
    fn take_beyond(&self, pages: u64) -> bool {
        let waiting: Vec<_> = self
            .machine
            .by_size()
            .into_iter()
            .filter(|cache| cache.leaves_apart.load(Ordering::Acquire))
            .collect();
        let mine = waiting.iter().any(|cache| cache.traits.uid == self.traits.uid);
        let beyond: u64 = waiting.iter().map(|cache| cache.used_pages()).sum();
        let beyond = beyond.min(self.machine.budget.limit_pages() / 4);
        if mine || !self.budget.try_take(pages) {
            return false;
        }
        let taken = self.machine.budget.try_take_beyond(pages, beyond);
        if !taken {
            self.budget.give(pages);
        }
        taken
    }

    /// Evicts from this object, or from whichever has most. Another object's failure is not this one's.
    fn evict_somewhere(self: &Arc<Self>, here: bool) -> Result<Evicted> {
        let victims = if here { vec![self.clone()] } else { self.machine.by_size() };
        let late = victims.iter().filter(|cache| cache.leaves_late());
        let mut late: HashSet<u32> = late.map(|cache| cache.traits.uid).collect();
        let mut nothing = Evicted::Nothing;
        for victim in victims {
            let gone = if Arc::ptr_eq(&victim, self) {
                self.evict_some().map(Evicted::of)
            } else {
                let uid = victim.traits.uid;
                let gone = victim.evict_apart(if late.contains(&uid) { LITTLE } else { PATIENCE });
                late.extend(victim.leaves_late().then_some(uid));
                gone
            };
            match gone {
                Ok(Evicted::Nothing) => {}
                Ok(Evicted::UnderWay) => nothing = Evicted::UnderWay,
                Ok(gone) => return Ok(gone),
                Err(error) if Arc::ptr_eq(&victim, self) => return Err(error),
                Err(error) => victim.machine.log(format_args!("object {}: eviction: {error}", victim.id.0)),
            }
        }
        Ok(nothing)
    }

    fn evict_some(self: &Arc<Self>) -> Result<usize> {
        if self.has_pages() { self.evict(INTENT_PAGES) } else { self.evict_shared(INTENT_PAGES) }
    }

    /// Evicts on a thread of the owner's share: what is asked of the object's memory, and of its
    /// clients' address spaces, waits for locks that those clients can hold. Whoever needs the room
    /// waits for a while only.
    fn evict_apart(self: &Arc<Self>, wait: Duration) -> Result<Evicted> {
        if self.leaves_apart.swap(true, Ordering::AcqRel) {
            return Ok(Evicted::UnderWay);
        }
        self.left_late.store(false, Ordering::Release);
        let (tell, told) = sync_channel(1);
        let this = self.clone();
        self.run_on(&self.machine.urgent, move || {
            let gone = this.evict_some();
            this.leaves_apart.store(false, Ordering::Release);
            let _ = tell.send(gone); // unheard where it took too long
        });
        let gone = told.recv_timeout(wait);
        self.left_late.store(gone.is_err(), Ordering::Release);
        gone.map_or(Ok(Evicted::UnderWay), |gone| gone.map(Evicted::of))
    }

    /// Whether whoever asked for an eviction that is under way went on without it.
    fn leaves_late(&self) -> bool {
        self.left_late.load(Ordering::Acquire) && self.leaves_apart.load(Ordering::Acquire)
    }

    /// Begins to evict in the background when little room is left, so that faults need not wait.
    pub(super) fn evict_ahead(self: &Arc<Self>) {
        if !self.budget.is_low() && !self.machine.budget.is_low() {
            return;
        }
        if self.evicting.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = self.clone();
        self.run_on(&self.machine.ahead, move || {
            for _ in 0..64 {
                let here = this.budget.is_low();
                if !here && !this.machine.budget.is_low() {
                    break;
                }
                match this.evict_somewhere(here) {
                    Ok(Evicted::Pages) => {}
                    Ok(_) => break,
                    Err(error) => {
                        this.machine.log(format_args!("object {}: eviction: {error}", this.id.0));
                        break;
                    }
                }
            }
            this.evicting.store(false, Ordering::Relaxed);
        });
    }
}
