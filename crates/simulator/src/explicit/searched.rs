//! A cluster under explicit coherence whose interleavings are searched.

use super::World;
use crate::clock::Cluster;
use crate::search::Searchable;
use crate::world::Step;
use commonhold_coherence::{Access, Event, HostId, Scheduler};
use std::collections::VecDeque;

impl Searchable for World {
    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self.channels.keys().map(|(from, to)| Step::Deliver(*from, *to)).collect();
        for host in (0..self.nodes.len()).filter(|host| !self.is_dead(*host)) {
            if self.awake[host] && !self.scripts[host].is_empty() {
                steps.push(Step::Run(host));
            }
            if self.known[host] < self.dead.len() {
                steps.push(Step::Learn(host));
            }
            if self.bounds.evictions > 0 {
                let there = |page: &u32| self.nodes[host].access(*page) != Access::None;
                let pages = (0..self.saved.len() as u32).filter(there);
                steps.extend(pages.map(|page| Step::Evict(host, page)));
            }
            if self.bounds.losses > 0 {
                steps.push(Step::Lose(host));
            }
            if self.bounds.lessons > 0 {
                let known = &self.dead[..self.known[host]];
                steps.extend(known.iter().map(|lost| Step::LearnAgain(host, *lost)));
            }
        }
        steps
    }

    fn step(&mut self, step: &Step) {
        self.notes = Default::default();
        match *step {
            Step::Deliver(from, to) => self.deliver(from, to),
            Step::Run(host) => _ = self.act(host),
            Step::Evict(host, page) => {
                self.bounds.evictions -= 1;
                self.evict(host, page);
            }
            Step::Lose(host) => {
                self.bounds.losses -= 1;
                self.lose(host);
            }
            Step::Learn(host) => self.learn(host),
            Step::LearnAgain(host, lost) => {
                self.bounds.lessons -= 1;
                self.happens(host, Event::Lost { host: HostId(lost as u32), followed_by: None }, Vec::new());
            }
            Step::HoldOver(..) | Step::Leave(_) | Step::Restart(_) | Step::Revert(_) | Step::CannotRead => {
                self.expect(false, || format!("{step:?} under explicit coherence"));
            }
        }
        // When nothing more comes of itself, everybody has what the home has, or nothing, or what was locked or written.
        if self.steps().iter().all(Step::is_chance) {
            self.check_end();
        }
    }

    fn is_done(&self) -> bool {
        let at_rest = |host: usize| self.is_dead(host) || !self.nodes[host].is_waiting();
        self.scripts.iter().all(VecDeque::is_empty) && (0..self.nodes.len()).all(at_rest)
    }

    fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    fn faults(&self) -> u32 {
        0 // each is ended by a sync, of which there are few
    }
}
