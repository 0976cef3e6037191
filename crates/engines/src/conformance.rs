//! One suite for every engine. A table that checks each access says what must come of it.
//!
//! Whatever is not so is an assertion that fails.

use crate::engine::{Access, Engine, Kind, LoadFailed};
use crate::memory::WORDS;
use commonhold_segments::{CheckingTable, Descriptor, Hardware, LoadError, Protection, Run, TaskId};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

/// Pages of memory that an engine must have to be tried.
pub const PAGES: u32 = 256;
/// Segments of a task that are loaded where there is no limit.
const MANY: u32 = 20;
/// Tasks of random operations.
const TASKS: u32 = 3;

const READ: Protection = Protection::READ;
const RW: Protection = Protection::READ_WRITE;
const PROTECTIONS: [Protection; 5] = [READ, RW, Protection::ALL, Protection::EXECUTE, Protection::NONE];

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Descriptors that were loaded.
    pub loads: u64,
    /// Descriptors that were refused.
    pub refused: u64,
    /// Accesses that got through.
    pub allowed: u64,
    /// Accesses that trapped.
    pub trapped: u64,
}

/// An engine beside the table.
struct Beside<'a> {
    engine: &'a mut dyn Engine,
    table: CheckingTable,
    written: u64,
    tried: Tried,
}

/// Cases that people thought of: inside, at the limit and past it, the wrong protection, growth,
/// moves, all segments and one more.
pub fn script(engine: &mut dyn Engine) -> Tried {
    let mut beside = Beside::new(engine);
    beside.one_segment();
    beside.all_segments();
    beside.tried
}

/// Random loads, unloads and accesses.
pub fn random(engine: &mut dyn Engine, operations: u64, seed: u64) -> Tried {
    let mut beside = Beside::new(engine);
    let mut rng = SmallRng::seed_from_u64(seed);
    for _ in 0..operations {
        beside.step(&mut rng);
    }
    beside.tried
}

impl<'a> Beside<'a> {
    fn new(engine: &'a mut dyn Engine) -> Beside<'a> {
        let memory = engine.memory();
        for page in 0..PAGES {
            for n in [0, WORDS - 1] {
                memory.set(page, n, u64::from(page) << 16 | n as u64);
            }
        }
        let table = CheckingTable::new(*engine.rules());
        Beside { engine, table, written: 1 << 40, tried: Tried::default() }
    }

    fn load(&mut self, task: TaskId, slot: u32, descriptor: Descriptor) -> Result<(), LoadError> {
        let expected = self.table.load(task, slot, descriptor);
        let found = match self.engine.load(task, slot, descriptor) {
            Err(LoadFailed::System(error)) => panic!("{slot}, {descriptor:?}: {error}"),
            Err(LoadFailed::Refused(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        assert_eq!(found, expected, "{slot}, {descriptor:?}");
        self.tried.loads += u64::from(found.is_ok());
        self.tried.refused += u64::from(found.is_err());
        found
    }

    fn unload(&mut self, task: TaskId, slot: u32) -> Result<(), LoadError> {
        let expected = self.table.unload(task, slot);
        match (self.engine.unload(task, slot), expected) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(LoadFailed::Refused(found)), Err(expected)) if found == expected => Err(found),
            (found, expected) => panic!("slot {slot}: {found:?}, and not {expected:?}"),
        }
    }

    /// Reads and writes the first and the last word of pages.
    fn touch(&mut self, task: TaskId, pages: impl IntoIterator<Item = u64>) {
        let mut accesses = Vec::new();
        for page in pages {
            for n in [0, WORDS - 1] {
                self.written += 1;
                let write = Access::new(task, page, n, Kind::Write(self.written));
                let read = Access { kind: Kind::Read, ..write };
                accesses.extend([read, write, read]);
            }
        }
        let mut after = BTreeMap::new();
        let expected: Vec<Option<u64>> =
            accesses.iter().map(|access| self.expected(access, &mut after)).collect();
        self.engine.run(&mut accesses).unwrap_or_else(|error| panic!("accesses cannot be made: {error}"));
        for (access, expected) in accesses.iter().zip(expected) {
            assert_eq!(access.result, expected, "{access:?}");
            self.tried.allowed += u64::from(expected.is_some());
            self.tried.trapped += u64::from(expected.is_none());
        }
        for ((page, n), word) in after {
            assert_eq!(self.engine.memory().word(page, n), word, "word {n} of page {page}");
        }
    }

    /// What must come of an access, and of the memory: the words that were changed.
    fn expected(&mut self, access: &Access, after: &mut BTreeMap<(u32, usize), u64>) -> Option<u64> {
        let wanted = if access.kind == Kind::Read { READ } else { Protection::WRITE };
        let page = self.table.access(access.task, access.at.page, wanted).ok()?;
        let place = (page, access.at.n);
        if let Kind::Write(word) = access.kind {
            after.insert(place, word);
        }
        Some(after.get(&place).copied().unwrap_or_else(|| self.engine.memory().word(page, access.at.n)))
    }

    /// Touches what a descriptor shows, and what is right before and behind it.
    fn edges(&mut self, task: TaskId, descriptor: Descriptor) {
        let Descriptor { start, run, .. } = descriptor;
        let end = start + u64::from(run.pages);
        let before = start.checked_sub(1);
        self.touch(task, before.into_iter().chain([start, (start + end) / 2, end - 1, end, end + 7]));
    }

    /// A descriptor that this hardware can have, of the `n`th 8 pages.
    fn nth(&self, n: u32, pages: u32, protection: Protection) -> Descriptor {
        let run = Run::new(n * 8, pages);
        let start =
            if self.table.rules().translates { 1000 + u64::from(n) * 64 } else { u64::from(run.start) };
        Descriptor { start, run, protection }
    }

    fn one_segment(&mut self) {
        let (task, other) = (TaskId(1), TaskId(2));
        let first = self.nth(1, 4, RW);
        self.touch(task, [first.start, 0, 1 << 19]);
        self.load(task, 0, first).expect("it fits");
        self.edges(task, first);
        self.touch(other, [first.start, 0]);
        // By the wrong protection, and back.
        for protection in PROTECTIONS {
            let changed = Descriptor { protection, ..first };
            self.load(task, 0, changed).expect("it fits");
            self.edges(task, changed);
        }
        // It grows in place, and shrinks.
        for pages in [8, 2, 1, 4] {
            let resized = self.nth(1, pages, RW);
            self.load(task, 0, resized).expect("it fits");
            self.edges(task, first);
            self.edges(task, resized);
        }
        let moved = self.moved(task, first);
        self.edges(task, moved);
        // Another task has the same memory elsewhere, to read.
        let theirs = Descriptor { protection: READ, ..moved };
        self.load(other, 0, theirs).expect("it fits");
        self.edges(other, theirs);
        self.unload(task, 0).expect("it was loaded");
        self.edges(task, moved);
        self.edges(other, theirs);
        assert_eq!(self.unload(task, 0), Err(LoadError::Empty));
        self.unload(other, 0).expect("it was loaded");
    }

    /// Moves a segment, if one can be: the same addresses, other pages with the same contents.
    fn moved(&mut self, task: TaskId, segment: Descriptor) -> Descriptor {
        if !self.table.rules().translates {
            return segment;
        }
        let moved = Descriptor { run: Run::new(123, segment.run.pages), ..segment };
        self.unload(task, 0).expect("it was loaded");
        self.edges(task, segment);
        self.engine.memory().copy(segment.run, moved.run);
        self.load(task, 0, moved).expect("it fits");
        assert_eq!(self.table.access(task, moved.start, READ), Ok(moved.run.start));
        moved
    }

    fn all_segments(&mut self) {
        let task = TaskId(3);
        let segments = self.table.rules().segments;
        let descriptors: Vec<Descriptor> = (0..segments.min(MANY))
            .map(|n| self.nth(n, 1 << (n % 3), PROTECTIONS[n as usize % PROTECTIONS.len()]))
            .collect();
        for (slot, descriptor) in (0..).zip(&descriptors) {
            self.load(task, slot, *descriptor).expect("there are so many");
        }
        descriptors.iter().for_each(|descriptor| self.edges(task, *descriptor));
        let more = self.nth(MANY + 1, 4, RW);
        if segments <= MANY {
            assert_eq!(self.load(task, segments, more), Err(LoadError::Slot(segments)), "one more");
            self.edges(task, more);
        }
        if let [first, second, ..] = descriptors[..] {
            assert_eq!(self.load(task, 0, second), Err(LoadError::Overlap(1)));
            self.edges(task, first);
        }
        if !self.table.rules().translates {
            let elsewhere = Descriptor { start: more.start + 1, ..more };
            assert_eq!(self.load(task, 0, elsewhere), Err(LoadError::Shape));
        }
        for (slot, descriptor) in (0..).zip(&descriptors) {
            self.unload(task, slot).expect("it was loaded");
            self.edges(task, *descriptor);
        }
    }

    fn step(&mut self, rng: &mut SmallRng) {
        let task = TaskId(rng.random_range(1..=TASKS));
        let slots = self.table.rules().segments.min(MANY);
        match rng.random_range(0..10) {
            0..3 => {
                // One slot too many, now and then.
                let slot = rng.random_range(0..=slots);
                let descriptor = self.any(rng);
                if self.load(task, slot, descriptor).is_ok() {
                    self.edges(task, descriptor);
                }
            }
            3 => {
                let slot = rng.random_range(0..slots);
                let held = self.table.of(task).find(|(other, _)| *other == slot).map(|(_, held)| *held);
                let _ = self.unload(task, slot); // an empty slot is refused by both
                held.into_iter().for_each(|held| self.edges(task, held));
            }
            _ => {
                let held: Vec<Descriptor> = self.table.of(task).map(|(_, held)| *held).collect();
                let near = match held.len() {
                    0 => 0,
                    count => held[rng.random_range(0..count)].start,
                };
                let pages: Vec<u64> =
                    (0..8).map(|_| (near + rng.random_range(0..24)).saturating_sub(8)).collect();
                self.touch(task, pages);
            }
        }
    }

    fn any(&self, rng: &mut SmallRng) -> Descriptor {
        let rules = self.table.rules();
        let pages = rng.random_range(1..24);
        let run = Run::new(rng.random_range(0..PAGES - pages), pages);
        // Mostly one that there can be.
        let covered = rules.shape.cover(run).filter(|cover| cover.end() <= PAGES && rng.random_bool(0.9));
        let run = covered.unwrap_or(run);
        let start = if rules.translates { rng.random_range(0..300) } else { u64::from(run.start) };
        Descriptor { start, run, protection: PROTECTIONS[rng.random_range(0..PROTECTIONS.len())] }
    }
}
