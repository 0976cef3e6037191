//! How a command fails: one line for each thing that went wrong, and an exit code that is not 0.

use crate::output::printable;
use commonhold_object::{Error, ErrorKind};
use std::io;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// What went wrong: each a line.
    Errors(Vec<Error>),
    /// The command line was not understood.
    Usage(String),
    /// What there is to say was said in the answer (doctor).
    Answered,
    /// The same, with an exit code of the command's own, and errors if there are any.
    WithCode(Vec<Error>, u8),
    /// Nobody reads the answer any more (`commonhold ls | head`).
    NoReader,
}

/// What a command gives back.
pub type Done = Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Errors(vec![error])
    }
}

impl Failure {
    /// A failure to write the answer to standard output.
    pub fn writing(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::NoReader
        } else {
            Error::io("cannot write the answer to standard output", &error).into()
        }
    }

    /// Says it on standard error; gives the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Errors(errors) => {
                report_all(errors);
                ExitCode::from(1)
            }
            Failure::WithCode(errors, code) => {
                report_all(errors);
                ExitCode::from(*code)
            }
            Failure::Usage(message) => {
                eprintln!("commonhold: {}", one_line(message));
                ExitCode::from(2)
            }
            Failure::Answered => ExitCode::from(1),
            // What a shell reports of a program that SIGPIPE ended.
            Failure::NoReader => ExitCode::from(141),
        }
    }
}

/// Success if nothing went wrong.
pub fn all_done(errors: Vec<Error>) -> Done {
    if errors.is_empty() { Ok(()) } else { Err(Failure::Errors(errors)) }
}

/// An error of the given kind, from words.
pub fn error(kind: ErrorKind, message: impl Into<String>) -> Failure {
    Error::new(kind, message).into()
}

fn report_all(errors: &[Error]) {
    errors.iter().for_each(|error| eprintln!("commonhold: {}", one_line(&error.message)));
}

fn one_line(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" "), false)
}

/// The parser's complaint as one line.
pub fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("commonhold --help");
        return Failure::Usage(format!("a command is missing; usage: {usage}; --help lists the commands"));
    }
    let mut parts = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(hint) = line.strip_prefix("Usage: ") {
            parts.push(format!("usage: {hint}"));
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            parts.push(tip.to_owned());
        } else if !line.starts_with("For more information") {
            parts.push(line.strip_prefix("error: ").unwrap_or(line).to_owned());
        }
    }
    // "the following arguments were not provided:" and a list in lines of its own belong together.
    Failure::Usage(parts.join("; ").replace(":; ", ": "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::CommandLine;
    use clap::Parser;

    fn complaint(words: &[&str]) -> String {
        let error = CommandLine::try_parse_from(words).unwrap_err();
        match usage(&error) {
            Failure::Usage(message) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn complaints_are_one_line_that_helps() {
        for (words, says) in [
            (vec!["commonhold", "craete"], "create"),
            (vec!["commonhold", "create"], "<NAME>"),
            (vec!["commonhold", "create", "/x", "--size", "1X"], "1GiB"),
            (vec!["commonhold", "create", "/x"], "--size"),
            (vec!["commonhold", "rm"], "usage: commonhold rm"),
        ] {
            let message = complaint(&words);
            assert!(message.contains(says), "{words:?}: {message}");
            assert!(!message.contains('\n'), "{message}");
            assert!(!message.contains("error:"), "{message}");
        }
    }
}
