//! Arguments of the commands that show objects as files.

use super::Form;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `mount`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    commonhold mount /mnt/objects\n  \
    cp results.bin /mnt/objects/lab/ && ls -l /mnt/objects/lab")]
pub struct Mount {
    /// Where: a directory that exists
    pub directory: PathBuf,
    /// What a new file is
    #[arg(long, value_name = "KIND", value_enum, default_value_t = NewFiles::Direct)]
    pub new_files: NewFiles,
    /// How to answer
    #[command(flatten)]
    pub form: Form,
}

/// `--new-files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NewFiles {
    /// Memory that programs map by themselves, of this host
    Direct,
    /// Of this host, which serves its faults: read and written by calls
    Controlled,
    /// Of all hosts of the cluster, who see what was written after msync or fsync
    Explicit,
    /// Of all hosts of the cluster, who see at once what was written: read and written by calls
    Strict,
}

impl From<NewFiles> for commonhold_mount::NewFiles {
    fn from(kind: NewFiles) -> Self {
        match kind {
            NewFiles::Direct => commonhold_mount::NewFiles::Direct,
            NewFiles::Controlled => commonhold_mount::NewFiles::Controlled,
            NewFiles::Explicit => commonhold_mount::NewFiles::Explicit,
            NewFiles::Strict => commonhold_mount::NewFiles::Strict,
        }
    }
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
    /// What a new file is
    #[arg(long, value_enum)]
    pub new_files: NewFiles,
}
