//! Addresses of the objects that hosts share: which object has which, and whose they are (`docs/FIXED.md`). Pure.
//!
//! They are a host's by its name, not by the number of its process: a host that is away keeps what its objects have. It gives
//! addresses up by saying which objects it has.

use crate::cluster::wire::Claim;
use commonhold_object::fixed::{UNIT_BYTES, is_full};
use commonhold_object::{Error, ErrorKind, Fixed, Part, Places, Result, limits};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Who asks for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    /// For which object.
    pub object: u128,
    /// How many bytes.
    pub room_bytes: u64,
    /// Whose the object is, as its home says.
    pub uid: u32,
    /// What its home is called.
    pub host: String,
}

/// What one object has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Given {
    /// The first address.
    pub address: u64,
    /// How many bytes.
    pub room_bytes: u64,
    /// Whose the object is.
    pub uid: u32,
    /// What its home is called.
    pub host: String,
}

impl Given {
    fn fixed(&self) -> Fixed {
        Fixed { address: self.address, room_bytes: self.room_bytes }
    }
}

/// What is written down of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedAddresses {
    /// From where on is looked next.
    pub next: u64,
    /// Of each object.
    pub given: Vec<(u128, Given)>,
}

/// All that are given.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    places: Places,
    given: HashMap<u128, Given>,
}

impl Addresses {
    /// As they were written down. None: that contradicts itself.
    pub fn restored(saved: SavedAddresses) -> Option<Addresses> {
        let mut places = Places::new(Part::Shared, saved.next);
        let count = saved.given.len();
        let whole = saved.given.iter().all(|(_, given)| places.note(given.fixed()));
        let given: HashMap<u128, Given> = saved.given.into_iter().collect();
        // Two that have the same are noted once.
        let starts: HashSet<u64> = given.values().map(|given| given.address).collect();
        (whole && starts.len() == count).then_some(Addresses { places, given })
    }

    /// What is to be written down.
    pub fn saved(&self) -> SavedAddresses {
        let mut given: Vec<(u128, Given)> = self.given.iter().map(|(o, g)| (*o, g.clone())).collect();
        given.sort_by_key(|(_, given)| given.address);
        SavedAddresses { next: self.places.next(), given }
    }

    /// Gives an object addresses, or tells those that it has: who asks again may not have heard the answer.
    pub fn give(&mut self, asking: &Asking) -> Result<u64> {
        let Asking { object, room_bytes, uid, host } = asking;
        if let Some(given) = self.given.get(object) {
            return match given.host == *host && given.room_bytes == *room_bytes {
                true => Ok(given.address),
                false => {
                    Err(Error::new(ErrorKind::Permission, "another object has addresses by that identity"))
                }
            };
        }
        if *room_bytes == 0 || !room_bytes.is_multiple_of(UNIT_BYTES) {
            let what = format!("{room_bytes} bytes of addresses are no multiple of {UNIT_BYTES}");
            return Err(Error::new(ErrorKind::Protocol, what));
        }
        self.check_quota(asking)?;
        let address = self.places.take(*room_bytes).ok_or_else(|| is_full(Part::Shared, *room_bytes))?;
        let given = Given { address, room_bytes: *room_bytes, uid: *uid, host: host.clone() };
        self.given.insert(*object, given);
        Ok(address)
    }

    fn check_quota(&self, Asking { room_bytes, uid, host, .. }: &Asking) -> Result<()> {
        let sum = |is_counted: &dyn Fn(&&Given) -> bool| -> u64 {
            self.given.values().filter(is_counted).map(|given| given.room_bytes).sum()
        };
        let quota = |whose: String, has: u64, most: u64| match has.saturating_add(*room_bytes) <= most {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Quota,
                format!(
                    "{whose} has {has} bytes of the fixed addresses of the cluster, and {room_bytes} more were asked; the \
                     limit is {most}: remove objects that have some, or give less room"
                ),
            )),
        };
        if self.given.len() >= limits::SHARED_FIXED_OBJECTS {
            let what = format!("{} objects have fixed addresses, the limit: remove some", self.given.len());
            return Err(Error::new(ErrorKind::TooMany, what));
        }
        if *uid != 0 {
            let has = sum(&|given| given.uid == *uid);
            quota(format!("user {uid}"), has, limits::SHARED_FIXED_BYTES_PER_USER)?;
        }
        quota(host.clone(), sum(&|given| given.host == *host), limits::SHARED_FIXED_BYTES_PER_HOST)
    }

    /// Which objects of a host have addresses, and are none of these.
    pub fn gone(&self, host: &str, objects: &HashSet<u128>) -> Vec<u128> {
        let is_gone = |(object, given): &(&u128, &Given)| given.host == host && !objects.contains(*object);
        self.given.iter().filter(is_gone).map(|(object, _)| *object).collect()
    }

    /// What a host says that its objects have, and is not known: this registry is another than that which gave it.
    pub fn unknown(&self, host: &str, claims: &[Claim]) -> Vec<(Asking, u64)> {
        let mut said = HashSet::new();
        let unknown = claims.iter().filter(|claim| !self.given.contains_key(&claim.object));
        let asking = |claim: &Claim| {
            let (fixed, uid) = claim.fixed?;
            let asking =
                Asking { object: claim.object, room_bytes: fixed.room_bytes, uid, host: host.into() };
            Some((asking, fixed.address))
        };
        // More there are not. Of an object that is named twice one is believed.
        let once = unknown.filter_map(asking).filter(|(asking, _)| said.insert(asking.object));
        once.take(limits::SHARED_FIXED_OBJECTS).collect()
    }

    /// An object has these addresses, unless another has any of them, or the quota is used up. Whether it has.
    pub fn adopt(&mut self, asking: &Asking, address: u64) -> bool {
        let Asking { object, room_bytes, uid, host } = asking;
        let given = Given { address, room_bytes: *room_bytes, uid: *uid, host: host.clone() };
        let is_had = self.given.contains_key(object) || self.places.begins_at(address);
        let is_its = !is_had && self.check_quota(asking).is_ok() && self.places.note(given.fixed());
        if is_its {
            self.given.insert(*object, given);
        }
        is_its
    }

    /// An object has none any more. Gives what it had.
    pub fn free(&mut self, object: u128) -> Option<Given> {
        let given = self.given.remove(&object)?;
        self.places.give_back(given.fixed());
        Some(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(object: u128, units: u64, uid: u32, host: &str) -> Asking {
        Asking { object, room_bytes: units * UNIT_BYTES, uid, host: host.into() }
    }

    fn empty() -> Addresses {
        Addresses::restored(SavedAddresses::default()).unwrap()
    }

    #[test]
    fn no_two_objects_have_the_same_whoever_is_away_or_asks_again() {
        let mut all = empty();
        let a = all.give(&asking(1, 2, 7, "a")).unwrap();
        assert_eq!(all.give(&asking(1, 2, 7, "a")).unwrap(), a, "asked again");
        let b = all.give(&asking(2, 1, 7, "b")).unwrap();
        assert_eq!(b, a + 2 * UNIT_BYTES);
        assert_eq!(all.give(&asking(1, 2, 7, "b")).unwrap_err().kind, ErrorKind::Permission);
        // What was written down is what is known; a host that says nothing keeps what it has.
        let mut all = Addresses::restored(all.saved()).unwrap();
        assert!(all.gone("b", &[2].into()).is_empty() && all.gone("c", &HashSet::new()).is_empty());
        assert_eq!(all.gone("a", &[2].into()), [1]);
        assert_eq!(all.free(1).map(|given| given.address), Some(a));
        // Reused late.
        assert_eq!(all.give(&asking(3, 1, 7, "a")).unwrap(), b + UNIT_BYTES);
        for bad in [0, 4096, UNIT_BYTES + 1] {
            let bad = Asking { room_bytes: bad, ..asking(9, 1, 7, "a") };
            assert_eq!(all.give(&bad).unwrap_err().kind, ErrorKind::Protocol);
        }
    }

    #[test]
    fn neither_one_user_nor_one_host_has_all_of_it() {
        let mut all = empty();
        let units = |bytes: u64| bytes / UNIT_BYTES;
        all.give(&asking(1, units(limits::SHARED_FIXED_BYTES_PER_USER), 7, "a")).unwrap();
        assert_eq!(all.give(&asking(2, 1, 7, "b")).unwrap_err().kind, ErrorKind::Quota);
        all.give(&asking(3, 1, 8, "b")).unwrap();
        let rest = limits::SHARED_FIXED_BYTES_PER_HOST - limits::SHARED_FIXED_BYTES_PER_USER;
        all.give(&asking(4, units(rest), 0, "a")).unwrap();
        let why = all.give(&asking(5, 1, 0, "a")).unwrap_err();
        assert!(why.kind == ErrorKind::Quota && why.message.starts_with("a has"), "{why}");
        let mut many = empty();
        for object in 0..limits::SHARED_FIXED_OBJECTS as u128 {
            many.given.insert(object, Given { address: 0, room_bytes: 0, uid: 0, host: String::new() });
        }
        assert_eq!(many.give(&asking(u128::MAX, 1, 0, "a")).unwrap_err().kind, ErrorKind::TooMany);
    }

    /// A host that says of one object, again and again, that it has other addresses takes no more than its share from all.
    #[test]
    fn an_object_that_is_claimed_often_has_addresses_once() {
        let mut all = empty();
        let room_bytes = limits::SHARED_FIXED_BYTES_PER_HOST / 4;
        let first = all.give(&asking(9, 1, 0, "b")).unwrap();
        let after = |number: u64| first + UNIT_BYTES + number * room_bytes;
        let claim = |number| {
            let fixed = Some((Fixed { address: after(number), room_bytes }, 0));
            Claim { name: commonhold_object::Name::new("/x").unwrap(), object: 1, moving: None, fixed }
        };
        let claims: Vec<Claim> = (0..7).map(claim).collect();
        assert_eq!(all.unknown("a", &claims).len(), 1);
        for claim in &claims {
            for (asking, address) in all.clone().unknown("a", std::slice::from_ref(claim)) {
                all.adopt(&asking, address);
            }
            all.adopt(&Asking { room_bytes, ..asking(1, 1, 0, "a") }, claim.fixed.unwrap().0.address);
        }
        // All others have what they had, and what the one object does not.
        let rest = 2 * limits::SHARED_FIXED_BYTES_PER_HOST - room_bytes - UNIT_BYTES;
        let half = limits::SHARED_FIXED_BYTES_PER_HOST / UNIT_BYTES;
        all.give(&asking(2, half - 1, 0, "b")).unwrap();
        all.give(&asking(3, (rest / UNIT_BYTES).saturating_sub(half), 0, "c")).unwrap();
        let many: Vec<Claim> = (0..40_000).map(|object| Claim { object, ..claim(0) }).collect();
        assert!(all.unknown("a", &many).len() <= limits::SHARED_FIXED_OBJECTS);
    }

    #[test]
    fn what_contradicts_itself_is_not_read() {
        let mut all = empty();
        all.give(&asking(1, 2, 7, "a")).unwrap();
        let saved = all.saved();
        let given = saved.given[0].1.clone();
        for other in [
            given.clone(),
            Given { address: given.address + UNIT_BYTES, ..given.clone() },
            Given { address: 0, ..given.clone() },
        ] {
            let mut bad = saved.clone();
            bad.given.push((2, other));
            assert!(Addresses::restored(bad).is_none());
        }
    }
}
