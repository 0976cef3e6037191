//! What may happen around a program: libraries are replaced, addresses are taken.

use crate::failure::{Doing, Result, failed};
use commonhold_record::{FILE_BYTES, HEADER_BYTES, Record, sum};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The system's libraries, as they may be changed by this process and its children alone.
pub struct Overlay {
    there: bool,
}

/// Where Debian has them.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

impl Overlay {
    /// From now on for this process. Without the right to it nothing is replaced, and the row says so.
    pub fn over_libraries(directory: &Path) -> Result<Overlay> {
        if !rustix::process::geteuid().is_root() || !Path::new(LIBRARIES).exists() {
            return Ok(Overlay { there: false });
        }
        // On a file system of its own: where this one lies on an overlay, another cannot lie on it.
        let place = directory.join("overlay");
        std::fs::create_dir_all(&place)?;
        // SAFETY: this process has one thread here that matters; its mounts are its own from now on.
        let apart = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
        if apart.is_err() {
            return Ok(Overlay { there: false });
        }
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
            .doing("keeping mounts apart")?;
        mount("commonhold", &place, "tmpfs", MountFlags::empty(), None).doing("mounting memory")?;
        let (upper, work) = (place.join("upper"), place.join("work"));
        std::fs::create_dir(&upper)?;
        std::fs::create_dir(&work)?;
        let options = format!("lowerdir={LIBRARIES},upperdir={},workdir={}", upper.display(), work.display());
        let options = std::ffi::CString::new(options).expect("paths without zeros");
        mount("overlay", LIBRARIES, "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .doing("mounting an overlay")?;
        Ok(Overlay { there: true })
    }

    /// Whether libraries can be replaced.
    pub fn is_there(&self) -> bool {
        self.there
    }

    /// One library of a program becomes another file with the same bytes, as an upgrade makes it.
    pub fn replace_a_library_of(&self, program: &Path) -> Result<()> {
        if !self.there {
            return Ok(());
        }
        let listed = Command::new("/lib64/ld-linux-x86-64.so.2").arg("--list").arg(program).output()?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let paths = text.lines().filter_map(|line| line.split(" => ").nth(1)?.split(" (").next());
        let mut paths = paths.filter_map(|path| PathBuf::from(path).canonicalize().ok());
        let Some(path) = paths.find(|path| path.starts_with(LIBRARIES)) else {
            return failed(format!("{} has no library in {LIBRARIES}", program.display()));
        };
        let new = path.with_extension("new");
        std::fs::copy(&path, &new)?;
        std::fs::rename(&new, &path)?;
        Ok(())
    }
}

/// Changes a record so that every copy of it lies elsewhere than it should: as if its addresses had been taken.
pub fn displace(record: &Path) -> Result<()> {
    let mut bytes = std::fs::read(record)?;
    let Some(files) = Record::new(&bytes).map(|record| record.len()) else {
        return failed(format!("{} is no record", record.display()));
    };
    const DYNAMIC: usize = 48;
    for at in (0..files).map(|index| HEADER_BYTES + index * FILE_BYTES + DYNAMIC) {
        bytes[at + 2] ^= 1;
    }
    let whole = sum(&bytes[HEADER_BYTES..]);
    bytes[16..24].copy_from_slice(&whole.to_le_bytes());
    std::fs::write(record, bytes)?;
    Ok(())
}
