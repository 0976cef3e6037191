//! The pager of an object whose home moves. Only the home has the file, from the instant on at which it holds the file's lock;
//! anywhere else, and before, there are no pages here.

use super::{ElsewherePager, FilePager, Pager, Stamp};
use commonhold_object::{Error, ErrorKind, Result};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

/// Whether this host's lease lets it store anything.
pub type MayStore = Box<dyn Fn() -> bool + Send + Sync>;

/// A file, once this host is the home.
#[derive(Default)]
pub struct MovingPager {
    home: OnceLock<(FilePager, MayStore)>,
}

impl MovingPager {
    fn pager(&self) -> &dyn Pager {
        self.home.get().map_or(&ElsewherePager, |(file, _)| file)
    }

    /// Whoever takes this host's place waits for the lock of the file. But what is stored so late would be in vain.
    fn check_may_store(&self) -> Result<()> {
        if self.home.get().is_none_or(|(_, may_store)| may_store()) {
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
        self.pager().page_out(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.check_may_store()?;
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
        self.pager().resize(size_bytes)
    }

    fn would_wait(&self, offset: u64) -> bool {
        self.pager().would_wait(offset)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.pager().file()
    }

    fn stamp(&self) -> Option<Stamp> {
        self.pager().stamp()
    }

    fn is_home(&self, file: File, size_bytes: u64, may_store: MayStore) -> Result<()> {
        let taken = self.home.set((FilePager::new(file, size_bytes), may_store));
        taken.map_err(|_| Error::new(ErrorKind::Busy, "this host has the object's file already"))
    }
}
