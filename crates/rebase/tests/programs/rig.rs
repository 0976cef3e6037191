//! A directory with libraries, programs and a store.

pub use crate::left_out::is_root;

use commonhold_images::ranges::Owner;
use commonhold_rebase::build::{Report, build};
use commonhold_rebase::check::{Comparison, compare};
use commonhold_rebase::store::{Set, Store};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Whose stores these are.
pub const MACHINE: Owner = Owner::Machine;

pub struct Rig {
    pub store: Store,
    pub set: Set,
    folder: TempDir,
}

impl Rig {
    pub fn new() -> Rig {
        crate::limit::begin();
        let folder = TempDir::new().unwrap();
        let store = Store::open(&folder.path().join("store"), Owner::Machine).unwrap();
        store.install().unwrap();
        Rig { store, set: Set::new(), folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn compile(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        self.try_compile(name, source, options).unwrap_or_else(|said| panic!("{said}"))
    }

    /// The path, or what the compiler said.
    fn try_compile(&self, name: &str, source: &str, options: &[&str]) -> Result<PathBuf, String> {
        let from = self.path(&format!("{name}.c"));
        std::fs::write(&from, source).unwrap();
        let made = self.path(&format!("{name}.new"));
        // Libraries behind the source: those in front of it are not searched.
        let output =
            Command::new("cc").arg("-o").arg(&made).arg(&from).args(options).arg("-ldl").output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let path = self.path(name);
        std::fs::rename(&made, &path).unwrap(); // another file, as packages do it
        Ok(path)
    }

    /// Makes a library, `libNAME.so`, beside the programs.
    pub fn library(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let file = format!("lib{name}.so");
        let soname = format!("-Wl,-soname,{file}");
        let here = format!("-L{}", self.path("").display());
        let all = [&["-shared", "-fPIC", "-O1", "-Wl,-rpath,$ORIGIN", &soname, &here], options].concat();
        self.compile(&file, source, &all)
    }

    /// Makes a program that finds its libraries beside itself.
    pub fn program(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let here = format!("-L{}", self.path("").display());
        self.compile(name, source, &[&["-O1", &here, "-Wl,-rpath,$ORIGIN", "-rdynamic"], options].concat())
    }

    /// The same, if the compiler can.
    pub fn try_program(&self, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
        let here = format!("-L{}", self.path("").display());
        let all = [&["-O1", &here, "-Wl,-rpath,$ORIGIN", "-rdynamic"], options].concat();
        self.try_compile(name, source, &all).ok()
    }

    /// Sets programs, beside those that are.
    pub fn set(&mut self, programs: &[&Path]) -> Report {
        self.set.extend(programs.iter().map(|path| (path.to_path_buf(), false)));
        self.update()
    }

    pub fn update(&self) -> Report {
        build(&self.store, &self.set, &|_, _| ()).unwrap()
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(self.store.variables());
        command
    }

    pub fn run(&self, program: &Path) -> String {
        text(self.command(program).output().unwrap())
    }

    /// Both ways.
    pub fn compare(&self, program: &Path) -> Comparison {
        compare(&self.store, program, &program.as_os_str().to_owned(), &[]).unwrap()
    }

    /// Both ways, with nothing different; gives what it wrote.
    pub fn same(&self, program: &Path) -> String {
        let comparison = self.compare(program);
        assert!(comparison.same(), "{comparison:#?}");
        assert!(comparison.rebased.copies > 0 && comparison.words > 0);
        String::from_utf8(comparison.stock.output).unwrap()
    }
}

pub fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Lines of a program that say of which file the mapping with an address is; for the sources of tests.
pub const WHERE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <stdint.h>
static inline void where(void *address) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long first, end;
        sscanf(line, "%lx-%lx", &first, &end);
        if (first <= (uintptr_t)address && (uintptr_t)address < end) puts(strchr(line, '/') ? strstr(line, "/copies/") ? "copy" : "original" : "memory");
    }
    fclose(maps);
}
"#;

/// Lines of a program that say by the address alone whether something is in a copy: nothing of `/proc` is needed.
pub const BY_ADDRESS: &str = r#"
#include <stdio.h>
#include <stdint.h>
static inline void by_address(void *address) {
    puts((uintptr_t)address >> 44 == 3 ? "copy" : "original");
}
"#;
