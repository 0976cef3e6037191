//! Hardware as a table that checks each access: for tests, and for machines that have none.

use crate::hardware::{Descriptor, Hardware, Protection, Rules, TaskId};
use alloc::collections::BTreeMap;

/// Loaded descriptors, and nothing else.
#[derive(Clone, Debug)]
pub struct CheckingTable {
    rules: Rules,
    loaded: BTreeMap<(TaskId, u32), Descriptor>,
}

/// Why a descriptor cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The machine has fewer segments.
    Slot(u32),
    /// No segment has that shape, or that base.
    Shape,
    /// The addresses are another segment's, in this slot.
    Overlap(u32),
    /// No segment is loaded there.
    Empty,
}

/// An access that trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// No segment has the address.
    Invalid,
    /// A segment has it, and does not allow the access.
    Denied,
}

impl CheckingTable {
    /// A machine with those rules, and no segment loaded.
    pub fn new(rules: Rules) -> CheckingTable {
        CheckingTable { rules, loaded: BTreeMap::new() }
    }

    /// The physical page that an access of a task to a page goes to.
    pub fn access(&self, task: TaskId, page: u64, wanted: Protection) -> Result<u32, Trap> {
        let descriptor = self
            .of(task)
            .map(|(_, descriptor)| descriptor)
            .find(|descriptor| (descriptor.start..end(descriptor)).contains(&page))
            .ok_or(Trap::Invalid)?;
        if !self.rules.effective(descriptor.protection).contains(wanted) {
            return Err(Trap::Denied);
        }
        Ok(descriptor.run.start + (page - descriptor.start) as u32)
    }

    /// All that is loaded.
    pub fn loaded(&self) -> impl Iterator<Item = &Descriptor> {
        self.loaded.values()
    }

    /// What is loaded for a task, by slot.
    pub fn of(&self, task: TaskId) -> impl Iterator<Item = (u32, &Descriptor)> {
        self.loaded.range((task, 0)..=(task, u32::MAX)).map(|((_, slot), descriptor)| (*slot, descriptor))
    }
}

fn end(descriptor: &Descriptor) -> u64 {
    descriptor.start + u64::from(descriptor.run.pages)
}

impl Hardware for CheckingTable {
    type Error = LoadError;

    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn load(&mut self, task: TaskId, slot: u32, descriptor: Descriptor) -> Result<(), LoadError> {
        if slot >= self.rules.segments {
            return Err(LoadError::Slot(slot));
        }
        let fits = self.rules.shape.cover(descriptor.run) == Some(descriptor.run);
        if !fits || !self.rules.translates && descriptor.start != u64::from(descriptor.run.start) {
            return Err(LoadError::Shape);
        }
        let overlaps = |other: &Descriptor| descriptor.start < end(other) && other.start < end(&descriptor);
        if let Some((other, _)) = self.of(task).find(|(other, loaded)| *other != slot && overlaps(loaded)) {
            return Err(LoadError::Overlap(other));
        }
        self.loaded.insert((task, slot), descriptor);
        Ok(())
    }

    fn unload(&mut self, task: TaskId, slot: u32) -> Result<(), LoadError> {
        self.loaded.remove(&(task, slot)).map(|_| ()).ok_or(LoadError::Empty)
    }
}
