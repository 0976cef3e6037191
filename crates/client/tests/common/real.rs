//! Real hosts, for tests that need one. `COMMONHOLD_PROGRAM` names the program to start them with; without it such tests
//! say so and pass.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub const PAGE: usize = 4096;
/// Of the files that [`RealHost::file`] makes.
pub const PAGES: usize = 64;

/// A host in a directory of its own.
pub struct RealHost {
    pub program: PathBuf,
    pub directory: PathBuf,
}

impl RealHost {
    pub fn start() -> Option<RealHost> {
        super::limit::begin();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(program) = std::env::var_os("COMMONHOLD_PROGRAM") else {
            super::left_out::left_out("COMMONHOLD_PROGRAM names no `commonhold` program to start hosts with");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("commonhold-real-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let host = RealHost { program: program.into(), directory };
        host.run();
        Some(host)
    }

    pub fn run(&self) {
        let output = Command::new(&self.program)
            .args(["host", "start", "--state"])
            .arg(&self.directory)
            .output()
            .unwrap();
        assert!(output.status.success(), "host start: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn file(&self, name: &str) -> File {
        let path = self.directory.join(name);
        std::fs::write(&path, vec![b'.'; PAGES * PAGE]).unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }
}

impl Drop for RealHost {
    fn drop(&mut self) {
        stop(self.program.as_ref(), &self.directory);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn stop(program: &OsStr, directory: &Path) {
    let output =
        Command::new(program).args(["host", "stop", "--force", "--host"]).arg(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || std::thread::panicking(), "host stop: {said}");
}
