//! Walks over the bytes of several slices without copying them.

use std::io::IoSlice;

/// What is left of some slices.
pub struct Pieces<'a> {
    slices: &'a [&'a [u8]],
    /// Bytes of the first slice that are done.
    offset: usize,
}

impl<'a> Pieces<'a> {
    /// All of them.
    pub fn new(slices: &'a [&'a [u8]]) -> Self {
        let mut pieces = Pieces { slices, offset: 0 };
        pieces.advance(0);
        pieces
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// The next bytes, at most so many, in at most so many slices.
    pub fn next(&self, most_bytes: usize, most_slices: usize) -> Vec<IoSlice<'a>> {
        let mut left = most_bytes;
        let mut out = Vec::with_capacity(self.slices.len().min(most_slices));
        for (n, slice) in self.slices.iter().take(most_slices).enumerate() {
            let rest = if n == 0 { &slice[self.offset..] } else { slice };
            let part = &rest[..rest.len().min(left)];
            left -= part.len();
            out.push(IoSlice::new(part));
            if left == 0 {
                break;
            }
        }
        out
    }

    /// So many bytes are done.
    pub fn advance(&mut self, bytes: usize) {
        self.offset += bytes;
        while let Some(first) = self.slices.first() {
            if self.offset < first.len() {
                return;
            }
            self.offset -= first.len();
            self.slices = &self.slices[1..];
        }
    }

    /// A copy of all that is left.
    pub fn rest(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.slices.iter().map(|slice| slice.len()).sum());
        for (n, slice) in self.slices.iter().enumerate() {
            out.extend_from_slice(if n == 0 { &slice[self.offset..] } else { slice });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_once_whatever_the_steps() {
        let slices: [&[u8]; 6] = [b"", b"abc", b"", b"defgh", b"i", b""];
        for step in 1..=9 {
            let mut pieces = Pieces::new(&slices);
            let mut seen = Vec::new();
            while !pieces.is_empty() {
                let part = pieces.next(step, 2);
                let bytes: usize = part.iter().map(|slice| slice.len()).sum();
                assert!(bytes > 0 && bytes <= step);
                let taken = bytes.div_ceil(2);
                assert!(pieces.rest().starts_with(part.first().unwrap()));
                seen.extend(part.iter().flat_map(|slice| slice.iter().copied()).take(taken));
                pieces.advance(taken);
            }
            assert_eq!(seen, b"abcdefghi");
        }
    }
}
