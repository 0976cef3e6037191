//! Why a row has no value: it cannot run here, or it went wrong.

use std::fmt;

/// Why there is no value.
#[derive(Debug)]
pub enum Failure {
    /// This machine lacks something; said in words.
    Skipped(String),
    /// Something that should have worked did not.
    Failed(String),
}

/// What everything here returns.
pub type Result<T> = std::result::Result<T, Failure>;

/// A failure that says `what`.
pub fn failed<T>(what: impl fmt::Display) -> Result<T> {
    Err(Failure::Failed(what.to_string()))
}

/// A reason not to run that says `why`.
pub fn skipped<T>(why: impl fmt::Display) -> Result<T> {
    Err(Failure::Skipped(why.to_string()))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Skipped(why) => f.write_str(why),
            Failure::Failed(what) => write!(f, "failed: {what}"),
        }
    }
}

// `Failure` is no `Error` itself, so that every other error turns into one.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Failed(error.to_string())
    }
}

/// Says what was being done when an error came.
pub trait Doing<T> {
    /// Turns the error into a [`Failure`] that begins with `what`.
    fn doing(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: std::error::Error> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::Failed(format!("{what}: {error}")))
    }
}
