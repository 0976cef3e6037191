//! How images and their versions are named: `words@1.2.3`, and by its beginnings `words@1.2`, `words@1`, `words`.

use core::fmt;

/// Names have 1 to 63 bytes: letters, digits, `.`, `_`, `+` and `-`, the first a letter or digit.
pub const MOST_NAME_BYTES: usize = 63;

/// Whether an image can be called so.
pub fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    name.len() <= MOST_NAME_BYTES
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(inner)
}

/// A version: who uses one can use all later ones of the same major number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// Another one breaks who uses it.
    pub major: u32,
    /// More, and nothing less.
    pub minor: u32,
    /// The same, better.
    pub patch: u32,
}

/// A number as it is written: no sign, no zero in front.
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

impl Version {
    /// From `1.2.3`.
    pub fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.split('.').map(number);
        let version = Version { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// An image that is asked for: the newest whose version begins so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many of the numbers that follow are given: 0 to 3.
    given: usize,
    numbers: [u32; 3],
}

impl<'a> Wanted<'a> {
    /// From `words`, `words@1`, `words@1.2` or `words@1.2.3`.
    pub fn parse(text: &'a str) -> Option<Wanted<'a>> {
        let (name, rest) = match text.split_once('@') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let mut wanted = Wanted { name, given: 0, numbers: [0; 3] };
        for part in rest.into_iter().flat_map(|rest| rest.split('.')) {
            *wanted.numbers.get_mut(wanted.given)? = number(part)?;
            wanted.given += 1;
        }
        is_name(name).then_some(wanted)
    }

    /// This very version.
    pub fn exactly(name: &'a str, version: Version) -> Wanted<'a> {
        Wanted { name, given: 3, numbers: [version.major, version.minor, version.patch] }
    }

    /// Whether this version will do.
    pub fn accepts(&self, version: Version) -> bool {
        let numbers = [version.major, version.minor, version.patch];
        numbers[..self.given] == self.numbers[..self.given]
    }

    /// The version, if all three numbers are given.
    pub fn exact(&self) -> Option<Version> {
        let [major, minor, patch] = self.numbers;
        (self.given == 3).then_some(Version { major, minor, patch })
    }

    /// Whether the first number is given, and no other.
    pub fn is_major(&self) -> bool {
        self.given == 1
    }

    /// The first number, if it is given.
    pub fn major(&self) -> Option<u32> {
        (self.given > 0).then_some(self.numbers[0])
    }
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.name)?;
        for (place, number) in self.numbers[..self.given].iter().enumerate() {
            write!(to, "{}{number}", if place == 0 { '@' } else { '.' })?;
        }
        Ok(())
    }
}
