//! A host's part of one object: requests, hand-overs.

use crate::early::{Early, MOST_HOSTS};
use crate::event::{Action, Event, Has, Leaving, Message, State, Timer};
use crate::token::{Monitor, Token};
use commonhold_coherence::HostId;
use commonhold_primitives::between::{Left, Seen};
use std::collections::{BTreeMap, BTreeSet};

/// How far a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// It is not known who the home is.
    Away,
    /// Tokens stay where they are until the home says that all begins.
    Still,
    /// Tokens move.
    Begun,
}

/// What the home knows beside its own tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Home {
    /// Those who take part, this host too; and what they said that they have, while the home counts.
    pub users: BTreeMap<HostId, Option<Said>>,
    /// The greatest count that any of them has heard of from a home before.
    pub heard: u64,
    /// What those had who left since the last count, of each mutex, and the count that they knew.
    pub left: BTreeMap<(HostId, u32), (u64, Has)>,
    /// Who left, and is a member of the cluster still.
    pub gone: BTreeSet<HostId>,
    /// It waits for those who took part with the process before it.
    pub opens: bool,
    /// Since the last count one was lost.
    pub has_lost: bool,
}

/// What a host said that it has, and the count that it knew.
pub(crate) type Said = (u64, Vec<Has>);

/// One host's part of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub(crate) me: HostId,
    /// How many mutexes, or monitors, the object holds.
    pub(crate) mutexes: u32,
    /// They have more than the mutex.
    pub(crate) are_monitors: bool,
    pub(crate) home: Option<HostId>,
    pub(crate) phase: Phase,
    /// The number of the home's last count that this host heard of.
    pub(crate) count: u64,
    /// The number of the last one that ended, as far as it is known here; 0: what is here is of a process before.
    pub(crate) known: u64,
    /// Tokens that are not named below are here: this host was the home when they were counted last.
    pub(crate) has_others: bool,
    pub(crate) tokens: BTreeMap<u32, Token>,
    pub(crate) at_home: Home,
    pub(crate) early: Early,
}

impl Part {
    /// The part of an object's first host, which has all its tokens.
    pub fn first(me: HostId, mutexes: u32) -> Part {
        let mut part = Part::joining(me, mutexes, true);
        (part.home, part.phase, part.count, part.known) = (Some(me), Phase::Begun, 1, 1);
        part.at_home.users.insert(me, None);
        part
    }

    /// The part of a host that has nothing yet, or was the home.
    fn joining(me: HostId, mutexes: u32, was_home: bool) -> Part {
        Part {
            me,
            mutexes,
            are_monitors: false,
            home: None,
            phase: Phase::Away,
            count: 0,
            known: 0,
            has_others: was_home,
            tokens: BTreeMap::new(),
            at_home: Home::default(),
            early: Early::default(),
        }
    }

    /// A part of a host that is not the home, or whose process before this one left these words: what is seen of each mutex that is
    /// not as at first. `was_home`: at first they are here.
    pub fn following(
        me: HostId,
        mutexes: u32,
        was_home: bool,
        words: impl IntoIterator<Item = (u32, Seen)>,
    ) -> Part {
        let mut part = Part::joining(me, mutexes, was_home);
        for (index, Seen { here, wants, left }) in words {
            let monitor = Monitor::left(&left);
            part.tokens.insert(index, Token { here, wants: wants && !here, monitor, ..Token::default() });
        }
        part
    }

    /// The same part, of monitors.
    pub fn of_monitors(mut self) -> Part {
        self.are_monitors = true;
        self
    }

    /// Whether this host is the home.
    pub fn is_home(&self) -> bool {
        self.home == Some(self.me)
    }

    /// Whether this host is the home, and has counted what all said: its words have it, for the process that follows this one.
    pub fn has_counted(&self) -> bool {
        self.is_home() && self.phase == Phase::Begun
    }

    /// Whether a token is here.
    pub fn is_here(&self, index: u32) -> bool {
        self.tokens.get(&index).map_or(self.has_others, |token| token.here)
    }

    /// Whether a token is in the hands of the threads here.
    pub fn is_at_hand(&self, index: u32) -> bool {
        self.tokens.get(&index).map_or(self.has_others, |token| token.here && !token.parked)
    }

    /// Tokens in the hands of threads here that whoever lets them go gives to this host, or has given: who was about to say so may
    /// have been killed. `is_away`: whether the word is of no thread here.
    pub fn to_take(&self, is_away: impl Fn(u32) -> bool) -> Vec<u32> {
        let at_hand = self.tokens.iter().filter(|(_, token)| token.here && !token.parked);
        let to_take = at_hand.filter(|(index, token)| token.claimed || is_away(**index));
        to_take.map(|(index, _)| *index).collect()
    }

    /// What it has, of tokens that are not as at first.
    pub fn has(&self) -> Vec<Has> {
        self.tokens.iter().map(|(index, token)| token.has(*index)).collect()
    }

    /// What it says to the home when nobody here uses the object any more: to one after the other, until one has heard it. `taken`:
    /// of a token that is taken from the threads here for that, whether an owner died, and what the memory has of the monitor.
    pub fn leaves(mut self, taken: impl Fn(u32) -> Option<(bool, Left)>) -> Leaving {
        for (index, token) in self.tokens.iter_mut().filter(|(_, token)| token.here && !token.parked) {
            if let Some((died, left)) = taken(*index) {
                token.monitor.is_taken(&left);
                (token.parked, token.died) = (true, died);
            }
        }
        let has = self.has().into_iter().map(|has| Has { readers: 0, ..has });
        Leaving { known: self.known, has: has.collect() }
    }

    /// Its home, if it is known.
    pub fn home(&self) -> Option<HostId> {
        self.home
    }

    pub(crate) fn token(&mut self, index: u32) -> &mut Token {
        let here = self.has_others;
        self.tokens.entry(index).or_insert_with(|| Token { here, ..Token::default() })
    }

    /// What follows from an event. What no honest host says is not heard.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Wanted(index) if index < self.mutexes => self.wanted(index, actions),
            Event::Released { index, died, sleepers, left } if index < self.mutexes => {
                self.released(index, (died, sleepers), &left, actions);
            }
            Event::Wanted(_) | Event::Released { .. } => {}
            Event::Said { from, message } => self.said(from, message, actions),
            Event::Over(Timer::Taken(index)) => {
                // Also if no other host asked for it: it may be taken so that others hear of a change.
                if self.tokens.get(&index).is_some_and(|token| token.here && !token.parked) {
                    actions.push(Action::Claim { index, firmly: true });
                }
            }
            event => self.about_hosts(event, actions),
        }
    }

    fn wanted(&mut self, index: u32, actions: &mut Vec<Action>) {
        let begun = self.phase == Phase::Begun;
        let token = self.token(index);
        if token.here {
            // It is on its way from a thread to another host, or does not move now; else the thread has been woken since.
            token.wants |= token.claimed || token.parked;
        } else if !token.waits {
            token.wants = true;
            if begun {
                self.request(index, actions);
            }
        }
    }

    /// Asks for a token that threads here want.
    pub(crate) fn request(&mut self, index: u32, actions: &mut Vec<Action>) {
        let (by, count, home) = (self.me, self.count, self.home);
        let token = self.token(index);
        let Some(to) = token.last.or(home).filter(|to| *to != by) else { return };
        (token.wants, token.waits) = (false, true);
        actions.push(Action::Send(to, Message::Request { count, index, by }));
    }

    fn said(&mut self, from: HostId, message: Message, actions: &mut Vec<Action>) {
        match message {
            message if !message.is_sound(self.mutexes) => {}
            Message::Request { count, .. } | Message::Token { count, .. } if self.phase != Phase::Begun => {
                // Who begins sooner may say something sooner.
                if count >= self.count {
                    self.early.push(from, message);
                }
            }
            Message::Request { count, index, by } if count == self.count => {
                self.requested(index, by, actions);
            }
            Message::Token { count, index, died, queue, state } if count == self.count => {
                self.token_came(index, died, (queue, state), actions);
            }
            // After a count all who wait for a change look.
            Message::Changed { count, index } if count == self.count && self.phase == Phase::Begun => {
                if self.token(index).monitor.watches {
                    self.wanted(index, actions);
                }
            }
            Message::Request { .. } | Message::Token { .. } | Message::Changed { .. } => {}
            message => self.about_counts(from, message, actions),
        }
    }

    fn requested(&mut self, index: u32, by: HostId, actions: &mut Vec<Action>) {
        let (me, count, home) = (self.me, self.count, self.home);
        if by == me {
            return;
        }
        let token = self.token(index);
        if token.here || token.waits {
            if token.queue.len() < MOST_HOSTS {
                token.append(me, [by]);
            }
            if token.here {
                self.claim(index, actions);
            }
            return;
        }
        let to = token.last.replace(by).or(home);
        if let Some(to) = to.filter(|to| *to != by && *to != me) {
            actions.push(Action::Send(to, Message::Request { count, index, by }));
        }
    }

    /// Whoever has the word gives it up next.
    pub(crate) fn claim(&mut self, index: u32, actions: &mut Vec<Action>) {
        let token = self.token(index);
        if !token.parked && !std::mem::replace(&mut token.claimed, true) {
            actions.push(Action::Claim { index, firmly: false });
        }
    }

    fn released(
        &mut self,
        index: u32,
        (died, sleepers): (bool, bool),
        left: &Left,
        actions: &mut Vec<Action>,
    ) {
        let (begun, count) = (self.phase == Phase::Begun, self.count);
        let token = self.token(index);
        if !token.here || token.parked {
            return;
        }
        (token.claimed, token.parked, token.died) = (false, true, died);
        token.wants |= sleepers;
        if token.monitor.is_taken(left) || died {
            for watcher in std::mem::take(&mut token.monitor.state.watchers) {
                actions.push(Action::Send(watcher, Message::Changed { count, index }));
            }
        }
        if begun {
            self.hand_over(index, actions);
        }
    }

    /// A parked token goes to who waits longest; the threads here come after all others. If nobody waits it is given back to them.
    pub(crate) fn hand_over(&mut self, index: u32, actions: &mut Vec<Action>) {
        let (me, count) = (self.me, self.count);
        let token = self.token(index);
        let Some(next) = token.queue.pop_front() else { return self.give(index, actions) };
        let waits = token.wants;
        let mut queue: Vec<HostId> = token.queue.drain(..).collect();
        if waits {
            queue.push(me);
        }
        let last = queue.last().copied().or(Some(next));
        let (died, mut monitor) = (token.died, std::mem::take(&mut token.monitor));
        let state = monitor.goes(me);
        *token = Token { waits, last, died, went_to: Some(next), monitor, ..Token::default() };
        actions.push(Action::Send(next, Message::Token { count, index, died, queue, state }));
    }

    /// A parked token is given to the threads here. If others wait, to one thread alone.
    pub(crate) fn give(&mut self, index: u32, actions: &mut Vec<Action>) {
        let token = self.token(index);
        let (wanted, died) = (!token.queue.is_empty(), token.died);
        (token.parked, token.died, token.wants, token.claimed) = (false, false, false, wanted);
        let given = token.monitor.given();
        actions.push(Action::Give { index, died, wanted, given });
    }

    fn token_came(
        &mut self,
        index: u32,
        died: bool,
        (queue, state): (Vec<HostId>, State),
        actions: &mut Vec<Action>,
    ) {
        let me = self.me;
        let token = self.token(index);
        if token.here || !token.waits {
            return;
        }
        let asked_here = std::mem::take(&mut token.queue);
        *token = Token { here: true, parked: true, died, ..Token::default() };
        token.monitor.comes(me, state);
        token.append(me, queue.into_iter().chain(asked_here));
        self.give(index, actions);
    }
}
