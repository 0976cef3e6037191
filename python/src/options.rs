//! Words and numbers that Python programs write, as the options they mean.

use crate::errors::exception;
use commonhold::{
    Access, Coherence, CreateOptions, Error, Inherit, MapFlags, OnLastDeath, OnLoss, Protection, Result,
    Sharing, SyncMode, Translation,
};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

/// A number of bytes, pages or bits. What is negative or too large is refused as any other wrong argument is, and not
/// as an arithmetic overflow.
pub(crate) fn natural<T: TryFrom<u64>>(value: &Bound<'_, PyAny>) -> PyResult<T> {
    let py = value.py();
    let number = match value.extract::<u64>() {
        Err(error) if !error.is_instance_of::<PyOverflowError>(py) => return Err(error),
        number => number.ok().and_then(|number| T::try_from(number).ok()),
    };
    number.ok_or_else(|| {
        let bits = 8 * size_of::<T>();
        exception(
            py,
            &Error::invalid(format!("{value} is out of range: give a number from 0 to 2**{bits} - 1")),
        )
    })
}

/// A name, as text or as a path of `pathlib`.
pub(crate) fn name(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.py().import("os")?.call_method1("fspath", (value,))?.extract()
}

/// A number as `natural` takes it, or none.
pub(crate) fn natural_or_none<T: TryFrom<u64>>(value: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    if value.is_none() { Ok(None) } else { natural(value).map(Some) }
}

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

/// Reads how an address reaches a page.
pub(crate) fn translation(word: &str) -> Result<Translation> {
    Translation::of_word(word).ok_or_else(|| {
        let all = Translation::ALL.map(|one| format!("{:?}", one.word()));
        Error::invalid(format!("translation {word:?} is none of {}", all.join(", ")))
    })
}

/// Reads what becomes of unsynced pages after a killed last mapper.
pub(crate) fn on_last_death(word: &str) -> Result<OnLastDeath> {
    match word {
        "keep" => Ok(OnLastDeath::Keep),
        "revert" => Ok(OnLastDeath::Revert),
        _ => Err(Error::invalid(format!("on_last_death {word:?} is neither \"keep\" nor \"revert\""))),
    }
}

/// Sets who sees a write, and what serves a page that was lost with a host; after what else the object is to be.
pub(crate) fn shared(
    options: CreateOptions,
    word: &str,
    on_loss: &str,
    scheduler: Option<&str>,
) -> Result<CreateOptions> {
    let on_loss = match on_loss {
        "error" => OnLoss::Error,
        "revert" => OnLoss::Revert,
        _ => return Err(Error::invalid(format!("on_loss {on_loss:?} is neither \"error\" nor \"revert\""))),
    };
    let coherence = match (word, scheduler) {
        ("local", _) => Coherence::Local,
        ("explicit", _) => Coherence::Explicit,
        ("strict", None) => return Ok(options.strict(on_loss)),
        ("strict", Some("central")) => Coherence::central(on_loss),
        ("strict", Some("forwarding")) => Coherence::strict(on_loss),
        ("strict", Some(other)) => {
            return Err(Error::invalid(format!(
                "scheduler {other:?} is neither \"central\" nor \"forwarding\""
            )));
        }
        _ => {
            return Err(Error::invalid(format!(
                "coherence {word:?} is none of \"local\", \"strict\", \"explicit\""
            )));
        }
    };
    Ok(CreateOptions { coherence, ..options })
}

/// Reads what a fork child has of a mapping.
pub(crate) fn inherit(word: &str) -> Result<Inherit> {
    match word {
        "share" => Ok(Inherit::Share),
        "copy" => Ok(Inherit::Copy),
        "none" => Ok(Inherit::None),
        _ => Err(Error::invalid(format!("inherit {word:?} is none of \"share\", \"copy\" and \"none\""))),
    }
}

/// Wishes for a mapping.
pub(crate) fn flags(lock: bool, prefetch: bool, in_thread: bool) -> MapFlags {
    MapFlags { lock, prefetch, in_thread, ..MapFlags::default() }
}
