//! The pager of snapshots: what one lacks its parent has, as it was.

use super::Pager;
use crate::cache::{Family, Read};
use crate::machine::Machine;
use commonhold_object::{Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PageRange, Result};
use std::sync::{Arc, Weak};

/// How often a page may leave its parent's memory between being brought there and being read.
const TRIES: u32 = 100;

/// Asks the parent of now.
pub struct SnapshotPager {
    id: ObjectId,
    size_bytes: u64,
    machine: Weak<Machine>,
    /// Whether its parent's pager may.
    may_block: bool,
}

impl SnapshotPager {
    /// The pager of the snapshot `id`.
    pub fn new(id: ObjectId, size_bytes: u64, machine: &Arc<Machine>, may_block: bool) -> Self {
        SnapshotPager { id, size_bytes, machine: Arc::downgrade(machine), may_block }
    }

    fn read(&self, family: &dyn Family, mut run: PageRange, mut bytes: &mut [u8]) -> Result<()> {
        let (mut tries, mut has_waited) = (0, false);
        while !run.is_empty() {
            let Some((link, parent)) = family.parent(self.id)? else {
                bytes.fill(0); // never written, since it lacks nothing
                return Ok(());
            };
            if parent.is_none() && !std::mem::replace(&mut has_waited, true) {
                family.wait_for(link.parent)?;
                continue;
            }
            let gone = || Error::new(ErrorKind::Lost, "the memory of what it is a snapshot of is gone");
            let above = PageRange::new(link.first_page + run.first, run.count);
            match parent.ok_or_else(gone)?.read_version(self.id, above, bytes)? {
                Read::Pages(0) => return Err(gone()), // past the parent's end
                Read::Pages(pages) => {
                    bytes = &mut bytes[(pages * PAGE_SIZE_BYTES) as usize..];
                    run = PageRange::new(run.first + pages, run.count - pages);
                    tries = 0;
                }
                Read::Bring(..) | Read::Moved if tries == TRIES => {
                    let why = "memory is so short that a page leaves it before a snapshot can read it: give the host more";
                    return Err(Error::new(ErrorKind::NoSpace, why));
                }
                Read::Bring(cache, pages) => cache.bring_all(pages)?,
                Read::Moved => {}
            }
            tries += 1;
        }
        Ok(())
    }
}

impl Pager for SnapshotPager {
    fn page_in(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let machine = self.machine.upgrade().ok_or_else(|| Error::new(ErrorKind::Lost, "the host ends"))?;
        let run = PageRange::new(offset / PAGE_SIZE_BYTES, buffer.len() as u64 / PAGE_SIZE_BYTES);
        self.read(machine.family(), run, buffer)?;
        let end = self.size_bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        buffer[end..].fill(0);
        Ok(())
    }

    fn page_out(&self, _offset: u64, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn is_anonymous(&self) -> bool {
        true
    }

    fn has_parent(&self) -> bool {
        true
    }

    fn may_block(&self) -> bool {
        self.may_block
    }

    /// The parent's lock may be waited for, and its disk.
    fn would_wait(&self, _offset: u64) -> bool {
        true
    }
}
