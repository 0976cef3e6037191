//! How images and their versions are named: `words@1.2.3`, and by its beginnings `words@1.2`, `words@1`, `words`.

use core::fmt;

/// Names have 1 to 63 bytes: letters, digits, `.`, `_`, `+` and `-`, the first a letter or digit.
pub const MOST_NAME_BYTES: usize = 63;

/// Whether an image can be called so.
#[inline(always)]
pub fn is_name(name: &str) -> bool {
    let mut is_name = !name.is_empty() && name.len() <= MOST_NAME_BYTES;
    for (at, byte) in name.bytes().enumerate() {
        is_name &= byte.is_ascii_alphanumeric() || at > 0 && matches!(byte, b'.' | b'_' | b'+' | b'-');
    }
    is_name
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
#[inline]
fn number(text: &str) -> Option<u32> {
    if text.is_empty() || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.bytes().try_fold(0_u32, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
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
    #[inline]
    pub fn parse(text: &'a str) -> Option<Wanted<'a>> {
        let until = |text: &str, end: u8| text.bytes().position(|byte| byte == end);
        let at = until(text, b'@');
        let mut wanted = Wanted { name: &text[..at.unwrap_or(text.len())], given: 0, numbers: [0; 3] };
        let mut rest = at.map(|at| &text[at + 1..]);
        while let Some(numbers) = rest {
            let dot = until(numbers, b'.');
            *wanted.numbers.get_mut(wanted.given)? = number(&numbers[..dot.unwrap_or(numbers.len())])?;
            wanted.given += 1;
            rest = dot.map(|dot| &numbers[dot + 1..]);
        }
        is_name(wanted.name).then_some(wanted)
    }

    /// This very version.
    pub fn exactly(name: &'a str, version: Version) -> Wanted<'a> {
        Wanted { name, given: 3, numbers: [version.major, version.minor, version.patch] }
    }

    /// Whether this version will do.
    #[inline(always)]
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn what_is_asked_for_is_a_name_and_up_to_three_plain_numbers() {
        for text in ["words", "words@0", "words@1.20", "words@1.0.4294967295", "a.b_c+d-e@7"] {
            assert_eq!(Wanted::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "@1",
            "words@",
            "words@1.",
            "words@.1",
            "words@1..2",
            "words@01",
            "words@+1",
            "words@-1",
            "words@1 ",
            "words@4294967296",
            "words@99999999999999999999",
            "words@1.2.3.4",
            "words@1@2",
            "words@1.x",
            "wörds@1",
        ] {
            assert_eq!(Wanted::parse(text), None, "{text:?}");
        }
    }
}
