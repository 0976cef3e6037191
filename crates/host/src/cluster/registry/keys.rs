//! The layout of keys. All of one cluster lie under `/commonhold/CLUSTER/`, and all of one host hang on its lease, but names
//! and homes of objects whose home moves:
//!
//! | key | value |
//! |---|---|
//! | `hosts/NAME` | number, address and lease of the host that has the name; its former numbers, and leases that it ends |
//! | `members/NUMBER` | name, address, lease and former numbers. Its deletion is the loss of the host |
//! | `seen/NUMBER` | the revision up to which the host has done what follows from losses; without it, that of its joining |
//! | `names/PATH` | number and object: whose the name of a shared object is |
//! | `objects/UUID` | the number of the object's home. If the home moves, also what the next must know, and its replicas |
//! | `addresses/ADDRESS` | of an object that hosts share: identity, room, user and the name of its home, which removes it |
//! | `addresses/next` | from where on addresses are looked for; every change that gives some changes it |
//! | `version` | of all these, as a number; put by whoever joins first |
//! | `given-up/HOME/UUID/NUMBER` | that host gave up all it had of the object, and cannot reach its home; under which number. The home removes it |

use commonhold_coherence::HostId;
use commonhold_object::Name;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Of keys and values.
pub(super) const VERSION: u64 = 1;

/// Where a cluster's keys are.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// What all begin with.
    pub prefix: String,
}

/// Value of a host and of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedHost {
    /// Its number.
    pub number: u32,
    /// Where it listens.
    pub address: SocketAddr,
    /// On which all its keys hang.
    pub lease: i64,
    /// Leases of processes before it, which it ends: the last of them may have died before it did.
    #[serde(default)]
    pub ends: Vec<i64>,
    /// The processes before it, each of which was a member when the next took its place.
    #[serde(default)]
    pub former: Vec<u32>,
}

/// Value of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedMember {
    /// What people call it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// On which all its keys hang.
    pub lease: i64,
    /// The processes before it, each of which was a member when the next took its place.
    #[serde(default)]
    pub former: Vec<u32>,
}

/// Value of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedName {
    /// Whose.
    pub number: u32,
    /// Which object, as 32 hexadecimal digits.
    pub object: String,
    /// Its home moves: `objects` says who it is.
    #[serde(default)]
    pub moves: bool,
}

/// Value of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedAddress {
    /// Which object has it, as 32 hexadecimal digits.
    pub object: String,
    /// How many bytes from there on.
    pub room_bytes: u64,
    /// Whose the object is.
    pub uid: u32,
    /// What its home is called: another process of it has it, too.
    pub host: String,
}

impl SavedName {
    /// Which object it is.
    pub fn identity(&self) -> Option<u128> {
        u128::from_str_radix(&self.object, 16).ok()
    }

    /// The same, if its home moves.
    pub fn object_that_moves(&self) -> Option<u128> {
        self.identity().filter(|_| self.moves)
    }
}

/// What a change of a key means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A host belongs.
    Joined(HostId, SavedMember),
    /// A host is lost.
    Gone(HostId),
    /// A host has heard up to this revision.
    Heard(HostId, u64),
    /// A host has given up what it had of an object of that home.
    GaveUp(GivenUp),
    /// Nothing that concerns everybody.
    Other,
}

/// What a host gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GivenUp {
    /// Whose object.
    pub home: HostId,
    /// Which.
    pub object: u128,
    /// Which host.
    pub former: HostId,
    /// Of what it says of beginning and ending.
    pub number: u64,
}

impl Keys {
    pub fn new(cluster: &str) -> Keys {
        Keys { prefix: format!("/commonhold/{cluster}/") }
    }

    pub fn version(&self) -> String {
        format!("{}version", self.prefix)
    }

    pub fn host(&self, name: &str) -> String {
        format!("{}hosts/{name}", self.prefix)
    }

    pub fn members(&self) -> String {
        format!("{}members/", self.prefix)
    }

    pub fn member(&self, host: HostId) -> String {
        format!("{}{}", self.members(), host.0)
    }

    pub fn all_seen(&self) -> String {
        format!("{}seen/", self.prefix)
    }

    pub fn seen(&self, host: HostId) -> String {
        format!("{}{}", self.all_seen(), host.0)
    }

    pub fn name(&self, name: &Name) -> String {
        format!("{}names{name}", self.prefix)
    }

    pub fn objects(&self) -> String {
        format!("{}objects/", self.prefix)
    }

    pub fn object(&self, object: u128) -> String {
        format!("{}{object:032x}", self.objects())
    }

    pub fn addresses(&self) -> String {
        format!("{}addresses/", self.prefix)
    }

    pub fn address(&self, address: u64) -> String {
        format!("{}{address:016x}", self.addresses())
    }

    pub fn next_address(&self) -> String {
        format!("{}next", self.addresses())
    }

    pub fn all_given_up(&self, home: HostId) -> String {
        format!("{}given-up/{}/", self.prefix, home.0)
    }

    pub fn given_up(&self, it: &GivenUp) -> String {
        format!("{}{:032x}/{}", self.all_given_up(it.home), it.object, it.former.0)
    }

    /// What it means that a key has this value now, or (none) is gone.
    pub fn change(&self, key: &[u8], value: Option<&[u8]>) -> Change {
        self.understand(key, value).unwrap_or(Change::Other)
    }

    fn understand(&self, key: &[u8], value: Option<&[u8]>) -> Option<Change> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (kind, rest) = rest.split_once('/')?;
        let number = |text: &str| text.parse().ok().map(HostId);
        match (kind, value) {
            ("members", Some(value)) => {
                Some(Change::Joined(number(rest)?, serde_json::from_slice(value).ok()?))
            }
            ("members", None) => Some(Change::Gone(number(rest)?)),
            ("seen", Some(value)) => {
                Some(Change::Heard(number(rest)?, std::str::from_utf8(value).ok()?.parse().ok()?))
            }
            ("given-up", Some(value)) => {
                let mut parts = rest.split('/');
                let home = number(parts.next()?)?;
                let object = u128::from_str_radix(parts.next()?, 16).ok()?;
                let former = number(parts.next()?)?;
                let number = std::str::from_utf8(value).ok()?.parse().ok()?;
                Some(Change::GaveUp(GivenUp { home, object, former, number }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    #[test]
    fn keys_mean_what_they_were_made_for() {
        let keys = Keys::new("lab");
        let member =
            SavedMember { name: "a".into(), address: ([127, 0, 0, 1], 7).into(), lease: 9, former: vec![4] };
        let value = serde_json::to_vec(&member).unwrap();
        let host = HostId(5);
        let joined = keys.change(keys.member(host).as_bytes(), Some(&value));
        assert_eq!(joined, Change::Joined(host, member));
        assert_eq!(keys.change(keys.member(host).as_bytes(), None), Change::Gone(host));
        assert_eq!(keys.change(keys.seen(host).as_bytes(), Some(b"77")), Change::Heard(host, 77));
        let given_up = GivenUp { home: HostId(1), object: u128::MAX, former: host, number: 8 };
        assert!(keys.given_up(&given_up).starts_with(&keys.all_given_up(HostId(1))));
        let gave_up = keys.change(keys.given_up(&given_up).as_bytes(), Some(b"8"));
        assert_eq!(gave_up, Change::GaveUp(given_up));
        for other in ["/commonhold/lab/members/x", "/commonhold/other/members/5", "/commonhold/lab/seen"] {
            assert_eq!(keys.change(other.as_bytes(), None), Change::Other, "{other}");
        }
        assert_eq!(keys.name(&Name::new("/a/b").unwrap()), "/commonhold/lab/names/a/b");
    }

    #[test]
    fn values_are_those_of_their_version() {
        let (address, former) = (([127, 0, 0, 1], 7).into(), vec![4]);
        let host = SavedHost { number: 5, address, lease: 9, ends: vec![8], former: former.clone() };
        let member = SavedMember { name: "a".into(), address, lease: 9, former };
        let name = SavedName { number: 5, object: "7".into(), moves: true };
        let given = SavedAddress { object: "7".into(), room_bytes: 4096, uid: 1, host: "a".into() };
        let text = |value: serde_json::Result<Vec<u8>>| value.unwrap();
        let all = [
            text(serde_json::to_vec(&host)),
            text(serde_json::to_vec(&member)),
            text(serde_json::to_vec(&name)),
            text(serde_json::to_vec(&given)),
        ];
        let all = golden::together(&all);
        let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "etcd", VERSION, &all);
        let kept = golden::apart(&kept);
        assert_eq!(serde_json::from_slice::<SavedHost>(&kept[0]).unwrap(), host);
        assert_eq!(serde_json::from_slice::<SavedMember>(&kept[1]).unwrap(), member);
        assert_eq!(serde_json::from_slice::<SavedName>(&kept[2]).unwrap(), name);
        assert_eq!(serde_json::from_slice::<SavedAddress>(&kept[3]).unwrap(), given);
        assert_eq!(Keys::new("lab").change(b"/commonhold/lab/version", Some(b"1")), Change::Other);
    }
}
