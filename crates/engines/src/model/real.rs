//! An engine and its memory, to which a machine's actions happen.

use super::world::paged;
use crate::engine::{Access, Engine, Kind};
use crate::memory::WORDS;
use commonhold_segments::{Action, Run, TaskId};

/// Carries actions out. A page has its number of the model in its first word and in its last.
pub struct Real {
    engine: Box<dyn Engine>,
    swap: Vec<[u64; 2]>,
}

const ENDS: [usize; 2] = [0, WORDS - 1];

impl Real {
    pub fn new(engine: Box<dyn Engine>, swap: u32) -> Real {
        Real { engine, swap: vec![[0; 2]; swap as usize] }
    }

    pub fn one(&mut self, action: Action) {
        let memory = self.engine.memory();
        let mut fill = |page, words: [u64; 2]| {
            ENDS.into_iter().zip(words).for_each(|(n, word)| memory.set(page, n, word));
        };
        match action {
            Action::Zero(run) => pages(run).for_each(|page| fill(page, [0; 2])),
            Action::PageIn { object, offset, to } => {
                (offset..).zip(pages(to)).for_each(|(offset, page)| fill(page, [paged(object, offset); 2]));
            }
            Action::SwapIn { from, to } => {
                pages(from).zip(pages(to)).for_each(|(from, to)| fill(to, self.swap[from as usize]));
            }
            Action::SwapOut { from, to } => {
                for (from, to) in pages(from).zip(pages(to)) {
                    self.swap[to as usize] = ENDS.map(|n| memory.word(from, n));
                }
            }
            Action::Copy { from, to } => memory.copy(from, to),
            Action::Load { task, slot, descriptor } => {
                self.engine.load(task, slot, descriptor).expect("an engine loads what its rules allow");
            }
            Action::Unload { task, slot } => {
                self.engine.unload(task, slot).expect("what is unloaded was loaded");
            }
            Action::PageOut { .. }
            | Action::Keep { .. }
            | Action::Drop { .. }
            | Action::Note(_)
            | Action::Forget => {}
        }
    }

    /// Writes to a page. False if the engine did not let it.
    pub fn write(&mut self, task: TaskId, page: u64, word: u64) -> bool {
        let mut accesses = ENDS.map(|n| Access::new(task, page, n, Kind::Write(word)));
        self.run(&mut accesses);
        let [first, last] = accesses.map(|access| access.result.is_some());
        assert_eq!(first, last, "a page is accessible as a whole");
        first
    }

    /// What is in pages; none where the engine does not let it be read.
    pub fn read(&mut self, pages: impl Iterator<Item = (TaskId, u64)>) -> Vec<Option<u64>> {
        let reads = |(task, page)| ENDS.map(|n| Access::new(task, page, n, Kind::Read));
        let mut accesses: Vec<Access> = pages.flat_map(reads).collect();
        self.run(&mut accesses);
        let of_page = |ends: &[Access]| {
            assert_eq!(ends[0].result, ends[1].result, "a page has one number: {:?}", ends[0]);
            ends[0].result
        };
        accesses.chunks_exact(2).map(of_page).collect()
    }

    fn run(&mut self, accesses: &mut [Access]) {
        self.engine.run(accesses).unwrap_or_else(|error| panic!("accesses cannot be made: {error}"));
    }
}

fn pages(run: Run) -> impl Iterator<Item = u32> {
    run.start..run.end()
}
