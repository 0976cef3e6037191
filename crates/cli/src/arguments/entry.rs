//! Arguments of the two hidden commands under which host and keeper run. Both are written by the crate `keeper`, not
//! by people.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Limits of a host; `None` leaves one to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Limits {
    /// Most memory for the pages of all controlled objects, bytes
    #[arg(long)]
    pub budget: Option<u64>,
    /// Most memory and spill space of one user, bytes
    #[arg(long)]
    pub quota: Option<u64>,
    /// Most objects of one user
    #[arg(long)]
    pub max_objects: Option<u64>,
    /// Most clients at once
    #[arg(long)]
    pub max_clients: Option<u64>,
}

impl Limits {
    /// The words of a command line that say the same.
    pub fn words(&self) -> Vec<OsString> {
        let pairs = [
            ("--budget", self.budget),
            ("--quota", self.quota),
            ("--max-objects", self.max_objects),
            ("--max-clients", self.max_clients),
        ];
        let given = pairs.into_iter().filter_map(|(word, value)| Some((word, value?)));
        given.flat_map(|(word, value)| [word.into(), value.to_string().into()]).collect()
    }
}

/// `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// State directory
    #[arg(long)]
    pub state: PathBuf,
    /// Inherited descriptor of the socket to the keeper
    #[arg(long)]
    pub keeper_fd: i32,
    /// Limits.
    #[command(flatten)]
    pub limits: Limits,
}

/// `keeper`.
#[derive(Debug, Args)]
pub struct Keeper {
    /// State directory
    #[arg(long)]
    pub state: PathBuf,
    /// Process of the host that started this keeper
    #[arg(long, requires = "keeper_fd")]
    pub host_pid: Option<u32>,
    /// Inherited descriptor of the socket to that host
    #[arg(long, requires = "host_pid")]
    pub keeper_fd: Option<i32>,
    /// Inherited descriptor of the state directory's lock
    #[arg(long)]
    pub lock_fd: i32,
    /// Further words for the command lines of hosts
    #[arg(last = true)]
    pub host_arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Command, CommandLine};
    use clap::Parser;

    #[test]
    fn limits_survive_the_way_through_the_keeper_to_the_host() {
        let limits = Limits { budget: Some(1 << 30), max_clients: Some(7), ..Default::default() };
        let words = ["commonhold", "keeper", "--state", "/x", "--lock-fd", "3", "--"].map(OsString::from);
        let line = CommandLine::try_parse_from(words.into_iter().chain(limits.words())).unwrap();
        let Command::Keeper(keeper) = line.command else { panic!("not keeper") };
        assert_eq!(keeper.lock_fd, 3);
        let words = ["commonhold", "serve", "--state", "/x", "--keeper-fd", "4"].map(OsString::from);
        let line = CommandLine::try_parse_from(words.into_iter().chain(keeper.host_arguments)).unwrap();
        let Command::Serve(serve) = line.command else { panic!("not serve") };
        assert_eq!((serve.keeper_fd, serve.limits), (4, limits));
    }
}
