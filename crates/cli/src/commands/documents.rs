//! `completions` and `man`: from the same definitions that the parser has.

use crate::arguments::{CommandLine, Completions, Man};
use crate::failure::{Done, Failure};
use clap::CommandFactory;
use commonhold_object::error::Doing;
use std::io::Write;

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
