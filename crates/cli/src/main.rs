//! The `commonhold` program. All of it is in the library beside, where tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    commonhold_cli::run(std::env::args_os())
}
