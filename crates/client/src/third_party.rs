//! Third-party I/O (Bernadat & Black, section 9): a read whose bytes go straight into an object,
//! which may be another process's wired memory.

use crate::{Error, ErrorKind, MapOptions, Object, PAGE_SIZE_BYTES, Result, copying, fixed};
use commonhold_object::error::Doing;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What direct I/O is aligned to, on whatever disk.
const BLOCK: u64 = PAGE_SIZE_BYTES;

/// How a file was read into an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRead {
    /// Bytes that are there now: fewer than asked for where the file ends.
    pub bytes: u64,
    /// Those of them that went past the page cache (O_DIRECT): a disk's own device wrote them
    /// there, and no processor copied them. (A file system may copy them all the same: one in
    /// memory does.) The others were copied once, from the page cache.
    pub direct_bytes: u64,
}

impl Object {
    /// Reads `length` bytes of a file, from `file_offset` on, to `offset` in this object, without a
    /// buffer in between. What lies at multiples of 4 KiB in the file and in the object goes past
    /// the page cache where the file allows it.
    ///
    /// For direct objects that are open for writing. Of a controlled one
    /// ([`ErrorKind::Unsupported`]) what a device writes would not be noticed. After an error part
    /// of the range may be changed.
    pub fn read_into(&self, file: impl AsFd, file_offset: u64, offset: u64, length: u64) -> Result<FileRead> {
        let name = self.core.label();
        if self.is_controlled() {
            let what =
                format!("object {name} is controlled, and its host would not notice the bytes: use write_at");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        copying::check(self, offset, usize::try_from(length).unwrap_or(usize::MAX))?;
        if length == 0 || file_offset.checked_add(length).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Error::invalid(format!(
                "{length} bytes from {file_offset} on are no part of a file"
            )));
        }
        let first = offset / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
        let flags = fixed::ANYWHERE;
        let length_bytes = Some(offset - first + length);
        let part = MapOptions { offset: first, length: length_bytes, flags, ..MapOptions::default() };
        let mapping = self.map(&part)?;
        let start = mapping.as_ptr().wrapping_add((offset - first) as usize);
        let reading = Reading { start, length, file_offset, file: file.as_fd() };
        let direct_bytes = if file_offset.is_multiple_of(BLOCK) && offset.is_multiple_of(BLOCK) {
            reading.directly().doing(format_args!("reading a file into object {name}"))?
        } else {
            0
        };
        let more = reading.plainly(direct_bytes).doing(format_args!("reading a file into object {name}"))?;
        Ok(FileRead { bytes: direct_bytes + more, direct_bytes })
    }
}

struct Reading<'a> {
    start: *mut u8,
    length: u64,
    file_offset: u64,
    file: std::os::fd::BorrowedFd<'a>,
}

impl Reading<'_> {
    /// The whole blocks, by the device; gives how many bytes came. None where it cannot be done so.
    fn directly(&self) -> std::result::Result<u64, Errno> {
        let wanted = self.length / BLOCK * BLOCK;
        let Some(file) = self.opened_for_it().filter(|_| wanted > 0) else { return Ok(0) };
        let mut done = 0;
        while done < wanted {
            match self.some(&file, done, wanted - done) {
                Ok(0) | Err(Errno::INVAL | Errno::OPNOTSUPP) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            if !done.is_multiple_of(BLOCK) {
                break; // the file ends there
            }
        }
        Ok(done)
    }

    /// The same file once more: the program's own descriptor keeps its flags.
    fn opened_for_it(&self) -> Option<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let is_file = rustix::fs::fstat(self.file).is_ok_and(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile
        });
        let opened = is_file.then(|| rustix::fs::open(path, flags, Mode::empty()));
        opened.and_then(std::result::Result::ok)
    }

    /// The rest, through the page cache.
    fn plainly(&self, from: u64) -> std::result::Result<u64, Errno> {
        let mut done = from;
        while done < self.length {
            match self.some(self.file, done, self.length - done) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(done - from)
    }

    fn some(&self, file: impl AsFd, done: u64, bytes: u64) -> std::result::Result<u64, Errno> {
        let to = self.start.wrapping_add(done as usize);
        let (file, at) = (file.as_fd().as_raw_fd(), (self.file_offset + done) as libc::off_t);
        // SAFETY: the bytes lie in a mapping that lives, which is shared memory: no reference
        // points there.
        let got = unsafe { libc::pread(file, to.cast(), bytes as usize, at) };
        u64::try_from(got)
            .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
