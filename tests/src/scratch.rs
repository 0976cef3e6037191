//! Directories on a real disk or in memory, and small file systems that fill up.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Room for what is kept in memory instead of on the disk.
const IN_MEMORY_BYTES: u64 = 2 << 30;

/// A directory that everybody may enter, removed at the end.
pub struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    /// Makes one, in `COMMONHOLD_TESTS_DIR` or the directory for temporary files.
    pub fn new() -> Scratch {
        let base = std::env::var_os("COMMONHOLD_TESTS_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        Scratch::within(&base)
    }

    /// Makes one in memory, where there is room for it and no other place is asked for: for what waits for the disk at each
    /// step, and is not what is tested.
    pub fn in_memory() -> Scratch {
        let memory = Path::new("/dev/shm");
        let is_asked_for = std::env::var_os("COMMONHOLD_TESTS_DIR").is_some();
        if !is_asked_for && memory.is_dir() && free_bytes(memory) >= IN_MEMORY_BYTES {
            return Scratch::within(memory);
        }
        Scratch::new()
    }

    fn within(base: &Path) -> Scratch {
        let directory =
            tempfile::Builder::new().prefix("commonhold-tests-").tempdir_in(base).expect("scratch");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("scratch");
        Scratch { directory }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The path of something in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file of `length` zeros.
    pub fn file(&self, name: &str, length: u64) -> PathBuf {
        let path = self.join(name);
        std::fs::File::create(&path).and_then(|f| f.set_len(length)).expect("scratch file");
        path
    }

    /// A file with that content.
    pub fn file_of(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).expect("scratch file");
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

/// A file system of its own, in a file; unmounted at the end.
pub struct SmallDisk {
    mount: PathBuf,
    _scratch: Scratch,
}

impl SmallDisk {
    /// Makes one of ext4 of `megabytes`, or says why that cannot be done here.
    pub fn new(megabytes: u64) -> Result<SmallDisk, String> {
        // No space kept for root: a full disk is full for everybody.
        SmallDisk::made_by(Scratch::new(), megabytes, "mkfs.ext4", &["-q", "-F", "-m", "0"])
    }

    /// Makes one of `megabytes` by that program, whose image lies in `scratch`.
    pub fn made_by(
        scratch: Scratch,
        megabytes: u64,
        mkfs: &str,
        options: &[&str],
    ) -> Result<SmallDisk, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting a small disk needs root".into());
        }
        let image = scratch.file("disk.img", megabytes << 20);
        let mount = scratch.join("disk");
        std::fs::create_dir(&mount).map_err(|e| e.to_string())?;
        run(Command::new(mkfs).args(options).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount))?;
        std::fs::set_permissions(&mount, std::fs::Permissions::from_mode(0o755))
            .map_err(|e| e.to_string())?;
        Ok(SmallDisk { mount, _scratch: scratch })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Takes all its free space but `leave_bytes` by a file, which is to be removed to free it.
    pub fn use_up(&self, leave_bytes: u64) -> PathBuf {
        let path = self.mount.join("ballast");
        let file = std::fs::File::create(&path).expect("ballast");
        let mut length = free_bytes(&self.mount).saturating_sub(leave_bytes);
        while rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length.max(1)).is_err() {
            length = length.saturating_sub(64 << 10);
            assert!(length > 0, "no ballast fits");
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if run(Command::new("umount").arg(&self.mount)).is_err() {
            let _ = run(Command::new("umount").arg("-l").arg(&self.mount));
        }
    }
}

/// A file system in memory, which fills up; unmounted at the end.
pub struct RamDisk {
    mount: PathBuf,
    _scratch: Scratch,
}

impl RamDisk {
    /// Makes one of `megabytes`, or says why that cannot be done here.
    pub fn new(megabytes: u64) -> Result<RamDisk, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting a small disk needs root".into());
        }
        let scratch = Scratch::new();
        let mount = scratch.join("disk");
        std::fs::create_dir(&mount).map_err(|e| e.to_string())?;
        let options = format!("size={megabytes}m,mode=755");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "commonhold-tests"]).arg(&mount))?;
        Ok(RamDisk { mount, _scratch: scratch })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Takes all its free space but `leave_bytes` by a file, which is to be removed to free it.
    pub fn use_up(&self, leave_bytes: u64) -> PathBuf {
        let path = self.mount.join("ballast");
        let file = std::fs::File::create(&path).expect("ballast");
        let length = free_bytes(&self.mount).saturating_sub(leave_bytes) & !4095;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length.max(1)).expect("ballast");
        path
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        if run(Command::new("umount").arg(&self.mount)).is_err() {
            let _ = run(Command::new("umount").arg("-l").arg(&self.mount));
        }
    }
}

fn free_bytes(path: &Path) -> u64 {
    let state = rustix::fs::statvfs(path).expect("statvfs");
    state.f_bavail * state.f_frsize
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
