//! Memory at the addresses that an image will have, to build it in.

use super::flat::Flat;
use super::layout::Layout;
use super::run::{Run, Text};
use super::seal;
use super::types::{TypeRef, Types};
use super::walk::Start;
use crate::include::{Image, map};
use crate::ranges::Range;
use crate::store::{Building, Published, Store, not_a_name};
use crate::{Error, Result};
use commonhold_image::{Kind, PAGE_BYTES, Version, Wanted};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr::from_ref;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory is taken in steps that double, from this
const FIRST_STEP: u64 = 1 << 20;
/// to this.
const LARGEST_STEP: u64 = 1 << 26;
/// So many addresses are reserved if nothing is said; what is not used goes back when the image is sealed.
const USUAL_CAPACITY: u64 = 1 << 34;

/// Where arenas of this process begin that have memory: also those that were forgotten, which have it for good.
static BEGUN: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn begun() -> MutexGuard<'static, Vec<u64>> {
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How an arena is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the image is to be published; nothing: in the store of who runs this.
    pub store: Option<Store>,
    /// How large it can become, in bytes of addresses. No memory is taken for it.
    pub capacity: u64,
    /// With other images of this group it is declared never to be in one process: they share addresses (the heterogeneous
    /// region).
    pub group: Option<String>,
    /// Images that it may lead into. They are included in this process.
    pub imports: Vec<Image>,
}

impl Default for Options {
    fn default() -> Options {
        Options { store: None, capacity: USUAL_CAPACITY, group: None, imports: Vec::new() }
    }
}

/// An image that is being built. What is placed in it stays where it is, in every process, for good.
pub struct Arena {
    store: Store,
    name: String,
    version: Version,
    range: Range,
    building: Building,
    imports: Vec<Image>,
    /// The first address that is free,
    free: Cell<u64>,
    /// and the first that is no memory yet.
    mapped: Cell<u64>,
    step: Cell<u64>,
    types: RefCell<Types>,
    /// Of types that have any: offset and length.
    gaps: RefCell<HashMap<TypeRef, Vec<(usize, usize)>>>,
    roots: RefCell<Vec<Start>>,
    /// Whether the range goes back if nothing is published: not before there is memory at it, since another arena of
    /// this process may have it.
    gives_back: Cell<bool>,
    /// A child of this process has a copy of the arena, and not the range.
    process: u32,
}

impl Arena {
    /// For a version that is named exactly, `words@1.2.0`, in the store of who runs this.
    pub fn new(text: &str) -> Result<Arena> {
        Arena::with(text, Options::default())
    }

    /// For a version that is named exactly.
    pub fn with(text: &str, options: Options) -> Result<Arena> {
        let wanted = Wanted::parse(text).ok_or_else(|| not_a_name(text))?;
        let version = wanted.exact().ok_or_else(|| {
            Error::Invalid(format!(
                "{text:?} may be several versions: name the one to build, as in words@1.2.3"
            ))
        })?;
        let store = options.store.map_or_else(Store::own, Ok)?;
        if let Some(there) = store.resolve(&wanted)? {
            return Err(Error::Exists { name: there.full_name() });
        }
        let capacity = options.capacity.max(FIRST_STEP).next_multiple_of(FIRST_STEP);
        let building = store.building(wanted.name, version)?;
        let range = store.reserve_in(Kind::Data, wanted.name, version, capacity, options.group.as_deref())?;
        let arena = Arena {
            store,
            name: wanted.name.to_owned(),
            version,
            imports: options.imports,
            free: Cell::new(range.first),
            mapped: Cell::new(range.first),
            step: Cell::new(FIRST_STEP),
            range,
            building,
            types: RefCell::default(),
            gaps: RefCell::default(),
            roots: RefCell::default(),
            gives_back: Cell::new(false),
            process: std::process::id(),
        };
        let mut begun = begun();
        arena.take(PAGE_BYTES as u64, 1).map_err(|error| match error {
            Error::NoPlace { first, .. } if begun.contains(&first) => Error::InUse {
                what: arena.full_name(),
                by: "another arena of this process has its addresses: seal that one and close it".into(),
            },
            other => other,
        })?;
        begun.push(arena.range.first);
        drop(begun);
        arena.gives_back.set(true);
        Ok(arena)
    }

    /// Its first address.
    pub fn base(&self) -> u64 {
        self.range.first
    }

    /// Its name and version.
    pub fn full_name(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// How many bytes are used.
    pub fn used(&self) -> u64 {
        self.free.get() - self.range.first
    }

    /// Bytes of zeroes for who builds without Rust's types; an address.
    pub fn take(&self, bytes: u64, alignment: u64) -> Result<u64> {
        if !alignment.is_power_of_two() || alignment > PAGE_BYTES as u64 {
            return Err(Error::Invalid(format!(
                "an alignment is a power of two up to {PAGE_BYTES}, not {alignment}"
            )));
        }
        let first = self.free.get().next_multiple_of(alignment);
        let full = || Error::Full { wanted: self.full_name(), bytes, region: "arena's own" };
        let end = first.checked_add(bytes).filter(|end| *end <= self.range.end()).ok_or_else(full)?;
        while self.mapped.get() < end {
            self.grow(end)?;
        }
        self.free.set(end);
        Ok(first)
    }

    /// More memory, at the addresses behind what there is.
    fn grow(&self, end: u64) -> Result<()> {
        let mapped = self.mapped.get();
        let wanted = (end - mapped).next_multiple_of(FIRST_STEP).max(self.step.get());
        let bytes = wanted.min(self.range.end() - mapped);
        map::memory(&self.full_name(), mapped, bytes)?;
        self.mapped.set(mapped + bytes);
        self.step.set((self.step.get() * 2).min(LARGEST_STEP));
        Ok(())
    }

    /// Places a value. It can be changed until it is shared.
    #[expect(clippy::mut_from_ref, reason = "each call gives other memory")]
    pub fn place<T: Layout + Copy>(&self, value: T) -> Result<&mut T> {
        let at = self.take(size_of::<T>() as u64, align_of::<T>() as u64)? as *mut T;
        // SAFETY: memory of this arena, large enough and aligned, that was never given out before.
        unsafe { at.write(value) };
        self.zero_gaps(at, 1);
        // SAFETY: as above; it lives as long as the arena is borrowed.
        Ok(unsafe { &mut *at })
    }

    /// What was on the stack between the fields of values is told to nobody, whether or not a root leads to them.
    fn zero_gaps<T: Layout>(&self, first: *mut T, count: usize) {
        if !T::HAS_GAPS {
            return;
        }
        let types = &mut *self.types.borrow_mut();
        let of = T::describe(types);
        let mut gaps = self.gaps.borrow_mut();
        let gaps = gaps.entry(of).or_insert_with(|| Flat::of(types, of).gaps);
        for index in 0..count {
            for (at, bytes) in gaps.iter() {
                // SAFETY: in values that were written to the arena and that nobody has yet; what is there belongs to no
                // field.
                unsafe { first.add(index).byte_add(*at).cast::<u8>().write_bytes(0, *bytes) };
            }
        }
    }

    /// Places values one behind the other.
    pub fn run<T: Layout + Copy>(&self, values: &[T]) -> Result<Run<'_, T>> {
        let at = self.take(size_of_val(values) as u64, align_of::<T>() as u64)? as *mut T;
        // SAFETY: as in `place`; what was never given out overlaps nothing.
        unsafe { at.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        self.zero_gaps(at, values.len());
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(at, values.len()) }.into())
    }

    /// Places text.
    pub fn text(&self, text: &str) -> Result<Text<'_>> {
        let placed = self.run(text.as_bytes())?.as_slice();
        Ok(std::str::from_utf8(placed).expect("a copy of text").into())
    }

    /// Makes a value of the arena be found by name.
    pub fn root<T: Layout>(&self, name: &str, value: &T) -> Result<()> {
        let of = T::describe(&mut self.types.borrow_mut());
        self.add_root(Start {
            name: name.to_owned(),
            first: from_ref(value) as u64,
            count: 1,
            of,
            is_one: true,
        })
    }

    /// Makes values of the arena, one behind the other, be found by name.
    pub fn root_run<T: Layout>(&self, name: &str, values: &[T]) -> Result<()> {
        let of = T::describe(&mut self.types.borrow_mut());
        let (first, count) = (values.as_ptr() as u64, values.len() as u64);
        self.add_root(Start { name: name.to_owned(), first, count, of, is_one: false })
    }

    /// As [`Arena::root`] for one value and [`Arena::root_run`] for more, for who builds without Rust's types. The type is
    /// among [`Arena::types`].
    pub fn root_at(&self, name: &str, first: u64, count: u64, of: TypeRef) -> Result<()> {
        self.add_root(Start { name: name.to_owned(), first, count, of, is_one: count == 1 })
    }

    fn add_root(&self, mut root: Start) -> Result<()> {
        let name = &*root.name;
        let mut roots = self.roots.borrow_mut();
        if name.is_empty() || name.len() > 4096 {
            return Err(Error::Invalid("a root has a name of 1 to 4096 bytes".into()));
        }
        if roots.iter().any(|other| other.name == name) {
            return Err(Error::Invalid(format!("there is a root {name:?} already")));
        }
        // None of them are anywhere.
        if root.count == 0 {
            root.first = self.range.first + PAGE_BYTES as u64;
        }
        roots.push(root);
        Ok(())
    }

    /// What is known of types here.
    pub fn types<T>(&self, with: impl FnOnce(&mut Types) -> T) -> T {
        with(&mut self.types.borrow_mut())
    }

    /// Follows all pointers from the roots, writes the image, and publishes it. What leads out is refused, with the way to
    /// it; then nothing was published.
    pub fn seal(mut self) -> Result<Published> {
        self.try_seal()
    }

    /// As [`Arena::seal`]; after a refusal the arena is still there, to be mended or looked at.
    pub fn try_seal(&mut self) -> Result<Published> {
        let mut roots = self.roots.borrow_mut();
        roots.sort_by(|one, other| one.name.cmp(&other.name));
        let content = seal::Content {
            name: &self.name,
            version: self.version,
            group: self.range.group.as_deref(),
            arena: self.range.first..self.free.get(),
            types: &self.types.borrow(),
            roots: &roots,
            imports: &self.imports,
        };
        // SAFETY: memory of this arena, up to what was given out, and nobody has borrowed any of it.
        let published = unsafe { seal::seal(&self.store, &content, self.range.end()) }?;
        self.gives_back.set(false);
        self.building.settle();
        Ok(published)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: whoever has a reference into it has borrowed it.
        unsafe { map::forget(self.range.first, self.mapped.get() - self.range.first) };
        if self.mapped.get() > self.range.first {
            // One: another thread may have begun the next one already.
            let mut begun = begun();
            if let Some(place) = begun.iter().position(|first| *first == self.range.first) {
                begun.swap_remove(place);
            }
        }
        if self.gives_back.get() && self.process == std::process::id() {
            // What cannot be given back now the next change frees.
            if self.store.give_back(&self.name, self.version, &self.range).is_ok() {
                self.building.settle();
            }
        }
    }
}
