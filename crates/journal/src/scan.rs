//! Reading one journal file after a crash: its records from the start, then whatever parts lie behind.

use crate::aligned::AlignedBytes;
use crate::error::{Damage, FileId, IoOp, Result};
use crate::format::{BLOCK_BYTES, DATA_START, Identity, PAGE_BYTES};
use crate::part::{PartHeader, is_part};
use crate::storage::Storage;
use std::cmp::Ordering;

/// How much of a file is read at once when searching it.
const SEARCH_BYTES: usize = 256 * 1024;

/// A record that is there whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub sequence: u64,
    pub start: u64,
    pub end: u64,
    pub pages: u64,
}

/// What one file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileScan {
    pub file: FileId,
    pub first: Option<Record>,
    pub last: Option<Record>,
    pub pages: u64,
    /// Where the valid records end.
    pub end: u64,
    /// The part that ends them, and what is wrong with it.
    pub stop: u64,
    pub damage: Damage,
    /// The highest sequence number of any part of the live epoch behind the valid records.
    pub beyond: Option<u64>,
    /// A part of an epoch that no header of this file has had yet: where, and which epoch.
    pub newer: Option<(u64, u64)>,
}

impl FileScan {
    pub(crate) fn empty(file: FileId) -> Self {
        FileScan {
            file,
            first: None,
            last: None,
            pages: 0,
            end: DATA_START,
            stop: DATA_START,
            damage: Damage::Absent,
            beyond: None,
            newer: None,
        }
    }
}

/// Reads one file.
pub(crate) struct Scanner<'a, S> {
    pub storage: &'a S,
    pub file: FileId,
    pub identity: Identity,
    pub len_bytes: u64,
}

impl<S: Storage> Scanner<'_, S> {
    /// Reads the records of `epoch`, and searches the rest for parts of it.
    pub(crate) fn scan(&self, epoch: u64) -> Result<FileScan> {
        let mut scan = FileScan::empty(self.file);
        let mut part = AlignedBytes::zeroed(PAGE_BYTES);
        loop {
            match self.record(scan.end, epoch, scan.last, &mut part)? {
                Ok(record) => {
                    scan.first.get_or_insert(record);
                    scan.last = Some(record);
                    scan.pages += record.pages;
                    scan.end = record.end;
                }
                Err((stop, damage)) => {
                    (scan.stop, scan.damage) = (stop, damage);
                    break;
                }
            }
        }
        self.search(scan.end, |header| {
            if header.identity == self.identity {
                match header.epoch.cmp(&epoch) {
                    Ordering::Less => {}
                    Ordering::Equal => scan.beyond = scan.beyond.max(Some(header.sequence)),
                    Ordering::Greater => scan.newer = scan.newer.or(Some((header.offset, header.epoch))),
                }
            }
            true
        })?;
        Ok(scan)
    }

    /// Calls `found` for every intact part header from `from` on, until it returns false.
    pub(crate) fn search(&self, from: u64, mut found: impl FnMut(&PartHeader) -> bool) -> Result<()> {
        let mut window = AlignedBytes::zeroed(SEARCH_BYTES);
        let mut at = from;
        while at + BLOCK_BYTES <= self.len_bytes {
            let whole = (self.len_bytes - at) / BLOCK_BYTES * BLOCK_BYTES;
            let step = whole.min(SEARCH_BYTES as u64) as usize;
            self.read(at, &mut window[..step])?;
            for (index, block) in window[..step].chunks_exact(PAGE_BYTES).enumerate() {
                let offset = at + index as u64 * BLOCK_BYTES;
                if !is_part(block) {
                    continue;
                }
                if let Ok(header) = PartHeader::decode(block, offset)
                    && !found(&header)
                {
                    return Ok(());
                }
            }
            at += step as u64;
        }
        Ok(())
    }

    /// Reads the record at `start`; the inner error is the first bad part and why it is bad.
    fn record(
        &self,
        start: u64,
        epoch: u64,
        before: Option<Record>,
        bytes: &mut AlignedBytes,
    ) -> Result<std::result::Result<Record, (u64, Damage)>> {
        let mut previous: Option<PartHeader> = None;
        let mut at = start;
        loop {
            let header = match self.part(at, epoch, bytes)? {
                Ok(header) => header,
                Err(damage) => return Ok(Err((at, damage))),
            };
            let check = match &previous {
                None => follows_record(&header, before),
                Some(previous) => follows_part(&header, previous),
            };
            if let Err(damage) = check {
                return Ok(Err((at, damage)));
            }
            at += header.part_bytes();
            if header.is_final {
                return Ok(Ok(Record {
                    sequence: header.sequence,
                    start,
                    end: at,
                    pages: header.record_pages,
                }));
            }
            previous = Some(header);
        }
    }

    /// Reads and checks one part; header and payload are in `bytes` afterwards.
    pub(crate) fn part(
        &self,
        at: u64,
        epoch: u64,
        bytes: &mut AlignedBytes,
    ) -> Result<std::result::Result<PartHeader, Damage>> {
        if at + BLOCK_BYTES > self.len_bytes {
            return Ok(Err(Damage::Absent));
        }
        bytes.ensure(PAGE_BYTES);
        self.read(at, &mut bytes[..PAGE_BYTES])?;
        let header = match PartHeader::decode(&bytes[..PAGE_BYTES], at) {
            Ok(header) => header,
            Err(damage) => return Ok(Err(damage)),
        };
        let foreign = if header.identity.uuid != self.identity.uuid {
            Some("object")
        } else if header.identity.salt != self.identity.salt {
            Some("journal")
        } else if header.epoch != epoch {
            Some("epoch")
        } else {
            None
        };
        if let Some(of) = foreign {
            return Ok(Err(Damage::Foreign { of }));
        }
        // The length is checked against the file before memory is taken for it.
        let part_bytes = header.part_bytes();
        if part_bytes > self.len_bytes - at {
            let len_bytes = self.len_bytes;
            return Ok(Err(Damage::Truncated { len_bytes }));
        }
        let part_bytes = part_bytes as usize;
        if bytes.len() < part_bytes {
            let mut larger = AlignedBytes::zeroed(part_bytes);
            larger[..PAGE_BYTES].copy_from_slice(&bytes[..PAGE_BYTES]);
            *bytes = larger;
        }
        self.read(at + BLOCK_BYTES, &mut bytes[PAGE_BYTES..part_bytes])?;
        Ok(header.check_payload(&bytes[PAGE_BYTES..part_bytes]).map(|()| header))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.storage.read_at(offset, bytes).map_err(self.file.failed(IoOp::Read, offset))
    }
}

/// Whether `header` begins the record after `before`.
fn follows_record(header: &PartHeader, before: Option<Record>) -> std::result::Result<(), Damage> {
    if header.part != 0 || before.is_some_and(|record| header.sequence != record.sequence + 1) {
        return Err(Damage::OutOfSequence { found: header.sequence, part: header.part });
    }
    check_totals(header, 0, 0)
}

/// Whether `header` continues the record of `previous`.
fn follows_part(header: &PartHeader, previous: &PartHeader) -> std::result::Result<(), Damage> {
    let same_record = header.sequence == previous.sequence
        && header.attempt == previous.attempt
        && Some(header.part) == previous.part.checked_add(1);
    if !same_record {
        return Err(Damage::OutOfSequence { found: header.sequence, part: header.part });
    }
    check_totals(header, previous.record_pages, previous.record_bytes)
}

fn check_totals(header: &PartHeader, pages: u64, bytes: u64) -> std::result::Result<(), Damage> {
    if header.record_pages != pages + u64::from(header.pages) {
        return Err(Damage::Field { field: "record pages" });
    }
    if header.record_bytes != bytes + header.part_bytes() {
        return Err(Damage::Field { field: "record bytes" });
    }
    Ok(())
}
