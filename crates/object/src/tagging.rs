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
        if pages.end() * PAGE_SIZE_BYTES > size_bytes && !tag.ends_after(size_bytes - self.offset) {
            return Err(Error::invalid(format!(
                "the object ends at byte {size_bytes}, within a number of {tag}: give it a size that cuts none, or tag the \
                 pages before its last"
            )));
        }
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
        sized(10_000, offset, length, tag)
    }

    fn sized(size_bytes: u64, offset: u64, length: u64, tag: &str) -> Result<Types> {
        Tagging { offset, length, tag: tag.into() }.of(&Types::default(), size_bytes, Machine::LITTLE)
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
            (0, 0, "int64*", "no tag that is known"),
        ] {
            let why = of(offset, length, tag).unwrap_err().message;
            assert!(why.contains(words), "{offset} {length} {tag}: {why}");
        }
    }

    #[test]
    fn the_end_of_an_object_cuts_no_number() {
        let record = "{48: 0 int16, 16 int128*2}";
        for (size_bytes, tag, good) in [
            (10_000, "int128", true),
            (10_001, "int128", false),
            (10_001, "int8", true),
            (48 * 200, record, true),
            (48 * 200 + 2, record, true),
            (48 * 200 + 1, record, false),
            (48 * 200 + 9, record, true),
            (48 * 200 + 31, record, false),
        ] {
            let tagged = sized(size_bytes, 0, 0, tag);
            assert_eq!(tagged.is_ok(), good, "{size_bytes} {tag}");
            tagged.err().iter().for_each(|why| assert!(why.message.contains("within a number"), "{why}"));
        }
        sized(10_001, 0, 8192, "int128").unwrap();
    }
}
