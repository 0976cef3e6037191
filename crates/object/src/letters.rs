//! Letters in words of others that are not to reach whoever reads them.

/// Whether a letter is obeyed by terminals, begins a line, turns the direction of writing, or shows
/// nothing at all: names with such letters look like others.
pub fn misleads(letter: char) -> bool {
    let marks = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    letter.is_control() || marks
}
