//! Copies of memory: a fork child's own, which its parent makes, and how the parent reads what it copies.

use commonhold_points as points;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::{self, Error};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// Memory of this process alone, zero at first. A page that nobody writes takes no memory.
#[derive(Debug)]
pub struct OwnMemory {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is reached through this value alone.
unsafe impl Send for OwnMemory {}

impl OwnMemory {
    /// `reserve`: the kernel counts all of it, and refuses what the machine has not.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn new(length: usize, reserve: bool) -> io::Result<OwnMemory> {
        let mut flags = MapFlags::PRIVATE;
        flags.set(MapFlags::NORESERVE, !reserve);
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses free addresses.
        let map = || unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, rights, flags) };
        let address = points::mmap(map)?;
        let address = NonNull::new(address.cast()).ok_or_else(|| Error::other("mapped at null"))?;
        Ok(OwnMemory { address, length })
    }

    /// Writes bytes at an offset. What would lie past the end is left out.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        let length = bytes.len().min(self.length.saturating_sub(offset));
        // SAFETY: `length` bytes from `offset` on lie within the memory, which nobody else reaches.
        unsafe {
            let target = self.address.as_ptr().wrapping_add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, length);
        }
    }

    /// Takes the right to write away.
    pub fn make_read_only(&mut self) -> io::Result<()> {
        // SAFETY: nobody writes to it but through this value.
        unsafe { crate::memory::make_read_only(self.address, self.length) }
    }

    /// Moves it to another address, over what is there.
    ///
    /// # Safety
    /// As many bytes from there on must be reserved by the caller, and of no use to anybody.
    #[cfg_attr(feature = "faults", track_caller)]
    pub unsafe fn move_over(self, to: NonNull<u8>) -> io::Result<()> {
        let (from, length, flags) = (self.address.as_ptr().cast(), self.length, MremapFlags::MAYMOVE);
        // SAFETY: the caller's promise, and nobody has an address within this memory.
        let moved = || unsafe { rustix::mm::mremap_fixed(from, length, length, flags, to.as_ptr().cast()) };
        points::mmap(moved)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and still there; nobody has an address within it.
        let _ = unsafe { crate::memory::unmap(self.address, self.length) };
    }
}

/// Reads memory of this process that others write, or that may not be there: the kernel reads it, through a pipe, and says
/// EFAULT where a touch would be a signal.
#[derive(Debug)]
pub struct Peek {
    from: OwnedFd,
    to: OwnedFd,
}

impl Peek {
    /// Makes the pipe.
    pub fn new() -> io::Result<Peek> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Peek { from, to })
    }

    /// Reads from an address on; gives how many bytes. None: what is at the address cannot be read.
    pub fn read(&self, address: *const u8, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let (at, left) = (address.wrapping_add(done), buffer.len() - done);
            // SAFETY: the kernel reads from there, whatever is there: a bad address is an error.
            let sent = unsafe { libc::write(self.to.as_raw_fd(), at.cast(), left) };
            if sent < 0 {
                match Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::EFAULT) => return Ok(done),
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => return Err(error),
                }
            }
            let end = done + sent.unsigned_abs();
            while done < end {
                match rustix::io::read(&self.from, &mut buffer[done..end]) {
                    Ok(0) => return Err(Error::from(io::ErrorKind::UnexpectedEof)),
                    Ok(count) => done += count,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    #[test]
    fn memory_is_read_up_to_what_is_not_there() {
        let length = 5 * 4096;
        let mut own = OwnMemory::new(length, true).unwrap();
        let bytes: Vec<u8> = (0..length).map(|at| (at / 7) as u8).collect();
        own.put(0, &bytes);
        let hole = own.address.as_ptr().wrapping_add(3 * 4096);
        // SAFETY: nobody uses this part any more.
        unsafe { memory::make_inaccessible(NonNull::new(hole).unwrap(), 4096) }.unwrap();
        let (peek, mut buffer) = (Peek::new().unwrap(), vec![0xaa; length]);
        assert_eq!(peek.read(own.address.as_ptr(), &mut buffer).unwrap(), 3 * 4096);
        assert_eq!(buffer[..3 * 4096], bytes[..3 * 4096]);
        assert_eq!(peek.read(hole, &mut buffer).unwrap(), 0);
        assert_eq!(peek.read(hole.wrapping_add(4096), &mut buffer[..4096]).unwrap(), 4096);
        assert_eq!(buffer[..4096], bytes[4 * 4096..]);
    }

    #[test]
    fn a_copy_moves_over_what_was_reserved_for_it() {
        let mut own = OwnMemory::new(8192, false).unwrap();
        own.put(4090, &[7; 12]);
        own.put(8190, &[9; 12]);
        own.make_read_only().unwrap();
        let at = memory::reserve(std::ptr::null_mut(), 8192).unwrap();
        // SAFETY: reserved just now.
        unsafe { own.move_over(at) }.unwrap();
        let mut buffer = vec![0; 8192];
        assert_eq!(Peek::new().unwrap().read(at.as_ptr(), &mut buffer).unwrap(), 8192);
        assert_eq!((buffer[4089], buffer[4090], buffer[4101], buffer[4102], buffer[8191]), (0, 7, 7, 0, 9));
        // SAFETY: nobody uses it any more.
        unsafe { memory::unmap(at, 8192) }.unwrap();
    }
}
