//! The engine of machines without any hardware for it: a table is asked before each access.

use crate::engine::{Access, Engine, Kind, LoadFailed};
use crate::memory::Memory;
use commonhold_segments::{CheckingTable, Descriptor, Hardware, Protection, Rules, TaskId};
use std::io;

/// A table, and memory behind it.
#[derive(Debug)]
pub struct Checked {
    table: CheckingTable,
    memory: Memory,
}

impl Checked {
    /// An engine with those rules and that many pages.
    pub fn new(rules: Rules, pages: u32) -> io::Result<Checked> {
        Ok(Checked { table: CheckingTable::new(rules), memory: Memory::new(pages)? })
    }
}

impl Hardware for Checked {
    type Error = LoadFailed;

    fn rules(&self) -> &Rules {
        self.table.rules()
    }

    fn load(&mut self, task: TaskId, slot: u32, descriptor: Descriptor) -> Result<(), LoadFailed> {
        Ok(self.table.load(task, slot, descriptor)?)
    }

    fn unload(&mut self, task: TaskId, slot: u32) -> Result<(), LoadFailed> {
        Ok(self.table.unload(task, slot)?)
    }
}

impl Engine for Checked {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn run(&mut self, accesses: &mut [Access]) -> io::Result<()> {
        for access in accesses {
            let wanted = match access.kind {
                Kind::Read => Protection::READ,
                Kind::Write(_) => Protection::WRITE,
            };
            let page = self.table.access(access.task, access.at.page, wanted).ok(); // none: it traps
            access.result = page.map(|page| match access.kind {
                Kind::Read => self.memory.word(page, access.at.n),
                Kind::Write(word) => {
                    self.memory.set(page, access.at.n, word);
                    word
                }
            });
        }
        Ok(())
    }
}
