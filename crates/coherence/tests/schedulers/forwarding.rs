//! Figure 8 of the paper and its counts of messages, under the distributed scheduler.

use commonhold_coherence::forwarding::{Message, Node, Options};
use commonhold_coherence::{Access, Action, Event, HostId, Kind, Scheduler, Span};
use std::collections::VecDeque;

const PAGE: u32 = 5;

/// Hosts that all fault on one page, again and again; server 1 of the paper is host 0 here.
struct Hotspot {
    nodes: Vec<Node>,
    under_way: VecDeque<(usize, usize, Message)>,
    messages: u32,
}

impl Hotspot {
    fn new(hosts: u32) -> Hotspot {
        let members: Vec<HostId> = (0..hosts).map(HostId).collect();
        let node = |me: &HostId| Node::founder(*me, HostId(0), &members, Options::default());
        let nodes = members.iter().map(node).collect();
        Hotspot { nodes, under_way: VecDeque::new(), messages: 0 }
    }

    fn happens(&mut self, host: usize, event: Event<Message>) {
        let mut actions = Vec::new();
        self.nodes[host].handle(event, &mut actions);
        for action in actions {
            match action {
                Action::Send { to, message } => {
                    self.messages += u32::from(message.kind() != Kind::Acknowledgement);
                    self.under_way.push_back((host, to.0 as usize, message));
                }
                // The instruction retires at once.
                Action::Hold { page } => self.happens(host, Event::HoldOver { page }),
                _ => {}
            }
        }
    }

    /// Every host writes once, all at the same time. Gives the messages it took.
    fn cycle(&mut self, order: impl Iterator<Item = usize>) -> u32 {
        let before = self.messages;
        for host in order {
            self.happens(host, Event::Fault { span: Span::one(PAGE), access: Access::Write });
        }
        while let Some((from, to, message)) = self.under_way.pop_front() {
            self.happens(to, Event::Message { from: HostId(from as u32), message });
        }
        self.messages - before
    }

    fn hints(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.hint(PAGE).0).collect()
    }

    fn owner(&self) -> usize {
        let owners: Vec<usize> = (0..self.nodes.len()).filter(|host| self.nodes[*host].owns(PAGE)).collect();
        assert_eq!(owners.len(), 1, "{owners:?}");
        owners[0]
    }
}

#[test]
fn the_first_cycle_takes_3n_less_4_and_leaves_figure_8() {
    for hosts in 2..=64 {
        let mut hotspot = Hotspot::new(hosts);
        let messages = hotspot.cycle(0..hosts as usize);
        assert_eq!(messages, 3 * hosts - 4, "{hosts} hosts");
        let last = hosts - 1;
        assert_eq!(hotspot.owner() as u32, last);
        // Servers 1, N-1 and N know that it is at server N; every other server i believes it at i+1.
        let figure: Vec<u32> = (0..hosts).map(|i| if i == 0 { last } else { (i + 1).min(last) }).collect();
        assert_eq!(hotspot.hints(), figure, "{hosts} hosts");
    }
}

#[test]
fn later_cycles_take_2n_at_most() {
    for hosts in 2..=64u32 {
        let mut hotspot = Hotspot::new(hosts);
        hotspot.cycle(0..hosts as usize);
        for cycle in 0..10 {
            let owner = hotspot.owner();
            let messages = hotspot.cycle(0..hosts as usize);
            assert!(messages <= 2 * hosts, "{hosts} hosts, cycle {cycle}, owner {owner}: {messages}");
        }
    }
}
