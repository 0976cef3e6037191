//! A shared object of another host is to be smaller: what lies past the end goes home first, in the scheduler's way. So
//! nothing that is under way speaks of pages past the end when the end moves, and nothing is lost if it does not.

use super::{Cache, book};
use crate::shared::Role;
use commonhold_object::{Error, ErrorKind, PageRange, Result};
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long that may take.
const GIVE_UP: Duration = Duration::from_secs(20);
/// Between two looks: what was granted a moment ago stays for its minimum hold.
const AGAIN: Duration = Duration::from_millis(1);

impl Cache {
    /// Gives up the pages from `end` on. From now on whoever touches one waits, until [`resize`](Self::resize); if this
    /// fails, not any more. `home_has_all`: a home that is not spoken with yet has asked for what is newest here.
    pub fn give_up_from(self: &Arc<Self>, end: u64, home_has_all: bool) -> Result<()> {
        let before = {
            let mut inner = self.lock();
            inner.closing = end;
            inner.size_pages()
        };
        // What is asked for from now on reaches no further.
        self.driver().iter().for_each(|driver| driver.set_end(end.min(before)));
        let away = || if end < before { self.send_away_from(end, home_has_all) } else { Ok(()) };
        away().inspect_err(|_| self.stay_as_large())
    }

    /// The object does not shrink: pages that were given up may be touched again.
    pub fn stay_as_large(self: &Arc<Self>) {
        let size = {
            let mut inner = self.lock();
            inner.closing = u64::MAX;
            inner.size_pages()
        };
        self.driver().iter().for_each(|driver| driver.set_end(size));
        self.ask_again();
    }

    /// Whether the object has this size here, and is not about to have another.
    pub fn has_size(&self, size_bytes: u64) -> bool {
        let inner = self.lock();
        inner.size_bytes == size_bytes && inner.closing == u64::MAX
    }

    fn send_away_from(self: &Arc<Self>, end: u64, home_has_all: bool) -> Result<()> {
        let deadline = Instant::now() + GIVE_UP;
        let past_end = PageRange::new(end, u64::from(u32::MAX).saturating_sub(end));
        loop {
            let Some(driver) = self.driver() else { return Ok(()) };
            if driver.home().is_none() {
                let text = "the object's home is away: what is newest past the new end would be lost; try again later";
                let away = || Error::new(ErrorKind::Disconnected, text);
                return home_has_all.then_some(()).ok_or_else(away);
            }
            let usable = self.usable_within(past_end, driver.plan().sizes.host_is_larger());
            if usable.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = format!(
                    "{} pages past the new end did not go home within {} s: the size stays as it is, try again",
                    usable.len(),
                    GIVE_UP.as_secs()
                );
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            if self.role() == Some(Role::Own) {
                // Locked pages too, and what was written here: as memory that is short has it.
                book::runs(&usable).into_iter().for_each(|run| driver.lock(run, false));
                let written = |inner: &mut super::Inner| book::within(inner.book.dirty(), past_end);
                let any = !written(&mut self.lock()).is_empty();
                any.then(|| self.store(false, written)).transpose()?;
            }
            if !driver.home_may_not_hear() {
                driver.give_up(&usable); // else what is newest here is safe here
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// `parts`: also what came of this host's larger pages whose other parts are elsewhere, so that nobody may use it.
    fn usable_within(&self, pages: PageRange, parts: bool) -> RoaringBitmap {
        let inner = self.lock();
        let Some(rights) = &inner.rights else { return RoaringBitmap::new() };
        let usable = book::within(&rights.read, pages);
        let parts = parts && self.role() == Some(Role::Copies);
        if parts { usable | book::within(&inner.resident, pages) } else { usable }
    }

    /// Whether any of these pages lies past the object's end, or that which it is to have.
    pub fn is_past_end(&self, pages: PageRange) -> bool {
        let inner = self.lock();
        pages.end() > inner.size_pages().min(inner.closing)
    }
}
