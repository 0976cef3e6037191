//! The loss generation of an object that hosts share page by page: another number whenever newest versions of its pages
//! were lost. Its home says which; other hosts know what they were told last. `docs/SHARING.md`, "What a loss does".

use super::Cache;
use commonhold_object::{Error, ErrorKind, Result};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// How far the clocks of two hosts are apart at most, in microseconds: a hundred years.
const CLOCKS_APART: u64 = 100 * 365 * 86_400 * 1_000_000;

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_micros() as u64)
}

fn check_is_a_time(generation: u64) -> Result<()> {
    if generation > now().saturating_add(CLOCKS_APART) {
        let text = format!("another host tells of losses until {generation}, which is no time");
        return Err(Error::new(ErrorKind::Protocol, text));
    }
    Ok(())
}

impl Cache {
    /// The loss generation, as far as it is known here; zero: it is not.
    pub fn loss_generation(&self) -> u64 {
        self.loss_generation.load(Ordering::Acquire)
    }

    /// At the home: newest versions were lost, or what the process before knew is.
    ///
    /// The number is taken from the clock: a home that knows none of those before gives another, too.
    pub fn has_losses(&self) -> Result<()> {
        self.change_loss_generation(|known| now().max(known.wrapping_add(1)))
    }

    /// The home told this number, or one that was asked after the home was lost. After one that nobody takes from a clock
    /// there would be no room for others.
    pub fn is_told_losses(&self, generation: u64) -> Result<()> {
        check_is_a_time(generation)?;
        self.change_loss_generation(|known| generation.max(known))
    }

    /// The home told this number to who opens the object here. What was told before may be greater: the home has forgotten it, and
    /// its clock was set back. (This host may be the home by now: then its own counts.)
    pub fn is_opened_with_losses(&self, generation: u64) -> Result<()> {
        check_is_a_time(generation)?;
        self.change_loss_generation(|known| if self.is_copies() { generation } else { generation.max(known) })
    }

    /// The next process finds the number before anybody hears of it.
    fn change_loss_generation(&self, next: impl FnOnce(u64) -> u64) -> Result<()> {
        let inner = self.lock();
        let known = self.loss_generation();
        let next = next(known);
        if next != known {
            inner.book.live().set_loss_generation(next)?;
            self.loss_generation.store(next, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::tests::{Memory, cache};
    use super::*;

    #[test]
    fn every_loss_has_another_generation_and_the_next_process_knows_it() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        let first = cache(directory.path(), &memory);
        assert_eq!(first.loss_generation(), 0);
        first.is_told_losses(7).unwrap();
        first.is_told_losses(5).unwrap();
        assert_eq!(first.loss_generation(), 7);
        first.has_losses().unwrap();
        let lost = first.loss_generation();
        first.has_losses().unwrap();
        assert!(lost > 7 && first.loss_generation() > lost);
        let why = first.is_told_losses(u64::MAX).unwrap_err();
        assert_eq!(why.kind, ErrorKind::Protocol, "{why}");
        let last = first.loss_generation();
        drop(first);
        assert_eq!(cache(directory.path(), &memory).loss_generation(), last);
        first_of_all_is_later_than(last);
    }

    /// A home that begins without the memory of the one before.
    fn first_of_all_is_later_than(last: u64) {
        let directory = tempfile::tempdir().unwrap();
        let other = cache(directory.path(), &Memory::new());
        other.has_losses().unwrap();
        assert!(other.loss_generation() > last);
    }
}
