//! Names of objects: absolute paths in the host's own name space, not in the file system.

use crate::{Error, Result, limits};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A checked name such as `/lab/weights`: absolute, with no empty, `.` or `..` part and no NUL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Checks `text` and makes it a name of an object. `/` alone is only a directory: see [`Name::directory`].
    pub fn new(text: &str) -> Result<Name> {
        let name = Name::directory(text)?;
        if name.0 == "/" {
            return Err(Error::invalid(
                "`/` is the root directory: an object needs a name below it, as /lab/weights",
            ));
        }
        Ok(name)
    }

    /// Checks `text` as the name of a directory: like an object's, but `/` is one, and a slash may end it.
    pub fn directory(text: &str) -> Result<Name> {
        if !text.starts_with('/') {
            return Err(Error::invalid(format!("name {text:?} must start with a slash, as /lab/weights")));
        }
        if text.len() > limits::NAME_BYTES {
            return Err(Error::invalid(format!(
                "name of {} bytes is too long: the limit is {}",
                text.len(),
                limits::NAME_BYTES
            )));
        }
        if text == "/" {
            return Ok(Name(text.to_owned()));
        }
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        for part in trimmed[1..].split('/') {
            Self::check_part(text, part)?;
        }
        Ok(Name(trimmed.to_owned()))
    }

    fn check_part(text: &str, part: &str) -> Result<()> {
        if part.is_empty() {
            return Err(Error::invalid(format!("name {text:?} has an empty part between two slashes")));
        }
        if part == "." || part == ".." {
            return Err(Error::invalid(format!(
                "name {text:?} has a `{part}` part: names are never relative"
            )));
        }
        if part.len() > limits::NAME_PART_BYTES {
            return Err(Error::invalid(format!(
                "a part of {} bytes in a name is too long: the limit is {}",
                part.len(),
                limits::NAME_PART_BYTES
            )));
        }
        if part.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err(Error::invalid(format!("name {text:?} has a NUL or another control character")));
        }
        Ok(())
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory it lies in; the root for the root.
    pub fn parent(&self) -> Name {
        match self.0.rfind('/') {
            Some(0) | None => Name("/".to_owned()),
            Some(at) => Name(self.0[..at].to_owned()),
        }
    }

    /// The last part; empty for the root.
    pub fn last(&self) -> &str {
        &self.0[self.0.rfind('/').map_or(0, |at| at + 1)..]
    }

    /// Every directory above it, from the root down.
    pub fn ancestors(&self) -> Vec<Name> {
        let mut found = Vec::new();
        let mut at = self.clone();
        while at.0 != "/" {
            at = at.parent();
            found.push(at.clone());
        }
        found.reverse();
        found
    }
}

impl TryFrom<String> for Name {
    type Error = Error;
    fn try_from(text: String) -> Result<Name> {
        Name::directory(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names() {
        let name = Name::new("/lab/weights/2").unwrap();
        assert_eq!(name.parent().as_str(), "/lab/weights");
        assert_eq!(name.last(), "2");
        let above: Vec<String> = name.ancestors().into_iter().map(String::from).collect();
        assert_eq!(above, ["/", "/lab", "/lab/weights"]);
        assert_eq!(Name::directory("/lab/").unwrap().as_str(), "/lab");
        assert_eq!(Name::new("/a").unwrap().parent().as_str(), "/");
    }

    #[test]
    fn bad_names_say_what_is_wrong() {
        let long = format!("/{}", "x".repeat(256));
        let longer = "/x".repeat(600);
        for (text, says) in [
            ("lab", "start with a slash"),
            ("", "start with a slash"),
            ("/", "root directory"),
            ("/a//b", "empty part"),
            ("/a/../b", "`..` part"),
            ("/a/./b", "`.` part"),
            ("/a\0b", "NUL"),
            ("/a\nb", "control character"),
            (&long, "too long"),
            (&longer, "too long"),
        ] {
            let error = Name::new(text).unwrap_err();
            assert!(error.message.contains(says), "{text:?}: {error}");
        }
    }
}
