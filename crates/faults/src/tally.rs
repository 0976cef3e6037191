//! The processes, their mappings, and how many faults each mapping had.

use crate::rings::Told;
use crate::space::Space;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// How many faults there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// All.
    pub all: u64,
    /// Of those, the ones that the kernel took for the program, in system calls.
    pub in_calls: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, in_kernel: bool) {
        self.all += 1;
        self.in_calls += u64::from(in_kernel);
    }
}

/// A mapping. Those of several processes that have the same memory from the same address on are
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The file's path, or what the kernel calls it.
    pub name: String,
    /// Of its file; 0: it has none.
    pub inode: u64,
    /// Where it is, or was when it was largest.
    pub range: Range<u64>,
    /// What it had.
    pub faults: Faults,
}

#[derive(Debug, Default)]
struct Process {
    space: Space,
    threads: u64,
    /// What it executes; empty: the same as its parent.
    program: String,
    /// Faults since it executes that.
    faults: u64,
    /// The last faults where no mapping was: each address, and whether the kernel took it.
    early: VecDeque<(u64, bool)>,
}

/// What the kernel calls a process's first stack. A touch below its end is a fault, of which the
/// kernel tells first, and then of the larger mapping.
const STACK: &str = "[stack]";
/// So many faults may wait for the mapping that they are of.
const EARLY: usize = 16;

/// All that is known.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) mappings: Vec<Mapping>,
    /// Numbers of mappings, by what they are of and where they begin.
    known: HashMap<(String, u64, u64), usize>,
    processes: HashMap<u32, Process>,
    /// All faults.
    pub(crate) faults: Faults,
    /// Faults where no mapping is known.
    pub(crate) elsewhere: Faults,
    /// Records that did not fit into the kernel's buffers.
    pub(crate) lost: u64,
    /// Programs that the kernel told nothing of.
    pub(crate) unseen: Vec<String>,
}

impl Tally {
    pub(crate) fn note(&mut self, told: Told) {
        match told {
            Told::Began { process, parent } if process == parent => self.process(process).threads += 1,
            Told::Began { process, parent } => {
                let space = self.process(parent).space.clone();
                self.processes.insert(process, Process { space, threads: 1, ..Process::default() });
            }
            Told::Executes { process, program } => {
                self.processes.insert(process, Process { threads: 1, program, ..Process::default() });
            }
            Told::Ended { process } => self.ended(process),
            Told::Mapped { process, range, name, inode } => self.mapped(process, range, name, inode),
            Told::Fault { process, address, in_kernel } => self.fault(process, address, in_kernel),
            Told::Lost(records) => self.lost += records,
        }
    }

    pub(crate) fn processes(&self) -> u64 {
        self.processes.len() as u64
    }

    fn process(&mut self, process: u32) -> &mut Process {
        self.processes.entry(process).or_insert_with(|| Process { threads: 1, ..Process::default() })
    }

    /// A thread ended.
    fn ended(&mut self, number: u32) {
        let process = self.process(number);
        process.threads = process.threads.saturating_sub(1);
        if process.threads > 0 {
            return;
        }
        // No program runs without a fault: this one gained rights by set-user-ID, and is not
        // watched.
        if let Some(ended) =
            self.processes.remove(&number).filter(|ended| ended.faults == 0 && !ended.program.is_empty())
        {
            self.unseen.push(ended.program);
        }
    }

    fn mapped(&mut self, process_number: u32, range: Range<u64>, name: String, inode: u64) {
        // The kernel tells of the whole mapping when a part is added to it.
        let grown = {
            let mappings = &self.mappings;
            let is_same =
                |number: &usize| (mappings[*number].name == name) && mappings[*number].inode == inode;
            let space = self.processes.get(&process_number).map(|process| &process.space);
            space.and_then(|space| space.within(&range).find(is_same))
        };
        let start = if name.starts_with('[') { 0 } else { range.start }; // there is one stack, and it grows downwards
        let number = grown.unwrap_or_else(|| {
            *self.known.entry((name.clone(), inode, start)).or_insert_with(|| {
                self.mappings.push(Mapping { name, inode, range: range.clone(), faults: Faults::default() });
                self.mappings.len() - 1
            })
        });
        let known = &mut self.mappings[number].range;
        if known.end - known.start < range.end - range.start {
            *known = range.clone();
        }
        let is_stack = self.mappings[number].name == STACK;
        let process = self.process(process_number);
        if is_stack {
            let (its, others) = process.early.drain(..).partition(|(address, _)| range.contains(address));
            process.early = others;
            self.are_of(number, its);
        }
        self.process(process_number).space.put(range, number);
    }

    /// Faults that were counted elsewhere are of this mapping.
    fn are_of(&mut self, mapping: usize, faults: VecDeque<(u64, bool)>) {
        for (_, in_kernel) in faults {
            self.elsewhere.all -= 1;
            self.elsewhere.in_calls -= u64::from(in_kernel);
            self.mappings[mapping].faults.add(in_kernel);
        }
    }

    fn fault(&mut self, number: u32, address: u64, in_kernel: bool) {
        let process = self.process(number);
        process.faults += 1;
        let found = process.space.at(address);
        if found.is_none() {
            process.early.truncate(EARLY - 1);
            process.early.push_front((address, in_kernel));
        }
        self.faults.add(in_kernel);
        match found {
            Some(mapping) => self.mappings[mapping].faults.add(in_kernel),
            None => self.elsewhere.add(in_kernel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(process: u32, range: Range<u64>, name: &str) -> Told {
        Told::Mapped { process, range, name: name.to_owned(), inode: 7 }
    }

    fn fault(process: u32, address: u64) -> Told {
        Told::Fault { process, address, in_kernel: false }
    }

    fn tally(told: Vec<Told>) -> Tally {
        let mut tally = Tally::default();
        told.into_iter().for_each(|told| tally.note(told));
        tally
    }

    fn faults(tally: &Tally) -> Vec<(&str, u64)> {
        tally.mappings.iter().map(|mapping| (mapping.name.as_str(), mapping.faults.all)).collect()
    }

    #[test]
    fn a_fault_is_of_the_mapping_that_was_there_then() {
        let tally = tally(vec![
            mapped(1, 0..100, "a"),
            fault(1, 50),
            mapped(1, 40..60, "b"),
            fault(1, 50),
            fault(1, 39),
            fault(1, 100),
        ]);
        assert_eq!(faults(&tally), [("a", 2), ("b", 1)]);
        assert_eq!((tally.faults.all, tally.elsewhere.all), (4, 1));
    }

    #[test]
    fn a_child_has_what_its_parent_has_until_it_executes_another_program() {
        let tally = tally(vec![
            mapped(1, 0..100, "a"),
            Told::Began { process: 2, parent: 1 },
            Told::Began { process: 1, parent: 1 },
            mapped(1, 0..100, "b"),
            fault(2, 50),
            fault(1, 50),
            Told::Executes { process: 2, program: "other".into() },
            fault(2, 50),
            Told::Ended { process: 1 },
            fault(1, 50),
            Told::Ended { process: 1 },
        ]);
        assert_eq!(faults(&tally), [("a", 1), ("b", 2)]);
        assert_eq!((tally.elsewhere.all, tally.processes()), (1, 1));
        assert!(tally.unseen.is_empty());
    }

    #[test]
    fn what_grows_or_is_mapped_in_several_processes_is_one_mapping() {
        let tally = tally(vec![
            mapped(1, 50..100, "a"),
            mapped(1, 0..100, "a"),
            fault(1, 99),
            mapped(1, 0..200, "a"),
            mapped(2, 50..100, "a"),
            fault(1, 0),
            mapped(1, 900..1000, "[stack]"),
            fault(2, 800),
            fault(2, 600),
            fault(1, 810),
            mapped(2, 700..1000, "[stack]"),
            fault(2, 801),
        ]);
        // The first fault below the end is what made it grow.
        assert_eq!(faults(&tally), [("a", 2), ("[stack]", 2)]);
        assert_eq!(tally.elsewhere.all, 2);
        assert_eq!(tally.mappings[0].range, 0..200);
    }

    #[test]
    fn a_program_without_a_fault_was_not_watched() {
        let tally = tally(vec![
            Told::Executes { process: 1, program: "sudo".into() },
            Told::Began { process: 2, parent: 1 },
            Told::Ended { process: 2 },
            Told::Ended { process: 1 },
        ]);
        assert_eq!(tally.unseen, ["sudo"]);
    }
}
