//! Of which part of an object a snapshot is asked for, and whether there can be one of it.

use commonhold_object::wire::SnapshotRequest;
use commonhold_object::{
    Access, Coherence, CreateOptions, Error, ErrorKind, PAGE_SIZE_BYTES, PageRange, Result, pages_of,
};

/// Refuses what no snapshot can be of.
pub(super) fn check_can_have(of: &CreateOptions, is_elsewhere: bool, access: Access) -> Result<()> {
    if of.read_only {
        return Ok(());
    }
    if !of.freezable {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "a snapshot is of an object whose writers can be held: create it with --freezable (freezable = true)",
        ));
    }
    if of.coherence == Coherence::Explicit {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "other hosts see of the object what was synced, and a snapshot cannot be of that: `commonhold sync --freeze` makes \
             what is stored the memory of one instant",
        ));
    }
    if of.is_shared() && is_elsewhere {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "hosts share the object: take the snapshot on the host that is its home (`commonhold stat`)",
        ));
    }
    if !access.writes() {
        return Err(Error::new(
            ErrorKind::Permission,
            "a snapshot holds the object's writers for an instant: open it for writing",
        ));
    }
    Ok(())
}

/// The pages that are asked for.
pub(super) fn range_of(of: &CreateOptions, asked: &SnapshotRequest) -> Result<PageRange> {
    let size = of.size_bytes;
    let length = if asked.length == 0 { size.saturating_sub(asked.offset) } else { asked.length };
    let end = asked.offset.checked_add(length).filter(|end| *end <= size && length > 0);
    let Some(end) = end else {
        return Err(Error::invalid(format!(
            "a snapshot of {length} bytes from byte {}: the object has {size}",
            asked.offset
        )));
    };
    if !asked.offset.is_multiple_of(PAGE_SIZE_BYTES) {
        return Err(Error::invalid(format!(
            "a snapshot from byte {}: begin at a multiple of {PAGE_SIZE_BYTES}",
            asked.offset
        )));
    }
    let first = asked.offset / PAGE_SIZE_BYTES;
    Ok(PageRange::new(first, pages_of(end) - first))
}

/// How many bytes of the last page are not asked for.
pub(super) fn past_end(of: &CreateOptions, asked: &SnapshotRequest, pages: PageRange) -> u64 {
    let end = if asked.length == 0 { of.size_bytes } else { asked.offset + asked.length };
    pages.end() * PAGE_SIZE_BYTES - end
}
