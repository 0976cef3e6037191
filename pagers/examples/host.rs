//! The program of the hosts that the tests start: the `commonhold` command, built together with them.

use std::process::ExitCode;

fn main() -> ExitCode {
    commonhold_cli::run(std::env::args_os())
}
