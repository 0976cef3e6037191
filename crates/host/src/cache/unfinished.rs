//! Evictions that the host before left in the middle.

use super::evictor::{drain, read_exact};
use super::{Cache, book, lock};
use crate::live::INTENT_PAGES;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, Result};
use commonhold_points as points;
use commonhold_sys::{frames, process};
use roaring::RoaringBitmap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

impl Cache {
    /// Finishes an eviction that the host before left in the middle: what was punched is in the
    /// pipe, if the keeper lived (`pipes_are_kept`). Without it there is nothing to be had.
    pub fn finish_eviction(&self, pipes_are_kept: bool) -> Result<()> {
        let kept = pipes_are_kept.then(|| self.machine.kept_pipe_of(self.traits.uid)).flatten();
        let pipe = kept.as_ref().map(|pipe| lock(pipe));
        self.finish_by(pipe.as_ref().map(|pipe| &*pipe.read))
    }

    /// The same when these processes have ended: one of them was killed, and the kernel may punch
    /// for it yet. Until then whoever needs a page of those waits, and neither sync nor eviction
    /// touches them.
    pub fn finish_eviction_after(self: &Arc<Self>, processes: Vec<Arc<OwnedFd>>) -> Result<()> {
        let Some(kept) = self.machine.kept_pipe_of(self.traits.uid) else { return self.finish_by(None) };
        let victims: RoaringBitmap = {
            let mut inner = self.lock();
            let victims = inner.book.live().intent()?.into_iter().collect();
            inner.in_flight |= &victims;
            inner.leaving = victims.clone();
            victims
        };
        let (tell, is_taken) = sync_channel(1);
        let this = self.clone();
        let finish = move || {
            let pipe = lock(&kept);
            let _ = tell.send(()); // who waits for it waits until it is sent
            for process in processes {
                while !process::readable_within(&*process, 3_600_000).unwrap_or(true) {}
            }
            let finished = this.finish_by(Some(&pipe.read));
            let mut inner = this.lock();
            inner.leaving.clear();
            inner.in_flight -= &victims;
            book::runs(&victims).into_iter().for_each(|run| this.settle(&mut inner, run));
            drop(inner);
            if let Err(error) = finished {
                this.machine.log(format_args!("object {}: finishing an eviction: {error}", this.id.0));
            }
        };
        points::thread(|| std::thread::Builder::new().name("unfinished".into()).spawn(finish))
            .doing("starting a thread")?;
        // Before anybody else evicts by that pipe.
        is_taken.recv().map_err(|_| Error::new(ErrorKind::Io, "the thread that finishes an eviction is gone"))
    }

    fn finish_by(&self, pipe: Option<&OwnedFd>) -> Result<()> {
        let mut inner = self.lock();
        let victims = inner.book.live().intent()?;
        let copy = match pipe {
            Some(pipe) if !victims.is_empty() => {
                Some(copy_of(pipe).doing("looking at frames that were to go")?)
            }
            _ => None,
        };
        let mut content = vec![0u8; PAGE_SIZE_BYTES as usize];
        let mut back = RoaringBitmap::new();
        for page in &victims {
            let Some(copy) = &copy else { break };
            if read_exact(copy, &mut content).is_err() {
                break; // it died while it filled the pipe: nothing was punched
            }
            let at = u64::from(*page) * PAGE_SIZE_BYTES;
            if !frames::has_page(&*self.frames, at).doing("looking for a frame")? {
                self.write_frames((*page).into(), &content).doing("putting a frame back")?;
                back.insert(*page);
            }
        }
        back -= &inner.resident;
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

/// What is in the pipe, in another: where putting it back fails, all of it is there still, for who tries again.
fn copy_of(pipe: &OwnedFd) -> std::io::Result<OwnedFd> {
    let (read, write) = frames::frame_pipe(INTENT_PAGES)?;
    match frames::duplicate_pipe(pipe, &write, INTENT_PAGES * PAGE_SIZE_BYTES as usize) {
        Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(read), // empty: it died before anything was in it
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::tests::{Memory, cache};
    use super::*;

    #[test]
    fn an_eviction_that_could_not_be_finished_is_finished_by_who_tries_again() {
        let (directory, memory) = (tempfile::tempdir().unwrap(), Memory::new());
        let (read, write) = frames::frame_pipe(INTENT_PAGES).unwrap();
        let page = |seed: u8| [seed; PAGE_SIZE_BYTES as usize];
        for victim in [3, 1] {
            rustix::io::write(&write, &page(victim)).unwrap();
        }
        // Nothing can be put back into what may be read alone.
        let first = cache(directory.path(), &memory.to_be_read());
        first.lock().book.live().announce(&[3, 1]).unwrap();
        first.finish_by(Some(&read)).unwrap_err();
        drop(first);
        let host = cache(directory.path(), &memory);
        host.finish_by(Some(&read)).unwrap();
        for victim in [3, 1] {
            let mut found = page(0);
            rustix::io::pread(&*host.frames, &mut found, u64::from(victim) * PAGE_SIZE_BYTES).unwrap();
            assert_eq!(found, page(victim), "page {victim}");
        }
        assert!(host.lock().book.live().intent().unwrap().is_empty());
        assert!(rustix::io::read(&read, &mut page(0)).is_err(), "nothing is left for the next eviction");
    }
}
