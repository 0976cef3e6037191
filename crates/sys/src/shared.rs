//! Memory in a file that outlives the process: written by copying, without a system call, and found by whoever maps the
//! file next.

use crate::memory::{self, Wish};
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, compiler_fence};

/// A part of a file, mapped for one owner. Other processes may have it mapped too, but not use it meanwhile.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and is changed through `&mut` only.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps `length` bytes of a file from `offset`. The file must have them.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn map(fd: impl AsFd, offset: u64, length: usize) -> io::Result<Shared> {
        let wish = Wish {
            hint: ptr::null_mut(),
            fixed: false,
            write: true,
            private: false,
            not_inherited: true,
            controlled: true,
        };
        Ok(Shared { start: memory::map(fd, offset, length, wish)?, length })
    }

    /// Copies bytes to a place in it. A process that is killed later has written them before whatever it wrote next.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.length && bytes.len() <= self.length - at, "outside of the mapping");
        // SAFETY: the destination lies within the mapping, which is writable and nobody's but ours; a slice of Rust's own
        // memory does not overlap it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
        compiler_fence(Ordering::SeqCst);
    }

    /// Copies bytes from a place in it.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at <= self.length && bytes.len() <= self.length - at, "outside of the mapping");
        // SAFETY: the source lies within the mapping, which nobody changes meanwhile, and a slice of Rust's own memory does
        // not overlap it.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with that length; nothing points into it.
        let _ = unsafe { memory::unmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_maps_the_file_next_finds_it() {
        let fd = crate::frames::create("shared test", 1 << 16).unwrap();
        let mut first = Shared::map(&fd, 8192, 8192).unwrap();
        first.write(8190, &[1, 2]);
        drop(first);
        let mut found = [0; 4];
        Shared::map(&fd, 12288, 4096).unwrap().read(4092, &mut found);
        assert_eq!(found, [0, 0, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn nothing_is_written_outside() {
        let fd = crate::frames::create("shared test", 8192).unwrap();
        Shared::map(&fd, 0, 4096).unwrap().write(4095, &[1, 2]);
    }
}
