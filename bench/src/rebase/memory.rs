//! What processes have for themselves of a program's relocated pages.

use crate::pointer_tree::Both;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// KiB of changed pages, by its share, of the mappings of a process that are read-only parts of a
/// file whose name is `file`. None: it has no such mapping, or has ended.
pub fn relocated(pid: u32, file: &str) -> io::Result<Option<u64>> {
    let text = match fs::read_to_string(format!("/proc/{pid}/smaps")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(changed(&text, file))
}

fn changed(smaps: &str, file: &str) -> Option<u64> {
    let mut sum = None;
    let mut counts = false;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !first.ends_with(':') {
            let path = line.find('/').map_or("", |at| &line[at..]);
            counts =
                second.starts_with("r--p") && Path::new(path).file_name().is_some_and(|name| name == file);
        } else if counts && first == "Pss_Dirty:" {
            *sum.get_or_insert(0) += second.parse::<u64>().unwrap_or(0);
        }
    }
    sum
}

/// A process and all that came of it.
pub fn family(leader: u32) -> Vec<u32> {
    let mut all = vec![leader];
    let mut next = 0;
    while next < all.len() {
        let tasks = fs::read_dir(format!("/proc/{}/task", all[next])).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<u32> = children
            .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        all.extend(children);
        next += 1;
    }
    all
}

/// What processes take of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// How many they are.
    pub processes: usize,
    /// The sum of their shares of all pages.
    pub pss_kib: u64,
    /// Pages that they changed or made.
    pub own_kib: u64,
    /// The page cache of all files that they map, each once, whoever brought it in.
    pub cached_kib: u64,
    /// The page cache of files of the other side that was there before they began: originals that others have mapped, beside
    /// which copies are a second time in memory.
    pub kept_kib: u64,
    /// Their page tables.
    pub tables_kib: u64,
}

impl Footprint {
    /// Their own pages, page tables, and the page cache, with what is in it twice for their sake.
    pub fn frames_kib(&self) -> u64 {
        self.own_kib + self.cached_kib + self.kept_kib + self.tables_kib
    }
}

/// Of these processes together; and the files that they map.
pub fn footprint(processes: &[u32]) -> (Footprint, BTreeSet<PathBuf>) {
    let mut sum = Footprint { processes: processes.len(), ..Footprint::default() };
    let mut mapped: BTreeSet<PathBuf> = BTreeSet::new();
    for pid in processes {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let kib = || second.parse::<u64>().unwrap_or(0);
            match first {
                "Pss:" => sum.pss_kib += kib(),
                "Anonymous:" => sum.own_kib += kib(),
                _ if !first.ends_with(':') => mapped.extend(line.find('/').map(|at| line[at..].into())),
                _ => {}
            }
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let tables = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
        sum.tables_kib +=
            tables.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    }
    sum.cached_kib = mapped.iter().map(|path| cached_kib(path)).sum();
    (sum, mapped)
}

/// Takes files out of the page cache. Gives what stays of each: pages that processes have mapped.
pub fn forget(files: &BTreeSet<PathBuf>) -> BTreeMap<PathBuf, u64> {
    let one = |path: &PathBuf| {
        // What cannot be opened, or has gone, is in nobody's way.
        let _ = Both::forget(path);
        (path.clone(), cached_kib(path))
    };
    files.iter().filter(|path| path.is_file()).map(one).collect()
}

/// How much of a file is in the page cache.
fn cached_kib(path: &Path) -> u64 {
    let Ok(file) = fs::File::open(path) else { return 0 };
    let Ok(length) = file.metadata().map(|metadata| metadata.len() as usize) else { return 0 };
    if length == 0 || !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return 0;
    }
    let mut present = vec![0_u8; length.div_ceil(4096)];
    // SAFETY: a mapping of its own, asked about and taken away again; a byte for each of its pages.
    unsafe {
        let Ok(first) = rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::SHARED,
            &file,
            0,
        ) else {
            return 0;
        };
        if libc::mincore(first, length, present.as_mut_ptr()) != 0 {
            present.clear();
        }
        let _ = rustix::mm::munmap(first, length);
    }
    present.iter().filter(|page| **page & 1 == 1).count() as u64 * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mapping_of_the_file_is_not_the_same_as_no_changed_page() {
        let smaps = "1000-2000 r--p 0 0:0 1 /bin/one\nPss_Dirty: 0 kB\n2000-3000 rw-p 0 0:0 1 /bin/one\nPss_Dirty: 8 kB\n";
        assert_eq!(changed(smaps, "one"), Some(0));
        assert_eq!(changed(smaps, "two"), None);
        assert_eq!(changed("", "one"), None);
    }
}
