//! The classical calls, by address: any range that one or several mappings of this process cover.
//!
//! Addresses and lengths must be page-aligned, but a range that reaches into the last page of a mapping may end
//! anywhere in it (an object's size need not be a multiple of the page size). A range may span several
//! mappings; an address in it that shows no object is an error, and then nothing was done.

use crate::addresses::{self, Piece};
use crate::mapping::Prepared;
use crate::{
    Error, Inherit, MapFlags, MapOptions, Object, PAGE_SIZE_BYTES, PageState, Protection, Result, Sharing,
    Watch, inherit, watch,
};
use commonhold_object::{ErrorKind, Region};
use commonhold_sys::memory;

/// Maps part of an object; it stays mapped until [`unmap`].
pub fn map(
    hint: *mut u8,
    length: usize,
    protection: Protection,
    sharing: Sharing,
    flags: MapFlags,
    object: &Object,
    offset: u64,
) -> Result<*mut u8> {
    let options = MapOptions {
        hint: hint as usize,
        offset,
        length: Some(length as u64),
        protection,
        sharing,
        flags,
        inherit: Inherit::Share,
    };
    Ok(Prepared::new(object, &options)?.make()?.into_raw())
}

/// Unmaps the range: mappings shrink, split or go. Nothing may use those addresses any more.
///
/// When it was the last mapping of modified pages of a controlled object, they are stored. An error of that
/// (a full disk) is returned, and the addresses are unmapped all the same; the data stays with the host, and a
/// sync of the object tries again.
pub fn unmap(address: *mut u8, length: usize) -> Result<()> {
    addresses::unmap(address as u64, length as u64)
}

/// Makes the range what is stored; gives the number of pages written.
pub fn sync(address: *mut u8, length: usize) -> Result<u64> {
    sync_pieces(address, length, false)
}

/// As [`sync`], at a true instant (freezable objects): of each mapping on its own.
pub fn sync_frozen(address: *mut u8, length: usize) -> Result<u64> {
    sync_pieces(address, length, true)
}

fn sync_pieces(address: *mut u8, length: usize, freeze: bool) -> Result<u64> {
    let mut pages = 0;
    for piece in pieces(address, length)? {
        let core = piece.value.object();
        if !core.is_controlled() && !piece.value.origin.has_own_pages() {
            memory::store(addresses::start_of(piece.address), piece.length as usize)
                .map_err(|error| Error::io(format_args!("storing object {}", core.label()), &error))?;
        }
        pages += within_object(&piece, |offset, length| core.sync(offset, length, freeze))?;
    }
    Ok(pages)
}

/// Holds the pages in memory and away from the pager; gives whether all are pinned against swap too. It keeps nobody out:
/// [`Mutex`](crate::Mutex) does.
pub fn lock(address: *mut u8, length: usize) -> Result<bool> {
    let pieces = pieces(address, length)?;
    pieces.iter().try_for_each(|piece| piece.value.object().refuse_lock_if_direct())?;
    let mut pinned = true;
    for piece in &pieces {
        pinned &= within_object(piece, |offset, length| piece.value.object().lock(offset, length))?;
    }
    Ok(pinned)
}

/// Lets them go.
pub fn unlock(address: *mut u8, length: usize) -> Result<()> {
    let pieces = pieces(address, length)?;
    pieces.iter().try_for_each(|piece| piece.value.object().refuse_lock_if_direct())?;
    for piece in &pieces {
        within_object(piece, |offset, length| piece.value.object().unlock(offset, length))?;
    }
    Ok(())
}

/// Begins to bring the pages in, without waiting.
pub fn prefetch(address: *mut u8, length: usize) -> Result<()> {
    for piece in pieces(address, length)? {
        within_object(&piece, |offset, length| piece.value.object().prefetch(offset, length))?;
    }
    Ok(())
}

/// Watches the bytes at these addresses, which need not be whole pages: see [`Watch`].
pub fn watch(address: *mut u8, length: usize) -> Result<Watch> {
    watch::at(address as usize, length)
}

/// Wakes all who watch any of the bytes at these addresses: see [`Object::notify`].
pub fn notify(address: *mut u8, length: usize) -> Result<()> {
    watch::notify_at(address as usize, length)
}

/// From now on a fork child has that of the range: no page of it changes.
pub fn inherit(address: *mut u8, length: usize, how: Inherit) -> Result<()> {
    inherit::change(address as u64, length as u64, how)
}

/// State of each page, and whether it is locked.
pub fn incore(address: *mut u8, length: usize) -> Result<Vec<(PageState, bool)>> {
    let mut states = Vec::with_capacity(length.div_ceil(PAGE_SIZE_BYTES as usize));
    for piece in pieces(address, length)? {
        states.extend(piece.value.object().incore(piece.offset, piece.length)?);
    }
    Ok(states)
}

fn pieces(address: *mut u8, length: usize) -> Result<Vec<Region<Piece>>> {
    let pieces = addresses::covering(address as u64, length as u64)?;
    inherit::refuse_copies(&pieces)?;
    Ok(pieces)
}

/// Does something with the part of the object that a piece shows. Where another process shrank the object, the
/// first try is refused; the second is for what is left.
fn within_object<T>(piece: &Region<Piece>, act: impl Fn(u64, u64) -> Result<T>) -> Result<T> {
    let core = piece.value.object();
    match act(piece.offset, piece.length) {
        Err(error) if error.kind == ErrorKind::Invalid => {
            let (offset, length) = core.clip(piece.offset, piece.length)?;
            if length == piece.length { Err(error) } else { act(offset, length) }
        }
        other => other,
    }
}
