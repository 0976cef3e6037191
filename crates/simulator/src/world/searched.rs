//! A cluster whose interleavings are searched.

use super::{Step, World};
use crate::search::Searchable;
use commonhold_coherence::Scheduler;
use std::fmt::Debug;
use std::hash::Hash;

impl<N> Searchable for World<N>
where
    N: Scheduler + Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    N::Message: Clone + Debug + PartialEq + Hash + Send + Sync,
{
    fn steps(&self) -> Vec<Step> {
        World::steps(self)
    }

    fn step(&mut self, step: &Step) {
        self.notes = Default::default();
        World::step(self, step);
    }

    fn is_done(&self) -> bool {
        World::is_done(self)
    }

    fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    fn faults(&self) -> u32 {
        self.faults
    }
}
