//! Names of symbols as numbers: a set of programs asks for the same few thousand again and again.

use std::collections::HashMap;

/// A symbol's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(u32);

/// All names seen.
#[derive(Debug, Default)]
pub struct Names {
    numbers: HashMap<Box<[u8]>, Name>,
    texts: Vec<Box<[u8]>>,
}

impl Names {
    /// The number of a name; a version behind it (`open@GLIBC_2.2.5`) is no part of it.
    pub fn of(&mut self, text: &[u8]) -> Name {
        let text = text.split(|byte| *byte == b'@').next().unwrap_or(text);
        if let Some(name) = self.numbers.get(text) {
            return *name;
        }
        let name = Name(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.numbers.insert(text.into(), name);
        self.texts.push(text.into());
        name
    }

    /// What a number stands for.
    pub fn text(&self, name: Name) -> &[u8] {
        self.texts.get(name.0 as usize).map_or(&[], |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_one_number_whatever_its_version() {
        let mut names = Names::default();
        let open = names.of(b"open@GLIBC_2.2.5");
        assert_eq!(names.of(b"open"), open);
        assert_ne!(names.of(b"openat"), open);
        assert_eq!(names.text(open), b"open");
    }
}
