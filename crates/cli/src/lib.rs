//! The `commonhold` command: what it understands, what it does, and how it says what came of it.

pub mod arguments;
mod commands;
mod configuration;
mod doctor;
mod failure;
mod host_process;
mod output;
mod people;
mod place;
mod units;
mod view;

pub use commands::top;

use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs a command line (its first word is the program's name); gives the exit code: 0 success, 1 failure, 2 a
/// command line that was not understood.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let done = match arguments::CommandLine::try_parse_from(words) {
        Ok(line) => commands::run(line),
        Err(asked) if !asked.use_stderr() => output::say(asked.to_string().trim_end()),
        Err(error) => Err(failure::usage(&error)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
