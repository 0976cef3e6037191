//! Copies between a buffer of the program and an object.
//!
//! Memory that other processes write at the same time is only ever read and written here through volatile
//! accesses of machine words: whatever a racing writer does, each word is old or new.

use crate::movable::Guard;
use crate::object::Object;
use crate::{
    Error, ErrorKind, MapOptions, Mapping, PAGE_SIZE_BYTES, Protection, Result, Sharing, direct, fixed,
};
use commonhold_sys::memory;
use std::ptr::NonNull;

/// Bytes of an object that are mapped at once.
const WINDOW_BYTES: u64 = 16 << 20;

/// Copies bytes out of an object.
pub(crate) fn read(object: &Object, buffer: &mut [u8], offset: u64) -> Result<()> {
    check(object, offset, buffer.len())?;
    if object.core.movable().is_some() {
        let guard = within_guard(object, offset, buffer.len())?;
        // SAFETY: the bytes lie within the object, which stays where it is until after the copy.
        unsafe { copy_out(guard.as_ptr().wrapping_add(offset as usize), buffer) };
        return Ok(());
    }
    if !object.is_controlled() {
        return direct::read(&object.core, buffer, offset);
    }
    read_served(object, buffer, offset)
}

/// Copies bytes out of a controlled object, which may lie past its end, in its last page.
pub(crate) fn read_served(object: &Object, buffer: &mut [u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let window = Window::open(object, offset + done as u64, buffer.len() - done, Protection::Read)?;
        let part = &mut buffer[done..done + window.length];
        // SAFETY: the window maps `length` readable bytes from `start` on, and lives until after the call.
        unsafe { copy_out(window.start(), part) };
        done += window.length;
    }
    Ok(())
}

/// Copies bytes into an object.
pub(crate) fn write(object: &Object, data: &[u8], offset: u64) -> Result<()> {
    if !object.access().writes() {
        let what = format!("object {} was opened for reading: open it for writing", object.core.label());
        return Err(Error::new(ErrorKind::Permission, what));
    }
    check(object, offset, data.len())?;
    if object.core.movable().is_some() {
        let guard = within_guard(object, offset, data.len())?;
        // SAFETY: as above; it was opened for writing.
        unsafe { copy_in(data, guard.as_ptr().wrapping_add(offset as usize)) };
        return Ok(());
    }
    if !object.is_controlled() {
        return direct::write(&object.core, data, offset);
    }
    let mut done = 0;
    while done < data.len() {
        let window = Window::open(object, offset + done as u64, data.len() - done, Protection::ReadWrite)?;
        // SAFETY: the window maps `length` writable bytes from `start` on, and lives until after the call.
        unsafe { copy_in(&data[done..done + window.length], window.start()) };
        done += window.length;
    }
    Ok(())
}

/// Refuses a range that is not all in the object.
pub(crate) fn check(object: &Object, offset: u64, length: usize) -> Result<()> {
    object.core.with_size(|size| {
        let end = offset.checked_add(length as u64);
        if end.is_some_and(|end| end <= size) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{length} bytes from {offset} on end past the {size} bytes of object {}",
            object.core.label()
        )))
    })
}

/// A guard of an object that is as large, still.
fn within_guard(object: &Object, offset: u64, length: usize) -> Result<Guard<'_>> {
    let guard = object.guard()?;
    match offset.checked_add(length as u64).is_some_and(|end| end <= guard.len() as u64) {
        true => Ok(guard),
        false => {
            Err(Error::invalid(format!("the object was resized: nothing is left of the range at {offset}")))
        }
    }
}

/// A part of an object, mapped for one copy.
struct Window {
    mapping: Mapping,
    /// Where the copy begins within the mapping.
    skip: usize,
    /// Bytes to copy.
    length: usize,
}

impl Window {
    fn open(object: &Object, offset: u64, wanted: usize, protection: Protection) -> Result<Window> {
        let first = offset / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
        let skip = offset - first;
        let length = (wanted as u64).min(WINDOW_BYTES - skip);
        let options = MapOptions {
            offset: first,
            length: Some(skip + length),
            protection,
            sharing: Sharing::Shared,
            flags: fixed::ANYWHERE,
            ..MapOptions::default()
        };
        let window = Window { mapping: object.map(&options)?, skip: skip as usize, length: length as usize };
        window.bring_in()?;
        Ok(window)
    }

    /// Brings the pages in by a call that can fail, where the host serves such calls: a page that its pager
    /// cannot supply is then an error here and no signal.
    fn bring_in(&self) -> Result<()> {
        let shared = self.mapping.object().core.shared();
        if !shared.serves_kernel_faults() {
            return Ok(());
        }
        let start = NonNull::new(self.mapping.as_ptr()).unwrap_or(NonNull::dangling());
        memory::populate_read(start, self.mapping.len()).map_err(|error| {
            let object = self.mapping.object();
            let name = object.core.label();
            // The kernel says only that there is no memory; the host knows why.
            let why = object.info().map(|info| info.warning).ok().filter(|why| !why.is_empty());
            let why = why.unwrap_or_else(|| error.to_string());
            let what =
                format!("bytes of object {name} could not be had from its pager, or it was shrunk: {why}");
            Error::new(ErrorKind::Pager, what)
        })
    }

    fn start(&self) -> *mut u8 {
        self.mapping.as_ptr().wrapping_add(self.skip)
    }
}

const WORD: usize = size_of::<usize>();

/// Copies from shared memory.
///
/// # Safety
/// `source` must be valid for reads of `target.len()` bytes.
unsafe fn copy_out(source: *const u8, target: &mut [u8]) {
    let head = source.align_offset(WORD).min(target.len());
    let (head, rest) = target.split_at_mut(head);
    for (i, byte) in head.iter_mut().enumerate() {
        // SAFETY: within the source, by the caller's promise.
        *byte = unsafe { source.add(i).read_volatile() };
    }
    // SAFETY: `head` bytes of the source were passed, no more than it has.
    let source = unsafe { source.add(head.len()) };
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    for (i, word) in words.iter_mut().enumerate() {
        // SAFETY: within the source; aligned, because the head brought it to a multiple of the word size.
        *word = unsafe { source.cast::<usize>().add(i).read_volatile() }.to_ne_bytes();
    }
    let passed = words.len() * WORD;
    for (i, byte) in tail.iter_mut().enumerate() {
        // SAFETY: within the source, by the caller's promise.
        *byte = unsafe { source.add(passed + i).read_volatile() };
    }
}

/// Copies to shared memory.
///
/// # Safety
/// `target` must be valid for writes of `source.len()` bytes.
pub(crate) unsafe fn copy_in(source: &[u8], target: *mut u8) {
    let head = target.align_offset(WORD).min(source.len());
    let (head, rest) = source.split_at(head);
    for (i, byte) in head.iter().enumerate() {
        // SAFETY: within the target, by the caller's promise.
        unsafe { target.add(i).write_volatile(*byte) };
    }
    // SAFETY: `head` bytes of the target were passed, no more than it has.
    let target = unsafe { target.add(head.len()) };
    let (words, tail) = rest.as_chunks::<WORD>();
    for (i, word) in words.iter().enumerate() {
        // SAFETY: within the target; aligned, because the head brought it to a multiple of the word size.
        unsafe { target.cast::<usize>().add(i).write_volatile(usize::from_ne_bytes(*word)) };
    }
    let passed = words.len() * WORD;
    for (i, byte) in tail.iter().enumerate() {
        // SAFETY: within the target, by the caller's promise.
        unsafe { target.add(passed + i).write_volatile(*byte) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_alignment_and_length_are_whole() {
        let memory: Vec<u8> = (0..96).collect();
        for start in 0..24 {
            for length in 0..48 {
                let mut out = vec![0xaa; length];
                // SAFETY: 24 + 48 < 96 bytes.
                unsafe { copy_out(memory.as_ptr().add(start), &mut out) };
                assert_eq!(out, memory[start..start + length]);
                let mut back = vec![0xbb; 96];
                // SAFETY: as above.
                unsafe { copy_in(&out, back.as_mut_ptr().add(start)) };
                assert_eq!(back[start..start + length], memory[start..start + length]);
                assert!(back[..start].iter().chain(&back[start + length..]).all(|byte| *byte == 0xbb));
            }
        }
    }
}
