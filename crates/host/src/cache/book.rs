//! The book: which pages of an object are newer than what is stored. It is the truth (DESIGN.md, rule 4); page
//! tables are only asked. Every change is mirrored in `live/<id>` before it takes effect.

use crate::live::{Grant, Live, Mark};
use crate::newer::Newer;
use commonhold_object::{PageRange, Result};
use commonhold_points as points;
use roaring::RoaringBitmap;

/// Dirty bookkeeping of one object.
pub struct Book {
    live: Live,
    dirty: RoaringBitmap,
    writing: RoaringBitmap,
    spilled: RoaringBitmap,
    moving: Option<Moving>,
}

/// At the home of an object that moves.
struct Moving {
    newer: Newer,
    lent: RoaringBitmap,
    /// Pages of `newer` of which the replicas, if there are such, have not heard it yet.
    untold: RoaringBitmap,
}

impl Moving {
    fn may_be_newer(&mut self, pages: &RoaringBitmap) -> Result<()> {
        let new = pages - self.newer.pages();
        let noted = self.newer.set(&new);
        if self.newer.has_replicas() {
            self.untold |= new;
        }
        noted
    }
}

/// The runs of consecutive numbers in a set, in order. Costs by the runs, not by the pages.
pub fn runs(set: &RoaringBitmap) -> Vec<PageRange> {
    let mut found = Vec::new();
    let mut pages = set.iter();
    while let Some(run) = pages.next_range() {
        found.push(PageRange::new(
            u64::from(*run.start()),
            u64::from(*run.end()) - u64::from(*run.start()) + 1,
        ));
    }
    found
}

/// A run of pages as a set.
pub fn set_of(range: PageRange) -> RoaringBitmap {
    let mut set = RoaringBitmap::new();
    insert(&mut set, range);
    set
}

/// Adds a run to a set.
pub fn insert(set: &mut RoaringBitmap, range: PageRange) {
    match range.count {
        0 => {}
        1 => drop(set.insert(range.first as u32)), // most often, and cheaper so
        _ => drop(set.insert_range(range.first as u32..=(range.end() - 1) as u32)),
    }
}

/// Takes a run out of a set.
pub fn remove(set: &mut RoaringBitmap, range: PageRange) {
    match range.count {
        0 => {}
        1 => drop(set.remove(range.first as u32)),
        _ => drop(set.remove_range(range.first as u32..=(range.end() - 1) as u32)),
    }
}

/// The part of a set that lies in a run. Costs by the pages found, not by the size of the set.
pub fn within(set: &RoaringBitmap, range: PageRange) -> RoaringBitmap {
    if range.is_empty() || range.first > u64::from(u32::MAX) {
        return RoaringBitmap::new();
    }
    let last = (range.end() - 1).min(u32::MAX.into()) as u32;
    if range.first == 0 && set.max().is_none_or(|max| max <= last) {
        return set.clone();
    }
    RoaringBitmap::from_sorted_iter(set.range(range.first as u32..=last)).unwrap_or_default()
}

impl Book {
    /// An empty book.
    pub fn new(live: Live) -> Book {
        Book {
            live,
            dirty: RoaringBitmap::new(),
            writing: RoaringBitmap::new(),
            spilled: RoaringBitmap::new(),
            moving: None,
        }
    }

    /// The book as the host before left it: what was being written is dirty.
    pub fn recover(live: Live) -> Result<Book> {
        let mut book = Book::new(live);
        book.spilled = book.marked(Mark::Spilled);
        book.dirty = book.marked(Mark::Dirty);
        book.writing = book.marked(Mark::Writing);
        let unfinished = book.writing.clone();
        book.not_written(&unfinished)?;
        Ok(book)
    }

    fn marked(&self, mark: Mark) -> RoaringBitmap {
        let mut set = RoaringBitmap::new();
        self.live.each(mark, |page| {
            set.insert(page as u32);
        });
        set
    }

    /// At the home of an object that moves: pages that may be newer than the stored object.
    pub fn newer(&self) -> RoaringBitmap {
        self.moving.as_ref().map(|moving| moving.newer.pages().clone()).unwrap_or_default()
    }

    /// From now on the next home can find out what is newer than the stored object.
    pub fn is_home(&mut self, newer: Newer) -> Result<()> {
        let moving = Moving { newer, lent: RoaringBitmap::new(), untold: RoaringBitmap::new() };
        let moving = self.moving.insert(moving);
        moving.may_be_newer(&(&self.dirty | &self.writing))?;
        let lent = self.lent();
        self.moving.iter_mut().for_each(|moving| moving.lent = lent.clone());
        Ok(())
    }

    /// Of these pages those that nobody has newer are stored.
    pub fn now_stored(&mut self, pages: &RoaringBitmap) {
        if let Some(moving) = &mut self.moving {
            let stored = pages - &self.dirty - &self.writing - &moving.lent - &moving.untold;
            // If that fails they count as newer, and are looked for in vain.
            let _ = moving.newer.clear(&stored);
        }
    }

    /// Whether replicas must hear that any of these pages may be newer before that happens.
    pub fn must_tell(&self, pages: &RoaringBitmap) -> bool {
        self.moving.as_ref().is_some_and(|moving| {
            moving.newer.has_replicas()
                && (!pages.is_subset(moving.newer.pages()) || !pages.is_disjoint(&moving.untold))
        })
    }

    /// The same of one page: each fault asks.
    pub fn must_tell_page(&self, page: u32) -> bool {
        self.moving.as_ref().is_some_and(|moving| {
            moving.newer.has_replicas()
                && (!moving.newer.pages().contains(page) || moving.untold.contains(page))
        })
    }

    /// These pages may be newer than what is stored as soon as the replicas have heard it.
    pub fn may_be_newer(&mut self, pages: &RoaringBitmap) -> Result<()> {
        self.moving.as_mut().map_or(Ok(()), |moving| moving.may_be_newer(pages))
    }

    /// Pages of which the replicas have not heard yet that they may be newer. They count as newer until they have.
    pub fn untold(&self) -> RoaringBitmap {
        self.moving.as_ref().map(|moving| moving.untold.clone()).unwrap_or_default()
    }

    /// Whether there are none.
    pub fn is_all_told(&self) -> bool {
        self.moving.as_ref().is_none_or(|moving| moving.untold.is_empty())
    }

    /// They have heard it.
    pub fn told(&mut self, pages: &RoaringBitmap) {
        if let Some(moving) = &mut self.moving {
            moving.untold -= pages;
        }
    }

    /// The file behind it.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Pages newer than what is stored, those that are being stored included.
    pub fn is_dirty(&self, page: u32) -> bool {
        self.dirty.contains(page) || self.writing.contains(page)
    }

    /// Whether a write of the page changes nothing here.
    pub fn is_noted(&self, page: u32) -> bool {
        self.dirty.contains(page) && !self.spilled.contains(page)
    }

    /// Whether it is noted on a disk that the page may be newer, before it is written for the first time.
    pub fn notes_on_disk(&self, page: u32) -> bool {
        self.moving
            .as_ref()
            .is_some_and(|moving| moving.newer.is_durable() && !moving.newer.pages().contains(page))
    }

    /// How many of them.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.len() + self.writing.len()
    }

    /// Those that no sync is storing at the moment.
    pub fn dirty(&self) -> &RoaringBitmap {
        &self.dirty
    }

    /// Pages that a sync is storing: they must not be evicted.
    pub fn writing(&self) -> &RoaringBitmap {
        &self.writing
    }

    /// Pages whose newest content is in the spill file.
    pub fn spilled(&self) -> &RoaringBitmap {
        &self.spilled
    }

    /// These pages are newer than what is stored. On an error (disk full) they are dirty all the same, though
    /// the next host would have to find that out by comparing.
    pub fn add_dirty(&mut self, pages: &RoaringBitmap) -> Result<()> {
        if pages.is_subset(&self.dirty) {
            return Ok(()); // a page that goes to and fro between hosts
        }
        let new = pages - &self.dirty;
        let mut result = self.moving.as_mut().map_or(Ok(()), |moving| moving.may_be_newer(&new));
        for run in runs(&new) {
            match self.live.prepare(Mark::Dirty, run.first, run.count) {
                Ok(()) if points::mutant("cache.dirty_not_noted") => {}
                Ok(()) => self.live.mark(Mark::Dirty, run.first, run.count, true),
                Err(e) => result = Err(e),
            }
        }
        self.dirty |= new;
        result
    }

    /// These dirty pages begin to be stored.
    pub fn start_writing(&mut self, pages: &RoaringBitmap) -> Result<()> {
        let parts = runs(pages);
        for run in &parts {
            self.live.prepare(Mark::Writing, run.first, run.count)?;
        }
        for run in &parts {
            self.live.mark(Mark::Writing, run.first, run.count, true);
            self.live.mark(Mark::Dirty, run.first, run.count, false);
        }
        self.dirty -= pages;
        self.writing |= pages;
        Ok(())
    }

    /// They are stored. Pages dirtied again meanwhile stay dirty.
    pub fn written(&mut self, pages: &RoaringBitmap) {
        for run in runs(pages) {
            self.live.mark(Mark::Writing, run.first, run.count, false);
        }
        self.writing -= pages;
        self.now_stored(pages);
    }

    /// They could not be stored: dirty again.
    pub fn not_written(&mut self, pages: &RoaringBitmap) -> Result<()> {
        let result = self.add_dirty(pages);
        self.written(pages);
        result
    }

    /// Their newest content lies in the spill file now.
    pub fn spill(&mut self, range: PageRange) -> Result<()> {
        self.live.prepare(Mark::Spilled, range.first, range.count)?;
        if !points::mutant("cache.spill_not_noted") {
            self.live.mark(Mark::Spilled, range.first, range.count, true);
        }
        insert(&mut self.spilled, range);
        Ok(())
    }

    /// The spill file's copies of them no longer count.
    pub fn unspill(&mut self, pages: &RoaringBitmap) -> Vec<PageRange> {
        if self.spilled.is_disjoint(pages) {
            return Vec::new();
        }
        let gone = runs(&(pages & &self.spilled));
        for run in &gone {
            self.live.mark(Mark::Spilled, run.first, run.count, false);
            remove(&mut self.spilled, *run);
        }
        gone
    }

    /// Takes the space that notes of grants need.
    pub fn reserve_grants(&self, pages: u64) -> Result<()> {
        self.live.reserve_grants(pages)
    }

    /// A host may have a newer version of these pages from now on.
    pub fn lend(&mut self, range: PageRange, grant: Grant) -> Result<()> {
        self.live.prepare(Mark::Lent, range.first, range.count)?;
        if let Some(moving) = &mut self.moving {
            moving.may_be_newer(&set_of(range))?;
            insert(&mut moving.lent, range);
        }
        self.live.granted(range.first, range.count, grant)?;
        self.live.mark(Mark::Lent, range.first, range.count, true);
        Ok(())
    }

    /// Notes by which grant pages are here, or at the home that nobody has them any more.
    pub fn granted(&mut self, range: PageRange, grant: Grant) -> Result<()> {
        self.live.granted(range.first, range.count, grant)
    }

    /// The newest version is here again, or what is stored serves.
    pub fn returned(&mut self, range: PageRange) {
        self.live.mark(Mark::Lent, range.first, range.count, false);
        if let Some(moving) = &mut self.moving {
            remove(&mut moving.lent, range);
            self.now_stored(&set_of(range));
        }
    }

    /// At the home of an object that moves: whether a host may have a newer version of it.
    pub fn is_lent(&self, page: u32) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.lent.contains(page))
    }

    /// Pages that the host before had lent.
    pub fn lent(&self) -> RoaringBitmap {
        self.marked(Mark::Lent)
    }

    /// They equal what is stored after all (reverted, truncated, or compared).
    pub fn forget(&mut self, pages: &RoaringBitmap) {
        for run in runs(pages) {
            self.live.mark(Mark::Dirty, run.first, run.count, false);
        }
        self.dirty -= pages;
        self.now_stored(pages);
    }

    /// The object has another size.
    pub fn set_size(&mut self, size_bytes: u64) -> Result<()> {
        self.live.set_size(size_bytes)
    }

    /// Ends the book and removes its file.
    pub fn remove(self) {
        self.live.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(dir: &tempfile::TempDir) -> Book {
        Book::new(Live::create(&dir.path().join("1"), "boot", 1, 1 << 24).unwrap())
    }

    fn reopened(dir: &tempfile::TempDir) -> Book {
        Book::recover(Live::reopen(&dir.path().join("1"), "boot").unwrap().unwrap().0).unwrap()
    }

    #[test]
    fn a_host_that_dies_while_writing_leaves_the_pages_dirty() {
        let dir = tempfile::tempdir().unwrap();
        let mut book = book(&dir);
        book.add_dirty(&[1, 2, 3, 900].into()).unwrap();
        book.start_writing(&[1, 2, 3].into()).unwrap();
        book.add_dirty(&[2].into()).unwrap();
        drop(book);
        assert_eq!(*reopened(&dir).dirty(), [1, 2, 3, 900].into());
    }

    #[test]
    fn pages_dirtied_again_while_they_are_stored_stay_dirty() {
        let dir = tempfile::tempdir().unwrap();
        let mut book = book(&dir);
        book.add_dirty(&[1, 2].into()).unwrap();
        let writing = [1, 2].into();
        book.start_writing(&writing).unwrap();
        book.add_dirty(&[2].into()).unwrap();
        book.written(&writing);
        assert_eq!(*book.dirty(), [2].into());
        drop(book);
        assert_eq!(*reopened(&dir).dirty(), [2].into());
    }

    #[test]
    fn spilled_pages_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut book = book(&dir);
        book.spill(PageRange::new(10, 5)).unwrap();
        book.unspill(&[11, 12, 40].into());
        drop(book);
        assert_eq!(*reopened(&dir).spilled(), [10, 13, 14].into());
    }

    /// What replicas were told to clear.
    #[derive(Default)]
    struct Others(std::sync::Mutex<RoaringBitmap>);

    impl crate::pagers::Replicas for Others {
        fn store(&self, _: u64, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn set_newer(&self, _: &RoaringBitmap) -> Result<()> {
            unreachable!("whoever asks the book does not wait for others")
        }
        fn clear_newer(&self, pages: &RoaringBitmap) {
            *self.0.lock().unwrap() |= pages;
        }
        fn settle(&self) -> Result<()> {
            Ok(())
        }
        fn resize(&self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_replicas_have_not_heard_of_counts_as_newer_and_is_not_cleared_before() {
        let dir = tempfile::tempdir().unwrap();
        let (others, file) = (std::sync::Arc::new(Others::default()), dir.path().join("own"));
        crate::newer::make_own(&file, 7).unwrap();
        let mut newer = Newer::open(&file, 7).unwrap();
        newer.kept_by(Some(others.clone()));
        let mut book = book(&dir);
        assert!(!book.must_tell(&[1].into()), "it has no replicas");
        book.is_home(newer).unwrap();
        assert!(book.must_tell(&[1].into()) && book.must_tell_page(1) && book.untold().is_empty());
        book.may_be_newer(&[1, 2].into()).unwrap();
        book.now_stored(&[1, 2].into());
        assert_eq!((book.untold(), book.newer()), ([1, 2].into(), [1, 2].into()));
        assert!(book.must_tell(&[1].into()));
        book.told(&[1].into());
        assert_eq!([1, 2, 3].map(|page| book.must_tell_page(page)), [false, true, true]);
        assert!(
            !book.must_tell(&[1].into()) && book.must_tell(&[1, 2].into()) && book.must_tell(&[3].into())
        );
        // A page that nobody wrote after all; one that was written, and is stored again.
        book.now_stored(&[1, 2].into());
        assert_eq!(*others.0.lock().unwrap(), [1].into());
        assert!(book.must_tell(&[1].into()));
        book.add_dirty(&[2, 3].into()).unwrap();
        book.told(&[2, 3].into());
        book.now_stored(&[2, 3].into());
        assert_eq!(book.newer(), [2, 3].into());
        book.start_writing(&[2].into()).unwrap();
        book.written(&[2].into());
        assert_eq!((book.newer(), others.0.lock().unwrap().clone()), ([3].into(), [1, 2].into()));
        let read = Newer::open(&file, 7).unwrap();
        assert_eq!(*read.pages(), [3].into());
    }

    #[test]
    fn parts_of_sets() {
        let set: RoaringBitmap = [0, 5, 6, 7, u32::MAX].into();
        assert_eq!(within(&set, PageRange::new(5, 2)), [5, 6].into());
        assert_eq!(within(&set, PageRange::new(7, 1 << 33)), [7, u32::MAX].into());
        assert_eq!(
            runs(&set),
            [PageRange::new(0, 1), PageRange::new(5, 3), PageRange::new(u64::from(u32::MAX), 1)]
        );
    }
}
