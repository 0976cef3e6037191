//! Memory that other processes share, as the measurements touch it: addresses with a length, never a slice.
//!
//! Both sides of a row run the very same functions of this file, so that a ratio compares the memory and not
//! the code.

use commonhold::Mapping;
use commonhold_sys::memory;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A range of mapped memory, for as long as its mapping lives.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    start: NonNull<u8>,
    length: usize,
    mapping: PhantomData<&'a ()>,
}

// SAFETY: a view gives volatile copies only and no reference; what races is the measured memory's content,
// which its users expect to change.
unsafe impl Send for View<'_> {}

impl<'a> View<'a> {
    /// All of a Commonhold mapping.
    pub fn of(mapping: &'a Mapping) -> View<'a> {
        let start = NonNull::new(mapping.as_ptr()).unwrap_or(NonNull::dangling());
        View { start, length: mapping.len(), mapping: PhantomData }
    }

    /// Bytes.
    pub fn len(self) -> usize {
        self.length
    }

    /// Whole pages.
    pub fn pages(self) -> usize {
        self.length / PAGE
    }

    /// A part of it.
    pub fn part(self, offset: usize, length: usize) -> View<'a> {
        let start = NonNull::new(self.at(offset, length)).unwrap_or(self.start);
        View { start, length, mapping: PhantomData }
    }

    /// Its first byte, for system calls that fill memory or read it.
    pub fn as_mut_ptr(self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn at(self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.length), "outside of the view");
        // SAFETY: the assertion keeps it inside the mapping, which lives as long as the view.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Reads one byte.
    pub fn read_byte(self, offset: usize) -> u8 {
        // SAFETY: inside of a mapping that lives; volatile, because others may write there.
        unsafe { self.at(offset, 1).read_volatile() }
    }

    /// Reads the word that begins at a multiple of eight.
    pub fn read_word(self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8), "not a multiple of eight");
        // SAFETY: inside of a mapping that lives and begins at a page; the offset is aligned; volatile.
        unsafe { self.at(offset, 8).cast::<u64>().read_volatile() }
    }

    /// Writes the word that begins at a multiple of eight.
    pub fn write_word(self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8), "not a multiple of eight");
        // SAFETY: as in `read_word`; a mapping that is not writable ends the process, which is no undefined act.
        unsafe { self.at(offset, 8).cast::<u64>().write_volatile(value) }
    }

    fn atomic(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "not a multiple of eight");
        // SAFETY: inside of a mapping that lives as long as the view, and aligned; words used so are used by
        // nobody otherwise.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// A word of 32 bits that other processes change and sleep on (futex).
    pub fn futex(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "not a multiple of four");
        // SAFETY: as in `atomic`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Reads a word that other processes change at the same time.
    pub fn load(self, offset: usize) -> u64 {
        self.atomic(offset).load(Ordering::SeqCst)
    }

    /// Changes a word that other processes read at the same time.
    pub fn store(self, offset: usize, value: u64) {
        self.atomic(offset).store(value, Ordering::SeqCst);
    }

    /// Adds one to a word that other processes change at the same time; what it was before.
    pub fn increment(self, offset: usize) -> u64 {
        self.atomic(offset).fetch_add(1, Ordering::SeqCst)
    }

    /// Copies `bytes` in.
    pub fn write(self, offset: usize, bytes: &[u8]) {
        // SAFETY: the target lies inside of the mapping, and no slice of shared memory exists to overlap.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len()) }
    }

    /// Makes all of it zero.
    pub fn zero(self) {
        // SAFETY: inside of a mapping that lives, and no slice of shared memory exists to overlap.
        unsafe { self.at(0, self.length).write_bytes(0, self.length) }
    }

    /// Copies all of another view, which is as long.
    pub fn copy(self, from: View<'_>) {
        let (source, target) = (from.at(0, self.length), self.at(0, self.length));
        // SAFETY: both lie inside of mappings that live, and may overlap.
        unsafe { std::ptr::copy(source, target, self.length) }
    }

    /// Copies bytes out.
    pub fn read(self, offset: usize, bytes: &mut [u8]) {
        // SAFETY: the source lies inside of the mapping, and no slice of shared memory exists to overlap.
        unsafe { std::ptr::copy(self.at(offset, bytes.len()), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Adds up all words, in order.
    #[inline(never)]
    pub fn sum_words(self) -> u64 {
        let words = self.start.as_ptr().cast::<u64>();
        let mut sum = 0u64;
        for n in 0..self.length / 8 {
            // SAFETY: inside of a mapping that lives and begins at a page.
            sum = sum.wrapping_add(unsafe { words.add(n).read_volatile() });
        }
        sum
    }

    /// Reads the first byte of each page, in order.
    #[inline(never)]
    pub fn touch_pages(self) -> u64 {
        (0..self.pages()).fold(0, |sum, page| sum + u64::from(self.read_byte(page * PAGE)))
    }

    /// Writes the first word of each page, in order.
    #[inline(never)]
    pub fn write_pages(self) {
        (0..self.pages()).for_each(|page| self.write_word(page * PAGE, page as u64 + 1));
    }

    /// Writes every word, in order, without reading it: a page that is not there is a fault of a
    /// write, whatever the compiler makes of the loop.
    #[inline(never)]
    pub fn write_words(self, value: u64) {
        let words = self.start.as_ptr().cast::<u64>();
        for n in 0..self.length / 8 {
            // SAFETY: inside of a mapping that lives and begins at a page.
            unsafe { words.add(n).write_volatile(value) }
        }
    }

    /// Reads and writes words at random places, in turns.
    #[inline(never)]
    pub fn mix(self, accesses: usize, seed: u64) -> u64 {
        let words = self.start.as_ptr().cast::<u64>();
        let count = (self.length / 8) as u64;
        let (mut state, mut sum) = (seed | 1, 0u64);
        for n in 0..accesses as u64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let place = ((u128::from(state) * u128::from(count)) >> 64) as usize;
            // SAFETY: `place` is less than the number of words in the mapping, which begins at a page.
            unsafe {
                let word = words.add(place);
                if n & 1 == 0 {
                    sum = sum.wrapping_add(word.read_volatile())
                } else {
                    word.write_volatile(state)
                }
            }
        }
        sum
    }
}

/// A mapping made by hand: the other side of most rows.
#[derive(Debug)]
pub struct RawMapping {
    start: NonNull<u8>,
    length: usize,
}

impl RawMapping {
    /// Maps `length` bytes of a file, shared.
    pub fn shared(fd: impl AsFd, length: usize) -> io::Result<RawMapping> {
        Self::map(fd, length, false)
    }

    /// Maps `length` bytes of a file, copied when written.
    pub fn private(fd: impl AsFd, length: usize) -> io::Result<RawMapping> {
        Self::map(fd, length, true)
    }

    /// Memory of this process alone, as `malloc` has it of the kernel.
    pub fn anonymous(length: usize) -> io::Result<RawMapping> {
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: the kernel chooses free addresses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                protection,
                rustix::mm::MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(RawMapping { start, length })
    }

    fn map(fd: impl AsFd, length: usize, private: bool) -> io::Result<RawMapping> {
        let wish = memory::Wish {
            hint: std::ptr::null_mut(),
            fixed: false,
            write: true,
            private,
            not_inherited: false,
            controlled: false,
        };
        Ok(RawMapping { start: memory::map(fd, 0, length, wish)?, length })
    }

    /// Its memory.
    pub fn view(&self) -> View<'_> {
        View { start: self.start, length: self.length, mapping: PhantomData }
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The addresses, for system calls that fill memory (`pread` into a mapping).
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for RawMapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; views borrow this mapping, so none is left.
        let _ = unsafe { memory::unmap(self.start, self.length) };
    }
}

/// A memfd of that size, without frames yet.
pub fn memory_file(size_bytes: usize) -> io::Result<std::os::fd::OwnedFd> {
    commonhold_sys::frames::create("commonhold-bench", size_bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let fd = memory_file(4 * PAGE).unwrap();
        let (one, other) =
            (RawMapping::shared(&fd, 4 * PAGE).unwrap(), RawMapping::private(&fd, 4 * PAGE).unwrap());
        one.view().write_pages();
        assert_eq!(one.view().sum_words(), 1 + 2 + 3 + 4);
        assert_eq!(other.view().read_word(3 * PAGE), 4);
        other.view().write_word(0, 99);
        assert_eq!(one.view().read_word(0), 1);
        let mut bytes = [0; 3];
        one.view().write(PAGE + 5, b"abc");
        one.view().read(PAGE + 5, &mut bytes);
        assert_eq!(&bytes, b"abc");
        assert_eq!(one.view().touch_pages(), 10);
        let own = RawMapping::anonymous(2 * PAGE).unwrap();
        own.view().write_words(1);
        own.view().part(PAGE, 8).write_words(2);
        assert_eq!(own.view().sum_words(), 2 * PAGE as u64 / 8 + 1);
        one.view().mix(4096, 7);
        assert!((0..4).any(|page| one.view().read_word(page * PAGE + 8) != 0), "half of the accesses write");
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn no_access_past_the_end() {
        let mapping = RawMapping::shared(memory_file(PAGE).unwrap(), PAGE).unwrap();
        mapping.view().write_word(PAGE, 1);
    }
}
