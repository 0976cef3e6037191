//! The engine of processors with segments: descriptors of an x86 processor, of a 32-bit program.
//!
//! `segments.c` is that program. It loads descriptors with `modify_ldt`, and makes each access
//! through a selector, so the processor checks base, limit and the right to write.

mod program;

use crate::engine::{Access, Engine, Kind, LoadFailed, after_loading, stores_alone};
use crate::memory::{Memory, PAGE};
use commonhold_segments::{CheckingTable, Descriptor, Hardware, Protection, Rules, TaskId};
use program::{Ask, Program};
use std::collections::BTreeMap;
use std::io;

/// Descriptors of a table: the processor's limit. Tasks share one table, as tasks without paging
/// would share the processor's.
const ENTRIES: u32 = 8192;
/// Pages that 32-bit offsets reach.
const REACH: u64 = 1 << 20;

/// A descriptor of the processor that is a slot's.
#[derive(Clone, Copy, Debug)]
struct Selector {
    entry: u32,
    /// The page that the slot's segment begins at, or began at.
    start: u64,
    is_loaded: bool,
}

/// A program with descriptors, and memory behind them.
#[derive(Debug)]
pub struct Descriptors {
    /// What is loaded. It says what can be, never what an access may do.
    table: CheckingTable,
    /// Which descriptor is whose. It stays a slot's that is no longer loaded, until it is needed: so
    /// an access that comes too late has a selector too, and the processor says that it is invalid.
    selectors: BTreeMap<(TaskId, u32), Selector>,
    free: Vec<u32>,
    memory: Memory,
    program: Program,
}

impl Descriptors {
    /// An engine that follows a preset, as far as data segments can deny accesses, with that many
    /// pages. An error says why this machine has none.
    pub fn new(preset: Rules, pages: u32) -> io::Result<Descriptors> {
        let memory = Memory::new(pages)?;
        let program = Program::start(&memory)?;
        let table = CheckingTable::new(stores_alone(preset));
        let free = (0..ENTRIES).rev().collect();
        Ok(Descriptors { table, selectors: BTreeMap::new(), free, memory, program })
    }

    /// The selector of an access: of the segment that begins at its address or next below. Which
    /// segment it is follows from the high bits of an address (section 2); whether it is long enough
    /// does not, and is left to the processor.
    fn selector(&self, task: TaskId, page: u64) -> Option<Selector> {
        let of_task = self.selectors.range((task, 0)..=(task, u32::MAX)).map(|(_, selector)| *selector);
        of_task
            .filter(|selector| selector.start <= page)
            .max_by_key(|selector| (selector.is_loaded, selector.start))
    }

    /// What the program is asked for an access; nothing where there is no segment to name, or none
    /// that could reach so far.
    fn question(&self, access: &Access) -> Option<Ask> {
        let Selector { entry, start, .. } = self.selector(access.task, access.at.page)?;
        let page = access.at.page - start;
        let offset = (page < REACH).then(|| page as u32 * PAGE as u32)?;
        let at = offset + (access.at.n * size_of::<u64>()) as u32;
        Some(match access.kind {
            Kind::Read => Ask::Read { entry, at },
            Kind::Write(word) => Ask::Write { entry, at, word },
        })
    }

    /// A descriptor that is nobody's.
    fn unused(&mut self) -> io::Result<u32> {
        if self.free.is_empty() {
            let stale = self.selectors.values().filter(|selector| !selector.is_loaded);
            self.free.extend(stale.map(|selector| selector.entry));
            self.selectors.retain(|_, selector| selector.is_loaded);
        }
        self.free.pop().ok_or_else(|| io::Error::other("all descriptors are in use"))
    }
}

impl Hardware for Descriptors {
    type Error = LoadFailed;

    fn rules(&self) -> &Rules {
        self.table.rules()
    }

    fn load(&mut self, task: TaskId, slot: u32, descriptor: Descriptor) -> Result<(), LoadFailed> {
        let after = after_loading(&self.table, &self.memory, (task, slot), descriptor)?;
        let entry = match self.selectors.get(&(task, slot)) {
            Some(selector) => selector.entry,
            None => self.unused()?,
        };
        self.selectors.insert((task, slot), Selector { entry, start: descriptor.start, is_loaded: true });
        self.table = after;
        let writable = self.table.rules().effective(descriptor.protection).contains(Protection::WRITE);
        Ok(self.program.load(entry, descriptor.run, writable)?)
    }

    fn unload(&mut self, task: TaskId, slot: u32) -> Result<(), LoadFailed> {
        self.table.unload(task, slot)?;
        if let Some(selector) = self.selectors.get_mut(&(task, slot)) {
            selector.is_loaded = false;
            self.program.unload(selector.entry)?;
        }
        Ok(())
    }
}

impl Engine for Descriptors {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn run(&mut self, accesses: &mut [Access]) -> io::Result<()> {
        let questions: Vec<Option<Ask>> = accesses.iter().map(|access| self.question(access)).collect();
        let asked: Vec<Ask> = questions.iter().flatten().copied().collect();
        let mut answers = self.program.ask(&asked)?.into_iter();
        for (access, question) in accesses.iter_mut().zip(questions) {
            access.result = question.and_then(|_| answers.next().flatten());
        }
        Ok(())
    }
}
