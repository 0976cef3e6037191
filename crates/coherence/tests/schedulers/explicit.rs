//! Explicit coherence: what a sync shows to whom, in random interleavings, and how many messages it takes.

use crate::random::Dice;
use commonhold_coherence::explicit::{Message, Node};
use commonhold_coherence::{Access, Action, Carried, Event, HostId, Kind, Scheduler, Span};
use std::collections::{BTreeMap, VecDeque};

const HOME: usize = 0;
const GONE: u32 = u32::MAX;

/// A message under way, with its bytes.
type Letter = (Message, Vec<u32>);

/// Hosts, what is in their frames, and what is under way. Every write makes a version of its own.
struct World {
    nodes: Vec<Node>,
    frames: Vec<Vec<u32>>,
    saved: Vec<u32>,
    kept: VecDeque<Vec<u32>>,
    channels: BTreeMap<(usize, usize), VecDeque<Letter>>,
    /// Written since the scheduler was told last.
    untold: Vec<Vec<bool>>,
    /// Written since the last sync was sent: may not be dropped.
    unsent: Vec<Vec<bool>>,
    /// Pages of each sync that is under way.
    syncing: Vec<VecDeque<Vec<u32>>>,
    versions: u32,
    requests: u32,
    conflicts: u32,
}

impl World {
    fn new(hosts: usize, pages: usize) -> World {
        World {
            nodes: (0..hosts as u32).map(|me| Node::new(HostId(me), HostId(HOME as u32))).collect(),
            frames: vec![vec![GONE; pages]; hosts],
            saved: vec![0; pages],
            kept: VecDeque::new(),
            channels: BTreeMap::new(),
            untold: vec![vec![false; pages]; hosts],
            unsent: vec![vec![false; pages]; hosts],
            syncing: vec![VecDeque::new(); hosts],
            versions: 0,
            requests: 0,
            conflicts: 0,
        }
    }

    fn happens(&mut self, host: usize, event: Event<Message>, data: Vec<u32>) {
        let mut actions = Vec::new();
        for page in 0..self.saved.len() {
            if std::mem::take(&mut self.untold[host][page]) {
                self.nodes[host].handle(Event::Written { span: Span::one(page as u32) }, &mut actions);
            }
        }
        self.nodes[host].handle(event, &mut actions);
        let mut data = VecDeque::from(data);
        for action in actions {
            match action {
                Action::Send { to, message } => self.send(host, to.0 as usize, message),
                Action::Install { span, with_data, .. } => {
                    for page in span.pages().filter(|_| with_data) {
                        self.frames[host][page as usize] =
                            data.pop_front().expect("a page without its bytes");
                    }
                }
                Action::Restrict { page, .. } => {
                    assert!(!self.unsent[host][page as usize], "what was written is dropped");
                    self.frames[host][page as usize] = GONE;
                }
                Action::Save { page } => {
                    self.saved[page as usize] = data.pop_front().expect("nothing to save")
                }
                Action::Keep => self.kept.push_back(std::mem::take(&mut data).into()),
                Action::TakeKept => data = self.kept.pop_front().expect("nothing kept").into(),
                Action::Synced { conflicts, .. } => self.conflicts += conflicts,
                Action::Hold { .. } | Action::Fail { .. } => unreachable!("nothing is held or lost here"),
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let bytes: Vec<u32> = match Node::carries(&message) {
            Carried::Nothing => Vec::new(),
            Carried::Frames(pages) => pages.iter().map(|page| self.frames[from][*page as usize]).collect(),
            Carried::Saved(pages) => pages.iter().map(|page| self.saved[*page as usize]).collect(),
        };
        if message == Message::Synced {
            self.check_done(to);
        }
        if let Message::Sync { pages } = &message {
            pages.iter().for_each(|page| self.unsent[from][*page as usize] = false);
            self.syncing[from].push_back(pages.clone());
        }
        self.requests += u32::from(message.kind() == Kind::Request);
        self.channels.entry((from, to)).or_default().push_back((message, bytes));
    }

    /// When the home says that a sync is done nobody finds what was there before it, except in pages that he wrote or
    /// locked himself.
    fn check_done(&mut self, host: usize) {
        for page in self.syncing[host].pop_front().expect("a sync under way") {
            for other in (0..self.nodes.len()).filter(|other| *other != host) {
                let own = self.nodes[other].is_own(page) || self.untold[other][page as usize];
                let version = self.frames[other][page as usize];
                let same = version == GONE || version == self.saved[page as usize];
                assert!(own || same, "host {other} still has version {version} of page {page}");
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let channel = self.channels.get_mut(&(from, to)).unwrap();
        let (message, bytes) = channel.pop_front().unwrap();
        if channel.is_empty() {
            self.channels.remove(&(from, to));
        }
        self.happens(to, Event::Message { from: HostId(from as u32), message }, bytes);
    }

    fn deliver_all(&mut self) {
        while let Some((from, to)) = self.channels.keys().next().copied() {
            self.deliver(from, to);
        }
    }

    fn touch(&mut self, host: usize, page: u32, write: bool) {
        if self.nodes[host].access(page) == Access::None {
            let access = if write { Access::Write } else { Access::Read };
            self.happens(host, Event::Fault { span: Span::one(page), access }, Vec::new());
        } else if write {
            self.versions += 1;
            self.frames[host][page as usize] = self.versions;
            self.untold[host][page as usize] = true;
            self.unsent[host][page as usize] = true;
        }
    }

    fn sync(&mut self, host: usize) {
        let span = Span::new(0, self.saved.len() as u32);
        self.happens(host, Event::Sync { span }, Vec::new());
    }
}

#[test]
fn random_clusters() {
    for seed in 1..=3000u64 {
        let mut dice = Dice::new(seed);
        let (hosts, pages) = (1 + dice.roll(6), 1 + dice.roll(4));
        let mut world = World::new(hosts, pages);
        println!("seed {seed}"); // shown if it fails
        for _ in 0..300 {
            let (host, page) = (dice.roll(hosts), dice.roll(pages) as u32);
            let span = Span::one(page);
            match dice.roll(12) {
                0..4 if !world.channels.is_empty() => {
                    let under_way: Vec<_> = world.channels.keys().copied().collect();
                    let (from, to) = under_way[dice.roll(under_way.len())];
                    world.deliver(from, to);
                }
                4..8 => world.touch(host, page, dice.roll(2) == 0),
                8 => world.sync(host),
                9 => world.happens(host, Event::Evict { page }, Vec::new()),
                10 => world.happens(host, Event::Lock { span }, Vec::new()),
                _ => world.happens(host, Event::Unlock { span }, Vec::new()),
            }
        }
        world.deliver_all();
        for host in 0..hosts {
            (0..pages as u32).for_each(|page| {
                world.happens(host, Event::Unlock { span: Span::one(page) }, Vec::new());
            });
            world.sync(host);
            world.deliver_all();
        }
        assert!(world.nodes.iter().all(|node| !node.is_waiting()));
        for host in 0..hosts {
            for page in 0..pages {
                let version = world.frames[host][page];
                assert!(
                    version == GONE || version == world.saved[page],
                    "host {host}, page {page}: {version}"
                );
            }
        }
    }
}

#[test]
fn a_sync_takes_one_request_for_each_host_that_shares_and_one() {
    for sharing in 1..=16usize {
        // The home takes no part; one host writes, and the others have read all pages.
        let mut world = World::new(sharing + 2, 8);
        for host in 1..sharing + 2 {
            (0..8).for_each(|page| world.touch(host, page, false));
            world.deliver_all();
        }
        (0..8).for_each(|page| world.touch(1, page, true));
        world.requests = 0;
        world.sync(1);
        world.deliver_all();
        assert_eq!(world.requests, sharing as u32 + 1);
        // A later access is one fetch, and finds what was synced.
        world.touch(2, 3, false);
        world.deliver_all();
        assert_eq!(world.requests, sharing as u32 + 2);
        assert_eq!(world.frames[2][3], world.frames[1][3]);
    }
}

#[test]
fn what_was_written_here_survives_anothers_sync_and_the_last_sync_wins() {
    let mut world = World::new(3, 1);
    for host in 1..3 {
        world.touch(host, 0, true);
        world.deliver_all();
        world.touch(host, 0, true);
    }
    let (first, second) = (world.frames[1][0], world.frames[2][0]);
    world.sync(1);
    world.deliver_all();
    assert_eq!((world.saved[0], world.frames[2][0], world.conflicts), (first, second, 0));
    world.sync(2);
    world.deliver_all();
    assert_eq!((world.saved[0], world.frames[1][0], world.conflicts), (second, GONE, 1));
}
