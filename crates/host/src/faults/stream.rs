//! How many pages a fault brings in: one at random access, twice as many each time on sequential access.

/// Most pages one fault brings in: 2 MiB.
pub const CLUSTER_PAGES: u64 = 512;
/// From so many pages on, another host is asked for what comes next before it is wanted.
const AHEAD_FROM: u64 = 16;

/// What is known of the access pattern of one mapping.
#[derive(Debug)]
pub struct Stream {
    next: u64,
    pages: u64,
    /// The end of what another host was asked for.
    asked: u64,
}

impl Default for Stream {
    fn default() -> Self {
        Stream { next: u64::MAX, pages: 1, asked: 0 }
    }
}

impl Stream {
    /// A fault at `page`: how many pages from there to bring in, at most so many.
    pub fn cluster(&mut self, page: u64, most: u64) -> u64 {
        // A fault a little behind the front is another thread of the same stream, not a jump.
        let near = page == self.next || (page < self.next && self.next - page < self.pages.min(16));
        self.pages = if near { (self.pages * 2).min(most) } else { 1 };
        self.pages
    }

    /// That many were brought in from `page` on.
    pub fn advance(&mut self, page: u64, pages: u64) {
        self.next = page + pages;
    }

    /// More pages than the fault brought in, from `page` on. False: the next access is expected elsewhere by now.
    pub fn goes_on(&mut self, page: u64, pages: u64) -> bool {
        let goes_on = page == self.next;
        if goes_on {
            self.advance(page, pages);
        }
        goes_on
    }

    /// Another host was asked for all pages before `end`, and perhaps for more.
    pub fn asked_until(&mut self, end: u64) {
        let further = self.asked > end && self.asked <= end + 3 * self.pages;
        if !further {
            self.asked = end;
        }
    }

    /// What to ask another host for before it is wanted: two clusters are on their way while one is read, so that
    /// nobody waits for anybody. From where, and how many; at most to `end`.
    pub fn ask_ahead(&mut self, end: u64) -> Option<(u64, u64)> {
        if self.pages < AHEAD_FROM {
            return None;
        }
        let known = self.asked >= self.next && self.asked <= self.next + 3 * self.pages;
        let from = if known { self.asked } else { self.next };
        let until = (self.next + 2 * self.pages).min(end);
        if until < from + self.pages / 2 && until < end || until <= from {
            return None; // not worth a message yet
        }
        self.asked = until;
        Some((from, until - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_are_asked_for_ahead_of_a_sequential_reader() {
        let mut stream = Stream::default();
        for page in 0..4 {
            stream.cluster(page, CLUSTER_PAGES);
            stream.advance(page, 1);
            assert_eq!(stream.ask_ahead(10_000), None, "too few in a row yet");
        }
        stream.cluster(4, CLUSTER_PAGES);
        stream.asked_until(20);
        stream.advance(4, 1);
        assert_eq!(stream.ask_ahead(10_000), Some((20, 17)), "5 + 2 * 16, less what was asked for");
        assert_eq!(stream.ask_ahead(10_000), None);
        stream.cluster(5, CLUSTER_PAGES);
        stream.advance(5, 15);
        assert_eq!(stream.ask_ahead(10_000), Some((37, 47)));
        stream.cluster(20, CLUSTER_PAGES);
        stream.advance(20, 64);
        assert_eq!(stream.ask_ahead(100), Some((84, 16)), "no further than the object");
        assert_eq!(stream.ask_ahead(100), None);
    }

    #[test]
    fn grows_on_sequential_access_and_falls_back_at_a_jump() {
        let mut stream = Stream::default();
        let mut page = 100;
        let mut sizes = Vec::new();
        for _ in 0..12 {
            let n = stream.cluster(page, CLUSTER_PAGES);
            stream.advance(page, n);
            sizes.push(n);
            page += n;
        }
        assert_eq!(sizes[..6], [1, 2, 4, 8, 16, 32]);
        assert_eq!(sizes[11], CLUSTER_PAGES);
        assert_eq!(stream.cluster(7, CLUSTER_PAGES), 1);
    }

    #[test]
    fn what_follows_is_dealt_with_as_long_as_nobody_jumped() {
        let mut stream = Stream::default();
        stream.cluster(5, CLUSTER_PAGES);
        stream.advance(5, 10);
        assert!(stream.goes_on(15, 10));
        assert!(!stream.goes_on(15, 10));
        assert_eq!(stream.cluster(25, CLUSTER_PAGES), 2, "still in a row");
        stream.advance(900, 1);
        assert!(!stream.goes_on(35, 10));
    }

    #[test]
    fn random_access_brings_in_single_pages() {
        let mut stream = Stream::default();
        for page in [5u64, 900, 17, 3000, 42] {
            assert_eq!(stream.cluster(page, CLUSTER_PAGES), 1);
            stream.advance(page, 1);
        }
    }
}
