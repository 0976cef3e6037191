//! Making room. Asynchronous protection cannot hold a writer between "is it clean?" and the punch, so this
//! does not rely on the question: see docs/DESIGN.md, "Eviction without stopping writers".

use super::{Cache, Inner, book, lock, read_frames, write_frames};
use crate::live::INTENT_PAGES;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, PageRange, Result, SyncMode};
use commonhold_sys::frames;
use roaring::RoaringBitmap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

/// Frames that leave together.
const PART_PAGES: usize = 32;

/// How long another user waits for an eviction.
const FOR_ANOTHER: Duration = Duration::from_secs(1);

/// Evictions that may fail before whoever needs the room is told.
const MOST_FAILURES: u32 = 20;

/// The pipe through which frames leave. One eviction at a time: what is in it belongs to one object's intent.
pub struct Evictor {
    pipe: Mutex<Pipe>,
}

/// The pipe that outlives the host, and one of its own to read from: what is in the first stays there until nothing
/// depends on it any more.
struct Pipe {
    read: Arc<OwnedFd>,
    write: Arc<OwnedFd>,
    scratch: Option<(OwnedFd, OwnedFd)>,
}

impl Evictor {
    /// Uses the pipe (reading end, writing end).
    pub fn new(read: Arc<OwnedFd>, write: Arc<OwnedFd>) -> Evictor {
        let scratch = frames::frame_pipe(INTENT_PAGES).ok();
        Evictor { pipe: Mutex::new(Pipe { read, write, scratch }) }
    }
}

impl Cache {
    /// Takes room for `pages` frames, evicting as needed. An error says what holds the memory.
    pub(super) fn make_room(self: &Arc<Self>, pages: u64) -> Result<()> {
        let (mut fruitless, mut failures) = (0, 0);
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
                    0
                }
                Ok(gone) => gone,
            };
            fruitless = if gone == 0 { fruitless + 1 } else { 0 };
            if fruitless > 200 {
                let (what, limit) = if short_here {
                    ("the object's memory budget", self.budget.limit_pages())
                } else {
                    ("the host's memory budget", self.machine.budget.limit_pages())
                };
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    format!(
                        "no page of {what} ({} bytes) can be evicted, all are held or in use: unlock some, or \
                         give a larger budget",
                        limit * PAGE_SIZE_BYTES
                    ),
                ));
            }
            if fruitless > 0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Evicts from this object, or from whichever has most. Another object's failure is not this one's.
    fn evict_somewhere(self: &Arc<Self>, here: bool) -> Result<usize> {
        let victims = if here { vec![self.clone()] } else { self.machine.by_size() };
        for victim in victims {
            let gone = match victim.traits.uid == self.traits.uid {
                true => victim.evict_some(),
                false => victim.evict_for_another(),
            };
            match gone {
                Ok(0) => {}
                Ok(gone) => return Ok(gone),
                Err(error) if Arc::ptr_eq(&victim, self) => return Err(error),
                Err(error) => victim.machine.log(format_args!("object {}: eviction: {error}", victim.id.0)),
            }
        }
        Ok(0)
    }

    fn evict_some(self: &Arc<Self>) -> Result<usize> {
        if self.has_pages() { self.evict(INTENT_PAGES) } else { self.evict_shared(INTENT_PAGES) }
    }

    /// The same for another user, who does not wait for long: an eviction may wait for the object's file, and for that its
    /// owner can make it wait.
    fn evict_for_another(self: &Arc<Self>) -> Result<usize> {
        if matches!(self.evict_turn.try_lock(), Err(TryLockError::WouldBlock)) {
            return Ok(0); // somebody is at it
        }
        let (tell, told) = channel();
        let this = self.clone();
        // Who asked may have gone on.
        let job = move || drop(tell.send(this.evict_some()));
        self.machine.pager_threads(self.traits.uid).run_for_another(job);
        told.recv_timeout(FOR_ANOTHER).unwrap_or(Ok(0))
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
        self.machine.urgent.run(move || {
            for _ in 0..64 {
                let here = this.budget.is_low();
                if !here && !this.machine.budget.is_low() {
                    break;
                }
                match this.evict_somewhere(here) {
                    Ok(gone) if gone > 0 => {}
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

    /// Evicts up to `want` pages; gives how many went.
    pub(super) fn evict(&self, want: usize) -> Result<usize> {
        if self.is_incomplete() {
            return Ok(0);
        }
        let _one_at_a_time = lock(&self.evict_turn);
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
        self.protect_synchronous(&inner, &unsaved);
        drop(inner);
        let saved = self.save(&unsaved);
        // Only now, when nothing waits for another process: the pipe is everybody's.
        let pipe = lock(&self.machine.evictor.pipe);
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

    /// Gives those that are gone, and why not all. An error: that is not known, somebody keeps the host from it.
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

    /// Finishes an eviction that the host before left in the middle: what was punched is in the pipe. Without the pipe
    /// (the keeper died too) there is nothing to be had.
    pub fn finish_eviction(&self, pipe: Option<&OwnedFd>) -> Result<()> {
        let mut inner = self.lock();
        let victims = inner.book.live().intent()?;
        let mut content = vec![0u8; PAGE_SIZE_BYTES as usize];
        let mut back = RoaringBitmap::new();
        for page in &victims {
            let Some(pipe) = pipe else { break };
            if read_exact(pipe, &mut content).is_err() {
                break; // it died while it filled the pipe: nothing was punched
            }
            if !inner.resident.contains(*page) {
                self.write_frames(u64::from(*page), &content).doing("putting a frame back")?;
                back.insert(*page);
            }
        }
        for run in book::runs(&back) {
            book::insert(&mut inner.resident, run);
            inner.order.push_back(run);
        }
        self.budget.take_anyway(back.len());
        self.machine.budget.take_anyway(back.len());
        // Also those that it had put back, and had not come to note.
        let stayed = victims.into_iter().collect::<RoaringBitmap>() & &inner.resident;
        inner.book.add_dirty(&stayed)?;
        inner.book.unspill(&stayed);
        inner.book.live().evicted()?;
        pipe.map(drain);
        Ok(())
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

/// Empties the pipe, which does not block.
fn drain(pipe: &OwnedFd) {
    let mut content = [0; PAGE_SIZE_BYTES as usize];
    while rustix::io::read(pipe, &mut content).is_ok_and(|n| n > 0) {}
}

fn read_exact(pipe: &OwnedFd, mut buffer: &mut [u8]) -> std::io::Result<()> {
    while !buffer.is_empty() {
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => buffer = &mut buffer[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Checks that this kernel lets a punched frame live on in a pipe (it does not when frames are huge pages).
pub fn frames_survive_in_pipe() -> std::io::Result<bool> {
    let memory = frames::create("commonhold-check", 16 * PAGE_SIZE_BYTES)?;
    let (read, write) = frames::frame_pipe(16)?;
    write_frames(&memory, 0, &[7; 16 * PAGE_SIZE_BYTES as usize])?;
    let range = PageRange::new(3, 2);
    frames::reference_into_pipe(&memory, range.offset_bytes(), range.length_bytes() as usize, &write)?;
    frames::punch(&memory, range.offset_bytes(), range.length_bytes())?;
    let mut content = vec![0; range.length_bytes() as usize];
    read_exact(&read, &mut content)?;
    Ok(content.iter().all(|b| *b == 7))
}
