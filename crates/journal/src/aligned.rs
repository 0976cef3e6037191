//! Bytes whose first address is a multiple of 4096, so that the same code could use O_DIRECT.

use crate::format::PAGE_BYTES;
use std::ops::{Deref, DerefMut};

/// A zeroed, page-aligned run of bytes of fixed length.
///
/// It allocates one page too many and starts at the aligned address inside: the heap block never moves
/// (the vector is never grown), so the alignment found once holds for ever, without unsafe code.
pub(crate) struct AlignedBytes {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    pub(crate) fn zeroed(len: usize) -> Self {
        let raw = vec![0; len + PAGE_BYTES];
        // align_offset may in theory say "cannot"; alignment is an optimisation, so start at 0 then.
        let start =
            Some(raw.as_ptr().align_offset(PAGE_BYTES)).filter(|&start| start < PAGE_BYTES).unwrap_or(0);
        AlignedBytes { raw, start, len }
    }

    /// Makes room for at least `len` bytes; the contents are lost if it has to grow.
    pub(crate) fn ensure(&mut self, len: usize) {
        if self.len < len {
            *self = AlignedBytes::zeroed(len);
        }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_aligned_when_moved() {
        let bytes = AlignedBytes::zeroed(3 * PAGE_BYTES);
        let moved = Box::new(bytes);
        assert_eq!(moved.as_ptr() as usize % PAGE_BYTES, 0);
        assert_eq!(moved.len(), 3 * PAGE_BYTES);
    }
}
