//! The program of hosts and keepers under test: the `commonhold` command, built together with the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    commonhold_cli::run(std::env::args_os())
}
