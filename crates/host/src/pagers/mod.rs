//! Pagers: where pages come from and where they are stored. A pager is two calls and a flush.

mod anonymous;
mod asked;
mod elsewhere;
mod external;
mod file;
mod moving;
mod queued;
mod replicas;
mod snapshot;
mod times;
mod typed;

pub use anonymous::AnonymousPager;
pub use elsewhere::ElsewherePager;
pub use external::{ExternalPager, PagerLines};
pub use file::{FilePager, check_room};
pub use moving::{HomeFile, MovingPager};
pub use queued::Queues;
pub use replicas::Replicas;
pub use snapshot::SnapshotPager;
pub use times::Stamp;
pub use typed::TypedPager;

use crate::asker::Asker;
use commonhold_object::{Error, ErrorKind, Result};
use roaring::RoaringBitmap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What becomes of a question that nobody waits for.
pub enum Answer {
    /// The bytes that were asked for. And the user of the process that gave them, if the thread that hears of it serves that
    /// user's pager alone.
    Bytes(Vec<u8>, Option<u32>),
    /// They cannot be had.
    Failed(Error),
    /// Whoever was asked went away: others may be asked.
    Gone,
}

/// Who hears the answer, once. It must not take long: other answers come after it.
pub type Then = Box<dyn FnOnce(Answer) + Send>;

/// Supplies and stores the pages of one object. All offsets and lengths are whole pages within the object.
///
/// A conformance suite (`tests/pager_conformance/`) runs on every implementation.
pub trait Pager: Send + Sync {
    /// Fills `buffer` with what is stored from `offset` on. Bytes never stored read as zero.
    fn page_in(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Stores `data` from `offset` on. It need not be durable before [`flush`](Pager::flush) returns.
    fn page_out(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Makes everything stored so far durable.
    fn flush(&self) -> Result<()>;

    /// Refuses, with what to do, when the stored object is no longer what it was (truncated, removed).
    fn check(&self, size_bytes: u64) -> Result<()> {
        let _ = size_bytes;
        Ok(())
    }

    /// Makes sure that `page_out` of the range cannot fail for lack of space.
    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// Changes the size of what is stored.
    fn resize(&self, size_bytes: u64) -> Result<()> {
        let _ = size_bytes;
        Ok(())
    }

    /// Whether there is no stored copy at all: pages never written are zero, and sync promises nothing.
    fn is_anonymous(&self) -> bool {
        false
    }

    /// Whether pages that are not here come from the object that this one is a snapshot of.
    fn has_parent(&self) -> bool {
        false
    }

    /// Whether a call may take long (another process answers it): then it is made by a worker.
    fn may_block(&self) -> bool {
        false
    }

    /// Asks for so many bytes from `offset` on, for that asker, and waits for nothing. False: it cannot be asked so now, and
    /// nobody hears of it.
    fn ask(&self, offset: u64, length: usize, asker: &Arc<Asker>, then: Then) -> bool {
        drop((offset, length, asker, then)); // by whoever waits for nobody
        false
    }

    /// The object has ended: nobody waits for its pages any more, and what must still be stored is not waited for long.
    fn end(&self) {}

    /// Whether bringing in the page at `offset` would have to wait, for another process or for a disk.
    fn would_wait(&self, offset: u64) -> bool {
        let _ = offset;
        self.may_block()
    }

    /// The file whose page cache holds the pages, if there is one: they are copied straight from it.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The same, if the pages are in it as this host has them in memory: then the kernel copies them.
    fn window(&self) -> Option<BorrowedFd<'_>> {
        self.file()
    }

    /// What a sync had to write was written: whatever others change from now on is to be told from it. May wait.
    fn wrote(&self) {}

    /// Changes whenever what is stored may have been changed by others; `None` if that cannot be known. And whether
    /// each change to come leaves another.
    fn stamp(&self) -> Option<(Stamp, bool)> {
        None
    }

    /// From now on this host is the object's home, and alone has the file.
    fn is_home(&self, home: HomeFile, size_bytes: u64) -> Result<()> {
        drop((home, size_bytes));
        Err(Error::new(ErrorKind::Unsupported, "the object's home does not move"))
    }

    /// Other hosts that keep what is stored, if there are such.
    fn replicas(&self) -> Option<&Arc<dyn Replicas>> {
        None
    }

    /// These pages are about to be copied, and stored by `page_out`: what is published after this is newer than the copies. Said
    /// before every `page_out` of pages that may have been published, by syncs and by evictions; what it was not said of after
    /// its last publication is not stored.
    fn begins_writing(&self, pages: &RoaringBitmap) {
        let _ = pages;
    }

    /// Bytes of this host's memory become what `page_out_stored` takes of them: where they are kept meanwhile, they say what is
    /// to be stored.
    fn as_stored(&self, offset: u64, bytes: &mut [u8]) {
        let _ = (offset, bytes);
    }

    /// As `page_out`, of bytes that [`as_stored`](Pager::as_stored) has changed.
    fn page_out_stored(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.page_out(offset, data)
    }

    /// As `page_out`, of versions that are newer than what a sync that is under way may store of the same pages yet.
    fn publish(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.page_out(offset, data)
    }
}
