//! Objects of other hosts that no process here uses any more. What is newest here goes home first, and stays here until it has:
//! with the keeper, so that the next process of this host goes on with it. Only then the home hears that this host has
//! nothing of the object any more.

use super::losses::forwards;
use super::wire::{Answer, Call};
use super::{Cluster, PATIENCE, busy, lock};
use crate::cache::Cache;
use crate::shared::{Driver, How};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use commonhold_tokens::Leaving;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a home that is away is waited for by who has nothing newest of it.
const HOME_AWAY: Duration = Duration::from_secs(30);
/// How long homes may ask for what is newest here when this host ends, and how many objects at once.
const AT_THE_END: Duration = Duration::from_secs(60);
const SENDERS: usize = 8;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

impl Cluster {
    /// The object is not in use here any more, but for what goes home.
    pub fn is_leaving(&self, object: u128) {
        lock(&self.leaving).entry(object).or_default();
    }

    /// Whether what is here of it is about to go.
    pub fn leaves(&self, object: u128) -> bool {
        lock(&self.leaving).contains_key(&object)
    }

    /// Nothing of it is here any more.
    pub fn has_left(&self, object: u128) {
        lock(&self.leaving).remove(&object);
        if self.driver(object).is_none() {
            self.forget_home(object);
        }
        if let Ok(host) = self.host() {
            host.machine.on_way.has_all_come(object);
            host.settle_removed(); // its home's record may have waited for this
        }
    }

    /// No process here uses the object any more. Returns when all that was newest here is home, which may take as long as the
    /// home is away; false if this host ends before that: the next process has it then.
    pub fn leave_off(self: &Arc<Self>, object: u128, cache: &Arc<Cache>) -> bool {
        let driver = match self.driver(object).filter(|driver| !driver.is_home()) {
            Some(driver) if driver.goes_on() => return self.leave_off_for_now(&driver, cache),
            Some(driver) if matches!(driver.plan().how, How::Central(_)) => driver,
            Some(driver) => {
                self.leave_unsynced(&driver);
                self.give_claim_up_of(cache, object);
                return true;
            }
            None => {
                let until = Instant::now() + HOME_AWAY;
                while !cache.send_home() && Instant::now() < until {}
                self.leave_at_once(object);
                self.give_claim_up_of(cache, object);
                return true;
            }
        };
        let left = match self.send_home(&driver, cache) {
            Ok(Some(home)) => self.say_left(home, object),
            Ok(None) => self.say_what_was_given_up(object),
            Err(_) => false,
        };
        if left {
            self.forget_driver(object);
            self.give_claim_up_of(cache, object);
        }
        left
    }

    /// Under forwarding the driver goes on, for requests of others may come by. The same as above.
    fn leave_off_for_now(self: &Arc<Self>, driver: &Arc<Driver>, cache: &Arc<Cache>) -> bool {
        let (began, mut said, mut lost_since) = (Instant::now(), false, None);
        while !cache.send_home() && !self.lease.is_fenced() {
            if self.is_without_home_for_good(driver, &mut lost_since) {
                self.forget_driver(driver.plan().object);
                self.give_claim_up_of(cache, driver.plan().object);
                return true;
            }
            if began.elapsed() > HOME_AWAY && !std::mem::replace(&mut said, true) {
                self.report(format_args!(
                    "object {:032x}: pages that are newest here wait for its home",
                    driver.plan().object
                ));
            }
            std::thread::sleep(PAUSE);
        }
        self.wait_for_what_left(driver, Instant::now() + HOME_AWAY);
        if self.lease.is_fenced() {
            return false;
        }
        let object = driver.plan().object;
        self.leave_at_once(object);
        // The object may end from now on. A home that is another process by then never knew that it was used here.
        let mut pause = PAUSE / 256; // it may have to count tokens first
        while let Some(home) = driver.home().filter(|_| began.elapsed() < HOME_AWAY) {
            if self.lease.is_fenced() || self.say_left_with_tokens(home, driver).is_ok() {
                break;
            }
            std::thread::sleep(pause);
            pause = PAUSE.min(pause * 2);
        }
        true
    }

    /// Under forwarding: until the home has what it was sent, frames and notes of it are kept for the next process of this host.
    fn wait_for_what_left(self: &Arc<Self>, driver: &Driver, until: Instant) {
        let object = driver.plan().object;
        while !driver.has_left() && !self.lease.is_fenced() && Instant::now() < until {
            if let Some(sent) = driver.sent_so_far() {
                while lock(&self.waiting).contains_key(&sent.home) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1)); // what is to be sent when there is a connection comes first
                }
                if self.ask(sent.home, Call::HasCome { object }, PATIENCE).is_ok() {
                    return;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Under forwarding: the home's process is another, and nobody here uses the object. It has asked for what is newest here
    /// before it answers, so that is all.
    pub(super) fn leave_to_the_next(self: &Arc<Self>, home: HostId, driver: &Arc<Driver>) -> Result<()> {
        let object = driver.plan().object;
        self.say_left_with_tokens(home, driver)?;
        driver.all_was_given_back()?;
        self.forget_driver(object);
        Ok(())
    }

    /// Whether nobody here uses it any more, and nobody can before what it has newest is home; and what is here is of another
    /// process of the home than that one.
    pub(super) fn is_left_off(&self, driver: &Driver, home: HostId) -> bool {
        let object = driver.plan().object;
        let is_in_use = || driver.is_attached() && !self.leaves(object);
        driver.goes_on() && !driver.began_with(home) && !is_in_use()
    }

    /// Under forwarding: the home says that the object has ended. Whether it was so.
    pub(super) fn home_has_ended(&self, home: HostId, object: u128) -> bool {
        let rests = |driver: &Arc<Driver>| driver.goes_on() && !driver.is_attached();
        let Some(driver) = self.driver(object).filter(rests) else { return false };
        let is_over = driver.home() == Some(home) && driver.all_was_given_back().is_ok();
        if is_over {
            self.forget_driver(object);
        }
        is_over
    }

    /// Nobody here looks for the object's home any more: if this host was about to be it, another may.
    fn give_claim_up_of(&self, cache: &Cache, object: u128) {
        if cache.home_moves() {
            self.give_claim_up(object);
        }
    }

    /// The home, when it has been sent all; none if it is away, and nothing newest is here, or if it is lost and no process
    /// follows it. An error: this host ends.
    fn send_home(&self, driver: &Arc<Driver>, cache: &Arc<Cache>) -> Result<Option<HostId>> {
        let (began, mut lost_since, mut said) = (Instant::now(), None, false);
        loop {
            let all_home = cache.send_home();
            if self.lease.is_fenced() {
                return Err(Error::new(ErrorKind::Disconnected, "this host begins anew"));
            }
            if let Some(home) = driver.depart() {
                return Ok(Some(home));
            }
            if self.is_without_home_for_good(driver, &mut lost_since) {
                return Ok(None);
            }
            if began.elapsed() > HOME_AWAY {
                if all_home {
                    return Ok(None);
                }
                if !std::mem::replace(&mut said, true) {
                    self.report(format_args!(
                        "object {:032x}: pages that are newest here wait for its home",
                        driver.plan().object
                    ));
                }
            }
            if !all_home || driver.home().is_none() {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Whether the home of an object that moves has been lost for so long that it is waited for no longer. The next home is whoever
    /// opens it, here too: that waits until this host has left.
    fn is_without_home_for_good(&self, driver: &Driver, since: &mut Option<Instant>) -> bool {
        let object = driver.plan().object;
        if !driver.plan().home_moves || driver.home().is_some() || !self.home_is_nowhere(object) {
            *since = None;
            return false;
        }
        let is_for_good = since.get_or_insert_with(Instant::now).elapsed() > HOME_AWAY;
        if is_for_good {
            self.report(format_args!(
                "object {object:032x}: its home is lost, nobody became it, and what was newest here goes with it"
            ));
        }
        is_for_good
    }

    /// The home is told that this host has left the object off, after what it was sent. False: this host ends.
    fn say_left(self: &Arc<Self>, home: HostId, object: u128) -> bool {
        while lock(&self.waiting).contains_key(&home) {
            std::thread::sleep(Duration::from_millis(1)); // what is to be sent when there is a connection comes first
        }
        self.ask(home, self.left(object), PATIENCE).is_ok() || self.say_given_up_at_last(home, object)
    }

    /// The home did not hear that the object is left off. It may wait for an answer that nobody here gives, and may not have
    /// all that it was sent: until it, or its next process, hears or is lost, it is told that what was here is given up, and
    /// asks for what was on its way. False: this host ends.
    fn say_given_up_at_last(self: &Arc<Self>, home: HostId, object: u128) -> bool {
        self.beginnings.gave_up(object);
        self.say_what_was_given_up_to(Some(home), object)
    }

    /// The same, if anything was given up since the home heard from this host: whoever is the home.
    fn say_what_was_given_up(self: &Arc<Self>, object: u128) -> bool {
        self.beginnings.given_up(object).is_none() || self.say_what_was_given_up_to(None, object)
    }

    fn say_what_was_given_up_to(self: &Arc<Self>, home: Option<HostId>, object: u128) -> bool {
        let mut lost_since = None;
        while !self.lease.is_fenced() {
            let home = home.filter(|home| self.member(*home).is_some());
            let now = home.map_or_else(|| self.home_of(object), Ok);
            let is_member = now.as_ref().is_ok_and(|home| self.member(*home).is_some());
            let is_said = now.and_then(|home| self.say_object_given_up(home, object, self.me.host)).is_ok();
            if is_member {
                lost_since = None;
            }
            let away = !is_member && lost_since.get_or_insert_with(Instant::now).elapsed() > HOME_AWAY;
            if is_said || away {
                self.beginnings.home_knows(object, None);
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }

    /// Of explicit coherence: what was not synced is given up, so the home hears at once that nobody here uses the object.
    fn leave_unsynced(self: &Arc<Self>, driver: &Arc<Driver>) {
        let object = driver.plan().object;
        let home = driver.depart_at_once();
        // Who looks for the home may be telling it who uses the object here. What is said after that is later.
        drop(driver.seek_alone());
        self.forget_driver(object);
        match home {
            Some(home) => drop(self.say_left(home, object)),
            None => self.say_left_before_it_began(object),
        }
    }

    /// The home has not been found (again). If it knows of anything here that is an opening, or what was given up.
    fn say_left_before_it_began(self: &Arc<Self>, object: u128) {
        if self.beginnings.given_up(object).is_none() {
            match self.home_of(object) {
                Err(error) if error.kind == ErrorKind::NotFound => return, // it has ended
                Ok(home) if home == self.me.host => return,
                Ok(home) if self.member(home).is_none() => return, // it is lost, and who follows it knows of nobody
                Ok(home) if self.ask(home, self.left(object), PATIENCE).is_ok() => return,
                _ => self.beginnings.gave_up(object),
            }
        }
        self.say_what_was_given_up_to(None, object);
    }

    /// At the home: another host has left the object.
    pub(super) fn left_by_other(
        self: &Arc<Self>,
        from: HostId,
        object: u128,
        number: u64,
        tokens: Option<Leaving>,
    ) -> Result<Answer> {
        // What it gave back is stored when it is told so: it has it no more then.
        if self.home_has_ended(from, object) {
            return Ok(Answer::Done);
        }
        let driver = self.driver(object).filter(|driver| driver.is_home());
        driver.iter().for_each(|driver| driver.catch_up());
        let begins = || driver.as_ref().is_some_and(|driver| driver.home().is_none()); // it asks for what was there
        let will_begin = driver.is_none() && self.will_be_home(object)?;
        if self.beginnings.is_asked(object, from) || !self.has_begun() || begins() || will_begin {
            return Err(self.asks(from)); // it may have opened the object since: it says so again, as `GaveUp`
        }
        let is_forwarded = driver.as_ref().is_some_and(|driver| forwards(driver));
        let leaves = || match is_forwarded {
            true => self.rests(object, from), // requests of others may come by there
            false => self.dismiss(object, from),
        };
        if self.beginnings.says(object, from, number, leaves) {
            self.locks_lost(from, Some(object));
            // What was said to its use before is not taken for an answer to the next: that begins after this answer.
            driver.iter().for_each(|driver| driver.wait_said(from));
            if let Some(tokens) = tokens
                && !self.has_counted_without(from, object, tokens)
            {
                return Err(busy("the object's tokens are being counted"));
            }
        }
        self.host()?.settle_removed();
        Ok(Answer::Done)
    }

    /// The object is not in use here any more, and this is its home, or it goes on without users.
    pub fn leave_at_once(self: &Arc<Self>, object: u128) {
        let Some(driver) = self.driver(object) else { return };
        if driver.detach() {
            return;
        }
        self.forget_driver(object);
        if driver.is_home() {
            for host in self.dismiss_all(object).into_iter().filter(|host| !self.is_unreachable(*host)) {
                let _ = self.ask(host, self.left(object), PATIENCE); // else it knows when it begins anew
            }
        }
        if driver.home().is_none() {
            self.say_what_was_given_up(object);
        }
    }

    /// A home answered that an object is opened when nobody waited for that any more: unless it is used here by now, it hears
    /// that it is not. Within that home's share of the threads: it may say so without having been asked.
    pub(super) fn opened_late(self: &Arc<Self>, home: HostId, object: u128) {
        let this = self.clone();
        let saying = move || {
            let left = this.left(object); // first: whoever begins to use it from now on says so under a later number
            if this.driver(object).is_none() {
                let _ = this.ask(home, left, PATIENCE); // else the home counts this host until one of the two begins anew
            }
        };
        // Who says it thousands of times at once is told nothing.
        let _ = self.run_for(home, &self.pools.short, saying);
    }

    /// Whether this host ends.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// This host ends, whoever uses it: nobody here uses objects of other hosts any more, and their homes ask for what is newest
    /// here, as far as they can be reached and it takes no longer than `AT_THE_END`.
    pub fn send_all_home(self: &Arc<Self>) {
        self.ending.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + AT_THE_END;
        let is_scheduled_elsewhere =
            |driver: &Arc<Driver>| !driver.is_home() && driver.plan().how != How::Explicit;
        let left: Mutex<Vec<_>> =
            self.drivers().into_iter().filter(is_scheduled_elsewhere).collect::<Vec<_>>().into();
        std::thread::scope(|scope| {
            let work = || {
                while let Some(driver) = { lock(&left).pop() } {
                    self.send_home_at_the_end(&driver, deadline);
                }
            };
            for _ in 1..lock(&left).len().min(SENDERS) {
                // This one does what others do not.
                let _ = points::thread(|| std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
    }

    fn send_home_at_the_end(self: &Arc<Self>, driver: &Arc<Driver>, deadline: Instant) {
        let object = driver.plan().object;
        let lost = |home: &str, why: &dyn std::fmt::Display| {
            self.report(format_args!(
                "object {object:032x}: what is newest here could not be given to {home} before this host ended: {why}"
            ));
        };
        let Some(home) = driver.home() else {
            if driver.has_newest_here() {
                lost("its home", &"it is not known who that is");
            }
            return;
        };
        if self.is_unreachable(home) {
            if driver.has_newest_here() {
                lost(&self.called(home), &"it cannot be reached");
            }
            return;
        }
        if driver.goes_on() {
            let has_time =
                || Instant::now() < deadline && !self.is_unreachable(home) && !self.lease.is_fenced();
            if !driver.leave_at_the_end(has_time) {
                lost(&self.called(home), &"it did not take it in time");
            }
            return self.wait_for_what_left(driver, deadline);
        }
        self.beginnings.gave_up(object);
        if driver.lost(home, None) {
            self.do_not_send(home, object);
        }
        while let Err(error) = self.say_object_given_up(home, object, self.me.host) {
            if Instant::now() > deadline || self.is_unreachable(home) || self.lease.is_fenced() {
                return lost(&self.called(home), &error);
            }
            std::thread::sleep(PAUSE / 4);
        }
    }

    /// Whether the home is lost, and nobody has taken its place.
    fn home_is_nowhere(&self, object: u128) -> bool {
        let home = self.registry().and_then(|registry| registry.where_is(object));
        home.is_ok_and(|home| self.is_without_successor(home))
    }

    /// What the home is told at the end.
    pub(super) fn left(&self, object: u128) -> Call {
        Call::Leave { object, number: self.beginnings.next(), tokens: None }
    }

    fn forget_driver(&self, object: u128) {
        self.shared.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&object);
        self.forget_locks(object);
    }

    /// Whoever uses it again begins when all that was here is home: the home cannot tell the two uses apart.
    pub fn wait_left(&self, object: u128) -> Result<()> {
        self.wait_until_left(|leaving| leaving == object)
    }

    /// Before this host ends in order: what goes home has gone. If `by_force`, but for homes that are away.
    pub fn wait_all_left(&self, by_force: bool) -> Result<()> {
        let is_away = |object| {
            self.driver(object).is_some_and(|driver| !driver.has_left() && driver.home_may_not_hear())
        };
        self.wait_until_left(|object| !by_force || !is_away(object))
    }

    fn wait_until_left(&self, waited_for: impl Fn(u128) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leaving: Vec<u128> = lock(&self.leaving).keys().copied().collect();
            if !leaving.into_iter().any(&waited_for) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = "pages are still on their way home from an earlier use: try again later";
                return Err(Error::new(ErrorKind::Busy, text));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
