//! The address map of this process: which of its addresses show which object, over all hosts.
//!
//! It alone decides what is mapped. A [`Mapping`](crate::Mapping) only remembers what it once was, so that a
//! part unmapped by address and one unmapped through the mapping are the same thing.

use crate::link::{Call, Shared, lock};
use crate::object::Core;
use crate::{
    Error, ErrorKind, Inherit, MapFlags, MappingId, PAGE_SIZE_BYTES, Protection, Result, Sharing, in_thread,
    segments, wired,
};
use commonhold_object::error::Doing;
use commonhold_object::wire::Request;
use commonhold_object::{AddressMap, Region, limits};
use commonhold_sys::memory::{self, Wish};
use commonhold_sys::userfaultfd::Kind;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// Every mapping of this process.
pub(crate) static ADDRESSES: LazyLock<Mutex<AddressMap<Piece>>> =
    LazyLock::new(|| Mutex::new(AddressMap::new()));

/// What a mapping was made as; its pieces share it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) object: Arc<Core>,
    pub(crate) mapping: MappingId,
    pub(crate) protection: Protection,
    pub(crate) sharing: Sharing,
    pub(crate) flags: MapFlags,
    /// The process that serves its own faults of it; 0: the host does.
    pub(crate) served_by: u32,
    /// With shared page tables, bytes of addresses that it takes: whole gigabytes. Else zero.
    pub(crate) takes: u64,
    /// Of a wired object, what its memory is a part of.
    pub(crate) wired: OnceLock<wired::Hold>,
    /// How, once the host has agreed.
    pub(crate) service: OnceLock<in_thread::Service>,
}

/// What is known of a run of addresses: a mapping, or what is left of one.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) origin: Arc<Origin>,
    pub(crate) state: PieceState,
    /// What a fork child has of it.
    pub(crate) inherit: Inherit,
}

/// Stages of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceState {
    /// In use.
    Mapped,
    /// A thread is unmapping it.
    Leaving,
    /// The host after a crash refused it: touches raise SIGBUS.
    Lost,
    /// In a fork child: memory of this process alone, a copy of what its parent had. It is no object's.
    Copied,
}

impl Origin {
    /// How it is mapped.
    pub(crate) fn wish(&self, hint: *mut u8, fixed: bool) -> Wish {
        let controlled = self.object.is_controlled();
        // The host serves readers of a controlled object through a private mapping of a read-only descriptor.
        let private = self.sharing == Sharing::Private || (controlled && !self.object.access().writes());
        Wish {
            hint,
            fixed,
            write: self.protection == Protection::ReadWrite,
            private,
            not_inherited: controlled,
            controlled,
        }
    }

    /// How its faults come to be known.
    pub(crate) fn kind(&self) -> Kind {
        if self.object.options().stops_writers() {
            Kind::Synchronous
        } else if self.served_by == std::process::id() {
            Kind::InThread
        } else {
            Kind::Asynchronous
        }
    }

    /// Whether pages of this process's own may lie in it.
    pub(crate) fn has_own_pages(&self) -> bool {
        self.sharing == Sharing::Private && self.protection == Protection::ReadWrite
    }
}

impl Piece {
    pub(crate) fn object(&self) -> &Arc<Core> {
        &self.origin.object
    }

    pub(crate) fn kind(&self) -> Kind {
        self.origin.kind()
    }

    /// Whether a host serves its faults.
    pub(crate) fn is_served(&self) -> bool {
        self.object().is_controlled() && self.state != PieceState::Copied
    }

    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        std::ptr::eq(self.object().shared(), shared)
    }
}

/// The first address of a region as a pointer; regions never start at null.
pub(crate) fn start_of(address: u64) -> NonNull<u8> {
    NonNull::new(address as *mut u8).unwrap_or(NonNull::dangling())
}

/// Refuses one mapping too many.
pub(crate) fn check_room(more: usize) -> Result<()> {
    refuse_too_many(lock(&ADDRESSES).len() + more)
}

pub(crate) fn refuse_too_many(count: usize) -> Result<()> {
    if count as u64 > limits::MAPPINGS_PER_CLIENT {
        return Err(Error::new(
            ErrorKind::TooMany,
            format!(
                "{count} mappings are too many: the limit of a process is {}; unmap some, or map larger parts",
                limits::MAPPINGS_PER_CLIENT
            ),
        ));
    }
    Ok(())
}

/// Adds a mapping that was just made. What was known of its addresses is no more: the kernel gives no address that is
/// in use, so the program unmapped them behind the library's back.
pub(crate) fn insert(
    address: NonNull<u8>,
    length: usize,
    offset: u64,
    origin: Arc<Origin>,
    inherit: Inherit,
) -> Result<()> {
    let value = Piece { origin, state: PieceState::Mapped, inherit };
    let region = Region { address: address.as_ptr() as u64, length: length as u64, offset, value };
    let mut map = lock(&ADDRESSES);
    let gone = map.remove(region.address, region.length)?;
    let added = map.insert(region);
    drop(map);
    // The last piece of a mapping may have another mapping behind it, whose end takes the lock.
    drop(gone);
    added
}

/// The pieces that cover the range, cut to it, in order. A gap is an error that names its address.
pub(crate) fn covering(address: u64, length: u64) -> Result<Vec<Region<Piece>>> {
    let map = lock(&ADDRESSES);
    covering_in(&map, address, whole_pages(&map, address, length)?)
}

/// The length in whole pages. Only in the last page of a mapping may a range end in the middle of a page.
pub(crate) fn whole_pages(map: &AddressMap<Piece>, address: u64, length: u64) -> Result<u64> {
    let last = map.find(address.saturating_add(length.saturating_sub(1)));
    let page = last.map_or(PAGE_SIZE_BYTES, |region| segments::page_bytes(&region.value));
    let rounded = length.checked_next_multiple_of(page).unwrap_or(u64::MAX);
    let end = address.saturating_add(rounded);
    let at_an_end = map.find(end).is_none_or(|region| region.address == end);
    let length = if at_an_end { rounded } else { length };
    AddressMap::<Piece>::check_range(address, length)?;
    Ok(length)
}

pub(crate) fn covering_in(map: &AddressMap<Piece>, address: u64, length: u64) -> Result<Vec<Region<Piece>>> {
    let end = address + length;
    let mut at = address;
    let mut pieces = Vec::new();
    for region in map.overlapping(address, length) {
        if region.address > at {
            break;
        }
        pieces.push(cut(region, at, end));
        at = region.end();
    }
    if at < end {
        return Err(Error::new(ErrorKind::NotFound, format!("no object is mapped at address {at:#x}")));
    }
    Ok(pieces)
}

pub(crate) fn cut(region: &Region<Piece>, from: u64, to: u64) -> Region<Piece> {
    let (start, end) = (region.address.max(from), region.end().min(to));
    Region {
        address: start,
        length: end - start,
        offset: region.offset + (start - region.address),
        value: region.value.clone(),
    }
}

/// The controlled mappings of one host, those that a thread is unmapping included.
pub(crate) fn controlled_pieces(shared: &Shared) -> Vec<Region<Piece>> {
    let map = lock(&ADDRESSES);
    let wanted = |r: &&Region<Piece>| {
        r.value.is_of(shared) && r.value.is_served() && r.value.state != PieceState::Lost
    };
    map.iter().filter(wanted).cloned().collect()
}

/// Ends what is mapped in the range; all of it must be.
pub(crate) fn unmap(address: u64, length: u64) -> Result<()> {
    take_out(address, length, None)
}

/// Ends what is left of one mapping in the range.
pub(crate) fn unmap_of(origin: &Arc<Origin>, address: u64, length: u64) -> Result<()> {
    take_out(address, length, Some(origin))
}

fn take_out(address: u64, length: u64, only: Option<&Arc<Origin>>) -> Result<()> {
    let mut map = lock(&ADDRESSES);
    let length = whole_pages(&map, address, length)?;
    let pieces = match only {
        None => covering_in(&map, address, length)?,
        Some(origin) => map
            .overlapping(address, length)
            .filter(|r| Arc::ptr_eq(&r.value.origin, origin) && r.value.state != PieceState::Leaving)
            .map(|r| cut(r, address, address + length))
            .collect(),
    };
    if let Some(busy) = pieces.iter().find(|p| p.value.state == PieceState::Leaving) {
        let what = format!("the mapping at {:#x} is being unmapped by another thread", busy.address);
        return Err(Error::new(ErrorKind::Busy, what));
    }
    pieces.iter().try_for_each(|piece| segments::check_cut(&piece.value, piece.offset, piece.length))?;
    refuse_too_many(map.len_after_remove(address, length))?;
    let serving: Vec<Arc<Origin>> =
        pieces.iter().map(|p| &p.value.origin).filter(|o| o.service.get().is_some()).cloned().collect();
    let mut left = Vec::new();
    let mut result = Ok(());
    for piece in pieces {
        if piece.value.object().is_controlled() && piece.value.state == PieceState::Mapped {
            set_state(&mut map, &piece, PieceState::Leaving);
            left.push(piece);
        } else {
            result = result.and(end(&mut map, &piece));
        }
    }
    drop(map);
    for piece in left {
        let told = leave(&piece);
        let ended = end(&mut lock(&ADDRESSES), &piece);
        result = result.and(told).and(ended);
    }
    for origin in serving {
        let gone = !lock(&ADDRESSES).iter().any(|r| Arc::ptr_eq(&r.value.origin, &origin));
        if let (true, Some(service)) = (gone, origin.service.get()) {
            service.end();
        }
    }
    result
}

/// Forgets what is left of one mapping in the range, whatever is there by now; the host serves it no longer.
pub(crate) fn give_up(origin: &Arc<Origin>, address: u64, length: u64) -> Result<()> {
    let mut map = lock(&ADDRESSES);
    let is_it =
        |r: &&Region<Piece>| Arc::ptr_eq(&r.value.origin, origin) && r.value.state != PieceState::Leaving;
    let pieces: Vec<_> =
        map.overlapping(address, length).filter(is_it).map(|r| cut(r, address, address + length)).collect();
    let mut gone = Vec::new();
    for piece in &pieces {
        gone.push(map.remove(piece.address, piece.length)?);
    }
    drop(map);
    drop(gone); // as in `insert`
    let shared = origin.object.shared();
    pieces.iter().filter(|piece| piece.value.is_served()).try_for_each(|piece| {
        let request = Request::Unmap { address: piece.address, length: piece.length };
        shared.call(Call::new(&request)).map(drop)
    })
}

pub(crate) fn set_state(map: &mut AddressMap<Piece>, piece: &Region<Piece>, state: PieceState) {
    if map.remove(piece.address, piece.length).is_ok() {
        let value = Piece { state, ..piece.value.clone() };
        // The addresses were just taken out, so nothing can overlap.
        let _ = map.insert(Region { value, ..piece.clone() });
    }
}

/// Unmaps a piece and takes it out of the map, in one step under the map's lock: else another thread could be
/// given the same addresses in between.
fn end(map: &mut AddressMap<Piece>, piece: &Region<Piece>) -> Result<()> {
    let length = piece.length.max(piece.value.origin.takes);
    if let Some(wired::Hold::Arena(_)) = piece.value.origin.wired.get() {
        if piece.value.state == PieceState::Copied {
            // SAFETY: as below. The addresses stay the arena's, of which it is a part.
            let result =
                unsafe { memory::replace_with_reservation(start_of(piece.address), length as usize) };
            result.doing(format_args!("unmapping {:#x}..{:#x}", piece.address, piece.end()))?;
        }
        return map.remove(piece.address, piece.length).map(drop); // the arena goes with the last that is in it
    }
    // SAFETY: the range is a mapping of ours; whoever unmaps it promises that nobody uses it any more.
    let result = unsafe { memory::unmap(start_of(piece.address), length as usize) };
    result.doing(format_args!("unmapping {:#x}..{:#x}", piece.address, piece.end()))?;
    map.remove(piece.address, piece.length).map(drop)
}

/// Lets the host see what was written to a controlled piece, for the last time.
fn leave(piece: &Region<Piece>) -> Result<()> {
    let shared = piece.value.object().shared();
    // SAFETY: whoever unmaps a range promises that nobody uses it any more. Without access, no write can come
    // after the host's last look, and no read can meet pages that the host no longer serves.
    let closed = unsafe { memory::make_inaccessible(start_of(piece.address), piece.length as usize) };
    closed.doing(format_args!("closing {:#x}..{:#x}", piece.address, piece.end()))?;
    if piece.value.origin.flags.lock {
        let object = piece.value.object().id();
        let _ =
            shared.call(Call::new(&Request::Unlock { object, offset: piece.offset, length: piece.length }));
    }
    let request = Request::Unmap { address: piece.address, length: piece.length };
    shared.call(Call::new(&request)).map(drop)
}

/// Drops page table entries, so that pages which failed once are asked for again.
pub(crate) fn heal(shared: &Shared, address: u64, length: u64) {
    if AddressMap::<Piece>::check_range(address, length).is_err() {
        return;
    }
    let map = lock(&ADDRESSES);
    for region in map.overlapping(address, length) {
        let ours = region.value.is_of(shared) && region.value.object().is_controlled();
        // A page of the process's own would be lost: such a mapping stays as it is.
        if ours && region.value.state == PieceState::Mapped && !region.value.origin.has_own_pages() {
            let part = cut(region, address, address + length);
            // SAFETY: a shared mapping, or a private one that can hold no page of this process's own.
            let _ = unsafe { memory::forget_entries(start_of(part.address), part.length as usize) };
        }
    }
}

/// Makes every touch of a mapping that no host serves any more raise SIGBUS: never a page of zeroes.
pub(crate) fn bury(piece: &Region<Piece>) {
    let mut map = lock(&ADDRESSES);
    let same = |r: &Region<Piece>| Arc::ptr_eq(&r.value.origin, &piece.value.origin);
    if !map.find(piece.address).is_some_and(|r| same(r) && r.end() >= piece.end()) {
        return;
    }
    // SAFETY: the range is a mapping of ours, whose pages no host vouches for any more.
    if unsafe { memory::replace_with_nothing(start_of(piece.address), piece.length as usize) }.is_ok() {
        set_state(&mut map, piece, PieceState::Lost);
    }
}
