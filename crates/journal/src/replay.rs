//! Handing out the pages of live records again, to be redone on the stored object.

use crate::aligned::AlignedBytes;
use crate::error::{Error, FileId, ReplayError};
use crate::format::{DATA_START, PAGE_BYTES};
use crate::journal::Journal;
use crate::part::PartHeader;
use crate::scan::Scanner;
use crate::storage::Storage;
use crate::writer::Appended;

/// What a replay handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Records.
    pub records: u64,
    /// Pages.
    pub pages: u64,
}

impl<S: Storage> Journal<S> {
    /// Hands out every page of every live record, oldest record first, as `(page number, bytes)`.
    pub fn replay<E>(
        &mut self,
        mut receive: impl FnMut(u32, &[u8; PAGE_BYTES]) -> Result<(), E>,
    ) -> Result<Replayed, ReplayError<E>> {
        self.replay_runs(|first, run| {
            let (pages, _) = run.as_chunks::<PAGE_BYTES>();
            (first..=u32::MAX).zip(pages).try_for_each(|(number, page)| receive(number, page))
        })
    }

    /// As [`replay`](Self::replay), with consecutive pages of a part in one piece, so that each can be
    /// written with one call: `(first page number, bytes of all of them)`.
    ///
    /// Used after `open`, and whenever a flush of the stored object has failed. Each part is checked
    /// again before its pages are handed out. Pages of a record that follow one another in the journal
    /// may repeat a page number; the later one counts.
    pub fn replay_runs<E>(
        &mut self,
        mut receive: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<Replayed, ReplayError<E>> {
        let low = self.low();
        let mut total = Replayed::default();
        for id in [low, low.other()] {
            let file = self.file(id);
            let Some(first) = file.first else { continue };
            let span = (DATA_START, file.end);
            self.replay_span(id, first, span, &mut total, &mut receive)?;
        }
        Ok(total)
    }

    /// Hands out the pages of one record just appended. After a record of several parts this is how the
    /// host gets exactly the bytes it appended, should the frames have changed since.
    pub fn replay_record<E>(
        &mut self,
        record: &Appended,
        mut receive: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<Replayed, ReplayError<E>> {
        if self.file(record.file).epoch != record.epoch {
            return Err(ReplayError::Journal(Error::StaleTicket { file: record.file, epoch: record.epoch }));
        }
        let span = (record.offset, record.offset + record.bytes);
        let mut total = Replayed::default();
        self.replay_span(record.file, record.sequence, span, &mut total, &mut receive)?;
        Ok(total)
    }

    fn replay_span<E>(
        &mut self,
        id: FileId,
        first: u64,
        (mut at, end): (u64, u64),
        total: &mut Replayed,
        receive: &mut impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), ReplayError<E>> {
        let mut bytes = AlignedBytes::zeroed(PAGE_BYTES);
        let records_before = total.records;
        while at < end {
            let sequence = first + (total.records - records_before);
            let header = self.live_part(id, sequence, at, &mut bytes)?;
            let pages = header.pages as usize;
            hand_out(&bytes, pages, receive).map_err(ReplayError::Receiver)?;
            self.stats.pages_replayed += pages as u64;
            total.pages += pages as u64;
            total.records += u64::from(header.is_final);
            at += header.part_bytes();
        }
        Ok(())
    }

    /// Reads a part that is known to be in the log; that it no longer can be read is damage.
    pub(crate) fn live_part(
        &self,
        id: FileId,
        sequence: u64,
        at: u64,
        bytes: &mut AlignedBytes,
    ) -> Result<PartHeader, Error> {
        let file = self.file(id);
        let scanner =
            Scanner { storage: &file.storage, file: id, identity: self.identity, len_bytes: file.len_bytes };
        scanner.part(at, file.epoch, bytes)?.map_err(|damage| Error::Corrupt {
            file: id,
            offset: at,
            sequence,
            damage,
        })
    }
}

/// Splits a part's pages into runs of consecutive numbers.
fn hand_out<E>(
    part: &[u8],
    pages: usize,
    receive: &mut impl FnMut(u32, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (list, payload) = part.split_at(PAGE_BYTES);
    let mut start = 0;
    while start < pages {
        let first = PartHeader::page_number(list, start);
        let mut next = start + 1;
        while next < pages
            && first.checked_add((next - start) as u32) == Some(PartHeader::page_number(list, next))
        {
            next += 1;
        }
        receive(first, &payload[start * PAGE_BYTES..next * PAGE_BYTES])?;
        start = next;
    }
    Ok(())
}
