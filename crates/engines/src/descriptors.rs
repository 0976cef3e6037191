//! The engine of processors with segments: descriptors of an x86 processor, of a 32-bit program.
//!
//! `segments.c` is that program. It loads descriptors with `modify_ldt`, and makes each access
//! through a selector, so the processor checks base, limit and the right to write.

mod program;

use crate::engine::{Access, Engine, Kind, LoadFailed, segment_of, stores_alone};
use crate::memory::{Memory, PAGE};
use commonhold_segments::{CheckingTable, Descriptor, Hardware, LoadError, Protection, Rules, TaskId};
use program::{Ask, Program};
use std::collections::BTreeMap;
use std::io;

/// Descriptors of a table: the processor's limit. Tasks share one table, as tasks without paging
/// would share the processor's.
const ENTRIES: u32 = 8192;
/// Pages that 32-bit offsets reach.
const REACH: u64 = 1 << 20;

/// A program with descriptors, and memory behind them.
#[derive(Debug)]
pub struct Descriptors {
    /// What is loaded. It says what can be, never what an access may do.
    table: CheckingTable,
    /// Which descriptor of the processor is whose.
    entries: BTreeMap<(TaskId, u32), u32>,
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
        Ok(Descriptors { table, entries: BTreeMap::new(), free, memory, program })
    }

    /// What the program is asked for an access; nothing where there is no segment to name, or none
    /// that could reach so far.
    fn question(&self, access: &Access) -> Option<Ask> {
        let (slot, page) = segment_of(&self.table, access.task, access.at.page)?;
        let entry = *self.entries.get(&(access.task, slot))?;
        let offset = (page < REACH).then(|| page as u32 * PAGE as u32)?;
        let at = offset + (access.at.n * size_of::<u64>()) as u32;
        Some(match access.kind {
            Kind::Read => Ask::Read { entry, at },
            Kind::Write(word) => Ask::Write { entry, at, word },
        })
    }
}

impl Hardware for Descriptors {
    type Error = LoadFailed;

    fn rules(&self) -> &Rules {
        self.table.rules()
    }

    fn load(&mut self, task: TaskId, slot: u32, descriptor: Descriptor) -> Result<(), LoadFailed> {
        let mut after = self.table.clone();
        after.load(task, slot, descriptor)?;
        if descriptor.run.end() > self.memory.pages() {
            return Err(LoadError::Shape.into());
        }
        let entry = match self.entries.get(&(task, slot)) {
            Some(entry) => *entry,
            None => self.free.pop().ok_or_else(|| io::Error::other("all descriptors are in use"))?,
        };
        self.entries.insert((task, slot), entry);
        self.table = after;
        let writable = self.table.rules().effective(descriptor.protection).contains(Protection::WRITE);
        Ok(self.program.load(entry, descriptor.run, writable)?)
    }

    fn unload(&mut self, task: TaskId, slot: u32) -> Result<(), LoadFailed> {
        self.table.unload(task, slot)?;
        if let Some(entry) = self.entries.remove(&(task, slot)) {
            self.program.unload(entry)?;
            self.free.push(entry);
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
