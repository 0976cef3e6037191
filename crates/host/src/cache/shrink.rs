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
    /// fails, not any more.
    pub fn give_up_from(self: &Arc<Self>, end: u64) -> Result<()> {
        let before = {
            let mut inner = self.lock();
            inner.closing = end;
            inner.size_pages()
        };
        // What is asked for from now on reaches no further.
        let set_end = |pages| self.driver().iter().for_each(|driver| driver.set_end(pages));
        set_end(end.min(before));
        let result = self.send_away_from(end);
        if result.is_err() {
            set_end(before);
            self.lock().closing = u64::MAX;
            self.ask_again();
        }
        result
    }

    fn send_away_from(self: &Arc<Self>, end: u64) -> Result<()> {
        let deadline = Instant::now() + GIVE_UP;
        let past_end = PageRange::new(end, u64::from(u32::MAX).saturating_sub(end));
        loop {
            // Without a home there is nobody to give anything to, and the next one is told what is here.
            let Some(driver) = self.driver().filter(|driver| driver.home().is_some()) else { return Ok(()) };
            let usable = self.usable_within(past_end);
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

    fn usable_within(&self, pages: PageRange) -> RoaringBitmap {
        let inner = self.lock();
        inner.rights.as_ref().map_or_else(RoaringBitmap::new, |rights| book::within(&rights.read, pages))
    }

    /// Whether any of these pages lies past the object's end.
    pub fn is_past_end(&self, pages: PageRange) -> bool {
        pages.end() > self.lock().size_pages()
    }
}
