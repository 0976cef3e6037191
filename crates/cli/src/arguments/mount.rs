//! Arguments of the commands that show objects as files.

use super::Form;
use clap::Args;
use std::path::PathBuf;

/// `mount`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    commonhold mount /mnt/objects\n  \
    cp results.bin /mnt/objects/lab/ && ls -l /mnt/objects/lab")]
pub struct Mount {
    /// Where: a directory that exists
    pub directory: PathBuf,
    /// How to answer
    #[command(flatten)]
    pub form: Form,
}

/// `umount`.
#[derive(Debug, Args)]
pub struct Unmount {
    /// Where
    pub directory: PathBuf,
    /// Also while it is in use: for those who use it, it ends when they let go of it
    #[arg(long)]
    pub lazy: bool,
    /// End what waits for it first, for a server that does not answer: calls fail at once
    #[arg(long)]
    pub abort: bool,
    /// How to answer
    #[command(flatten)]
    pub form: Form,
}

/// `serve-mount`.
#[derive(Debug, Args)]
pub struct ServeMount {
    /// Where its log lies
    #[arg(long)]
    pub state: PathBuf,
    /// Inherited descriptor of the socket to the keeper
    #[arg(long)]
    pub keeper_fd: i32,
    /// Where to mount
    #[arg(long)]
    pub at: PathBuf,
    /// State directory of the host
    #[arg(long)]
    pub of: PathBuf,
}
