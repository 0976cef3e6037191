//! Evictions that the host before left in the middle.

use super::evictor::{drain, read_exact};
use super::{Cache, book, lock};
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
        let mut content = vec![0u8; PAGE_SIZE_BYTES as usize];
        let mut back = RoaringBitmap::new();
        for page in &victims {
            let Some(pipe) = pipe else { break };
            if read_exact(pipe, &mut content).is_err() {
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
