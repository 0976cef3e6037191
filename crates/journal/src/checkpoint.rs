//! Checkpoints: switching appends to the other file, and resetting the older one.

use crate::aligned::AlignedBytes;
use crate::error::{Error, FileId, Result};
use crate::format::{DATA_START, PAGE_BYTES};
use crate::header::{FileHeader, slot_offset};
use crate::journal::Journal;
use crate::storage::Storage;
use thiserror::Error as ThisError;

/// A checkpoint under way: flush the stored object, then [`Journal::finish_checkpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the older file stays in use until the checkpoint is finished"]
pub struct Ticket {
    file: FileId,
    epoch: u64,
}

/// Why a checkpoint does not begin. Appends go on in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum CheckpointRefused {
    /// There is no record to be freed.
    #[error("the active file has no record")]
    Nothing,
    /// One is under way; this is its ticket.
    #[error("a checkpoint is under way")]
    Busy(Ticket),
    /// A record has not been reported as applied: flushing the stored object would not make it durable.
    #[error("record {sequence} has not been reported as applied")]
    Unapplied {
        /// The first such record.
        sequence: u64,
    },
    /// The journal was opened and its recovery is not finished.
    #[error("the recovery is not finished")]
    Recovering,
}

impl<S: Storage> Journal<S> {
    /// Switches appends to the other file, so that the host can flush the stored object meanwhile.
    ///
    /// If both files have records, a checkpoint is under way (its ticket comes with
    /// [`CheckpointRefused::Busy`]); appends go on in the active file, which grows.
    pub fn begin_checkpoint(&mut self) -> std::result::Result<Ticket, CheckpointRefused> {
        if self.recovering {
            return Err(CheckpointRefused::Recovering);
        }
        if let Some(ticket) = self.checkpoint {
            return Err(CheckpointRefused::Busy(ticket));
        }
        let file = self.file(self.active);
        if file.first.is_none() {
            return Err(CheckpointRefused::Nothing);
        }
        if self.applied + 1 < self.next_sequence {
            let sequence = self.applied + 1;
            return Err(CheckpointRefused::Unapplied { sequence });
        }
        let ticket = Ticket { file: file.id, epoch: file.epoch };
        self.checkpoint = Some(ticket);
        self.active = self.active.other();
        Ok(ticket)
    }

    /// Resets the older file. Call it only after a flush of the stored object, begun after
    /// [`begin_checkpoint`](Self::begin_checkpoint), has succeeded.
    ///
    /// After an error the checkpoint is still under way and the same ticket can be used again, without
    /// another flush of the stored object.
    pub fn finish_checkpoint(&mut self, ticket: Ticket) -> Result<()> {
        if self.checkpoint != Some(ticket) {
            return Err(Error::StaleTicket { file: ticket.file, epoch: ticket.epoch });
        }
        let live = self.file(self.active).first.unwrap_or(self.next_sequence);
        self.reset(ticket.file, live)?;
        self.checkpoint = None;
        self.stats.checkpoints += 1;
        Ok(())
    }

    /// Forgets all records, after the host has redone them and flushed the stored object. Must be called
    /// once after `open`, also if there was nothing to redo; may be called again after an error.
    pub fn finish_recovery(&mut self) -> Result<()> {
        if !self.recovering {
            return Ok(());
        }
        // The older one first: a crash in between must not leave older records without the newer ones.
        for _ in 0..2 {
            let low = self.low();
            let stale = if self.file(low).fresh { low.other() } else { low };
            if !self.file(stale).fresh {
                self.reset(stale, self.next_sequence)?;
            }
        }
        self.active = self.low();
        self.applied = self.next_sequence - 1;
        self.recovering = false;
        Ok(())
    }

    /// Gives a file a new epoch. Its records are gone when this succeeds, and all there when it fails
    /// (on disk: either of the two, and both are right, see `format.rs`).
    fn reset(&mut self, id: FileId, live: u64) -> Result<()> {
        let base = self.next_sequence;
        // A number whose header may or may not have reached the disk is never used again.
        self.last_epoch += 1;
        let epoch = self.last_epoch;
        let reserve = self.options.reserve_bytes.max(DATA_START);
        let slot = 1 - self.file(id).slot;
        let header = FileHeader {
            identity: self.identity,
            file: id,
            epoch,
            base,
            live,
            // It is only ever lowered: the file was durably that long before this header was written.
            least_bytes: self.file(id).least_bytes.min(reserve),
        };
        self.write_header(slot, &header)?;
        self.flush(id, slot_offset(slot))?;
        let file = self.file_mut(id);
        file.take_header(slot, &header);
        file.end = DATA_START;
        file.first = None;
        file.fresh = true;
        file.trim(reserve);
        file.restore_reserve(reserve);
        Ok(())
    }

    pub(crate) fn write_header(&mut self, slot: usize, header: &FileHeader) -> Result<()> {
        let mut block = AlignedBytes::zeroed(PAGE_BYTES);
        header.encode(&mut block);
        self.file_mut(header.file).write_at(slot_offset(slot), &block)
    }
}
