//! What may happen around a program: libraries are replaced, addresses are taken.

use crate::failure::{Doing, Result, failed};
use commonhold_rebase::store::Store;
use commonhold_record::{FILE_BYTES, HEADER_BYTES, IS_THE_COPY, Record, sum};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

    /// The C library becomes another file with other bytes, as an upgrade makes it: what it calls a file that is not there is
    /// spelt otherwise, so that programs that have anything of the old one can be told by what they say.
    pub fn upgrade(&self) -> Result<()> {
        let path = Path::new(LIBRARIES).join("libc.so.6").canonicalize()?;
        let mut bytes = std::fs::read(&path)?;
        let Some(at) = bytes.windows(OLD.len()).position(|part| part == OLD) else {
            return failed(format!("{} does not say what was looked for", path.display()));
        };
        bytes[at..at + OLD.len()].copy_from_slice(NEW);
        let new = path.with_extension("new");
        std::fs::write(&new, bytes)?;
        std::fs::set_permissions(&new, std::fs::metadata(&path)?.permissions())?;
        std::fs::rename(&new, &path)?;
        Ok(())
    }
}

/// What the C library says of a file that is not there; and how it says it after the upgrade.
const OLD: &[u8] = b"\0No such file or directory\0";
const NEW: &[u8] = b"\0No such file or DIRECTORY\0";

/// Records of a program that say of every copy that it lies elsewhere; as they were when this is dropped.
pub struct Displaced {
    before: Vec<(PathBuf, Vec<u8>)>,
}

impl Displaced {
    /// The program's record, and that of its own copy, which is another program.
    pub fn new(store: &Store, program: &Path) -> Result<Displaced> {
        let mut before = Vec::new();
        let mut next = Some(program.to_owned());
        while let Some(program) = next.take() {
            let path = store.record(&program);
            let bytes = std::fs::read(&path)?;
            let Some(record) = Record::new(&bytes) else {
                return failed(format!("{} is no record", path.display()));
            };
            let itself = record.files().next().filter(|file| file.dynamic != IS_THE_COPY);
            next = itself
                .and_then(|file| file.copy.strip_suffix(b"\0"))
                .map(|copy| OsStr::from_bytes(copy).into());
            let displaced = displace(&bytes, &record);
            before.push((path, bytes.clone()));
            std::fs::write(&before[before.len() - 1].0, displaced)?;
        }
        Ok(Displaced { before })
    }
}

impl Drop for Displaced {
    fn drop(&mut self) {
        for (path, bytes) in &self.before {
            // A record that is not as it was is seen: its program has no copies where it must have.
            let _ = std::fs::write(path, bytes);
        }
    }
}

fn displace(bytes: &[u8], record: &Record<'_>) -> Vec<u8> {
    const DYNAMIC: usize = 48;
    let mut displaced = bytes.to_vec();
    for (index, file) in record.files().enumerate() {
        if file.dynamic != IS_THE_COPY {
            displaced[HEADER_BYTES + index * FILE_BYTES + DYNAMIC + 2] ^= 1;
        }
    }
    let whole = sum(&displaced[HEADER_BYTES..]);
    displaced[16..24].copy_from_slice(&whole.to_le_bytes());
    displaced
}
