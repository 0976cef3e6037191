//! What pages are filled with: each page says which it is, and which version of it.

use crate::PAGE;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a page.
pub const WORDS: usize = PAGE / 8;

/// A page of shared memory, as words that others may write at the same time.
#[allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "tests name pages of mappings; where one is wrong on purpose the process dies"
)]
pub fn words(start: *mut u8, page: usize) -> &'static [AtomicU64; WORDS] {
    // SAFETY: callers pass the start of a live mapping and a page within it; the workers keep each mapping
    // until they are told to drop it, and touch it through atomics alone.
    unsafe { &*start.add(page * PAGE).cast::<[AtomicU64; WORDS]>() }
}

/// A number that looks like nothing else.
pub fn mix(version: u64, page: u64) -> u64 {
    let mut x = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ page.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 29) | 1
}

/// One word of a filled page.
fn word(seed: u64, page: u64, index: usize) -> u64 {
    mix(seed ^ (index as u64) << 48, page)
}

/// Fills a page; `number` is its number within the object.
pub fn fill(at: &[AtomicU64; WORDS], number: u64, seed: u64) {
    for (index, slot) in at.iter().enumerate() {
        slot.store(word(seed, number, index), Ordering::Relaxed);
    }
}

/// Checks a filled page; seed 0 means never written: zeros.
pub fn check(at: &[AtomicU64; WORDS], number: u64, seed: u64) -> Result<(), String> {
    for (index, slot) in at.iter().enumerate() {
        let wanted = if seed == 0 { 0 } else { word(seed, number, index) };
        let found = slot.load(Ordering::Relaxed);
        if found != wanted {
            return Err(format!("page {number} word {index} is {found:#x}, not {wanted:#x} (seed {seed})"));
        }
    }
    Ok(())
}

/// The bytes of filled pages, as a file should have them.
pub fn bytes(first: u64, count: u64, seed: u64) -> Vec<u8> {
    (first..first + count)
        .flat_map(|number| (0..WORDS).flat_map(move |index| word(seed, number, index).to_le_bytes()))
        .collect()
}

/// Words that hold the counter of a counted page.
const COUNTED: [usize; 3] = [0, WORDS / 2, WORDS - 2];

/// Writes version `count` of a counted page, whose owner alone writes it.
pub fn set_count(at: &[AtomicU64; WORDS], number: u64, count: u64) {
    at[1].store(number, Ordering::Relaxed);
    for index in COUNTED {
        at[index].store(count, Ordering::Relaxed);
    }
    at[WORDS - 1].store(mix(count, number), Ordering::Release);
}

/// Checks that a counted page has a version between `least` and `most` (different words may have different ones if
/// its owner was stopped in the middle). Version 0 is the page never written.
pub fn check_count(at: &[AtomicU64; WORDS], number: u64, least: u64, most: u64) -> Result<(), String> {
    let found = COUNTED.map(|index| at[index].load(Ordering::Relaxed));
    let sum = at[WORDS - 1].load(Ordering::Relaxed);
    let sums: Vec<u64> = (least..=most).map(|c| if c == 0 { 0 } else { mix(c, number) }).collect();
    if found.iter().all(|count| (least..=most).contains(count)) && sums.contains(&sum) {
        return Ok(());
    }
    Err(format!("page {number} has versions {found:?} (sum {sum:#x}), not {least}..={most}"))
}
