//! What each command does.

mod audit;
mod ca;
mod change;
mod contents;
mod copy;
mod create;
mod documents;
mod faults;
mod heap;
mod host;
mod hosts;
mod image;
mod incore;
mod interrupts;
mod list;
mod mount;
mod rebase;
mod show;
mod stats;
pub mod top;
mod trace;
mod transfer;
mod unmodified;
mod watch;

pub use create::{make as make_object, options as object_options};

use crate::arguments::host::HostCommand;
use crate::arguments::{Command, CommandLine};
use crate::failure::Done;
use crate::place::HostPlace;

/// Runs the command.
pub fn run(line: CommandLine) -> Done {
    let place = HostPlace::new(line.host);
    match line.command {
        Command::Create(arguments) => create::create(&place.connect()?, arguments),
        Command::Snapshot(arguments) => contents::snapshot(&place.connect()?, &arguments),
        Command::Resize(arguments) => change::resize(&place.connect()?, &arguments),
        Command::Tag(arguments) => change::tag(&place.connect()?, &arguments),
        Command::Ls(arguments) => list::list(&place.connect()?, &arguments),
        Command::Stat(arguments) => show::stat(&place.connect()?, &arguments),
        Command::Cat(arguments) => contents::cat(&place.connect()?, &arguments),
        Command::Cp(arguments) => copy::copy(&place.connect()?, &arguments),
        Command::Rm(arguments) => change::remove(&place.connect()?, &arguments),
        Command::Mv(arguments) => change::rename(&place.connect()?, &arguments),
        Command::Chmod(arguments) => change::set_mode(&place.connect()?, &arguments),
        Command::Chown(arguments) => change::set_owner(&place.connect()?, &arguments),
        Command::MapInfo(arguments) => show::map_info(&place.connect()?, &arguments),
        Command::Sync(arguments) => contents::sync(&place.connect()?, &arguments),
        Command::Revert(arguments) => change::revert(&place.connect()?, &arguments),
        Command::Incore(arguments) => incore::incore(&place.connect()?, &arguments),
        Command::Wait(arguments) => watch::wait(&place.connect()?, &arguments),
        Command::Notify(arguments) => watch::notify(&place.connect()?, &arguments),
        Command::Heap(command) => heap::run(&place.connect()?, &command),
        Command::Host(command) => host::run(&place, command),
        Command::Stats(arguments) => stats::stats(&place.connect()?, &arguments),
        Command::Trace(arguments) => trace::trace(&place.connect()?, &arguments),
        Command::Top(arguments) => top::top(&place.connect()?, &arguments),
        Command::Hosts(form) => hosts::hosts(&place.connect()?, form.json),
        Command::Ca(command) => ca::run(&place, command),
        Command::Audit(arguments) => audit::audit(&arguments),
        Command::Rebase(command) => rebase::run(command),
        Command::Image(command) => image::run(command),
        Command::Run(arguments) => unmodified::run(&place, &arguments),
        Command::Ipcs(arguments) => unmodified::list(&place, &arguments),
        Command::Ipcrm(arguments) => unmodified::remove(&place, &arguments),
        Command::Faults(arguments) => faults::faults(&place, &arguments),
        Command::Mount(arguments) => mount::mount(&place, &arguments),
        Command::Umount(arguments) => mount::unmount(&arguments),
        Command::Status(form) => host::run(&place, HostCommand::Status(form)),
        Command::Help(arguments) => documents::help(&arguments),
        Command::Version => documents::version(),
        Command::Doctor(form) => crate::doctor::doctor(&place, form.json),
        Command::Completions(arguments) => documents::completions(&arguments),
        Command::Man(arguments) => documents::man(&arguments),
        Command::Serve(arguments) => Ok(crate::host_process::serve(*arguments)?),
        Command::CheckState(arguments) => Ok(commonhold_host::check_directory(&arguments.state)?),
        Command::ServeMount(arguments) => Ok(mount::serve(arguments)?),
        Command::Keeper(arguments) => Ok(crate::host_process::keeper(arguments)?),
    }
}
