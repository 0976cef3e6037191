//! What every engine does: it loads descriptors, and makes accesses that it lets through or not.

use crate::memory::{Memory, WORDS};
use commonhold_segments::{CheckingTable, Descriptor, Hardware, LoadError, Protection, Rules, TaskId};
use std::io;

/// A word of a task's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The page's number.
    pub page: u64,
    /// Which of its words, below [`WORDS`].
    pub n: usize,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It loads.
    Read,
    /// It stores that.
    Write(u64),
}

/// One access of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whose.
    pub task: TaskId,
    /// Where.
    pub at: Word,
    /// Which.
    pub kind: Kind,
    /// What came of it: the value that was loaded or stored; none if it trapped.
    pub result: Option<u64>,
}

impl Access {
    /// An access that is still to be made.
    pub fn new(task: TaskId, page: u64, n: usize, kind: Kind) -> Access {
        assert!(n < WORDS, "a page has fewer words");
        Access { task, at: Word { page, n }, kind, result: None }
    }
}

/// What a table has when it has loaded a descriptor, whose pages there must be.
pub(crate) fn after_loading(
    table: &CheckingTable,
    memory: &Memory,
    (task, slot): (TaskId, u32),
    descriptor: Descriptor,
) -> Result<CheckingTable, LoadError> {
    let mut after = table.clone();
    after.load(task, slot, descriptor)?;
    if descriptor.run.end() > memory.pages() {
        return Err(LoadError::Shape);
    }
    Ok(after)
}

/// Why an engine did not load or unload a descriptor.
#[derive(Debug)]
pub enum LoadFailed {
    /// It is none that this hardware can have.
    Refused(LoadError),
    /// The system underneath refused. What is loaded now is unknown.
    System(io::Error),
}

impl From<LoadError> for LoadFailed {
    fn from(error: LoadError) -> LoadFailed {
        LoadFailed::Refused(error)
    }
}

impl From<io::Error> for LoadFailed {
    fn from(error: io::Error) -> LoadFailed {
        LoadFailed::System(error)
    }
}

/// Segment hardware with memory behind it.
pub trait Engine: Hardware<Error = LoadFailed> {
    /// Physical memory.
    fn memory(&mut self) -> &mut Memory;

    /// Makes accesses, in order, and says what came of each.
    fn run(&mut self, accesses: &mut [Access]) -> io::Result<()>;
}

/// The rules of an engine of an x86 processor that follows a preset: all that its loads and stores
/// can be denied is to store. Pages and data segments that deny loads alone do not exist there.
pub(crate) fn stores_alone(preset: Rules) -> Rules {
    let denies = preset.enforced.contains(Protection::WRITE);
    Rules { enforced: if denies { Protection::WRITE } else { Protection::NONE }, ..preset }
}
