//! Arguments of `faults`.

use super::Form;
use clap::Args;
use std::ffi::OsString;

/// `faults`.
#[derive(Debug, Args)]
#[command(
    after_help = "The program's standard output comes out on standard error: standard output has the answer alone. \
    Children are counted as long as the program runs.\n\n\
    Exit status: 1 wired memory had faults; 2 that is not known, or the program could not be run; else the program's \
    own, 128 + N where signal N ended it.\n\n\
    Examples:\n  \
    commonhold faults -- ./control-loop --seconds 10\n  \
    commonhold faults --json --all -- python3 loop.py"
)]
pub struct Faults {
    /// Tell of all mappings, also of those that had no fault
    #[arg(long)]
    pub all: bool,
    /// How to answer
    #[command(flatten)]
    pub form: Form,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}
