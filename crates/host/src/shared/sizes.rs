//! Two units of pages, and the only place that knows both: schedulers speak of *pages* of their object's size, everything
//! else of *frames* of 4 KiB. And this host's own page size, which says how much its processes have or have not at once.

use super::driver::MOST_PAGES;
use crate::cache::book;
use commonhold_coherence::Span;
use commonhold_object::{PageRange, PageSize};
use roaring::RoaringBitmap;

/// The sizes of an object's pages here, in frames: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    page: u64,
    host: u64,
}

impl Sizes {
    /// Pages of 4 KiB for everybody.
    pub const FRAMES: Sizes = Sizes { page: 1, host: 1 };

    /// An object scheduled in pages of one size, at a host with pages of another.
    pub fn new(page: PageSize, host: PageSize) -> Sizes {
        Sizes { page: page.frames(), host: host.frames() }
    }

    /// Frames of a scheduler page.
    pub fn page(self) -> u64 {
        self.page
    }

    /// Frames of a page of this host.
    pub fn host(self) -> u64 {
        self.host
    }

    /// Whether this host's pages are several scheduler pages each.
    pub fn host_is_larger(self) -> bool {
        self.host > self.page
    }

    /// The frames of scheduler pages of an object of that many frames: its last page may be shorter.
    pub fn frames(self, span: Span, size: u64) -> PageRange {
        let first = (u64::from(span.first) * self.page).min(size);
        let end = (u64::from(span.first) + u64::from(span.count)) * self.page;
        PageRange::new(first, end.min(size) - first)
    }

    /// Scheduler pages of an object of that many frames.
    pub fn pages(self, size: u64) -> u64 {
        size.div_ceil(self.page)
    }

    /// Frames of a run of scheduler pages, wherever it is, but for a shorter last page.
    pub fn most_frames(self, pages: u64) -> u64 {
        pages.saturating_mul(self.page)
    }

    /// How far pages of this host reach around those frames.
    pub fn reach(self, frames: PageRange, size: u64) -> PageRange {
        around(frames, self.host, size)
    }

    /// What the scheduler is asked for when processes of this host want those frames: whole scheduler pages, and all of a
    /// larger page of this host in one request, so that two hosts cannot take the parts from each other for ever.
    pub fn requests(self, frames: PageRange, size: u64) -> impl Iterator<Item = Span> {
        let whole = around(frames, self.host.max(self.page), size);
        let (first, end) = (whole.first / self.page, whole.end().div_ceil(self.page));
        let at_once = match self.host_is_larger() {
            true => self.host / self.page,
            false => (u64::from(MOST_PAGES / 2) / self.page).max(1),
        };
        (first..end).step_by(at_once as usize).map(move |page| {
            let count = at_once.min(end - page);
            Span::new(page as u32, count as u32)
        })
    }

    /// The scheduler pages that hold any of these frames.
    pub fn pages_of(self, frames: &RoaringBitmap) -> Vec<u32> {
        self.in_units(frames, 1)
    }

    /// The same, and those of the pages of this host around them.
    pub fn pages_around(self, frames: &RoaringBitmap, size: u64) -> Vec<u32> {
        let mut pages = self.in_units(frames, (self.host / self.page).max(1));
        pages.retain(|page| u64::from(*page) * self.page < size);
        pages
    }

    fn in_units(self, frames: &RoaringBitmap, unit_pages: u64) -> Vec<u32> {
        let unit = self.page * unit_pages;
        let (mut pages, mut done) = (Vec::new(), 0);
        for run in book::runs(frames) {
            let first = (run.first / unit * unit_pages).max(done);
            done = done.max(run.end().div_ceil(unit) * unit_pages);
            pages.extend((first..done).map(|page| page as u32));
        }
        pages
    }
}

/// The units around a run of frames, as far as the object goes.
fn around(frames: PageRange, unit: u64, size: u64) -> PageRange {
    let first = frames.first / unit * unit;
    let end = frames.end().next_multiple_of(unit).min(size).max(frames.end());
    PageRange::new(first, end - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(page: u64, host: u64) -> Sizes {
        Sizes::new(PageSize::new(page << 10).unwrap(), PageSize::new(host << 10).unwrap())
    }

    fn asked(sizes: Sizes, first: u64, count: u64, size: u64) -> Vec<Span> {
        sizes.requests(PageRange::new(first, count), size).collect()
    }

    #[test]
    fn frames_are_pages_where_nobody_has_larger_ones() {
        assert_eq!(asked(Sizes::FRAMES, 7, 1, 100), [Span::one(7)]);
        assert_eq!(asked(Sizes::FRAMES, 7, 512, 1000), [Span::new(7, 512)], "one request");
        assert_eq!(Sizes::FRAMES.frames(Span::new(3, 4), 100), PageRange::new(3, 4));
        assert_eq!(Sizes::FRAMES.pages_around(&[3, 9].into(), 10), [3, 9]);
    }

    #[test]
    fn smaller_requests_are_rounded_up() {
        let sizes = sizes(64, 4);
        assert_eq!(asked(sizes, 17, 1, 100), [Span::one(1)]);
        assert_eq!(asked(sizes, 15, 2, 100), [Span::new(0, 2)]);
        assert_eq!(sizes.frames(Span::one(6), 100), PageRange::new(96, 4), "the last page is shorter");
        assert_eq!(sizes.pages(100), 7);
        assert_eq!(sizes.frames(Span::one(9), 100), PageRange::new(100, 0), "none behind it");
        assert_eq!(sizes.reach(PageRange::new(16, 16), 100), PageRange::new(16, 16));
        assert_eq!(sizes.pages_of(&[0, 15, 16, 40, 47].into()), [0, 1, 2]);
    }

    #[test]
    fn larger_requests_are_several_pages_at_once() {
        let sizes = sizes(16, 64);
        assert_eq!(asked(sizes, 17, 1, 100), [Span::new(4, 4)]);
        assert_eq!(asked(sizes, 15, 2, 100), [Span::new(0, 4), Span::new(4, 4)], "one for each of its pages");
        assert_eq!(asked(sizes, 99, 1, 100), [Span::new(24, 1)], "the object ends there");
        assert_eq!(sizes.reach(PageRange::new(20, 4), 100), PageRange::new(16, 16));
        assert_eq!(sizes.reach(PageRange::new(96, 4), 100), PageRange::new(96, 4));
        assert_eq!(sizes.pages_around(&[17, 98].into(), 100), [4, 5, 6, 7, 24]);
        assert_eq!(sizes.pages_of(&[17, 98].into()), [4, 24]);
    }

    #[test]
    fn no_request_is_for_more_than_may_be_sent_at_once() {
        for page in 2..12 {
            for host in 2..12 {
                let sizes = sizes(1 << page, 1 << host);
                let size = 5000;
                let requests: Vec<Span> = sizes.requests(PageRange::new(3, 4000), size).collect();
                let most = requests.iter().map(|span| sizes.frames(*span, size).count).max().unwrap();
                assert!(most <= 512, "{most} frames in one request");
                let covered = requests.iter().flat_map(|span| span.pages()).collect::<Vec<u32>>();
                assert!(covered.is_sorted_by(|a, b| a + 1 == *b), "each once, in order");
                let whole = sizes.frames(Span::new(covered[0], covered.len() as u32), size);
                assert!(whole.first <= 3 && whole.end() >= 4003);
            }
        }
    }
}
