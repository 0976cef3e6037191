//! What this process has mapped of ours: attached segments, and anonymous mappings. A forked child has the same.
//!
//! A program may unmap, move or map over any of it behind our back, as it may with the kernel's segments; the preloaded library
//! tells, and what is left of each is known. Who asks whether an address is ours takes no lock unless it may be.

use crate::kernel;
use commonhold::ObjectId;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// One mapping.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    /// What of its addresses is still mapped, in order. Past what the program asked for there may be a rest, which goes last.
    parts: Vec<Range<usize>>,
    /// Where what the program asked for ends.
    asked_end: usize,
    /// The page size, in which it can be cut.
    page: usize,
    /// None: it is anonymous.
    segment: Option<Attached>,
}

/// A segment that is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attached {
    /// The twin's number.
    pub(crate) id: i32,
    /// Where the twin is attached, by which the kernel counts this one; none: not any more.
    pub(crate) twin: Option<usize>,
}

/// What a segment's number stands for in this process, from the first time that it was asked for: who made the segment can put
/// another object in its place, and then it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) object: ObjectId,
    pub(crate) bytes: usize,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Table {
    /// By where each begins.
    mapped: BTreeMap<usize, Mapped>,
    pub(crate) known: BTreeMap<i32, Known>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { mapped: BTreeMap::new(), known: BTreeMap::new() });
/// Between these lies all that was ever in the table.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether some of these addresses may be in the table.
pub(crate) fn may_have(range: &Range<usize>) -> bool {
    range.start < HIGHEST.load(Ordering::Acquire) && range.end > LOWEST.load(Ordering::Acquire)
}

/// Locks it. The first time, fork and exit get to know of it.
///
/// Signals are blocked while it is locked (`exports`): a handler that asks for the same would wait for itself.
pub(crate) fn lock() -> MutexGuard<'static, Table> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of this library, which is never unloaded (build.rs). Without memory for the handlers a fork while
        // another thread attaches would leave the child without the table.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            libc::atexit(at_exit);
        }
    });
    lock_now()
}

fn lock_now() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mapped {
    /// A fresh one, of `length` addresses, of which the program asked for `asked`.
    pub(crate) fn new(
        start: usize,
        length: usize,
        asked: usize,
        page: usize,
        segment: Option<Attached>,
    ) -> Mapped {
        let asked_end = start + asked.next_multiple_of(page);
        Mapped { parts: std::iter::once(start..start + length).collect(), asked_end, page, segment }
    }

    fn cut(&mut self, gone: &Range<usize>) {
        let cut =
            |part: &Range<usize>| [part.start..part.end.min(gone.start), part.start.max(gone.end)..part.end];
        self.parts = self.parts.iter().flat_map(cut).filter(|part| part.start < part.end).collect();
    }

    /// Whether nothing is left of what the program asked for.
    fn is_over(&self) -> bool {
        self.parts.first().is_none_or(|part| part.start >= self.asked_end)
    }

    /// Unmaps what is left. An error, and it is as before.
    fn unmap(&mut self) -> Result<(), rustix::io::Errno> {
        while let Some(part) = self.parts.last() {
            // SAFETY: the program gave it up, or never knew of it.
            unsafe { rustix::mm::munmap(part.start as *mut _, part.end - part.start) }?;
            self.parts.pop();
        }
        Ok(())
    }
}

/// Segments that a process has just left: their objects may be over.
pub(crate) type Left = Vec<i32>;

impl Table {
    /// Puts a fresh mapping in. What was there is gone: the kernel has given the addresses anew.
    pub(crate) fn insert(&mut self, start: usize, mapped: Mapped) -> Left {
        let end = mapped.parts.last().map_or(start, |part| part.end);
        let left = self.gone(&(start..end));
        LOWEST.fetch_min(start, Ordering::AcqRel);
        HIGHEST.fetch_max(end, Ordering::AcqRel);
        self.mapped.insert(start, mapped);
        left
    }

    /// These addresses are not ours any more: they were unmapped, or others are mapped over them.
    pub(crate) fn gone(&mut self, range: &Range<usize>) -> Left {
        let overlaps =
            |mapped: &Mapped| mapped.parts.iter().any(|p| p.start < range.end && range.start < p.end);
        let starts: Vec<usize> = self
            .mapped
            .range(..range.end)
            .filter(|(_, mapped)| overlaps(mapped))
            .map(|(start, _)| *start)
            .collect();
        let mut left = Left::new();
        for start in starts {
            let Some(mapped) = self.mapped.get_mut(&start) else { continue };
            mapped.cut(range);
            if mapped.is_over() {
                let mut mapped =
                    self.mapped.remove(&start).unwrap_or_else(|| unreachable!("it was just there"));
                let _ = mapped.unmap(); // nobody knows of the rest; a process that is out of mappings keeps it
                left.extend(mapped.segment.and_then(leave));
            }
        }
        left
    }

    /// Detaches the segment that is attached there. None: there is none of ours.
    pub(crate) fn detach(&mut self, start: usize) -> Option<Result<i32, rustix::io::Errno>> {
        let mapped = self.mapped.get_mut(&start).filter(|mapped| mapped.segment.is_some())?;
        if let Err(errno) = mapped.unmap() {
            return Some(Err(errno));
        }
        let attached = self.mapped.remove(&start)?.segment?;
        leave(attached);
        Some(Ok(attached.id))
    }

    /// Whether the twin of a segment is attached there, of which no program knows.
    pub(crate) fn is_twin(&self, address: usize) -> bool {
        self.mapped
            .values()
            .any(|mapped| mapped.segment.is_some_and(|attached| attached.twin == Some(address)))
    }

    /// The end of what the kernel is to unmap, where a program unmaps up to `end`: what ends with the mapping that was asked for
    /// ends with its last page, however large that is.
    pub(crate) fn end_of_page(&self, end: usize, small: usize) -> usize {
        let ends = |mapped: &&Mapped| end <= mapped.asked_end && mapped.asked_end - end < mapped.page;
        let has = |mapped: &&Mapped| {
            mapped.page > small && mapped.parts.iter().any(|part| part.contains(&(end - 1)))
        };
        self.mapped.values().filter(has).find(ends).map_or(end, |mapped| mapped.asked_end)
    }

    /// A mapping was moved. A whole one is known by its new place.
    pub(crate) fn moved(&mut self, from: Range<usize>, to: Range<usize>) -> Left {
        let mut left = self.gone(&to);
        let is_whole = |mapped: &Mapped| {
            mapped.parts.len() == 1 && mapped.parts[0].start == from.start && mapped.asked_end <= from.end
        };
        if self.mapped.get(&from.start).is_some_and(is_whole)
            && let Some(mut mapped) = self.mapped.remove(&from.start)
        {
            mapped.cut(&from);
            let _ = mapped.unmap(); // as above
            let fresh = Mapped { parts: std::iter::once(to.clone()).collect(), asked_end: to.end, ..mapped };
            left.extend(self.insert(to.start, fresh));
        } else {
            left.extend(self.gone(&from));
        }
        left
    }

    /// Lets go of the twins of those segments that were removed, at the end of a process. The addresses stay, for handlers of
    /// exit that come after.
    pub(crate) fn leave_removed(&mut self, is_removed: impl Fn(i32) -> bool) -> Left {
        let segments = self.mapped.values_mut().filter_map(|mapped| mapped.segment.as_mut());
        let removed = segments.filter(|attached| is_removed(attached.id));
        removed.filter_map(|attached| leave(Attached { twin: attached.twin.take(), ..*attached })).collect()
    }
}

/// Detaches the twin. Gives the segment's number.
fn leave(attached: Attached) -> Option<i32> {
    // SAFETY: of the twin no program knows.
    attached.twin.map(|twin| unsafe { kernel::detach(twin) }).filter(Result::is_ok).map(|_| attached.id)
}

struct Slot(UnsafeCell<Option<MutexGuard<'static, Table>>>);

// SAFETY: only who holds the lock touches it: the thread that forks, and its image in the child.
unsafe impl Sync for Slot {}

static HELD: Slot = Slot(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let guard = lock_now();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread holds the lock.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn in_child() {
    crate::errands::close_others();
    in_parent();
}

extern "C" fn at_exit() {
    crate::exports::undisturbed(|| {
        let _ = std::panic::catch_unwind(crate::attach::leave_removed);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const HUGE: usize = 2 << 20;

    fn table(start: usize, length: usize, asked: usize, page: usize) -> Table {
        let mapped = Mapped::new(start, length, asked, page, None);
        Table { mapped: BTreeMap::from([(start, mapped)]), known: BTreeMap::new() }
    }

    fn parts(table: &Table) -> Vec<Range<usize>> {
        table.mapped.values().flat_map(|mapped| mapped.parts.clone()).collect()
    }

    #[test]
    fn what_is_cut_out_is_not_ours() {
        let start = 16 * PAGE;
        let mut table = table(start, 8 * PAGE, 8 * PAGE, PAGE);
        table.gone(&(start + 2 * PAGE..start + 3 * PAGE));
        assert_eq!(parts(&table), [start..start + 2 * PAGE, start + 3 * PAGE..start + 8 * PAGE]);
        table.gone(&(0..start + 2 * PAGE));
        table.gone(&(start + 3 * PAGE..start + 9 * PAGE));
        assert!(table.mapped.is_empty());
    }

    #[test]
    fn a_mapping_ends_with_its_last_page() {
        let start = 8 * HUGE;
        let table = table(start, 64 * HUGE, HUGE + PAGE, HUGE);
        assert_eq!(table.end_of_page(start + HUGE + PAGE, PAGE), start + 2 * HUGE);
        assert_eq!(table.end_of_page(start + HUGE, PAGE), start + HUGE);
        assert_eq!(table.end_of_page(start + PAGE, PAGE), start + PAGE, "no whole page of it");
        assert_eq!(table.end_of_page(start - HUGE, PAGE), start - HUGE);
    }
}
