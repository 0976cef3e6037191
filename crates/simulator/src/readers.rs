//! What it costs that hosts ask for pages that seem to migrate to be written at once, where others read them.

use crate::dice::Dice;
use crate::news::Traffic;
use commonhold_coherence::{Access, Action, Event, HostId, Kind, Scheduler, Span, forwarding};
use std::collections::VecDeque;

/// Hosts whose messages arrive at once.
struct Hosts {
    nodes: Vec<forwarding::Node>,
    traffic: Traffic,
}

impl Hosts {
    fn new(hosts: u32, migrates_after: u8) -> Hosts {
        let members: Vec<HostId> = (0..hosts).map(HostId).collect();
        let options =
            forwarding::Options { has_hold: false, migrates_after, ..forwarding::Options::default() };
        let node = |me: &HostId| forwarding::Node::founder(*me, HostId(0), &members, options);
        Hosts { nodes: members.iter().map(node).collect(), traffic: Traffic::default() }
    }

    /// A process that may read and write touches a page.
    fn touch(&mut self, host: u32, page: u32, access: Access) {
        self.traffic.accesses += 1;
        if self.nodes[host as usize].access(page) >= access {
            return;
        }
        self.traffic.faults += 1;
        let fault = Event::Fault { span: Span::one(page), access, may_write: true };
        let mut events = VecDeque::from([(HostId(host), fault)]);
        while let Some((at, event)) = events.pop_front() {
            let mut actions = Vec::new();
            self.nodes[at.0 as usize].handle(event, &mut actions);
            for action in actions {
                let Action::Send { to, message } = action else { continue };
                match message.kind() {
                    Kind::Acknowledgement => self.traffic.acknowledgements += u64::from(to != at),
                    Kind::Request | Kind::Page => self.traffic.messages += u64::from(to != at),
                }
                events.push_back((to, Event::Message { from: at, message }));
            }
        }
    }
}

/// In each round two hosts read `pages` pages, and of the others one reads and then writes one in ten: the same, or they take
/// turns. A page that was written so after it was read so many times in a row is asked for to be written.
pub fn readers(pages: u32, writers: u32, rounds: u32, migrates_after: u8, seed: u64) -> Traffic {
    let mut hosts = Hosts::new(2 + writers, migrates_after);
    let mut dice = Dice::new(seed);
    for round in 0..rounds {
        for page in (0..pages).filter(|_| dice.one_in(10)) {
            hosts.touch(2 + round % writers, page, Access::Read);
            hosts.touch(2 + round % writers, page, Access::Write);
        }
        for page in 0..pages {
            hosts.touch(0, page, Access::Read);
            hosts.touch(1, page, Access::Read);
        }
    }
    hosts.traffic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_not_asked_more_because_pages_could_migrate() {
        for writers in [1, 2] {
            let [adaptive, not] = [2, u8::MAX].map(|after| readers(256, writers, 20, after, 3));
            assert_eq!(adaptive.accesses, not.accesses);
            assert!(
                not.messages > 1000 && adaptive.messages <= not.messages * 21 / 20,
                "{adaptive:?} {not:?}"
            );
        }
    }
}
