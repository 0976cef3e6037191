//! The reusable buffer in which the host gathers the pages of a record, or of one part of a long one.

use crate::aligned::AlignedBytes;
use crate::format::{MAX_PART_PAGES, PAGE_BYTES, PAGE_LIST_OFFSET, put};
use crate::part::PartHeader;
use std::fmt;
use thiserror::Error;

/// Why pages do not go into a buffer; it is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BufferError {
    /// There is not enough room: append this part, then go on.
    #[error("{asked_pages} pages do not fit, {free_pages} are free")]
    Full {
        /// Pages asked for.
        asked_pages: usize,
        /// Pages that would fit.
        free_pages: usize,
    },
    /// The run goes past the last page number.
    #[error("a run of {pages} pages from page {first_page} passes the last page number")]
    PageNumber {
        /// First page of the run.
        first_page: u32,
        /// Pages in the run.
        pages: usize,
    },
}

/// One part in the making: a header block, then payload pages, in one aligned piece of memory.
///
/// The host reads pages directly into the slices that [`push_run`](Self::push_run) gives; they are
/// written to the file from where they are. Make one and use it again.
pub struct RecordBuffer {
    bytes: AlignedBytes,
    capacity_pages: usize,
    pages: usize,
}

impl RecordBuffer {
    /// A buffer of the greatest size: 992 pages, 3.9 MiB.
    pub fn new() -> Self {
        Self::with_capacity(MAX_PART_PAGES)
    }

    /// A buffer for `pages` pages, at least 1 and at most [`MAX_PART_PAGES`].
    pub fn with_capacity(pages: usize) -> Self {
        let capacity_pages = pages.clamp(1, MAX_PART_PAGES);
        RecordBuffer {
            bytes: AlignedBytes::zeroed((capacity_pages + 1) * PAGE_BYTES),
            capacity_pages,
            pages: 0,
        }
    }

    /// Forgets what is in it.
    pub fn begin(&mut self) {
        self.pages = 0;
    }

    /// Adds `pages` consecutive pages and gives their bytes to be filled. The bytes are not cleared:
    /// fill all of them, or call [`begin`](Self::begin) to give up.
    pub fn push_run(&mut self, first_page: u32, pages: usize) -> Result<&mut [u8], BufferError> {
        if pages > self.free_pages() {
            return Err(BufferError::Full { asked_pages: pages, free_pages: self.free_pages() });
        }
        // At most 992 pages here, so the conversion cannot fail; the addition can.
        let last_offset = pages.saturating_sub(1) as u32;
        if first_page.checked_add(last_offset).is_none() {
            return Err(BufferError::PageNumber { first_page, pages });
        }
        for index in 0..pages {
            let number = first_page + index as u32;
            let at = PAGE_LIST_OFFSET + 4 * (self.pages + index);
            put(&mut self.bytes, at, &number.to_le_bytes());
        }
        let start = (1 + self.pages) * PAGE_BYTES;
        self.pages += pages;
        Ok(&mut self.bytes[start..start + pages * PAGE_BYTES])
    }

    /// Adds one page by copying it.
    pub fn push_page(&mut self, page: u32, bytes: &[u8; PAGE_BYTES]) -> Result<(), BufferError> {
        self.push_run(page, 1)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Pages in it.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Pages that still fit.
    pub fn free_pages(&self) -> usize {
        self.capacity_pages - self.pages
    }

    /// Whether it has no pages.
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// The pages in it, in the order they were added: what the host writes to the stored object.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let (list, payload) = self.bytes.split_at(PAGE_BYTES);
        (0..self.pages).map(move |index| {
            let bytes = &payload[index * PAGE_BYTES..(index + 1) * PAGE_BYTES];
            (PartHeader::page_number(list, index), bytes)
        })
    }

    pub(crate) fn payload_crc(&self) -> u32 {
        crc32c::crc32c(&self.bytes[PAGE_BYTES..(1 + self.pages) * PAGE_BYTES])
    }

    /// Writes the header over the page list and gives header and payload as they go to the file.
    pub(crate) fn seal(&mut self, header: &PartHeader) -> &[u8] {
        // Page numbers of an earlier, longer use must not stay behind the list.
        self.bytes[PAGE_LIST_OFFSET + 4 * self.pages..PAGE_BYTES].fill(0);
        header.encode(&mut self.bytes[..PAGE_BYTES]);
        &self.bytes[..(1 + self.pages) * PAGE_BYTES]
    }
}

impl Default for RecordBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RecordBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordBuffer")
            .field("pages", &self.pages)
            .field("capacity_pages", &self.capacity_pages)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_each_other_and_are_listed() {
        let mut buffer = RecordBuffer::with_capacity(4);
        buffer.push_run(10, 2).unwrap().fill(1);
        buffer.push_page(5, &[2; PAGE_BYTES]).unwrap();
        let pages: Vec<_> = buffer.iter().map(|(page, bytes)| (page, bytes[0])).collect();
        assert_eq!(pages, [(10, 1), (11, 1), (5, 2)]);
        assert_eq!(buffer.free_pages(), 1);
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut buffer = RecordBuffer::with_capacity(2);
        assert_eq!(buffer.push_run(0, 3).unwrap_err(), BufferError::Full { asked_pages: 3, free_pages: 2 });
        assert_eq!(
            buffer.push_run(u32::MAX, 2).unwrap_err(),
            BufferError::PageNumber { first_page: u32::MAX, pages: 2 }
        );
        assert!(buffer.is_empty());
        assert!(buffer.push_run(u32::MAX, 1).is_ok());
    }
}
