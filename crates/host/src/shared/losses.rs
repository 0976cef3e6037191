//! What an object has lost with hosts: which pages, and of how many an older version serves, for people and programs.

use super::driver::Driver;
use commonhold_coherence::Span;
use commonhold_object::{Losses, PageRange};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Pages of which an older version serves, since this process began with the object.
#[derive(Debug, Default)]
pub(super) struct Reverted {
    pages: AtomicU64,
    generation: AtomicU64,
}

impl Reverted {
    /// So many more. The generation is taken from the clock: the next process begins with none, and what it then counts
    /// is another than what this one did.
    pub fn add(&self, pages: u64) {
        if pages == 0 {
            return;
        }
        self.pages.fetch_add(pages, Ordering::Relaxed);
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64);
        let next = |before: u64| Some(now.max(before + 1));
        let _ = self.generation.fetch_update(Ordering::Release, Ordering::Relaxed, next);
    }
}

impl Driver {
    /// What is lost of the object, as far as this host knows: its home knows all of it.
    pub fn losses(&self) -> Losses {
        let lost = self.lost_in(PageRange::new(0, u64::MAX)).iter().map(|run| run.count).sum();
        Losses {
            lost_pages: lost,
            reverted_pages: self.reverted.pages.load(Ordering::Relaxed),
            generation: self.reverted.generation.load(Ordering::Acquire),
        }
    }

    /// Which of these frames are of pages whose newest version is lost, as far as this host knows.
    pub fn lost_in(&self, frames: PageRange) -> Vec<PageRange> {
        let lost = self.state().part.lost_pages();
        let runs = lost.into_iter().map(|page| self.frames(Span::one(page)).intersect(frames));
        let mut found: Vec<PageRange> = Vec::new();
        for run in runs.filter(|run| !run.is_empty()) {
            match found.last_mut().filter(|last| last.end() == run.first) {
                Some(last) => last.count += run.count,
                None => found.push(run),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_revert_has_another_generation() {
        let reverted = Reverted::default();
        let mut seen = vec![0];
        for pages in [0, 3, 1, 0, 2] {
            reverted.add(pages);
            let generation = reverted.generation.load(Ordering::Relaxed);
            assert_eq!(seen.last() == Some(&generation), pages == 0, "{pages}");
            assert!(generation >= *seen.last().unwrap());
            seen.push(generation);
        }
        assert_eq!(reverted.pages.load(Ordering::Relaxed), 6);
    }
}
