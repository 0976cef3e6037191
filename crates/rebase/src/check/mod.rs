//! A program is run both ways, with its libraries as they are and with their copies, and what comes of it is compared: its
//! answers, every word that its loader wrote, and the memory that it has for itself.

mod trace;
mod words;

pub use words::Difference;

use crate::plan::{Files, Program};
use crate::store::{Store, TUNABLES};
use crate::{Error, Result};
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use trace::Memory;

/// What one run gave.
#[derive(Debug)]
pub struct Outcome {
    /// What it wrote to standard output.
    pub output: Vec<u8>,
    /// And to standard error.
    pub errors: Vec<u8>,
    /// Its exit status, as the kernel says it.
    pub status: i32,
    /// How many copies it had.
    pub copies: usize,
    /// Its own memory when it ended, in KiB: all that it changed, and of that what is read-only after relocation.
    pub private_kib: u64,
    /// See above.
    pub relocated_kib: u64,
}

/// What the comparison says.
#[derive(Debug)]
pub struct Comparison {
    /// With the libraries as they are.
    pub stock: Outcome,
    /// With copies.
    pub rebased: Outcome,
    /// How many words the loader wrote.
    pub words: usize,
    /// Those that are not the same.
    pub differences: Vec<Difference>,
}

impl Comparison {
    /// Whether nothing is different but the addresses.
    pub fn same(&self) -> bool {
        let (one, other) = (&self.stock, &self.rebased);
        self.differences.is_empty()
            && (&one.output, &one.errors, one.status) == (&other.output, &other.errors, other.status)
    }
}

/// Runs `program` with these arguments, without input, both ways.
pub fn compare(store: &Store, program: &Path, name: &OsString, arguments: &[OsString]) -> Result<Comparison> {
    let scratch = tempfile::tempdir().map_err(Error::file(Path::new("a directory for temporary files")))?;
    let mut files = Files::default();
    let opened = Program::open(program, &mut files, &store.variables(), scratch.path())?;
    let run = |rebased: bool| -> Result<(Outcome, words::Words)> {
        let output = scratch.path().join("output");
        let errors = scratch.path().join("errors");
        let create = |path: &Path| File::create(path).map_err(Error::file(path));
        let mut command = Command::new(program);
        command.args(arguments).env_remove("LD_AUDIT").env("LD_BIND_NOW", "1");
        std::os::unix::process::CommandExt::arg0(&mut command, name);
        // Both with the same room for thread-local storage, so that all of it has the same places.
        let variables = store.variables();
        let given = variables.iter().filter(|(name, _)| rebased || *name == TUNABLES);
        command.envs(given.map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&errors)?);
        let mut found = None;
        let ended = trace::run(command, |process| found = Some(words::read(process, store, &files, &opened)))
            .map_err(Error::file(program))?;
        let read = |path: &Path| std::fs::read(path).map_err(Error::file(path));
        let (output, errors) = (read(&output)?, read(&errors)?);
        let found =
            found.ok_or_else(|| Error::compare(program, before_it_began(ended.status, &errors)))??;
        let Memory { private_kib, relocated_kib } = ended.memory;
        let outcome = Outcome {
            output,
            errors,
            status: ended.status,
            copies: found.copies,
            private_kib,
            relocated_kib,
        };
        Ok((outcome, found))
    };
    let (stock, one) = run(false)?;
    let (rebased, other) = run(true)?;
    if rebased.copies == 0 {
        return Err(Error::compare(
            program,
            "it was started without its copies: `commonhold rebase list` says whether they hold",
        ));
    }
    let differences = words::differences(&files, &opened, &one, &other);
    Ok(Comparison { stock, rebased, words: one.len(), differences })
}

/// What is said of a program that its loader did not start. Functions that it would miss late, or never, are missed then.
fn before_it_began(status: i32, errors: &[u8]) -> String {
    let status =
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
    let said = String::from_utf8_lossy(errors).trim().replace('\n', "; ");
    format!("its loader ended it before it began (status {status}): {said}")
}
