//! Where everything is in the memory. Memory of zeros is two empty queues. Numbers are
//! little-endian.

/// Questions that can be under way at once.
pub const ENTRIES: u32 = 64;
/// Bytes of a page of the data area.
pub const PAGE: usize = 4096;
/// Pages of the data area.
pub const DATA_PAGES: u32 = 256;

// Each of these words has a line of the cache for itself.
/// How many questions were ever submitted, modulo 2^32. The host stores it.
pub(crate) const SUBMITTED: usize = 0;
/// Whether the pager sleeps. Both change it; the pager sleeps on it.
pub(crate) const PAGER_SLEEPS: usize = 64;
/// How many answers were ever completed, likewise. The pager stores it.
pub(crate) const COMPLETED: usize = 128;
/// Whether the host sleeps. Both change it; the host sleeps on it.
pub(crate) const HOST_SLEEPS: usize = 192;

const SUBMISSIONS: usize = PAGE;
const SUBMISSION_BYTES: usize = 256;
const COMPLETIONS: usize = SUBMISSIONS + ENTRIES as usize * SUBMISSION_BYTES;
/// Call number, slot, outcome.
pub(crate) const COMPLETION_BYTES: usize = 16;

/// Call number, offset, length, slot, first page of the place, length of the name; then the name.
pub(crate) const QUESTION_BYTES: usize = 32;
/// Bytes of the longest name of an object that a question has room for.
pub const LONGEST_NAME: usize = SUBMISSION_BYTES - QUESTION_BYTES;

/// Where the data area begins.
pub const DATA: usize = 6 * PAGE;
/// Bytes of all of it.
pub const BYTES: usize = DATA + DATA_PAGES as usize * PAGE;

const _: () = assert!(COMPLETIONS + ENTRIES as usize * COMPLETION_BYTES <= DATA);
const _: () = assert!(ENTRIES.is_power_of_two());

pub(crate) fn submission(number: u32) -> usize {
    SUBMISSIONS + (number % ENTRIES) as usize * SUBMISSION_BYTES
}

pub(crate) fn completion(number: u32) -> usize {
    COMPLETIONS + (number % ENTRIES) as usize * COMPLETION_BYTES
}

/// The number of so many bytes from a place on.
pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| bytes[at + byte])
}
