//! A host among its fellows: the paper's pager with Figures 6 and 7, and its kernel.

use super::members::View;
use super::message::Message;
use super::page::{MOST_UPDATES, Page, Purpose};
use super::round::{Report, Round};
use super::table::Table;
use crate::central::OnLoss;
use crate::event::{Access, Action, Carried, Event, Kind, NotRead, Scheduler, Why};
use crate::span::{HostId, Span};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Messages that wait for the end of a round: far more than honest hosts have under way.
const MOST_WAITING: usize = 1 << 17;

/// Where to.
pub(super) type Actions = Vec<Action<Message>>;

/// How an object is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether pages stay for a minimum hold.
    pub has_hold: bool,
    /// How often a request to read is forwarded before it becomes one to write, which none can outrun.
    pub patience: u32,
    /// What serves a page whose newest version is lost.
    pub on_loss: OnLoss,
    /// On how many hosts beside its owner a version is kept before any of them, or another, has it: losing as many hosts
    /// loses nothing that somebody else has read.
    pub replicas: u32,
    /// A page that this host has written after it had read it so many times in a row, at most 3, is asked for to be written
    /// when it is read.
    pub migrates_after: u8,
}

impl Default for Options {
    fn default() -> Options {
        Options { has_hold: true, patience: 64, on_loss: OnLoss::Error, replicas: 0, migrates_after: 2 }
    }
}

/// How far a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Not admitted by the home; whether it was asked.
    Outside { has_asked: bool },
    /// Admitted; not all who were before it know of it.
    Meeting,
    /// Requests are made and served.
    Running,
    /// A loss is being settled: nothing is asked, nothing given.
    Frozen,
}

/// One host's part of an object that is scheduled by forwarding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) me: HostId,
    /// Where the object begins: it owns what nobody has asked for, and admits newcomers.
    pub(super) home: HostId,
    /// The first hint of every page: from whom this host copied the object. Any host that has it will do. After a loss
    /// it is who settled it, and knows of every page.
    pub(super) first_hint: HostId,
    pub(super) options: Options,
    pub(super) pages: Table,
    pub(super) view: View,
    pub(super) phase: Phase,
    /// Members that know that this host is one.
    pub(super) met: BTreeSet<HostId>,
    /// Members whose messages are of this host's epoch by now.
    pub(super) flushed: BTreeSet<HostId>,
    /// Lost hosts that were no members as far as is known here, and who follows them.
    pub(super) gone: BTreeMap<HostId, Option<HostId>>,
    /// What faults here want that cannot be asked for yet.
    pub(super) pending: BTreeMap<u32, Access>,
    /// Messages of this epoch from hosts that have settled it before this one.
    pub(super) inbox: VecDeque<(HostId, Message)>,
    pub(super) round: Round,
    /// The processes before this one that it speaks for.
    pub(super) speaks_for: Vec<HostId>,
    /// Reverts of the epoch that was settled last.
    pub(super) settled_reverts: u32,
    /// No process here uses the object.
    pub(super) has_left: bool,
    /// Pages that a process here holds: others may read them, and get them when they are let.
    pub(super) locked: BTreeSet<u32>,
    /// Pages of this host that have too few keepers since a loss; of some of them that is being seen to.
    pub(super) to_fill: BTreeSet<u32>,
    pub(super) filling: BTreeSet<u32>,
}

impl Node {
    /// The host `me` of an object that begins at `home`; whoever is not the home asks it to be admitted.
    pub fn new(me: HostId, home: HostId, options: Options) -> Node {
        let is_home = me == home;
        let ranks = is_home.then_some((me, 0)).into_iter().collect();
        Node {
            me,
            home,
            first_hint: home,
            options,
            pages: Table::default(),
            view: View { ranks, ..View::default() },
            phase: if is_home { Phase::Running } else { Phase::Outside { has_asked: false } },
            met: BTreeSet::new(),
            flushed: BTreeSet::new(),
            gone: BTreeMap::new(),
            pending: BTreeMap::new(),
            inbox: VecDeque::new(),
            round: Round::default(),
            speaks_for: Vec::new(),
            settled_reverts: 0,
            has_left: false,
            locked: BTreeSet::new(),
            to_fill: BTreeSet::new(),
            filling: BTreeSet::new(),
        }
    }

    /// The host `me` of an object that all `members` begin to use together, the first of them being its home; `me` copies
    /// it from `origin`, which has its copy from the home or from another.
    pub fn founder(me: HostId, origin: HostId, members: &[HostId], options: Options) -> Node {
        let mut node = Node::new(me, members[0], options);
        node.first_hint = origin;
        node.view.ranks = members.iter().copied().zip(0..).collect();
        node.met = members.iter().copied().filter(|host| *host != me).collect();
        node.phase = Phase::Running;
        node
    }

    /// Who owns a page, as far as this host knows (Figure 8 of the paper).
    pub fn hint(&self, page: u32) -> HostId {
        self.pages.glance(page).map_or(self.first_hint, |page| page.hint)
    }

    /// Whether this host owns a page.
    pub fn owns(&self, page: u32) -> bool {
        self.pages.glance(page).map_or(self.me == self.home, |page| page.owned)
    }

    /// Which of these pages another host waits for that this one is to have no more.
    pub fn wanted_in(&self, span: Span) -> Vec<u32> {
        let within = |number: u32| span.pages().contains(&number);
        let wanted = self.pages.busy().filter(|(_, page)| page.next.is_some() || !page.deferred.is_empty());
        wanted.map(|(number, _)| number).filter(|number| within(*number)).collect()
    }

    /// Whether anything is under way with a page that may have to wait for the end of its minimum hold.
    pub fn waits_for_hold(&self, page: u32) -> bool {
        self.has_left || self.pages.busy_one(page).is_some_and(Page::is_waited_for)
    }

    /// Whether this host owns any page, or may come to: until it does not, its frames are needed. The home owns what
    /// nobody has asked for.
    pub fn owns_anything(&self) -> bool {
        self.me == self.home
            || !self.pending.is_empty()
            || self.pages.busy().any(|(_, page)| page.asked != Access::None)
            || self.pages.glances().any(|(_, page)| page.owned)
    }

    /// Who takes part, and who is lost, as far as this host knows.
    pub fn members(&self) -> &View {
        &self.view
    }

    /// At a home that begins anew: the newest versions of these pages were with other hosts, and are lost. What this host
    /// has of them is the version before.
    pub fn were_lost(&mut self, pages: impl IntoIterator<Item = u32>) {
        if self.options.on_loss == OnLoss::Error {
            let lost = |page| (page, Page { kept: Some(0), ..Page::lost(self.me, self.settled_reverts) });
            pages.into_iter().map(lost).for_each(|(number, page)| self.pages.insert(number, page));
        }
    }

    /// Pages that this host knows to be lost.
    pub fn lost_pages(&self) -> Vec<u32> {
        self.pages.glances().filter(|(_, page)| page.lost.is_some()).map(|(number, _)| number).collect()
    }

    /// A page of which nothing is noted.
    pub(super) fn untouched(&self) -> Page {
        if self.me == self.home {
            Page::origin(self.me)
        } else if self.me == self.first_hint {
            // The home is lost, and whatever living hosts had was settled.
            Page::lost(self.me, self.settled_reverts)
        } else {
            Page::unknown(self.first_hint)
        }
    }

    pub(super) fn page(&mut self, number: u32) -> &mut Page {
        let untouched = if self.pages.contains(number) { None } else { Some(self.untouched()) };
        self.pages.entry(number, || untouched.expect("made just now where it is needed"))
    }

    /// A process here wants a page (Figures 2 and 3 for the host's own kernel).
    pub(super) fn want(&mut self, number: u32, access: Access, actions: &mut Actions) {
        self.want_of(number, access, false, actions);
    }

    /// The same of a process that may write the page or not.
    fn want_of(&mut self, number: u32, access: Access, may_write: bool, actions: &mut Actions) {
        let may = self.access(number);
        if may >= access {
            actions.push(Action::Install { span: Span::one(number), access: may, with_data: false });
            return;
        }
        if self.phase != Phase::Running {
            return self.want_later(number, access, actions);
        }
        let (me, migrates_after) = (self.me, self.options.migrates_after);
        let page = self.page(number);
        if page.lost.is_some() {
            page.wants = Access::None;
            actions.push(Action::Fail { page: number, why: Why::NewestLost });
            return;
        }
        page.wants = page.wants.max(access);
        if page.asked != Access::None {
            return;
        }
        page.asked = page.wants;
        if page.wants == Access::Write && page.access == Access::Read && !page.owned {
            page.updates = (page.updates + 1).min(MOST_UPDATES);
        }
        if page.owned && page.purpose.is_none() && page.access == Access::None {
            self.fill(number, actions);
        } else if page.owned && page.purpose.is_none() {
            self.invalidate_owned(number, Purpose::Write, me, actions);
        } else if page.purpose == Some(Purpose::Publish(None)) {
            // When others keep what is here now.
        } else if page.wants == Access::Write || may_write && page.updates >= migrates_after {
            self.ask_to_write(number, actions);
        } else {
            let message = Message::Read { page: number, who: me, hops: 0 };
            actions.push(Action::Send { to: page.hint, message });
        }
    }

    /// Asks for the page itself. This host is the last in the order of its owners from now on.
    pub(super) fn ask_to_write(&mut self, number: u32, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        page.asked = Access::Write;
        let to = std::mem::replace(&mut page.hint, me);
        let message = Message::Write { page: number, who: me, keeps_copy: page.keeps_copy() };
        actions.push(Action::Send { to, message });
    }

    /// Nothing can be asked for yet.
    fn want_later(&mut self, number: u32, access: Access, actions: &mut Actions) {
        if matches!(self.phase, Phase::Outside { .. }) && self.gone.contains_key(&self.home) {
            actions.push(Action::Fail { page: number, why: Why::HomeLost });
            return;
        }
        let wanted = self.pending.entry(number).or_insert(access);
        *wanted = access.max(*wanted);
        self.ask_to_join(actions);
    }

    fn message(&mut self, from: HostId, message: Message, actions: &mut Actions) {
        if self.view.epoch.lost.contains_key(&from) {
            return; // its messages end where its loss is known
        }
        match message {
            Message::NotRead { page } if from == self.me => self.not_sent(page, actions),
            Message::Join => self.asked_to_join(from, actions),
            Message::Welcome(view) | Message::Hello(view) if view.epoch.lost.contains_key(&self.me) => {}
            Message::Welcome(view) => self.welcomed(from, &view, actions),
            Message::Hello(view) => self.greeted(from, &view, actions),
            Message::Known(view) => self.known(from, &view, actions),
            Message::Flush(epoch) => self.flush(from, &epoch, actions),
            // Whoever takes part is known before it asks for anything: what anybody else says, or asks for others, is let
            // go by.
            message if !self.is_of_members(from, &message) => {}
            // Until its flush is in, what a host says is of an epoch before.
            message if self.view.epoch.is_first() || self.flushed.contains(&from) => {
                self.said_now(from, message, actions);
            }
            message => self.said_before(message, actions),
        }
    }

    /// Whether it was said by a member, for a member.
    fn is_of_members(&self, from: HostId, message: &Message) -> bool {
        let is_member = |host: &HostId| self.view.ranks.contains_key(host);
        let about = match message {
            Message::Read { who, .. } | Message::Write { who, .. } => *who,
            Message::Invalidate { owner, .. } => *owner,
            _ => from,
        };
        is_member(&from) && is_member(&about)
    }

    /// Whether this host asked for that and has not got it: nothing else is taken from others, least of all in place of what
    /// it has newest itself.
    pub(super) fn has_asked(&self, number: u32, access: Access) -> bool {
        self.pages.busy_one(number).is_some_and(|page| page.asked == access && !page.owned)
    }

    /// A message of this host's epoch.
    fn said_now(&mut self, from: HostId, message: Message, actions: &mut Actions) {
        match message {
            Message::Report { pages, settled_reverts, speaks_for, is_last } => {
                let report = Report { pages, settled_reverts, speaks_for, is_complete: is_last };
                self.reported(from, report, actions);
            }
            Message::Settle { pages, is_last } => self.settle_part(from, pages, is_last, actions),
            Message::Replica { page, number } => self.replica_now(from, page, number, actions),
            message if self.phase == Phase::Running => self.serve(from, message, actions),
            // Who never settles fills no memory: what more is asked for waits for nothing.
            _ if self.inbox.len() >= MOST_WAITING => {}
            message => self.inbox.push_back((from, message)),
        }
    }

    /// A message of an epoch before: pages count until all flushes are in, whatever else it was is asked anew.
    fn said_before(&mut self, message: Message, actions: &mut Actions) {
        if self.phase != Phase::Frozen {
            return;
        }
        match message {
            Message::Copy { page } if self.has_asked(page, Access::Read) => {
                self.received(page, false, Access::Read, actions);
            }
            Message::HandOver { page, number, keepers, before } if self.has_asked(page, Access::Write) => {
                self.handed_over(page, number, keepers, before, actions);
            }
            Message::Forget { page, number } => self.forget(page, number, actions),
            // Whoever waits for the answer begins anew.
            Message::Replica { page, number } => self.replica(page, number, actions),
            _ => {}
        }
    }
}

impl Scheduler for Node {
    type Message = Message;

    fn kind(message: &Message) -> Kind {
        message.kind()
    }

    fn carries(message: &Message) -> Carried {
        match message {
            Message::Copy { page } | Message::HandOver { page, .. } | Message::Replica { page, .. } => {
                Carried::Frames(vec![*page])
            }
            _ => Carried::Nothing,
        }
    }

    fn not_read(message: &Message, me: HostId, _to: HostId) -> Option<NotRead<Message>> {
        let (page, is_told, stays) = match message {
            Message::Copy { page } => (*page, true, false),
            Message::HandOver { page, .. } => (*page, true, true),
            Message::Replica { page, .. } => (*page, false, true),
            _ => return None,
        };
        let message = Message::NotRead { page };
        let heard = stays.then(|| (me, message.clone())).into_iter().collect();
        Some(NotRead { told: is_told.then_some(message), heard })
    }

    fn handle(&mut self, event: Event<Message>, actions: &mut Actions) {
        match event {
            Event::Fault { span, access, may_write } => {
                self.has_left = false;
                for number in span.pages() {
                    self.want_of(number, access, may_write, actions);
                    if self.locked.contains(&number) {
                        self.let_late_go(number, actions); // what this host waits for itself it does not keep
                    }
                }
            }
            Event::Evict { page } => self.evict(page, actions),
            Event::HoldOver { page } => self.hold_over(page, actions),
            Event::Message { from, message } => self.message(from, message, actions),
            Event::Lost { host, followed_by } => self.lost(host, followed_by, actions),
            Event::Join => self.ask_to_join(actions),
            Event::Leave => self.leave(actions),
            Event::Revert => self.revert(actions),
            Event::Lock { span } => self.locked.extend(span.pages()),
            Event::Unlock { span } => {
                for page in span.pages() {
                    self.locked.remove(&page);
                    self.let_late_go(page, actions);
                }
            }
            Event::Written { .. } | Event::Sync { .. } => {}
        }
        self.pages.tidy();
    }

    fn access(&self, page: u32) -> Access {
        let untouched = if self.me == self.home { Access::Write } else { Access::None };
        self.pages.glance(page).map_or(untouched, |page| page.access)
    }

    fn next_process(&self, me: HostId) -> Option<Node> {
        let mut next = Node::new(me, self.home, self.options);
        let all = self.speaks_for.iter().copied().chain([self.me]).collect();
        next.follow(all, self.leaves_behind());
        (self.me != self.home).then_some(next)
    }

    fn is_waiting(&self) -> bool {
        let waits = |page: &Page| {
            page.asked != Access::None
                || page.purpose.is_some()
                || page.next.is_some()
                || !page.readers.is_empty()
        };
        self.phase == Phase::Frozen
            || !self.pending.is_empty()
            || self.pages.busy().any(|(_, page)| waits(page))
    }
}
