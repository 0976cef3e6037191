//! What `rebase` answers, for people and for programs.

use crate::output::{columns, count};
use commonhold_rebase::build::Report;
use commonhold_rebase::state::{Mapped, State};
use commonhold_rebase::store::Set;
use serde::Serialize;
use std::path::{Path, PathBuf};

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[derive(Serialize)]
struct BuiltProgram {
    program: String,
    copies: usize,
}

#[derive(Serialize)]
struct Reason {
    file: String,
    why: String,
}

/// `set`, `update`, `renew`.
#[derive(Serialize)]
pub struct Built {
    programs: Vec<BuiltProgram>,
    not_set: Vec<Reason>,
    used_as_they_are: Vec<Reason>,
    copies_made: usize,
    copies_kept: usize,
}

impl Built {
    pub fn new(report: &Report) -> Built {
        let programs = report.programs.iter();
        let not_set = report.unset.iter();
        let used_as_they_are = report.unfit.iter();
        Built {
            programs: programs
                .map(|(path, copies)| BuiltProgram { program: text(path), copies: *copies })
                .collect(),
            not_set: not_set.map(|one| Reason { file: text(&one.path), why: one.why.to_string() }).collect(),
            used_as_they_are: used_as_they_are
                .map(|(path, why)| Reason { file: text(path), why: why.clone() })
                .collect(),
            copies_made: report.made,
            copies_kept: report.kept,
        }
    }

    pub fn text(&self) -> String {
        let rows = self.programs.iter().map(|one| vec![one.program.clone(), one.copies.to_string()]);
        let table = columns(Some(&["PROGRAM", "COPIES"]), rows.collect(), &[1]);
        let made = format!("{} made, {} kept", count(self.copies_made as u64, "file"), self.copies_kept);
        if table.is_empty() { made } else { format!("{table}\n{made}") }
    }
}

/// `unset`.
#[derive(Serialize)]
pub struct Programs {
    programs: Vec<String>,
}

impl Programs {
    pub fn new(set: &Set) -> Programs {
        Programs { programs: set.keys().map(|path| text(path)).collect() }
    }
}

#[derive(Serialize)]
struct OneState {
    program: String,
    executable: bool,
    state: &'static str,
    copies: usize,
    changed: Option<String>,
}

/// `list`.
#[derive(Serialize)]
pub struct States(Vec<OneState>);

impl States {
    pub fn new(states: &[(State, PathBuf, bool)]) -> States {
        let one = |(state, path, executable): &(State, PathBuf, bool)| {
            let (state, copies, changed) = match state {
                State::Current { copies } => ("current", *copies, None),
                State::Stale { file } => ("stale", 0, Some(text(file))),
                State::Unset => ("not made", 0, None),
                State::OtherVersion => ("made by another version: run `commonhold rebase update`", 0, None),
            };
            OneState { program: text(path), executable: *executable, state, copies, changed }
        };
        States(states.iter().map(one).collect())
    }

    pub fn text(&self) -> String {
        let row = |one: &OneState| {
            let state =
                one.changed.as_ref().map_or(one.state.to_owned(), |file| format!("stale: {file} changed"));
            vec![one.program.clone(), one.copies.to_string(), state]
        };
        columns(Some(&["PROGRAM", "COPIES", "STATE"]), self.0.iter().map(row).collect(), &[1])
    }
}

/// `env`.
#[derive(Serialize)]
pub struct Environment {
    #[serde(rename = "LD_AUDIT")]
    library: String,
    #[serde(rename = "GLIBC_TUNABLES")]
    tunables: &'static str,
}

impl Environment {
    pub fn new(library: &Path) -> Environment {
        Environment { library: text(library), tunables: commonhold_rebase::store::ROOM }
    }
}

/// `verify`.
#[derive(Serialize)]
pub struct Verified {
    files: usize,
    damaged: Vec<String>,
}

impl Verified {
    pub fn new(files: usize, damaged: &[PathBuf]) -> Verified {
        Verified { files, damaged: damaged.iter().map(|path| text(path)).collect() }
    }
}

/// `clean`.
#[derive(Serialize)]
pub struct Cleaned {
    pub removed: usize,
}

#[derive(Serialize)]
struct OneFile {
    address: u64,
    file: String,
    original: Option<String>,
    /// Of the original that the copy was made of.
    build_id: Option<String>,
    /// The address of the copy: the original's symbols are at their values and so much more.
    base: Option<u64>,
    /// Whether another file is in the place of the original by now, or none.
    original_is_another: bool,
    exists: bool,
}

/// `core`.
#[derive(Serialize)]
pub struct Files(Vec<OneFile>);

impl Files {
    pub fn new(mapped: &[Mapped]) -> Files {
        let one = |mapped: &Mapped| OneFile {
            address: mapped.first,
            file: text(&mapped.path),
            original: mapped.origin.as_ref().map(|origin| text(&origin.path)),
            build_id: mapped.origin.as_ref().and_then(|origin| origin.build_id.clone()),
            base: mapped.origin.as_ref().map(|origin| origin.base),
            original_is_another: mapped.is_another,
            exists: mapped.exists,
        };
        Files(mapped.iter().map(one).collect())
    }

    pub fn text(&self) -> String {
        let row = |one: &OneFile| {
            let mut what = Vec::new();
            if let Some(original) = &one.original {
                let build_id = one.build_id.as_ref().map(|id| format!(" with build ID {id}"));
                what.push(format!("copy of {original}{}", build_id.unwrap_or_default()));
            }
            if one.original_is_another {
                what.push("which is another now".to_owned());
            }
            if !one.exists {
                what.push(if one.original.is_some() { "the copy is gone" } else { "gone" }.to_owned());
            }
            let what = what.join(", ");
            vec![format!("{:#x}", one.address), one.file.clone(), what]
        };
        columns(None, self.0.iter().map(row).collect(), &[0])
    }
}
