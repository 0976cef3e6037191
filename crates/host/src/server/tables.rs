//! Objects whose page tables all processes share: their memory, and the tables that outlive every process that attaches it.
//! `docs/PAGE-TABLES.md`.

use super::lock;
use super::object::Object;
use commonhold_object::error::Doing;
use commonhold_object::{CreateOptions, Error, ErrorKind, Result, Translation};
use commonhold_tables::{GIGABYTE, HUGE, Segment, tables_of_page};
use std::io;
use std::os::fd::OwnedFd;

/// The size in whole huge pages. One that is too large stays so, and is refused as such.
pub(super) fn whole_pages(size_bytes: u64) -> u64 {
    size_bytes.checked_next_multiple_of(HUGE).unwrap_or(size_bytes)
}

/// Makes the object's memory.
pub(super) fn make(size_bytes: u64) -> Result<OwnedFd> {
    commonhold_tables::make("commonhold-segment", size_bytes).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => Error::new(ErrorKind::NoSpace, error.to_string()),
        io::ErrorKind::Unsupported => Error::new(ErrorKind::Unsupported, error.to_string()),
        _ => Error::io("making memory for the object", &error),
    })
}

/// Holds the tables of an object that has them, and whose memory is there.
pub(super) fn hold(options: &CreateOptions, memory: Option<&OwnedFd>) -> Result<Option<Segment>> {
    let memory = memory.filter(|_| options.translation == Translation::SharedTables);
    memory
        .map(|fd| Segment::hold(fd, options.size_bytes))
        .transpose()
        .doing("making the object's page tables")
}

/// How many page tables map each page of it at most, in all processes; zero: it has none that are shared, or the kernel does
/// not tell. Each gigabyte has tables of its own, so that one page of each is looked at.
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
