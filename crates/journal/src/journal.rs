//! The journal of one object: its state in memory, opening, and what both files share.

use crate::checkpoint::Ticket;
use crate::error::{Error, FileId, IoOp, Result};
use crate::format::{DATA_START, Identity, Uuid};
use crate::header::FileHeader;
use crate::recover::{self, Recovery};
use crate::stats::Stats;
use crate::storage::Storage;
use std::hash::{BuildHasher, Hasher};

/// Sizes, and the one random number a new journal needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What each of the two files keeps reserved.
    pub reserve_bytes: u64,
    /// A file that must grow grows to a multiple of this.
    pub grow_bytes: u64,
    /// [`Journal::needs_checkpoint`] from this many bytes of records in the active file.
    pub checkpoint_bytes: u64,
    /// The salt of a new journal; random if `None`. Tests give one so that every run is the same.
    pub salt: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options { reserve_bytes: 16 << 20, grow_bytes: 8 << 20, checkpoint_bytes: 8 << 20, salt: None }
    }
}

impl Options {
    /// The salt for a new journal. The standard library's hasher keys are random per process, which is
    /// all that is needed here, and saves a dependency.
    pub(crate) fn new_salt(&self) -> u64 {
        self.salt.unwrap_or_else(|| std::collections::hash_map::RandomState::new().build_hasher().finish())
    }
}

/// One journal file and what is known of it.
pub(crate) struct JournalFile<S> {
    pub storage: S,
    pub id: FileId,
    /// The slot whose header was flushed with success; the other one is free to be written.
    pub slot: usize,
    pub epoch: u64,
    pub base: u64,
    pub live: u64,
    /// Where the next record goes: the end of the last one that is part of the log.
    pub end: u64,
    /// Sequence number of the first record in it.
    pub first: Option<u64>,
    pub len_bytes: u64,
    /// The length the header promises.
    pub least_bytes: u64,
    /// Reset or formatted since open: no part of an earlier process's attempt can match.
    pub fresh: bool,
}

impl<S: Storage> JournalFile<S> {
    pub(crate) fn take_header(&mut self, slot: usize, header: &FileHeader) {
        self.slot = slot;
        self.epoch = header.epoch;
        self.base = header.base;
        self.live = header.live;
        self.least_bytes = header.least_bytes;
    }

    pub(crate) fn header(&self, identity: Identity) -> FileHeader {
        FileHeader {
            identity,
            file: self.id,
            epoch: self.epoch,
            base: self.base,
            live: self.live,
            least_bytes: self.least_bytes,
        }
    }

    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.storage.write_at(offset, bytes).map_err(self.id.failed(IoOp::Write, offset))?;
        self.len_bytes = self.len_bytes.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Cuts the file to what it must keep. Best effort: a file left too long is only too long.
    pub(crate) fn trim(&mut self, reserve: u64) {
        let keep = reserve.max(self.end).max(self.least_bytes);
        if self.len_bytes > keep {
            let _ = self.storage.truncate(keep);
            if let Ok(len) = self.storage.len() {
                self.len_bytes = len;
            }
        }
    }

    /// Makes a file that is too short as long as it should be. Best effort: appends reserve what they need.
    pub(crate) fn restore_reserve(&mut self, reserve: u64) {
        if self.len_bytes < reserve {
            let _ = self.storage.reserve(reserve);
            if let Ok(len) = self.storage.len() {
                self.len_bytes = len;
            }
        }
    }
}

/// The redo journal of one object. See the crate's first page for the order of the calls.
pub struct Journal<S> {
    pub(crate) identity: Identity,
    pub(crate) options: Options,
    pub(crate) files: [JournalFile<S>; 2],
    pub(crate) active: FileId,
    /// The highest epoch ever written by this process or found on disk, successful or not.
    pub(crate) last_epoch: u64,
    pub(crate) next_sequence: u64,
    /// All records up to this one have been written to the stored object.
    pub(crate) applied: u64,
    pub(crate) last_attempt: u64,
    pub(crate) checkpoint: Option<Ticket>,
    pub(crate) recovering: bool,
    pub(crate) stats: Stats,
}

impl<S: Storage> Journal<S> {
    /// Opens the journal of object `uuid` in files A and B, and creates it if they are empty.
    ///
    /// When it returns, the records of the log are durable and can be redone with
    /// [`replay_runs`](Self::replay_runs); [`finish_recovery`](Self::finish_recovery) must follow before
    /// anything else, also if there is nothing to redo. On an error the files are as they were, up to the
    /// rewriting of bytes they hold already.
    pub fn open(uuid: Uuid, storages: [S; 2], options: Options) -> Result<(Self, Recovery)> {
        recover::open(uuid, storages, options)
    }

    /// Whether the active file has enough records for a checkpoint, and none is under way.
    pub fn needs_checkpoint(&self) -> bool {
        let used = self.file(self.active).end - DATA_START;
        self.checkpoint.is_none() && used > 0 && used >= self.options.checkpoint_bytes
    }

    /// The sequence number the next successful append will get.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Bytes of the records that a crash now would redo, in both files.
    pub fn live_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.end - DATA_START).sum()
    }

    /// What has been done since open.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Ends the journal and gives the storages back.
    pub fn into_storages(self) -> [S; 2] {
        self.files.map(|file| file.storage)
    }

    pub(crate) fn file(&self, id: FileId) -> &JournalFile<S> {
        &self.files[id.index()]
    }

    pub(crate) fn file_mut(&mut self, id: FileId) -> &mut JournalFile<S> {
        &mut self.files[id.index()]
    }

    /// The file with the lower epoch: its records come first.
    pub(crate) fn low(&self) -> FileId {
        if self.files[0].epoch < self.files[1].epoch { FileId::A } else { FileId::B }
    }

    pub(crate) fn flush(&mut self, id: FileId, offset: u64) -> Result<()> {
        self.file_mut(id).storage.flush().map_err(id.failed(IoOp::Flush, offset))?;
        self.stats.flushes += 1;
        Ok(())
    }

    pub(crate) fn require_recovered(&self) -> Result<()> {
        if self.recovering { Err(Error::RecoveryPending) } else { Ok(()) }
    }
}
