//! Files that are only read. Paths end with a zero.

use crate::{call, number};
use core::mem::MaybeUninit;

/// Where paths begin that do not begin with a slash.
const HERE: usize = -100_isize as usize;
const CLOSE_ON_EXEC: usize = 0o2_000_000;
/// No such file: also a path without its zero.
const NO_FILE: isize = -2;

/// Numbers, of which every pattern of bits is one.
///
/// # Safety
/// It is so, and it has no padding.
pub unsafe trait Plain {}

/// A file or a directory that is open.
pub struct File(usize);

/// What a file is.
pub struct Status {
    /// On which file system it is.
    pub device: u64,
    /// Which it is there.
    pub inode: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its owner.
    pub owner: u32,
    /// Its kind and mode.
    pub mode: u32,
    /// When its bytes were changed.
    pub modified_ns: i64,
    /// When anything of it was changed.
    pub changed_ns: i64,
}

/// Room for the 144 bytes of x86-64's `struct stat`.
type RawStatus = [u64; 18];

impl Status {
    #[inline(always)]
    fn of(raw: &RawStatus) -> Status {
        let ns = |at: usize| (raw[at] as i64).wrapping_mul(1_000_000_000).wrapping_add(raw[at + 1] as i64);
        Status {
            device: raw[0],
            inode: raw[1],
            bytes: raw[6],
            owner: (raw[3] >> 32) as u32,
            mode: raw[3] as u32,
            modified_ns: ns(11),
            changed_ns: ns(13),
        }
    }

    /// Of the file at a path.
    #[inline(always)]
    pub fn of_path(path: &[u8]) -> Result<Status, isize> {
        Status::at(HERE, path, 0)
    }

    /// The same, of a symbolic link itself.
    #[inline(always)]
    pub fn of_link(path: &[u8]) -> Result<Status, isize> {
        const NO_FOLLOW: usize = 0x100;
        Status::at(HERE, path, NO_FOLLOW)
    }

    #[inline(always)]
    fn at(below: usize, path: &[u8], flags: usize) -> Result<Status, isize> {
        let mut raw: RawStatus = [0; 18];
        if path.last() != Some(&0) {
            return Err(NO_FILE);
        }
        let place = [below, path.as_ptr() as usize, raw.as_mut_ptr() as usize, flags, 0, 0];
        // SAFETY: a path that ends with a zero, and room for the structure.
        let result = unsafe { call(number::NEWFSTATAT, place) };
        if result < 0 { Err(result) } else { Ok(Status::of(&raw)) }
    }
}

impl File {
    /// Opens to read.
    #[inline(always)]
    pub fn open(path: &[u8]) -> Result<File, isize> {
        File::open_at(HERE, path, 0)
    }

    /// Opens to read, with more flags of `open`.
    #[inline(always)]
    pub fn open_with(path: &[u8], flags: usize) -> Result<File, isize> {
        File::open_at(HERE, path, flags)
    }

    /// Opens what is below this directory to read, with more flags of `open`.
    #[inline(always)]
    pub fn open_below(&self, path: &[u8], flags: usize) -> Result<File, isize> {
        File::open_at(self.0, path, flags)
    }

    #[inline(always)]
    fn open_at(below: usize, path: &[u8], flags: usize) -> Result<File, isize> {
        if path.last() != Some(&0) {
            return Err(NO_FILE);
        }
        // SAFETY: a path that ends with a zero.
        let file =
            unsafe { call(number::OPENAT, [below, path.as_ptr() as usize, flags | CLOSE_ON_EXEC, 0, 0, 0]) };
        if file < 0 { Err(file) } else { Ok(File(file as usize)) }
    }

    /// The kernel's number of it.
    #[inline(always)]
    pub fn number(&self) -> usize {
        self.0
    }

    /// What it is.
    #[inline(always)]
    pub fn status(&self) -> Option<Status> {
        let mut raw: RawStatus = [0; 18];
        // SAFETY: room for the structure.
        let result = unsafe { call(number::FSTAT, [self.0, raw.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        (result >= 0).then_some(Status::of(&raw))
    }

    /// What is below this directory; itself, if it is a link.
    #[inline(always)]
    pub fn status_of(&self, path: &[u8]) -> Result<Status, isize> {
        const NO_FOLLOW: usize = 0x100;
        Status::at(self.0, path, NO_FOLLOW)
    }

    /// Where a link below this directory leads, as far as there is room.
    #[inline(always)]
    pub fn link<'a>(&self, path: &[u8], room: &'a mut [MaybeUninit<u8>]) -> Result<&'a [u8], isize> {
        if path.last() != Some(&0) {
            return Err(NO_FILE);
        }
        let place = [self.0, path.as_ptr() as usize, room.as_mut_ptr() as usize, room.len(), 0, 0];
        // SAFETY: a path that ends with a zero, and room for so many bytes.
        let bytes = unsafe { call(number::READLINKAT, place) };
        let read = usize::try_from(bytes).map_err(|_| bytes)?;
        // SAFETY: so many were written.
        Ok(unsafe { room.get(..read).unwrap_or_default().assume_init_ref() })
    }

    /// Some of its next bytes, without clearing the room first; an error of the kernel.
    #[inline(always)]
    pub fn next<'a>(&self, room: &'a mut [MaybeUninit<u8>]) -> Result<&'a [u8], isize> {
        let place = [self.0, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
        // SAFETY: room for so many bytes.
        let bytes = unsafe { call(number::READ, place) };
        let read = usize::try_from(bytes).map_err(|_| bytes)?;
        // SAFETY: so many were written.
        Ok(unsafe { room.get(..read).unwrap_or_default().assume_init_ref() })
    }

    /// Some of its next bytes; how many they were, or an error of the kernel.
    #[inline(always)]
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, isize> {
        // SAFETY: room for so many bytes.
        let bytes =
            unsafe { call(number::READ, [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
        usize::try_from(bytes).map_err(|_| bytes)
    }

    /// What lies at a place of it; none if it is too short.
    #[inline(always)]
    pub fn at<'a, T: Plain>(&self, place: u64, room: &'a mut MaybeUninit<T>) -> Option<&'a T> {
        let bytes = size_of::<T>();
        let place = [self.0, room.as_mut_ptr() as usize, bytes, place as usize, 0, 0];
        // SAFETY: room for so many bytes.
        let read = unsafe { call(number::PREAD, place) };
        // SAFETY: all were written, and every pattern of bits will do.
        (read == bytes as isize).then(|| unsafe { room.assume_init_ref() })
    }
}

impl Drop for File {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { call(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}
