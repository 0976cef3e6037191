//! The pager of objects that are files, in place.

use super::Pager;
use super::times::{Stamp, Times};
use crate::waiting::may_wait;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use commonhold_sys::{disk, frames, plain};
use rustix::fs::FallocateFlags;
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

/// Refuses to take `bytes` more of the disk of a file if only space that it keeps for root is left.
pub fn check_room(file: impl AsFd, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let disk = rustix::fs::fstatvfs(file).map_err(std::io::Error::from).doing("asking for free space")?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!(
            "the disk of the backing file has {free} bytes left for users, and {bytes} are needed: free disk space, then \
             try again"
        ),
    ))
}

/// A file that holds the object's bytes, one for one.
#[derive(Debug)]
pub struct FilePager {
    file: File,
    /// The object's size: the last page's tail past it is memory only, never stored.
    size_bytes: AtomicU64,
    /// Space that the disk keeps for root is not for it.
    leaves_room: bool,
    times: Times,
}

impl FilePager {
    /// Takes the file, open for reading and (unless the object is read-only) writing.
    pub fn new(file: File, size_bytes: u64) -> Self {
        FilePager {
            file,
            size_bytes: AtomicU64::new(size_bytes),
            leaves_room: false,
            times: Times::default(),
        }
    }

    /// The same of an ordinary user: a host of root takes none of the space that the disk keeps for root.
    pub fn leaving_room(self) -> Self {
        FilePager { leaves_room: true, ..self }
    }

    fn check_room(&self, bytes: u64) -> Result<()> {
        if !self.leaves_room {
            return Ok(());
        }
        let taken = self.file.metadata().doing("looking at the backing file")?.blocks() * 512;
        // What has all of its blocks needs none.
        let needs = if taken < self.size_bytes.load(Ordering::Relaxed) { bytes } else { 0 };
        check_room(&self.file, needs)
    }

    fn within(&self, offset: u64, length: usize) -> usize {
        (self.size_bytes.load(Ordering::Relaxed).saturating_sub(offset)).min(length as u64) as usize
    }
}

impl Pager for FilePager {
    fn page_in(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let wanted = self.within(offset, buffer.len());
        let mut done = 0;
        while done < wanted {
            match points::page_in(|| self.file.read_at(&mut buffer[done..wanted], offset + done as u64)) {
                Ok(0) => {
                    return Err(Error::new(
                        ErrorKind::Lost,
                        format!(
                            "the backing file ends at byte {} but the object has {}: it was truncated underneath; \
                             pages in memory are kept, write them out with `commonhold sync` after growing the file",
                            offset + done as u64,
                            self.size_bytes.load(Ordering::Relaxed)
                        ),
                    ));
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("reading the backing file", &e)),
            }
        }
        buffer[wanted..].fill(0);
        Ok(())
    }

    fn page_out(&self, offset: u64, data: &[u8]) -> Result<()> {
        let wanted = self.within(offset, data.len());
        self.check_room(wanted as u64)?;
        let write = || frames::write_in_place(&self.file, &data[..wanted], offset);
        points::page_out(write).doing("writing the backing file")?;
        if wanted as u64 >= disk::LARGE_BYTES {
            disk::begin_flush(&self.file, offset, wanted as u64);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        may_wait("a flush of the backing file");
        points::fsync(|| self.file.sync_data()).doing("flushing the backing file")
    }

    fn check(&self, size_bytes: u64) -> Result<()> {
        let now = self.file.metadata().doing("looking at the backing file")?;
        // That a memfd has no name does not say that somebody removed it.
        if now.nlink() == 0 && !plain::is_memfd(&self.file, "").unwrap_or(false) {
            return Err(Error::new(
                ErrorKind::Lost,
                "the backing file was removed or replaced: what is in memory is kept; copy it out with \
                 `commonhold cp`, then remove the object",
            ));
        }
        if now.len() < size_bytes {
            return Err(Error::new(
                ErrorKind::Lost,
                format!(
                    "the backing file was truncated to {} bytes underneath an object of {size_bytes}: nothing in \
                     memory is lost; grow it again (truncate -s {size_bytes} FILE) or shrink the object with \
                     `commonhold resize`, then sync again",
                    now.len()
                ),
            ));
        }
        Ok(())
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        let wanted = self.within(offset, usize::try_from(length).unwrap_or(usize::MAX)) as u64;
        if wanted == 0 {
            return Ok(());
        }
        self.check_room(wanted)?;
        rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, wanted)
            .doing("reserving disk space for the backing file")
    }

    fn resize(&self, size_bytes: u64) -> Result<()> {
        self.file.set_len(size_bytes).doing("resizing the backing file")?;
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn would_wait(&self, offset: u64) -> bool {
        let mut byte = [0];
        let mut buffers = [std::io::IoSliceMut::new(&mut byte)];
        // A file system that cannot say (network, FUSE) is taken to wait.
        rustix::io::preadv2(&self.file, &mut buffers, offset, ReadWriteFlags::NOWAIT).is_err()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn wrote(&self) {
        self.times.written(&self.file);
    }

    fn stamp(&self) -> Option<(Stamp, bool)> {
        self.times.stamp(&self.file)
    }
}
