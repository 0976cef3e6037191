//! `incore`: counts and a compact map of the states of pages.

use super::contents::resolve;
use crate::arguments::objects::Incore;
use crate::failure::Done;
use crate::output::{self, answer};
use crate::units::format_size;
use commonhold::{Access, Host, Object, PAGE_SIZE_BYTES, PageState, Result};
use commonhold_object::{PageRange, limits};
use serde::Serialize;

/// Characters in a line of the map.
const LINE_CELLS: u64 = 64;
/// Most characters in the map; where there are more pages, a character stands for several.
const MAP_CELLS: u64 = 16 * LINE_CELLS;

/// What is said of an object's pages.
#[derive(Debug, Default, Serialize)]
struct Census {
    name: String,
    first_page: u64,
    pages: u64,
    invalid: u64,
    absent: u64,
    clean: u64,
    dirty: u64,
    lost: u64,
    locked: u64,
    runs: Vec<Run>,
}

/// Neighbouring pages in one state.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Run {
    first_page: u64,
    pages: u64,
    state: &'static str,
    locked: bool,
}

/// Tells which pages are in memory, and how they are.
pub fn incore(host: &Host, arguments: &Incore) -> Done {
    let object = host.open(&arguments.name, Access::Read)?;
    let (offset, length) = resolve(arguments.part, object.size_bytes())?;
    let range = PageRange::covering(offset, length, object.size_bytes())?;
    let mut census = Census {
        name: arguments.name.clone(),
        first_page: range.first,
        pages: range.count,
        ..Default::default()
    };
    let mut map = Map::new(range.count);
    count(&object, range, |state, locked| {
        census.add(state, locked);
        map.add(state, locked);
    })?;
    answer(arguments.form.json, &census, |census| {
        format!("{}\n{}", census.for_people(), map.for_people(range.first))
    })
}

fn count(object: &Object, range: PageRange, mut each: impl FnMut(PageState, bool)) -> Result<()> {
    let size_bytes = object.size_bytes();
    let mut first = range.first;
    while first < range.end() {
        let part = PageRange::new(first, limits::INCORE_PAGES.min(range.end() - first));
        let length = part.length_bytes().min(size_bytes - part.offset_bytes());
        let states = object.incore(part.offset_bytes(), length)?;
        states.into_iter().for_each(|(state, locked)| each(state, locked));
        first = part.end();
    }
    Ok(())
}

fn word(state: PageState) -> &'static str {
    match state {
        PageState::Invalid => "invalid",
        PageState::Absent => "absent",
        PageState::Clean => "clean",
        PageState::Dirty => "dirty",
        PageState::Lost => "lost",
    }
}

impl Census {
    fn add(&mut self, state: PageState, locked: bool) {
        match state {
            PageState::Invalid => self.invalid += 1,
            PageState::Absent => self.absent += 1,
            PageState::Clean => self.clean += 1,
            PageState::Dirty => self.dirty += 1,
            PageState::Lost => self.lost += 1,
        }
        self.locked += u64::from(locked);
        let state = word(state);
        match self.runs.last_mut() {
            Some(run) if run.state == state && run.locked == locked => run.pages += 1,
            last => {
                let first_page = last.map_or(self.first_page, |run| run.first_page + run.pages);
                self.runs.push(Run { first_page, pages: 1, state, locked });
            }
        }
    }

    fn for_people(&self) -> String {
        let of =
            |pages: u64, word: &str| format!("{pages} {word} ({})", format_size(pages * PAGE_SIZE_BYTES));
        let mut text = format!(
            "{}: {}: {}, {}, {}",
            self.name,
            output::count(self.pages, "page"),
            of(self.absent, "absent"),
            of(self.clean, "clean"),
            of(self.dirty, "dirty")
        );
        if self.lost > 0 {
            text += &format!(", {}", of(self.lost, "lost with hosts"));
        }
        if self.invalid > 0 {
            text += &format!(", {} past the end", self.invalid);
        }
        text + &format!("; {} locked", self.locked)
    }
}

/// One character for each cell of pages: the most urgent state in it.
struct Map {
    cell_pages: u64,
    seen: u64,
    cells: Vec<(u8, bool)>,
}

impl Map {
    fn new(pages: u64) -> Self {
        Map { cell_pages: pages.div_ceil(MAP_CELLS).max(1), seen: 0, cells: Vec::new() }
    }

    fn add(&mut self, state: PageState, locked: bool) {
        if self.seen.is_multiple_of(self.cell_pages) {
            self.cells.push((0, false));
        }
        self.seen += 1;
        if let Some((urgency, cell_locked)) = self.cells.last_mut() {
            *urgency = state.encode(false).max(*urgency);
            *cell_locked |= locked;
        }
    }

    fn character((urgency, locked): (u8, bool)) -> char {
        let letter = match PageState::decode(urgency) {
            Some((PageState::Absent, _)) => '.',
            Some((PageState::Clean, _)) => 'c',
            Some((PageState::Dirty, _)) => 'd',
            Some((PageState::Lost, _)) => 'x',
            _ => ' ',
        };
        if locked && letter == '.' {
            'L'
        } else if locked {
            letter.to_ascii_uppercase()
        } else {
            letter
        }
    }

    fn for_people(&self, first_page: u64) -> String {
        let each = match self.cell_pages {
            1 => "each a page".to_owned(),
            pages => format!("each the most urgent of {pages} pages"),
        };
        let mut text = format!(". absent, c clean, d dirty, x lost, capitals locked; {each}");
        for (number, line) in self.cells.chunks(LINE_CELLS as usize).enumerate() {
            let page = first_page + number as u64 * LINE_CELLS * self.cell_pages;
            let line: String = line.iter().map(|cell| Self::character(*cell)).collect();
            text += &format!("\n{page:>10}  {line}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_and_run_together() {
        let mut census = Census { first_page: 10, pages: 4, ..Default::default() };
        for (state, locked) in [
            (PageState::Clean, false),
            (PageState::Clean, false),
            (PageState::Dirty, true),
            (PageState::Absent, false),
            (PageState::Lost, false),
        ] {
            census.add(state, locked);
        }
        assert_eq!((census.absent, census.clean, census.dirty, census.locked), (1, 2, 1, 1));
        assert_eq!(census.runs[3], Run { first_page: 14, pages: 1, state: "lost", locked: false });
        assert!(census.for_people().contains(", 1 lost with hosts (4.0 KiB)"));
        assert_eq!(census.runs[0], Run { first_page: 10, pages: 2, state: "clean", locked: false });
        assert_eq!(census.runs[2], Run { first_page: 13, pages: 1, state: "absent", locked: false });
        assert!(census.for_people().contains("2 clean (8.0 KiB)"));
    }

    #[test]
    fn a_large_object_has_a_map_of_bounded_size() {
        let pages = 100_000;
        let mut map = Map::new(pages);
        for page in 0..pages {
            map.add(if page == 50_000 { PageState::Dirty } else { PageState::Absent }, page == 50_000);
        }
        let text = map.for_people(0);
        assert!(map.cells.len() as u64 <= MAP_CELLS);
        assert_eq!(text.lines().skip(1).collect::<String>().matches('D').count(), 1);
        assert!(text.contains("98 pages"), "{text}");
    }

    #[test]
    fn a_small_object_has_a_character_a_page() {
        let mut map = Map::new(4);
        map.add(PageState::Clean, false);
        map.add(PageState::Dirty, true);
        map.add(PageState::Absent, false);
        map.add(PageState::Lost, false);
        assert!(map.for_people(7).ends_with("         7  cD.x"), "{}", map.for_people(7));
    }
}
