//! A mapping: one range of an object in this process's address space.

use crate::addresses::{self, Origin};
use crate::object::Core;
use crate::segments::{self, Tables};
use crate::{
    Error, ErrorKind, Inherit, MapFlags, Object, PAGE_SIZE_BYTES, PageState, Protection, Result, Sharing,
    Watch, classical, controlled, fixed, in_thread, inherit, wired,
};
use commonhold_object::{PageRange, page_aligned};
use commonhold_sys::memory;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// How to map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapOptions {
    /// Where, if it matters: page-aligned; 0: anywhere.
    pub hint: usize,
    /// First byte of the object; page-aligned.
    pub offset: u64,
    /// Bytes, rounded up to whole pages; `None`: all from `offset` on, by the size that the object has now.
    pub length: Option<u64>,
    /// What for.
    pub protection: Protection,
    /// Who sees its writes.
    pub sharing: Sharing,
    /// Further wishes.
    pub flags: MapFlags,
    /// What a fork child has of it.
    pub inherit: Inherit,
}

impl Default for MapOptions {
    fn default() -> Self {
        MapOptions {
            hint: 0,
            offset: 0,
            length: None,
            protection: Protection::ReadWrite,
            sharing: Sharing::Shared,
            flags: MapFlags::default(),
            inherit: Inherit::Share,
        }
    }
}

/// A mapping; dropping it unmaps what is left of it. It may be used and dropped by any thread.
#[derive(Debug)]
pub struct Mapping {
    address: usize,
    length: usize,
    object: Object,
    origin: Arc<Origin>,
    given_up: bool,
}

/// A wish that was checked and can be tried.
pub(crate) struct Prepared {
    object: Object,
    options: MapOptions,
    length: usize,
}

impl Prepared {
    /// Checks everything that can be known without the host.
    pub(crate) fn new(object: &Object, options: &MapOptions) -> Result<Prepared> {
        let core = &object.core;
        core.refuse_movable()?;
        page_aligned("address hint", options.hint as u64)?;
        page_aligned("offset", options.offset)?;
        let options = &fixed::at_its_address(core, options)?;
        if options.flags.fixed && options.hint == 0 {
            return Err(Error::invalid("a fixed mapping needs an address: give a hint"));
        }
        if options.protection == Protection::ReadWrite
            && options.sharing == Sharing::Shared
            && !core.access().writes()
        {
            let what = format!(
                "object {} was opened for reading and cannot be mapped writable and shared: open it for writing, \
                 or map it private",
                core.label()
            );
            return Err(Error::new(ErrorKind::Permission, what));
        }
        if options.flags.lock {
            core.refuse_lock_if_direct()?;
        }
        if options.length.is_none() {
            core.look_at_size()?;
        }
        let mut pages = core.with_size(|size| Self::pages(core, options, size))?;
        if core.may_have_shrunk_below(pages.end()) {
            core.look_at_size()?;
            pages = Self::pages(core, options, core.size_bytes())?;
        }
        let length = segments::whole_units(segments::tables(core, options), pages.length_bytes());
        let length = usize::try_from(length).map_err(|_| {
            Error::invalid(format!("{} pages do not fit this machine's addresses", pages.count))
        })?;
        if (options.hint as u64).checked_add(length as u64).is_none() {
            return Err(Error::invalid("address hint + length overflows"));
        }
        fixed::check_length(core, options, length as u64)?;
        segments::check(core, options, length as u64)?;
        wired::check(core, options)?;
        Ok(Prepared { object: object.clone(), options: options.clone(), length })
    }

    fn pages(core: &Core, options: &MapOptions, size: u64) -> Result<PageRange> {
        let length = match options.length {
            Some(length) => length,
            None if options.offset < size => size - options.offset,
            None => {
                let (offset, name) = (options.offset, core.label());
                return Err(Error::invalid(format!(
                    "offset {offset} is past the {size} bytes of object {name}"
                )));
            }
        };
        PageRange::covering(options.offset, length, size)
    }

    /// Maps.
    pub(crate) fn make(self) -> Result<Mapping> {
        addresses::check_room(1)?;
        let core = &self.object.core;
        let shared = core.shared();
        let origin = Arc::new(Origin {
            object: core.clone(),
            mapping: shared.next_mapping(),
            protection: self.options.protection,
            sharing: self.options.sharing,
            flags: self.options.flags,
            served_by: if self.serves_itself() { std::process::id() } else { 0 },
            takes: segments::takes(core, &self.options),
            wired: OnceLock::new(),
            service: OnceLock::new(),
        });
        let address = self.map_at_hint(&origin)?;
        if core.is_controlled() {
            controlled::announce(address, self.length, self.options.offset, &origin, self.options.inherit)?;
        } else {
            addresses::insert(
                address,
                self.length,
                self.options.offset,
                origin.clone(),
                self.options.inherit,
            )?;
        }
        let address = address.as_ptr() as usize;
        let mapping = Mapping { address, length: self.length, object: self.object, origin, given_up: false };
        if mapping.origin.served_by != 0 {
            mapping.serve_itself(&self.options)?;
        }
        mapping.fulfil_wishes(&self.options)?;
        Ok(mapping)
    }

    /// In-thread service is for what the host would serve, and only where a fault says nothing but "not there".
    fn serves_itself(&self) -> bool {
        let (core, options) = (&self.object.core, &self.options);
        let shared_writable =
            options.protection == Protection::ReadWrite && options.sharing == Sharing::Shared;
        options.flags.in_thread && core.is_controlled() && shared_writable && !core.options().stops_writers()
    }

    fn map_at_hint(&self, origin: &Origin) -> Result<NonNull<u8>> {
        if segments::tables(&self.object.core, &self.options) != Tables::Own {
            let attached = segments::attach(&self.object.core, &self.options, self.length);
            return attached.map_err(|error| self.explain(&error));
        }
        let hint = self.options.hint as *mut u8;
        let mut wish = origin.wish(hint, self.options.flags.fixed);
        wish.not_inherited |= self.options.inherit != Inherit::Share;
        if self.object.core.options().is_wired() {
            let (address, hold) = wired::attach(&self.object.core, &self.options, self.length, wish)?;
            let _ = origin.wired.set(hold); // it was made just now
            return Ok(address);
        }
        let address = memory::map(self.object.core.fd(), self.options.offset, self.length, wish);
        let address = address.map_err(|error| self.explain(&error))?;
        if self.options.flags.fixed && address.as_ptr() != hint {
            // A kernel that does not know MAP_FIXED_NOREPLACE takes the address as a hint.
            // SAFETY: mapped just above; nobody else knows of it.
            let _ = unsafe { memory::unmap(address, self.length) };
            return Err(self.explain(&std::io::Error::from_raw_os_error(libc::EEXIST)));
        }
        Ok(address)
    }

    fn explain(&self, error: &std::io::Error) -> Error {
        let (hint, length) = (self.options.hint, self.length);
        match error.raw_os_error() {
            Some(libc::EEXIST) if fixed::has_one(&self.object.core, &self.options) => {
                fixed::is_taken(&self.object.core, hint as u64, length as u64)
            }
            Some(libc::EEXIST) => {
                let what =
                    format!("addresses {hint:#x}..{:#x} are in use: choose others, or none", hint + length);
                Error::new(ErrorKind::Busy, what)
            }
            Some(libc::ENOMEM) => {
                let what = format!(
                    "{length} bytes cannot be mapped: the address space (ulimit -v) or the number of mappings \
                     (vm.max_map_count) is used up"
                );
                Error::new(ErrorKind::NoSpace, what)
            }
            _ => Error::io(format_args!("mapping object {}", self.object.core.label()), error),
        }
    }
}

/// Maps all, or none.
pub(crate) fn make_all<'a>(
    wishes: impl Iterator<Item = (&'a Object, &'a MapOptions)>,
) -> Result<Vec<Mapping>> {
    let prepared: Vec<Prepared> =
        wishes.map(|(object, one)| Prepared::new(object, one)).collect::<Result<_>>()?;
    addresses::check_room(prepared.len())?;
    // Dropped at the first failure, those already made are unmapped.
    prepared.into_iter().map(Prepared::make).collect()
}

impl Mapping {
    /// Begins in-thread service: a second, ordinary mapping of the same pages stands behind it.
    fn serve_itself(&self, options: &MapOptions) -> Result<()> {
        let flags = MapFlags { anywhere: true, ..MapFlags::default() };
        let inherit = Inherit::None; // the host serves a child
        let behind =
            MapOptions { hint: 0, flags, length: Some(self.length as u64), inherit, ..options.clone() };
        let hidden = Prepared { object: self.object.clone(), options: behind, length: self.length }.make()?;
        let descriptors = controlled::descriptors_of(&self.origin)?;
        in_thread::begin(&self.origin, self, descriptors.userfaultfd(), hidden)
    }

    fn fulfil_wishes(&self, options: &MapOptions) -> Result<()> {
        let core = &self.object.core;
        if options.flags.lock {
            core.lock(options.offset, self.length as u64)?;
        }
        if options.flags.prefetch {
            core.prefetch(options.offset, self.length as u64)?;
        }
        Ok(())
    }

    /// First byte. What it points to is shared with other processes: use atomics, volatile access or copies,
    /// never a Rust reference to plain memory.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// Bytes, whole pages (also those unmapped since).
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: a mapping has at least one page.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The object it shows.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// What it may be used for.
    pub fn protection(&self) -> Protection {
        self.origin.protection
    }

    /// Who sees its writes.
    pub fn sharing(&self) -> Sharing {
        self.origin.sharing
    }

    /// Makes its range what is stored; gives the number of pages written.
    pub fn sync(&self) -> Result<u64> {
        classical::sync(self.as_ptr(), self.length)
    }

    /// As [`sync`](Self::sync), for the pages that hold part of it.
    pub fn sync_range(&self, offset: usize, length: usize) -> Result<u64> {
        self.check_part(offset, length)?;
        let first = offset / PAGE_SIZE_BYTES as usize * PAGE_SIZE_BYTES as usize;
        classical::sync(self.as_ptr().wrapping_add(first), offset - first + length)
    }

    /// As [`sync`](Self::sync), at a true instant (freezable objects).
    pub fn sync_frozen(&self) -> Result<u64> {
        classical::sync_frozen(self.as_ptr(), self.length)
    }

    /// Holds its pages, and keeps nobody out ([`Mutex`](crate::Mutex) does); gives whether they are pinned against
    /// swap too.
    pub fn lock(&self) -> Result<bool> {
        classical::lock(self.as_ptr(), self.length)
    }

    /// Lets them go.
    pub fn unlock(&self) -> Result<()> {
        classical::unlock(self.as_ptr(), self.length)
    }

    /// Watches bytes of it: see [`Watch`].
    pub fn watch(&self, offset: usize, length: usize) -> Result<Watch> {
        self.check_part(offset, length)?;
        classical::watch(self.as_ptr().wrapping_add(offset), length)
    }

    /// Waits until somebody notifies of any of these bytes, or another host's sync changes them; false if that does not happen
    /// before the deadline. What came before the call it does not know: who looks at the data first makes a
    /// [`watch`](Self::watch) before that.
    pub fn wait(&self, offset: usize, length: usize, deadline: Option<Instant>) -> Result<bool> {
        self.watch(offset, length)?.wait(deadline)
    }

    /// Wakes all who watch any of these bytes, in whatever process on whatever host: see [`Object::notify`].
    pub fn notify(&self, offset: usize, length: usize) -> Result<()> {
        self.check_part(offset, length)?;
        classical::notify(self.as_ptr().wrapping_add(offset), length)
    }

    /// From now on a fork child has that of it.
    pub fn inherit(&self, how: Inherit) -> Result<()> {
        inherit::change_of(&self.origin, self.address as u64, self.length as u64, how)
    }

    /// The same of the pages that hold a part of it.
    pub fn inherit_range(&self, offset: usize, length: usize, how: Inherit) -> Result<()> {
        self.check_part(offset, length)?;
        let first = offset / PAGE_SIZE_BYTES as usize * PAGE_SIZE_BYTES as usize;
        let length = (offset - first + length) as u64;
        inherit::change_of(&self.origin, (self.address + first) as u64, length, how)
    }

    /// State of each page, and whether it is locked.
    pub fn incore(&self) -> Result<Vec<(PageState, bool)>> {
        classical::incore(self.as_ptr(), self.length)
    }

    /// Unmaps part of it: it shrinks, splits or goes. Nothing may use those addresses any more: who does gets
    /// SIGSEGV, or another mapping that was made there since.
    ///
    /// An error of the last unmap's sync (a full disk) is returned, and the addresses are unmapped all the same;
    /// the data stays with the host, and a sync of the object tries again.
    pub fn unmap(&self, offset: usize, length: usize) -> Result<()> {
        page_aligned("offset", offset as u64)?;
        page_aligned("length", length as u64)?;
        self.check_part(offset, length)?;
        addresses::unmap_of(&self.origin, (self.address + offset) as u64, length as u64)
    }

    /// Gives up a part over which the program has mapped something else: what is there by now stays.
    pub fn give_up(&self, offset: usize, length: usize) -> Result<()> {
        self.check_part(offset, length)?;
        addresses::give_up(&self.origin, (self.address + offset) as u64, length as u64)
    }

    fn check_part(&self, offset: usize, length: usize) -> Result<()> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) || length == 0 {
            let whole = self.length;
            return Err(Error::invalid(format!(
                "{length} bytes from {offset} on are no part of a mapping of {whole}"
            )));
        }
        Ok(())
    }

    /// Gives it up without unmapping: for [`crate::classical::unmap`].
    pub fn into_raw(mut self) -> *mut u8 {
        self.given_up = true;
        self.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.given_up {
            // Whoever needs the result of the last unmap's sync calls `unmap` or `sync`.
            let _ = addresses::unmap_of(&self.origin, self.address as u64, self.length as u64);
        }
    }
}
