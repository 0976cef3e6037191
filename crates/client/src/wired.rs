//! Wired objects: no fault ever happens in them. An arena is mapped once, whole, with all its pages in this process's tables, and
//! every object in it is there then: the fiftieth costs no mapping (Bernadat & Black, section 6). Without an arena an object is of
//! ordinary pages, which are locked.

use crate::addresses::{Origin, Piece, start_of};
use crate::link::lock;
use crate::object::Core;
use crate::{Error, ErrorKind, MapOptions, Protection, Result, Sharing, complain};
use commonhold_object::error::Doing;
use commonhold_object::{AddressMap, Place};
use commonhold_sys::memory::{self, Wish};
use commonhold_tables::Attachment;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};

/// Those that this process has mapped.
static ARENAS: LazyLock<Mutex<Vec<Weak<Arena>>>> = LazyLock::new(Mutex::default);

/// An arena as this process has it, for as long as something in it is mapped.
#[derive(Debug)]
pub(crate) struct Arena {
    attached: Attachment,
    bytes: u64,
    /// Of its memory, which no other has.
    device: u64,
    inode: u64,
    writes: bool,
}

/// What keeps a wired mapping what it is.
#[derive(Debug)]
pub(crate) enum Hold {
    /// It is a part of this.
    Arena { _arena: Arc<Arena> },
    /// It is locked, of ordinary pages.
    Locked,
}

pub(crate) fn arenas() -> MutexGuard<'static, Vec<Weak<Arena>>> {
    lock(&ARENAS)
}

/// Refuses a mapping that is not to be had of a wired object.
pub(crate) fn check(core: &Core, options: &MapOptions) -> Result<()> {
    if !core.options().is_wired() {
        return Ok(());
    }
    let refused = |what: &str| Err(Error::invalid(format!("object {} is wired: {what}", core.label())));
    if options.sharing == Sharing::Private {
        return refused("a private copy would be made page by page, by faults; map it shared");
    }
    if core.place().is_some() && options.flags.fixed {
        return refused("it lies where its arena is mapped: leave the fixed address out");
    }
    Ok(())
}

/// Maps an object, or a part of it, and sees to it that all of that is there.
pub(crate) fn attach(
    core: &Core,
    options: &MapOptions,
    length: usize,
    wish: Wish,
) -> Result<(NonNull<u8>, Hold)> {
    let Some(place) = core.place() else { return attach_own(core, options, length, wish) };
    let arena = arena_of(core, place, options.protection == Protection::ReadWrite)?;
    let start = place.offset_bytes + options.offset;
    let inside = start.checked_add(length as u64).is_some_and(|end| end <= arena.bytes);
    let address = usize::try_from(start)
        .ok()
        .filter(|_| inside)
        .and_then(|start| NonNull::new(arena.attached.address().as_ptr().wrapping_add(start)));
    let address = address.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("object {} does not lie in its arena", core.label()))
    })?;
    Ok((address, Hold::Arena { _arena: arena }))
}

/// The arena of an object, which this process may have mapped already.
fn arena_of(core: &Core, place: Place, writes: bool) -> Result<Arc<Arena>> {
    let doing = || format!("mapping the arena of object {}", core.label());
    let stat = rustix::fs::fstat(core.fd()).map_err(std::io::Error::from).doing(doing())?;
    let mut arenas = arenas();
    arenas.retain(|arena| arena.strong_count() > 0);
    let is_it =
        |arena: &Arc<Arena>| (arena.device, arena.inode, arena.writes) == (stat.st_dev, stat.st_ino, writes);
    if let Some(found) = arenas.iter().filter_map(Weak::upgrade).find(is_it) {
        return Ok(found);
    }
    let attached = commonhold_tables::attach(core.fd(), place.arena_bytes, None, writes).doing(doing())?;
    attached.fill(0, place.arena_bytes).doing(doing())?;
    let arena = Arena { attached, bytes: place.arena_bytes, device: stat.st_dev, inode: stat.st_ino, writes };
    let arena = Arc::new(arena);
    arenas.push(Arc::downgrade(&arena));
    Ok(arena)
}

fn attach_own(core: &Core, options: &MapOptions, length: usize, wish: Wish) -> Result<(NonNull<u8>, Hold)> {
    let doing = || format!("mapping object {}", core.label());
    let address = memory::map(core.fd(), options.offset, length, wish).doing(doing())?;
    lock_in_memory(address, length).map(|()| (address, Hold::Locked)).inspect_err(|_| {
        // SAFETY: mapped just now; nobody knows of it.
        let _ = unsafe { memory::unmap(address, length) };
    })
}

/// Locks what is mapped there, which brings its pages in.
fn lock_in_memory(address: NonNull<u8>, length: usize) -> Result<()> {
    memory::lock(address, length).map_err(|error| {
        let soft = memory::lock_limit();
        let what = format!(
            "{length} bytes of ordinary pages cannot be locked in memory ({error}); this process may lock {soft} bytes: raise its \
             limit (ulimit -l), or give the machine huge pages before the object is created (sysctl vm.nr_hugepages)"
        );
        Error::new(ErrorKind::NoSpace, what)
    })
}

/// A fork child has no page in its tables yet, and no lock: it gets all of them before it goes on.
pub(crate) fn populate_again(arenas: &[Weak<Arena>], map: &AddressMap<Piece>) {
    let complain = |what: &str| complain(&format!("a fork child may fault in wired memory: {what}"));
    for arena in arenas.iter().filter_map(Weak::upgrade) {
        arena.attached.fill(0, arena.bytes).unwrap_or_else(|error| complain(&error.to_string()));
    }
    let is_locked = |origin: &Origin| matches!(origin.wired.get(), Some(Hold::Locked));
    for region in map.iter().filter(|region| is_locked(&region.value.origin)) {
        let locked = lock_in_memory(start_of(region.address), region.length as usize);
        locked.unwrap_or_else(|error| complain(&error.message));
    }
}

/// What of an object's memory a call is about: its place begins somewhere in that.
pub(crate) fn offset_in_memory(core: &Core, offset: u64) -> u64 {
    core.place().map_or(offset, |place| place.offset_bytes + offset)
}

/// Whether its memory is a file of huge pages, which is written only through a mapping.
pub(crate) fn is_of_huge_pages(core: &Core) -> bool {
    core.place().is_some() || core.options().is_of_huge_pages()
}
