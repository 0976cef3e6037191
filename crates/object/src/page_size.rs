//! Sizes of pages that hosts share: of an object's scheduler, and of a host.

use crate::{Error, PAGE_SIZE_BYTES, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A power of two from 4 KiB to 2 MiB. No other exists, not even in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct PageSize(u32);

impl PageSize {
    /// 4 KiB: that of frames.
    pub const SMALLEST: PageSize = PageSize(PAGE_SIZE_BYTES as u32);
    /// 2 MiB.
    pub const LARGEST: PageSize = PageSize(2 << 20);

    /// So many bytes. The error says what may be chosen.
    pub fn new(bytes: u64) -> Result<PageSize> {
        let (least, most) = (PageSize::SMALLEST.bytes(), PageSize::LARGEST.bytes());
        if bytes.is_power_of_two() && (least..=most).contains(&bytes) {
            return Ok(PageSize(bytes as u32));
        }
        Err(Error::invalid(format!(
            "a page size of {bytes} bytes cannot be: choose a power of two from {least} (4KiB) to {most} (2MiB)"
        )))
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.0.into()
    }

    /// In pages of 4 KiB.
    pub fn frames(self) -> u64 {
        self.bytes() / PAGE_SIZE_BYTES
    }
}

impl Default for PageSize {
    fn default() -> Self {
        PageSize::SMALLEST
    }
}

impl TryFrom<u64> for PageSize {
    type Error = Error;

    fn try_from(bytes: u64) -> Result<PageSize> {
        PageSize::new(bytes)
    }
}

impl From<PageSize> for u64 {
    fn from(size: PageSize) -> u64 {
        size.bytes()
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 >> 10 {
            kib @ 0..1024 => write!(f, "{kib} KiB"),
            kib => write!(f, "{} MiB", kib >> 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_within_the_bounds_and_nothing_else() {
        for bytes in (12..=21).map(|power| 1u64 << power) {
            assert_eq!(PageSize::new(bytes).unwrap().bytes(), bytes);
        }
        for bytes in [0, 1, 2048, 4095, 4097, 12288, (2 << 20) + 1, 4 << 20, u64::MAX] {
            let error = PageSize::new(bytes).unwrap_err();
            assert!(error.message.contains(&bytes.to_string()), "{error}");
        }
        assert_eq!(PageSize::new(65536).unwrap().to_string(), "64 KiB");
        assert_eq!(PageSize::LARGEST.to_string(), "2 MiB");
        assert_eq!(PageSize::LARGEST.frames(), 512);
    }

    #[test]
    fn a_message_with_another_size_is_none() {
        let good = postcard::to_stdvec(&PageSize::LARGEST).unwrap();
        assert_eq!(postcard::from_bytes::<PageSize>(&good).unwrap(), PageSize::LARGEST);
        for bytes in [0u64, 5000, 4 << 20] {
            postcard::from_bytes::<PageSize>(&postcard::to_stdvec(&bytes).unwrap()).unwrap_err();
        }
    }
}
