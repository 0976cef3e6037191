//! Hosts that cannot be reached, hosts that are lost, and this host when it is one of them. `docs/LEASES.md` has the whole.
//!
//! * *Unreachable*: the connection broke. It is connected to again, and everything goes on: what was on its way arrives
//!   then, once and in order.
//! * *Session over*: that cannot be, because one end does not know any more what the other has received. Messages may
//!   be lost, so whoever shared an object of the other's gives up what it had of it and says so (`Call::GaveUp`); a home
//!   waits for that.
//! * *Lost*: the registry says so. Only now the schedulers hear of it.
//! * *Fenced*: this host's lease is about to end.

use super::beginnings::FOR_EVER;
use super::registry::place::Place;
use super::threads::begin;
use super::wire::{Answer, Call};
use super::{Cluster, PATIENCE, lock};
use crate::shared::{Driver, How};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Between two attempts to reach a host.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two attempts to take pages out of page tables.
const AGAIN: Duration = Duration::from_millis(20);
/// Two hosts that both have leases and cannot reach each other for so long do not wait for each other any more.
pub(super) const APART: Duration = Duration::from_secs(10);
/// Whoever has to begin anew then waits longer than a lease by this: a host that is dead counts as lost before.
const LITTLE: Duration = Duration::from_secs(5);

pub(super) fn forwards(driver: &Driver) -> bool {
    matches!(driver.plan().how, How::Forwarding(_))
}

impl Cluster {
    pub(super) fn drivers(&self) -> Vec<Arc<Driver>> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The connection with a host is broken: what is said to it waits until there is another.
    pub fn unreachable(self: &Arc<Self>, host: HostId, why: &Error) {
        self.note_unreachable(host, why);
        if let Ok(registry) = self.registry() {
            registry.broken(host);
        }
        self.renew_now();
        if !self.lease.is_fenced() && self.member(host).is_some() {
            self.report(format_args!("{} cannot be reached: {why}; trying again", self.called(host)));
            self.reach_again(host);
        }
    }

    /// The session with a host is over: messages may be lost.
    pub fn session_over(self: &Arc<Self>, host: HostId, why: &Error) {
        self.note_unreachable(host, why);
        lock(&self.spoiled).insert(host);
        self.forget_name(host);
        self.parts.forget(host);
        self.asked.forget(host);
        self.not_answered_by(host);
        if let Ok(registry) = self.registry() {
            registry.broken(host);
        }
        self.renew_now();
        // What follows from a loss is done already.
        if self.lease.is_fenced() || self.check_not_lost(host).is_err() {
            return;
        }
        let is_member = self.member(host).is_some();
        if !is_member {
            self.forget_rights(host); // it may have come under many numbers
        } else {
            let name = self.called(host);
            self.report(format_args!("messages from and to {name} may be lost: {why}; beginning again"));
        }
        let mine = |driver: &Arc<Driver>| driver.home() == Some(host) && !forwards(driver);
        self.drivers().iter().filter(|driver| mine(driver)).for_each(|driver| self.give_up(driver, host));
        // Of what it left off it has nothing, and nobody there gives anything up: what it was asked it may not have heard.
        let left = |driver: &&Arc<Driver>| {
            let object = driver.plan().object;
            let is_asked = self.beginnings.is_asked(object, host); // what it gives is waited for
            driver.is_home() && !forwards(driver) && !self.is_admitted(object, host) && !is_asked
        };
        for driver in self.drivers().iter().filter(left) {
            self.lose(driver, host); // never its home: that is this host
        }
        if is_member {
            self.reach_again(host);
        }
    }

    /// What an object's scheduler wants could not be done here.
    pub(super) fn give_up_unasked(self: &Arc<Self>, object: u128) {
        let Some(driver) = self.driver(object) else { return };
        driver.is_in_doubt();
        match driver.home() {
            _ if forwards(&driver) => self.fence("a page of another host's object could not be moved"),
            Some(home) => self.give_up(&driver, home),
            None => {} // it begins anew already
        }
    }

    /// Nothing of an object is used here any more, until its home has heard that it is so.
    fn give_up(self: &Arc<Self>, driver: &Arc<Driver>, home: HostId) {
        // What is newest here stays until the home, which hears that from `try_home`, has asked for it.
        self.beginnings.gave_up(driver.plan().object);
        if driver.lost(home, None) {
            self.do_not_send(home, driver.plan().object);
            self.find_home(driver);
        } // else it is given up already, and what waits to be sent may be of what was begun since
    }

    /// Objects for which this host may have to begin anew when messages between it and another, which lives on, were lost.
    /// Where requests are forwarded any host may have been told of what this one has: only its loss reaches them all, in
    /// order. Of two that are not the home it is the one with the greater number.
    fn begun_anew_for(&self, other: HostId) -> Vec<Arc<Driver>> {
        if self.is_reader(other) {
            return Vec::new(); // it has no part in such objects
        }
        let anew = |driver: &Arc<Driver>| {
            let home = driver.home();
            forwards(driver) && !driver.is_home() && (home == Some(other) || self.me.host > other)
        };
        self.drivers().into_iter().filter(anew).collect()
    }

    /// Whether it has to: a host that takes part in none of them was told nothing, whatever it says and ends.
    fn must_begin_anew(self: &Arc<Self>, other: HostId) -> bool {
        self.begun_anew_for(other).iter().any(|driver| self.takes_part(driver, other))
    }

    /// Whether a host takes part in an object of another host. The home admits it before anybody speaks with it, and is asked
    /// if this host has not heard of that.
    fn takes_part(self: &Arc<Self>, driver: &Driver, other: HostId) -> bool {
        let Some(home) = driver.home().filter(|home| *home != other && !driver.has_member(other)) else {
            return true;
        };
        let call = Call::TakesPart { object: driver.plan().object, host: other };
        match self.ask(home, call, PATIENCE) {
            Err(error) => error.kind != ErrorKind::NotFound, // who does not know it begins anew
            Ok(_) => true,
        }
    }

    /// At the home: the same, for who uses the object.
    pub(super) fn takes_part_here(&self, from: HostId, object: u128, host: HostId) -> Result<Answer> {
        self.check_admitted(object, from, false)?;
        let takes_part = |driver: Arc<Driver>| driver.has_member(host) || !driver.is_home();
        if self.is_admitted(object, host) || self.driver(object).is_none_or(takes_part) {
            return Ok(Answer::Done);
        }
        let words = format!("{} takes no part in that object", self.called(host));
        Err(Error::new(ErrorKind::NotFound, words))
    }

    /// Tells the home that this host gave up what it had of the object, if it did since they spoke last.
    pub(super) fn say_given_up(self: &Arc<Self>, home: HostId, driver: &Driver) -> Result<()> {
        let object = driver.plan().object;
        // What a process before this one had newest is here, but for what the home asks for before it answers.
        let former = driver.holder().filter(|former| *former != self.me.host);
        if former.is_none() && self.beginnings.given_up(object).is_none() {
            return Ok(());
        }
        self.say_object_given_up(home, object, former.unwrap_or(self.me.host))
    }

    pub(super) fn say_object_given_up(
        self: &Arc<Self>,
        home: HostId,
        object: u128,
        former: HostId,
    ) -> Result<()> {
        self.driver(object).map_or(Ok(()), |driver| driver.has_dropped_old())?;
        let given_up = self.beginnings.given_up(object);
        let number = match given_up {
            _ if former != self.me.host => FOR_EVER,
            Some(number) => number,
            None => return Ok(()), // it knows by now
        };
        if let Err(error) = self.reach(home) {
            // The two cannot reach each other, but others wait for the home. It is said again when they can.
            // The home of an object that moves may be lost already, and the next one wants what was valid here.
            let moves = self.driver(object).is_some_and(|driver| driver.plan().home_moves);
            if former == self.me.host && !moves {
                self.registry()?.pass_given_up(home, object, number)?;
            }
            return Err(error);
        }
        self.driver(object).iter().for_each(|driver| driver.gives_up_to(home));
        self.ask(home, Call::GaveUp { home, object, former, number }, PATIENCE)?;
        self.beginnings.home_knows(object, given_up);
        Ok(())
    }

    /// A host has given up what it had of an object. At its home that is the loss of that host; the list's host passes
    /// it on.
    pub(super) fn other_gave_up(
        self: &Arc<Self>,
        from: HostId,
        home: HostId,
        object: u128,
        former: HostId,
        number: u64,
    ) -> Result<Answer> {
        let list = self.list_kept_by();
        if from != former && self.follower(former) != Some(from) && list != Some(from) {
            if self.member(former).is_none() && self.member(from).is_some() && home == self.me.host {
                return Ok(Answer::Done); // lost, and gone on without: nothing of it is waited for
            }
            return Err(Error::new(ErrorKind::Protocol, "a host gives up for itself alone"));
        }
        if home != self.me.host {
            if list != Some(self.me.host) {
                return Err(Error::new(ErrorKind::Protocol, "that object's home is another host"));
            }
            self.reach(home)?;
            return self.ask(home, Call::GaveUp { home, object, former, number }, PATIENCE);
        }
        self.settle_given_up(object, former, Some(number)).map(|()| Answer::Done)
    }

    /// What this host had to say to another, which lives, was not said: what follows from that when they have reached each other.
    pub(super) fn messages_are_lost(self: &Arc<Self>, host: HostId) {
        lock(&self.spoiled).insert(host);
        self.reach_again(host);
    }

    /// Tries to reach a host until it is reached, or lost.
    fn reach_again(self: &Arc<Self>, host: HostId) {
        if !lock(&self.reaching).insert(host) {
            return;
        }
        let this = Arc::downgrade(self);
        let mut since = Instant::now();
        let reaching = move || {
            while let Some(this) = this.upgrade() {
                let over = this.lease.is_fenced() || this.member(host).is_none();
                let reached = !over && this.reach(host).is_ok();
                if over {
                    lock(&this.spoiled).remove(&host); // what follows from its loss is more
                } else if reached || since.elapsed() > this.longest_apart(host) {
                    this.end_session(host, reached);
                    since = Instant::now();
                }
                if over || reached {
                    lock(&this.reaching).remove(&host);
                    // It may have broken again just now, and who noticed saw that somebody was at it.
                    let again = this.is_unreachable(host) || lock(&this.spoiled).contains(&host);
                    if over || !again || !lock(&this.reaching).insert(host) {
                        return;
                    }
                }
                drop(this);
                std::thread::sleep(PAUSE);
            }
        };
        begin("reaching", reaching);
    }

    fn longest_apart(&self, host: HostId) -> Duration {
        if !self.begun_anew_for(host).is_empty() { APART.max(self.lease.length() + LITTLE) } else { APART }
    }

    /// The other host lives, and is reached again, or cannot be reached for long. In that case the session ends: what this
    /// host has of the other's objects is in everybody's way. If messages were lost, what follows from that.
    fn end_session(self: &Arc<Self>, host: HostId, reached: bool) {
        if !reached && let Ok(transport) = self.transport() {
            transport.disconnect(host, "it could not be reached for long");
        }
        let lost = lock(&self.spoiled).remove(&host) || !reached;
        if lost && self.must_begin_anew(host) {
            self.fence(&format!("messages between it and {} were lost", self.called(host)));
        }
    }

    /// The registry says that a host is lost: nothing comes from it any more.
    pub(super) fn lost(self: &Arc<Self>, host: HostId) {
        if host == self.me.host {
            self.fence("the others were told that it is lost");
            return;
        }
        self.gone.write().unwrap_or_else(PoisonError::into_inner).insert(host);
        self.report(format_args!("{} is lost", self.called(host)));
        if let Ok(transport) = self.transport() {
            transport.disconnect(host, "you are lost to the others: your lease ended");
        }
        lock(&self.unreachable).remove(&host);
        self.forget_rights(host);
        self.locks_lost(host, None);
        self.tokens_of_lost(host);
        self.not_answered_by(host);
        for driver in self.drivers() {
            if self.can_be_asked_for(&driver, host) {
                self.ask_and_lose(&driver, host); // it is the home that asks
                continue;
            }
            // Before: somebody who looks for the home still would begin with the next without a word of it.
            if driver.home() == Some(host) && !forwards(&driver) {
                self.beginnings.gave_up(driver.plan().object);
            }
            let begins_anew = self.lose(&driver, host);
            driver.home_is_lost(host); // before another home is found, which is told what was given up
            if begins_anew {
                self.find_home(&driver);
            }
        }
        self.hears_no_more(host);
        self.wait_dropped();
        if let Ok(this) = self.host() {
            this.settle_removed();
        }
    }

    /// The next process of a home begins when all who had its pages have said that they heard of the loss: that is said when
    /// what is old has left page tables. (Where a client keeps it there, this host is as one that does not hear.)
    fn wait_dropped(self: &Arc<Self>) {
        let deadline = Instant::now() + LITTLE;
        for driver in self.drivers().iter().filter(|driver| !driver.is_home()) {
            while driver.has_dropped_old().is_err() && !self.lease.is_fenced() {
                if Instant::now() > deadline {
                    self.fence("pages of a home that is lost could not be taken out of page tables");
                }
                std::thread::sleep(AGAIN);
            }
        }
    }

    /// Hosts that are lost, and the processes that follow them.
    pub(super) fn all_gone(&self) -> Vec<(HostId, Option<HostId>)> {
        let followers = self.followers.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut gone: HashMap<HostId, Option<HostId>> = self
            .gone
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|host| (*host, None))
            .collect();
        gone.extend(followers.into_iter().map(|(host, next)| (host, Some(next))));
        gone.into_iter().collect()
    }

    /// Whether something may be waited for that follows from what a host said.
    #[cfg(feature = "etcd")]
    pub(super) fn waits_for(&self, host: HostId) -> bool {
        self.check_not_lost(host).is_ok() && !self.lease.is_fenced()
    }

    /// Refuses what a host says that is lost: it does not know it yet.
    pub(super) fn check_not_lost(&self, from: HostId) -> Result<()> {
        if self.gone.read().unwrap_or_else(PoisonError::into_inner).contains(&from) {
            return Err(Error::new(ErrorKind::Permission, format!("{from} is lost to the others")));
        }
        Ok(())
    }

    /// The host ends in order: the others need not wait for the end of its lease.
    pub fn leave(&self) {
        if !self.has_joined_a_cluster() || !self.lease.fence() {
            return;
        }
        match (self.drop_everything(), self.registry()) {
            (Ok(()), Ok(registry)) => registry.leave(),
            (Err(error), _) => self.report(format_args!("fencing failed: {error}")),
            _ => {}
        }
    }

    /// Whether the homes here schedule.
    pub(super) fn has_begun(&self) -> bool {
        *lock(&self.begun)
    }

    /// Everybody has heard that this host's process is another one: its homes may schedule.
    pub(super) fn begin_homes(self: &Arc<Self>) {
        let mut begun = lock(&self.begun);
        if !std::mem::replace(&mut *begun, true) {
            if matches!(self.place, Place::Etcd(..)) {
                self.look_after_what_is_kept(); // elsewhere no home moves
            }
            self.drivers()
                .iter()
                .filter(|driver| driver.is_home())
                .for_each(|driver| self.begin_home(driver));
        }
        self.begins.notify_all();
    }

    /// Waits until the homes here schedule.
    pub(super) fn wait_begun(&self, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        let mut begun = lock(&self.begun);
        while !*begun {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!("{} begins anew, and waits for the registry: try again later", self.me.name),
                ));
            }
            begun = self.begins.wait_timeout(begun, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Whoever waits for pages of this host's shared objects learns that it is in vain.
    pub(super) fn homes_wait_in_vain(&self) {
        self.drivers().iter().filter(|driver| driver.is_home()).for_each(|driver| driver.home_is_away());
    }
}
