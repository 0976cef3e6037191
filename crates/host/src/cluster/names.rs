//! The list that one host keeps for all: who belongs to the cluster, and whose name is whose.
//!
//! The host that was started without `--join` keeps it. It is in that process's memory alone: whoever belongs to the
//! cluster says so again, with the names it has, when the list's host is another one.

use super::wire::{Claim, Member};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result};
use std::collections::BTreeMap;

/// The list.
#[derive(Default)]
pub(super) struct Names {
    members: BTreeMap<HostId, Member>,
    names: BTreeMap<Name, (HostId, u128)>,
}

impl Names {
    /// A host joins. One with the name of another that is here is refused.
    pub fn join(&mut self, member: Member, claims: Vec<Claim>) -> Result<()> {
        let namesake = |other: &&Member| other.name == member.name && other.host != member.host;
        if let Some(other) = self.members.values().find(namesake) {
            return Err(Error::new(
                ErrorKind::Exists,
                format!(
                    "there is a host named {} in the cluster, at {}: start this one with another --name",
                    other.name, other.address
                ),
            ));
        }
        for claim in claims {
            // Where two have it, who was first keeps it; the other's object is its own alone until one is renamed.
            self.names.entry(claim.name).or_insert((member.host, claim.object));
        }
        self.members.insert(member.host, member);
        Ok(())
    }

    /// A host is lost, and its names with it.
    pub fn leave(&mut self, host: HostId) -> bool {
        self.names.retain(|_, (owner, _)| *owner != host);
        self.members.remove(&host).is_some()
    }

    /// Who belongs.
    pub fn members(&self) -> Vec<Member> {
        self.members.values().cloned().collect()
    }

    /// Gives a name to a host, unless another has it.
    pub fn claim(&mut self, host: HostId, claim: Claim) -> Result<()> {
        match self.names.get(&claim.name) {
            Some((owner, object)) if (*owner, *object) != (host, claim.object) => {
                let owner = self.members.get(owner).map_or("another host", |member| member.name.as_str());
                Err(Error::new(
                    ErrorKind::Exists,
                    format!("{} exists already, on {owner}: open it, or choose another name", claim.name),
                ))
            }
            _ => {
                self.names.insert(claim.name, (host, claim.object));
                Ok(())
            }
        }
    }

    /// These are all the names of a host now.
    pub fn replace(&mut self, host: HostId, claims: Vec<Claim>) {
        self.names.retain(|_, (owner, _)| *owner != host);
        for claim in claims {
            self.names.entry(claim.name).or_insert((host, claim.object));
        }
    }

    /// Which host has the object of that identity.
    pub fn home_of(&self, object: u128) -> Option<HostId> {
        self.names.values().find(|(_, id)| *id == object).map(|(host, _)| *host)
    }

    /// Whose a name is.
    pub fn lookup(&self, name: &Name) -> Option<HostId> {
        self.names.get(name).map(|(host, _)| *host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u32, name: &str) -> Member {
        Member { host: HostId(number), name: name.into(), address: ([127, 0, 0, 1], 1).into() }
    }

    fn claim(name: &str, object: u128) -> Claim {
        Claim { name: Name::new(name).unwrap(), object }
    }

    #[test]
    fn a_name_has_one_owner_until_it_is_free_or_its_host_lost() {
        let mut names = Names::default();
        names.join(member(1, "a"), vec![claim("/x", 10)]).unwrap();
        names.join(member(2, "b"), vec![claim("/x", 20), claim("/y", 21)]).unwrap();
        assert_eq!(names.join(member(3, "a"), Vec::new()).unwrap_err().kind, ErrorKind::Exists);
        assert_eq!(names.lookup(&Name::new("/x").unwrap()), Some(HostId(1)));
        assert_eq!(names.claim(HostId(2), claim("/x", 20)).unwrap_err().kind, ErrorKind::Exists);
        names.claim(HostId(1), claim("/x", 10)).unwrap();
        names.replace(HostId(2), vec![claim("/x", 20), claim("/y", 21)]);
        assert!(names.claim(HostId(2), claim("/x", 20)).is_err(), "not its to take");
        names.replace(HostId(1), Vec::new());
        names.claim(HostId(2), claim("/x", 20)).unwrap();
        assert!(names.leave(HostId(2)) && !names.leave(HostId(2)));
        assert_eq!(names.lookup(&Name::new("/y").unwrap()), None);
        assert_eq!(names.members(), [member(1, "a")]);
    }
}
