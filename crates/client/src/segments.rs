//! Mapping objects whose page tables all processes share. What would end the sharing silently is refused.

use crate::addresses::Piece;
use crate::object::Core;
use crate::{
    CreateOptions, Error, Inherit, MapOptions, PAGE_SIZE_BYTES, Protection, Result, Sharing, Translation,
    copying, wired,
};
use commonhold_object::error::Doing;
use commonhold_sys::memory;
use commonhold_tables::{Engine, HUGE, Hugetlb, Module, attach_own, spanned};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// What the host gave for an object: its memory, and the segment where that is another descriptor.
pub(crate) fn memory_of(options: &CreateOptions, given: OwnedFd) -> Result<(OwnedFd, Option<OwnedFd>)> {
    match options.translation {
        Translation::Paged | Translation::SharedTables | Translation::Wired => Ok((given, None)),
        Translation::SharedTables4K => {
            let memory = Module::memory(given.as_fd()).doing("opening the segment's memory")?;
            Ok((memory, Some(given)))
        }
    }
}

/// Which page tables a mapping has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// This process's own.
    Own,
    /// This process's own, of huge pages.
    OwnHuge,
    /// Those that all share.
    Shared,
}

/// Which ones a mapping of the object is to have.
pub(crate) fn tables(core: &Core, options: &MapOptions) -> Tables {
    match core.options().translation {
        Translation::Paged | Translation::Wired => Tables::Own,
        Translation::SharedTables if options.flags.own_tables => Tables::OwnHuge,
        Translation::SharedTables4K if options.flags.own_tables || options.sharing == Sharing::Private => {
            Tables::Own
        }
        Translation::SharedTables | Translation::SharedTables4K => Tables::Shared,
    }
}

/// How long a mapping is: of what is not this process's own, whole units of 2 MiB.
pub(crate) fn whole_units(tables: Tables, length: u64) -> u64 {
    if tables == Tables::Own { length } else { length.next_multiple_of(HUGE) }
}

/// The unit in which a piece is unmapped.
pub(crate) fn page_bytes(piece: &Piece) -> u64 {
    let is_huge = piece.object().options().is_of_huge_pages() || piece.origin.takes > 0;
    if is_huge { HUGE } else { PAGE_SIZE_BYTES }
}

/// Bytes of addresses that a mapping takes by shared tables; zero: by tables of its own, it takes what it shows.
pub(crate) fn takes(core: &Core, options: &MapOptions) -> u64 {
    match tables(core, options) {
        Tables::Shared if core.options().is_of_huge_pages() => spanned(core.size_bytes()),
        Tables::Shared => core.size_bytes(),
        Tables::Own | Tables::OwnHuge => 0,
    }
}

/// Refuses a mapping that tables cannot be shared of.
pub(crate) fn check(core: &Core, options: &MapOptions, length: u64) -> Result<()> {
    let refused = |text: String| Err(Error::invalid(text));
    let name = core.label();
    let of_huge_pages = core.options().is_of_huge_pages();
    if options.flags.own_tables && !core.options().shares_tables() {
        return refused(format!("object {name} has no shared page tables: leave own_tables out"));
    }
    if of_huge_pages && options.sharing == Sharing::Private {
        return refused(format!(
            "object {name} is of huge pages, of which no copies are made: map it shared"
        ));
    }
    match tables(core, options) {
        Tables::Own => return Ok(()),
        Tables::OwnHuge => return check_huge(options, length),
        Tables::Shared => {}
    }
    if options.inherit != Inherit::Share {
        return refused(format!(
            "the page tables of object {name} are shared by all processes, a child's too: map it by page tables of this \
             process's own (own_tables)"
        ));
    }
    if options.offset != 0 || length != core.size_bytes() {
        return refused(format!(
            "the page tables of object {name} are shared as a whole, and {length} bytes from {} on are a part of it: map all \
             of it, or by page tables of this process's own (own_tables)",
            options.offset
        ));
    }
    if of_huge_pages && core.access().writes() && options.protection == Protection::Read {
        return refused(format!(
            "object {name} is open for writing: who opened it to read shares page tables by which nobody writes; open it so, \
             or map it by page tables of this process's own (own_tables)"
        ));
    }
    match options.flags.fixed {
        true => {
            engine(core).check_address(options.hint as u64).map_err(|error| Error::invalid(error.to_string()))
        }
        false => Ok(()),
    }
}

fn engine(core: &Core) -> &'static dyn Engine {
    static MODULE: Module = Module::without_device();
    if core.options().is_of_huge_pages() { &Hugetlb } else { &MODULE }
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
    let (engine, segment) = (engine(core), core.given().as_fd());
    let map = |at: Option<u64>| match options.flags.own_tables {
        true => engine.attach_own(segment, options.offset, length, at, writes),
        false => engine.attach(segment, core.size_bytes(), at, writes),
    };
    let wished = Some(options.hint as u64).filter(|hint| *hint != 0 && hint.is_multiple_of(HUGE));
    let attached = match (wished, options.flags.fixed) {
        (Some(hint), false) => map(Some(hint)).or_else(|_| map(None)),
        (at, _) => map(at),
    };
    let attached = attached?;
    if options.inherit != Inherit::Share {
        memory::set_inherited(attached.address(), attached.length(), false)?;
    }
    Ok(attached.leak())
}

/// Refuses to unmap a part: shared tables are detached as a whole, and huge pages are not cut.
pub(crate) fn check_cut(piece: &Piece, offset: u64, length: u64) -> Result<()> {
    let core = piece.object();
    if piece.origin.takes > 0 && (offset, length) != (0, core.size_bytes()) {
        return Err(Error::invalid(format!(
            "object {} is mapped by page tables that all share: unmap all of it",
            core.label()
        )));
    }
    if core.options().is_of_huge_pages() && !(offset.is_multiple_of(HUGE) && length.is_multiple_of(HUGE)) {
        return Err(Error::invalid(format!(
            "object {} is of huge pages: unmap a multiple of {HUGE} bytes, from a multiple of that on",
            core.label()
        )));
    }
    Ok(())
}

/// Copies bytes in: a file of huge pages is written only through a mapping.
pub(crate) fn write(core: &Core, data: &[u8], offset: u64) -> Result<()> {
    let offset = wired::offset_in_memory(core, offset);
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
