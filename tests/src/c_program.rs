//! Programs in C that use the library: compiled for a test, and run against its hosts.

use crate::{Scratch, TestHost, host::program};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program, and the directory that it lies in.
pub struct CProgram {
    program: PathBuf,
    _scratch: Scratch,
}

impl CProgram {
    /// Compiles a source of the checkout. `without`: these functions of the library do nothing in it, and say that they did.
    pub fn new(source: &str, without: &[&str]) -> CProgram {
        let scratch = Scratch::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let beside = program("commonhold-tests-host");
        let found = [beside.with_file_name("deps"), beside.with_file_name("")];
        let library = found.iter().find(|place| place.join("libcommonhold.so").exists());
        let library = library.expect("cargo builds the library with the tests");
        let (compiled, nothing) = (scratch.join("program"), scratch.join("nothing.c"));
        let does_nothing = |name: &&str| {
            format!(
                "int __wrap_{name}(void *at, unsigned long bytes) {{ (void)at; (void)bytes; return 0; }}\n"
            )
        };
        std::fs::write(&nothing, without.iter().map(does_nothing).collect::<String>()).expect("a file");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]);
        cc.arg("-I").arg(root.join("include")).arg(root.join(source)).arg(&nothing).arg("-o").arg(&compiled);
        cc.arg("-L").arg(library).arg("-lcommonhold").arg(format!("-Wl,-rpath,{}", library.display()));
        cc.args(without.iter().map(|name| format!("-Wl,--wrap={name}")));
        assert!(cc.status().expect("cc").success(), "{source} compiles");
        CProgram { program: compiled, _scratch: scratch }
    }

    /// Starts it as a client of a host, with these words.
    pub fn start(&self, host: &TestHost, words: &str) -> Running {
        let mut command = Command::new(&self.program);
        command.args(words.split(' ')).env("COMMONHOLD_HOST", host.state());
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(pipes.spawn().expect("it runs")))
    }
}

/// A process; it is killed at the end, whatever the test does.
pub struct Running(Option<Child>);

impl Running {
    /// Waits for its end, which begins when its input ends: whether it was a good one, and what it wrote.
    pub fn end(mut self) -> (bool, String) {
        let output = self.0.take().map(Child::wait_with_output).expect("it ends once").expect("its end");
        let text: String =
            [&output.stdout, &output.stderr].iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
        (output.status.success(), text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // One that has ended by itself cannot be killed any more, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
