//! Lines about tags, and about numbers as a machine of some type has them.

use super::{Agent, Done, number, wrong};
use crate::{PAGE, typed};
use commonhold::tags::{Machine, Tag};

impl Agent {
    pub(super) fn on_types(&mut self, words: &[&str]) -> Done {
        match words {
            ["tag", object, offset, length, tag @ ..] => {
                let (offset, length) = (number(offset)?, number(length)?);
                self.object(object)?.tag(offset, length, &tag.join(" "))?;
                Ok(String::new())
            }
            ["tag-name", name, offset, length, tag @ ..] => {
                self.host()?.tag(name, number(offset)?, number(length)?, &tag.join(" "))?;
                Ok(String::new())
            }
            ["tags", object] => Ok(self.object(object)?.tags()?.to_string().trim_end().replace('\n', "; ")),
            ["numbers", what @ ("fill" | "check"), mapping, first, count, seed, machine, tag @ ..] => {
                let (first, count) = (number(first)? as usize, number(count)? as usize);
                let machine = Machine::of_word(machine).ok_or_else(|| wrong("what machine?"))?;
                let tag = Tag::of_text(&tag.join(" ")).ok_or_else(|| wrong("what tag?"))?;
                // Numbers begin with the first of the pages, so that each type has its own.
                let bytes = typed::pages(&tag, machine, 0, count, number(seed)?);
                let begin = self.mapping(mapping)?.as_ptr().wrapping_add(first * PAGE);
                if *what == "fill" {
                    // SAFETY: the test names pages that are mapped for writing.
                    unsafe { begin.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    return Ok(String::new());
                }
                let mut found = vec![0; bytes.len()];
                // SAFETY: the test names pages that are mapped.
                unsafe { begin.copy_to_nonoverlapping(found.as_mut_ptr(), found.len()) };
                match (0..bytes.len()).find(|at| bytes[*at] != found[*at]) {
                    None => Ok(String::new()),
                    Some(at) => Err(wrong(format!(
                        "{tag} on {machine}, byte {at} of page {first}: {:02x?} instead of {:02x?}",
                        &found[at..(at + 16).min(found.len())],
                        &bytes[at..(at + 16).min(bytes.len())]
                    ))),
                }
            }
            _ => Err(wrong(format!("what is {words:?}?"))),
        }
    }
}
