//! `rebase …`: shared relocated libraries for programs as they are (docs/REBASE.md). Needs no host.

mod check;
mod views;

use crate::arguments::rebase::{Core, Place, Programs, RebaseCommand, Rest, Run, Set};
use crate::failure::{Done, Failure, all_done, error};
use crate::output::{answer, count};
use commonhold_object::{Error, ErrorKind};
use commonhold_rebase::build::{Report, build, change};
use commonhold_rebase::state::{self, State};
use commonhold_rebase::store::{self, Store};
use commonhold_rebase::{core_dump, images::Owner};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the command.
pub fn run(command: RebaseCommand) -> Done {
    match command {
        RebaseCommand::Set(arguments) => set(&arguments),
        RebaseCommand::Unset(arguments) => unset(&arguments),
        RebaseCommand::List(rest) => list(&rest),
        RebaseCommand::Update(rest) => update(&rest),
        RebaseCommand::Run(arguments) => start(&arguments),
        RebaseCommand::Env(rest) => environment(&rest),
        RebaseCommand::Check(arguments) => check::check(&arguments),
        RebaseCommand::Renew(rest) => renew(&rest),
        RebaseCommand::Verify(rest) => verify(&rest),
        RebaseCommand::Clean(rest) => clean(&rest),
        RebaseCommand::Core(arguments) => core(&arguments),
    }
}

/// What went wrong with copies, as a failure of the command.
fn wrong(why: commonhold_rebase::Error) -> Failure {
    use commonhold_rebase::Error as Why;
    let kind = match &why {
        Why::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        Why::File { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            ErrorKind::Permission
        }
        Why::File { .. } => ErrorKind::Io,
        Why::Images(why) => why.kind(),
        _ => ErrorKind::Invalid,
    };
    error(kind, why.to_string())
}

fn open(place: &Place) -> Result<Store, Failure> {
    let (root, owner) = match &place.store {
        Some(directory) => (directory.clone(), Owner::Machine),
        None if rustix::process::geteuid().is_root() => ("/var/lib/commonhold/rebase".into(), Owner::Machine),
        None => (users_directory()?, Owner::User),
    };
    Store::open(&root, owner).map_err(wrong)
}

fn users_directory() -> Result<PathBuf, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    let data = data.ok_or_else(|| error(ErrorKind::Invalid, "there is no home directory: give --store"))?;
    Ok(data.join("commonhold/rebase"))
}

/// The path of a program that is given as the shell takes it.
fn find(program: &Path) -> Result<PathBuf, Failure> {
    let runs = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let found = if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        Some(program.to_owned())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| runs(path))
    };
    let found = found.filter(|path| path.exists());
    let missing = || error(ErrorKind::NotFound, format!("there is no program {}", program.display()));
    let path = found.ok_or_else(missing)?;
    Ok(path.canonicalize().unwrap_or(path))
}

fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{elapsed}  {wide_bar} {pos}/{len}") {
        bar.set_style(style);
    }
    bar
}

/// Builds with a bar on a terminal. `changed`: all but these hold; unless given, everything is built.
fn make(
    store: &Store,
    programs: &store::Set,
    changed: Option<&BTreeSet<PathBuf>>,
) -> Result<Report, Failure> {
    store.install().map_err(wrong)?;
    let bar = bar();
    let progress = |done: usize, of: usize| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    };
    let report = match changed {
        None => build(store, programs, &progress),
        Some(changed) => change(store, programs, changed, &progress),
    };
    bar.finish_and_clear();
    report.map_err(wrong)
}

/// Says what was made; a program that could not be set is an error.
fn report(report: &Report, json: bool) -> Done {
    answer(json, &views::Built::new(report), |view| view.text())?;
    let line = |unset: &commonhold_rebase::plan::Unset| Error::new(ErrorKind::Invalid, unset.why.to_string());
    all_done(report.unset.iter().map(line).collect())
}

fn set(arguments: &Set) -> Done {
    let rest = &arguments.programs.rest;
    let store = open(&rest.place)?;
    let _alone = store.lock().map_err(wrong)?;
    let before = store.programs().map_err(wrong)?;
    let mut all = before.clone();
    let mut changed = BTreeSet::new();
    for program in &arguments.programs.programs {
        let path = find(program)?;
        all.insert(path.clone(), arguments.executable);
        changed.insert(path);
    }
    let made = make(&store, &all, Some(&changed))?;
    for unset in &made.unset {
        // One that was set is again, as it was, when `update` finds that it can be.
        match before.get(&unset.path) {
            Some(moved) => all.insert(unset.path.clone(), *moved),
            None => all.remove(&unset.path),
        };
    }
    store.set_programs(&all).map_err(wrong)?;
    report(&made, rest.form.json)
}

fn unset(arguments: &Programs) -> Done {
    let store = open(&arguments.rest.place)?;
    let _alone = store.lock().map_err(wrong)?;
    let mut all = store.programs().map_err(wrong)?;
    for program in &arguments.programs {
        let path = find(program).unwrap_or_else(|_| program.clone());
        if all.remove(&path).is_none() {
            return Err(error(ErrorKind::NotFound, format!("{} is not set for rebasing", path.display())));
        }
        store.remove_record(&path).map_err(wrong)?;
    }
    store.set_programs(&all).map_err(wrong)?;
    state::release(&store).map_err(wrong)?;
    answer(arguments.rest.form.json, &views::Programs::new(&all), |_| String::new())
}

fn list(rest: &Rest) -> Done {
    let store = open(&rest.place)?;
    let programs = store.programs().map_err(wrong)?;
    let states = programs.into_iter().map(|(path, moved)| Ok((state::of(&store, &path)?, path, moved)));
    let states: Vec<(State, PathBuf, bool)> =
        states.collect::<commonhold_rebase::Result<_>>().map_err(wrong)?;
    answer(rest.form.json, &views::States::new(&states), |view| view.text())
}

fn update(rest: &Rest) -> Done {
    let store = open(&rest.place)?;
    let _alone = store.lock().map_err(wrong)?;
    let made = make(&store, &store.programs().map_err(wrong)?, None)?;
    store.keep_labels();
    report(&made, rest.form.json)
}

/// A program that is set, and with copies that hold; set now if need be.
fn prepare(store: &Store, program: &Path, executable: bool) -> Result<(), Failure> {
    let holds = |all: &store::Set| {
        let current = matches!(state::of(store, program), Ok(State::Current { .. }));
        current && store.is_installed() && all.get(program).is_some_and(|moved| *moved || !executable)
    };
    if holds(&store.programs().map_err(wrong)?) {
        return Ok(()); // nothing is written, and the store may be one that cannot be
    }
    let _alone = store.lock().map_err(wrong)?;
    let mut all = store.programs().map_err(wrong)?;
    if holds(&all) {
        return Ok(());
    }
    *all.entry(program.to_owned()).or_default() |= executable;
    let made = make(store, &all, Some(&BTreeSet::from([program.to_owned()])))?;
    if let Some(unset) = made.unset.into_iter().find(|unset| unset.path == program) {
        return Err(wrong(unset.why));
    }
    store.set_programs(&all).map_err(wrong)
}

fn start(arguments: &Run) -> Done {
    let store = open(&arguments.place)?;
    let (program, words) = arguments.command.split_first().expect("the command line requires one");
    let path = find(Path::new(program))?;
    refuse_another_audit(&store)?;
    prepare(&store, &path, arguments.executable)?;
    let why = Command::new(&path).arg0(program).args(words).envs(store.variables()).exec();
    Err(Error::io(format!("cannot start {}", path.display()), &why).into())
}

fn environment(rest: &Rest) -> Done {
    let store = open(&rest.place)?;
    refuse_another_audit(&store)?;
    store.install().map_err(wrong)?;
    let library = store.library();
    answer(rest.form.json, &views::Environment::new(&library), |_| {
        let (tunables, room) = (store::TUNABLES, store::ROOM);
        format!(
            "export LD_AUDIT={}\nexport {tunables}=\"${{{tunables}:+${tunables}:}}{room}\"",
            quoted(library.as_os_str())
        )
    })
}

/// With two audit libraries the loader asks both, and what the other one answers is not known when copies are made.
fn refuse_another_audit(store: &Store) -> Done {
    let set = std::env::var_os("LD_AUDIT").filter(|set| !set.is_empty() && !store.is_library(set));
    set.map_or(Ok(()), |set| {
        let text =
            format!("LD_AUDIT is {} already, and programs have copies only without: unset it", set.display());
        Err(error(ErrorKind::Invalid, text))
    })
}

/// As a shell takes it.
fn quoted(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-".contains(character);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn renew(rest: &Rest) -> Done {
    let store = open(&rest.place)?;
    let _alone = store.lock().map_err(wrong)?;
    state::renew(&store).map_err(wrong)?;
    let made = make(&store, &store.programs().map_err(wrong)?, None)?;
    report(&made, rest.form.json)
}

fn verify(rest: &Rest) -> Done {
    let store = open(&rest.place)?;
    let damaged = store.damaged().map_err(wrong)?;
    let checked = store.copies().map_err(wrong)?.len();
    answer(rest.form.json, &views::Verified::new(checked, &damaged), |_| {
        format!("{} as written", count((checked - damaged.len()) as u64, "file"))
    })?;
    let line = |path: &PathBuf| {
        let text = format!(
            "{} is not what was written, or others can write it: run `commonhold rebase update`, which makes it anew",
            path.display()
        );
        Error::new(ErrorKind::Corrupt, text)
    };
    all_done(damaged.iter().map(line).collect())
}

fn clean(rest: &Rest) -> Done {
    let store = open(&rest.place)?;
    let _alone = store.lock().map_err(wrong)?;
    let removed = state::clean(&store).map_err(wrong)?;
    answer(rest.form.json, &views::Cleaned { removed }, |_| {
        format!("removed {}", count(removed as u64, "file"))
    })
}

fn core(arguments: &Core) -> Done {
    let store = open(&arguments.rest.place)?;
    let files = core_dump::files(&arguments.core).map_err(wrong)?;
    let mapped = state::originals(&store, files).map_err(wrong)?;
    answer(arguments.rest.form.json, &views::Files::new(&mapped), |view| view.text())
}
