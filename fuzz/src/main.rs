//! One program with all formats that cross a border. libFuzzer makes inputs up; what each format
//! promises of any bytes is checked here, and memory and time are bounded. `README.md` says how it
//! is started.

mod coverage;
mod driver;
mod formats;
mod memory;
mod session;

use formats::Format;
use session::Session;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "commonhold-fuzz list
commonhold-fuzz run DIRECTORY --seconds=N|--inputs=N [--seed=N] [--json] [FORMAT]...
commonhold-fuzz coverage FORMAT DIRECTORY
commonhold-fuzz --format=FORMAT [-FLAG=VALUE of libFuzzer]... [FILE]...";

fn failed(why: impl Display) -> ExitCode {
    eprintln!("commonhold-fuzz: {why}");
    ExitCode::FAILURE
}

fn named(name: &str) -> Option<&'static Format> {
    formats::ALL.iter().find(|format| format.name == name)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "list"] => {
            formats::ALL.iter().for_each(|format| println!("{}", format.name));
            ExitCode::SUCCESS
        }
        [_, "run", ..] => match Session::new(&words[2..]).map(|session| session.run()) {
            Ok(Ok(true)) => ExitCode::SUCCESS,
            Ok(Ok(false)) => failed("there were failures"),
            Ok(Err(error)) => failed(error),
            Err(why) => failed(why),
        },
        [_, "coverage", name, directory] => {
            match named(name).map(|one| coverage::of(one, Path::new(directory))) {
                Some(Ok(covered)) => {
                    println!("{} {}", covered.edges, covered.of);
                    ExitCode::SUCCESS
                }
                Some(Err(error)) => failed(error),
                None => failed(USAGE),
            }
        }
        [_, first, ..] => match first.strip_prefix("--format=").and_then(named) {
            Some(format) => driver::run(format, &words),
            None => failed(USAGE),
        },
        _ => failed(USAGE),
    }
}
