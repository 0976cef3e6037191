//! What this process has mapped of ours: attached segments, and anonymous mappings. A forked child has the same.
//!
//! A program may unmap, move or map over any of it behind our back, as it may with the kernel's segments; the preloaded library
//! tells, and what is left of each is known. Who asks whether an address is ours takes no lock unless it may be.

use crate::Wishes;
use crate::attach::UNIT;
use crate::kernel;
use commonhold::{ErrorKind, Mapping, ObjectId};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One mapping.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// What of its addresses is still mapped, in order. Past what the program asked for there may be a rest, which goes last.
    parts: Vec<Range<usize>>,
    /// Where what the program asked for ends; where the last page of that does.
    asked_end: usize,
    page_end: usize,
    /// The page size, in which it can be cut.
    page: usize,
    /// None: it is anonymous.
    segment: Option<Attached>,
    /// The host serves its faults: the client library maps and unmaps it.
    client: Option<Mapping>,
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

/// An object that was opened by `shm_open`: what its descriptors, however many there are by now, have in common.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) name: String,
}

/// So many of them are remembered; of what was opened before, only the kernel changes the size.
const OPENED: usize = 4096;

/// All of it.
#[derive(Debug)]
pub(crate) struct Table {
    /// By where each began, and a number: what is left of one may lie behind the beginning of another.
    mapped: BTreeMap<(usize, u64), Mapped>,
    next: u64,
    pub(crate) known: BTreeMap<i32, Known>,
    opened: VecDeque<Opened>,
}

static TABLE: Mutex<Table> =
    Mutex::new(Table { mapped: BTreeMap::new(), next: 0, known: BTreeMap::new(), opened: VecDeque::new() });
/// Between these lies all that was ever in the table.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// The thread that has the table locked; zero: none.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// Whether some of these addresses may be in the table.
pub(crate) fn may_have(range: &Range<usize>) -> bool {
    range.start < HIGHEST.load(Ordering::Acquire) && range.end > LOWEST.load(Ordering::Acquire)
}

fn this_thread() -> usize {
    // SAFETY: asks for nothing.
    unsafe { libc::pthread_self() as usize }
}

/// Whether this very thread has the table locked: the program's allocator, or one of its handlers of fork, unmaps meanwhile.
pub(crate) fn is_locked_here() -> bool {
    OWNER.load(Ordering::Acquire) == this_thread()
}

/// The table, locked. Signals are blocked meanwhile (`exports`): a handler that asks for the same would wait for itself.
pub(crate) struct Locked(MutexGuard<'static, Table>);

impl Deref for Locked {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        OWNER.store(0, Ordering::Release);
    }
}

impl Table {
    /// An object was opened.
    pub(crate) fn note_opened(&mut self, opened: Opened) {
        self.opened.retain(|one| (one.device, one.inode) != (opened.device, opened.inode));
        if self.opened.len() >= OPENED {
            self.opened.pop_front();
        }
        self.opened.push_back(opened);
    }

    /// The name by which that file was opened, if it is an object.
    pub(crate) fn opened(&self, device: u64, inode: u64) -> Option<String> {
        let found = self.opened.iter().find(|one| (one.device, one.inode) == (device, inode));
        found.map(|one| one.name.clone())
    }
}

/// Makes fork and exit known to the table, when the library is loaded.
pub(crate) fn begin() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if !BEGUN.swap(true, Ordering::AcqRel) {
        if Wishes::of_this_process().shared_keys {
            commonhold::register_handlers(); // the table's lock, under which the client library is asked, is taken before its own
        }
        // SAFETY: functions of this library, which is never unloaded (build.rs). Without memory for the handlers a fork while
        // another thread attaches would leave the child without the table.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            libc::atexit(at_exit);
        }
    }
}

/// Locks it.
pub(crate) fn lock() -> Locked {
    let guard = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    OWNER.store(this_thread(), Ordering::Release);
    Locked(guard)
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
        let (asked_end, page_end) =
            (start + asked.next_multiple_of(UNIT), start + asked.next_multiple_of(page));
        let parts = std::iter::once(start..start + length).collect();
        Mapped { parts, asked_end, page_end, page, segment, client: None }
    }

    /// The same by the client library.
    pub(crate) fn of_client(self, mapping: Mapping) -> Mapped {
        Mapped { client: Some(mapping), ..self }
    }

    /// What the client library has in that range.
    fn clients(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let cut = |part: &Range<usize>| part.start.max(range.start)..part.end.min(range.end);
        let parts = if self.client.is_some() { &self.parts[..] } else { &[] };
        parts.iter().map(cut).filter(|part| part.start < part.end).collect()
    }

    fn cut(&mut self, gone: &Range<usize>) {
        if let Some(mapping) = &self.client {
            for part in self.clients(gone) {
                // Who is not told, because it is away, learns it when it takes the process back.
                let _ = mapping.give_up(part.start - mapping.as_ptr() as usize, part.end - part.start);
            }
        }
        let cut =
            |part: &Range<usize>| [part.start..part.end.min(gone.start), part.start.max(gone.end)..part.end];
        self.parts = self.parts.iter().flat_map(cut).filter(|part| part.start < part.end).collect();
    }

    /// Whether nothing is left of what the program asked for.
    fn is_over(&self) -> bool {
        self.parts.first().is_none_or(|part| part.start >= self.page_end)
    }

    /// Unmaps what is left. After an error some of it is left.
    fn unmap(&mut self) -> Result<(), rustix::io::Errno> {
        while let Some(part) = self.parts.last() {
            match &self.client {
                Some(mapping) => unmap_of_client(mapping, part)?,
                // SAFETY: the program gave it up, or never knew of it.
                None => unsafe { rustix::mm::munmap(part.start as *mut _, part.end - part.start) }?,
            }
            self.parts.pop();
        }
        Ok(())
    }
}

/// Unmaps what the client library has mapped.
fn unmap_of_client(mapping: &Mapping, part: &Range<usize>) -> Result<(), rustix::io::Errno> {
    match mapping.unmap(part.start - mapping.as_ptr() as usize, part.end - part.start) {
        Err(error) if error.kind == ErrorKind::TooMany => Err(rustix::io::Errno::NOMEM),
        // The host, which could not be asked, has nothing to store of it; the addresses are unmapped all the same.
        Ok(()) | Err(_) => Ok(()),
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
        self.next += 1;
        self.mapped.insert((start, self.next), mapped);
        left
    }

    /// These addresses are not ours any more: they were unmapped, or others are mapped over them.
    pub(crate) fn gone(&mut self, range: &Range<usize>) -> Left {
        let mut left = Left::new();
        let behind = self.mapped.range_mut(..(range.end, 0));
        let overlaps =
            |mapped: &Mapped| mapped.parts.iter().any(|p| p.start < range.end && range.start < p.end);
        let mut over = Vec::new();
        for (key, mapped) in behind.filter(|(_, mapped)| overlaps(mapped)) {
            mapped.cut(range);
            if mapped.is_over() {
                let _ = mapped.unmap(); // nobody knows of the rest; a process that is out of mappings keeps it
                left.extend(mapped.segment.and_then(leave));
                over.push(*key);
            }
        }
        over.iter().for_each(|key| {
            self.mapped.remove(key);
        });
        left
    }

    /// Unmaps what the client library has in that range. Gives what it was, in order; the rest is the kernel's to unmap.
    pub(crate) fn unmap_clients(
        &mut self,
        range: &Range<usize>,
    ) -> Result<Vec<Range<usize>>, rustix::io::Errno> {
        let mut all = Vec::new();
        for mapped in self.mapped.values() {
            for part in mapped.clients(range) {
                mapped.client.iter().try_for_each(|mapping| unmap_of_client(mapping, &part))?;
                all.push(part);
            }
        }
        all.sort_by_key(|part| part.start);
        Ok(all)
    }

    /// Whether the client library has something in that range.
    pub(crate) fn has_client(&self, range: &Range<usize>) -> bool {
        self.mapped.values().any(|mapped| !mapped.clients(range).is_empty())
    }

    /// The mapping that began there last.
    fn at(&mut self, start: usize) -> Option<((usize, u64), &mut Mapped)> {
        let (key, mapped) = self.mapped.range_mut((start, 0)..=(start, u64::MAX)).next_back()?;
        Some((*key, mapped))
    }

    /// Detaches the segment that is attached there. None: there is none of ours.
    pub(crate) fn detach(&mut self, start: usize) -> Option<Result<i32, rustix::io::Errno>> {
        let (key, mapped) = self.at(start).filter(|(_, mapped)| mapped.segment.is_some())?;
        if let Err(errno) = mapped.unmap() {
            return Some(Err(errno));
        }
        let attached = self.mapped.remove(&key)?.segment?;
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
    pub(crate) fn end_of_page(&self, end: usize) -> usize {
        let ends = |mapped: &&Mapped| (mapped.asked_end..mapped.page_end).contains(&end);
        let has = |mapped: &&Mapped| mapped.parts.iter().any(|part| part.contains(&(end - 1)));
        self.mapped.values().filter(has).find(ends).map_or(end, |mapped| mapped.page_end)
    }

    /// A mapping was moved, shrunk or enlarged. A whole one is known by its new place.
    pub(crate) fn moved(&mut self, from: Range<usize>, to: Range<usize>) -> Left {
        let page = self.at(from.start).map_or(UNIT, |(_, mapped)| mapped.page);
        let whole = |range: Range<usize>| range.start..range.end.next_multiple_of(page);
        let (from, to) = (whole(from), whole(to));
        if from.start == to.start {
            if to.end < from.end {
                return self.gone(&(to.end..from.end));
            }
            if let Some((_, mapped)) =
                self.at(from.start).filter(|(_, m)| m.parts.last().is_some_and(|p| p.end == from.end))
            {
                mapped.parts.last_mut().expect("there is one").end = to.end;
                (mapped.asked_end, mapped.page_end) = (to.end, to.end);
                HIGHEST.fetch_max(to.end, Ordering::AcqRel);
            }
            return Left::new();
        }
        let mut left = self.gone(&to);
        let is_whole = |mapped: &Mapped| matches!(&mapped.parts[..], [part] if part.start == from.start && part.end.min(mapped.page_end) <= from.end);
        let found = self.at(from.start).filter(|(_, mapped)| is_whole(mapped)).map(|(key, _)| key);
        match found.and_then(|key| self.mapped.remove(&key)) {
            Some(mut mapped) => {
                mapped.cut(&from);
                let _ = mapped.unmap(); // as above
                let parts = std::iter::once(to.clone()).collect();
                let fresh = Mapped { parts, asked_end: to.end, page_end: to.end, ..mapped };
                left.extend(self.insert(to.start, fresh));
            }
            None => left.extend(self.gone(&from)),
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

struct Slot(UnsafeCell<Option<(Locked, libc::sigset_t)>>);

// SAFETY: only who holds the lock touches it: the thread that forks, and its image in the child.
unsafe impl Sync for Slot {}

static HELD: Slot = Slot(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let signals = crate::exports::block_signals();
    let guard = lock();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some((guard, signals)) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread, or the one that it is the image of, holds the lock.
    if let Some((guard, signals)) = unsafe { (*HELD.0.get()).take() } {
        drop(guard);
        crate::exports::restore_signals(&signals);
    }
}

extern "C" fn in_child() {
    crate::errands::close_others();
    in_parent();
}

extern "C" fn at_exit() {
    crate::exports::undisturbed(|| {
        let _ = std::panic::catch_unwind(crate::attach::leave_removed); // the program ends all the same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const HUGE: usize = 2 << 20;

    fn table(all: &[(usize, usize, usize, usize)]) -> Table {
        let mut table =
            Table { mapped: BTreeMap::new(), next: 0, known: BTreeMap::new(), opened: VecDeque::new() };
        for (start, length, asked, page) in all {
            table.next += 1;
            table.mapped.insert((*start, table.next), Mapped::new(*start, *length, *asked, *page, None));
        }
        table
    }

    fn parts(table: &Table) -> Vec<Range<usize>> {
        table.mapped.values().flat_map(|mapped| mapped.parts.clone()).collect()
    }

    #[test]
    fn what_is_cut_out_is_not_ours() {
        let start = 16 * PAGE;
        let mut table = table(&[(start, 8 * PAGE, 8 * PAGE, PAGE)]);
        table.gone(&(start + 2 * PAGE..start + 3 * PAGE));
        assert_eq!(parts(&table), [start..start + 2 * PAGE, start + 3 * PAGE..start + 8 * PAGE]);
        table.gone(&(0..start + 2 * PAGE));
        table.gone(&(start + 3 * PAGE..start + 9 * PAGE));
        assert!(table.mapped.is_empty());
    }

    #[test]
    fn what_is_left_of_one_lies_behind_the_beginning_of_another() {
        let start = 16 * PAGE;
        let mut table = table(&[(start, 8 * PAGE, 8 * PAGE, PAGE)]);
        table.gone(&(start..start + 4 * PAGE));
        table.insert(start, Mapped::new(start, 4 * PAGE, 4 * PAGE, PAGE, None));
        assert_eq!(parts(&table), [start + 4 * PAGE..start + 8 * PAGE, start..start + 4 * PAGE]);
    }

    #[test]
    fn a_mapping_ends_with_its_last_page() {
        let start = 8 * HUGE;
        let table = table(&[(start, 64 * HUGE, HUGE + PAGE, HUGE)]);
        assert_eq!(table.end_of_page(start + HUGE + PAGE), start + 2 * HUGE);
        for end in [start + HUGE, start + PAGE, start - HUGE, start + 2 * HUGE] {
            assert_eq!(table.end_of_page(end), end);
        }
    }

    #[test]
    fn what_moves_in_place_stays_known() {
        let is =
            |table: &Table, part: Range<usize>| assert!(parts(table).into_iter().eq(std::iter::once(part)));
        let start = 16 * PAGE;
        let mut table = table(&[(start, 2 * PAGE, 5000, PAGE)]);
        table.moved(start..start + 5000, start..start + 5000);
        is(&table, start..start + 2 * PAGE);
        table.moved(start..start + 5000, start..start + 3 * PAGE);
        is(&table, start..start + 3 * PAGE);
        table.moved(start..start + 3 * PAGE, start..start + PAGE);
        is(&table, start..start + PAGE);
        table.moved(start..start + PAGE, 64 * PAGE..65 * PAGE);
        is(&table, 64 * PAGE..65 * PAGE);
    }
}
