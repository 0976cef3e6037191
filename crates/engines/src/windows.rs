//! The engine of processors with pages: a segment is a window, a mapping of pages of the memory.
//!
//! Each task has a run of this process's addresses. What no descriptor shows is inaccessible there.

mod addresses;
mod child;

use crate::engine::{Access, Engine, Kind, LoadFailed, after_loading, stores_alone};
use crate::memory::{Memory, PAGE};
use addresses::Addresses;
use commonhold_segments::{CheckingTable, Descriptor, Hardware, LoadError, Protection, Rules, TaskId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

/// Pages of a task's addresses: 4 GiB.
const REACH: u64 = 1 << 20;

/// Who makes the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accesses {
    /// The kernel, for this process: an access that the pages do not allow is EFAULT.
    ByKernel,
    /// A forked child, each, and the kernel after it: the child dies of SIGSEGV.
    ByChildren,
}

/// Windows of tasks, and memory behind them.
#[derive(Debug)]
pub struct Windows {
    /// What is loaded. It says what can be, never what an access may do.
    table: CheckingTable,
    tasks: BTreeMap<TaskId, Addresses>,
    memory: Memory,
    accesses: Accesses,
}

impl Windows {
    /// An engine that follows a preset, as far as pages can deny accesses, with that many pages.
    pub fn new(preset: Rules, pages: u32, accesses: Accesses) -> io::Result<Windows> {
        let table = CheckingTable::new(stores_alone(preset));
        Ok(Windows { table, tasks: BTreeMap::new(), memory: Memory::new(pages)?, accesses })
    }

    fn held(&self, task: TaskId, slot: u32) -> Option<Descriptor> {
        self.table.of(task).find(|(other, _)| *other == slot).map(|(_, descriptor)| *descriptor)
    }

    /// Takes away what a slot of a task shows.
    fn hide(&mut self, task: TaskId, slot: u32) -> io::Result<()> {
        match (self.held(task, slot), self.tasks.get_mut(&task)) {
            (Some(held), Some(addresses)) => addresses.hide(held.start, held.run.pages),
            _ => Ok(()),
        }
    }

    fn one(&mut self, access: &Access) -> io::Result<Option<u64>> {
        let Some(addresses) = self.tasks.get(&access.task) else { return Ok(None) };
        if access.at.page >= REACH {
            return Ok(None);
        }
        let at = access.at.page as usize * PAGE + access.at.n * size_of::<u64>();
        let lives = match self.accesses {
            Accesses::ByKernel => None,
            Accesses::ByChildren => Some(child::lives(addresses, at, access.kind)?),
        };
        let result = match access.kind {
            Kind::Read => addresses.read(at),
            Kind::Write(word) => addresses.write(at, word).then_some(word),
        };
        assert!(
            lives.is_none_or(|lives| lives == result.is_some()),
            "processor and kernel agree: {access:?}"
        );
        Ok(result)
    }
}

impl Hardware for Windows {
    type Error = LoadFailed;

    fn rules(&self) -> &Rules {
        self.table.rules()
    }

    fn load(&mut self, task: TaskId, slot: u32, descriptor: Descriptor) -> Result<(), LoadFailed> {
        let after = after_loading(&self.table, &self.memory, (task, slot), descriptor)?;
        let Descriptor { start, run, protection } = descriptor;
        if start + u64::from(run.pages) > REACH {
            return Err(LoadError::Shape.into());
        }
        self.hide(task, slot)?;
        self.table = after;
        let writable = self.table.rules().effective(protection).contains(Protection::WRITE);
        let addresses = match self.tasks.entry(task) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Addresses::new(REACH as usize * PAGE)?),
        };
        Ok(addresses.show(start, run, self.memory.file(), writable)?)
    }

    fn unload(&mut self, task: TaskId, slot: u32) -> Result<(), LoadFailed> {
        self.hide(task, slot)?;
        self.table.unload(task, slot)?;
        if self.table.of(task).next().is_none() {
            self.tasks.remove(&task);
        }
        Ok(())
    }
}

impl Engine for Windows {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn run(&mut self, accesses: &mut [Access]) -> io::Result<()> {
        for access in accesses {
            access.result = self.one(access)?;
        }
        Ok(())
    }
}
