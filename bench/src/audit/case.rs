//! The made case of `audit.prediction_error`: two copied Python trees in use by eight processes, which load ten equal
//! libraries out of two roots.

use crate::audit::frames::{self, Memory};
use crate::audit::programs::Waiting;
use crate::audit::trees::{self, Python};
use crate::failure::{Result, failed};
use commonhold_audit::report::Advice;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies.
const COPIES: usize = 2;
/// Processes, in turns of one tree and the other.
const PROCESSES: usize = 8;
/// Libraries in each root.
pub const LIBRARIES: usize = 10;
/// What the processes import, so that each tree is used in more than one way.
const IMPORTS: [&str; 4] = [
    "json, asyncio, decimal",
    "ssl, hashlib, http.client",
    "xml.etree.ElementTree, zlib, csv",
    "multiprocessing, random, unicodedata",
];

/// The case on the disk.
#[derive(Debug)]
pub struct Case {
    directory: PathBuf,
    libraries: Vec<PathBuf>,
}

impl Case {
    /// Makes it, and leaves nothing of it in memory.
    pub fn make(directory: &Path, python: &Path) -> Result<Case> {
        let python = Python::of(python)?;
        for copy in 0..COPIES {
            python.copy(&tree(directory, copy))?;
        }
        let libraries = trees::libraries(&tree(directory, 0), &IMPORTS.join(", "), LIBRARIES)?;
        for copy in 0..COPIES {
            let folder = root(directory, copy);
            fs::create_dir_all(&folder)?;
            for library in &libraries {
                fs::copy(library, folder.join(library.file_name().unwrap_or_default()))?;
            }
        }
        frames::drop_from_memory(directory)?;
        Ok(Case { directory: directory.to_owned(), libraries })
    }

    /// Names of the libraries.
    pub fn libraries(&self) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.libraries.iter().map(name).collect()
    }

    /// Starts its processes, and waits until they are at rest.
    pub fn start(&self) -> Result<Vec<Waiting>> {
        let mut processes = Vec::with_capacity(PROCESSES);
        for n in 0..PROCESSES {
            let copy = n % COPIES;
            let names = self.libraries.iter().filter_map(|path| path.file_name());
            let paths: Vec<String> =
                names.map(|name| root(&self.directory, copy).join(name).display().to_string()).collect();
            let imports = IMPORTS[n / COPIES % IMPORTS.len()];
            let text = format!(
                "import ctypes, sys, {imports}\nkept = [ctypes.CDLL(path) for path in {paths:?}]\nsys.stdin.read()"
            );
            let mut process = Waiting::start(&mut trees::run(&tree(&self.directory, copy), &text))?;
            process.rest()?;
            processes.push(process);
        }
        Ok(processes)
    }

    /// What the processes and the case's files take in memory.
    pub fn memory(&self, processes: &[Waiting]) -> Result<Memory> {
        let pids: Vec<u32> = processes.iter().map(Waiting::pid).collect();
        frames::count(&pids, &self.directory)
    }

    /// Does what a piece of advice says, if it is hard links: how many there were. Nothing outside of the case is
    /// touched, whatever the advice says.
    pub fn follow(&self, advice: &Advice) -> Result<usize> {
        let commands: Vec<&String> = advice.how.iter().filter(|line| line.starts_with("ln -f ")).collect();
        for command in &commands {
            let inside = command.split(' ').skip(2).all(|word| Path::new(word).starts_with(&self.directory));
            if !inside || command.contains("..") {
                return failed(format!("this advice leads out of the made case: {command}"));
            }
            let status = Command::new("sh").args(["-c", command]).status()?;
            if !status.success() {
                return failed(format!("`{command}` ended with {status}"));
            }
        }
        Ok(commands.len())
    }
}

fn tree(directory: &Path, copy: usize) -> PathBuf {
    directory.join(format!("python-{copy}"))
}

fn root(directory: &Path, copy: usize) -> PathBuf {
    directory.join(format!("root-{copy}/usr/lib"))
}
