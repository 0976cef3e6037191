//! How many pages a fault brings in: one at random access, twice as many each time on sequential access.

/// Most pages one fault brings in: 2 MiB.
pub const CLUSTER_PAGES: u64 = 512;

/// What is known of the access pattern of one mapping.
#[derive(Debug)]
pub struct Stream {
    next: u64,
    pages: u64,
}

impl Default for Stream {
    fn default() -> Self {
        Stream { next: u64::MAX, pages: 1 }
    }
}

impl Stream {
    /// A fault at `page`: how many pages from there to bring in.
    pub fn cluster(&mut self, page: u64) -> u64 {
        // A fault a little behind the front is another thread of the same stream, not a jump.
        let near = page == self.next || (page < self.next && self.next - page < self.pages.min(16));
        self.pages = if near { (self.pages * 2).min(CLUSTER_PAGES) } else { 1 };
        self.pages
    }

    /// That many were brought in from `page` on.
    pub fn advance(&mut self, page: u64, pages: u64) {
        self.next = page + pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_on_sequential_access_and_falls_back_at_a_jump() {
        let mut stream = Stream::default();
        let mut page = 100;
        let mut sizes = Vec::new();
        for _ in 0..12 {
            let n = stream.cluster(page);
            stream.advance(page, n);
            sizes.push(n);
            page += n;
        }
        assert_eq!(sizes[..6], [1, 2, 4, 8, 16, 32]);
        assert_eq!(sizes[11], CLUSTER_PAGES);
        assert_eq!(stream.cluster(7), 1);
    }

    #[test]
    fn random_access_brings_in_single_pages() {
        let mut stream = Stream::default();
        for page in [5u64, 900, 17, 3000, 42] {
            assert_eq!(stream.cluster(page), 1);
            stream.advance(page, 1);
        }
    }
}
