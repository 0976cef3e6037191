//! Memory, swap space, hardware and what outlives a crash, as a caller of a machine has them.

use commonhold_segments::{Action, CheckingTable, Hardware, Note, Passage, Record, Remains, Rules, Run};
use std::collections::BTreeMap;

/// What the pager of an object has at a page.
pub fn paged(object: u64, offset: u32) -> u64 {
    (1 << 63) | object << 32 | u64::from(offset)
}

/// What is written over pages whose contents nobody may need.
const GARBAGE: u64 = u64::MAX;

/// Carries actions out.
#[derive(Clone)]
pub struct World {
    pub memory: Vec<u64>,
    pub swap: Vec<u64>,
    pub hardware: CheckingTable,
    /// By object: its record, and whether it is one of swap space.
    pub records: BTreeMap<u64, (Record, bool)>,
    pub note: Option<Note>,
    pub chunk_pages: u32,
}

fn parts(note: Note) -> (Passage, bool) {
    match note {
        Note::Move(passage) | Note::SwapOut(passage) => (passage, false),
        Note::SwapIn(passage) => (passage, true),
    }
}

fn range(run: Run) -> std::ops::Range<usize> {
    run.start as usize..run.end() as usize
}

impl World {
    pub fn new(rules: Rules, memory: u32, swap: u32, chunk_pages: u32) -> World {
        World {
            memory: vec![GARBAGE; memory as usize],
            swap: vec![GARBAGE; swap as usize],
            hardware: CheckingTable::new(rules),
            records: BTreeMap::new(),
            note: None,
            chunk_pages,
        }
    }

    pub fn carry_out(&mut self, actions: &[Action]) {
        actions.iter().for_each(|action| self.one(*action));
    }

    pub fn one(&mut self, action: Action) {
        match action {
            Action::Zero(run) => self.bounded(run, |world| world.memory[range(run)].fill(0)),
            Action::Copy { from, to } => self.bounded(from, |world| {
                assert!(from.pages == to.pages && !from.overlaps(to));
                if world.note.is_some() {
                    world.check_noted(from, to);
                }
                world.memory.copy_within(range(from), to.start as usize);
            }),
            Action::PageIn { object, offset, to } => self.bounded(to, |world| {
                for n in 0..to.pages {
                    world.memory[(to.start + n) as usize] = paged(object, offset + n);
                }
            }),
            Action::PageOut { from, .. } => self.bounded(from, |_| ()),
            Action::SwapOut { from, to } => self.bounded(from, |world| {
                world.check_noted(from, to);
                let (from, to) = (&world.memory[range(from)], range(to));
                world.swap[to].copy_from_slice(from);
            }),
            Action::SwapIn { from, to } => self.bounded(from, |world| {
                world.check_noted(from, to);
                world.memory[range(to)].copy_from_slice(&world.swap[range(from)]);
            }),
            Action::Load { task, slot, descriptor } => {
                let loaded = self.hardware.load(task, slot, descriptor);
                let others: Vec<_> = self.hardware.of(task).collect();
                assert_eq!(loaded, Ok(()), "{slot}: {descriptor:?} beside {others:?}");
            }
            Action::Unload { task, slot } => {
                self.hardware.unload(task, slot).expect("what is unloaded was loaded");
            }
            Action::Keep { record, swapped } => {
                let before = self.records.insert(record.object, (record, swapped));
                let place = |(record, swapped): (Record, bool)| (record.run.start, swapped);
                if before.is_some_and(|before| place(before) != place((record, swapped))) {
                    let (passage, _) = self.passage().expect("only a noted transfer changes a place");
                    assert!(passage.done && passage.to == record.run, "{record:?}: {passage:?}");
                }
            }
            Action::Drop { object } => {
                let (record, swapped) = self.records.remove(&object).expect("what is dropped was kept");
                let place = if swapped { &mut self.swap } else { &mut self.memory };
                place[range(record.run)].fill(GARBAGE);
            }
            Action::Note(note) => {
                let begun = self.note.replace(note);
                let (passage, _) = self.passage().expect("it was just written");
                let expected = passage.done.then_some(Passage { done: false, ..passage });
                assert_eq!(begun.map(|note| parts(note).0), expected, "begun, then done");
            }
            Action::Forget => {
                let (passage, from_swap) = self.passage().expect("a note that is forgotten was written");
                self.note = None;
                let left = if from_swap { &mut self.swap } else { &mut self.memory };
                left[range(passage.from)].fill(GARBAGE);
            }
        }
    }

    /// The transfer that is noted, and whether it is from swap space.
    fn passage(&self) -> Option<(Passage, bool)> {
        self.note.map(parts)
    }

    /// A transfer is noted before its first byte, and not as done before its last; nobody can write
    /// to what is copied.
    fn check_noted(&self, from: Run, to: Run) {
        let (passage, from_swap) = self.passage().expect("noted before the first byte");
        assert!(passage.from.contains(from) && passage.to.contains(to) && !passage.done);
        let is_open = self.hardware.loaded().any(|descriptor| descriptor.run.overlaps(from));
        assert!(from_swap || !is_open, "a task can write to {from:?}");
    }

    fn bounded(&mut self, run: Run, action: impl FnOnce(&mut World)) {
        assert!(run.pages > 0 && run.pages <= self.chunk_pages, "{run:?} is no chunk");
        action(self);
    }

    /// What a crash leaves.
    pub fn remains(&self) -> Remains {
        let of = |wanted: bool| {
            let records = self.records.values().filter(move |(_, swapped)| *swapped == wanted);
            records.map(|(record, _)| *record).collect()
        };
        Remains { memory: of(false), swap: of(true), note: self.note }
    }
}
