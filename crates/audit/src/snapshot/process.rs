//! One process, read whole: smaps, frames, and what stands in status. It is the same process from first to last, with
//! the same program, or it is read again, or left out.

use super::Process;
use super::census::{Target, read_stat};
use super::frames::{self, Found};
use super::mappings::{self, Seen};
use super::procdir::{ProcDir, has_ended, is_forbidden};
use super::watch::Progress;
use procfs_core::process::Stat;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// How often a process that starts another program meanwhile is read anew.
const TRIES: usize = 3;

/// Why a process could not be read.
#[derive(Debug)]
pub enum Why {
    /// It ended. That is no lack: it is not there.
    Ended,
    /// This user may not.
    Forbidden,
    /// Something else.
    Strange(String),
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        if has_ended(&error) {
            Why::Ended
        } else if is_forbidden(&error) {
            Why::Forbidden
        } else {
            Why::Strange(format!("it could not be read: {error}"))
        }
    }
}

/// A process as it was seen. The files are not known yet.
#[derive(Debug)]
pub struct Whole {
    /// All but its mappings and its program.
    pub process: Process,
    /// Its mappings.
    pub seen: Vec<Seen>,
    /// Index of the mapping that is its program's.
    pub program: Option<usize>,
    /// What pagemap told; none: not asked, not allowed, or no budget left.
    pub frames: Option<Found>,
    /// Its directory, still open: its files are opened through it.
    pub directory: ProcDir,
    /// Its mount namespace.
    pub namespace: u64,
}

/// How to read.
pub struct How<'a> {
    /// Where procfs is.
    pub proc_root: &'a Path,
    /// Bytes of a page.
    pub page: u64,
    /// Whether frames are to be read now.
    pub frames: &'a dyn Fn() -> bool,
}

/// Reads a process.
pub fn read(target: &Target, how: &How<'_>, progress: &Progress) -> Result<Whole, Why> {
    for _ in 0..TRIES {
        if let Some(whole) = once(target, how, progress)? {
            return Ok(whole);
        }
    }
    Err(Why::Strange("it starts one program after the other: no state of it could be read".into()))
}

/// None: it started another program meanwhile.
fn once(target: &Target, how: &How<'_>, progress: &Progress) -> Result<Option<Whole>, Why> {
    let directory = ProcDir::open(how.proc_root, target.pid)?;
    let before = read_stat(&directory)?;
    if before.starttime != target.start_ticks {
        return Err(Why::Ended);
    }
    let first_has_ended = matches!(before.state, 'Z' | 'X');
    let smaps = open_of_memory(&directory, "smaps", first_has_ended)?;
    let mut seen = Vec::with_capacity(128);
    let reader = BufReader::with_capacity(1 << 16, Beating { file: smaps, progress });
    mappings::parse(reader, |one| seen.push(one))?;
    let frames = if (how.frames)() {
        let pagemap = open_of_memory(&directory, "pagemap", first_has_ended).ok();
        pagemap.and_then(|file| frames::read(&file, &seen, how.page, progress, how.frames).ok().flatten())
    } else {
        None
    };
    let status = directory.bytes("status").unwrap_or_default();
    let program = directory.link("exe").ok().and_then(|link| program(&seen, &link));
    let after = read_stat(&directory)?;
    if after.starttime != before.starttime || matches!(after.state, 'Z' | 'X') && !first_has_ended {
        return Err(Why::Ended);
    }
    if image(&before) != image(&after) {
        return Ok(None);
    }
    // Its memory went while it was read, or was not there any more: it is about to end.
    if seen.is_empty() {
        return Err(Why::Ended);
    }
    let process = Process {
        pid: target.pid,
        parent: target.parent,
        start_ticks: target.start_ticks,
        name: after.comm,
        uid: number(&status, b"Uid:").and_then(|uid| u32::try_from(uid).ok()).unwrap_or_default(),
        cgroup: target.cgroup.clone(),
        container: target.container.clone(),
        page_table_bytes: number(&status, b"VmPTE:").map(|kib| kib << 10),
        ..Process::default()
    };
    Ok(Some(Whole { process, seen, program, frames, directory, namespace: target.namespace }))
}

/// What tells one program of a process from the next: where its code and its stack are, which is chosen at exec.
fn image(stat: &Stat) -> (u64, u64, u64) {
    (stat.startcode, stat.endcode, stat.startstack)
}

/// A file about the memory of a process. If its first thread ended before the others, only theirs tell of it.
fn open_of_memory(directory: &ProcDir, name: &str, first_has_ended: bool) -> io::Result<File> {
    if !first_has_ended {
        return directory.file(name);
    }
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let tasks = rustix::fs::openat(directory, "task", flags, rustix::fs::Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&tasks)? {
        let name_of_task = entry?.file_name().to_string_lossy().into_owned();
        if name_of_task.parse().is_ok_and(|task: u32| task != directory.pid) {
            return directory.file(&format!("task/{name_of_task}/{name}"));
        }
    }
    Err(rustix::io::Errno::SRCH.into())
}

/// The mapping of the program that runs, by the path that both links show.
fn program(seen: &[Seen], link: &Path) -> Option<usize> {
    let text = link.as_os_str().as_encoded_bytes();
    let (path, deleted) = match text.strip_suffix(b" (deleted)") {
        Some(path) => {
            (PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path)), true)
        }
        None => (link.to_owned(), false),
    };
    seen.iter().position(|one| {
        one.backing.as_ref().is_some_and(|backing| backing.path == path && backing.deleted == deleted)
    })
}

/// The first number after a name in status.
fn number(status: &[u8], name: &[u8]) -> Option<u64> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Shows progress with each read.
struct Beating<'a> {
    file: File,
    progress: &'a Progress,
}

impl Read for Beating<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.progress.beat();
        if self.progress.left() {
            return Err(io::Error::other("nobody waits any more"));
        }
        self.file.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::super::mappings::Backing;
    use super::*;

    #[test]
    fn numbers_of_status_with_names_of_any_bytes() {
        let status = b"Name:\t\xff\nUid:\t1000\t0\t0\t0\nVmPTE:\t     44 kB\n";
        assert_eq!(number(status, b"Uid:"), Some(1000));
        assert_eq!(number(status, b"VmPTE:"), Some(44));
        assert_eq!(number(status, b"VmSwap:"), None);
    }

    #[test]
    fn the_program_is_the_mapping_with_the_links_path_and_mark() {
        let seen = |path: &str, deleted| Seen {
            backing: Some(Backing { path: path.into(), deleted, ..Backing::default() }),
            ..Seen::default()
        };
        let all = [Seen::default(), seen("/bin/sh", true), seen("/bin/sh", false), seen("/bin/sh", false)];
        assert_eq!(program(&all, Path::new("/bin/sh")), Some(2));
        assert_eq!(program(&all, Path::new("/bin/sh (deleted)")), Some(1));
        assert_eq!(program(&all, Path::new("/bin/cat")), None);
    }
}
