//! Real programs with the libraries that the machine has, and with copies of them.

pub mod memory;

use crate::context::Context;
use crate::failure::{Failure, Result, failed};
use crate::measure::seconds;
use commonhold_rebase::build::build;
use commonhold_rebase::images::Owner;
use commonhold_rebase::store::{Set, Store};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program and what it is to do.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Whether it is to have a copy itself.
    pub moved: bool,
}

/// The program of the first of these paths that is there.
pub fn find(paths: &[&str], arguments: &[&str]) -> Option<Program> {
    let path = paths.iter().map(Path::new).find(|path| path.exists())?;
    Some(Program {
        path: path.canonicalize().ok()?,
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        moved: false,
    })
}

/// clang, which compiles `hello.cc` of this folder.
pub fn clang(context: &Context) -> Result<Program> {
    let source = context.directory.join("hello.cc");
    std::fs::write(&source, include_str!("hello.cc"))?;
    let object = context.directory.join("hello.o");
    let paths: Vec<String> = (14..23).rev().map(|n| format!("/usr/lib/llvm-{n}/bin/clang")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let arguments =
        ["-O2", "-c", source.to_str().unwrap_or_default(), "-o", object.to_str().unwrap_or_default()];
    find(&paths, &arguments)
        .ok_or_else(|| Failure::Skipped("clang is not installed (apt install clang)".into()))
}

/// chromium's own program (not the script that starts it), with a copy of itself.
pub fn chromium(arguments: &[&str]) -> Result<Program> {
    let program = find(&["/usr/lib/chromium/chromium"], arguments);
    let program =
        program.ok_or_else(|| Failure::Skipped("chromium is not installed (apt install chromium)".into()))?;
    Ok(Program { moved: true, ..program })
}

/// A store in which programs are set.
pub struct Rebased {
    /// Where.
    pub store: Store,
}

impl Rebased {
    /// Sets programs in a store of the row's own.
    pub fn new(context: &Context, programs: &[&Program]) -> Result<Rebased> {
        let wrong = |error: commonhold_rebase::Error| Failure::Failed(error.to_string());
        let store = Store::open(&context.directory.join("rebase"), Owner::Machine).map_err(wrong)?;
        store.install().map_err(wrong)?;
        let set: Set = programs.iter().map(|program| (program.path.clone(), program.moved)).collect();
        let report = build(&store, &set, &|_, _| ()).map_err(wrong)?;
        match report.unset.first() {
            Some(unset) => failed(format!("{}: {}", unset.path.display(), unset.why)),
            None => Ok(Rebased { store }),
        }
    }

    /// The program, ready to be started with copies or without, saying nothing.
    pub fn command(&self, program: &Program, with_copies: bool) -> Command {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).env_remove("LD_AUDIT");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if with_copies {
            command.env("LD_AUDIT", self.store.library());
        }
        command
    }

    /// Seconds from its start to its end.
    pub fn time(&self, program: &Program, with_copies: bool) -> Result<f64> {
        let mut command = self.command(program, with_copies);
        seconds(|| match command.status()? {
            status if status.success() => Ok(()),
            status => failed(format!("{} ended with {status}", program.path.display())),
        })
    }
}
