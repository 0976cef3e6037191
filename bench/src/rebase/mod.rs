//! Real programs with the libraries that the machine has, and with copies of them.

pub mod memory;
pub mod programs;
pub mod server;
pub mod trouble;
pub mod watch;

use crate::context::Context;
use crate::failure::{Failure, Result, failed};
use crate::measure::seconds;
use commonhold_rebase::build::build;
use commonhold_rebase::images::Owner;
use commonhold_rebase::state::{self, State};
use commonhold_rebase::store::{Set, Store};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
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
    /// Variables that it is always started with.
    pub variables: Vec<(&'static str, PathBuf)>,
    /// The user whom it is started as, if that is another one.
    pub user: Option<u32>,
}

impl Program {
    /// Ready to be started with its libraries as they are.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).env_remove("LD_AUDIT");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }
}

/// A store in which programs are set.
pub struct Rebased {
    /// Where.
    pub store: Store,
    set: Set,
}

impl Rebased {
    /// Sets programs in a store of the row's own, all at once: what one needs of a library changes what others have.
    pub fn new(context: &Context, programs: &[&Program]) -> Result<Rebased> {
        let store = Store::open(&context.directory.join("rebase"), Owner::Machine).map_err(wrong)?;
        store.install().map_err(wrong)?;
        let set: Set = programs.iter().map(|program| (program.path.clone(), program.moved)).collect();
        let rebased = Rebased { store, set };
        rebased.renew()?;
        Ok(rebased)
    }

    /// Makes copies and records anew where something has changed.
    pub fn renew(&self) -> Result<()> {
        let report = build(&self.store, &self.set, &|_, _| ()).map_err(wrong)?;
        match report.unset.first() {
            Some(unset) => failed(format!("{}: {}", unset.path.display(), unset.why)),
            None => Ok(()),
        }
    }

    /// How many copies the program has when it is started, by its record.
    pub fn expected(&self, program: &Program) -> Result<usize> {
        match state::of(&self.store, &program.path).map_err(wrong)? {
            State::Current { copies } if copies > 0 => Ok(copies),
            other => failed(format!("{} should have copies, and is {other:?}", program.path.display())),
        }
    }

    /// Looks at one launch of each program, so that no figure is about programs that were started without copies: with them
    /// all of them must be mapped, without them none. Gives how many each has.
    pub fn assert(&self, programs: &[&Program]) -> Result<Vec<usize>> {
        let one = |program: &&Program| {
            let mut counts = Vec::new();
            for (with_copies, wanted) in [(true, self.expected(program)?), (false, 0)] {
                let seen = watch::watch(self.command(program, with_copies), &self.store, None)?;
                if seen.copies.len() != wanted {
                    let name = program.path.display();
                    return failed(format!(
                        "{name} has {} copies where {wanted} should be",
                        seen.copies.len()
                    ));
                }
                counts.push(wanted);
            }
            Ok(counts[0])
        };
        programs.iter().map(one).collect()
    }

    /// The program, ready to be started with copies or without, saying nothing.
    pub fn command(&self, program: &Program, with_copies: bool) -> Command {
        let mut command = program.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if with_copies {
            command.envs(self.store.variables());
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

fn wrong(error: commonhold_rebase::Error) -> Failure {
    Failure::Failed(error.to_string())
}
