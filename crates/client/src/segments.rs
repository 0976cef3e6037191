//! Mapping objects whose page tables all processes share. What would end the sharing silently is refused.

use crate::addresses::Piece;
use crate::object::Core;
use crate::{CreateOptions, Error, MapOptions, PAGE_SIZE_BYTES, Protection, Result, Sharing, copying};
use commonhold_object::error::Doing;
use commonhold_tables::{Attachment, HUGE, attach_own, check_address, spanned};
use std::io;
use std::ptr::NonNull;

/// How long a mapping of such an object is: whole huge pages.
pub(crate) fn whole_pages(options: &CreateOptions, length: u64) -> u64 {
    if options.shares_tables() { length.next_multiple_of(HUGE) } else { length }
}

/// The unit in which a piece is unmapped.
pub(crate) fn page_bytes(piece: &Piece) -> u64 {
    if piece.object().options().shares_tables() { HUGE } else { PAGE_SIZE_BYTES }
}

/// Bytes of addresses that a mapping takes by shared tables; zero: by tables of its own, it takes what it shows.
pub(crate) fn takes(core: &Core, options: &MapOptions) -> u64 {
    if core.options().shares_tables() && !options.flags.own_tables { spanned(core.size_bytes()) } else { 0 }
}

/// Refuses a mapping that tables cannot be shared of.
pub(crate) fn check(core: &Core, options: &MapOptions, length: u64) -> Result<()> {
    let refused = |text: String| Err(Error::invalid(text));
    let name = core.label();
    if !core.options().shares_tables() {
        return match options.flags.own_tables {
            true => refused(format!("object {name} has no shared page tables: leave own_tables out")),
            false => Ok(()),
        };
    }
    if options.sharing == Sharing::Private {
        return refused(format!(
            "object {name} is of huge pages, of which no copies are made: map it shared"
        ));
    }
    if options.flags.own_tables {
        return check_huge(options, length);
    }
    if options.offset != 0 || length != core.size_bytes() {
        return refused(format!(
            "the page tables of object {name} are shared as a whole, and {length} bytes from {} on are a part of it: map all \
             of it, or by page tables of this process's own (own_tables)",
            options.offset
        ));
    }
    if core.access().writes() && options.protection == Protection::Read {
        return refused(format!(
            "object {name} is open for writing: who opened it to read shares page tables by which nobody writes; open it so, \
             or map it by page tables of this process's own (own_tables)"
        ));
    }
    if options.flags.fixed {
        check_address(options.hint as u64).map_err(|error| Error::invalid(error.to_string()))?;
    }
    Ok(())
}

fn check_huge(options: &MapOptions, length: u64) -> Result<()> {
    let address = if options.flags.fixed { options.hint as u64 } else { 0 };
    let numbers = [("offset", options.offset), ("length", length), ("address", address)];
    for (what, number) in numbers {
        if !number.is_multiple_of(HUGE) {
            let nearest = number - number % HUGE;
            return Err(Error::invalid(format!(
                "the object is of huge pages: {what} {number:#x} is no multiple of {HUGE:#x}; {nearest:#x} is"
            )));
        }
    }
    Ok(())
}

/// Maps what [`check`] let pass.
pub(crate) fn attach(core: &Core, options: &MapOptions, length: usize) -> io::Result<NonNull<u8>> {
    let writes = options.protection == Protection::ReadWrite;
    let map = |at: Option<u64>| match options.flags.own_tables {
        true => attach_own(core.fd(), options.offset, length, at, writes),
        false => commonhold_tables::attach(core.fd(), core.size_bytes(), at, writes),
    };
    let wished = Some(options.hint as u64).filter(|hint| *hint != 0 && hint.is_multiple_of(HUGE));
    let attached = match (wished, options.flags.fixed) {
        (Some(hint), false) => map(Some(hint)).or_else(|_| map(None)),
        (at, _) => map(at),
    };
    attached.map(Attachment::leak)
}

/// Refuses to unmap a part: shared tables are detached as a whole, and huge pages are not cut.
pub(crate) fn check_cut(piece: &Piece, offset: u64, length: u64) -> Result<()> {
    let core = piece.object();
    if !core.options().shares_tables() {
        return Ok(());
    }
    if piece.origin.takes > 0 && (offset, length) != (0, core.size_bytes()) {
        return Err(Error::invalid(format!(
            "object {} is mapped by page tables that all share: unmap all of it",
            core.label()
        )));
    }
    if !(offset.is_multiple_of(HUGE) && length.is_multiple_of(HUGE)) {
        return Err(Error::invalid(format!(
            "object {} is of huge pages: unmap a multiple of {HUGE} bytes, from a multiple of that on",
            core.label()
        )));
    }
    Ok(())
}

/// Copies bytes in: a file of huge pages is written only through a mapping.
pub(crate) fn write(core: &Core, data: &[u8], offset: u64) -> Result<()> {
    let first = offset - offset % HUGE;
    let end = (offset + data.len() as u64).next_multiple_of(HUGE);
    let length =
        usize::try_from(end - first).map_err(|_| Error::invalid("the data does not fit this machine"))?;
    if length == 0 {
        return Ok(());
    }
    let mapped = attach_own(core.fd(), first, length, None, true);
    let mapped = mapped.doing(format_args!("mapping object {}", core.label()))?;
    mapped.fill(0, length as u64).doing(format_args!("writing object {}", core.label()))?;
    let place = mapped.address().as_ptr().wrapping_add((offset - first) as usize);
    // SAFETY: within the mapping, which lives until after the call, and whose pages were just brought in.
    unsafe { copying::copy_in(data, place) };
    Ok(())
}
