//! Sizes of blocks: multiples of 16 up to 128, then four for each doubling, up to a page. What is
//! larger takes whole pages.

use crate::layout::PAGE;

/// The smallest block.
pub const SMALLEST: u64 = 16;
/// The largest block that shares pages with others of its size.
pub(crate) const LARGEST: u64 = 4096;
/// How many sizes there are.
pub(crate) const CLASSES: usize = 28;

const fn bytes_of(class: usize) -> u64 {
    if class < 8 {
        16 * (class as u64 + 1)
    } else {
        (4 + (class as u64 - 8) % 4 + 1) << (5 + (class - 8) / 4)
    }
}

/// Bytes of each.
pub(crate) const BYTES: [u64; CLASSES] = {
    let mut bytes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        bytes[class] = bytes_of(class);
        class += 1;
    }
    bytes
};

/// The class for so many times 16 bytes.
const CLASS: [u8; (LARGEST / 16) as usize + 1] = {
    let mut table = [0; (LARGEST / 16) as usize + 1];
    let (mut sixteens, mut class) = (0, 0);
    while sixteens < table.len() {
        if sixteens as u64 * 16 > BYTES[class] {
            class += 1;
        }
        table[sixteens] = class as u8;
        sixteens += 1;
    }
    table
};

/// 2^32 over the bytes of each, rounded up: a multiplication instead of a division.
const OVER: [u64; CLASSES] = {
    let mut over = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        over[class] = (1_u64 << 32).div_ceil(BYTES[class]);
        class += 1;
    }
    over
};

/// The class for a block of so many bytes, [`LARGEST`] at most.
#[inline]
pub(crate) fn of(bytes: u64) -> usize {
    usize::from(CLASS[(bytes.div_ceil(16)) as usize])
}

/// Which block of a class lies so many bytes from the first, 64 KiB at most: if one begins there.
#[inline]
pub(crate) fn index(class: usize, from_first: u64) -> Option<u64> {
    let index = (from_first * OVER[class]) >> 32;
    (index * BYTES[class] == from_first).then_some(index)
}

/// Fewest pages of a span: eight blocks.
pub(crate) fn least_pages(class: usize) -> u64 {
    (8 * BYTES[class]).div_ceil(PAGE).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_smallest_class_that_holds_it() {
        assert_eq!((BYTES[0], BYTES[7], BYTES[8], BYTES[11], BYTES[27]), (16, 128, 160, 256, 4096));
        assert!(BYTES.windows(2).all(|two| two[0] < two[1]));
        for bytes in 0..=LARGEST {
            let class = of(bytes);
            assert!(BYTES[class] >= bytes && (class == 0 || BYTES[class - 1] < bytes), "{bytes}");
        }
    }

    #[test]
    fn a_block_is_found_by_its_first_byte_alone() {
        for (class, bytes) in BYTES.into_iter().enumerate() {
            for from_first in 0..1 << 16 {
                let found = index(class, from_first);
                let right = from_first.is_multiple_of(bytes).then(|| from_first / bytes);
                assert_eq!(found, right);
            }
        }
    }
}
