//! What a fork child has of a mapping: the same object, a copy of its bytes, or nothing (`docs/MAPPING.md`, Inheritance).
//!
//! It is a property of addresses, as with Mach's vm_inherit and BSD's minherit: a range of a mapping may have another than the
//! rest. The kernel gives a child only what it is to share. What it is to have otherwise, [`inheriting`](crate::inheriting)
//! puts where the kernel left nothing; so a child that runs no fork handlers has nothing there, and never what is shared.

use crate::addresses::{ADDRESSES, Origin, Piece, PieceState, start_of};
use crate::addresses::{covering_in, cut, refuse_too_many, whole_pages};
use crate::image::{Image, included};
use crate::link::lock;
use crate::{Error, ErrorKind, Result, segments, wired};
use commonhold_object::error::Doing;
use commonhold_object::{AddressMap, Region};
use commonhold_sys::memory;
use std::sync::Arc;

/// What a fork child has of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inherit {
    /// The same object.
    #[default]
    Share,
    /// The bytes as they are while the parent forks, which from then on are the child's alone.
    Copy,
    /// Nothing: a touch is SIGSEGV.
    None,
}

impl Piece {
    /// Whether the kernel is not to give it to a child: what the child has of it comes from this library.
    pub(crate) fn is_left_out(&self) -> bool {
        match self.state {
            // A wired copy is copied at once: pages that are copied later are copied by a fault.
            PieceState::Copied => self.inherit == Inherit::None || self.is_wired(),
            _ => self.object().is_controlled() || self.inherit != Inherit::Share,
        }
    }

    /// Whether it never faults.
    pub(crate) fn is_wired(&self) -> bool {
        self.object().options().is_wired()
    }
}

/// The error of a call that is for objects.
pub(crate) fn is_a_copy(address: u64) -> Error {
    let what = format!(
        "what is at address {address:#x} is no object's, but a copy of this process's own, made when its parent forked"
    );
    Error::new(ErrorKind::NotFound, what)
}

/// Refuses pieces that are no object's.
pub(crate) fn refuse_copies(pieces: &[Region<Piece>]) -> Result<()> {
    match pieces.iter().find(|piece| piece.value.state == PieceState::Copied) {
        Some(copied) => Err(is_a_copy(copied.address)),
        None => Ok(()),
    }
}

/// Changes it for a range; all of it must be mapped.
pub(crate) fn change(address: u64, length: u64, how: Inherit) -> Result<()> {
    change_in(address, length, None, how)
}

/// Changes it for what is left of one mapping in the range.
pub(crate) fn change_of(origin: &Arc<Origin>, address: u64, length: u64, how: Inherit) -> Result<()> {
    change_in(address, length, Some(origin), how)
}

fn change_in(address: u64, length: u64, only: Option<&Arc<Origin>>, how: Inherit) -> Result<()> {
    let mut map = lock(&ADDRESSES);
    let length = whole_pages(&map, address, length)?;
    let pieces = match only {
        None => covering_in(&map, address, length).map_err(|error| say_of_images(error, address))?,
        Some(origin) => {
            let is_it = |r: &&Region<Piece>| Arc::ptr_eq(&r.value.origin, origin);
            map.overlapping(address, length)
                .filter(is_it)
                .map(|r| cut(r, address, address + length))
                .collect()
        }
    };
    for piece in &pieces {
        check(piece, how)?;
    }
    refuse_too_many(map.len_after_remove(address, length) + pieces.len())?;
    let changed: Vec<Region<Piece>> = pieces
        .iter()
        .map(|piece| Region { value: Piece { inherit: how, ..piece.value.clone() }, ..piece.clone() })
        .collect();
    let arenas = wired::to_change(&map, &changed, how)?;
    tell_kernel(&pieces, &changed)?;
    arenas.into_iter().try_for_each(|arena| arena.set_inherited(how == Inherit::Share))?;
    for piece in changed {
        // The old value of the piece lives on in `pieces`, so that nothing ends under the lock.
        map.remove(piece.address, piece.length)?;
        map.insert(piece)?;
    }
    drop(map);
    drop(pieces);
    Ok(())
}

/// What is there may be an image's.
fn say_of_images(error: Error, address: u64) -> Error {
    let in_it = |image: &Image| {
        let start = image.base();
        (start..start + image.bytes()).contains(&address)
    };
    match included().into_iter().find(in_it) {
        Some(image) => {
            let what = format!(
                "at address {address:#x} is image {}@{}, which nobody writes: children share it, and it is never copied",
                image.name(),
                image.version()
            );
            Error::new(ErrorKind::Unsupported, what)
        }
        None => error,
    }
}

fn check(piece: &Region<Piece>, how: Inherit) -> Result<()> {
    let name = piece.value.object().label();
    if piece.value.state == PieceState::Leaving {
        let what = format!("the mapping at {:#x} is being unmapped by another thread", piece.address);
        return Err(Error::new(ErrorKind::Busy, what));
    }
    if how == Inherit::Share && piece.value.state == PieceState::Copied {
        return Err(Error::invalid(format!(
            "the copy of object {name} that this process has is its own, and a child cannot share it: leave it a copy, or open \
             the object"
        )));
    }
    if how != Inherit::Share && piece.value.origin.takes > 0 {
        return Err(Error::invalid(format!(
            "the page tables of object {name} are shared by all processes, a child's too: map it by page tables of this \
             process's own (own_tables)"
        )));
    }
    segments::check_cut(&piece.value, piece.offset, piece.length)
}

/// Says to the kernel which of them children get. If it refuses, all are as they were.
fn tell_kernel(before: &[Region<Piece>], after: &[Region<Piece>]) -> Result<()> {
    let tell = |piece: &Region<Piece>| {
        let (address, length) = (start_of(piece.address), piece.length as usize);
        memory::set_inherited(address, length, !piece.value.is_left_out())
    };
    let pairs = before.iter().zip(after);
    let differ = |(old, new): &(&Region<Piece>, &Region<Piece>)| {
        old.value.is_left_out() != new.value.is_left_out() && !wired::is_part_of_arena(&new.value)
    };
    let to_tell: Vec<_> = pairs.filter(differ).collect();
    for (done, (_, new)) in to_tell.iter().enumerate() {
        if let Err(error) = tell(new) {
            for (old, _) in &to_tell[..=done] {
                let _ = tell(old); // it was so before, and needs no more mappings than there were
            }
            let text = format!("saying what a child has of {:#x}..{:#x}", new.address, new.end());
            return Err(error).doing(text);
        }
    }
    Ok(())
}

/// The regions of which a child has what this library gives it, and not what the kernel does; those that it shares are not
/// among them.
pub(crate) fn left_out(map: &AddressMap<Piece>) -> impl Iterator<Item = &Region<Piece>> {
    map.iter().filter(|region| {
        let piece = &region.value;
        piece.state != PieceState::Lost && piece.inherit != Inherit::Share && piece.is_left_out()
    })
}
