//! `help`, `version`, `completions` and `man`: from the same definitions that the parser has.

use crate::arguments::{CommandLine, Completions, Help, Man};
use crate::failure::{Done, Failure};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use commonhold::Error;
use commonhold_object::error::Doing;
use std::io::Write;

/// Tells how to use a command: as `--help` after it.
pub fn help(arguments: &Help) -> Done {
    let words = ["commonhold"].into_iter().chain(arguments.of.iter().map(String::as_str)).chain(["--help"]);
    match CommandLine::try_parse_from(words) {
        Err(said) if said.kind() == ErrorKind::DisplayHelp => said.print().map_err(Failure::writing),
        _ => {
            let what = arguments.of.join(" ");
            Err(Error::invalid(format!("there is no command {what:?}: `commonhold help` lists them")).into())
        }
    }
}

/// Tells the version, as `--version` does.
pub fn version() -> Done {
    let text = CommandLine::command().render_version();
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(Failure::writing)
}

/// Writes a completion script.
pub fn completions(arguments: &Completions) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "commonhold", &mut script);
    std::io::stdout().lock().write_all(&script).map_err(Failure::writing)
}

/// Writes man pages.
pub fn man(arguments: &Man) -> Done {
    let command = CommandLine::command();
    match &arguments.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(Failure::writing)?;
            std::io::stdout().lock().write_all(&page).map_err(Failure::writing)
        }
        Some(directory) => {
            let what = || format!("cannot write man pages into {directory:?}");
            std::fs::create_dir_all(directory).doing(what())?;
            clap_mangen::generate_to(command, directory).doing(what())?;
            Ok(())
        }
    }
}
