//! Children that map a library until they are dropped, and recorded trees of procfs.

use commonhold_audit::snapshot::{File, Process, Snapshot, SnapshotOptions};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whether frames and other users' files may be looked at.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A library of this machine that programs can be made to load: the one that this very test has mapped.
pub fn some_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("readable");
    let paths = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
    let library = paths.into_iter().find(|path| path.contains("/libgcc_s") || path.contains("/libm.so"));
    library.expect("a test program of Rust has libgcc_s").into()
}

/// Copies a library into a folder.
pub fn copy(library: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(library.file_name().expect("a file"));
    fs::copy(library, &copy).expect("copied");
    copy
}

/// A process that waits for its input to end, and ends when this is dropped.
pub struct Sleeper(pub Child);

impl Sleeper {
    /// Starts one that has this library loaded.
    pub fn with(library: &Path) -> Self {
        let child = Command::new("cat")
            .env("LD_PRELOAD", library)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let sleeper = Self(child.expect("cat runs"));
        sleeper.wait_for(&library.display().to_string());
        sleeper
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until this stands in its maps, and it has come to rest.
    pub fn wait_for(&self, text: &str) {
        let begun = Instant::now();
        let process = format!("/proc/{}", self.pid());
        loop {
            let maps = fs::read_to_string(format!("{process}/maps")).unwrap_or_default();
            let stat = fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
            if maps.contains(text) && stat.contains(") S ") {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{text} never came:\n{maps}\n{stat}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process with this pid.
pub fn process(snapshot: &Snapshot, pid: u32) -> &Process {
    snapshot.processes.iter().find(|process| process.pid == pid).expect("it was seen")
}

/// The file that this process maps under a path.
pub fn file_of<'a>(snapshot: &'a Snapshot, pid: u32, path: &Path) -> (usize, &'a File) {
    let mapped = process(snapshot, pid).mappings.iter().filter_map(|mapping| mapping.file);
    let index = mapped.into_iter().find(|index| snapshot.files[*index].path == path);
    let index = index.unwrap_or_else(|| panic!("{} is not among its files", path.display()));
    (index, &snapshot.files[index])
}

/// All that was not seen, as text.
pub fn unseen(snapshot: &Snapshot) -> String {
    snapshot.unseen.iter().map(|unseen| format!("{}: {}\n", unseen.what, unseen.why)).collect()
}

/// A recorded procfs.
pub struct Recorded {
    /// Where it is.
    pub folder: tempfile::TempDir,
}

impl Recorded {
    /// Without a process.
    pub fn new() -> Self {
        crate::limit::begin();
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("meminfo"), "MemTotal: 1000 kB\nMemFree: 500 kB\n").expect("written");
        Self { folder }
    }

    /// Options that look here.
    pub fn options(&self) -> SnapshotOptions {
        SnapshotOptions { proc_root: self.folder.path().to_owned(), ..SnapshotOptions::default() }
    }

    /// Where one process is.
    pub fn path(&self, pid: u32) -> PathBuf {
        self.folder.path().join(pid.to_string())
    }

    /// Adds a process.
    pub fn process(&self, pid: u32, parent: u32, state: char, cgroup: &str, smaps: &[u8]) {
        let path = self.path(pid);
        fs::create_dir(&path).expect("made");
        fs::write(path.join("stat"), stat(pid, parent, state, 0)).expect("written");
        fs::write(path.join("cgroup"), format!("0::{cgroup}\n")).expect("written");
        fs::write(path.join("status"), "Name:\tp\nUid:\t1000\t0\t0\t0\nVmPTE:\t     44 kB\n")
            .expect("written");
        fs::write(path.join("smaps"), smaps).expect("written");
    }
}

/// A line of stat.
pub fn stat(pid: u32, parent: u32, state: char, flags: u32) -> String {
    format!(
        "{pid} (a (b) c) {state} {parent} 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} 1000000 100 \
         18446744073709551615 1 2 3 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        start = 1000 + pid
    )
}

/// smaps of one text mapping of a file, as the kernel would show it.
pub fn mapping_of(file: &Path, address: u64) -> String {
    let about = fs::metadata(file).expect("known");
    mapping(file, address, about.dev(), about.ino())
}

/// The same with any device and inode.
pub fn mapping(file: &Path, address: u64, device: u64, inode: u64) -> String {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    format!(
        "{address:x}-{end:x} r-xp 00000000 {major:02x}:{minor:02x} {inode} {path}\nSize: 16 kB\nRss: 8 kB\nPss: 4 kB\n\
         Pss_Dirty: 0 kB\nShared_Clean: 8 kB\nPrivate_Clean: 0 kB\nAnonymous: 0 kB\nVmFlags: rd ex \n",
        end = address + 0x4000,
        path = file.display()
    )
}
