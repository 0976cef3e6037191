//! What is done to the memory of an object, for which writers of it can make the host wait
//! (`crate::patience`).

use super::view::Mapping;
use super::{Cache, write_frames};
use crate::workers::Share;
use commonhold_object::{PAGE_SIZE_BYTES, PageRange};
use commonhold_sys::frames;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Cache {
    /// Somebody may map it whom this host serves, and does not belong to; and may write to it, by
    /// write(2) too.
    pub fn is_opened_by_others(&self, writes: bool) {
        self.used_by_others.store(true, Ordering::Relaxed);
        self.written_by_others.fetch_or(writes, Ordering::Relaxed);
    }

    /// The share of the threads of all that what is done for this object has: also root's objects
    /// have one, if others use them.
    pub(super) fn share_now(&self) -> Option<Arc<Share>> {
        let of_others =
            || self.used_by_others.load(Ordering::Relaxed).then(|| self.machine.opened_share.clone());
        self.share.clone().or_else(of_others)
    }

    /// Whether a call on the memory may make a thread wait that others need.
    pub fn may_wait_for_a_writer(&self) -> bool {
        let others_wait = || self.machine.takes_over() || self.driver().is_some();
        self.written_by_others.load(Ordering::Relaxed) && others_wait()
    }

    /// Makes calls on the memory, for which a writer of it can make this thread wait. Of an object
    /// that hosts share, and at a take-over, the thread may be one that others need, and gives up;
    /// else it is its owner's, and nothing is lost.
    pub(super) fn on_frames<T: Send + 'static>(
        &self,
        job: impl FnOnce(&OwnedFd) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.may_wait_for_a_writer() {
            self.machine.patience.call(&self.frames, self.traits.uid, job)
        } else {
            job(&self.frames)
        }
    }

    /// Protects pages in a client's address space, whose lock the client can hold. Protected late they are no less its own.
    pub(super) fn protect_in(&self, mapping: &Arc<Mapping>, pages: PageRange) -> io::Result<()> {
        if !self.may_wait_for_a_writer() || !self.machine.is_ordinary(mapping.uid) {
            return Ok(mapping.protect(pages)?);
        }
        let (space, of) = (Arc::as_ptr(&mapping.uffd).addr(), mapping.clone());
        self.machine.patience.call_on(space, mapping.uid, move || Ok(of.protect(pages)?))
    }

    /// Gives frames back.
    pub(super) fn punch(&self, run: PageRange) -> io::Result<()> {
        self.on_frames(move |fd| frames::punch(fd, run.offset_bytes(), run.length_bytes()))
    }

    /// Bytes into a run of frames. A frame comes into being with its bytes or not at all, also
    /// where this process is killed meanwhile: the next one takes a frame that is there for whole.
    pub(super) fn write_frames(&self, first_page: u64, data: &[u8]) -> io::Result<()> {
        if !self.written_by_others.load(Ordering::Relaxed) {
            return write_frames(&self.frames, first_page, data);
        }
        frames::write_unlocked(&*self.frames, first_page * PAGE_SIZE_BYTES, data)
    }

    /// Whether there is a frame now: one that the kernel's message speaks of may have been evicted since.
    pub(super) fn has_frame(&self, page: u64) -> bool {
        frames::has_page(&*self.frames, page * PAGE_SIZE_BYTES).unwrap_or(false)
    }
}
