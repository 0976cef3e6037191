//! Reads all of a heap, and says what is wrong with it. It changes nothing, and others may go on.

use crate::book::Chunk;
use crate::chunk::{Entry, Kind};
use crate::layout::{Layout, MAP_WORDS, PAGE};
use crate::names::{self, Tagged};
use crate::people::People;
use crate::refused::Problem;
use crate::remote;
use crate::words::Words;

/// How often to read again what is wrong: its owner may have been changing it.
const LOOKS: u32 = 20;

/// A block that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub at: u64,
    /// Its bytes, those that it was rounded up by included.
    pub bytes: u64,
    /// The number of its type.
    pub tag: u16,
}

/// What a heap holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong; nothing: it is whole.
    pub problems: Vec<Problem>,
    /// Blocks in use, and their bytes.
    pub blocks: u64,
    /// As above.
    pub bytes: u64,
    /// Pages that have a size and a type, and pages of headers.
    pub pages: u64,
    /// Chunks that are somebody's, of so many.
    pub chunks: u64,
    /// As above.
    pub chunks_in_all: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Arenas whose processes live, or of which nobody here can tell.
    pub arenas: u64,
    /// Arenas whose processes ended; the next who needs them mends them.
    pub ended: u64,
    /// Types, and roots with the values of their words.
    pub types: Vec<Tagged>,
    /// As above.
    pub roots: Vec<Tagged>,
}

/// Calls `each` with every block in use; gives what is wrong.
pub fn visit(m: &impl Words, layout: &Layout, mut each: impl FnMut(Block)) -> Vec<Problem> {
    let mut problems = Vec::new();
    for index in 0..layout.chunks {
        match read(m, layout, index) {
            Ok(Some(chunk)) => blocks(m, layout, &chunk, &mut each),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    problems
}

/// A chunk in use, read again if it seems damaged.
fn read(m: &impl Words, layout: &Layout, index: u64) -> Result<Option<Chunk>, Problem> {
    let once = || match Entry::read(m, layout, index)? {
        None | Some(Entry { kind: Kind::Part, .. }) => Ok(None),
        Some(Entry { slot, kind }) => Chunk::read(m, layout, index, slot, kind),
    };
    let mut looks = 0;
    loop {
        looks += 1;
        match once() {
            Err(_) if looks < LOOKS => m.pause(),
            read => return read,
        }
    }
}

fn blocks(m: &impl Words, layout: &Layout, chunk: &Chunk, each: &mut impl FnMut(Block)) {
    for (page, span) in chunk.spans.iter().enumerate() {
        let (of, first) = (span.of(), MAP_WORDS * page as u64);
        if of.pages == 0 {
            continue;
        }
        let start = layout.chunk(chunk.index) + page as u64 * PAGE;
        for word in 0..of.words() {
            let freed = m.load(layout.freed(chunk.index, first + word));
            let used = chunk.used[(first + word) as usize] & !freed;
            for bit in (0..64).filter(|bit| used >> bit & 1 == 1) {
                each(Block { at: start + (64 * word + bit) * of.bytes(), bytes: of.bytes(), tag: of.tag });
            }
        }
    }
}

/// Reads all of a heap.
pub fn check(m: &impl Words, layout: &Layout, people: &dyn People) -> Report {
    let mut report =
        Report { chunks_in_all: layout.chunks, chunk_bytes: layout.chunk_pages * PAGE, ..Report::default() };
    if !names::is_heap(m) {
        report.problems.push(Problem { at: 0, what: names::what_else(m) });
        return report;
    }
    let (mut blocks, mut bytes) = (0, 0);
    report.problems = visit(m, layout, |block| (blocks, bytes) = (blocks + 1, bytes + block.bytes));
    (report.blocks, report.bytes) = (blocks, bytes);
    for index in 0..layout.chunks {
        report.chunks += u64::from(m.load(layout.entry(index)) != 0);
        if let Ok(Some(chunk)) = read(m, layout, index) {
            let pages: u64 = chunk.spans.iter().map(|span| u64::from(span.pages)).sum();
            report.pages += pages + layout.header_pages();
        }
    }
    match remote::places(m) {
        Err(problem) => report.problems.push(problem),
        Ok(places) => {
            for (_, key, owner) in places.into_iter().filter(|(.., owner)| *owner != 0) {
                let is_here = key == people.host();
                let has_ended = is_here && people.has_ended(owner) || !is_here && people.host_has_ended(key);
                if has_ended { report.ended += 1 } else { report.arenas += 1 }
            }
        }
    }
    for (names, into) in [(names::tags(m), &mut report.types), (names::roots(m), &mut report.roots)] {
        match names {
            Ok(names) => *into = names,
            Err(problem) => report.problems.push(problem),
        }
    }
    report
}
