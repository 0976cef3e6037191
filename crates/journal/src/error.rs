//! Every way the journal can fail, with the facts.

use crate::format::Uuid;
use std::fmt;
use std::io;
use thiserror::Error;

/// Result of a journal operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Which of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileId {
    /// The first of the two files given to `open`.
    A,
    /// The second.
    B,
}

impl FileId {
    pub(crate) fn index(self) -> usize {
        match self {
            FileId::A => 0,
            FileId::B => 1,
        }
    }

    pub(crate) fn from_index(index: usize) -> Self {
        if index == 0 { FileId::A } else { FileId::B }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            FileId::A => FileId::B,
            FileId::B => FileId::A,
        }
    }

    /// Turns a storage's error into one that says what failed where.
    pub(crate) fn failed(self, op: IoOp, offset: u64) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { file: self, op, offset, source }
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileId::A => "A",
            FileId::B => "B",
        })
    }
}

/// The operation on a file that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoOp {
    /// Asking for the length.
    Length,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making durable.
    Flush,
    /// Reserving space.
    Reserve,
}

impl fmt::Display for IoOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoOp::Length => "asking the length",
            IoOp::Read => "reading",
            IoOp::Write => "writing",
            IoOp::Flush => "flushing",
            IoOp::Reserve => "reserving space",
        })
    }
}

/// What is wrong at the place where a record should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Damage {
    /// No part header at all.
    #[error("no part of a record is there")]
    Absent,
    /// The header's checksum does not match.
    #[error("the header checksum is {found:#010x}, the bytes give {expected:#010x}")]
    HeaderChecksum {
        /// Computed from the bytes.
        expected: u32,
        /// Stored in the header.
        found: u32,
    },
    /// The payload's checksum does not match.
    #[error("the payload checksum is {found:#010x}, the bytes give {expected:#010x}")]
    PayloadChecksum {
        /// Computed from the bytes.
        expected: u32,
        /// Stored in the header.
        found: u32,
    },
    /// The header is intact but its numbers make no sense.
    #[error("the header is intact but its field `{field}` is impossible")]
    Field {
        /// Which field.
        field: &'static str,
    },
    /// The header is intact but belongs to another epoch, object or place.
    #[error("a part of another {of} is there")]
    Foreign {
        /// What differs.
        of: &'static str,
    },
    /// The part continues after the end of the file.
    #[error("the part continues past the end of the file at {len_bytes}")]
    Truncated {
        /// Length of the file.
        len_bytes: u64,
    },
    /// Another record, or another part of a record, was due here.
    #[error("record {found} part {part} is there instead")]
    OutOfSequence {
        /// The sequence number found.
        found: u64,
        /// The part number found.
        part: u32,
    },
    /// Records that are known to have been acknowledged are not in the file.
    #[error("acknowledged records up to {last} should be there")]
    MissingRecords {
        /// The last record that is known to have been acknowledged.
        last: u64,
    },
    /// The file starts with another record than the other file says.
    #[error("the file starts with record {found}")]
    WrongFirst {
        /// The first sequence number found.
        found: u64,
    },
}

/// Why a file header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderFault {
    /// Neither header is intact.
    #[error("neither of the two headers is intact")]
    Unreadable,
    /// The newest header is damaged: the file has records of an epoch that no header names.
    #[error(
        "the newest header is damaged: byte {offset} has a record of epoch {found}, the readable header is of epoch {readable}"
    )]
    Outdated {
        /// Where that record is.
        offset: u64,
        /// Its epoch.
        found: u64,
        /// The epoch of the header that can be read.
        readable: u64,
    },
    /// The file is shorter than it has been ever since the header was written.
    #[error("the file has {len_bytes} bytes, it had at least {least_bytes}: it has been cut")]
    Cut {
        /// Its length now.
        len_bytes: u64,
        /// The length in the header.
        least_bytes: u64,
    },
    /// Both files claim the same epoch.
    #[error("both files claim epoch {epoch}")]
    SameEpoch {
        /// That epoch.
        epoch: u64,
    },
    /// The files were not created together.
    #[error("the two files come from different journals")]
    DifferentJournals,
    /// The file is the other one of the pair.
    #[error("it is file {found} of its journal; the files are in the wrong order or one was copied")]
    WrongFile {
        /// What the header says.
        found: FileId,
    },
}

/// Every way a journal operation fails. A failed operation has not changed the log.
#[derive(Debug, Error)]
pub enum Error {
    /// The storage failed.
    #[error("{op} of journal file {file} at byte {offset} failed: {source}")]
    Io {
        /// Which file.
        file: FileId,
        /// What was done.
        op: IoOp,
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The files are another object's journal.
    #[error(
        "journal file {file} belongs to object {found}, not to {expected}: give the files of this object"
    )]
    WrongObject {
        /// Which file.
        file: FileId,
        /// The object asked for.
        expected: Uuid,
        /// The object in the header.
        found: Uuid,
    },
    /// The file was written by another version of this format.
    #[error(
        "journal file {file} has format version {found}, this program reads {supported}: open the object with the version that wrote it, sync, close it cleanly, then upgrade or downgrade"
    )]
    UnsupportedVersion {
        /// Which file.
        file: FileId,
        /// The version in the header.
        found: u32,
        /// The version understood here.
        supported: u32,
    },
    /// A file header cannot be trusted.
    #[error(
        "header of journal file {file} (byte {offset}): {fault}; restore both journal files together with the stored object, or remove both to accept the stored object as it is"
    )]
    DamagedHeader {
        /// Which file.
        file: FileId,
        /// Where.
        offset: u64,
        /// What is wrong.
        fault: HeaderFault,
    },
    /// An acknowledged record is damaged or missing.
    #[error(
        "journal file {file} is damaged at byte {offset}, where record {sequence} should be: {damage}; restore both journal files together with the stored object, or remove both to accept the stored object as it is"
    )]
    Corrupt {
        /// Which file.
        file: FileId,
        /// Where.
        offset: u64,
        /// The record that should be there.
        sequence: u64,
        /// What is there instead.
        damage: Damage,
    },
    /// Appending or checkpointing before `finish_recovery`.
    #[error(
        "the journal was opened but its recovery is not finished: replay, flush the stored object, finish_recovery"
    )]
    RecoveryPending,
    /// A record without pages.
    #[error("a record needs at least one page")]
    EmptyRecord,
    /// `applied` must follow the order of the appends.
    #[error("record {found} was reported as applied, but record {expected} is the next one")]
    AppliedOutOfOrder {
        /// The record that is next.
        expected: u64,
        /// The record reported.
        found: u64,
    },
    /// A ticket of a checkpoint that is not the one under way.
    #[error("the ticket is for epoch {epoch} of journal file {file}, and no such checkpoint is under way")]
    StaleTicket {
        /// The ticket's file.
        file: FileId,
        /// The ticket's epoch.
        epoch: u64,
    },
}

impl Error {
    /// Whether a retry can succeed once there is space again (ENOSPC or a quota).
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

/// A replay stops at the journal's error or at the receiver's.
#[derive(Debug, Error)]
pub enum ReplayError<E> {
    /// The journal could not be read.
    #[error("{0}")]
    Journal(Error),
    /// The receiver of the pages failed.
    #[error("redoing pages failed: {0}")]
    Receiver(E),
}

impl<E> From<Error> for ReplayError<E> {
    fn from(error: Error) -> Self {
        ReplayError::Journal(error)
    }
}
