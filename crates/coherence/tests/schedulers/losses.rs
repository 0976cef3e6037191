//! Members, losses and leaving under the distributed scheduler, step by step. Their interleavings are searched by
//! `commonhold-simulator`.

use commonhold_coherence::central::OnLoss;
use commonhold_coherence::forwarding::{Message, Node, Options};
use commonhold_coherence::{Access, Action, Event, HostId, Scheduler, Span, Why};
use std::collections::{BTreeSet, VecDeque};

pub const PAGE: u32 = 3;
pub const HOME: usize = 0;

/// Hosts, and the versions of one page that they have.
pub struct Hosts {
    options: Options,
    pub nodes: Vec<Node>,
    dead: BTreeSet<usize>,
    under_way: VecDeque<(usize, usize, Message, u32)>,
    frames: Vec<u32>,
    pub kept: Vec<Option<u32>>,
    pub failed: Vec<(usize, Why)>,
    /// Who said that a page went back.
    reverted: Vec<(usize, u32)>,
    /// Messages of rounds and of members.
    rounds: usize,
    pub said: Vec<Message>,
}

impl Hosts {
    /// The home, and hosts that were admitted one after the other.
    fn new(hosts: u32, on_loss: OnLoss) -> Hosts {
        Hosts::with(hosts, Options { on_loss, has_hold: false, ..Options::default() })
    }

    pub fn with(hosts: u32, options: Options) -> Hosts {
        let nodes = (0..hosts).map(|me| Node::new(HostId(me), HostId(HOME as u32), options)).collect();
        let mut all = Hosts {
            options,
            nodes,
            dead: BTreeSet::new(),
            under_way: VecDeque::new(),
            frames: vec![0; hosts as usize],
            kept: vec![None; hosts as usize],
            failed: Vec::new(),
            reverted: Vec::new(),
            rounds: 0,
            said: Vec::new(),
        };
        (1..hosts as usize).for_each(|host| all.happens(host, Event::Join));
        all
    }

    /// One more host takes part.
    pub fn comes(&mut self) {
        let me = self.nodes.len();
        self.nodes.push(Node::new(HostId(me as u32), HostId(HOME as u32), self.options));
        self.frames.push(0);
        self.kept.push(None);
        self.happens(me, Event::Join);
    }

    fn step(&mut self, host: usize, event: Event<Message>, came: u32) {
        let mut actions = Vec::new();
        self.nodes[host].handle(event, &mut actions);
        for action in actions {
            match action {
                Action::Send { to, message } => {
                    let to = to.0 as usize;
                    self.said.push(message.clone());
                    self.rounds += usize::from(message.pages().len() != 1);
                    if !self.dead.contains(&to) {
                        self.under_way.push_back((host, to, message, self.frames[host]));
                    }
                }
                Action::Install { with_data: true, .. } => self.frames[host] = came,
                Action::KeepSent { .. } | Action::KeepRead { .. } => {
                    self.kept[host] = Some(self.frames[host])
                }
                Action::KeepCame { .. } => self.kept[host] = Some(came),
                Action::DropKept { .. } => self.kept[host] = None,
                Action::Restore { .. } => self.frames[host] = self.kept[host].take().expect("it is kept"),
                Action::NewestLost { page, older_serves: true } => self.reverted.push((host, page)),
                Action::Fail { why, .. } => self.failed.push((host, why)),
                _ => {}
            }
        }
    }

    fn deliver(&mut self) -> bool {
        let Some((from, to, message, version)) = self.under_way.pop_front() else { return false };
        if !self.dead.contains(&to) {
            self.step(to, Event::Message { from: HostId(from as u32), message }, version);
        }
        true
    }

    /// An event, and all that follows.
    pub fn happens(&mut self, host: usize, event: Event<Message>) {
        self.step(host, event, 0);
        while self.deliver() {}
    }

    fn touch(&mut self, host: usize, access: Access) {
        self.happens(host, Event::Fault { span: Span::one(PAGE), access, may_write: false });
    }

    pub fn write(&mut self, host: usize, version: u32) {
        self.touch(host, Access::Write);
        assert_eq!(self.nodes[host].access(PAGE), Access::Write, "host {host}");
        self.frames[host] = version;
    }

    /// A host dies; the others learn it one after the other.
    pub fn lose(&mut self, lost: usize) {
        self.dead.insert(lost);
        self.under_way.retain(|(from, ..)| *from != lost);
        for host in (0..self.nodes.len()).filter(|host| !self.dead.contains(host)).collect::<Vec<_>>() {
            self.step(host, Event::Lost { host: HostId(lost as u32), followed_by: None }, 0);
        }
        while self.deliver() {}
    }

    pub fn reads(&mut self, host: usize, version: u32) {
        self.touch(host, Access::Read);
        assert_eq!(
            (self.nodes[host].access(PAGE), self.frames[host]),
            (Access::Read, version),
            "host {host}"
        );
    }
}

#[test]
fn a_newcomer_is_known_to_all_before_it_and_all_know_each_other() {
    let hosts = Hosts::new(4, OnLoss::Error);
    for node in &hosts.nodes {
        assert_eq!(node.members().ranks.len(), 4);
        assert_eq!(node.members().leader(), Some(HostId(0)));
    }
    // Join and Welcome; Hello and Known with each host before.
    assert_eq!(hosts.rounds, 3 * 2 + (1 + 2 + 3) * 2);
}

#[test]
fn a_page_that_died_with_its_owner_fails_until_it_is_wanted_back() {
    let mut hosts = Hosts::new(3, OnLoss::Error);
    hosts.write(HOME, 1);
    hosts.write(1, 2);
    hosts.lose(1);
    hosts.touch(2, Access::Read);
    hosts.touch(HOME, Access::Write);
    assert_eq!(hosts.failed, [(2, Why::NewestLost), (HOME, Why::NewestLost)]);
    assert_eq!(hosts.nodes[HOME].lost_pages(), [PAGE]);
    hosts.happens(2, Event::Revert);
    hosts.reads(2, 1);
    assert!(hosts.nodes[HOME].lost_pages().is_empty() && hosts.failed.len() == 2);
    assert_eq!(hosts.reverted, [(HOME, PAGE)]);
    // Once wanted back is not for ever.
    hosts.write(2, 3);
    hosts.lose(2);
    hosts.touch(HOME, Access::Read);
    assert_eq!(hosts.failed.len(), 3);
}

#[test]
fn with_revert_the_version_that_was_handed_to_the_dead_host_serves() {
    let mut hosts = Hosts::new(4, OnLoss::Revert);
    for (host, version) in [(1, 1), (2, 2), (3, 3)] {
        hosts.write(host, version);
    }
    // Host 1's is not needed any more: host 3 has the page, and host 2 keeps what it sent. The home's is kept for ever.
    assert_eq!(hosts.kept, [Some(0), None, Some(2), None]);
    hosts.lose(3);
    hosts.reads(1, 2);
    assert_eq!(hosts.reverted, [(HOME, PAGE)]);
    hosts.write(1, 4);
    hosts.lose(1);
    assert_eq!(hosts.reverted, [(HOME, PAGE), (HOME, PAGE)]);
    hosts.lose(HOME);
    hosts.reads(2, 2);
    assert!(hosts.failed.is_empty());
}

/// A sync makes the home read what others wrote: no loss takes that back, though a host keeps what it sent before.
#[test]
fn what_the_home_read_is_newer_than_what_was_handed_over_before() {
    let mut hosts = Hosts::new(4, OnLoss::Revert);
    hosts.write(2, 5);
    hosts.write(1, 6);
    assert_eq!(hosts.kept[2], Some(5));
    hosts.reads(HOME, 6);
    hosts.reads(3, 6);
    hosts.write(1, 7);
    hosts.lose(1);
    hosts.reads(3, 6);
    hosts.reads(2, 6);
    assert_eq!(hosts.reverted, [(HOME, PAGE)]);
}

#[test]
fn copies_beside_a_dead_owner_are_the_newest_version() {
    let mut hosts = Hosts::new(4, OnLoss::Error);
    hosts.write(3, 7);
    hosts.reads(1, 7);
    hosts.reads(2, 7);
    hosts.lose(3);
    hosts.reads(HOME, 7);
    hosts.write(2, 8);
    assert!(hosts.nodes[1].access(PAGE) == Access::None && hosts.failed.is_empty());
    assert!(hosts.reverted.is_empty(), "nothing went back");
}

#[test]
fn a_loss_takes_a_flush_for_each_pair_and_a_report_and_an_answer() {
    let mut hosts = Hosts::new(5, OnLoss::Error);
    hosts.rounds = 0;
    hosts.lose(4);
    assert_eq!(hosts.rounds, 4 * 3 + 3 * 2);
}

#[test]
fn the_home_may_die_and_what_others_have_stays() {
    let mut hosts = Hosts::new(3, OnLoss::Error);
    hosts.write(2, 5);
    hosts.lose(HOME);
    hosts.write(1, 6);
    hosts.reads(2, 6);
    // What the home never gave to anybody is lost with it.
    hosts.happens(1, Event::Fault { span: Span::one(PAGE + 1), access: Access::Read, may_write: false });
    hosts.happens(2, Event::Fault { span: Span::one(PAGE + 2), access: Access::Write, may_write: false });
    assert_eq!(hosts.failed, [(1, Why::NewestLost), (2, Why::NewestLost)]);
}

#[test]
fn whoever_leaves_gives_what_it_has_newest_to_the_home() {
    let mut hosts = Hosts::new(3, OnLoss::Error);
    hosts.write(1, 9);
    hosts.reads(2, 9);
    hosts.happens(2, Event::Leave);
    assert!(hosts.nodes[2].access(PAGE) == Access::None && hosts.nodes[1].owns(PAGE));
    hosts.happens(1, Event::Leave);
    assert!(!hosts.nodes[1].owns_anything() && hosts.nodes[HOME].owns(PAGE));
    assert_eq!(hosts.frames[HOME], 9);
    hosts.reads(1, 9);
}

#[test]
fn a_newcomer_that_died_before_it_was_known_keeps_nobody_waiting() {
    let mut hosts = Hosts::new(2, OnLoss::Error);
    let options = Options { has_hold: false, ..Options::default() };
    for me in 2..4 {
        hosts.nodes.push(Node::new(HostId(me), HostId(HOME as u32), options));
        hosts.frames.push(0);
        hosts.kept.push(None);
    }
    // Host 2 is admitted and dies. Hosts 1 and 3 hear of that while they do not know that it was a member.
    hosts.step(2, Event::Join, 0);
    assert!(hosts.deliver());
    hosts.dead.insert(2);
    for host in [1, 3] {
        hosts.step(host, Event::Lost { host: HostId(2), followed_by: None }, 0);
    }
    // The home, which has not heard, admits host 3, says who is before it, and dies.
    hosts.step(3, Event::Join, 0);
    while !hosts.nodes[3].members().ranks.contains_key(&HostId(3)) {
        assert!(hosts.deliver());
    }
    assert!(hosts.nodes[3].members().ranks.contains_key(&HostId(2)));
    hosts.lose(HOME);
    hosts.touch(3, Access::Write);
    assert_eq!(hosts.failed, [(3, Why::NewestLost)], "it was not asked for before");
    assert!([1, 3].iter().all(|host| !hosts.nodes[*host].is_waiting()));
}
