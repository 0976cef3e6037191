//! Pages that come from another machine, translated where they lie.

use crate::machine::Machine;
use crate::map::{PAGE_BYTES, Tagged, Types};
use crate::translate::Translation;
use crate::vax::Losses;
use serde::{Deserialize, Serialize};

/// What was translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Translated {
    /// Pages whose bytes had to change their format.
    pub pages: u64,
    /// Numbers in them that have no counterpart.
    pub losses: Losses,
}

impl Translated {
    /// That of both.
    pub fn and(self, other: Translated) -> Translated {
        Translated { pages: self.pages + other.pages, losses: self.losses.and(other.losses) }
    }
}

impl Types {
    /// Translates the bytes of pages one behind the other, from that one on, in place. The last may be shorter.
    pub fn translate(&self, from: Machine, to: Machine, first: u64, bytes: &mut [u8]) -> Translated {
        let mut done = Translated::default();
        if from == to || self.is_empty() {
            return done;
        }
        for run in self.within(first, bytes.len().div_ceil(PAGE_BYTES) as u64) {
            let begin = (run.first - first) as usize * PAGE_BYTES;
            let end = (begin + run.count as usize * PAGE_BYTES).min(bytes.len());
            done = done.and(translate_run(&run, from, to, &mut bytes[begin..end]));
        }
        done
    }
}

fn translate_run(run: &Tagged<'_>, from: Machine, to: Machine, bytes: &mut [u8]) -> Translated {
    let mut done = Translated::default();
    let Some(translation) = Translation::between(run.tag, from, to) else { return done };
    // A page at a time by way of a copy, which stays in the nearest cache.
    let mut copy = [0; PAGE_BYTES];
    let mut begun = run.begun;
    for page in bytes.chunks_mut(PAGE_BYTES) {
        let source = &mut copy[..page.len()];
        source.copy_from_slice(page);
        done.losses = done.losses.and(translation.apply_inside(begun, source, page));
        done.pages += 1;
        begun = (begun + PAGE_BYTES) % run.tag.bytes();
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::Tag;

    fn tag(text: &str) -> Tag {
        Tag::of_text(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn only_pages_with_tags_are_translated_and_all_come_back() {
        let types = Types::default().tag(1, 1, &tag("int32"), Machine::LITTLE).unwrap();
        let types = types.tag(3, 1, &tag("float64"), Machine::LITTLE).unwrap();
        let mut bytes: Vec<u8> = (0..5 * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
        for (at, number) in (0..512).map(|n| (3 * PAGE_BYTES + n * 8, n as f64 - 7.5)) {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let before = bytes.clone();
        let done = types.translate(Machine::LITTLE, Machine::BIG, 0, &mut bytes);
        assert_eq!(done, Translated { pages: 2, losses: Losses::default() });
        for page in [0, 2, 4] {
            let page = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            assert_eq!(bytes[page.clone()], before[page]);
        }
        assert_eq!(
            bytes[PAGE_BYTES..][..4],
            [before[PAGE_BYTES + 3], before[PAGE_BYTES + 2], before[PAGE_BYTES + 1], before[PAGE_BYTES]]
        );
        assert_eq!(bytes[3 * PAGE_BYTES..][..8], (-7.5_f64).to_be_bytes());
        // Of a VAX the integers are as here.
        let done = types.translate(Machine::BIG, Machine::VAX, 0, &mut bytes);
        assert_eq!(done.pages, 2);
        assert_eq!(types.translate(Machine::VAX, Machine::LITTLE, 0, &mut bytes).pages, 1);
        assert_eq!(bytes, before);
        assert_eq!(types.translate(Machine::BIG, Machine::BIG, 0, &mut bytes), Translated::default());
    }

    #[test]
    fn records_over_the_ends_of_pages_are_translated_page_by_page_as_all_at_once() {
        for text in
            ["{24: 0 int32, 8 float64*2}", "{20: 0 int16*2, 4 float32*3, 16 int8}", "{4104: 8 int64*500}"]
        {
            let record = tag(text);
            let pages = record.bytes(); // of whole records
            let types = Types::default().tag(0, pages as u64, &record, Machine::LITTLE).unwrap();
            let source: Vec<u8> = (0..pages * PAGE_BYTES).map(|at| (at * 7 % 253) as u8).collect();
            let mut all = source.clone();
            Translation::between(&record, Machine::LITTLE, Machine::BIG)
                .unwrap()
                .apply(&source, &mut all)
                .unwrap();
            for step in [1, 3] {
                let mut parts = source.clone();
                let mut first = 0;
                for part in parts.chunks_mut(step * PAGE_BYTES) {
                    types.translate(Machine::LITTLE, Machine::BIG, first, part);
                    first += step as u64;
                }
                assert!(parts == all, "{text}, {step} pages at a time");
            }
        }
    }

    #[test]
    fn a_shorter_last_page_keeps_the_part_of_a_number_at_its_end() {
        let types = Types::default().tag(0, 1, &tag("int32"), Machine::LITTLE).unwrap();
        let mut bytes = [1, 2, 3, 4, 5, 6, 7];
        types.translate(Machine::LITTLE, Machine::BIG, 0, &mut bytes);
        assert_eq!(bytes, [4, 3, 2, 1, 5, 6, 7]);
    }

    #[test]
    fn what_has_no_counterpart_is_counted() {
        let types = Types::default().tag(0, 2, &tag("float32"), Machine::LITTLE).unwrap();
        let mut bytes = vec![0; 2 * PAGE_BYTES];
        for at in [0, PAGE_BYTES] {
            bytes[at..at + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
        }
        let done = types.translate(Machine::LITTLE, Machine::VAX, 0, &mut bytes);
        assert_eq!((done.pages, done.losses.overflows, done.losses.count()), (2, 2, 2));
    }
}
