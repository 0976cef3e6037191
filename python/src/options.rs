//! Words that Python programs write, as the options they mean.

use commonhold::{Access, Error, MapFlags, OnLastDeath, Protection, Result, Sharing, SyncMode};

/// How an object is opened or mapped, in the words of NumPy's memmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `r`: reading alone.
    Read,
    /// `r+` or `rw`: reading and writing, shared.
    ReadWrite,
    /// `c`: copy-on-write; what is written stays in this process.
    Copy,
}

impl Mode {
    /// Reads the word.
    pub(crate) fn parse(word: &str) -> Result<Mode> {
        match word {
            "r" => Ok(Mode::Read),
            "r+" | "rw" => Ok(Mode::ReadWrite),
            "c" => Ok(Mode::Copy),
            _ => Err(Error::invalid(format!(
                "mode {word:?} is none of \"r\" (read), \"r+\" (read and write) and \"c\" (copy-on-write)"
            ))),
        }
    }

    /// The word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Mode::Read => "r",
            Mode::ReadWrite => "r+",
            Mode::Copy => "c",
        }
    }

    /// What an object must be opened for.
    pub(crate) fn access(self) -> Access {
        if self == Mode::ReadWrite { Access::ReadWrite } else { Access::Read }
    }

    /// What is asked of a mapping.
    pub(crate) fn protection(self) -> Protection {
        if self == Mode::Read { Protection::Read } else { Protection::ReadWrite }
    }

    /// Who sees its writes.
    pub(crate) fn sharing(self) -> Sharing {
        if self == Mode::Copy { Sharing::Private } else { Sharing::Shared }
    }

    /// The word for an open object.
    pub(crate) fn of(access: Access) -> Mode {
        if access.writes() { Mode::ReadWrite } else { Mode::Read }
    }
}

/// Reads what sync promises.
pub(crate) fn sync_mode(word: &str) -> Result<SyncMode> {
    match word {
        "plain" => Ok(SyncMode::Plain),
        "ordered" => Ok(SyncMode::Ordered),
        "atomic" => Ok(SyncMode::Atomic),
        _ => Err(Error::invalid(format!("sync {word:?} is none of \"plain\", \"ordered\" and \"atomic\""))),
    }
}

/// Reads what becomes of unsynced pages after a killed last mapper.
pub(crate) fn on_last_death(word: &str) -> Result<OnLastDeath> {
    match word {
        "keep" => Ok(OnLastDeath::Keep),
        "revert" => Ok(OnLastDeath::Revert),
        _ => Err(Error::invalid(format!("on_last_death {word:?} is neither \"keep\" nor \"revert\""))),
    }
}

/// Wishes for a mapping.
pub(crate) fn flags(lock: bool, prefetch: bool, in_thread: bool) -> MapFlags {
    MapFlags { lock, prefetch, in_thread, ..MapFlags::default() }
}
