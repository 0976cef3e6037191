//! Appending: one record a sync, in one part or many, and one flush.

use crate::buffer::RecordBuffer;
use crate::error::{Error, FileId, IoOp, Result};
use crate::format::PAGE_BYTES;
use crate::journal::Journal;
use crate::part::PartHeader;
use crate::storage::Storage;
use commonhold_points as points;
use commonhold_sys::disk::LARGE_BYTES;

/// A record that is part of the log and durable.
///
/// Hand it to [`Journal::applied`] once its pages are written to the stored object: a checkpoint must
/// not begin before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a checkpoint is refused until the record is reported as applied"]
pub struct Appended {
    /// Its sequence number.
    pub sequence: u64,
    /// Pages in it.
    pub pages: u64,
    /// Bytes it takes in the journal.
    pub bytes: u64,
    pub(crate) file: FileId,
    pub(crate) epoch: u64,
    pub(crate) offset: u64,
}

/// A record being written in several parts. Dropping it gives the record up: it is not part of the log.
#[must_use = "dropping it gives the record up"]
pub struct Appender<'j, S: Storage> {
    journal: &'j mut Journal<S>,
    attempt: u64,
    start: u64,
    parts: u32,
    pages: u64,
    bytes: u64,
    committed: bool,
}

impl<S: Storage> Journal<S> {
    /// Appends the pages in `buffer` as one record and makes it durable with one flush.
    ///
    /// The buffer is left as it is, so that it can be written to the stored object from there, or
    /// appended again after an error. After an error nothing has been appended, whatever it was.
    pub fn append(&mut self, buffer: &mut RecordBuffer) -> Result<Appended> {
        self.begin_append()?.commit(buffer)
    }

    /// Appends pages from anywhere as one record; they pass through `buffer`, whose contents are lost.
    pub fn append_pages<'a>(
        &mut self,
        pages: impl IntoIterator<Item = (u32, &'a [u8; PAGE_BYTES])>,
        buffer: &mut RecordBuffer,
    ) -> Result<Appended> {
        let mut appender = self.begin_append()?;
        buffer.begin();
        for (page, bytes) in pages {
            if buffer.free_pages() == 0 {
                appender = appender.write(buffer)?;
                buffer.begin();
            }
            // One page always fits: there is room, and a single page number cannot overflow.
            if let Ok(slot) = buffer.push_run(page, 1) {
                slot.copy_from_slice(bytes);
            }
        }
        appender.commit(buffer)
    }

    /// Begins a record of several parts.
    pub fn begin_append(&mut self) -> Result<Appender<'_, S>> {
        self.require_recovered()?;
        self.last_attempt += 1;
        Ok(Appender {
            attempt: self.last_attempt,
            start: self.file(self.active).end,
            parts: 0,
            pages: 0,
            bytes: 0,
            committed: false,
            journal: self,
        })
    }

    /// Reports that the pages of a record have been written to the stored object (no flush needed).
    /// Records are reported in the order in which they were appended.
    pub fn applied(&mut self, record: &Appended) -> Result<()> {
        let expected = self.applied + 1;
        let is_next = record.sequence == expected && expected < self.next_sequence;
        if !is_next && !points::mutant("journal.applied_in_any_order") {
            return Err(Error::AppliedOutOfOrder { expected, found: record.sequence });
        }
        self.applied = expected;
        Ok(())
    }

    /// Makes the active file long enough for a part of so many bytes that ends at `end`.
    fn make_room(&mut self, part_bytes: u64, end: u64) -> Result<()> {
        let step = self.options.grow_bytes.max(1);
        let file = self.file_mut(self.active);
        if end <= file.len_bytes {
            return Ok(());
        }
        let generous = end.div_ceil(step).saturating_mul(step).max(end);
        // When the generous step does not fit on the disk, the bare need still may.
        let mut reserve = |len| match part_bytes {
            LARGE_BYTES.. => file.storage.allocate(len),
            _ => file.storage.reserve(len),
        };
        let result = reserve(generous).or_else(|_| reserve(end));
        if let Ok(len) = file.storage.len() {
            file.len_bytes = len;
        }
        result.map_err(file.id.failed(IoOp::Reserve, file.end))?;
        file.len_bytes = file.len_bytes.max(end);
        self.stats.grows += 1;
        Ok(())
    }

    /// Gives back what a failed or abandoned attempt made the file grow.
    fn abandon(&mut self) {
        self.stats.failed_appends += 1;
        let reserve = self.options.reserve_bytes;
        let file = self.file_mut(self.active);
        // A write that failed may have made the file longer all the same.
        if let Ok(len) = file.storage.len() {
            file.len_bytes = len;
        }
        file.trim(reserve);
    }
}

impl<'j, S: Storage> Appender<'j, S> {
    /// Writes the pages in `buffer` as a part of the record that is not the last one. Call
    /// [`RecordBuffer::begin`] before filling the buffer again. An error ends the record.
    pub fn write(mut self, buffer: &mut RecordBuffer) -> Result<Self> {
        if !buffer.is_empty() {
            self.write_part(buffer, false)?;
        }
        Ok(self)
    }

    /// Writes the last part, which may be empty if there were others, and makes the record durable.
    pub fn commit(mut self, buffer: &mut RecordBuffer) -> Result<Appended> {
        if buffer.is_empty() && self.parts == 0 {
            return Err(Error::EmptyRecord);
        }
        self.write_part(buffer, true)?;
        let active = self.journal.active;
        if !points::mutant("journal.unflushed") {
            self.journal.flush(active, self.start)?;
        }
        Ok(self.accept())
    }

    fn write_part(&mut self, buffer: &mut RecordBuffer, is_final: bool) -> Result<()> {
        let pages = buffer.pages() as u32;
        let part_bytes = (u64::from(pages) + 1) * PAGE_BYTES as u64;
        let offset = self.start + self.bytes;
        self.journal.make_room(part_bytes, offset + part_bytes)?;
        let journal = &mut *self.journal;
        let header = PartHeader {
            identity: journal.identity,
            payload_crc: buffer.payload_crc(),
            epoch: journal.file(journal.active).epoch,
            sequence: journal.next_sequence,
            attempt: self.attempt,
            part: self.parts,
            pages,
            is_final,
            record_pages: self.pages + u64::from(pages),
            record_bytes: self.bytes + part_bytes,
            offset,
        };
        let file = journal.file_mut(journal.active);
        file.write_at(offset, buffer.seal(&header))?;
        if part_bytes >= LARGE_BYTES {
            file.storage.begin_flush(offset, part_bytes);
        }
        self.parts += 1;
        self.pages = header.record_pages;
        self.bytes = header.record_bytes;
        Ok(())
    }

    /// The flush has succeeded: from here on the record is part of the log.
    fn accept(mut self) -> Appended {
        self.committed = true;
        let (start, bytes, pages) = (self.start, self.bytes, self.pages);
        let journal = &mut *self.journal;
        let sequence = journal.next_sequence;
        journal.next_sequence += 1;
        journal.stats.records += 1;
        journal.stats.pages += pages;
        journal.stats.bytes_appended += bytes;
        let file = journal.file_mut(journal.active);
        file.end = start + bytes;
        file.first.get_or_insert(sequence);
        Appended { sequence, pages, bytes, file: file.id, epoch: file.epoch, offset: start }
    }
}

impl<S: Storage> Drop for Appender<'_, S> {
    fn drop(&mut self) {
        if !self.committed {
            self.journal.abandon();
        }
    }
}
