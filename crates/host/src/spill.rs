//! The spill file of an object: dirty pages that had to leave memory before they may be stored.
//!
//! Page n lies at byte n × 4096 of a sparse file. It belongs to one boot, as the frames do; `live/<id>` says
//! which pages in it count.

use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, Result};
use commonhold_points as points;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file, made when it is first needed.
pub struct Spill {
    path: PathBuf,
    file: Option<File>,
    reserved: bool,
    leaves_room: bool,
}

/// Of the disk on which the state directory lies, what objects of ordinary users leave free: a twentieth, at most this.
const ROOM_BYTES: u64 = 1 << 30;

/// Refuses `bytes` more on the disk of `path` if less would be left than must be: others store their pages there too.
pub fn check_room(path: &Path, bytes: u64) -> Result<()> {
    let disk = rustix::fs::statvfs(path).map_err(std::io::Error::from).doing("asking for free space")?;
    let room = (disk.f_blocks / 20).saturating_mul(disk.f_frsize).min(ROOM_BYTES);
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= room.saturating_add(bytes) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!(
            "the disk of the host's state directory has {free} bytes left, of which objects of other users than root \
             leave {room} free; nothing is lost: free disk space, then try again"
        ),
    ))
}

impl Spill {
    /// Uses `path`; what a host of this boot left there is kept.
    pub fn new(path: &Path) -> Spill {
        let file = File::options().read(true).write(true).open(path).ok();
        Spill { path: path.to_owned(), file, reserved: false, leaves_room: false }
    }

    /// From now on it leaves some of the disk to others.
    pub fn leave_room(&mut self) {
        self.leaves_room = true;
    }

    fn file(&mut self) -> Result<&File> {
        if self.file.is_none() {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&self.path);
            self.file = Some(file.doing(format!("creating {}", self.path.display()))?);
        }
        self.file.as_ref().ok_or_else(|| Error::invalid("no spill file"))
    }

    /// Takes disk space for the whole object now, so that an eviction can never fail for lack of it.
    pub fn reserve(&mut self, size_bytes: u64) -> Result<()> {
        let file = self.file()?;
        commonhold_sys::frames::allocate(file, 0, size_bytes).doing("reserving spill space on disk")?;
        self.reserved = true;
        Ok(())
    }

    /// Writes pages that are in memory too: refused if others would have too little of the disk.
    pub fn save(&mut self, first_page: u64, data: &[u8]) -> Result<()> {
        self.file()?;
        if self.leaves_room && !self.reserved {
            check_room(&self.path, data.len() as u64)?;
        }
        self.write(first_page, data)
    }

    /// Writes pages.
    pub fn write(&mut self, first_page: u64, data: &[u8]) -> Result<()> {
        let file = self.file()?;
        let write = || file.write_all_at(data, first_page * PAGE_SIZE_BYTES);
        points::page_out(write).doing("writing the spill file")
    }

    /// Reads pages that were written.
    pub fn read(&mut self, first_page: u64, buffer: &mut [u8]) -> Result<()> {
        let file = self.file()?;
        let read = || file.read_exact_at(buffer, first_page * PAGE_SIZE_BYTES);
        points::page_in(read).doing("reading the spill file")
    }

    /// The pages no longer count: their space is given back unless it is reserved.
    pub fn forget(&mut self, first_page: u64, count: u64) {
        if let (Some(file), false) = (&self.file, self.reserved) {
            let _ =
                commonhold_sys::frames::punch(file, first_page * PAGE_SIZE_BYTES, count * PAGE_SIZE_BYTES);
        }
    }

    /// Removes the file.
    pub fn remove(&mut self) {
        self.file = None;
        let _ = std::fs::remove_file(&self.path);
    }
}
