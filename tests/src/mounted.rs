//! A host's objects as files, mounted for a test.

use crate::host::{kill, kill_together};
use crate::wait::until;
use crate::{TestHost, is_root, left_out};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU8, Ordering};

/// A mount of a host; it ends with this.
pub struct Mounted<'h> {
    host: &'h TestHost,
    directory: PathBuf,
}

impl Mounted<'_> {
    /// Mounts, for all users. `None`, and it says so: this is not root, or has no FUSE.
    pub fn of(host: &TestHost) -> Option<Mounted<'_>> {
        Mounted::with(host, &[])
    }

    /// With these words.
    pub fn with<'h>(host: &'h TestHost, words: &[&str]) -> Option<Mounted<'h>> {
        if !is_root("a mount for all users") {
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            left_out("a mount (this machine has no /dev/fuse)");
            return None;
        }
        let directory = host.scratch().join("mount");
        std::fs::create_dir_all(&directory).expect("a directory to mount at");
        let mounted = Mounted { host, directory };
        mounted.mount_with(words).expect("it mounts");
        Some(mounted)
    }

    /// `commonhold mount`, as when both processes of the one before died.
    pub fn mount(&self) -> Result<String, String> {
        self.mount_with(&[])
    }

    fn mount_with(&self, words: &[&str]) -> Result<String, String> {
        self.host.command(&["mount"], |command| {
            command.args(words).arg(&self.directory);
        })
    }

    /// `commonhold umount` with these words.
    pub fn unmount(&self, words: &[&str]) -> Result<String, String> {
        self.host.command(&["umount"], |command| {
            command.args(words).arg(&self.directory);
        })
    }

    /// A path below it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The log of its processes.
    pub fn log(&self) -> String {
        let mounts = std::fs::read_dir(self.host.state().join("mounts")).expect("its state");
        let logs = mounts.flatten().map(|state| std::fs::read_to_string(state.path().join("log")));
        logs.flatten().collect()
    }

    /// The process that serves it now.
    pub fn server(&self) -> u32 {
        self.process("serve-mount")
    }

    /// The process that keeps what outlives that.
    pub fn keeper(&self) -> u32 {
        self.process("keeper")
    }

    fn process(&self, verb: &str) -> u32 {
        until(&format!("{verb} runs"), || {
            let all = std::fs::read_dir("/proc").expect("/proc").flatten();
            let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            pids.find(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
                words.get(1) == Some(&verb.as_bytes())
                    && words.contains(&self.directory.as_os_str().as_encoded_bytes())
            })
        })
    }

    /// Kills the server; another goes on, and has all that the one before had.
    pub fn kill_server(&self) {
        let (before, said) = (self.server(), self.says("goes on with the mount"));
        kill(before);
        until("another serves", || (self.server() != before).then_some(()));
        until("it has taken over", || (self.says("goes on with the mount") > said).then_some(()));
    }

    /// Kills the keeper; another keeps, and has all that the one before had. Until then server and
    /// keeper would be lost together.
    pub fn kill_keeper(&self) {
        let said = self.says("filled by host");
        kill(self.keeper());
        until("another keeps", || (self.says("filled by host") > said).then_some(()));
    }

    /// How often the log says that.
    pub fn says(&self, words: &str) -> usize {
        self.log().matches(words).count()
    }

    /// Kills server and keeper at once: nobody goes on.
    pub fn kill_both(&self) {
        kill_together(&[self.keeper(), self.server()]);
    }

    /// Runs a program there, in the shell's words; `$M` is the directory. It has to succeed.
    pub fn shell(&self, words: &str) -> String {
        let output = self.shell_output(words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {text}{errors}\n{}", self.log());
        text
    }

    /// The same, whatever comes of it.
    pub fn shell_output(&self, words: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-euc", words]).env("M", &self.directory).env("COMMONHOLD_HOST", self.host.state());
        command.output().expect("sh runs")
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the mount:\n{}\n---", self.log());
        }
        // Whatever the test left there: what waits ends, and who uses it loses it.
        if self.unmount(&["--abort", "--lazy"]).is_err() {
            let _ = Command::new("umount").args(["-l", "-q"]).arg(&self.directory).status();
        }
    }
}

/// A file that is mapped and shared.
pub struct MappedFile {
    start: *mut std::ffi::c_void,
    length: usize,
    /// It stays open.
    pub file: File,
}

// SAFETY: the bytes are reached by atomics alone.
unsafe impl Sync for MappedFile {}

// SAFETY: as above; whichever thread has it unmaps it.
unsafe impl Send for MappedFile {}

impl MappedFile {
    /// Maps so many bytes of it.
    pub fn of(path: &Path, length: usize) -> std::io::Result<MappedFile> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where nothing is.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0) }?;
        Ok(MappedFile { start, length, file })
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.length);
        // SAFETY: within the mapping, which lives as long as this.
        unsafe { AtomicU8::from_ptr(self.start.cast::<u8>().add(at)) }
    }

    /// What is there.
    pub fn get(&self, at: usize) -> u8 {
        self.byte(at).load(Ordering::SeqCst)
    }

    /// Writes.
    pub fn set(&self, at: usize, value: u8) {
        self.byte(at).store(value, Ordering::SeqCst);
    }

    /// `msync(MS_SYNC)` of all.
    pub fn sync(&self) -> std::io::Result<()> {
        // SAFETY: the whole mapping.
        Ok(unsafe { msync(self.start, self.length, MsyncFlags::SYNC) }?)
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it any more.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
