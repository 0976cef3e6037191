//! Reading once what an audit had to read, and doing nothing with it: the peer of `audit.seconds`.

use crate::failure::Result;
use commonhold_audit::snapshot::Snapshot;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;
/// As much as one read asks for, of files and of pagemap.
const BLOCK: usize = 1 << 16;
/// Of each process. The audit reads `stat` twice, here it is read once.
const OF_PROCESS: [&str; 4] = ["stat", "status", "cgroup", "smaps"];
/// In pagemap: the page is in memory.
const PRESENT: u64 = 1 << 63;

/// What is to be read.
#[derive(Debug, Default)]
pub struct Plan {
    processes: Vec<Process>,
    files: Vec<(PathBuf, bool)>,
}

/// A process, and the mappings of files of which something is in memory: first page, last page, pages in memory.
#[derive(Debug)]
struct Process {
    pid: u32,
    mappings: Vec<(u64, u64, u64)>,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Processes that were there.
    pub processes: usize,
    /// Files that could be opened.
    pub files: usize,
    /// Of these, read from the first byte to the last.
    pub whole: usize,
    /// Bytes of all this.
    pub bytes: u64,
}

impl Plan {
    /// What the audit that made this snapshot read: of every process its files in /proc, and of its pagemap the
    /// mappings of files; of every mapped file its first page, and the whole of those that had to be compared.
    pub fn of(snapshot: &Snapshot) -> Plan {
        let mappings = |process: &commonhold_audit::snapshot::Process| {
            let of_files = process.mappings.iter().filter(|m| m.file.is_some() && m.resident > 0);
            of_files.map(|m| (m.start / PAGE, m.end / PAGE, m.resident / PAGE)).collect()
        };
        let processes = snapshot.processes.iter();
        Plan {
            processes: processes.map(|one| Process { pid: one.pid, mappings: mappings(one) }).collect(),
            files: snapshot.files.iter().map(|file| (file.path.clone(), file.content.is_some())).collect(),
        }
    }

    /// Reads it. What is gone meanwhile is passed over.
    pub fn read(&self) -> Result<Done> {
        let mut done = Done::default();
        let mut block = vec![0; BLOCK];
        for process in &self.processes {
            let mut seen = false;
            for name in OF_PROCESS {
                let Ok(mut file) = File::open(format!("/proc/{}/{name}", process.pid)) else { continue };
                seen |= read_all(&mut file, &mut block, &mut done.bytes);
            }
            done.processes += usize::from(seen);
            if let Ok(pagemap) = File::open(format!("/proc/{}/pagemap", process.pid)) {
                for mapping in &process.mappings {
                    read_pagemap(&pagemap, *mapping, &mut block, &mut done.bytes);
                }
            }
        }
        for (path, whole) in &self.files {
            self.read_file(path, *whole, &mut block, &mut done);
        }
        Ok(done)
    }

    fn read_file(&self, path: &Path, whole: bool, block: &mut [u8], done: &mut Done) {
        let Ok(mut file) = File::open(path) else { return };
        done.files += 1;
        if whole {
            done.whole += usize::from(read_all(&mut file, block, &mut done.bytes));
        } else {
            done.bytes += file.read(&mut block[..PAGE as usize]).unwrap_or(0) as u64;
        }
    }
}

/// Whether it could be read to its end.
fn read_all(file: &mut File, block: &mut [u8], bytes: &mut u64) -> bool {
    loop {
        match file.read(block) {
            Ok(0) => return true,
            Ok(read) => *bytes += read as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// To the mapping's last page that is in memory, which is where the audit stops too.
fn read_pagemap(pagemap: &File, (first, end, resident): (u64, u64, u64), block: &mut [u8], bytes: &mut u64) {
    let (mut at, mut present) = (first, 0);
    while at < end && present < resident {
        let want = ((end - at) * 8).min(block.len() as u64) as usize;
        let got = match pagemap.read_at(&mut block[..want], at * 8) {
            Ok(got @ 8..) => got / 8 * 8,
            _ => return,
        };
        let entries = block[..got].chunks_exact(8);
        present += entries
            .filter(|entry| u64::from_ne_bytes((*entry).try_into().unwrap_or_default()) & PRESENT != 0)
            .count() as u64;
        at += got as u64 / 8;
        *bytes += got as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::programs::Waiting;
    use commonhold_audit::snapshot::{Scope, SnapshotOptions, take};

    #[test]
    fn what_an_audit_read_is_read() {
        let mut child = Waiting::start(&mut std::process::Command::new("cat")).unwrap();
        child.rest().unwrap();
        let scope = Scope::Tree(child.pid());
        let snapshot = take(&SnapshotOptions { scope, ..SnapshotOptions::default() }).unwrap();
        let done = Plan::of(&snapshot).read().unwrap();
        assert_eq!((done.processes, done.files), (snapshot.processes.len(), snapshot.files.len()));
        assert_eq!(done.processes, 1);
        let smaps = std::fs::read(format!("/proc/{}/smaps", child.pid())).unwrap().len() as u64;
        assert!(done.bytes > smaps && done.files > 1, "{done:?}");
    }
}
