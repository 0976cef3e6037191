//! Copies for a fork child. The parent makes them before it forks, without any lock of the library: a page of a controlled
//! object may have to be brought by the host, and that may take another thread of this process. The child moves them to where
//! the parent has the mapping.
//!
//! Whoever writes meanwhile, another thread or another process, may be in the copy or not, word by word. What the forking
//! thread wrote is in it. A paged copy is inherited by a child's child as all its own memory is; a wired one is copied again.

use crate::addresses::{ADDRESSES, Piece, PieceState, set_state, start_of};
use crate::inherit::{Inherit, left_out};
use crate::link::lock;
use crate::{Error, ErrorKind, Object, PAGE_SIZE_BYTES, PagerKind, Protection, Result, Translation};
use crate::{complain, copying, wired};
use commonhold_object::error::Doing;
use commonhold_object::{AddressMap, Region, pages_of};
use commonhold_sys::own_memory::{OwnMemory, Peek};
use commonhold_sys::{frames, memory};
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE_BYTES as usize;
/// So much is read at once.
const CHUNK: usize = 64 * PAGE;
/// So often the copies are made again of what another thread mapped anew meanwhile.
pub(crate) const TRIES: usize = 3;

/// What the child is to have of a region that the kernel does not give it.
pub(crate) struct Left {
    region: Region<Piece>,
    has: Has,
}

enum Has {
    /// Nothing, as was wished.
    Nothing,
    /// This copy.
    Copy(Copy),
    /// In the child: it has its copy.
    Placed,
    /// Nothing, for this reason.
    Failed(Error),
}

struct Copy {
    memory: OwnMemory,
    /// Runs of pages that could not be read, of which a touch is a signal here too: offset and length.
    lacking: Vec<(usize, usize)>,
}

/// Makes the copies that a child is to have, but for those that were made.
pub(crate) fn make(made: Vec<Left>) -> Vec<Left> {
    let wanted: Vec<Region<Piece>> = left_out(&lock(&ADDRESSES)).cloned().collect();
    let mut made = made;
    wanted
        .into_iter()
        .map(|region| match made.iter().position(|left| left.is_of(&region)) {
            Some(at) => made.swap_remove(at),
            None => Left::new(region),
        })
        .collect()
}

/// Whether these are what a child is to have of what is mapped now.
pub(crate) fn are_all(made: &[Left], map: &AddressMap<Piece>) -> bool {
    left_out(map).count() == made.len() && left_out(map).zip(made).all(|(region, left)| left.is_of(region))
}

/// What is not mapped as it was when it was copied is copied now, under all locks, if that takes no other thread.
pub(crate) fn settle(made: Vec<Left>, map: &AddressMap<Piece>) -> Vec<Left> {
    let mut made = made;
    left_out(map)
        .map(|region| match made.iter().position(|left| left.is_of(region)) {
            Some(at) => made.swap_remove(at),
            None if !region.value.is_served() => Left::new(region.clone()),
            None => {
                let why = Error::new(ErrorKind::Busy, "other threads went on mapping while this one forked");
                Left { region: region.clone(), has: Has::Failed(why) }
            }
        })
        .collect()
}

impl Left {
    fn new(region: Region<Piece>) -> Left {
        let is_there = region.value.state != PieceState::Leaving;
        let copy = (region.value.inherit == Inherit::Copy && is_there).then(|| copy_of(&region));
        let has = match copy {
            None => Has::Nothing,
            Some(Ok(copy)) => Has::Copy(copy),
            Some(Err(error)) => Has::Failed(error),
        };
        Left { region, has }
    }

    fn is_of(&self, other: &Region<Piece>) -> bool {
        let (mine, its) = (&self.region, &other.value);
        let place = |region: &Region<Piece>| (region.address, region.length, region.offset);
        let how = |piece: &Piece| (piece.state, piece.inherit);
        place(mine) == place(other)
            && how(&mine.value) == how(its)
            && Arc::ptr_eq(&mine.value.origin, &its.origin)
    }
}

/// Reads all of a region.
fn copy_of(region: &Region<Piece>) -> Result<Copy> {
    let piece = &region.value;
    let (core, length) = (piece.object(), region.length as usize);
    let no_memory = || format!("a fork child's copy of object {}, of {length} bytes", core.label());
    let memory = OwnMemory::new(length, core.options().reserves()).doing(no_memory())?;
    let mut copy = Copy { memory, lacking: Vec::new() };
    let source = Source::of(region)?;
    let mut buffer = vec![0; CHUNK.min(length)];
    for (from, to) in source.runs(region) {
        let mut at = from;
        while at < to {
            let wanted = CHUNK.min(to - at);
            let got = source.read(region, at, &mut buffer[..wanted])? / PAGE * PAGE;
            for (n, page) in buffer[..got].chunks(PAGE).enumerate() {
                // A page of zeros stays away.
                if page.iter().any(|byte| *byte != 0) {
                    copy.memory.put(at + n * PAGE, page);
                }
            }
            at += got;
            if got == 0 {
                copy.lacks(at, PAGE);
                at += PAGE;
            }
        }
    }
    if source.ends_at < length {
        copy.lacks(source.ends_at, length - source.ends_at);
    }
    if piece.origin.protection == Protection::Read {
        copy.memory.make_read_only().doing(no_memory())?;
    }
    Ok(copy)
}

/// How a region is read.
struct Source {
    peek: Peek,
    /// Read by mapping the object once more: its host brings what is not there, and knows why it cannot.
    from_object: Option<Object>,
    /// The object, or what is left of it, ends so far behind the region's beginning.
    ends_at: usize,
}

impl Source {
    fn of(region: &Region<Piece>) -> Result<Source> {
        let piece = &region.value;
        let (core, length) = (piece.object(), region.length as usize);
        let peek = Peek::new().doing("reading what a fork child gets a copy of")?;
        let from_object = piece.is_served().then(|| Object { core: core.clone() });
        let is_file_s_end = piece.state != PieceState::Copied && core.place().is_none();
        let stat = is_file_s_end.then(|| rustix::fs::fstat(core.fd()).ok()).flatten();
        let end = stat.map_or(u64::MAX, |stat| stat.st_size.cast_unsigned());
        let end = end.checked_next_multiple_of(PAGE_SIZE_BYTES).unwrap_or(u64::MAX);
        let ends_at = usize::try_from(end.saturating_sub(region.offset)).map_or(length, |at| at.min(length));
        Ok(Source { peek, from_object, ends_at })
    }

    /// The parts of a region, by offset, in which there is something to read: of anonymous memory what has pages.
    fn runs(&self, region: &Region<Piece>) -> Vec<(usize, usize)> {
        let (piece, core) = (&region.value, region.value.object());
        let options = core.options();
        let may_have_holes = options.pager == PagerKind::Anonymous
            && options.translation == Translation::Paged
            && !(piece.is_served() || piece.origin.has_own_pages() || piece.state == PieceState::Copied);
        let whole = vec![(0, self.ends_at)];
        if !may_have_holes {
            return whole;
        }
        let (first, end) = (region.offset, region.offset + self.ends_at as u64);
        let mut runs = Vec::new();
        let found = frames::runs_of_memory(core.fd(), end, |offset, length| {
            let (from, to) = (offset.max(first), (offset + length).min(end));
            if from < to {
                runs.push(((from - first) as usize, (to - first) as usize));
            }
        });
        found.map_or(whole, |()| runs)
    }

    /// Reads from an offset on; gives how many bytes. None: there is nothing, and a touch is a signal.
    fn read(&self, region: &Region<Piece>, at: usize, buffer: &mut [u8]) -> Result<usize> {
        let from_object = |object: &Object, buffer: &mut [u8]| {
            let size = pages_of(object.size_by_now()?) * PAGE_SIZE_BYTES;
            let left = size.saturating_sub(region.offset + at as u64).min(buffer.len() as u64) as usize;
            copying::read_served(object, &mut buffer[..left], region.offset + at as u64).map(|()| left)
        };
        match &self.from_object {
            Some(object) if !region.value.origin.has_own_pages() => return from_object(object, buffer),
            _ => {}
        }
        let address = (region.address as *const u8).wrapping_add(at);
        let got = self.peek.read(address, buffer).doing("reading what a fork child gets a copy of")?;
        match &self.from_object {
            // What the kernel cannot bring in is not this process's own.
            Some(object) if got == 0 => from_object(object, &mut buffer[..PAGE]),
            _ => Ok(got),
        }
    }
}

impl Copy {
    fn lacks(&mut self, at: usize, length: usize) {
        match self.lacking.last_mut() {
            Some((first, so_far)) if *first + *so_far == at => *so_far += length,
            _ => self.lacking.push((at, length)),
        }
    }
}

/// In a fork child, first of all and without allocating: takes the addresses, so that nothing else comes there, and moves the
/// copies to them. Those of arenas are reserved already.
pub(crate) fn put_in_place(all: &mut [Left]) {
    for left in all {
        let (address, length) = (start_of(left.region.address), left.region.length as usize);
        let reserved = match wired::reserved(&left.region.value) {
            Some(true) => Ok(()),
            Some(false) => Err(std::io::Error::from_raw_os_error(libc::EEXIST)),
            None => memory::reserve_exactly(address, length),
        };
        let has = std::mem::replace(&mut left.has, Has::Placed);
        left.has = match (has, reserved) {
            (Has::Copy(copy), Ok(())) => match copy.move_to(address) {
                Ok(()) => Has::Placed,
                Err(error) => Has::Failed(Error::io("putting the copy in its place", &error)),
            },
            (Has::Copy(_), Err(error)) => Has::Failed(Error::io("its addresses are in use", &error)),
            (other, _) => other,
        };
    }
}

impl Copy {
    fn move_to(self, address: std::ptr::NonNull<u8>) -> std::io::Result<()> {
        let Copy { memory: copy, lacking } = self;
        // SAFETY: the caller has reserved as many bytes from there on.
        unsafe { copy.move_over(address) }?;
        for (at, length) in lacking {
            let at = std::ptr::NonNull::new(address.as_ptr().wrapping_add(at)).unwrap_or(address);
            // SAFETY: within what was moved there just now.
            unsafe { memory::make_inaccessible(at, length) }?;
        }
        Ok(())
    }
}

/// In a fork child: what it has of them is entered. Gives what is no more, to be dropped without any lock.
pub(crate) fn enter(all: Vec<Left>, map: &mut AddressMap<Piece>) -> Vec<Region<Piece>> {
    let mut gone = Vec::new();
    for Left { region, has } in all {
        let entered = match has {
            Has::Placed => settle_copy(&region, map),
            Has::Nothing | Has::Copy(_) => Ok(false),
            Has::Failed(error) => Err(error),
        };
        let is_there = entered.unwrap_or_else(|error| {
            let name = region.value.object().label();
            complain(&format!(
                "a fork child has no copy of object {name}, and a touch of it is SIGSEGV: {error}"
            ));
            false
        });
        if !is_there {
            gone.extend(map.remove(region.address, region.length).unwrap_or_default());
        }
        gone.push(region);
    }
    gone
}

/// A copy is where it belongs: of a wired object all its pages are, too, from now on.
fn settle_copy(region: &Region<Piece>, map: &mut AddressMap<Piece>) -> Result<bool> {
    let (address, length) = (start_of(region.address), region.length as usize);
    let settled = match region.value.is_wired() {
        true => wired::lock_in_memory(address, length).and_then(|()| {
            memory::set_inherited(address, length, false).doing("keeping the copy from the child's children")
        }),
        false => Ok(()),
    };
    if let Err(error) = settled {
        // If that fails, too, the copy stays there: whole, and not locked. The error says more.
        // SAFETY: the copy was moved there, and no code of the child has run since. Its memory goes.
        let _ = unsafe { memory::replace_with_reservation(address, length) };
        return Err(error);
    }
    set_state(map, region, PieceState::Copied);
    Ok(true)
}
