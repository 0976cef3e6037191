//! At an object's home: other hosts are told of notifications. One message at a time is on its way to a host; what comes
//! meanwhile is put together, and goes when that one was heard. So a host that does not answer costs a few ranges, however
//! many notifications there are, and nobody waits for it.

use crate::range::Ranges;
use commonhold_coherence::HostId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a home and another host say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// From the home: somebody said that these bytes have changed.
    Changed {
        /// Which message this is.
        number: u64,
        /// Where.
        ranges: Ranges,
    },
    /// To the home: whoever watches them here was woken.
    Heard {
        /// By which message.
        number: u64,
    },
}

/// What happens at the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody notified, and these hosts are to hear it.
    Notified {
        /// Where.
        ranges: Ranges,
        /// Whose processes may watch.
        hosts: Vec<HostId>,
    },
    /// A host has heard the message of that number.
    Heard(HostId, u64),
    /// A host begins to speak with this home, or does so again: what it was sent before may be lost.
    Begins(HostId),
    /// A host is lost.
    Ends(HostId),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send it.
    Send(HostId, Message),
}

/// What is on its way to one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Way {
    number: u64,
    said: Ranges,
    /// Came since.
    more: Option<Ranges>,
}

/// Of one object, at its home.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Relay {
    ways: BTreeMap<HostId, Way>,
    last: u64,
}

impl Relay {
    /// Nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.ways.is_empty()
    }

    /// Something happened.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Notified { ranges, hosts } => {
                for host in hosts {
                    match self.ways.get_mut(&host) {
                        Some(way) => way.more.get_or_insert_default().add_all(&ranges),
                        None => self.say(host, ranges.clone(), actions),
                    }
                }
            }
            Event::Heard(host, number) => {
                let Some(way) = self.ways.get_mut(&host).filter(|way| way.number == number) else { return };
                match way.more.take() {
                    Some(more) => self.say(host, more, actions),
                    None => drop(self.ways.remove(&host)),
                }
            }
            Event::Begins(host) => {
                if let Some(Way { mut said, more, .. }) = self.ways.remove(&host) {
                    more.iter().for_each(|more| said.add_all(more));
                    self.say(host, said, actions);
                }
            }
            Event::Ends(host) => drop(self.ways.remove(&host)),
        }
    }

    fn say(&mut self, host: HostId, ranges: Ranges, actions: &mut Vec<Action>) {
        self.last += 1;
        let number = self.last;
        self.ways.insert(host, Way { number, said: ranges.clone(), more: None });
        actions.push(Action::Send(host, Message::Changed { number, ranges }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::Range;

    #[test]
    fn a_host_that_does_not_answer_costs_one_message_and_a_few_ranges() {
        let (mut relay, mut actions) = (Relay::default(), Vec::new());
        let silent = HostId(2);
        for at in 0..100_000 {
            let ranges = Range::new(at * 64, 8).into_iter().collect();
            relay.handle(Event::Notified { ranges, hosts: vec![silent] }, &mut actions);
        }
        assert_eq!(actions.len(), 1);
        let more = relay.ways[&silent].more.clone().unwrap();
        assert!(Vec::from(more).len() <= crate::MOST_RANGES);
        // It is heard at last: the rest goes in one message.
        relay.handle(Event::Heard(silent, 1), &mut actions);
        relay.handle(Event::Heard(silent, 1), &mut actions); // said twice: not the one that is on its way
        assert!(matches!(&actions[1..], [Action::Send(_, Message::Changed { number: 2, .. })]));
        relay.handle(Event::Heard(silent, 2), &mut actions);
        assert!(relay.is_idle() && actions.len() == 2);
    }
}
