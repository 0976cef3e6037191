//! `commonhold-bench`: every bar of the project and every published table, measured here beside its peer.

mod applications;
mod arguments;
mod audit;
mod backed;
mod bank;
mod cluster;
mod conclusions;
mod context;
mod counting;
mod crash;
mod durable;
mod failure;
mod faults;
mod fence;
mod group;
mod heaps;
mod host;
mod images;
#[cfg(feature = "faults")]
mod inject;
mod installed;
mod measure;
mod objects;
mod origin;
mod pager;
mod pages;
mod placement;
mod pointer_tree;
mod processes;
mod rebase;
mod row;
mod rows;
mod runner;
mod sprite;
mod storm;
mod striking;
mod tables;
mod tight;
mod transfer;
mod view;
mod worker;
mod workers;

use arguments::Command;
use failure::Result;
use std::process::ExitCode;

fn main() -> ExitCode {
    match arguments::parse(std::env::args().skip(1)).and_then(work) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("commonhold-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn work(command: Command) -> Result<bool> {
    match command {
        Command::List => {
            rows::all().iter().try_for_each(|row| worker::say(row.id()))?;
            Ok(true)
        }
        Command::Run(asked) => runner::run(&asked),
        Command::Tables(directory) => {
            tables::write(&directory, &tables::read(&directory)?)?;
            Ok(true)
        }
        Command::Worker { name, arguments } => {
            worker::die_with_parent();
            workers::run(&name, &arguments).map(|()| true)
        }
        Command::Help => {
            print!("{}", arguments::HELP);
            Ok(true)
        }
    }
}
