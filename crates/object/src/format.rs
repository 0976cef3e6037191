//! How a file or memory begins that outlives the process which made it: seven bytes that say what it is, and one that says in
//! which version. `docs/FORMATS.md` has all of them.

use crate::{Error, ErrorKind, Result};
use std::fmt::Display;

/// The beginning of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// What it is.
    pub magic: [u8; 7],
    /// The version that is written here, and the only one that is read.
    pub version: u8,
}

impl Format {
    /// So many bytes the beginning has.
    pub const BYTES: usize = 8;

    /// The first bytes.
    pub const fn begin(self) -> [u8; Self::BYTES] {
        let [a, b, c, d, e, f, g] = self.magic;
        [a, b, c, d, e, f, g, self.version]
    }

    /// What follows the beginning; none: it is something else, or cut short. An error: it is of another version. `what` it is
    /// is said then, and the way out.
    pub fn body<'a>(self, bytes: &'a [u8], what: impl Display, way_out: &str) -> Result<Option<&'a [u8]>> {
        let Some((version, body)) = bytes.strip_prefix(&self.magic).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        if *version == self.version {
            return Ok(Some(body));
        }
        Err(other_version(what, u64::from(*version), u64::from(self.version), way_out))
    }
}

/// Says that something was written in a version that is not known here. Whoever says it has changed nothing.
pub fn other_version(what: impl Display, found: u64, known: u64, way_out: &str) -> Error {
    let age = if found > known { "a later" } else { "an earlier" };
    let text = format!(
        "{what} was written by {age} version of Commonhold (format {found}; this one knows {known}): {way_out}; nothing \
         was changed"
    );
    Error::new(ErrorKind::Version, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { magic: *b"Example", version: 2 };

    #[test]
    fn a_beginning_is_this_version_another_or_something_else() {
        let body =
            |bytes: &[u8]| FORMAT.body(bytes, "a file", "go back").map(|body| body.map(<[u8]>::to_vec));
        let whole = [&FORMAT.begin()[..], b"rest"].concat();
        assert_eq!(body(&whole).unwrap().unwrap(), b"rest");
        assert_eq!(body(&whole[..8]).unwrap().unwrap(), b"");
        for other in [&whole[..7], b"", b"something else"] {
            assert_eq!(body(other).unwrap(), None);
        }
        for (version, age) in [(1, "an earlier"), (3, "a later"), (0, "an earlier")] {
            let mut other = whole.clone();
            other[7] = version;
            let why = body(&other).unwrap_err();
            assert!(why.kind == ErrorKind::Version && why.message.contains(age), "{why}");
            assert!(why.message.contains("go back; nothing was changed"), "{why}");
        }
    }
}
