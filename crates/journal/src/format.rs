//! The bytes on disk: the protocol of the two files, its constants, and the identity of a journal.
//!
//! # What there is
//!
//! A journal is two files, A and B. Each starts with two 4096-byte header *slots*, then parts follow
//! without gaps from byte 8192. A *record* is one sync: one or more *parts*, each one header block (page
//! numbers inside) and up to 992 payload pages. All is aligned to 4096 bytes; numbers are little-endian.
//!
//! | header slot | | part header | |
//! |---|---|---|---|
//! | 0 | magic `CmnhJrnl` | 0 | magic `CmnhPart` |
//! | 8 | format version u32 | 8 | crc of bytes 12..4096 u32 |
//! | 12 | file u32 (0 A, 1 B) | 12 | crc of the payload u32 |
//! | 16 | object uuid | 16 | object uuid |
//! | 32 | salt u64 | 32 | salt u64 |
//! | 40 | epoch u64 | 40 | epoch u64 |
//! | 48 | base sequence u64 | 48 | sequence number u64 |
//! | 56 | live sequence u64 | 56 | attempt u64 |
//! | 64 | least length in bytes u64 | 64 | part number in the record u32 |
//! | 72 | page bytes u32 | 68 | pages in this part u32 |
//! | 76 | zeros | 72 | flags u32 (1: final part) |
//! | 4092 | crc of bytes 0..4092 u32 | 76 | zero u32 |
//! | | | 80 | pages in the record up to here u64 |
//! | | | 88 | bytes of the record up to here u64 |
//! | | | 96 | own offset in the file u64 |
//! | | | 104 | zeros |
//! | | | 128 | page numbers, u32 each |
//!
//! Magic, version and checksum of a header slot stay where they are in every future version, so that
//! "newer version" and "damaged" can always be told apart. All checksums are CRC-32C.
//!
//! # Who writes, who reads
//!
//! One `Journal` in one host process writes. Nobody reads while it does, but the journal itself to redo
//! records; after a crash the next `Journal::open` reads. The host keeps two processes from opening the
//! same files at once; the journal does not.
//!
//! # Numbers
//!
//! * *Sequence*: of a committed record. They run across both files without a gap. The number is used
//!   again until an attempt succeeds, so **a part with sequence s exists only if s-1 was acknowledged**.
//! * *Attempt*: one more for each record begun since open, successful or not. Parts of two attempts at
//!   the same sequence number can thus lie side by side and are never put together.
//! * *Epoch*: one more for each reset of either file; of two files the one with the lower epoch (*low*)
//!   is older. Parts carry the epoch of their file's header, so the remains of a file's earlier life
//!   never match. Appends use one file until a checkpoint switches to the other, which must be empty
//!   then, and is *high* by construction. So **if high has a record s first, low has all of its own up to
//!   s-1**. `finish_recovery` bumps both epochs, so that no part of an earlier process's attempt
//!   can match either.
//! * *Salt*: random, fixed when the journal is created, known only to who can read the files. Page
//!   contents come from users and lie in the files; without the salt they cannot imitate a part.
//! * *Base* and *live* of a header: at the reset, the next sequence number, and the lowest one that the
//!   other file still had to keep (equal to base if none). They say what low must contain.
//! * *Least length* of a header: the file was durably that long before the header was written and is
//!   never cut below it, so a shorter file has been cut by someone else, perhaps with its last records.
//!
//! # An append, step by step
//!
//! 1. Space is reserved if the record does not fit. *Crash*: a longer file; zeros are not parts.
//! 2. Parts are written one after the other, each complete with header and checksums; none but the last
//!    has the final flag. So a record of any size needs one buffer, is written front to back, and the
//!    header that decides (the final part's) is written last. *Crash*: any subset of the sectors written
//!    may be there. A record counts only if all of its parts do, consecutively, of the same attempt,
//!    ending with a final one; so it is there whole or it is a torn tail. Torn tails are dropped.
//! 3. One flush. *Crash before it returns*: whole or torn, both right, for nobody was told. *After*: whole.
//! 4. The host writes the pages to the stored object, without a flush. *Crash*: any part of those writes
//!    is lost; redo repeats them all.
//!
//! # When an append fails
//!
//! After a failed `fsync` the kernel marks the dirty pages clean, reports the error once, and forgets it:
//! the next `fsync` succeeds although the data never reached the disk, and reading returns the data from
//! memory. So after a failure *nothing is known of the bytes from the record's offset on, neither that
//! they are on disk nor that they are not*, and no later flush changes that. The journal relies on neither:
//!
//! * All bytes before that offset were covered by a flush that succeeded; they are not in doubt.
//! * The next attempt writes every one of its own bytes again, at the same offset, and trusts only the
//!   flush that follows. Bytes of the failed attempt beyond it have the same or a lower sequence number
//!   than the next record and another attempt number: they can neither complete a record nor pose as a
//!   later one.
//! * If the failed record did reach the disk whole, and the machine crashes before the next append, it
//!   is redone: the state that was asked for, all of it, as if the crash had come just after the flush.
//! * If the retry goes to the other file (a checkpoint switched in between), high's record s replaces
//!   low's record s.
//!
//! A host that is killed and restarted meets the same trap: what it reads may be in memory only. So `open`
//! writes the last record and both headers again, byte for byte, and flushes, before anything is
//! redone; all earlier records had been flushed with success, or the last one would not have begun.
//!
//! # A checkpoint, step by step
//!
//! 1. Begin: appends switch to the other file, which is empty. Nothing is written.
//! 2. The host flushes the stored object. All records of the older file had been applied before.
//! 3. Finish: the older file gets a new header (next epoch) in the slot that does *not* hold its current
//!    one, and is flushed. *Crash*: the new header is there (the file is empty), or torn or missing (the
//!    old header still stands, the records still match and are redone again, before those of the other
//!    file: harmless, since redo ends in the same state). The old records are not overwritten before the
//!    flush has returned. If it fails, the current slot is still the one that is known; the retry writes
//!    the other one again with yet another epoch.
//!
//! The slots also tell a torn header from a damaged one. A torn header was never followed by a record, so
//! if the file has a part of a higher epoch than both slots say, a header that was once durable is
//! damaged, and the journal is refused instead of silently losing records.
//!
//! # Creation
//!
//! Each file: cut to nothing, reserve, flush, header in slot 0, flush. Cut first, because zeros that an
//! earlier try wrote and failed to flush are in doubt like any other bytes. Records come later, so a file
//! without an intact header is a creation cut short only if neither file has any part; then it is
//! formatted again.
//!
//! # Recovery, and why it is right
//!
//! In each file records are read from byte 8192 while they are consecutive and valid; then the rest of
//! the file is searched for parts of the live epoch. The log is low's records, without the one that high
//! replaces, then high's. It is refused unless (`judge.rs`)
//!
//! 1. low reaches the record before high's first;
//! 2. the log contains what high's header demands (`live..base`);
//! 3. the log reaches s-1 for every part of a live epoch, with sequence s, found anywhere.
//!
//! Each acknowledged record that is not yet checkpointed is in the log: it was flushed whole, so it is
//! missing only if damaged, and then a later part (3), the other file (1) or its header (2) betrays it.
//! The exception is the very last record: its damage looks like a torn tail, as in every journal.
//! No unacknowledged record is in the log but the last attempt at the last sequence number, whole.
//! Redoing the log in order on a stored object that has any mixture of those pages, applied or not, gives
//! exactly the state after the last record, because each page that could differ is written by the log.

use std::fmt;

/// Bytes of a page, the unit the journal stores.
pub const PAGE_BYTES: usize = 4096;
/// Everything in a journal file is aligned to this.
pub const BLOCK_BYTES: u64 = 4096;
/// The version of the format described above.
pub const FORMAT_VERSION: u32 = 1;
/// Pages in one part, as many as the header block has room to number.
pub const MAX_PART_PAGES: usize = (PAGE_BYTES - PAGE_LIST_OFFSET) / 4;

/// Offset of the page numbers in a part header.
pub(crate) const PAGE_LIST_OFFSET: usize = 128;
/// Where the parts start, after the two header slots.
pub(crate) const DATA_START: u64 = 2 * BLOCK_BYTES;
/// Epochs and sequence numbers below this can be counted up without a thought of overflow; a million
/// syncs per second take 146 000 years to get there.
pub(crate) const NUMBER_LIMIT: u64 = 1 << 62;

/// The 128-bit identity of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What every header and part of one journal carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub uuid: Uuid,
    pub salt: u64,
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

pub(crate) fn get_uuid(bytes: &[u8], at: usize) -> Uuid {
    let mut raw = [0; 16];
    raw.copy_from_slice(&bytes[at..at + 16]);
    Uuid(raw)
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_room_for_992_pages() {
        assert_eq!(MAX_PART_PAGES, 992);
    }

    #[test]
    fn uuid_prints_in_the_usual_groups() {
        let mut raw = [0; 16];
        raw[0] = 0xab;
        raw[15] = 0x01;
        assert_eq!(Uuid(raw).to_string(), "ab000000-0000-0000-0000-000000000001");
    }
}
