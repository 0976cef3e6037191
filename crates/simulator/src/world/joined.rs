//! A cluster that the clock drives.

use super::{Op, Step, World};
use crate::clock::Cluster;
use crate::news::News;
use commonhold_coherence::Scheduler;

/// A cluster under strict coherence that hosts can join, as the clock drives it.
pub struct Joined<N: Scheduler, F> {
    /// The cluster.
    pub world: World<N>,
    /// Makes the host of a number, and its program.
    pub newcomer: F,
}

impl<N, F> Cluster for Joined<N, F>
where
    N: Scheduler,
    N::Message: Clone,
    F: FnMut(&World<N>) -> Option<(N, Vec<Op>)>,
{
    fn deliver(&mut self, from: usize, to: usize) {
        self.world.step(&Step::Deliver(from, to));
    }

    fn act(&mut self, host: usize) -> bool {
        self.world.step(&Step::Run(host));
        self.world.is_awake(host) && self.world.left(host) > 0
    }

    fn hold_over(&mut self, host: usize, page: u32) {
        // The hold is long enough for an instruction that can go on.
        if self.world.retires(host, page) {
            self.world.step(&Step::Run(host));
        }
        self.world.step(&Step::HoldOver(host, page));
    }

    fn evict(&mut self, host: usize, page: u32) {
        self.world.step(&Step::Evict(host, page));
    }

    fn lose(&mut self, host: usize) {
        self.world.step(&Step::Lose(host));
    }

    fn learn(&mut self, host: usize) {
        self.world.step(&Step::Learn(host));
    }

    fn join(&mut self) -> Option<usize> {
        let (node, script) = (self.newcomer)(&self.world)?;
        Some(self.world.join(node, script))
    }

    fn leave(&mut self, host: usize) {
        self.world.step(&Step::Leave(host));
    }

    fn revert(&mut self, host: usize) {
        self.world.step(&Step::Revert(host));
    }

    fn lessons(&self, host: usize) -> usize {
        self.world.unknown_losses(host)
    }

    fn hosts(&self) -> usize {
        self.world.nodes.len()
    }

    fn news(&mut self) -> News {
        std::mem::take(&mut self.world.notes.news)
    }

    fn violation(&self) -> Option<String> {
        self.world.violation.clone()
    }
}
