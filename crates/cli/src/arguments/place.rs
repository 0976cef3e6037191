//! Where `cp` copies from and to.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

/// A file, an object, or standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file, by its path.
    File(PathBuf),
    /// An object, by its name; written with a colon before it. A file whose path begins with a colon is `./:x`.
    Object(String),
    /// Written `-`. A file of that name is `./-`.
    Stream,
}

impl FromStr for Place {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.strip_prefix(':') {
            Some(name) => Place::Object(name.to_owned()),
            None if text == "-" => Place::Stream,
            None => Place::File(text.into()),
        })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::File(path) => write!(f, "{}", path.display()),
            Place::Object(name) => write!(f, ":{name}"),
            Place::Stream => f.write_str("-"),
        }
    }
}
