//! How much memory processes and files really take, counted in page frames: by /proc/PID/pagemap and mincore, and by
//! nothing of the audit's.

use crate::failure::{Doing, Result};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
const FRAME: u64 = (1 << 55) - 1;

/// Memory in frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Frames that the processes map, each counted once.
    pub mapped: u64,
    /// Of those, pages of the directory's files.
    pub mapped_of_files: u64,
    /// Pages of the directory's files in memory, mapped or not, each inode counted once.
    pub cached: u64,
}

impl Memory {
    /// What ends with the processes and the directory: the files' pages, and what else the processes map.
    pub fn bytes(&self) -> u64 {
        (self.mapped - self.mapped_of_files + self.cached) * PAGE
    }

    /// What the processes map of the directory's files.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_of_files * PAGE
    }
}

/// Counts the frames of these processes and of the files below a directory.
pub fn count(pids: &[u32], directory: &Path) -> Result<Memory> {
    let (mut all, mut of_files) = (HashSet::new(), HashSet::new());
    for pid in pids {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        for line in maps.lines() {
            let Some((first, end)) = range(line) else { continue };
            let is_inside = line.find('/').is_some_and(|at| Path::new(&line[at..]).starts_with(directory));
            let mut entries = vec![0; ((end - first) / PAGE * 8) as usize];
            // The kernel's own mappings ([vsyscall]) have none.
            if pagemap.read_exact_at(&mut entries, first / PAGE * 8).is_err() {
                continue;
            }
            for entry in entries.chunks_exact(8) {
                let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
                if entry & PRESENT != 0 && entry & FRAME != 0 {
                    all.insert(entry & FRAME);
                    if is_inside && entry & OF_FILE != 0 {
                        of_files.insert(entry & FRAME);
                    }
                }
            }
        }
    }
    let mut cached = 0;
    let mut inodes = HashSet::new();
    for_each_file(directory, &mut |path| {
        let file = File::open(path).doing(format!("opening {}", path.display()))?;
        let about = file.metadata()?;
        if inodes.insert((about.dev(), about.ino())) {
            cached += pages_in_memory(&file, about.len())?;
        }
        Ok(())
    })?;
    Ok(Memory { mapped: all.len() as u64, mapped_of_files: of_files.len() as u64, cached })
}

fn range(line: &str) -> Option<(u64, u64)> {
    let (first, end) = line.split(' ').next()?.split_once('-')?;
    let parse = |text| u64::from_str_radix(text, 16).ok();
    Some((parse(first)?, parse(end)?))
}

/// Calls for each regular file below a directory.
pub fn for_each_file(directory: &Path, each: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(directory).doing(format!("listing {}", directory.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            for_each_file(&entry.path(), each)?;
        } else if kind.is_file() {
            each(&entry.path())?;
        }
    }
    Ok(())
}

/// How many pages of a file are in memory, whoever brought them in.
fn pages_in_memory(file: &File, length: u64) -> Result<u64> {
    let length = usize::try_from(length)?;
    if length == 0 {
        return Ok(0);
    }
    // SAFETY: a new mapping at an address of the kernel's choice; nothing of this process is replaced.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if address == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    let mut pages = vec![0_u8; length.div_ceil(PAGE as usize)];
    // SAFETY: the mapping has `length` bytes, and the vector a byte for each of its pages.
    let result = unsafe { libc::mincore(address, length, pages.as_mut_ptr()) };
    let error = std::io::Error::last_os_error();
    // SAFETY: this very mapping, which nothing points into.
    unsafe { libc::munmap(address, length) };
    if result != 0 {
        return Err(error.into());
    }
    Ok(pages.iter().filter(|page| **page & 1 != 0).count() as u64)
}

/// Writes the files below a directory to the disk and drops them from memory, as after a start of the machine.
pub fn drop_from_memory(directory: &Path) -> Result<()> {
    for_each_file(directory, &mut |path| {
        let file = File::open(path)?;
        file.sync_all()?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_copies_take_twice_the_memory_and_a_hard_link_none() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("one"), vec![1; 10 * PAGE as usize]).unwrap();
        let one = count(&[], folder.path()).unwrap();
        fs::copy(place("one"), place("two")).unwrap();
        fs::hard_link(place("one"), place("three")).unwrap();
        let two = count(&[], folder.path()).unwrap();
        assert_eq!((one.cached, two.cached), (10, 20));
        assert_eq!(two.bytes() - one.bytes(), 10 * PAGE);
    }

    #[test]
    fn a_process_maps_frames_and_they_are_told_apart_from_those_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let memory = count(&[std::process::id()], folder.path()).unwrap();
        assert_eq!((memory.mapped_of_files, memory.cached), (0, 0));
        assert_eq!(memory.mapped > 100, crate::audit::is_root(), "{memory:?}");
    }
}
