//! Where the host is that a command speaks with.

use commonhold::{Host, Result};
use std::path::{Path, PathBuf};

/// Which host is meant: the one of `--host`, or whichever the client's library finds.
pub struct HostPlace(Option<PathBuf>);

impl HostPlace {
    /// The state directory of `--host`, if it was given.
    pub fn new(named: Option<PathBuf>) -> HostPlace {
        HostPlace(named)
    }

    /// The state directory of `--host`, if it was given.
    pub fn named(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    /// Connects; starts the user's own host where none was named and none runs.
    pub fn connect(&self) -> Result<Host> {
        match &self.0 {
            Some(directory) => Host::connect_to(directory),
            None => Host::connect(),
        }
    }

    /// Whether one state directory is named, so that no other counts, and no host is started unasked.
    pub fn is_named(&self) -> bool {
        self.0.is_some() || std::env::var_os("COMMONHOLD_HOST").is_some_and(|value| !value.is_empty())
    }

    /// The state directories where a host may be running, the one that clients ask first, first.
    pub fn candidates(&self) -> Result<Vec<PathBuf>> {
        if let Some(directory) = &self.0 {
            return Ok(vec![directory.clone()]);
        }
        let own = commonhold::default_state_directory()?;
        let system = PathBuf::from(SYSTEM_STATE_DIRECTORY);
        if self.is_named() || own == system {
            return Ok(vec![own]);
        }
        Ok(vec![system, own])
    }

    /// The host that runs, if one does; never starts one. With the directory it was found in, or, if there is
    /// none, the directory where it would be and why it does not answer.
    pub fn running(&self) -> Result<(PathBuf, Result<Host>)> {
        let mut last = None;
        for directory in self.candidates()? {
            match Host::connect_to(&directory) {
                Ok(host) => return Ok((directory, Ok(host))),
                Err(error) => last = Some((directory, Err(error))),
            }
        }
        last.ok_or_else(|| {
            commonhold::Error::invalid("there is no state directory to look in: set COMMONHOLD_HOST")
        })
    }

    /// The directory for a host to be started in.
    pub fn to_start(&self, given: Option<PathBuf>) -> Result<PathBuf> {
        match given.or_else(|| self.0.clone()) {
            Some(directory) => Ok(directory),
            None => commonhold::default_state_directory(),
        }
    }
}

/// Where the host that root started keeps its state.
pub const SYSTEM_STATE_DIRECTORY: &str = "/var/lib/commonhold";
