//! The cache of an object that hosts share: what its scheduler (crate `coherence`) has done to pages of this host.
//!
//! A page may be used here only so far as this host has the *right* to. The rights change by the scheduler's actions
//! alone, under the object's lock, and the page tables follow before that lock is let go:
//!
//! | action | here |
//! |---|---|
//! | install | bytes into the frame, then the right, then whoever waited |
//! | restrict to reading | write protection in every mapping, then the right goes |
//! | restrict to nothing | the same, the bytes are taken, then the frame is punched: no page table has it any more |
//!
//! At the home a frame is the saved copy too: it is put back after the punch, without any page table.

use super::track::cannot_protect;
use super::{Cache, Inner, book, lock, read_frames};
use crate::live::Grant;
use crate::shared::{Driver, Role};
use commonhold_coherence::{Access, HostId};
use commonhold_object::error::Doing;
use commonhold_object::{Error, PAGE_SIZE_BYTES, PageRange, Result};
use commonhold_sys::userfaultfd::Kind;
use roaring::RoaringBitmap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Pages that are fenced at once.
pub(super) const FENCE_PAGES: u64 = (crate::refuge::MOST_BYTES as u64) / PAGE_SIZE_BYTES;

/// Whoever waited for a page, and was woken less than that ago, may not have run since.
const JUST_WOKEN: Duration = Duration::from_micros(100);

/// So long whoever was woken has the page. Who yields the processor instead gets it back when the other's slice is over,
/// milliseconds later. Who wakes from a sleep is let in at once, unless that would be more than its share: it needs about
/// this long to take the page, so the other has as much.
const GO_ON: Duration = Duration::from_micros(40);

/// The bytes of one scheduler page.
pub type PageBytes = Box<[u8]>;

/// What processes of this host may do with which pages.
#[derive(Default)]
pub(super) struct Rights {
    pub read: RoaringBitmap,
    pub write: RoaringBitmap,
    /// Pages that page tables may have by grants of the host process before (`super::inherited`).
    pub(super) inherited: RoaringBitmap,
    /// The page that came last for somebody who waited for it, and when.
    pub(super) let_in: Option<(u64, Instant)>,
}

impl Rights {
    fn allow(&self, page: u64, write: bool) -> bool {
        (if write { &self.write } else { &self.read }).contains(page as u32)
    }

    /// So much at least. What may be written stays so when a fault to read, which was late, is answered: page tables of
    /// those who write have the page already, and only `restrict` takes it from them.
    pub(super) fn allow_too(&mut self, pages: PageRange, access: Access) {
        for (set, least) in [(&mut self.read, Access::Read), (&mut self.write, Access::Write)] {
            if access >= least {
                book::insert(set, pages);
            }
        }
    }

    /// No more than that.
    pub(super) fn allow_only(&mut self, pages: PageRange, access: Access) {
        for (set, least) in [(&mut self.read, Access::Read), (&mut self.write, Access::Write)] {
            if access < least {
                book::remove(set, pages);
            }
        }
    }
}

impl Inner {
    /// Whether processes of this host may use the page so. Of an object that is this host's alone, always.
    pub(super) fn may(&self, page: u64, write: bool) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.allow(page, write))
    }

    /// Whether whoever writes a page for the first time waits.
    pub(super) fn holds_writers(&self) -> bool {
        self.frozen || self.writers_stopped
    }
}

impl Cache {
    /// The object belongs to all hosts: until the scheduler allows it, no page may be used here.
    pub fn belongs_to_all(&self) {
        self.lock().rights = Some(Rights::default());
    }

    /// At the home: pages go to a host that may write them, by the grant of that stamp.
    pub fn lend(&self, pages: PageRange, to: HostId, stamp: u64) -> Result<()> {
        self.take_inherited(pages.first..pages.end())?;
        self.lend_told(pages, Grant { to: Some(to.0), stamp })
    }

    /// At the home: the newest version is here again, or is given up.
    pub fn returned(&self, pages: PageRange) {
        self.lock().book.returned(pages);
    }

    /// Who speaks with the scheduler from now on.
    pub fn share(&self, driver: &Arc<Driver>, role: Role) {
        let part = (Arc::downgrade(driver), role);
        if let Err(part) = self.driver.set(part)
            && driver.is_home()
        {
            let _ = self.as_home.set(part); // the same, where it was the home at first
        }
        self.host_page.store(driver.plan().sizes.host(), Ordering::Relaxed);
        let reserved = {
            let inner = self.lock();
            inner.book.reserve_grants(inner.size_pages())
        };
        if let Err(error) = reserved {
            self.report(&error);
        }
        self.ask_again();
    }

    pub(super) fn driver(&self) -> Option<Arc<Driver>> {
        self.part()?.0.upgrade()
    }

    fn part(&self) -> Option<&(Weak<Driver>, Role)> {
        self.as_home.get().or_else(|| self.driver.get())
    }

    /// What the frames here are.
    pub fn role(&self) -> Option<Role> {
        self.part().map(|(_, role)| *role)
    }

    /// Whether pages that are not in memory come from the pager or the spill file here; else they come by way of the
    /// scheduler.
    pub fn has_pages(&self) -> bool {
        self.role().is_none_or(|role| matches!(role, Role::Saved | Role::Origin))
    }

    /// Whether this is a strict object of another host.
    pub(super) fn is_copies(&self) -> bool {
        self.role() == Some(Role::Copies)
    }

    /// Under explicit coherence a sync goes by way of the scheduler.
    pub(super) fn syncs_elsewhere(&self) -> Option<Arc<Driver>> {
        self.driver().filter(|_| self.role() == Some(Role::Own))
    }

    /// Processes of this host may use the pages so from now on. `bytes`: theirs, one page after the other; none if the
    /// frames have them. `newest`: here may be their newest version.
    pub fn install(
        self: &Arc<Self>,
        pages: PageRange,
        access: Access,
        newest: bool,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        // The end does not move meanwhile: whoever moves it waits for the scheduler's lock.
        let pages = pages.intersect(self.lock().whole());
        if pages.is_empty() {
            return Ok(()); // the object shrank since they were asked for
        }
        let bytes = bytes.map(|bytes| &bytes[..bytes.len().min(pages.length_bytes() as usize)]);
        if let Some(bytes) = bytes.filter(|_| pages.count == 1)
            && self.install_for_waiter(pages.first, access, newest, bytes)
        {
            self.evict_ahead();
            return Ok(());
        }
        if let Some(bytes) = bytes {
            self.write_frames(pages.first, bytes).doing("making a frame")?;
        }
        let mut inner = self.lock();
        if bytes.is_some() {
            self.count_frames(&mut inner, pages);
            self.cut_tail(&inner, pages)?;
        }
        self.note_newest(&mut inner, pages, newest, bytes.is_some());
        self.allow(&mut inner, pages, access);
        self.settle(&mut inner, pages);
        drop(inner);
        self.evict_ahead();
        Ok(())
    }

    /// Frames that came into being without being asked for room first: those who brought them cannot wait.
    pub(super) fn count_frames(&self, inner: &mut Inner, pages: PageRange) {
        if pages.count == 1 {
            if inner.resident.insert(pages.first as u32) {
                self.budget.take_anyway(1);
                self.machine.budget.take_anyway(1);
                inner.order.push_back(pages);
            }
            return;
        }
        let new = book::set_of(pages) - &inner.resident;
        self.budget.take_anyway(new.len());
        self.machine.budget.take_anyway(new.len());
        inner.order.extend(book::runs(&new));
        inner.resident |= new;
    }

    /// Processes of this host may do no more than that from now on with these pages, which are one to the scheduler, nor
    /// with the page of this host around them (`reach`). Gives their bytes if they may not even be read: at a host that is
    /// not the home they are nowhere else. An error: nothing is given up, and the pages may be used as before.
    pub fn restrict(&self, pages: PageRange, reach: PageRange, access: Access) -> Result<Option<PageBytes>> {
        self.let_waiters_go_on(pages);
        let mut inner = self.idle(reach);
        let was = |write| {
            let any = |rights: &Rights| (reach.first..reach.end()).any(|page| rights.allow(page, write));
            inner.rights.as_ref().is_some_and(any)
        };
        let inherits = inner.inherits_any(reach);
        let (used, written) = (was(false), was(true) || inherits);
        let allow_only = |inner: &mut Inner| {
            if let Some(rights) = &mut inner.rights {
                rights.allow_only(reach, access);
            }
        };
        if !(reach.first..reach.end()).any(|page| inner.resident.contains(page as u32)) {
            allow_only(&mut inner);
            return Ok(None); // at the home, in the spill file or with the pager
        }
        if written || access == Access::None {
            self.protect_everywhere(&inner, reach)?;
        }
        if access != Access::None {
            allow_only(&mut inner);
            return Ok(None);
        }
        // A host that begins anew has no part in the scheduling yet: what is here stays here.
        let stays = matches!(self.role(), None | Some(Role::Saved | Role::Origin));
        let set = book::set_of(pages);
        let bytes =
            if stays { self.take_out(&inner, pages)? } else { self.take_away(&mut inner, pages, &set)? };
        inner.views.iter_mut().for_each(|view| view.forget(&set));
        // What is beside them was taken out with the first that went.
        for beside in super::without(reach, pages).into_iter().filter(|_| used) {
            self.take_out(&inner, beside)?;
            let set = book::set_of(beside);
            inner.views.iter_mut().for_each(|view| view.forget(&set));
        }
        allow_only(&mut inner);
        if inherits {
            inner.inherits_no_more(&book::set_of(reach));
        }
        if self.role() == Some(Role::Own) {
            self.machine.has_changed(self.id);
        }
        Ok(bytes)
    }

    /// Takes frames out of page tables, and puts those bytes of theirs back.
    pub(super) fn make_anew(&self, pages: PageRange, bytes: &[u8]) -> std::io::Result<()> {
        let inode = match self.frames_inode.get() {
            Some(inode) => *inode,
            None => {
                let inode = crate::refuge::inode_of(&*self.frames)?;
                *self.frames_inode.get_or_init(|| inode)
            }
        };
        let (machine, offset) = (self.machine.clone(), pages.offset_bytes());
        if !self.may_wait_for_a_writer() {
            return machine.refuge.make_anew(&*self.frames, inode, offset, bytes);
        }
        let bytes = bytes.to_vec();
        self.on_frames(move |fd| machine.refuge.make_anew(fd, inode, offset, &bytes))
    }

    /// Without a minimum hold, a page may be wanted back before whoever waited for it has run once: hosts would hand
    /// it to and fro, and nobody would use it. Whoever was woken goes first.
    fn let_waiters_go_on(&self, pages: PageRange) {
        let let_in = self.lock().rights.as_ref().and_then(|rights| rights.let_in);
        if let_in.is_some_and(|(last, when)| pages.contains(last) && when.elapsed() < JUST_WOKEN) {
            std::thread::sleep(GO_ON);
        }
    }

    pub(super) fn protect_everywhere(&self, inner: &Inner, pages: PageRange) -> Result<()> {
        let writable =
            |view: &&super::View| view.mapping.writes_object() && view.mapping.kind == Kind::Synchronous;
        for view in inner.views.iter().filter(writable) {
            let part = view.pages.intersect(pages);
            if !part.is_empty() {
                self.protect_in(&view.mapping, part).map_err(cannot_protect)?;
            }
        }
        Ok(())
    }

    /// The home's saved copies of pages are replaced by a newer version.
    pub fn save_copy(&self, pages: PageRange, bytes: &[u8]) -> Result<()> {
        let mut inner = self.idle(pages);
        let pages = pages.intersect(inner.whole());
        if pages.is_empty() {
            return Ok(());
        }
        // No page table of this host has them: they were lent.
        let bytes = &bytes[..bytes.len().min(pages.length_bytes() as usize)];
        self.write_frames(pages.first, bytes).doing("saving a page")?;
        self.count_frames(&mut inner, pages);
        self.note_writes(&mut inner, pages);
        self.cut_tail(&inner, pages)
    }

    /// The newest version of these pages is lost: this one serves again.
    pub fn restore(&self, pages: PageRange, bytes: &[u8]) -> Result<()> {
        let mut inner = self.idle(pages);
        let pages = pages.intersect(inner.whole());
        let bytes = &bytes[..bytes.len().min(pages.length_bytes() as usize)];
        self.write_frames(pages.first, bytes).doing("restoring a page")?;
        self.count_frames(&mut inner, pages);
        if self.is_copies() {
            self.record(&mut inner, &book::set_of(pages));
        }
        Ok(())
    }

    /// Whether [`content`](Self::content) of any of these frames would wait: for the pager, the spill file, or an eviction.
    /// So too where that cannot be told at once. (A page that is there may be evicted in the next instant: then whoever
    /// asked waits for that one page.)
    pub fn must_read(&self, frames: impl IntoIterator<Item = PageRange>) -> bool {
        let Some(inner) = self.lock_soon() else { return true };
        let waits = |page: u64| {
            let here = inner.resident.contains(page as u32);
            let elsewhere = !self.pager.is_anonymous() || inner.book.spilled().contains(page as u32);
            inner.in_flight.contains(page as u32) || !here && elsewhere
        };
        frames.into_iter().any(|frames| (frames.first..frames.end()).any(waits))
    }

    /// Whether pages that are not in frames are zeros, all of them.
    pub fn reads_nothing(&self) -> bool {
        self.pager.is_anonymous() && self.lock_soon().is_some_and(|inner| inner.book.spilled().is_empty())
    }

    /// The newest bytes of pages as this host has them, one page after the other.
    pub fn content(&self, pages: impl IntoIterator<Item = u64>) -> Result<Vec<u8>> {
        const PAGE: usize = PAGE_SIZE_BYTES as usize;
        let pages: Vec<u64> = pages.into_iter().collect();
        self.take_inherited(pages.iter().copied())?;
        let mut all = vec![0; pages.len() * PAGE];
        let mut at = 0;
        while at < pages.len() {
            at += self.content_of(&pages[at..], &mut all[at * PAGE..])?;
        }
        Ok(all)
    }

    /// The bytes of the first of these pages, and of as many of the next as lie behind it in frames; how many they
    /// were.
    fn content_of(&self, pages: &[u64], slots: &mut [u8]) -> Result<usize> {
        let page = pages[0];
        let inner = self.idle(PageRange::new(page, 1));
        let has_frame =
            |page: u64| inner.resident.contains(page as u32) && !inner.in_flight.contains(page as u32);
        let in_a_row = (page..).zip(pages).take_while(|(next, page)| next == *page && has_frame(**page));
        let count = in_a_row.count();
        if count > 0 {
            let slots = &mut slots[..count * PAGE_SIZE_BYTES as usize];
            return read_frames(&self.frames, page, slots).doing("reading frames").map(|()| count);
        }
        let slot = &mut slots[..PAGE_SIZE_BYTES as usize];
        if !inner.whole().contains(page) {
            slot.fill(0); // the object shrank since it was asked for
            return Ok(1);
        }
        if inner.book.spilled().contains(page as u32) {
            return lock(&self.spill).read(page, slot).map(|()| 1);
        }
        drop(inner);
        if !self.pager.may_block() && !self.is_whole() {
            return Err(Error::new(
                commonhold_object::ErrorKind::Busy,
                "its journal is being redone still: try again",
            ));
        }
        self.pager.page_in(page * PAGE_SIZE_BYTES, slot).map(|()| 1)
    }

    /// The lock, at an instant when nobody brings any of the pages in or evicts it.
    pub(super) fn idle(&self, pages: PageRange) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        let busy =
            |inner: &Inner| (pages.first..pages.end()).any(|page| inner.in_flight.contains(page as u32));
        while busy(&inner) {
            inner = self.wait_settled(inner);
        }
        inner
    }

    /// What went wrong while the scheduler's will was done goes to the log.
    pub fn report(&self, error: &Error) {
        self.machine.log(format_args!("object {}: {error}", self.id.0));
    }

    /// The page cannot be had from the others: whoever waits for it gets SIGBUS.
    pub fn cannot_be_had(&self, pages: PageRange, error: &Error) {
        let mut inner = self.lock();
        self.fail(&mut inner, pages, error);
    }

    /// The newest version of the page is lost, which its home remembers until it is reverted: `stat` asks there.
    pub fn is_lost(&self, pages: PageRange, error: &Error) {
        let mut inner = self.lock();
        let known = std::mem::take(&mut inner.troubles);
        self.fail(&mut inner, pages, error);
        inner.troubles = known;
    }

    /// Nothing here is known to be current any more: every frame goes, and with it every right.
    pub fn forget_all(&self) -> Result<()> {
        let mut inner = self.lock();
        let all = inner.resident.clone();
        if let Some(rights) = &mut inner.rights {
            *rights = Rights::default();
        }
        for run in book::runs(&all) {
            self.punch(run).doing("dropping frames")?;
        }
        inner.views.iter_mut().for_each(|view| view.forget(&all));
        inner.resident.clear();
        inner.book.forget(&all);
        self.give_back(all.len());
        drop(inner);
        self.ask_again();
        Ok(())
    }

    /// Frames of pages that another host keeps: given up by way of the scheduler, which sends away what is newest here.
    pub(super) fn evict_shared(self: &Arc<Self>, want: usize) -> Result<usize> {
        let Some(driver) = self.driver() else { return Ok(0) };
        let victims: RoaringBitmap = {
            let _one_at_a_time = lock(&self.evict_turn);
            let mut inner = self.lock();
            self.choose(&mut inner, want)
        };
        if self.role() == Some(Role::Own) {
            // What was written goes home first, and with that is what everybody sees (Shirriff, page-out).
            let written = |inner: &mut Inner| &victims & inner.book.dirty();
            let any = !written(&mut self.lock()).is_empty();
            any.then(|| self.store(false, written)).transpose()?;
        }
        driver.wait_for_room(want * PAGE_SIZE_BYTES as usize);
        driver.evict(&victims);
        let mut inner = self.lock();
        let stayed = &victims & &inner.resident;
        inner.order.extend(book::runs(&stayed));
        Ok((victims.len() - stayed.len()) as usize)
    }
}
