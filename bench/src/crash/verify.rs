//! What may be there after a death, and what may not. No I/O: bytes and notes in, findings out.

use super::pattern::{self, Seen};
use crate::view::PAGE;
use commonhold::PageState;

/// What a page (or lane) turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// As it must be.
    Good,
    /// A mixture, or something that nobody may have put there yet.
    Torn,
    /// Older than what was acknowledged, or zeros.
    Lost,
    /// Said to be clean, and not what is stored.
    WronglyClean,
}

/// Judges a page in memory by the versions that its writer noted as started and done.
pub fn page_in_memory(page: usize, bytes: &[u8], (started, done): (u64, u64)) -> Finding {
    if started != done && pattern::is_between(page, bytes, started, done) {
        return Finding::Good;
    }
    match pattern::look(page, bytes) {
        Seen::Zero if done == 0 => Finding::Good,
        Seen::Zero => Finding::Lost,
        Seen::Whole(version) if version == done => Finding::Good,
        Seen::Whole(version) if version < done => Finding::Lost,
        Seen::Whole(_) | Seen::Mixed => Finding::Torn,
    }
}

/// Judges a lane of the stored object, whose first page is `first`: one generation, not older than the one
/// acknowledged, not newer than the one whose sync was called.
pub fn lane_in_store(first: usize, bytes: &[u8], acknowledged: u64, syncing: u64) -> Finding {
    let mut generation = None;
    for (n, page) in bytes.chunks_exact(PAGE).enumerate() {
        match pattern::look(first + n, page) {
            Seen::Zero => return Finding::Lost,
            Seen::Mixed => return Finding::Torn,
            Seen::Whole(version) => match generation.replace(version) {
                Some(other) if other != version => return Finding::Torn,
                _ => {}
            },
        }
    }
    match generation {
        Some(version) if version < acknowledged => Finding::Lost,
        Some(version) if version > syncing => Finding::Torn,
        Some(_) => Finding::Good,
        None => Finding::Lost,
    }
}

/// Judges what `incore` says of a page.
pub fn state(memory: &[u8], stored: &[u8], state: PageState) -> Finding {
    if memory != stored && state != PageState::Dirty { Finding::WronglyClean } else { Finding::Good }
}

#[cfg(test)]
mod tests {
    use super::pattern::bytes;
    use super::*;

    #[test]
    fn memory_is_judged_by_the_notes() {
        let zeros = vec![0; PAGE];
        assert_eq!(page_in_memory(4, &bytes(4, 7), (7, 7)), Finding::Good);
        assert_eq!(page_in_memory(4, &bytes(4, 6), (7, 7)), Finding::Lost);
        assert_eq!(page_in_memory(4, &bytes(4, 8), (7, 7)), Finding::Torn);
        assert_eq!(page_in_memory(4, &bytes(5, 7), (7, 7)), Finding::Torn);
        assert_eq!(page_in_memory(4, &zeros, (7, 7)), Finding::Lost);
        assert_eq!(page_in_memory(4, &zeros, (7, 6)), Finding::Lost);
        assert_eq!(page_in_memory(4, &zeros, (0, 0)), Finding::Good);
        assert_eq!(page_in_memory(4, &zeros, (1, 0)), Finding::Good);
        assert_eq!(page_in_memory(4, &bytes(4, 6), (7, 6)), Finding::Good);
        assert_eq!(page_in_memory(4, &bytes(4, 5), (7, 6)), Finding::Lost);
        let mut half = bytes(4, 7);
        half[2048..].copy_from_slice(&bytes(4, 6)[2048..]);
        assert_eq!(page_in_memory(4, &half, (7, 6)), Finding::Good);
        assert_eq!(page_in_memory(4, &half, (7, 7)), Finding::Torn);
    }

    #[test]
    fn a_stored_lane_is_one_generation() {
        let lane = |versions: [u64; 3]| -> Vec<u8> {
            versions.iter().enumerate().flat_map(|(n, version)| bytes(10 + n, *version)).collect()
        };
        assert_eq!(lane_in_store(10, &lane([5, 5, 5]), 5, 6), Finding::Good);
        assert_eq!(lane_in_store(10, &lane([6, 6, 6]), 5, 6), Finding::Good);
        assert_eq!(lane_in_store(10, &lane([5, 6, 5]), 5, 6), Finding::Torn);
        assert_eq!(lane_in_store(10, &lane([4, 4, 4]), 5, 6), Finding::Lost);
        assert_eq!(lane_in_store(10, &lane([7, 7, 7]), 5, 6), Finding::Torn);
        assert_eq!(lane_in_store(10, &vec![0; 3 * PAGE], 5, 6), Finding::Lost);
    }

    #[test]
    fn only_what_is_stored_may_be_clean() {
        let (one, other) = (bytes(1, 1), bytes(1, 2));
        assert_eq!(state(&one, &one, PageState::Clean), Finding::Good);
        assert_eq!(state(&one, &one, PageState::Dirty), Finding::Good);
        assert_eq!(state(&one, &other, PageState::Dirty), Finding::Good);
        assert_eq!(state(&one, &other, PageState::Clean), Finding::WronglyClean);
        assert_eq!(state(&one, &other, PageState::Absent), Finding::WronglyClean);
    }
}
