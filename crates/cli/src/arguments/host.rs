//! Arguments of `host`.

use super::Form;
use super::entry::{MachineType, Metrics, Place};
use crate::units::parse_size;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `host`.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Start a host: for everybody when root does it, else for this user
    Start(Box<Start>),
    /// End host and keeper; refused while there are clients or anonymous objects
    Stop(Stop),
    /// Replace the host process; clients keep all they have
    Restart(Restart),
    /// Replace host and keeper by another version of the program; clients keep all they have
    Upgrade(Upgrade),
    /// Tell how the host is
    Status(Form),
}

/// `host start`.
#[derive(Debug, Args)]
pub struct Start {
    /// Stay in the foreground until the host ends: for systemd and the like
    #[arg(long)]
    pub foreground: bool,
    /// Say nothing when all is well, and be content with a host that is running already
    #[arg(long)]
    pub quiet: bool,
    /// What else is said here is read from this file; unless given, from commonhold.toml in the state directory, or of the
    /// system's host /etc/commonhold/commonhold.toml, where it is there. The command line counts before it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// State directory; /var/lib/commonhold for root, else ~/.local/state/commonhold
    #[arg(long, value_name = "DIR", conflicts_with = "host")]
    pub state: Option<PathBuf>,
    /// Most memory for the pages of all controlled objects together; a quarter of memory unless given
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    pub budget: Option<u64>,
    /// Most memory and disk that the objects of one user may reserve; unless given, half of memory, and no limit for root
    /// and the host's own user
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    pub quota: Option<u64>,
    /// Most objects of one user; 16384 unless given, and 65536 for root and the host's own user
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_objects: Option<u64>,
    /// Most clients at once, 4096 unless given; one user gets at most half of them, but root and the host's own user
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_clients: Option<u64>,
    /// Take files of other users from such file systems too, such as nfs4, whose servers could make the host wait; several
    /// times for several. From local file systems they are always taken
    #[arg(long, value_name = "TYPE")]
    pub file_system: Vec<String>,
    /// What its bytes mean.
    #[command(flatten)]
    pub machine: MachineType,
    /// Its cluster.
    #[command(flatten)]
    pub place: Place,
    /// Its numbers.
    #[command(flatten)]
    pub metrics: Metrics,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `host stop`.
#[derive(Debug, Args)]
pub struct Stop {
    /// Even with clients, or anonymous objects, which are lost
    #[arg(long)]
    pub force: bool,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `host restart`.
#[derive(Debug, Args)]
pub struct Restart {
    /// Replace the keeper as well
    #[arg(long)]
    pub keeper: bool,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `host upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// The new program; this one unless given
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}
