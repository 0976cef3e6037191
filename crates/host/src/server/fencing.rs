//! What the keeper is told of an object's frames for the end of this host's lease (`docs/LEASES.md`, "The keeper").

use super::Host;
use super::kept::object_key;
use super::object::Object;
use crate::live;
use commonhold_keeper::fence::{FENCED, FENCED_LAST};
use commonhold_keeper::marks::{Marks, Others};
use commonhold_object::error::Doing;
use commonhold_object::{Coherence, Result, Scheduler};
use commonhold_registry::ObjectRecord;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Whether frames are fenced, and when. Those of objects whose home is elsewhere come first: they grow old. The pages of
/// a home that stays the home, and schedules them itself, grow old nowhere: nobody else is given any while it is away.
fn fencing(record: &ObjectRecord) -> &'static [u8] {
    let options = &record.options;
    let central = matches!(options.coherence, Coherence::Strict { scheduler: Scheduler::Central { .. }, .. });
    match record.is_elsewhere {
        _ if !options.is_shared() => &[],
        true => FENCED,
        false if central && !options.home_moves => &[],
        false => FENCED_LAST,
    }
}

/// Which of the frames, of that inode. None: all of them stay, in no page table, whether they are the newest versions or not.
/// Where the home moves, the next one asks for whatever was valid.
fn marks(record: &ObjectRecord, inode: u64) -> Option<Marks> {
    let strict = matches!(record.options.coherence, Coherence::Strict { .. });
    let (bitmaps, others) = match record.is_elsewhere {
        _ if record.options.home_moves => return None,
        true => (live::NEWEST.to_vec(), Others::Go),
        // By forwarding: what another host may write, and was here to be read.
        false if strict => (vec![live::LENT], Others::StayMapped),
        false => return None,
    };
    let file = format!("live/{}", record.id.0);
    Some(Marks { file, inode_at: live::INODE_OFFSET, inode, bitmaps, others })
}

impl Host {
    /// Keeps the frames of an object, whose next host has them.
    pub(super) fn keep_frames(&self, object: &Object, frames: &Arc<OwnedFd>) {
        let record = object.record().clone();
        self.keep(&object_key(object.id, "frames"), fencing(&record), Some(frames.clone()));
        if let Err(error) = self.keep_marks(&record, frames) {
            self.machine.log(format_args!("object {}: fencing it may take longer: {error}", object.id.0));
        }
    }

    /// The same of new frames. What the next host would not have must not be written to.
    pub(super) fn keep_new_frames(&self, record: &ObjectRecord, frames: &Arc<OwnedFd>) -> Result<()> {
        self.vault.put(&object_key(record.id, "frames"), fencing(record), Some(frames.clone()))?;
        self.keep_marks(record, frames).inspect_err(|_| self.unkeep_frames(record.id))
    }

    fn keep_marks(&self, record: &ObjectRecord, frames: &Arc<OwnedFd>) -> Result<()> {
        if !record.options.is_shared() {
            return Ok(()); // no marks of it were ever kept
        }
        let key = Marks::key_of(&object_key(record.id, "frames"));
        let inode =
            rustix::fs::fstat(&**frames).map_err(std::io::Error::from).doing("looking at frames")?.st_ino;
        match marks(record, inode).filter(|_| !fencing(record).is_empty()) {
            Some(marks) => self.vault.put(&key, &marks.encode(), None),
            None => {
                self.unkeep(&key);
                Ok(())
            }
        }
    }

    /// An object's frames are of no use any more.
    pub(super) fn unkeep_frames(&self, id: commonhold_object::ObjectId) {
        let key = object_key(id, "frames");
        self.unkeep(&Marks::key_of(&key));
        self.unkeep(&key);
    }
}
