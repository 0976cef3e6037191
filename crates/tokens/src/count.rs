//! The home counts the tokens anew, when one may be lost with a host, and when a host leaves: all that take part say what they have,
//! and nothing moves until the home has said where each token is. Threads lock and unlock meanwhile what is where they are. What
//! was on its way is of an earlier count, and is not heard any more.

use crate::early::Early;
use crate::event::{Action, Event, Has, Kept, Leaving, Message, Placed, State, Timer};
use crate::part::{Home, Part, Phase, Said};
use crate::token::{Monitor, Token};
use commonhold_coherence::HostId;
use std::collections::{BTreeMap, BTreeSet};

/// A token that is made anew is so many moves ahead of what a host that is lost, and lives, may have made of the one before.
const AHEAD: u64 = 1 << 10;

/// What all say of one token.
#[derive(Default)]
struct Gathered {
    /// Who has it: the count that it knew, and whether it is the home.
    holder: Option<(u64, bool, HostId)>,
    waits: Vec<HostId>,
    /// Its last holder left, and had it: whether an owner died.
    left: Option<bool>,
    /// It went to a host that takes part, or to one that does not.
    went_to: [bool; 2],
    /// When it went, an owner had died.
    went_died: bool,
    /// The newest that anybody knows.
    kept: Kept,
    readers: Vec<(HostId, u32)>,
}

impl Gathered {
    fn went(&mut self, has: &Has, home: &Home) {
        if let Some(to) = has.went_to {
            self.went_to[usize::from(home.users.contains_key(&to))] = true;
            self.went_died |= !has.here && has.died;
        }
    }
}

impl Home {
    /// A host left that had this. If it has come and left again since the last count: what it had either time.
    fn has_left(&mut self, host: HostId, at: u64, has: Has) {
        let (knew, known) = self.left.entry((host, has.index)).or_insert((at, has));
        *knew = at.max(*knew);
        known.here |= has.here;
        known.died |= has.died;
        known.went_to = has.went_to.or(known.went_to);
        known.kept = known.kept.max(has.kept);
    }
}

impl Part {
    /// Homes, and hosts that come and go.
    pub(crate) fn about_hosts(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Home(home) => self.home_is(home, actions),
            Event::HomeIsAway => {
                (self.home, self.phase) = (None, Phase::Away);
                self.at_home = Home::default();
                self.early = Early::default();
            }
            Event::Over(Timer::Opens) if self.at_home.opens && self.is_home() => {
                self.at_home.opens = false;
                self.decide_if_all_said(actions);
            }
            // What it said to a home that does not know yet that it is: who follows it says it again.
            Event::Lost(host) if self.home.is_none() => self.early.forget(host),
            Event::Lost(host) if self.at_home.gone.remove(&host) => {}
            Event::Lost(host) if self.at_home.users.contains_key(&host) => {
                actions.push(Action::Wait(Timer::Follows(host)));
            }
            Event::Follows { former, by } if self.has_spoken(by) => self.gone(former, actions),
            Event::Over(Timer::Follows(host)) => {
                self.at_home.has_lost |= self.at_home.users.contains_key(&host);
                self.gone(host, actions);
            }
            _ => {}
        }
    }

    fn home_is(&mut self, home: HostId, actions: &mut Vec<Action>) {
        if self.home == Some(home) {
            return;
        }
        self.home = Some(home);
        self.phase = Phase::Still;
        if home == self.me {
            let said = (self.known, self.has());
            self.at_home = Home { users: [(home, Some(said))].into(), opens: true, ..Home::default() };
            actions.push(Action::Wait(Timer::Opens));
            // Some have heard sooner than this host that it is the home.
            for (from, message) in self.early.take() {
                self.handle(Event::Said { from, message }, actions);
            }
        } else {
            if std::mem::take(&mut self.has_others) {
                (0..self.mutexes)
                    .for_each(|index| _ = self.tokens.entry(index).or_insert_with(Token::at_hand));
            }
            let (count, known, has) = (self.count, self.known, self.has());
            actions.push(Action::Send(home, Message::Join { count, known, has }));
        }
    }

    /// At the home: whether a host has said what it has, or had.
    fn has_spoken(&self, host: HostId) -> bool {
        self.at_home.users.contains_key(&host) || self.at_home.gone.contains(&host)
    }

    /// A host takes part no more.
    fn gone(&mut self, host: HostId, actions: &mut Vec<Action>) {
        if host != self.me && self.is_home() && self.at_home.users.remove(&host).is_some() {
            self.count_anew(actions);
        }
    }

    /// What is said of counts.
    pub(crate) fn about_counts(&mut self, from: HostId, message: Message, actions: &mut Vec<Action>) {
        let from_home = self.home == Some(from) && !self.is_home();
        match message {
            Message::Join { .. } if self.home.is_none() => self.early.push(from, message),
            Message::Join { count, known, has } if self.is_home() => {
                self.joins(from, count, (known, has), actions);
            }
            Message::Leave(leaving) if self.is_home() => self.leaves_home(from, leaving, actions),
            Message::Counted { count, known, has } if self.is_home() && count == self.count => {
                let known = known.min(self.known);
                if let Some(said) = self.at_home.users.get_mut(&from) {
                    *said = Some((known, has));
                    self.decide_if_all_said(actions);
                }
            }
            Message::Count { count } if from_home && count > self.count => {
                (self.count, self.phase) = (count, Phase::Still);
                let (known, has) = (self.known, self.has());
                actions.push(Action::Send(from, Message::Counted { count, known, has }));
            }
            Message::Begin { count, placed }
                if from_home && count >= self.count && self.phase == Phase::Still =>
            {
                self.begin(count, placed, actions);
            }
            _ => {}
        }
    }

    /// A host leaves. It says so again until this home has counted. One that this home does not know took part with the process before
    /// it: what it had is worth nothing where a later count has ended.
    fn leaves_home(&mut self, from: HostId, leaving: Leaving, actions: &mut Vec<Action>) {
        let Leaving { known, has } = leaving;
        let takes_part = self.at_home.users.remove(&from).is_some();
        let is_known = !self.at_home.gone.insert(from);
        if takes_part || !is_known && (known == 0 || known >= self.known) {
            let at = if takes_part { u64::MAX } else { known };
            has.into_iter().for_each(|has| self.at_home.has_left(from, at, has));
            self.count_anew(actions);
        }
    }

    fn joins(&mut self, from: HostId, heard: u64, said: Said, actions: &mut Vec<Action>) {
        let has_nothing = said.1.is_empty() && heard <= self.count;
        // Who was not there when this home counted last knows less than who was.
        let said = if self.known == 0 { said } else { (said.0.min(self.known - 1), said.1) };
        let is_new = !self.at_home.users.contains_key(&from);
        self.at_home.heard = self.at_home.heard.max(heard);
        self.at_home.users.insert(from, Some(said.clone()));
        self.at_home.gone.remove(&from);
        if self.phase == Phase::Begun && has_nothing && is_new {
            let count = self.count;
            actions.push(Action::Send(from, Message::Begin { count, placed: Vec::new() }));
            return;
        }
        self.still(actions);
        self.at_home.users.insert(from, Some(said));
        self.decide_if_all_said(actions);
    }

    fn count_anew(&mut self, actions: &mut Vec<Action>) {
        self.still(actions);
        self.decide_if_all_said(actions);
    }

    /// At the home: all are to say what they have, if they are not saying it already.
    fn still(&mut self, actions: &mut Vec<Action>) {
        if self.phase != Phase::Begun {
            return;
        }
        (self.count, self.phase) = (self.count.saturating_add(1), Phase::Still);
        for (host, said) in self.at_home.users.iter_mut().filter(|(host, _)| **host != self.me) {
            *said = None;
            actions.push(Action::Send(*host, Message::Count { count: self.count }));
        }
        let own = (self.known, self.has());
        self.at_home.users.insert(self.me, Some(own));
    }

    fn decide_if_all_said(&mut self, actions: &mut Vec<Action>) {
        let all_said = self.at_home.users.values().all(Option::is_some);
        if self.phase != Phase::Still || self.at_home.opens || !all_said {
            return;
        }
        let placed = self.place();
        // A home that follows another goes on from there.
        self.count = self.count.max(self.at_home.heard.saturating_add(1));
        for host in self.at_home.users.keys().filter(|host| **host != self.me) {
            let message = Message::Begin { count: self.count, placed: placed.clone() };
            actions.push(Action::Send(*host, message));
        }
        self.begin(self.count, placed, actions);
    }

    /// Where each token is, by what all said.
    fn place(&mut self) -> Vec<Placed> {
        let me = self.me;
        let own = (self.known, self.has()); // what happened here since the count began is of this host alone
        self.at_home.users.insert(me, Some(own));
        let mut all: BTreeMap<u32, Gathered> = BTreeMap::new();
        if !self.has_others {
            // Another host was the home: this one has from now on what nobody says to have.
            all.extend((0..self.mutexes).map(|index| (index, Gathered::default())));
        }
        for (host, said) in &self.at_home.users {
            let Some((known, has)) = said else { continue };
            for has in has.iter().filter(|has| has.index < self.mutexes) {
                let gathered = all.entry(has.index).or_default();
                if has.here {
                    gathered.holder = gathered.holder.max(Some((*known, *host == me, *host)));
                }
                if has.waits {
                    gathered.waits.push(*host);
                }
                gathered.went(has, &self.at_home);
                gathered.kept = gathered.kept.max(has.kept);
                if has.readers > 0 {
                    gathered.readers.push((*host, has.readers));
                }
            }
        }
        let newest = self.at_home.users.values().flatten().map(|(known, _)| *known).max().unwrap_or(0);
        for (at, has) in self.at_home.left.values() {
            let gathered = all.entry(has.index).or_default();
            gathered.kept = gathered.kept.max(has.kept);
            if *at >= newest {
                gathered.went(has, &self.at_home);
                if has.here {
                    gathered.left = Some(has.died);
                }
            }
        }
        self.at_home.left.clear();
        let is_missed = std::mem::take(&mut self.at_home.has_lost) && self.are_monitors;
        let mut placed = Vec::new();
        for (index, mut gathered) in all {
            let at_first = self.has_others && !self.tokens.contains_key(&index);
            let at_home = at_first.then_some((self.known, true, me));
            let holder = gathered.holder.max(at_home).map(|(_, _, host)| host);
            let [went_away, went_to_user] = gathered.went_to;
            let died = match (holder, gathered.left) {
                (Some(_), _) => false, // the word says it
                (None, Some(died)) => died,
                // It was on its way, unless a host may have had it that is lost.
                (None, None) => went_away || !went_to_user || gathered.went_died,
            };
            if holder.is_none() {
                gathered.kept.moves = gathered.kept.moves.wrapping_add(AHEAD);
            }
            let holder = holder.unwrap_or(me);
            let (after, before): (Vec<HostId>, Vec<HostId>) =
                gathered.waits.into_iter().filter(|host| *host != holder).partition(|host| *host > holder);
            let queue = after.into_iter().chain(before).collect();
            let (kept, readers) = (gathered.kept, gathered.readers);
            let state = State { kept, readers, is_missed, ..State::default() };
            placed.push(Placed { index, holder, died, queue, state });
        }
        placed
    }

    /// The home has counted.
    fn begin(&mut self, count: u64, placed: Vec<Placed>, actions: &mut Vec<Action>) {
        (self.count, self.known, self.phase) = (count, count, Phase::Begun);
        let before = std::mem::take(&mut self.tokens);
        let (mutexes, is_home) = (self.mutexes, self.is_home());
        let had_others = std::mem::replace(&mut self.has_others, is_home);
        self.at_home.users.values_mut().for_each(|said| *said = None);
        let mut named = BTreeSet::new();
        for placed in placed.into_iter().filter(|placed| placed.index < mutexes) {
            named.insert(placed.index);
            let old = before.get(&placed.index).cloned();
            let old = old.unwrap_or(Token { here: had_others, ..Token::default() });
            self.placed(placed, old, actions);
        }
        for (index, old) in before.into_iter().filter(|(index, _)| !named.contains(index)) {
            let Some(holder) = self.home else { continue };
            let (queue, state) = (Vec::new(), State::default());
            self.placed(Placed { index, holder, died: false, queue, state }, old, actions);
        }
        let wanted = self.tokens.iter().filter(|(_, token)| token.wants && !token.here);
        let wanted: Vec<u32> = wanted.map(|(index, _)| *index).collect();
        wanted.into_iter().for_each(|index| self.request(index, actions));
        for (from, message) in self.early.take() {
            self.handle(Event::Said { from, message }, actions);
        }
    }

    /// One token is where the home says.
    fn placed(&mut self, placed: Placed, old: Token, actions: &mut Vec<Action>) {
        let (me, index) = (self.me, placed.index);
        if placed.holder != me {
            if old.here && !old.parked {
                actions.push(Action::Void(index));
            }
            let waits = placed.queue.contains(&me);
            // Who waits for a change is told of it by whoever has the token next: they are to know each other.
            let wants = !waits && (old.wants || old.waits || old.monitor.watches);
            let last = Some(placed.queue.last().copied().unwrap_or(placed.holder));
            self.tokens.insert(index, Token { waits, wants, last, monitor: old.monitor, ..Token::default() });
            return;
        }
        let mut token = Token { here: true, ..old.clone() };
        self.is_held(&mut token.monitor, &old, placed.state);
        (token.waits, token.went_to, token.last) = (false, None, None);
        token.queue.clear();
        token.append(me, placed.queue);
        token.parked |= !old.here;
        token.died = token.parked && (token.died || placed.died);
        token.wants |= old.waits;
        let (parked, wants, is_wanted) = (token.parked, token.wants, !token.queue.is_empty());
        self.tokens.insert(index, token);
        if parked && old.here && !wants {
            self.hand_over(index, actions);
        } else if parked {
            self.give(index, actions);
        } else if is_wanted || self.are_monitors {
            self.claim(index, actions);
        }
    }

    /// The monitor of a token that is here after a count: who waits for a change is to look again.
    fn is_held(&self, monitor: &mut Monitor, old: &Token, placed: State) {
        if !self.are_monitors {
            return;
        }
        let kept = if old.here { monitor.state.kept } else { placed.kept };
        let is_missed = monitor.state.is_missed || placed.is_missed;
        monitor.comes(self.me, State { kept, is_missed, ..placed });
        if old.here && !old.parked {
            monitor.is_touched = true;
        } else {
            monitor.state.kept.changes = kept.changes.wrapping_add(1);
        }
    }
}
