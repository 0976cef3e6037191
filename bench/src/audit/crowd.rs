//! Some hundred real processes of varied programs: what a machine looks like to an audit.

use crate::audit::programs::{Waiting, python};
use crate::failure::{Result, skipped};
use crate::installed::find;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that every machine has, and some that many have, each with what makes it wait for its input.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("sh", &["-c", "read line"]),
    ("cat", &[]),
    ("bash", &["--norc", "-c", "read line"]),
    ("tail", &[]),
    ("awk", &["{ lines++ }"]),
    ("sleep", &["3600"]),
    ("sort", &[]),
    ("sed", &["s/a/b/"]),
    ("grep", &["a"]),
    ("wc", &[]),
    ("perl", &["-e", "<STDIN>"]),
    ("bc", &["-q"]),
    ("ed", &["-s"]),
    ("sqlite3", &["-batch", ":memory:"]),
    ("vim", &["-es", "-u", "NONE"]),
    ("gzip", &["-c"]),
    ("tr", &["a", "b"]),
];

/// What Python programs import.
const IMPORTS: &[&str] = &[
    "json",
    "ssl, http.client",
    "asyncio",
    "sqlite3, csv",
    "decimal, fractions",
    "xml.etree.ElementTree",
    "ctypes, struct",
    "multiprocessing, queue",
    "email.message, base64",
    "hashlib, lzma, bz2, zlib",
    "http.server, socketserver",
    "unicodedata, re, difflib",
];

/// One process in ten of the other programs runs a copy of its program, as on a machine with containers: the audit has
/// files to compare then.
const COPY_EVERY: usize = 10;
/// Each third process is Python's: they are what maps most files.
const PYTHON_EVERY: usize = 3;

/// The processes; they end when this is dropped.
#[derive(Debug)]
pub struct Crowd {
    members: Vec<Waiting>,
    /// How many of each program.
    pub programs: BTreeMap<String, usize>,
}

impl Crowd {
    /// Starts that many, and waits until all are at rest. Copies of programs go into the folder.
    pub fn start(count: usize, folder: &Path) -> Result<Crowd> {
        let python = python();
        let others: Vec<(PathBuf, &[&str])> =
            PROGRAMS.iter().filter_map(|(name, words)| Some((find(name)?, *words))).collect();
        if others.is_empty() {
            return skipped("no program of the usual ones is in PATH");
        }
        let mut crowd = Crowd { members: Vec::with_capacity(count), programs: BTreeMap::new() };
        for n in 0..count {
            let (program, words) = match &python {
                Some(python) if n.is_multiple_of(PYTHON_EVERY) => {
                    let imports = IMPORTS[n / PYTHON_EVERY % IMPORTS.len()];
                    (python, vec!["-c".to_owned(), format!("import sys, {imports}; sys.stdin.read()")])
                }
                _ => {
                    let (program, words) = &others[n % others.len()];
                    (program, words.iter().map(|word| (*word).to_owned()).collect())
                }
            };
            let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let copy = folder.join(&name);
            let is_copied = n % COPY_EVERY == 1 && Some(program) != python.as_ref();
            if is_copied && !copy.exists() {
                std::fs::copy(program, &copy)?;
            }
            let mut command = Command::new(if is_copied { &copy } else { program });
            command.args(words).current_dir("/");
            crowd.members.push(Waiting::start(&mut command)?);
            *crowd.programs.entry(name).or_default() += 1;
        }
        crowd.members.iter_mut().try_for_each(Waiting::rest)?;
        Ok(crowd)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_as_large_as_asked_for_and_varied() {
        let folder = tempfile::tempdir().unwrap();
        let crowd = Crowd::start(12, folder.path()).unwrap();
        assert!(std::fs::read_dir(folder.path()).unwrap().count() > 0, "some run a copy");
        assert_eq!((crowd.len(), crowd.programs.values().sum::<usize>()), (12, 12));
        assert!(crowd.programs.len() > 3, "{:?}", crowd.programs);
    }
}
