//! The file as redb sees it, without a lock of its own: the state directory has one, which host and keeper share. A host
//! that was killed may never end (a file that it was closing is in a file system that does not answer), and a lock that it
//! took for itself would never end either.

use commonhold_points as points;
use redb::StorageBackend;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A file that nobody locks.
#[derive(Debug)]
pub struct Unlocked(pub File);

impl StorageBackend for Unlocked {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        points::fsync(|| self.0.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        points::pwrite(|| self.0.write_all_at(data, offset))
    }
}
