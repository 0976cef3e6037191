//! Texts that are put together on the stack. There is no libc here, and what the compiler would call in its place
//! (`memset`, `memcpy`) would be a relocation: memory is not cleared before it is written, and nothing large is copied.

use core::mem::MaybeUninit;

/// Up to so many bytes.
pub struct Text<const MOST: usize> {
    bytes: [MaybeUninit<u8>; MOST],
    length: usize,
}

impl<const MOST: usize> Text<MOST> {
    /// Nothing.
    pub fn new() -> Text<MOST> {
        Text { bytes: [const { MaybeUninit::uninit() }; MOST], length: 0 }
    }

    /// Appends a byte; what has no room is left out.
    pub fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            // Volatile, or the compiler would make loops of this a call of memcpy.
            // SAFETY: a byte of ours.
            unsafe { place.as_mut_ptr().write_volatile(byte) };
            self.length += 1;
        }
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push(*byte);
        }
    }

    /// Empty again.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// What was appended.
    pub fn get(&self) -> &[u8] {
        // SAFETY: so many were written.
        unsafe { self.bytes.get(..self.length).unwrap_or_default().assume_init_ref() }
    }
}

/// Whether two names are the same.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    let mut same = one.len() == other.len();
    for (one, other) in one.iter().zip(other) {
        // SAFETY: references. Volatile, or the compiler would make this a call of memcmp.
        same &= unsafe { (one as *const u8).read_volatile() } == *other;
    }
    same
}
