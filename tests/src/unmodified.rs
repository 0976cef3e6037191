//! Programs that know nothing of Commonhold, with a library before the C library's.

use crate::{Scratch, TestHost, host::program};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

/// A program in C of `tests/c`, compiled for a test, and the libraries, which lie where cargo puts them: in two directories.
pub struct Unmodified {
    program: PathBuf,
    library: PathBuf,
    scratch: Scratch,
}

/// A key for System V that no other test has, nor, likely, anybody else.
pub fn key() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    let number = i32::try_from(std::process::id()).expect("process numbers are small");
    0x4300_0000 | number << 8 & 0xff_ff00 | NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Unmodified {
    /// Compiles `tests/c/SOURCE`.
    pub fn new(source: &str) -> Unmodified {
        let scratch = Scratch::new();
        let open = |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755));
        open(scratch.path()).expect("its mode is ours to change");
        let compiled = scratch.join("program");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(source);
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&compiled).arg(path);
        assert!(cc.status().expect("cc").success(), "{source} compiles");
        let beside = program("libcommonhold_preload.so");
        let found = [beside.with_file_name("deps"), beside.with_file_name("")];
        let engine = found.iter().map(|place| place.join("libcommonhold_sysv.so")).find(|path| path.exists());
        let library = scratch.join("libcommonhold_preload.so");
        symlink(&beside, &library).expect("a link");
        let engine = engine.expect("cargo builds the library with the tests");
        symlink(engine, scratch.join("libcommonhold_sysv.so")).expect("a link");
        Unmodified { program: compiled, library, scratch }
    }

    /// The program as it is.
    pub fn alone(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::null());
        command
    }

    /// The same, run as `commonhold run` does: with these words.
    pub fn run(&self, host: &TestHost, words: &str) -> Command {
        let mut command = self.alone();
        command.env("LD_PRELOAD", &self.library).env("COMMONHOLD_HOST", host.state());
        command.env("COMMONHOLD_RUN", words);
        command
    }

    /// Its directory.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

/// What it wrote, one after the other.
pub fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].iter().map(|bytes| String::from_utf8_lossy(bytes)).collect()
}
