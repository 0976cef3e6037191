//! The pager of an object whose home moves. Only the home has the file that is paged from, from the instant on at which it holds
//! the file's lock; anywhere else, and before, there are no pages here. (What replicas keep is in files of theirs.)

use super::{ElsewherePager, FilePager, Pager, Replicas, Stamp};
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, Result};
use roaring::RoaringBitmap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Whether this host's lease lets it store anything.
pub type MayStore = Box<dyn Fn() -> bool + Send + Sync>;

/// A file, once this host is the home.
#[derive(Default)]
pub struct MovingPager {
    home: OnceLock<Home>,
}

/// What the home of such an object has, and no other host.
pub struct HomeFile {
    /// The file, locked.
    pub file: File,
    /// Whether anything may be stored there.
    pub may_store: MayStore,
    /// Who keeps the same beside it.
    pub replicas: Option<Arc<dyn Replicas>>,
}

struct Home {
    file: FilePager,
    may_store: MayStore,
    replicas: Option<Arc<dyn Replicas>>,
    /// Pages that were published and that nobody was about to store since: what a sync or an eviction copied before is older.
    /// Nobody waits for this lock.
    overtaken: Mutex<RoaringBitmap>,
    /// Held while something is stored.
    storing: Mutex<()>,
}

impl Home {
    fn storing(&self) -> MutexGuard<'_, ()> {
        self.storing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overtaken(&self) -> MutexGuard<'_, RoaringBitmap> {
        self.overtaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.file.page_out(offset, data)?;
        self.replicas.as_ref().map_or(Ok(()), |replicas| replicas.store(offset, data))
    }

    /// Stores what was copied by a sync or an eviction, but for what was published since.
    fn page_out(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.replicas.is_none() {
            return self.file.page_out(offset, data);
        }
        let _storing = self.storing();
        let first = (offset / PAGE_SIZE_BYTES) as u32;
        let count = data.len().div_ceil(PAGE_SIZE_BYTES as usize) as u32;
        if self.overtaken().range_cardinality(first..first + count) == 0 {
            return self.store(offset, data);
        }
        (first..).zip(data.chunks(PAGE_SIZE_BYTES as usize)).try_for_each(|(page, data)| {
            if self.overtaken().contains(page) {
                return Ok(());
            }
            self.store(u64::from(page) * PAGE_SIZE_BYTES, data)
        })
    }
}

impl MovingPager {
    fn pager(&self) -> &dyn Pager {
        self.home.get().map_or(&ElsewherePager, |home| &home.file)
    }

    /// Whoever takes this host's place waits for the lock of the file. But what is stored so late would be in vain.
    fn check_may_store(&self) -> Result<()> {
        if self.home.get().is_none_or(|home| (home.may_store)()) {
            return Ok(());
        }
        let text =
            "this host's lease is nearly over, or is not renewed yet: nothing is stored; try again later";
        Err(Error::new(ErrorKind::Disconnected, text))
    }
}

impl Pager for MovingPager {
    fn page_in(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.pager().page_in(offset, buffer)
    }

    fn page_out(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_may_store()?;
        self.home
            .get()
            .map_or_else(|| ElsewherePager.page_out(offset, data), |home| home.page_out(offset, data))
    }

    fn publish(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_may_store()?;
        let Some(home) = self.home.get() else { return ElsewherePager.page_out(offset, data) };
        let _storing = home.storing();
        let first = (offset / PAGE_SIZE_BYTES) as u32;
        let count = data.len().div_ceil(PAGE_SIZE_BYTES as usize) as u32;
        home.overtaken().insert_range(first..first + count);
        home.store(offset, data)
    }

    fn begins_writing(&self, pages: &RoaringBitmap) {
        if let Some(home) = self.home.get().filter(|home| home.replicas.is_some()) {
            *home.overtaken() -= pages;
        }
    }

    fn replicas(&self) -> Option<&Arc<dyn Replicas>> {
        self.home.get()?.replicas.as_ref()
    }

    fn flush(&self) -> Result<()> {
        self.check_may_store()?;
        if self.replicas().is_some() {
            return Ok(()); // page caches and disks of other hosts are what it is stored in
        }
        self.pager().flush()
    }

    fn check(&self, size_bytes: u64) -> Result<()> {
        self.pager().check(size_bytes)
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        self.pager().reserve(offset, length)
    }

    fn resize(&self, size_bytes: u64) -> Result<()> {
        self.check_may_store()?;
        self.pager().resize(size_bytes) // replicas are told by whoever knows which locks it holds
    }

    fn would_wait(&self, offset: u64) -> bool {
        self.pager().would_wait(offset)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.pager().file()
    }

    fn wrote(&self) {
        self.pager().wrote();
    }

    fn stamp(&self) -> Option<(Stamp, bool)> {
        self.pager().stamp()
    }

    fn is_home(&self, HomeFile { file, may_store, replicas }: HomeFile, size_bytes: u64) -> Result<()> {
        let file = FilePager::new(file, size_bytes);
        let (overtaken, storing) = (Mutex::default(), Mutex::default());
        let taken = self.home.set(Home { file, may_store, replicas, overtaken, storing });
        taken.map_err(|_| Error::new(ErrorKind::Busy, "this host has the object's file already"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE_BYTES;

    /// Has a copy of what it was told to keep.
    #[derive(Default)]
    struct Copy(Mutex<Vec<(u64, Vec<u8>)>>);

    impl Replicas for Copy {
        fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
            let mut stored = self.0.lock().unwrap();
            stored.extend(
                (offset..).step_by(PAGE as usize).zip(data.chunks(PAGE as usize).map(<[u8]>::to_vec)),
            );
            Ok(())
        }
        fn set_newer(&self, _: &RoaringBitmap) -> Result<()> {
            Ok(())
        }
        fn clear_newer(&self, _: &RoaringBitmap) {}
        fn settle(&self) -> Result<()> {
            Ok(())
        }
        fn resize(&self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_sync_stores_nothing_over_what_was_published_since_it_began() {
        let (copy, file) = (Arc::new(Copy::default()), tempfile::tempfile().unwrap());
        file.set_len(4 * PAGE).unwrap();
        let pager = MovingPager::default();
        let replicas: Arc<dyn Replicas> = copy.clone();
        let home = HomeFile { file, may_store: Box::new(|| true), replicas: Some(replicas) };
        pager.is_home(home, 4 * PAGE).unwrap();
        let bytes = |byte: u8, pages: u64| vec![byte; (pages * PAGE) as usize];
        pager.begins_writing(&[0, 1, 2].into());
        pager.publish(PAGE, &bytes(2, 1)).unwrap();
        pager.page_out(0, &bytes(1, 3)).unwrap();
        let is = |page: u64, byte: u8| {
            let mut read = bytes(0, 1);
            pager.page_in(page * PAGE, &mut read).unwrap();
            let stored = copy.0.lock().unwrap();
            let kept = stored.iter().rev().find(|(offset, _)| *offset == page * PAGE).unwrap();
            assert!(read == bytes(byte, 1) && kept.1 == read, "page {page}");
        };
        is(0, 1);
        is(1, 2);
        is(2, 1);
        // The next sync copies what is there then.
        pager.begins_writing(&[1].into());
        pager.page_out(PAGE, &bytes(3, 1)).unwrap();
        is(1, 3);
    }
}
