//! A dictionary with ordinary pointers: a tree of letters, built once as an image.

use commonhold::image::{Arena, Image, Options, Published, Result, Run, Store, layout};

layout! {
    /// A letter, and what may follow it.
    pub struct Letter<'a> {
        /// Behind it, by letter.
        pub next: Run<'a, Letter<'a>>,
        /// Which: a character of Unicode.
        pub letter: u32,
        /// Whether a word ends here.
        pub ends: bool,
    }
}

/// Publishes these words, which are sorted and each there once, under a name and version.
pub fn publish(store: &Store, name: &str, words: &[Vec<char>]) -> Result<Published> {
    let options = Options { store: Some(store.clone()), capacity: 1 << 32, ..Options::default() };
    let arena = Arena::with(name, options)?;
    arena.root_run("letters", &place(&arena, words, 0)?)?;
    arena.root("count", arena.place(words.len() as u64)?)?;
    arena.seal()
}

/// What follows the first `depth` letters, which these words have in common.
fn place<'a>(arena: &'a Arena, words: &[Vec<char>], depth: usize) -> Result<Run<'a, Letter<'a>>> {
    let mut letters = Vec::new();
    let longer = words.iter().position(|word| word.len() > depth).unwrap_or(words.len());
    for group in words[longer..].chunk_by(|one, other| one[depth] == other[depth]) {
        let (letter, ends) = (group[0][depth] as u32, group[0].len() == depth + 1);
        letters.push(Letter { next: place(arena, group, depth + 1)?, letter, ends });
    }
    arena.run(&letters)
}

/// The words of a text, one a line, sorted, each once.
pub fn words_of(text: &str) -> Vec<Vec<char>> {
    let mut words: Vec<Vec<char>> = text
        .lines()
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| word.chars().collect())
        .collect();
    words.sort();
    words.dedup();
    words
}

/// The dictionary in an image that this process has included.
pub struct Dictionary {
    letters: &'static [Letter<'static>],
    /// How many words there are.
    pub count: u64,
}

impl Dictionary {
    /// Nothing is read but the table of roots.
    pub fn of(image: Image) -> Result<Dictionary> {
        Ok(Dictionary { letters: image.run("letters")?, count: *image.root("count")? })
    }

    /// Whether the word is there.
    pub fn has(&self, word: &str) -> bool {
        let mut ends = false;
        let mut letters = self.letters;
        for character in word.chars() {
            let Ok(place) = letters.binary_search_by_key(&(character as u32), |letter| letter.letter) else {
                return false;
            };
            ends = letters[place].ends;
            letters = letters[place].next.as_slice();
        }
        ends
    }
}
