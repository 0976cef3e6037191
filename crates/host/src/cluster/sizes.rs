//! Another size for an object that hosts share: decided at its home, and known everywhere before it is done.

use super::wire::{Answer, Call};
use super::{Cluster, PATIENCE, busy};
use crate::shared::{Driver, How, Told};
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::wire::Sizing;
use commonhold_object::{Credentials, Error, ErrorKind, Name, Result, limits};
use commonhold_points as points;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long hosts that do not answer, and are not lost either, are waited for.
const EVERYBODY: Duration = Duration::from_secs(60);
/// How long one of them may take: what lies past a smaller end goes home meanwhile.
const ONE: Duration = Duration::from_secs(30);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(100);

impl Cluster {
    /// What the home says next of a size.
    pub(super) fn next_size(&self, size_bytes: u64, room_bytes: u64, grows: bool) -> Told {
        let change = self.size_changes.fetch_add(1, Ordering::Relaxed);
        Told { change, size_bytes, room_bytes, grows }
    }

    /// At the home: every host that uses the object knows this size, and what lay past it is at the home.
    pub fn tell_size(
        self: &Arc<Self>,
        driver: &Arc<Driver>,
        size_bytes: u64,
        room_bytes: u64,
        grows: bool,
    ) -> Result<()> {
        let object = driver.plan().object;
        let told = self.next_size(size_bytes, room_bytes, grows);
        driver.told_size(self.me.host, told);
        let mut know = BTreeSet::new();
        let deadline = Instant::now() + EVERYBODY;
        loop {
            let hosts: Vec<HostId> = self.users(driver).into_iter().filter(|h| !know.contains(h)).collect();
            if hosts.is_empty() {
                return Ok(());
            }
            let call = || Call::Size { object, told };
            let results: Vec<Result<Answer>> = std::thread::scope(|scope| {
                let asked = hosts.iter().map(|host| {
                    let ask = || self.ask(*host, call(), ONE);
                    points::thread(|| std::thread::Builder::new().spawn_scoped(scope, ask))
                });
                let asked: Vec<_> = asked.map(|one| one.doing("starting a thread")).collect();
                asked.into_iter().map(|one| one?.join().unwrap_or_else(|_| Err(panicked()))).collect()
            });
            for (host, result) in hosts.iter().zip(results) {
                match result {
                    Ok(_) => drop(know.insert(*host)),
                    // Until it answers or is lost. What is on its way home from an earlier use there comes first.
                    Err(error) if is_for_now(&error) && Instant::now() < deadline => {}
                    Err(error) => return Err(error),
                }
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Hosts that may have anything of the object, or are on the way of requests for it.
    pub(super) fn users(&self, driver: &Driver) -> BTreeSet<HostId> {
        if let How::Forwarding(_) = driver.plan().how {
            return self.members().into_iter().map(|m| m.host).filter(|h| *h != self.me.host).collect();
        }
        let admitted = self.admitted.read().unwrap_or_else(PoisonError::into_inner);
        let here = (driver.plan().how == How::Explicit).then_some(self.me.host);
        let others = admitted.keys().filter(|(object, _)| *object == driver.plan().object).map(|(_, h)| *h);
        others.chain(here).filter(|host| self.check_not_lost(*host).is_ok()).collect()
    }

    /// The home says what an object's size is. `home_has_all`: it is not spoken with yet, and has asked for what is newest
    /// here.
    pub(super) fn heard_size(
        self: &Arc<Self>,
        from: HostId,
        object: u128,
        told: Told,
        home_has_all: bool,
    ) -> Result<Answer> {
        if told.size_bytes.max(told.room_bytes) > limits::OBJECT_BYTES {
            let words = format!("no object has {} bytes", told.size_bytes.max(told.room_bytes));
            return Err(Error::new(ErrorKind::Protocol, words));
        }
        if !home_has_all {
            self.wait_left(object)?; // who finds the home does not: what leaves waits for that
        }
        let driver = self.driver(object);
        if driver.is_none() && !home_has_all && self.home_of(object)? != from {
            return Err(Error::new(ErrorKind::Permission, "only an object's home says what its size is"));
        }
        if let Some(driver) = &driver {
            if !home_has_all && driver.home().is_none() {
                let text = "this host has not found the object's home yet: say it again";
                return Err(Error::new(ErrorKind::Disconnected, text));
            }
            if driver.home().is_some_and(|home| home != from) {
                return Err(Error::new(ErrorKind::Permission, "only an object's home says what its size is"));
            }
            if driver.holds_back() {
                // What the home granted before must be here before: it may lie past an end that comes and goes.
                return Err(busy("what was said before waits here: say it again"));
            }
            if !driver.is_home() && !driver.told_size(from, told) {
                return Ok(Answer::Done); // said before what is known already
            }
        }
        let is_newest = || driver.as_ref().is_none_or(|d| d.is_home() || d.size_told() == Some(told));
        self.host()?.resize_import(object, told.size_bytes, is_newest, home_has_all)?;
        driver.iter().try_for_each(|driver| driver.about_to_grow(told.grows))?;
        Ok(Answer::Done)
    }

    /// At the home, which begins: of explicit coherence what its processes use has the size of what is saved, whatever the
    /// process before had still to do.
    pub(super) fn size_own_import(self: &Arc<Self>, driver: &Arc<Driver>) {
        let (How::Explicit, Some(told)) = (driver.plan().how, driver.size_told()) else { return };
        let (this, driver) = (self.clone(), driver.clone());
        // The caller may have locks of the object.
        self.pools.short.run(move || {
            let object = driver.plan().object;
            if let Err(error) = this.heard_size(this.me.host, object, told, true) {
                this.report(format_args!("object {object:032x}: its size here: {error}"));
            }
        });
    }

    /// Asks the home of a name for another size.
    pub fn resize_elsewhere(
        self: &Arc<Self>,
        name: &Name,
        who: &Credentials,
        size_bytes: u64,
        (sizing, of): (Sizing, Option<u128>),
    ) -> Result<()> {
        let (home, _) = self.registry()?.look_up(name)?;
        self.reach(home)?;
        let call = Call::Resize { name: name.clone(), who: who.clone(), size_bytes, sizing, of };
        self.ask(home, call, EVERYBODY + ONE + PATIENCE).map(drop)
    }

    /// Another host's process wants an object of this host to have another size.
    pub(super) fn resize_for_other(
        &self,
        from: HostId,
        name: &Name,
        who: &Credentials,
        size_bytes: u64,
        meant: (Sizing, Option<u128>),
    ) -> Result<Answer> {
        self.check_may_change(from)?;
        self.wait_begun(PATIENCE / 2)?;
        self.host()?.resize_for(who, name, size_bytes, meant).map(|()| Answer::Done)
    }
}

pub(super) fn is_for_now(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Disconnected | ErrorKind::Busy | ErrorKind::TimedOut)
}

fn panicked() -> Error {
    Error::new(ErrorKind::Io, "telling a host of the size failed: the log says why")
}
