//! Whom this host believes about an object of another host: the registry says which object has a name and which host is its
//! home, and nobody else does. Who answers an opening says with which identity, and that is compared. What this host uses
//! already keeps the home that it was opened at, but for homes that move, and the next process of that host. Values: the
//! cluster asks and cuts off.

use super::wire::Shared;
use super::{Cluster, lock};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// What the registry says of a name: the home, and the identity of the object.
pub(super) type Named = (HostId, u128);

/// An answer to an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the object that the registry means.
    Good,
    /// The registry says something else than before: it is asked again.
    Changed,
    /// The registry never said that.
    Lie,
}

/// Judges what the home of a name answered. `before` and `after`: what the registry said of the name.
pub(super) fn judge(name: &Name, answered: &Shared, before: Named, after: Option<Named>) -> Verdict {
    let (home, object) = before;
    if answered.name != *name {
        Verdict::Lie
    } else if answered.object == object || after == Some((home, answered.object)) {
        Verdict::Good
    } else if after == Some(before) {
        Verdict::Lie
    } else {
        Verdict::Changed
    }
}

/// Where an object that is used here has its home.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    home: HostId,
    /// What that host is called: its next process has another number.
    name: String,
    /// Whether any host may be the next home.
    moves: bool,
}

/// Homes of the objects of others that are used here.
#[derive(Default)]
pub(super) struct Homes(Mutex<HashMap<u128, Known>>);

/// With so many it is looked which objects are still in use.
const LOOKED_THROUGH: usize = 1024;

impl Homes {
    /// That host, which is called so, is the home of an object. `in_use`: what is still used, if that is to be looked at.
    fn note(
        &self,
        object: u128,
        (home, name): (HostId, &str),
        moves: bool,
        in_use: impl FnOnce() -> HashSet<u128>,
    ) {
        let mut homes = lock(&self.0);
        if homes.len() >= LOOKED_THROUGH && homes.len().is_power_of_two() && !homes.contains_key(&object) {
            let in_use = in_use();
            homes.retain(|object, _| in_use.contains(object));
        }
        homes.insert(object, Known { home, name: name.to_owned(), moves });
    }

    /// Refuses a host that is not the home at which an object was opened, nor its next process. `name`: what it is called, if
    /// that is known yet.
    fn check(&self, object: u128, home: HostId, name: Option<&str>) -> Result<()> {
        let homes = lock(&self.0);
        let Some(known) = homes.get(&object).filter(|known| !known.moves && known.home != home) else {
            return Ok(());
        };
        match name {
            Some(name) if name == known.name => Ok(()),
            Some(name) => Err(Error::new(
                ErrorKind::Permission,
                format!(
                    "{name} says to be the home of object {object:032x}, which was opened at {}: until no process here uses \
                     it any more, no other host is its home",
                    known.name
                ),
            )),
            None => {
                let words =
                    format!("{home} does not belong to the cluster yet, as far as is known: try again");
                Err(Error::new(ErrorKind::Disconnected, words))
            }
        }
    }

    /// The home at which an object was opened that is used here, unless another may have become it.
    fn opened_at(&self, object: u128) -> Option<HostId> {
        lock(&self.0).get(&object).filter(|known| !known.moves).map(|known| known.home)
    }

    fn forget(&self, object: u128) {
        lock(&self.0).remove(&object);
    }
}

impl Cluster {
    /// Which host is the home of an object, as the registry says, and as far as it may be another than before. Of an object whose
    /// name was removed while it is used here the registry says nothing: its home is where it was opened.
    pub(super) fn home_of(&self, object: u128) -> Result<HostId> {
        let home = match self.registry()?.where_is(object) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                return self.homes.opened_at(object).ok_or(error);
            }
            home => home?,
        };
        self.check_home(object, home).map(|()| home)
    }

    /// Refuses a host as the home of an object that is used here as another's.
    pub(super) fn check_home(&self, object: u128, home: HostId) -> Result<()> {
        let is_used = self.driver(object).is_some() || self.host()?.object_of(object, true).is_some();
        if !is_used || home == self.me.host {
            return Ok(());
        }
        let name = self.member(home).map(|member| member.name);
        self.homes.check(object, home, name.as_deref())
    }

    /// That host, which is called so, is the home of an object that is used here.
    pub(super) fn note_home(&self, object: u128, home: (HostId, &str), moves: bool) {
        let in_use = || {
            let drivers = self.drivers();
            let mut all: HashSet<u128> = drivers.iter().map(|driver| driver.plan().object).collect();
            let objects = self.host().map(|host| host.all_objects()).unwrap_or_default();
            all.extend(objects.iter().map(|object| object.record().uuid));
            all
        };
        self.homes.note(object, home, moves, in_use);
    }

    /// Nobody here uses the object any more.
    pub(super) fn forget_home(&self, object: u128) {
        self.homes.forget(object);
    }

    /// A host has said of an object what the registry does not say: it is cut off.
    pub(super) fn cut_off(&self, host: HostId, why: &str) {
        self.report(format_args!("{} is cut off: {why}", self.called(host)));
        if let Ok(transport) = self.transport() {
            transport.disconnect(host, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_object::{CreateOptions, Ownership};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn shared(text: &str, object: u128) -> Shared {
        let ownership = Ownership { uid: 0, gid: 0, mode: 0o666 };
        Shared { object, name: name(text), ownership, options: CreateOptions::default(), loss_generation: 0 }
    }

    #[test]
    fn who_answers_says_nothing_that_the_registry_does_not() {
        let (evil, other) = (HostId(6), HostId(7));
        let says = |answered, after| judge(&name("/evil"), &answered, (evil, 5), after);
        assert_eq!(says(shared("/evil", 5), None), Verdict::Good);
        assert_eq!(says(shared("/evil", 9), Some((evil, 5))), Verdict::Lie, "another's identity");
        assert_eq!(says(shared("/secret", 5), Some((evil, 5))), Verdict::Lie);
        // The name went to another object meanwhile, or away.
        assert_eq!(says(shared("/evil", 9), Some((evil, 9))), Verdict::Good);
        assert_eq!(says(shared("/evil", 9), Some((evil, 8))), Verdict::Changed);
        assert_eq!(says(shared("/evil", 9), Some((other, 9))), Verdict::Changed);
        assert_eq!(says(shared("/evil", 9), None), Verdict::Changed);
    }

    #[test]
    fn what_is_used_keeps_its_home_and_that_ones_next_process() {
        let homes = Homes::default();
        let (a, next, evil) = (HostId(1), HostId(2), HostId(6));
        let none = HashSet::new;
        homes.check(10, evil, Some("evil")).unwrap();
        homes.note(10, (a, "a"), false, none);
        homes.check(10, a, None).unwrap();
        homes.check(10, next, Some("a")).unwrap();
        let why = homes.check(10, evil, Some("evil")).unwrap_err();
        assert!(why.kind == ErrorKind::Permission && why.message.contains("opened at a"), "{why}");
        assert_eq!(homes.check(10, evil, None).unwrap_err().kind, ErrorKind::Disconnected);
        homes.note(11, (a, "a"), true, none);
        homes.check(11, evil, Some("evil")).unwrap();
        assert_eq!([10, 11, 12].map(|object| homes.opened_at(object)), [Some(a), None, None]);
        homes.forget(10);
        assert_eq!(homes.opened_at(10), None);
        homes.check(10, evil, Some("evil")).unwrap();
        // What nobody uses any more is forgotten some time.
        (0..10_000).for_each(|object| homes.note(object, (a, "a"), false, || [object].into()));
        assert!(lock(&homes.0).len() <= LOOKED_THROUGH);
    }
}
