//! Heaps: `include/commonhold_heap.h`.

use super::outcome::{guard, guard_code, noted_errno, text};
use super::{host, null};
use crate::{CreateOptions, Error, ErrorKind, Heap, HeapType, Result};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

const CREATE: c_int = 1;

/// `ch_heap`: a heap, and the types that were asked for.
#[allow(non_camel_case_types)] // the name of the header
pub struct ch_heap {
    heap: Heap,
    types: Mutex<HashMap<String, HeapType>>,
}

impl ch_heap {
    fn handle(heap: Heap) -> *mut ch_heap {
        Box::into_raw(Box::new(ch_heap { heap, types: Mutex::default() }))
    }

    /// # Safety
    /// `heap` is null, or was not closed.
    unsafe fn get<'a>(heap: *const ch_heap) -> Result<&'a ch_heap> {
        // SAFETY: the caller's promise.
        unsafe { heap.as_ref() }.ok_or_else(|| null("the heap"))
    }

    /// # Safety
    /// `word` is null or a C string.
    unsafe fn type_of(&self, word: *const c_char) -> Result<HeapType> {
        // SAFETY: the caller's promise.
        let word = unsafe { text("type", word) }?;
        // Not waited for: a fork child's parent may have had it at the time.
        if let Ok(known) = self.types.try_lock()
            && let Some(of) = known.get(word)
        {
            return Ok(*of);
        }
        let of = self.heap.type_of(word)?;
        if let Ok(mut known) = self.types.try_lock() {
            known.insert(word.to_owned(), of);
        }
        Ok(of)
    }
}

/// Opens a heap.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_open(
    name: *const c_char,
    flags: c_int,
    mode: u32,
    size_bytes: u64,
) -> *mut ch_heap {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        let options = CreateOptions { size_bytes, mode, ..CreateOptions::default() };
        let heap = match flags {
            0 => Heap::open(&host()?, name),
            CREATE => Heap::open_or_create(&host()?, name, &options),
            _ => Err(Error::invalid(format!("{flags} are no flags: 0 or CH_HEAP_CREATE"))),
        };
        heap.map(ch_heap::handle)
    })
}

/// Opens a heap at an address.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_open_at(name: *const c_char, address: *mut c_void) -> *mut ch_heap {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        Heap::open_at(&host()?, name, address as usize).map(ch_heap::handle)
    })
}

/// Closes a handle.
///
/// # Safety
/// `heap` is null, or was not closed and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_close(heap: *mut ch_heap) -> c_int {
    guard_code(|| {
        if heap.is_null() {
            return Err(null("the heap"));
        }
        // SAFETY: handles come from a box, and the caller gives this one up.
        drop(unsafe { Box::from_raw(heap) });
        Ok(())
    })
}

/// Allocates.
///
/// # Safety
/// `heap` is null, or was not closed; `kind` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_alloc(heap: *const ch_heap, kind: *const c_char, count: u64) -> *mut c_void {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let heap = unsafe { ch_heap::get(heap) }?;
        // SAFETY: the caller's promise.
        let of = unsafe { heap.type_of(kind) }?;
        let at = heap.heap.allocate(of, count)?;
        Ok(heap.heap.address(at, 0)?.cast())
    })
}

/// Frees.
///
/// # Safety
/// `heap` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_free(heap: *const ch_heap, pointer: *mut c_void) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let heap = &unsafe { ch_heap::get(heap) }?.heap;
        if pointer.is_null() { Ok(()) } else { heap.free(heap.offset(pointer.cast())?) }
    })
}

/// Allocates into a word.
///
/// # Safety
/// As [`ch_heap_alloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_alloc_into(
    heap: *const ch_heap,
    kind: *const c_char,
    count: u64,
    word: u64,
) -> u64 {
    guard(0, || {
        // SAFETY: the caller's promise.
        let heap = unsafe { ch_heap::get(heap) }?;
        // SAFETY: the caller's promise.
        let of = unsafe { heap.type_of(kind) }?;
        heap.heap.allocate_into(of, count, word)
    })
}

/// Frees from a word.
///
/// # Safety
/// `heap` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_free_from(heap: *const ch_heap, word: u64) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        unsafe { ch_heap::get(heap) }?.heap.free_from(word)
    })
}

/// A root's word.
///
/// # Safety
/// `heap` is null, or was not closed; `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_root(heap: *const ch_heap, name: *const c_char) -> u64 {
    guard(0, || {
        // SAFETY: the caller's promise.
        let (heap, name) = unsafe { (ch_heap::get(heap)?, text("name", name)?) };
        heap.heap.root(name)
    })
}

/// Where an offset is mapped.
///
/// # Safety
/// `heap` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_pointer(heap: *const ch_heap, offset: u64) -> *mut c_void {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let heap = unsafe { ch_heap::get(heap) }?;
        Ok(heap.heap.address(offset, 1)?.cast())
    })
}

/// The offset of an address.
///
/// # Safety
/// `heap` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_offset(heap: *const ch_heap, pointer: *const c_void) -> u64 {
    guard(0, || {
        // SAFETY: the caller's promise.
        unsafe { ch_heap::get(heap) }?.heap.offset(pointer.cast())
    })
}

/// Checks a heap.
///
/// # Safety
/// `heap` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_heap_check(heap: *const ch_heap) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let report = unsafe { ch_heap::get(heap) }?.heap.check()?;
        if let Some(first) = report.problems.first() {
            noted_errno(&Error::new(ErrorKind::Corrupt, first.to_string()));
        }
        Ok(c_int::try_from(report.problems.len()).unwrap_or(c_int::MAX))
    })
}
