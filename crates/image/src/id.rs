//! The identity of an image: the hash of all its bytes, which is its build ID and the name of its file.

use core::fmt;

/// A hash (BLAKE3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub [u8; 32]);

impl Id {
    /// From 64 hexadecimal digits, the small ones.
    #[inline]
    pub fn parse(text: &str) -> Option<Id> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Id(id))
    }

    /// As [`Id::parse`] takes them.
    #[inline]
    pub fn digits(&self) -> [u8; 64] {
        core::array::from_fn(|place| {
            let byte = self.0[place / 2];
            commonhold_record::digit(if place % 2 == 0 { byte >> 4 } else { byte & 15 })
        })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(core::str::from_utf8(&self.digits()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}
