//! Evicting frames. Asynchronous protection cannot hold a writer between "is it clean?" and the
//! punch, so this does not rely on the question: see docs/DESIGN.md, "Eviction without stopping
//! writers".

use super::evictor::{Pipe, drain, read_exact};
use super::{Cache, Inner, book, lock, read_frames};
use crate::live::INTENT_PAGES;
use commonhold_object::error::Doing;
use commonhold_object::{Error, PAGE_SIZE_BYTES, PageRange, Result, SyncMode};
use commonhold_sys::frames;
use roaring::RoaringBitmap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Frames that leave together.
pub(super) const PART_PAGES: usize = 32;

impl Cache {
    /// Evicts up to `want` pages; gives how many went.
    pub(super) fn evict(&self, want: usize) -> Result<usize> {
        if self.is_incomplete() {
            return Ok(0);
        }
        let _one_at_a_time = lock(&self.evict_turn);
        // Where there is none, no page has begun to leave.
        let pipe = self.machine.pipe_of(self.traits.uid)?;
        let mut inner = self.lock();
        while inner.sync_waits {
            inner = self.wait_settled(inner);
        }
        let victims = self.choose(&mut inner, want.min(INTENT_PAGES));
        let victims = take_claims(&mut inner, victims);
        if victims.is_empty() {
            return Ok(0);
        }
        for run in book::runs(&victims) {
            self.collect(&mut inner, run);
        }
        inner.in_flight |= &victims;
        inner.leaving = victims.clone();
        let unsaved = (&victims & inner.book.dirty()) - inner.book.spilled();
        let protected = self.protect_synchronous(&inner, &unsaved);
        drop(inner);
        let saved = protected.and_then(|()| self.save(&unsaved));
        // Only now, when nothing waits for another process: the pipe is that of all objects of the user.
        let pipe = lock(&pipe);
        let mut inner = self.lock();
        let outcome = saved.and_then(|()| self.drop_in_parts(&mut inner, &victims, &unsaved, &pipe));
        inner.leaving.clear();
        inner.touched.clear();
        inner.views.iter().for_each(|view| view.release_claims(&victims));
        inner.in_flight -= &victims;
        for run in book::runs(&(&victims & &inner.resident)) {
            inner.order.push_back(run); // put back, or not evicted after all
        }
        for run in book::runs(&victims) {
            self.settle(&mut inner, run);
        }
        let gone = outcome?;
        self.machine.counters.evicted.fetch_add(gone, Ordering::Relaxed);
        Ok(gone as usize)
    }

    /// Drops what was saved, a few at a time, each after one more look: what was written while it was saved stays. The
    /// frames that are written between that look and the punch are in the pipe alone until they are put back, and would
    /// be lost if host and keeper died together in that instant; so it is kept short.
    fn drop_in_parts(
        &self,
        inner: &mut Inner,
        victims: &RoaringBitmap,
        unsaved: &RoaringBitmap,
        pipe: &Pipe,
    ) -> Result<u64> {
        let order: Vec<u32> = victims.iter().collect();
        let mut gone = 0;
        for part in order.chunks(PART_PAGES) {
            let part: RoaringBitmap = part.iter().copied().collect();
            for run in book::runs(&part) {
                self.collect(inner, run);
            }
            // `touched` has what this look found, and what others found meanwhile: they protected it, and the page
            // tables say nothing of it any more.
            let going = part - &inner.touched;
            if !going.is_empty() {
                self.note_saved(inner, &(&going & unsaved))?;
                gone += self.drop_frames(inner, &going, pipe)?;
            }
        }
        Ok(gone)
    }

    /// The oldest frames that may go.
    pub(super) fn choose(&self, inner: &mut Inner, want: usize) -> RoaringBitmap {
        let mut stay = &inner.in_flight | inner.book.writing();
        {
            let held = self.held_now();
            stay |= held.elsewhere();
            held.add_to(&mut stay);
        }
        let mut victims = RoaringBitmap::new();
        let mut looked = inner.order.len();
        while looked > 0 && (victims.len() as usize) < want {
            looked -= 1;
            let Some(run) = inner.order.pop_front() else { break };
            let here = book::within(&inner.resident, run);
            let room = want - victims.len() as usize;
            let going: RoaringBitmap = (&here - &stay).iter().take(room).collect();
            let left = here - &going;
            let full = victims.len() + going.len() == want as u64;
            victims |= going;
            for part in book::runs(&left) {
                // What only lacked room comes first the next time.
                if full { inner.order.push_front(part) } else { inner.order.push_back(part) }
            }
        }
        victims
    }

    /// Whether dirty pages may go to the pager before a sync. Not to another process: it may hang, and who needs the
    /// room is somebody else.
    fn evicts_to_pager(&self) -> bool {
        self.traits.sync != SyncMode::Atomic && !self.pager.is_anonymous() && !self.pager.may_block()
    }

    /// Writes dirty victims where they can be found again. What the pager takes is flushed before the frames go: after
    /// a flush that failed nobody else would have the pages.
    fn save(&self, pages: &RoaringBitmap) -> Result<()> {
        let failed_before = self.flushes.failed();
        let mut buffer = Vec::new();
        if self.evicts_to_pager() {
            // No sync is at them (`choose` keeps away from `writing`): what is copied now is the newest, whatever was published.
            self.pager.begins_writing(pages);
        }
        for run in book::runs(pages) {
            buffer.resize(run.length_bytes() as usize, 0);
            read_frames(&self.frames, run.first, &mut buffer).doing("reading frames")?;
            if self.evicts_to_pager() {
                self.pager.page_out(run.offset_bytes(), &buffer)?;
            } else {
                lock(&self.spill).save(run.first, &buffer)?;
            }
        }
        if self.evicts_to_pager() && !pages.is_empty() {
            self.flushes.flush(&*self.pager, failed_before)
        } else {
            Ok(())
        }
    }

    fn note_saved(&self, inner: &mut Inner, pages: &RoaringBitmap) -> Result<()> {
        if self.evicts_to_pager() {
            inner.book.forget(pages);
            return Ok(());
        }
        for run in book::runs(pages) {
            inner.book.spill(run)?;
        }
        Ok(())
    }

    /// References into the pipe, punch, look, put back what was written in between. The pipe is emptied last, after the
    /// intent is gone: a host that dies at any point leaves it whole.
    fn drop_frames(&self, inner: &mut Inner, victims: &RoaringBitmap, pipe: &Pipe) -> Result<u64> {
        let _turn = self.machine.evictor.turn();
        drain(&pipe.read);
        let outcome = self.punch_referenced(inner, victims, pipe);
        let ended = inner.book.live().evicted();
        drain(&pipe.read);
        let gone = outcome?;
        ended.map(|()| gone)
    }

    fn punch_referenced(&self, inner: &mut Inner, victims: &RoaringBitmap, pipe: &Pipe) -> Result<u64> {
        let order: Vec<u32> = victims.iter().collect();
        inner.book.live().announce(&order)?;
        let mut referenced = 0;
        for run in book::runs(victims) {
            let length = run.length_bytes() as usize;
            let n = frames::reference_into_pipe(&*self.frames, run.offset_bytes(), length, &*pipe.write)
                .doing("referring to frames")?;
            referenced += n as u64 / PAGE_SIZE_BYTES;
            if n < length {
                break;
            }
        }
        let going: RoaringBitmap = order[..referenced as usize].iter().copied().collect();
        let (punched, failed) = self.punch_all(&going)?;
        let written = self.written_before_punch(inner, &punched);
        let lost = self.put_back(inner, pipe, &going, &written);
        self.after_punch(inner, &punched, &(written - &lost), &lost);
        failed.map_or(Ok(punched.len()), Err)
    }

    /// Gives those that are gone, and why not all. An error: that is not known, somebody keeps the
    /// host from it.
    fn punch_all(&self, going: &RoaringBitmap) -> Result<(RoaringBitmap, Option<Error>)> {
        let runs = book::runs(going);
        let punch = move |fd: &OwnedFd| {
            let mut punched = RoaringBitmap::new();
            for run in runs {
                if let Err(error) = frames::punch(fd, run.offset_bytes(), run.length_bytes()) {
                    return Ok((punched, Some(Error::io("punching frames", &error))));
                }
                book::insert(&mut punched, run);
            }
            Ok((punched, None))
        };
        self.on_frames(punch).doing("punching frames")
    }

    /// Puts the frames back that were written; gives those that went to the spill file instead, for lack of memory.
    fn put_back(
        &self,
        inner: &mut Inner,
        pipe: &Pipe,
        order: &RoaringBitmap,
        written: &RoaringBitmap,
    ) -> RoaringBitmap {
        let mut spilled = RoaringBitmap::new();
        if written.is_empty() {
            return spilled;
        }
        let length = order.len() as usize * PAGE_SIZE_BYTES as usize;
        let copied = match &pipe.scratch {
            Some((_, write)) => frames::duplicate_pipe(&*pipe.read, write, length).is_ok_and(|n| n == length),
            None => false,
        };
        let source = match &pipe.scratch {
            Some((read, _)) if copied => read,
            _ => &*pipe.read,
        };
        let mut content = vec![0u8; PAGE_SIZE_BYTES as usize];
        for page in order {
            if read_exact(source, &mut content).is_err() {
                break;
            }
            if written.contains(page) && self.write_frames(page.into(), &content).is_err() {
                let stored = lock(&self.spill).write(page.into(), &content);
                match stored.and_then(|()| inner.book.spill(PageRange::new(page.into(), 1))) {
                    Ok(()) => drop(spilled.insert(page)),
                    Err(error) => self.machine.log(format_args!(
                        "object {}: page {page} is lost, there is neither memory nor disk for it: {error}",
                        self.id.0
                    )),
                }
            }
        }
        drain(source);
        spilled
    }

    fn after_punch(
        &self,
        inner: &mut Inner,
        punched: &RoaringBitmap,
        back: &RoaringBitmap,
        spilled: &RoaringBitmap,
    ) {
        for view in &mut inner.views {
            view.installed -= punched;
        }
        let gone = punched - back;
        inner.resident -= &gone;
        self.give_back(gone.len());
        let written = back | spilled;
        if written.is_empty() {
            return;
        }
        self.machine.counters.rescued.fetch_add(written.len(), Ordering::Relaxed);
        if let Err(error) = inner.book.add_dirty(&written) {
            self.machine.log(format_args!("object {}: {error}", self.id.0));
        }
        for run in inner.book.unspill(back) {
            lock(&self.spill).forget(run.first, run.count);
        }
    }
}

/// Keeps threads that serve themselves away from the victims; those that one is at right now stay.
fn take_claims(inner: &mut Inner, victims: RoaringBitmap) -> RoaringBitmap {
    let mut stay = RoaringBitmap::new();
    for view in &mut inner.views {
        stay |= view.take_claims(&victims);
    }
    if stay.is_empty() {
        return victims;
    }
    inner.views.iter().for_each(|view| view.release_claims(&(&stay - &view.mapping.claimed_now(&stay))));
    for run in book::runs(&stay) {
        inner.order.push_back(run);
    }
    victims - stay
}
