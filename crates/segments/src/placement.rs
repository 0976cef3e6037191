//! Where an allocation looks for room: free segments are hashed by size into bins (section 5.5).

/// A hash of the sizes of free segments, and how long an allocation may look for one that fits.
///
/// The arena keeps one list for each bin. An allocation looks through the bins in which some
/// segments may be too small, [`Placement::LOOKS`] segments in all, and takes the first that fits.
/// If none does, it takes the head of the first bin in which every segment fits.
pub trait Placement {
    /// Number of bins, at most 4,096.
    const BINS: usize;
    /// How many segments an allocation looks at that may be too small.
    const LOOKS: usize;

    /// The bin of free segments of `pages` pages (at least one). Grows with `pages`.
    fn bin(pages: u32) -> usize;

    /// The first bin whose segments all have at least `pages` pages; [`Placement::BINS`] if none.
    fn roomy(pages: u32) -> usize;
}

/// The paper's bucket: n + 1 for sizes of 2^n + 1 to 2^(n + 1), and 0 for one page.
fn bucket(pages: u32) -> usize {
    (u32::BITS - (pages - 1).leading_zeros()) as usize
}

/// The paper's buckets, where an allocation scans its bucket for the first segment that fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScannedBuckets;

impl Placement for ScannedBuckets {
    const BINS: usize = 33;
    const LOOKS: usize = usize::MAX;

    fn bin(pages: u32) -> usize {
        bucket(pages)
    }

    fn roomy(pages: u32) -> usize {
        bucket(pages) + 1
    }
}

/// The paper's buckets, where an allocation takes the head of the next larger bucket.
///
/// It never looks into the bucket of its own size: with 3 of 4 pages free in one segment, an
/// allocation of 3 is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NextBucket;

impl Placement for NextBucket {
    const BINS: usize = 33;
    const LOOKS: usize = 0;

    fn bin(pages: u32) -> usize {
        bucket(pages)
    }

    fn roomy(pages: u32) -> usize {
        bucket(pages) + 1
    }
}

/// Two-level segregated fit (Masmano et al., "TLSF", 2004): 32 bins for each power of two.
///
/// Bins of up to 63 pages hold one size each. An allocation looks at a few segments of its own bin
/// before it takes from a larger one, which keeps large free segments whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tlsf;

const SUB_BINS_LOG2: u32 = 5;

impl Placement for Tlsf {
    const BINS: usize = ((u32::BITS - SUB_BINS_LOG2 + 1) << SUB_BINS_LOG2) as usize;
    const LOOKS: usize = 6;

    fn bin(pages: u32) -> usize {
        let shift = pages.ilog2().saturating_sub(SUB_BINS_LOG2);
        ((shift << SUB_BINS_LOG2) + (pages >> shift)) as usize
    }

    fn roomy(pages: u32) -> usize {
        let shift = pages.ilog2().saturating_sub(SUB_BINS_LOG2);
        pages.checked_add((1 << shift) - 1).map_or(Self::BINS, Self::bin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the contract of a placement for every pair of near sizes.
    fn contract<P: Placement>() {
        let sizes = (1..5000).chain([1 << 20, (1 << 20) + 1, u32::MAX - 1, u32::MAX]);
        let mut last = 0;
        for pages in sizes.clone() {
            assert!(P::bin(pages) < P::BINS && P::bin(pages) >= last);
            last = P::bin(pages);
            assert!(P::roomy(pages) >= P::bin(pages));
        }
        for pages in 1..200 {
            for other in 1..2000 {
                assert!(P::bin(other) < P::roomy(pages) || other >= pages, "{other} for {pages}");
            }
        }
    }

    #[test]
    fn every_segment_of_a_roomy_bin_fits() {
        contract::<ScannedBuckets>();
        contract::<NextBucket>();
        contract::<Tlsf>();
    }

    #[test]
    fn buckets_are_the_papers() {
        for n in 0..20 {
            assert_eq!(bucket((1 << n) + 1), n + 1);
            assert_eq!(bucket(1 << (n + 1)), n + 1);
        }
    }

    #[test]
    fn small_bins_of_tlsf_hold_one_size() {
        for pages in 1..64 {
            assert_eq!((Tlsf::bin(pages), Tlsf::roomy(pages)), (pages as usize, pages as usize));
        }
        assert_eq!((Tlsf::bin(64), Tlsf::bin(65), Tlsf::roomy(65)), (64, 64, 65));
    }
}
