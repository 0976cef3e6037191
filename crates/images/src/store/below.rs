//! A path below a store's directory, put together where it is: looking an image up takes no memory, and brings in none of the code
//! that formats.

/// `names/` and `content/`, a name of 63 letters at most or the digits of a build ID, and a number.
const LONGEST: usize = 128;

/// Such a path.
pub struct Below {
    letters: [u8; LONGEST],
    length: usize,
    is_too_long: bool,
}

impl Below {
    pub fn new() -> Below {
        Below { letters: [0; LONGEST], length: 0, is_too_long: false }
    }

    /// Adds text.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn push(&mut self, text: &str) -> &mut Below {
        match self.letters.get_mut(self.length..self.length + text.len()) {
            Some(room) => {
                room.copy_from_slice(text.as_bytes());
                self.length += text.len();
            }
            None => self.is_too_long = true,
        }
        self
    }

    /// Adds a number in digits.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn push_number(&mut self, number: u32) -> &mut Below {
        let mut digits = [0; 10];
        let (mut rest, mut first) = (number, digits.len());
        while first == digits.len() || rest > 0 {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.push(std::str::from_utf8(&digits[first..]).unwrap_or_default())
    }

    /// The path; empty, which is nobody's, if it is too long.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn text(&self) -> &str {
        let length = if self.is_too_long { 0 } else { self.length };
        std::str::from_utf8(&self.letters[..length]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_image::is_name;

    #[test]
    fn names_and_numbers_are_put_together() {
        let name = "x".repeat(63);
        assert!(is_name(&name) && !is_name(&"x".repeat(64)));
        for number in [0, 7, 10, u32::MAX] {
            let mut path = Below::new();
            path.push("names/").push(&name).push("/").push_number(number);
            assert_eq!(path.text(), format!("names/{name}/{number}"));
        }
        assert_eq!(Below::new().push("content/").push(&"x".repeat(121)).push("/").push_number(1).text(), "");
    }
}
