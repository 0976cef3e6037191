//! Objects whose page tables all processes share: their memory, and the tables that outlive every process that attaches it.
//! `docs/PAGE-TABLES.md`.

use super::object::Object;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::{CreateOptions, Error, ErrorKind, Result, limits};
use commonhold_tables::{GIGABYTE, HUGE, Segment, tables_of_page};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The size in whole huge pages. One that is too large stays so, and is refused as such.
pub(super) fn whole_pages(size_bytes: u64) -> u64 {
    size_bytes.checked_next_multiple_of(HUGE).unwrap_or(size_bytes)
}

/// What the memory is called.
pub(super) const LABEL: &str = "commonhold-segment";

/// Makes the object's memory.
pub(super) fn make(size_bytes: u64) -> Result<OwnedFd> {
    commonhold_tables::make(LABEL, size_bytes).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => Error::new(ErrorKind::NoSpace, error.to_string()),
        io::ErrorKind::Unsupported => Error::new(ErrorKind::Unsupported, error.to_string()),
        _ => Error::io("making memory for the object", &error),
    })
}

/// Makes the tables of a new object, if it has such.
pub(super) fn begin(options: &CreateOptions, memory: Option<&OwnedFd>) -> Result<Option<Segment>> {
    let memory = memory.filter(|_| options.shares_tables());
    let segment = memory.map(|fd| Segment::hold(fd, options.size_bytes)).transpose();
    let segment = segment.doing("making the object's page tables")?;
    segment.iter().try_for_each(Segment::fill).doing("filling the object's page tables")?;
    Ok(segment)
}

impl Host {
    /// Joins the tables of an object that the host before made, or a client brought back; without one they are begun again, and
    /// fill when they are used: whoever punched its memory has nobody wait for that here.
    pub(super) fn hold_tables(&self, object: &Object) {
        let options = object.record().options.clone();
        let is_one = options.shares_tables();
        let Some(memory) = object.descriptor().filter(|_| is_one) else { return };
        match Segment::hold(&*memory, options.size_bytes) {
            Ok(segment) => {
                segment.join();
                *lock(&object.tables) = Some(segment);
            }
            // It can be used without, and then its tables go with the last who has it attached.
            Err(error) => {
                self.repaired(format!("the page tables of object {} are not held: {error}", object.id.0))
            }
        }
    }

    /// Each takes a part of the addresses and mappings that the host may have.
    pub(super) fn check_room_for_tables(&self, options: &CreateOptions, uid: u32) -> Result<()> {
        if !options.shares_tables() {
            return Ok(());
        }
        let all = self.all_objects();
        let is_one = |object: &&Arc<Object>| object.record().options.shares_tables();
        let (most, whose, count) = match self.machine.is_ordinary(uid) {
            true => {
                let own = |object: &&Arc<Object>| object.record().charged_uid == uid;
                let count = all.iter().filter(is_one).filter(own).count() as u64;
                (limits::SEGMENTS_PER_ORDINARY_USER, "your user", count)
            }
            false => (limits::SEGMENTS, "this host", all.iter().filter(is_one).count() as u64),
        };
        if count < most {
            return Ok(());
        }
        let text = format!(
            "{whose} has {count} objects with shared page tables, which is the limit: make fewer and larger ones"
        );
        Err(Error::new(ErrorKind::TooMany, text))
    }
}

/// How many page tables map the first page of a gigabyte of it, in all processes, of that which most do; zero: it has none that
/// are shared, or the kernel does not tell.
pub(super) fn count(object: &Object) -> u64 {
    let size_bytes = object.record().options.size_bytes;
    let tables = lock(&object.tables);
    let Some(segment) = tables.as_ref() else { return 0 };
    let pages = (0..size_bytes).step_by(GIGABYTE as usize);
    pages
        .filter_map(|page| tables_of_page(segment.place(page)?).ok())
        .map(|tables| tables.0)
        .max()
        .unwrap_or(0)
}
