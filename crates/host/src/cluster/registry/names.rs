//! Whose a name is, and which host is the home of an object. Pure.
//!
//! It is apart from the list of members: many names are in no lease's way. What one host has is bounded.

use super::departures::is_taken;
use crate::cluster::wire::Claim;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result};
use serde::Deserializer;
use serde::de::{Error as _, SeqAccess, Visitor};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Names that one host may have, and bytes of all of them: what fits into a message. Its own limits are less, so that
/// there is room for what renaming adds.
pub(crate) const MOST_NAMES: usize = 262_144;
pub(crate) const MOST_NAME_BYTES: usize = 32 << 20;
/// What a name takes beside its bytes.
pub(crate) const CLAIM_BYTES: usize = 24;

/// The names of one host. More than it may have is no message: what they take in memory is far more than on their way.
pub(crate) fn so_many<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<Claim>, D::Error> {
    struct SoMany;
    impl<'de> Visitor<'de> for SoMany {
        type Value = Vec<Claim>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{MOST_NAMES} names at most")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> std::result::Result<Vec<Claim>, A::Error> {
            let mut all = Vec::new();
            while let Some(next) = names.next_element()? {
                if all.len() == MOST_NAMES {
                    return Err(A::Error::invalid_length(all.len() + 1, &self));
                }
                all.push(next);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(SoMany)
}

/// Names, and the objects that have them.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: BTreeMap<Name, (HostId, u128)>,
    /// Which host is the home of an object, and how many names it has.
    homes: HashMap<u128, (HostId, usize)>,
    /// What each host has.
    sums: HashMap<HostId, Sum>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    names: usize,
    bytes: usize,
}

fn bytes_of(name: &Name) -> usize {
    name.as_str().len() + CLAIM_BYTES
}

impl Names {
    /// Whose a name is, and which object has it.
    pub fn lookup(&self, name: &Name) -> Option<(HostId, u128)> {
        self.names.get(name).copied()
    }

    /// Which host is the home of an object.
    pub fn home_of(&self, object: u128) -> Option<HostId> {
        self.homes.get(&object).map(|(home, _)| *home)
    }

    /// Gives a name to a host, unless another has it. `called`: what a host is called.
    pub fn claim(&mut self, host: HostId, claim: Claim, called: impl Fn(HostId) -> String) -> Result<()> {
        let Claim { name, object, .. } = claim;
        if let Some(home) = self.home_of(object).filter(|home| *home != host) {
            let words =
                format!("the object that is to be {name} is {}'s: only its home names it", called(home));
            return Err(Error::new(ErrorKind::Permission, words));
        }
        match self.names.get(&name) {
            Some(is) if *is == (host, object) => Ok(()),
            Some((owner, _)) => Err(is_taken(&name, &called(*owner))),
            None if !self.has_room(host, &name) => Err(Error::new(
                ErrorKind::TooMany,
                format!(
                    "{name} is one name too many of {}: a host has {MOST_NAMES} at most, and {MOST_NAME_BYTES} bytes of \
                     them: remove some",
                    called(host)
                ),
            )),
            None => {
                self.insert(host, name, object);
                Ok(())
            }
        }
    }

    /// These are all the names of a host now. Where two have one, who was first keeps it; the other's object is its own
    /// alone until one is renamed. Nobody is the home of what another is the home of. What is too much is left out.
    pub fn replace(&mut self, host: HostId, claims: Vec<Claim>) {
        self.forget(host);
        for Claim { name, object, .. } in claims {
            let is_its = self.home_of(object).is_none_or(|home| home == host);
            if is_its && !self.names.contains_key(&name) && self.has_room(host, &name) {
                self.insert(host, name, object);
            }
        }
    }

    /// A host is lost, and its names with it.
    pub fn forget(&mut self, host: HostId) {
        if self.sums.remove(&host).is_some() {
            self.names.retain(|_, (owner, _)| *owner != host);
            self.homes.retain(|_, (home, _)| *home != host);
        }
    }

    /// Hosts that have names.
    pub fn owners(&self) -> Vec<HostId> {
        self.sums.keys().copied().collect()
    }

    fn has_room(&self, host: HostId, name: &Name) -> bool {
        let has = self.sums.get(&host).copied().unwrap_or_default();
        has.names < MOST_NAMES && has.bytes + bytes_of(name) <= MOST_NAME_BYTES
    }

    fn insert(&mut self, host: HostId, name: Name, object: u128) {
        let sum = self.sums.entry(host).or_default();
        sum.names += 1;
        sum.bytes += bytes_of(&name);
        self.homes.entry(object).or_insert((host, 0)).1 += 1;
        self.names.insert(name, (host, object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, object: u128) -> Claim {
        Claim { name: Name::new(name).unwrap(), object, moving: None, fixed: None }
    }

    fn called(host: HostId) -> String {
        ["?", "a", "b"][host.0 as usize].to_owned()
    }

    #[test]
    fn a_name_has_one_owner_until_it_is_free_or_its_host_lost() {
        let mut names = Names::default();
        let (a, b) = (HostId(1), HostId(2));
        let of = |names: &Names, name: &str| names.lookup(&Name::new(name).unwrap());
        names.replace(a, vec![claim("/x", 10)]);
        names.replace(b, vec![claim("/x", 20), claim("/y", 21)]);
        assert_eq!((of(&names, "/x"), of(&names, "/y")), (Some((a, 10)), Some((b, 21))));
        let why = names.claim(b, claim("/x", 20), called).unwrap_err();
        assert!(why.kind == ErrorKind::Exists && why.message.contains("on a"), "{why}");
        names.claim(a, claim("/x", 10), called).unwrap();
        names.replace(b, vec![claim("/x", 20), claim("/y", 21)]);
        assert!(names.claim(b, claim("/x", 20), called).is_err(), "not its to take");
        names.replace(a, Vec::new());
        names.claim(b, claim("/x", 20), called).unwrap();
        names.forget(b);
        assert_eq!((of(&names, "/y"), names.home_of(20), names.owners().len()), (None, None, 0));
    }

    #[test]
    fn an_object_has_one_home_however_many_claim_it() {
        let mut names = Names::default();
        let (a, b) = (HostId(1), HostId(2));
        names.replace(a, vec![claim("/x", 10)]);
        names.replace(b, vec![claim("/a", 10), claim("/b", 20)]);
        assert_eq!((names.home_of(10), names.home_of(20)), (Some(a), Some(b)));
        let why = names.claim(b, claim("/!a", 10), called).unwrap_err();
        assert!(why.kind == ErrorKind::Permission && why.message.contains("is a's"), "{why}");
        names.replace(b, vec![claim("/!a", 10)]);
        assert_eq!(names.lookup(&Name::new("/!a").unwrap()), None);
        // Its own home names it as often as it likes, and what is free is whose it is next.
        names.claim(a, claim("/y", 10), called).unwrap();
        names.replace(a, vec![claim("/y", 10)]);
        assert_eq!(names.home_of(10), Some(a));
        names.forget(a);
        names.claim(b, claim("/!a", 10), called).unwrap();
        assert_eq!(names.home_of(10), Some(b));
    }

    #[test]
    fn one_host_has_so_many_names_and_bytes_and_others_have_theirs() {
        let mut names = Names::default();
        let (a, b) = (HostId(1), HostId(2));
        let many = (0..MOST_NAMES + 5).map(|number| claim(&format!("/{number}"), number as u128));
        names.replace(a, many.collect());
        assert_eq!(names.names.len(), MOST_NAMES);
        let why = names.claim(a, claim("/more", 1 << 100), called).unwrap_err();
        assert_eq!(why.kind, ErrorKind::TooMany, "{why}");
        names.claim(b, claim("/more", 1 << 100), called).unwrap();
        names.forget(a);
        let part = "n".repeat(250);
        let long = |number: usize| claim(&format!("/{part}/{part}/{part}/{number:0>200}"), number as u128);
        names.replace(a, (0..40_000).map(long).collect());
        let fit = MOST_NAME_BYTES / bytes_of(&long(0).name);
        assert_eq!(names.names.len(), fit + 1);
        // What goes makes room again.
        names.replace(a, (0..fit - 1).map(long).collect());
        names.claim(a, long(39_000), called).unwrap();
        assert!(names.claim(a, long(39_001), called).is_err());
    }
}
