//! Arguments of `rebase`.

use super::Form;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// `rebase`.
#[derive(Debug, Subcommand)]
pub enum RebaseCommand {
    /// Make copies of what programs load, and have them used from now on
    Set(Set),
    /// Start programs as they were
    Unset(Programs),
    /// List the programs that are set, and whether their copies still hold
    List(Rest),
    /// Make anew what packages have changed, for all programs that are set
    Update(Rest),
    /// Start a program with its copies; it is set if it was not
    Run(Run),
    /// Print the variable by which a shell's programs are started with their copies
    Env(Rest),
    /// Run a program both ways, and compare its answers, bindings and memory
    Check(Check),
    /// Draw new addresses for all copies
    Renew(Rest),
    /// Compare the bytes of all copies with what was written
    Verify(Rest),
    /// Remove copies that nobody needs
    Clean(Rest),
    /// Tell which files a core dump was made with
    Core(Core),
}

/// Where copies are kept.
#[derive(Debug, Args)]
pub struct Place {
    /// Directory of the store; /var/lib/commonhold/rebase for root, else in the user's own data directory
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// What every command has.
#[derive(Debug, Args)]
pub struct Rest {
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `rebase unset`.
#[derive(Debug, Args)]
pub struct Programs {
    /// Paths, or names that are searched for as the shell does
    #[arg(required = true, value_name = "PROGRAM")]
    pub programs: Vec<PathBuf>,
    /// The rest.
    #[command(flatten)]
    pub rest: Rest,
}

/// `rebase set`.
#[derive(Debug, Args)]
pub struct Set {
    /// Which.
    #[command(flatten)]
    pub programs: Programs,
    /// Also a copy of the program itself. It finds another path in /proc/self/exe then
    #[arg(long)]
    pub executable: bool,
}

/// `rebase run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Also with a copy of the program itself, if it was not set
    #[arg(long)]
    pub executable: bool,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `rebase check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Where and how.
    #[command(flatten)]
    pub rest: Rest,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `rebase core`.
#[derive(Debug, Args)]
pub struct Core {
    /// The core dump
    pub core: PathBuf,
    /// The rest.
    #[command(flatten)]
    pub rest: Rest,
}
