//! Pages that tell by themselves which version of which page they are, and whether they are whole.

use crate::view::{PAGE, View};

const WORDS: usize = PAGE / 8;

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing but zeros.
    Zero,
    /// That version, whole.
    Whole(u64),
    /// Anything else.
    Mixed,
}

fn word(page: usize, version: u64, n: usize) -> u64 {
    match n {
        0 => version,
        1 => page as u64,
        _ => {
            let mixed = version.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (page as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
            mixed.wrapping_add((n as u64).wrapping_mul(0x1656_67b1_9e37_79f9)) | 1
        }
    }
}

/// Writes a version of a page, word by word.
pub fn write(view: View<'_>, page: usize, version: u64) {
    (0..WORDS).for_each(|n| view.write_word(page * PAGE + n * 8, word(page, version, n)));
}

/// The bytes of a version of a page.
pub fn bytes(page: usize, version: u64) -> Vec<u8> {
    (0..WORDS).flat_map(|n| word(page, version, n).to_ne_bytes()).collect()
}

/// What the bytes of page `page` are.
pub fn look(page: usize, bytes: &[u8]) -> Seen {
    let version = words(bytes).next().unwrap_or(0);
    if words(bytes).all(|word| word == 0) {
        Seen::Zero
    } else if words(bytes).enumerate().all(|(n, found)| found == word(page, version, n)) {
        Seen::Whole(version)
    } else {
        Seen::Mixed
    }
}

/// Whether every word belongs to one of two versions (0: a page of zeros): what a writer killed in the middle
/// of a page may leave.
pub fn is_between(page: usize, bytes: &[u8], one: u64, other: u64) -> bool {
    let of = |version: u64, n: usize| if version == 0 { 0 } else { word(page, version, n) };
    words(bytes).enumerate().all(|(n, found)| found == of(one, n) || found == of(other, n))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(std::array::from_fn(|n| word[n])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{RawMapping, memory_file};

    #[test]
    fn pages_are_recognised() {
        let memory = RawMapping::shared(memory_file(4 * PAGE).unwrap(), 4 * PAGE).unwrap();
        write(memory.view(), 2, 9);
        let mut page = vec![0; PAGE];
        memory.view().read(2 * PAGE, &mut page);
        assert_eq!(page, bytes(2, 9));
        assert_eq!(look(2, &page), Seen::Whole(9));
        assert_eq!(look(3, &page), Seen::Mixed);
        assert_eq!(look(2, &vec![0; PAGE]), Seen::Zero);
        page[100] ^= 4;
        assert_eq!(look(2, &page), Seen::Mixed);
        assert!(!is_between(2, &page, 9, 10));
    }

    #[test]
    fn half_written_pages_lie_between() {
        let mut page = bytes(5, 3);
        page[..1000].copy_from_slice(&bytes(5, 4)[..1000]);
        assert!(is_between(5, &page, 3, 4) && !is_between(5, &page, 2, 3));
        let mut first = bytes(5, 1);
        first[800..].fill(0);
        assert!(is_between(5, &first, 0, 1));
    }
}
