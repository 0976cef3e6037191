//! Opening the two files: headers first, then the records, then making sure of what will be redone.

use crate::aligned::AlignedBytes;
use crate::error::{Damage, Error, FileId, HeaderFault, IoOp, Result};
use crate::format::{DATA_START, FORMAT_VERSION, Identity, PAGE_BYTES, Uuid};
use crate::header::{FileHeader, Slot, looks_uncreated, slot_offset};
use crate::journal::{Journal, JournalFile, Options};
use crate::judge::{Side, Verdict, judge};
use crate::scan::{FileScan, Scanner};
use crate::stats::Stats;
use crate::storage::Storage;
use commonhold_points as points;

/// What `open` found. The pages come from [`Journal::replay_runs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// At least one file was empty and has been formatted.
    pub created: bool,
    /// Records to be redone.
    pub records: u64,
    /// Pages in them.
    pub pages: u64,
    /// The sequence number after the last one.
    pub next_sequence: u64,
    /// What is left of a sync that was never acknowledged and has been dropped.
    pub torn: Option<TornTail>,
}

/// An incomplete record at the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    /// Which file.
    pub file: FileId,
    /// The first bad part.
    pub offset: u64,
    /// The sequence number it would have had.
    pub sequence: u64,
    /// What is wrong with it.
    pub damage: Damage,
}

/// The intact header of a file, if there is one.
struct Found {
    len_bytes: u64,
    header: Option<(usize, FileHeader)>,
}

pub(crate) fn open<S: Storage>(
    uuid: Uuid,
    storages: [S; 2],
    options: Options,
) -> Result<(Journal<S>, Recovery)> {
    let found = [inspect(&storages[0], FileId::A, uuid)?, inspect(&storages[1], FileId::B, uuid)?];
    let identity = common_identity(&found)?.unwrap_or_else(|| Identity { uuid, salt: options.new_salt() });
    let created = found.iter().any(|found| found.header.is_none());
    if created {
        require_no_parts(&storages, &found, identity)?;
    }
    let mut journal = assemble(storages, &found, identity, options);
    journal.format_missing()?;
    let verdict = journal.read_log()?;
    journal.make_sure(&verdict)?;
    let records = verdict.first_sequence.map_or(0, |first| verdict.next_sequence - first);
    let recovery = Recovery {
        created,
        records,
        pages: verdict.pages,
        next_sequence: verdict.next_sequence,
        torn: verdict.torn,
    };
    Ok((journal, recovery))
}

/// Reads both header slots of a file.
fn inspect<S: Storage>(storage: &S, file: FileId, uuid: Uuid) -> Result<Found> {
    let len_bytes = storage.len().map_err(file.failed(IoOp::Length, 0))?;
    let mut slots = AlignedBytes::zeroed(DATA_START as usize);
    let there = len_bytes.min(DATA_START) as usize;
    storage.read_at(0, &mut slots[..there]).map_err(file.failed(IoOp::Read, 0))?;
    let mut found = Found { len_bytes, header: None };
    for slot in 0..2 {
        match FileHeader::decode(&slots[slot * PAGE_BYTES..(slot + 1) * PAGE_BYTES]) {
            Slot::Valid(header) => {
                check_header(&header, file, uuid)?;
                if found.header.is_none_or(|(_, best)| best.epoch < header.epoch) {
                    found.header = Some((slot, header));
                }
            }
            Slot::OtherVersion(version) => {
                return Err(Error::UnsupportedVersion { file, found: version, supported: FORMAT_VERSION });
            }
            Slot::Bad => {}
        }
    }
    match found.header {
        None if !looks_uncreated(&slots) => Err(damaged(file, 0, HeaderFault::Unreadable)),
        Some((slot, header)) if len_bytes < header.least_bytes => {
            let fault = HeaderFault::Cut { len_bytes, least_bytes: header.least_bytes };
            Err(damaged(file, slot_offset(slot), fault))
        }
        _ => Ok(found),
    }
}

fn check_header(header: &FileHeader, file: FileId, uuid: Uuid) -> Result<()> {
    if header.identity.uuid != uuid {
        return Err(Error::WrongObject { file, expected: uuid, found: header.identity.uuid });
    }
    if header.file != file {
        let found = header.file;
        return Err(damaged(file, 0, HeaderFault::WrongFile { found }));
    }
    Ok(())
}

fn common_identity(found: &[Found; 2]) -> Result<Option<Identity>> {
    let [a, b] = [&found[0].header, &found[1].header];
    let (Some((_, a)), Some((slot, b))) = (a, b) else {
        return Ok(a.or(*b).map(|(_, header)| header.identity));
    };
    let offset = slot_offset(*slot);
    if a.identity != b.identity {
        return Err(damaged(FileId::B, offset, HeaderFault::DifferentJournals));
    }
    if a.epoch == b.epoch {
        let fault = HeaderFault::SameEpoch { epoch: a.epoch };
        return Err(damaged(FileId::B, offset, fault));
    }
    Ok(Some(a.identity))
}

/// A file without a header is a creation cut short only if no record was ever written to either file.
fn require_no_parts<S: Storage>(storages: &[S; 2], found: &[Found; 2], identity: Identity) -> Result<()> {
    let headless = if found[0].header.is_none() { FileId::A } else { FileId::B };
    for (index, storage) in storages.iter().enumerate() {
        let scanner =
            Scanner { storage, file: FileId::from_index(index), identity, len_bytes: found[index].len_bytes };
        let mut any = false;
        scanner.search(DATA_START, |_| {
            any = true;
            false
        })?;
        if any {
            return Err(damaged(headless, 0, HeaderFault::Unreadable));
        }
    }
    Ok(())
}

fn assemble<S: Storage>(
    storages: [S; 2],
    found: &[Found; 2],
    identity: Identity,
    options: Options,
) -> Journal<S> {
    let [a, b] = storages;
    let files = [journal_file(a, FileId::A, &found[0]), journal_file(b, FileId::B, &found[1])];
    Journal {
        identity,
        options,
        active: FileId::A,
        last_epoch: files[0].epoch.max(files[1].epoch),
        next_sequence: 1.max(files[0].base).max(files[1].base),
        files,
        applied: 0,
        last_attempt: 0,
        checkpoint: None,
        recovering: true,
        stats: Stats::default(),
    }
}

fn journal_file<S: Storage>(storage: S, id: FileId, found: &Found) -> JournalFile<S> {
    let mut file = JournalFile {
        storage,
        id,
        slot: 0,
        epoch: 0,
        base: 0,
        live: 0,
        end: DATA_START,
        first: None,
        len_bytes: found.len_bytes,
        least_bytes: 0,
        fresh: true,
    };
    if let Some((slot, header)) = &found.header {
        file.take_header(*slot, header);
        file.fresh = false;
    }
    file
}

impl<S: Storage> Journal<S> {
    /// Creates the files that have no header.
    fn format_missing(&mut self) -> Result<()> {
        let reserve = self.options.reserve_bytes.max(DATA_START);
        let base = self.next_sequence;
        let missing = [FileId::A, FileId::B].map(|id| self.file(id).fresh.then_some(id));
        for id in missing.into_iter().flatten() {
            self.last_epoch += 1;
            let header = FileHeader {
                identity: self.identity,
                file: id,
                epoch: self.last_epoch,
                base,
                live: base,
                least_bytes: reserve,
            };
            let storage = &mut self.file_mut(id).storage;
            storage.truncate(0).map_err(id.failed(IoOp::Reserve, 0))?;
            storage.reserve(reserve).map_err(id.failed(IoOp::Reserve, reserve))?;
            self.flush(id, 0)?;
            self.write_header(0, &header)?;
            self.flush(id, 0)?;
            let file = self.file_mut(id);
            file.len_bytes = reserve;
            file.take_header(0, &header);
        }
        Ok(())
    }

    /// Reads both files and decides what the log is.
    fn read_log(&mut self) -> Result<Verdict> {
        let low = self.low();
        let sides = [self.side(low)?, self.side(low.other())?];
        let verdict = judge(&sides[0], &sides[1])?;
        for side in &sides {
            let file = self.file_mut(side.scan.file);
            file.end = side.scan.end;
            file.first = side.scan.first.map(|record| record.sequence);
        }
        self.file_mut(low).end = verdict.low_end;
        self.next_sequence = verdict.next_sequence;
        Ok(verdict)
    }

    fn side(&self, id: FileId) -> Result<Side> {
        let file = self.file(id);
        let scanner =
            Scanner { storage: &file.storage, file: id, identity: self.identity, len_bytes: file.len_bytes };
        let scan = if file.fresh { FileScan::empty(id) } else { scanner.scan(file.epoch)? };
        // A header is durable before any part of its epoch: the newest one was damaged. Were its
        // epoch given again, that part would count.
        if let Some((offset, found)) = scan.newer {
            let fault = HeaderFault::Outdated { offset, found, readable: file.epoch };
            return Err(damaged(id, slot_offset(1 - file.slot), fault));
        }
        Ok(Side { base: file.base, live: file.live, scan })
    }

    /// Writes again what may so far be in memory only, byte for byte, and flushes: the headers, and the
    /// last record. See "When an append fails" in `format.rs`.
    fn make_sure(&mut self, verdict: &Verdict) -> Result<()> {
        for id in [FileId::A, FileId::B] {
            if self.file(id).fresh || points::mutant("journal.tail_not_made_sure") {
                continue;
            }
            let file = self.file(id);
            let (slot, header) = (file.slot, file.header(self.identity));
            self.write_header(slot, &header)?;
            if let Some((_, record)) = verdict.tail.filter(|(tail, _)| *tail == id) {
                let mut bytes = AlignedBytes::zeroed(PAGE_BYTES);
                let mut at = record.start;
                while at < record.end {
                    let part = self.live_part(id, record.sequence, at, &mut bytes)?;
                    let len = part.part_bytes() as usize;
                    self.file_mut(id).write_at(at, &bytes[..len])?;
                    at += part.part_bytes();
                }
            }
            self.flush(id, 0)?;
        }
        Ok(())
    }
}

fn damaged(file: FileId, offset: u64, fault: HeaderFault) -> Error {
    Error::DamagedHeader { file, offset, fault }
}
