//! The command line: one definition, from which help, completions and the man pages are made too.

pub mod audit;
pub mod ca;
pub mod entry;
pub mod faults;
pub mod heap;
pub mod host;
pub mod image;
pub mod mount;
pub mod objects;
pub mod place;
pub mod rebase;
pub mod seeing;
pub mod unmodified;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Named memory that programs share and change durably.
///
/// A memory object is a named run of bytes that any number of programs map into their memory. Its name is a path
/// such as /lab/weights, in a name space of the host's own. Commands find their host through --host or
/// COMMONHOLD_HOST, else they use the one that root started, else the user's own, which is started when needed.
/// Sizes are written as 4096, 4k, 512M, 1GiB (1024s) or 10MB (1000s).
#[derive(Debug, Parser)]
#[command(name = "commonhold", version, propagate_version = true, max_term_width = 100)]
#[command(disable_help_subcommand = true)]
#[command(
    after_help = "Exit status: 0 success; 1 failure, with a line on standard error for each thing that went wrong;\n\
    2 a command line that was not understood; 141 nobody read the answer (as `commonhold cat /x | head`)."
)]
pub struct CommandLine {
    /// State directory of the host to speak with; it is never started then
    #[arg(long, value_name = "DIR", global = true, help_heading = "Global options")]
    pub host: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an object
    Create(objects::Create),
    /// Keep an object as it is now under another name
    Snapshot(objects::Snapshot),
    /// Change the size of an object
    Resize(objects::Resize),
    /// Say what is in pages of an object, for hosts of other machine types
    Tag(objects::Tag),
    /// List the objects and directories of a directory
    Ls(objects::List),
    /// Tell all there is to know of objects or directories
    Stat(objects::Names),
    /// Write the bytes of an object to standard output
    Cat(objects::Cat),
    /// Copy bytes into an object, out of one, or from one to another
    Cp(objects::Copy),
    /// Remove objects; never a backing file
    Rm(objects::Remove),
    /// Give an object or a directory another name
    Mv(objects::Rename),
    /// Change the mode bits of objects or directories
    Chmod(objects::SetMode),
    /// Change the owner or group of objects or directories
    Chown(objects::SetOwner),
    /// Tell who maps an object, where, and how
    MapInfo(objects::OneName),
    /// Make what is stored equal to what is in memory
    Sync(objects::Sync),
    /// Drop what was not synced
    Revert(objects::OneName),
    /// Tell which pages of an object are in memory, and which are newer than what is stored
    Incore(objects::Incore),
    /// Wait until somebody notifies of bytes of an object
    Wait(objects::Wait),
    /// Wake all who wait for bytes of an object
    Notify(objects::Notify),
    /// Look into a heap
    #[command(subcommand)]
    Heap(heap::HeapCommand),
    /// Start, stop, replace or look at the host
    #[command(subcommand)]
    Host(host::HostCommand),
    /// List the hosts of the cluster
    Hosts(Form),
    /// Tell what was counted of objects: faults, messages, bytes, and their hottest pages
    Stats(seeing::Stats),
    /// Print the faults and messages of an object as they come
    Trace(seeing::Trace),
    /// Show what happens to objects now, and who owns their hot pages
    Top(seeing::Top),
    /// Make and give out the certificates by which the hosts of a cluster know each other
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// Tell how much the programs of this machine share, what they have twice, and how to save most
    Audit(Box<audit::Audit>),
    /// Make programs start faster, with relocated libraries that they share
    #[command(subcommand)]
    Rebase(rebase::RebaseCommand),
    /// Keep images: code and data at addresses that are the same in every process
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// Show objects as files, for programs that know nothing of Commonhold
    Mount(mount::Mount),
    /// End a mount
    Umount(mount::Unmount),
    /// Run a program that knows nothing of Commonhold, with what it shares in objects
    Run(unmodified::Run),
    /// List the System V segments that are objects
    Ipcs(unmodified::Segments),
    /// Remove System V segments that are objects
    Ipcrm(unmodified::RemoveSegments),
    /// Run a program and tell how many page faults each of its mappings had; fails if wired memory had any
    Faults(faults::Faults),
    /// Tell the state of the host, as `host status` does
    Status(Form),
    /// Check whether this machine has all that Commonhold needs, and how to get what it lacks
    Doctor(Form),
    /// Write a completion script for a shell to standard output
    #[command(after_help = "For example: commonhold completions bash > \
                            /usr/share/bash-completion/completions/commonhold")]
    Completions(Completions),
    /// Tell how to use the program, or a command of it
    Help(Help),
    /// Tell the version of the program
    Version,
    /// Write the man page to standard output, or all man pages into a directory
    Man(Man),
    /// The host process; started by its keeper alone
    #[command(hide = true)]
    Serve(Box<entry::Serve>),
    /// The server of a mount; started by its keeper alone
    #[command(hide = true)]
    ServeMount(mount::ServeMount),
    /// The keeper process; started by `host start` and by clients alone
    #[command(hide = true)]
    Keeper(entry::Keeper),
    /// Tell whether this program can go on with a state directory; asked by `host upgrade` of the new program
    #[command(hide = true)]
    CheckState(entry::CheckState),
}

/// How to say what came of a command.
#[derive(Clone, Copy, Debug, Args)]
pub struct Form {
    /// Answer with one JSON document, for programs
    #[arg(long)]
    pub json: bool,
}

/// `help`.
#[derive(Debug, Args)]
pub struct Help {
    /// The command, such as `host start`
    pub of: Vec<String>,
}

/// `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Write commonhold.1 and a page for each command there; the directory is made if need be
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
