//! A heap in an object: blocks that any process of any host allocates and any other frees
//! (`docs/HEAP.md`).

mod arena;
mod common;
mod explain;

pub use arena::HeapArena;

use crate::{Access, CreateOptions, Error, ErrorKind, Host, MapFlags, MapOptions, Mapping, Object, Result};
use common::Common;
use commonhold_futex::{Mapped, thread};
use commonhold_heap::{Arena, Known, Layout, Report, check};
use commonhold_object::HEAP_DESCRIPTION;
use commonhold_object::error::Doing;
use commonhold_tags::Tag;
use rustix::fs::SealFlags;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A type of what is in a block: by it a machine of another format reads it (`docs/TYPES.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapType {
    tag: u16,
    bytes: u64,
}

impl HeapType {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        self.bytes
    }
}

/// A heap in an object.
///
/// ```no_run
/// use commonhold::{CreateOptions, Heap, Host};
///
/// let host = Host::connect()?;
/// let options = CreateOptions { size_bytes: 1 << 30, ..CreateOptions::default() };
/// let heap = Heap::open_or_create(&host, "/lab/heap", &options)?;
/// let numbers = heap.type_of("float64")?;
/// let root = heap.root("samples")?;
/// heap.allocate_into(numbers, 1000, root)?; // 8,000 bytes; where, is in the root's word
/// heap.free_from(root)?;
/// # Ok::<(), commonhold::Error>(())
/// ```
///
/// A block is known by its offset in the object, which is the same for all; [`Heap::address`] gives
/// where it is mapped here. Clones share it, and its threads take turns; a thread that allocates much
/// has a [`HeapArena`] of its own.
#[derive(Clone, Debug)]
pub struct Heap {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    memory: Mapped,
    layout: Layout,
    common: Common,
    /// What the heap lies in. Dropped after those.
    _mapping: Mapping,
    object: Object,
    host: Host,
    /// Where it is mapped, and how large it is.
    start: usize,
    bytes: u64,
}

impl Heap {
    /// Creates an object of that size, and a heap in it; it is of memory, on one host or strict.
    pub fn create(host: &Host, name: &str, options: &CreateOptions) -> Result<Heap> {
        let wanted = CreateOptions { description: HEAP_DESCRIPTION.to_owned(), ..options.clone() };
        let bytes = wanted.size_bytes;
        if !wanted.is_heap() {
            let what = format!("heap {name} is in ordinary memory: leave pager and translation as they are");
            return Err(Error::invalid(what));
        }
        if Layout::of(bytes).is_none() {
            let what = format!("no heap fits {bytes} bytes: it takes 156 KiB at least, and 16 TiB at most");
            return Err(Error::invalid(what));
        }
        let object = host.create(name, &wanted, None)?;
        Self::of(host, object, None).inspect_err(|_| {
            // It was made just now, and is of no use. If this fails, too, the first error says more.
            let _ = host.remove(name);
        })
    }

    /// Opens it.
    pub fn open(host: &Host, name: &str) -> Result<Heap> {
        Self::of(host, host.open(name, Access::ReadWrite)?, None)
    }

    /// Opens it, and maps it at that address: where all do so, a pointer is the same for all.
    pub fn open_at(host: &Host, name: &str, address: usize) -> Result<Heap> {
        Self::of(host, host.open(name, Access::ReadWrite)?, Some(address))
    }

    /// Opens it; if there is none, creates it. Who comes at the same time gets the same.
    pub fn open_or_create(host: &Host, name: &str, options: &CreateOptions) -> Result<Heap> {
        loop {
            match Self::open(host, name) {
                Err(error) if error.kind == ErrorKind::NotFound => {}
                opened => return opened,
            }
            match Self::create(host, name, options) {
                Err(error) if error.kind == ErrorKind::Exists => {}
                created => return created,
            }
        }
    }

    fn of(host: &Host, object: Object, address: Option<usize>) -> Result<Heap> {
        let name = object.core.label();
        let is_none = |why: &str| {
            let what = format!("object {name} is no heap: {why}; create one with Heap::create");
            Error::new(ErrorKind::Mismatch, what)
        };
        if !object.options().is_heap() {
            return Err(is_none(&format!(
                "its description is {:?}, or it is not of memory",
                object.options().description
            )));
        }
        if !object.is_controlled() {
            let seals = rustix::fs::fcntl_get_seals(object.core.fd());
            let seals = seals.doing(format_args!("asking for the seals of {name}"))?;
            if !seals.contains(SealFlags::SHRINK) {
                return Err(is_none(
                    "its memory may become shorter, as a host of an earlier version makes it",
                ));
            }
        }
        let bytes = object.size_bytes();
        let layout = Layout::of(bytes).ok_or_else(|| is_none("it is too small, or too large"))?;
        let flags = MapFlags { fixed: address.is_some(), ..MapFlags::default() };
        let hint = address.unwrap_or(0);
        let mapping = object.map(&MapOptions { hint, flags, ..MapOptions::default() })?;
        let whole = NonNull::new(mapping.as_ptr()).filter(|_| bytes <= mapping.len() as u64);
        let start = whole.ok_or_else(|| is_none("not all of it is mapped"))?;
        // SAFETY: mapped shared and writable, page-aligned, for as long as the mapping is kept beside it; the memory keeps
        // its size by its seal, or by the host, which refuses another. Nobody makes a reference to what is in it.
        let memory = unsafe { Mapped::new(start, bytes as usize) };
        thread(); // from now on forks are counted
        let start = start.as_ptr() as usize;
        let common = Common::default();
        Ok(Heap {
            inner: Arc::new(Inner {
                memory,
                layout,
                common,
                _mapping: mapping,
                object,
                host: host.clone(),
                start,
                bytes,
            }),
        })
    }

    /// The object that it is in.
    pub fn object(&self) -> &Object {
        &self.inner.object
    }

    /// The type of a text, as `float64` or `{24: 0 int32, 8 float64*2}`.
    pub fn type_of(&self, text: &str) -> Result<HeapType> {
        let tag = Tag::of_text(text).ok_or_else(|| {
            Error::invalid(format!(
                "{text:?} is no type: docs/TYPES.md has them, as float64 or {{8: 0 int32}}"
            ))
        })?;
        let (text, bytes) = (tag.to_string(), tag.bytes() as u64);
        let tag = self.with(|arena, memory| arena.tag(memory, &text, bytes))?;
        Ok(HeapType { tag, bytes })
    }

    /// Allocates so many elements of a type; gives the offset of the first. What is in them is what
    /// was there before.
    pub fn allocate(&self, of: HeapType, count: u64) -> Result<u64> {
        let bytes = self.bytes_of(of, count)?;
        self.with(|arena, memory| arena.allocate(memory, of.tag, bytes))
    }

    /// Allocates, and stores the offset in that word of the heap, which is 0 before. Whoever dies
    /// meanwhile leaves both or none.
    pub fn allocate_into(&self, of: HeapType, count: u64, word: u64) -> Result<u64> {
        let bytes = self.bytes_of(of, count)?;
        self.with(|arena, memory| arena.allocate_into(memory, of.tag, bytes, word))
    }

    /// Frees a block, whoever allocated it.
    pub fn free(&self, at: u64) -> Result<()> {
        self.with(|arena, memory| arena.free(memory, at))
    }

    /// Frees the block whose offset that word of the heap has, and makes the word 0: both or none.
    pub fn free_from(&self, word: u64) -> Result<()> {
        self.with(|arena, memory| arena.free_from(memory, word))
    }

    /// The offset of a root's word, by its name: from there programs find what is in the heap. One
    /// that is new is 0.
    pub fn root(&self, name: &str) -> Result<u64> {
        self.with(|arena, memory| arena.root(memory, name))
    }

    /// A word of the heap, at a multiple of 8.
    pub fn word(&self, at: u64) -> Result<&AtomicU64> {
        self.check_range(at, 8)?;
        if !at.is_multiple_of(8) {
            return Err(Error::invalid(format!("a word is at a multiple of 8, and {at} is none")));
        }
        Ok(self.inner.memory.long_word(at as usize))
    }

    /// Where so many bytes from an offset on are mapped here. They are memory that others share: use
    /// atomics, volatile access or copies, never a Rust reference to plain memory.
    pub fn address(&self, at: u64, bytes: u64) -> Result<*mut u8> {
        self.check_range(at, bytes)?;
        Ok(self.inner.memory.address(at as usize, bytes as usize))
    }

    /// The offset of an address in the mapping that [`Heap::address`] speaks of.
    pub fn offset(&self, address: *const u8) -> Result<u64> {
        let at = (address as usize).checked_sub(self.inner.start).map(|at| at as u64);
        at.filter(|at| *at < self.inner.bytes).ok_or_else(|| {
            Error::invalid(format!(
                "address {address:p} is not in heap {}: give an address that Heap::address gave",
                self.inner.object.core.label()
            ))
        })
    }

    /// An arena of its own for a thread: no other one waits for it.
    pub fn arena(&self) -> Result<HeapArena> {
        HeapArena::join(self)
    }

    /// Reads all of the heap; says what is in it, and what is wrong.
    pub fn check(&self) -> Result<Report> {
        let inner = &*self.inner;
        Ok(check(&inner.memory, &inner.layout, &self.people()?))
    }

    /// Calls `each` with offset, bytes and type of every block in use.
    pub fn visit(&self, mut each: impl FnMut(u64, u64, u16)) -> Result<()> {
        let inner = &*self.inner;
        let problems = commonhold_heap::visit(&inner.memory, &inner.layout, |block| {
            each(block.at, block.bytes, block.tag)
        });
        let damaged = |problem| Err(explain::error(self, commonhold_heap::Refused::Damaged(problem)));
        problems.first().copied().map_or(Ok(()), damaged)
    }

    fn people(&self) -> Result<Known> {
        let is_local = !self.inner.object.options().is_shared();
        let daemon = self.inner.host.state_directory();
        Known::here(is_local, daemon).doing("finding out who this process is")
    }

    /// Bytes of so many elements.
    #[inline]
    fn bytes_of(&self, of: HeapType, count: u64) -> Result<u64> {
        of.bytes.checked_mul(count).ok_or_else(|| {
            Error::new(ErrorKind::NoSpace, format!("{count} elements of {} bytes are too many", of.bytes))
        })
    }

    fn check_range(&self, at: u64, bytes: u64) -> Result<()> {
        let all = self.inner.bytes;
        if at <= all && bytes <= all - at {
            return Ok(());
        }
        let name = self.inner.object.core.label();
        Err(Error::invalid(format!(
            "{bytes} bytes from {at} on are not inside of heap {name}, which has {all}"
        )))
    }

    /// Does something with the arena that all threads of the process share.
    fn with<T>(
        &self,
        job: impl FnOnce(&mut Arena, &Mapped) -> std::result::Result<T, commonhold_heap::Refused>,
    ) -> Result<T> {
        let mut arena = self.inner.common.arena(self)?;
        let done = job(&mut arena, &self.inner.memory);
        drop(arena);
        done.map_err(|refused| explain::error(self, refused))
    }

    fn joined(&self) -> Result<Arena> {
        let people = Arc::new(self.people()?);
        let joined = Arena::join(&self.inner.memory, self.inner.layout, people);
        joined.map_err(|refused| explain::error(self, refused))
    }
}
