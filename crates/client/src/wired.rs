//! Wired objects: no fault ever happens in them. An arena is mapped once, whole, with all its pages in this process's tables, and
//! every object in it is there then: the fiftieth costs no mapping (Bernadat & Black, section 6). Without an arena an object is of
//! ordinary pages, which are locked.

use crate::addresses::{ADDRESSES, Piece, PieceState, start_of};
use crate::link::{Shared, lock};
use crate::object::Core;
use crate::{Error, ErrorKind, Inherit, MapOptions, Protection, Result, Sharing, complain};
use commonhold_object::error::Doing;
use commonhold_object::{AddressMap, Place, Region};
use commonhold_sys::memory::{self, Wish};
use commonhold_tables::Attachment;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};

/// Those that this process has mapped. Locked after the map of addresses.
static ARENAS: LazyLock<Mutex<Vec<Mapped>>> = LazyLock::new(Mutex::default);

/// One of them, and the parts of it that are somebody's mapping: from where to where. Of two mappings of the same bytes each has
/// addresses of its own, as of any other object: what ends one leaves the other alone.
pub(crate) struct Mapped {
    arena: Weak<Arena>,
    parts: BTreeMap<u64, u64>,
}

impl Mapped {
    fn is_free(&self, start: u64, end: u64) -> bool {
        self.parts.range(..end).next_back().is_none_or(|(_, other)| *other <= start)
    }
}

/// An arena as this process has it, for as long as something in it is mapped.
#[derive(Debug)]
pub(crate) struct Arena {
    attached: Attachment,
    bytes: u64,
    /// Of its memory, which no other has.
    device: u64,
    inode: u64,
    writes: bool,
    /// Whether a fork child has it mapped, too.
    inherited: AtomicBool,
    /// It was taken away.
    buried: AtomicBool,
    /// In a fork child that does not have it: its addresses are kept from other use.
    reserved: AtomicBool,
}

impl Arena {
    pub(crate) fn set_inherited(&self, inherited: bool) -> Result<()> {
        let (address, length) = (self.attached.address(), self.attached.length());
        memory::set_inherited(address, length, inherited).doing("saying whether a child has an arena")?;
        self.inherited.store(inherited, Ordering::Relaxed);
        Ok(())
    }

    fn is_buried(&self) -> bool {
        self.buried.load(Ordering::Relaxed)
    }
}

/// What keeps a wired mapping what it is.
#[derive(Debug)]
pub(crate) enum Hold {
    /// It is a part of one.
    Arena(Part),
    /// It is locked, of ordinary pages.
    Locked,
}

/// A part of an arena that is one mapping's.
#[derive(Debug)]
pub(crate) struct Part {
    arena: Arc<Arena>,
    start: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut arenas = lock(&ARENAS);
        let is_it = |mapped: &&mut Mapped| std::ptr::eq(mapped.arena.as_ptr(), &*self.arena);
        if let Some(mapped) = arenas.iter_mut().find(is_it) {
            mapped.parts.remove(&self.start);
        }
    }
}

pub(crate) fn arenas() -> MutexGuard<'static, Vec<Mapped>> {
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
    // A fork child's host may not know that it has the object, and have given its place to another.
    core.open_again_if_needed()?;
    // After host and keeper died all who have something in the arena wait for this process, which may not call for long.
    core.shared().ensure_watcher().doing("starting the thread that watches the connection to the host")?;
    let start = place.offset_bytes + options.offset;
    let end = start.checked_add(length as u64).filter(|end| *end <= place.arena_bytes);
    let does_not =
        || Error::new(ErrorKind::Corrupt, format!("object {} does not lie in its arena", core.label()));
    let part = part_of(&core.label(), core.fd(), place, options, (start, end.ok_or_else(does_not)?))?;
    part.located().ok_or_else(does_not)
}

/// Maps an object that was told to lie there.
pub(crate) fn lie_in(
    label: &str,
    memory: &OwnedFd,
    place: Place,
    protection: Protection,
    length: u64,
) -> Result<(NonNull<u8>, Hold)> {
    let does_not = || Error::new(ErrorKind::Corrupt, format!("object {label} does not lie in its arena"));
    let start = place.offset_bytes;
    let end = start.checked_add(length).filter(|end| *end <= place.arena_bytes).ok_or_else(does_not)?;
    let options = MapOptions { protection, ..MapOptions::default() };
    part_of(label, memory, place, &options, (start, end))?.located().ok_or_else(does_not)
}

impl Part {
    fn located(self) -> Option<(NonNull<u8>, Hold)> {
        let address = self.arena.attached.address().as_ptr().wrapping_add(self.start as usize);
        NonNull::new(address).map(|address| (address, Hold::Arena(self)))
    }
}

/// A part of the arena of an object, which this process may have mapped already.
fn part_of(
    label: &str,
    memory: &OwnedFd,
    place: Place,
    options: &MapOptions,
    (start, end): (u64, u64),
) -> Result<Part> {
    let writes = options.protection == Protection::ReadWrite;
    let inherited = options.inherit == Inherit::Share;
    let failed = |error| Error::io(format_args!("mapping the arena of object {label}"), &error);
    let stat = rustix::fs::fstat(memory).map_err(std::io::Error::from).map_err(failed)?;
    let mut arenas = arenas();
    arenas.retain(|mapped| mapped.arena.strong_count() > 0);
    for mapped in arenas.iter_mut() {
        let Some(arena) = mapped.arena.upgrade() else { continue };
        let is_it = (arena.device, arena.inode, arena.writes) == (stat.st_dev, stat.st_ino, writes)
            && arena.inherited.load(Ordering::Relaxed) == inherited;
        if is_it && !arena.is_buried() && mapped.is_free(start, end) {
            mapped.parts.insert(start, end);
            return Ok(Part { arena, start });
        }
    }
    let attached = commonhold_tables::attach(memory, place.arena_bytes, None, writes).map_err(failed)?;
    if !inherited {
        memory::set_inherited(attached.address(), attached.length(), false).map_err(failed)?;
    }
    attached.fill(0, place.arena_bytes).map_err(failed)?;
    let arena = Arc::new(Arena {
        attached,
        bytes: place.arena_bytes,
        device: stat.st_dev,
        inode: stat.st_ino,
        writes,
        inherited: AtomicBool::new(inherited),
        buried: AtomicBool::new(false),
        reserved: AtomicBool::new(false),
    });
    arenas.push(Mapped { arena: Arc::downgrade(&arena), parts: BTreeMap::from([(start, end)]) });
    Ok(Part { arena, start })
}

fn attach_own(core: &Core, options: &MapOptions, length: usize, wish: Wish) -> Result<(NonNull<u8>, Hold)> {
    let address = memory::map(core.fd(), options.offset, length, wish)
        .map_err(|error| Error::io(format_args!("mapping object {}", core.label()), &error))?;
    lock_in_memory(address, length).map(|()| (address, Hold::Locked)).inspect_err(|_| {
        // SAFETY: mapped just now; nobody knows of it.
        let _ = unsafe { memory::unmap(address, length) }; // else it stays, and is counted by the kernel alone
    })
}

/// Locks what is mapped there, which brings its pages in.
pub(crate) fn lock_in_memory(address: NonNull<u8>, length: usize) -> Result<()> {
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
pub(crate) fn populate_again(arenas: &[Mapped], map: &AddressMap<Piece>) {
    let complain = |what: &str| complain(&format!("a fork child may fault in wired memory: {what}"));
    for arena in arenas.iter().filter_map(|mapped| mapped.arena.upgrade()).filter(|arena| !arena.is_buried())
    {
        arena.attached.fill(0, arena.bytes).unwrap_or_else(|error| complain(&error.to_string()));
    }
    // A copy of the child's own is locked already.
    let is_locked = |piece: &Piece| {
        matches!(piece.origin.wired.get(), Some(Hold::Locked)) && piece.state != PieceState::Copied
    };
    for region in map.iter().filter(|region| is_locked(&region.value)) {
        let locked = lock_in_memory(start_of(region.address), region.length as usize);
        locked.unwrap_or_else(|error| complain(&error.message));
    }
}

/// Hosts of which something in an arena is mapped.
pub(crate) fn hosts_of(map: &AddressMap<Piece>) -> Vec<*const Shared> {
    let in_arenas = map.iter().filter(|region| arena_at(&region.value).is_some());
    in_arenas.map(|region| std::ptr::from_ref(region.value.object().shared())).collect()
}

fn arena_at(piece: &Piece) -> Option<&Arc<Arena>> {
    match piece.origin.wired.get() {
        Some(Hold::Arena(part)) if piece.state != PieceState::Copied => Some(&part.arena),
        _ => None,
    }
}

/// Whether its mapping is an arena's.
pub(crate) fn is_part_of_arena(piece: &Piece) -> bool {
    arena_at(piece).is_some()
}

/// The arenas that a child is to have, or not to have, once these pieces are as they are here. To the kernel an arena is one
/// mapping: so they must be all that is mapped in it.
pub(crate) fn to_change(
    map: &AddressMap<Piece>,
    pieces: &[Region<Piece>],
    how: Inherit,
) -> Result<Vec<Arc<Arena>>> {
    let inherited = how == Inherit::Share;
    let mut found: Vec<Arc<Arena>> = Vec::new();
    for arena in pieces.iter().filter_map(|piece| arena_at(&piece.value)) {
        let differs = arena.inherited.load(Ordering::Relaxed) != inherited && !arena.is_buried();
        if !differs || found.iter().any(|other| Arc::ptr_eq(other, arena)) {
            continue;
        }
        let in_it =
            |region: &&Region<Piece>| arena_at(&region.value).is_some_and(|other| Arc::ptr_eq(other, arena));
        let bytes =
            |regions: &mut dyn Iterator<Item = &Region<Piece>>| regions.map(|one| one.length).sum::<u64>();
        if bytes(&mut map.iter().filter(in_it)) != bytes(&mut pieces.iter().filter(in_it)) {
            return Err(Error::new(
                ErrorKind::Busy,
                "a wired object lies in one mapping with others, which a child has as a whole: say what a child has of it when \
                 it is mapped, and it gets a mapping apart",
            ));
        }
        found.push(arena.clone());
    }
    Ok(found)
}

/// The arenas that a child does not have.
pub(crate) fn apart(arenas: &[Mapped]) -> Vec<Arc<Arena>> {
    let all = arenas.iter().filter_map(|mapped| mapped.arena.upgrade());
    all.filter(|arena| !arena.inherited.load(Ordering::Relaxed) && !arena.is_buried()).collect()
}

/// In a fork child, without allocating: nothing of them is there, and their addresses stay theirs.
pub(crate) fn reserve_again(apart: &[Arc<Arena>]) {
    for arena in apart {
        let reserved = memory::reserve_exactly(arena.attached.address(), arena.attached.length()).is_ok();
        arena.reserved.store(reserved, Ordering::Relaxed);
        arena.buried.store(true, Ordering::Relaxed);
        if !reserved {
            std::mem::forget(arena.clone()); // what is there by now is not to be unmapped with it
        }
    }
}

/// In a fork child: whether the addresses of a piece are kept for it. None: it lies in no arena that was the parent's.
pub(crate) fn reserved(piece: &Piece) -> Option<bool> {
    arena_at(piece).map(|arena| arena.reserved.load(Ordering::Relaxed))
}

/// Takes the arenas away in which something of a host is mapped that is meant: by now it may be another's. What else lies there
/// goes too, for a huge page is there or is not. A touch is SIGBUS.
pub(crate) fn bury(shared: &Shared, is_meant: impl Fn(&Core) -> bool) {
    let map = lock(&ADDRESSES);
    let of_it = map.iter().map(|region| &region.value);
    let of_it = of_it.filter(|piece| piece.is_of(shared) && is_meant(piece.object()));
    of_it.filter_map(arena_at).for_each(|arena| arena.bury());
}

/// The same of what an object lies in that may move.
pub(crate) fn bury_hold(hold: &Hold) {
    if let Hold::Arena(part) = hold {
        part.arena.bury();
    }
}

impl Arena {
    fn bury(&self) {
        if self.buried.swap(true, Ordering::Relaxed) {
            return;
        }
        let (address, length) = (self.attached.address(), self.attached.length());
        // SAFETY: the whole of a mapping of ours, whose content is not what it was mapped for.
        let replaced = unsafe { memory::replace_with_nothing(address, length) };
        // SAFETY: as above. This needs no memory, and is refused by no limit.
        let _ = replaced.or_else(|_| unsafe { memory::make_inaccessible(address, length) });
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
