//! Every order in which a home and two hosts can speak with each other, with sessions that end and homes that die: a
//! notification that the home was told of wakes each watch, sooner or later.

use commonhold_coherence::HostId;
use commonhold_watches::{Action, Event, Message, Range, Ranges, Relay};
use std::collections::{HashSet, VecDeque};

const HOSTS: usize = 2;

/// A host with one watch for each of two ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Host {
    /// The home knows that it has the object open.
    admitted: bool,
    /// It has said so to this process of the home, in this session.
    begun: bool,
    /// It has found the home.
    knows_home: bool,
    /// Its watches that must still be woken.
    owed: [bool; 2],
    to: VecDeque<Message>,
    from: VecDeque<Message>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    relay: Relay,
    hosts: [Host; HOSTS],
    notifications: u8,
    troubles: u8,
}

fn id(at: usize) -> HostId {
    HostId(at as u32)
}

fn watched(which: usize) -> Range {
    Range::new(which as u64 * 100, 8).unwrap()
}

impl World {
    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.relay.handle(event, &mut actions);
        for Action::Send(to, message) in actions {
            self.hosts[to.0 as usize].to.push_back(message);
        }
    }

    fn notify(&mut self, which: usize) {
        self.notifications -= 1;
        self.hosts.iter_mut().for_each(|host| host.owed[which] = true);
        let hosts = (0..HOSTS).filter(|at| self.hosts[*at].admitted).map(id).collect();
        let ranges: Ranges = [watched(which)].into_iter().collect();
        self.tell(Event::Notified { ranges, hosts });
    }

    fn arrives_at_host(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let Some(Message::Changed { number, ranges }) = host.to.pop_front() else { panic!("a home says it") };
        if host.knows_home {
            (0..2).filter(|which| ranges.overlap(watched(*which))).for_each(|which| host.owed[which] = false);
        }
        host.from.push_back(Message::Heard { number });
    }

    fn arrives_at_home(&mut self, at: usize) {
        let Some(Message::Heard { number }) = self.hosts[at].from.pop_front() else {
            panic!("a host says it")
        };
        self.tell(Event::Heard(id(at), number));
    }

    /// Messages on their way are lost, and the host begins anew.
    fn cut(&mut self, at: usize) {
        let owed = self.hosts[at].owed;
        let admitted = self.hosts[at].admitted; // as far as the home has heard
        self.hosts[at] = Host { owed, admitted, ..Host::default() };
    }

    fn home_dies(&mut self) {
        self.relay = Relay::default();
        for at in 0..HOSTS {
            self.cut(at);
            self.hosts[at].admitted = false;
        }
    }

    fn successors(&self) -> Vec<World> {
        let mut all = Vec::new();
        let mut then = |change: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        for which in (0..2).filter(|_| self.notifications > 0) {
            then(&|next| next.notify(which));
        }
        for (at, host) in self.hosts.iter().enumerate() {
            if !host.to.is_empty() {
                then(&|next| next.arrives_at_host(at));
            }
            if !host.from.is_empty() {
                then(&|next| next.arrives_at_home(at));
            }
            if !host.begun {
                then(&|next| {
                    (next.hosts[at].admitted, next.hosts[at].begun) = (true, true);
                    next.tell(Event::Begins(id(at)));
                });
            }
            if host.begun && !host.knows_home {
                then(&|next| {
                    next.hosts[at].knows_home = true;
                    next.hosts[at].owed = [false; 2];
                });
            }
            if self.troubles > 0 {
                then(&|next| {
                    next.troubles -= 1;
                    next.cut(at);
                });
                // Another process of the host opens the object: nothing is lost.
                then(&|next| {
                    next.troubles -= 1;
                    next.tell(Event::Begins(id(at)));
                });
            }
        }
        if self.troubles > 0 {
            then(&|next| {
                next.troubles -= 1;
                next.home_dies();
            });
        }
        all
    }

    fn is_calm(&self) -> bool {
        self.hosts.iter().all(|host| host.knows_home && host.to.is_empty() && host.from.is_empty())
    }
}

/// Goes through all that can happen; gives how many states there are.
fn search(notifications: u8, troubles: u8) -> usize {
    let begin = World { notifications, troubles, ..World::default() };
    let (mut seen, mut left) = (HashSet::from([begin.clone()]), vec![begin]);
    while let Some(world) = left.pop() {
        if world.is_calm() {
            assert!(world.hosts.iter().all(|host| host.owed == [false; 2]), "{world:#?}");
            assert!(world.relay.is_idle(), "{world:#?}");
        }
        for next in world.successors() {
            if seen.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn no_notification_is_lost_in_any_order() {
    for (notifications, troubles) in [(2, 2), (3, 1)] {
        let states = search(notifications, troubles);
        assert!(states > 10_000, "{states}");
    }
}
