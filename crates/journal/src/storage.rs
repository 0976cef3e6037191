//! Where the bytes of one journal file are: the trait, and its implementation for a real file.

use commonhold_points as points;
use commonhold_sys::{disk, frames};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes of one journal file.
///
/// The journal hands over whole parts from one contiguous aligned buffer (header and payload are
/// neighbours in [`crate::RecordBuffer`]), so a plain positioned write copies nothing and a vectored one
/// would gain nothing.
pub trait Storage {
    /// Current length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are no bytes yet.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `bytes` from `offset`, or fails; bytes past the end are an `UnexpectedEof` error.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, or fails having written any part of them.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes every byte written before durable (as `fdatasync` does). After an error nothing may be
    /// assumed about the bytes written since the last success, not even after a later success.
    fn flush(&mut self) -> io::Result<()>;

    /// Makes the file at least `len` bytes long with blocks that exist, so that later writes below `len`
    /// cannot fail for lack of space. Leaves the old length behind if it fails.
    fn reserve(&mut self, len: u64) -> io::Result<()>;

    /// As [`reserve`](Self::reserve), for a large write that follows: its flush may have to note in the file system's own
    /// journal that the blocks are written now.
    fn allocate(&mut self, len: u64) -> io::Result<()> {
        self.reserve(len)
    }

    /// What lies there will be flushed soon: its way to the disk may begin. A hint; the flush says whether it got there.
    fn begin_flush(&mut self, _offset: u64, _len: u64) {}

    /// Cuts the file to `len` bytes, giving blocks back. Never used to make it longer.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
}

impl<S: Storage + ?Sized> Storage for Box<S> {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn is_empty(&self) -> io::Result<bool> {
        (**self).is_empty()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, bytes)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (**self).flush()
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        (**self).reserve(len)
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        (**self).allocate(len)
    }

    fn begin_flush(&mut self, offset: u64, len: u64) {
        (**self).begin_flush(offset, len);
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        (**self).truncate(len)
    }
}

/// A journal file in a file system.
///
/// `reserve` writes zeros once instead of only asking for blocks. `fallocate` alone leaves *unwritten*
/// extents: the first write to each turns them into written ones, which is a metadata change that
/// `fdatasync` must commit in the file system's own journal (two device flushes instead of one). Over
/// blocks already written, with the size unchanged, `fdatasync` has only data to write. Before a large write that is little
/// beside the data: `allocate` only asks for blocks, which halves what is written. On file systems
/// that never overwrite (btrfs, zfs) neither way can promise space; an append that meets ENOSPC there
/// fails cleanly, as everywhere.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
}

const ZEROS: &[u8] = &[0; 256 * 1024];

impl FileStorage {
    /// Takes a file opened for reading and writing. Whoever creates the file also flushes its directory.
    pub fn new(file: File) -> Self {
        FileStorage { file }
    }

    /// Gives the file back.
    pub fn into_file(self) -> File {
        self.file
    }
}

impl Storage for FileStorage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        points::pwrite(|| self.file.write_all_at(bytes, offset))
    }

    fn flush(&mut self) -> io::Result<()> {
        points::fsync(|| self.file.sync_data())
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        let old = self.len()?;
        let mut at = old;
        while at < len {
            let step = (len - at).min(ZEROS.len() as u64);
            if let Err(error) = points::pwrite(|| self.file.write_all_at(&ZEROS[..step as usize], at)) {
                // Half a reservation helps nobody and takes space from everybody. If this fails too,
                // the file is only longer than asked for.
                let _ = self.file.set_len(old);
                return Err(error);
            }
            at += step;
        }
        Ok(())
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        let old = self.len()?;
        if len <= old {
            return Ok(());
        }
        let allocated = frames::allocate(&self.file, old, len - old).and_then(|()| self.file.set_len(len));
        // Where the file system has no such call, or no space, the long way does it, or says why not.
        allocated.or_else(|_| self.reserve(len))
    }

    fn begin_flush(&mut self, offset: u64, len: u64) {
        disk::begin_flush(&self.file, offset, len);
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        if self.len()? > len {
            self.file.set_len(len)?;
        }
        Ok(())
    }
}
