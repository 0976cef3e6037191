//! What each host of a cluster remembers of pages that all of them share, whatever its part in them.

use commonhold_coherence::central::{self, OnLoss};
use commonhold_coherence::{Access, Action, Event, HostId, Scheduler, Span, forwarding};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// The home and 64 others.
const HOSTS: u32 = 65;

/// What happened to every page before memory is counted.
#[derive(Clone, Copy, Debug)]
pub enum Story {
    /// The home has it; every other host read it.
    Read,
    /// A host wrote it, then another; every host read it.
    WrittenAndRead,
    /// Every host wrote it, one after the other.
    WrittenByAll,
}

const STORIES: [Story; 3] = [Story::Read, Story::WrittenAndRead, Story::WrittenByAll];

/// What one host came to remember, at most.
#[derive(Clone, Debug)]
pub struct Most {
    /// Bytes a page.
    pub bytes: f64,
    /// Of which scheduler, story and host.
    pub whose: Value,
}

/// One part of the cluster each.
struct Hosts<S: Scheduler> {
    nodes: Vec<S>,
    under_way: VecDeque<(HostId, HostId, S::Message)>,
}

impl<S: Scheduler> Hosts<S> {
    fn new(node: impl Fn(HostId) -> S) -> Hosts<S> {
        Hosts { nodes: (0..HOSTS).map(|me| node(HostId(me))).collect(), under_way: VecDeque::new() }
    }

    fn happens(&mut self, host: u32, event: Event<S::Message>) {
        self.step(HostId(host), event);
        while let Some((from, to, message)) = self.under_way.pop_front() {
            self.step(to, Event::Message { from, message });
        }
    }

    fn step(&mut self, host: HostId, event: Event<S::Message>) {
        let mut actions = Vec::new();
        self.nodes[host.0 as usize].handle(event, &mut actions);
        for action in actions {
            match action {
                Action::Send { to, message } => self.under_way.push_back((host, to, message)),
                Action::Hold { page } => self.step(host, Event::HoldOver { page }),
                _ => {}
            }
        }
    }

    fn touch(&mut self, host: u32, page: u32, access: Access) {
        self.happens(host, Event::Fault { span: Span::one(page), access, may_write: false });
        assert!(self.nodes[host as usize].access(page) >= access, "host {host} has page {page}");
    }

    fn tell(&mut self, story: Story, page: u32) {
        let writers = match story {
            Story::Read => 0..0,
            Story::WrittenAndRead => 1..3,
            Story::WrittenByAll => 1..HOSTS,
        };
        writers.for_each(|host| self.touch(host, page, Access::Write));
        if !matches!(story, Story::WrittenByAll) {
            (0..HOSTS).for_each(|host| self.touch(host, page, Access::Read));
        }
    }

    /// The bytes of each host, by what its end frees.
    fn end(self) -> Vec<i64> {
        drop(self.under_way);
        let freed = |node: S| {
            let before = crate::counting::allocated();
            drop(node);
            before - crate::counting::allocated()
        };
        self.nodes.into_iter().map(freed).collect()
    }
}

/// Lets a cluster share `pages` pages; the most that any of its hosts remembers, and all the figures.
fn most<S: Scheduler>(pages: u32, scheduler: &str, node: impl Fn(HostId) -> S) -> Vec<Most> {
    let of_story = |story: &Story| {
        crate::counting::allocated();
        let mut hosts = Hosts::new(&node);
        (0..pages).for_each(|page| hosts.tell(*story, page));
        let bytes = hosts.end();
        let (host, most) =
            bytes.iter().enumerate().max_by_key(|(_, bytes)| **bytes).expect("there are hosts");
        let whose =
            json!({"scheduler": scheduler, "story": format!("{story:?}"), "host": host, "home": bytes[0]});
        Most { bytes: *most as f64 / f64::from(pages), whose }
    };
    STORIES.iter().map(of_story).collect()
}

/// What hosts remember of `pages` pages that 64 hosts and the home share, under either scheduler.
pub fn remembered(pages: u32) -> Vec<Most> {
    let home = HostId(0);
    let members: Vec<HostId> = (0..HOSTS).map(HostId).collect();
    let mut all =
        most(pages, "central", |me| central::Node::new(me, home, central::Options::default(), true));
    for (on_loss, replicas) in [(OnLoss::Error, 0), (OnLoss::Revert, 0), (OnLoss::Revert, 2)] {
        let options = forwarding::Options { on_loss, replicas, ..forwarding::Options::default() };
        let scheduler = format!("forwarding, {on_loss:?}, {replicas} replicas");
        // Copies all from one host, and from each two more.
        all.extend(most(pages, &scheduler, |me| forwarding::Node::founder(me, home, &members, options)));
        let above = |me: HostId| HostId(me.0.saturating_sub(1) / 2);
        let scheduler = scheduler + ", in a tree";
        all.extend(most(pages, &scheduler, |me| forwarding::Node::founder(me, above(me), &members, options)));
    }
    all
}

/// The most of them.
pub fn worst(all: &[Most]) -> &Most {
    all.iter().max_by(|one, other| one.bytes.total_cmp(&other.bytes)).expect("something was measured")
}
