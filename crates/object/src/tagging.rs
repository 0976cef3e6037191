//! What a client says is in pages of an object (`docs/TYPES.md`).

use crate::{Error, PAGE_SIZE_BYTES, PageRange, Result};
use commonhold_tags::{Machine, Types};
use serde::{Deserialize, Serialize};

/// What is in pages of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagging {
    /// First byte, of a page.
    pub offset: u64,
    /// Bytes, of whole pages or to the end of the object; 0: all from there on.
    pub length: u64,
    /// The tag, as `docs/TYPES.md` writes them.
    pub tag: String,
}

impl Tagging {
    /// The tags of an object of that size which has those, when this is done. `here`: the machine type of its home.
    pub fn of(&self, types: &Types, size_bytes: u64, here: Machine) -> Result<Types> {
        let pages = self.pages(size_bytes)?;
        let tag = types.tag_of(&self.tag).ok_or_else(|| {
            Error::invalid(format!(
                "{:?} is no tag that is known here: give bytes, int8 to int128, offset, float16, bfloat16, float32, float64, \
                 a record such as {{24: 0 int32, 8 float64*2}}, or # and the hash of one that the object has",
                self.tag
            ))
        })?;
        types.tag(pages.first, pages.count, &tag, here).map_err(|why| Error::invalid(why.to_string()))
    }

    /// Which pages: whole ones, as they go from host to host.
    fn pages(&self, size_bytes: u64) -> Result<PageRange> {
        let Tagging { offset, length, .. } = *self;
        let rest = size_bytes.saturating_sub(offset);
        let length = if length == 0 { rest } else { length };
        if rest == 0 || length > rest {
            return Err(Error::invalid(format!(
                "bytes {offset} to {} are not all within the object, which has {size_bytes}",
                offset.saturating_add(length)
            )));
        }
        if !offset.is_multiple_of(PAGE_SIZE_BYTES)
            || !length.is_multiple_of(PAGE_SIZE_BYTES) && length != rest
        {
            return Err(Error::invalid(format!(
                "a tag is of whole pages of {PAGE_SIZE_BYTES} bytes, or to the end of the object: bytes {offset} to {} are a \
                 part of one",
                offset + length
            )));
        }
        Ok(PageRange::new(offset / PAGE_SIZE_BYTES, length.div_ceil(PAGE_SIZE_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(offset: u64, length: u64, tag: &str) -> Result<Types> {
        Tagging { offset, length, tag: tag.into() }.of(&Types::default(), 10_000, Machine::LITTLE)
    }

    #[test]
    fn whole_pages_within_the_object_get_a_tag_that_is_known() {
        for (offset, length, pages) in [
            (0, 0, (0, 3)),
            (0, 10_000, (0, 3)),
            (4096, 4096, (1, 1)),
            (8192, 1808, (2, 1)),
            (8192, 0, (2, 1)),
        ] {
            let types = of(offset, length, "int32").unwrap();
            let got: Vec<_> = types.all().map(|run| (run.first, run.count)).collect();
            assert_eq!(got, [pages]);
        }
        for (offset, length, tag, words) in [
            (1, 0, "int32", "a part of one"),
            (0, 100, "int32", "a part of one"),
            (4096, 5000, "int32", "a part of one"),
            (12_288, 0, "int32", "not all within"),
            (0, 12_288, "int32", "not all within"),
            (u64::MAX, u64::MAX, "int32", "not all within"),
            (0, 0, "int24", "no tag that is known"),
            (0, 0, "#0123456789abcdef", "no tag that is known"),
            (0, 0, "{24: 4 float64}", "does not fit pages"),
        ] {
            let why = of(offset, length, tag).unwrap_err().message;
            assert!(why.contains(words), "{offset} {length} {tag}: {why}");
        }
    }
}
