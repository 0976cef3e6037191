//! What a step of a cluster brought: for its driver, and for those who count. No part of the cluster's state.

use commonhold_coherence::Kind;
use std::hash::{Hash, Hasher};

/// What a driver in virtual time has to put on its calendar.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Messages sent: from, to.
    pub sent: Vec<(usize, usize)>,
    /// Programs that may go on.
    pub woken: Vec<usize>,
    /// Pages whose minimum hold began: host, page.
    pub held: Vec<(usize, u32)>,
}

/// Messages between different hosts, and what they were for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests and pages: what the paper's figures are of.
    pub messages: u64,
    /// The requests among them.
    pub requests: u64,
    /// Acknowledgements.
    pub acknowledgements: u64,
    /// Faults that were not answered on the spot.
    pub faults: u64,
    /// Accesses that were done.
    pub accesses: u64,
}

/// Notes about the way to a state. Two states that differ in nothing else are the same to the model checker.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Since it was taken last.
    pub news: News,
    /// Since the beginning.
    pub traffic: Traffic,
}

impl Notes {
    /// A message is sent.
    pub fn sent(&mut self, from: usize, to: usize, kind: Kind) {
        self.news.sent.push((from, to));
        if from == to {
            return;
        }
        match kind {
            Kind::Acknowledgement => self.traffic.acknowledgements += 1,
            Kind::Request => {
                self.traffic.requests += 1;
                self.traffic.messages += 1;
            }
            Kind::Page => self.traffic.messages += 1,
        }
    }
}

impl PartialEq for Notes {
    fn eq(&self, _: &Notes) -> bool {
        true
    }
}

impl Eq for Notes {}

impl Hash for Notes {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
