//! Machine types of other hosts, and tags of objects that they have (`docs/TYPES.md`).

use super::wire::{Answer, Call};
use super::{Cluster, PATIENCE, busy};
use commonhold_coherence::HostId;
use commonhold_object::{Credentials, Error, ErrorKind, Name, Result, Tagging};
use commonhold_peers::Hello;
use commonhold_tags::Machine;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Refuses a host of which nobody here could say what its pages mean.
pub(super) fn check_machine(peer: &Hello) -> Result<()> {
    if Machine::of_word(&peer.machine).is_some() {
        return Ok(());
    }
    let (who, machine) = (peer.who(), &peer.machine);
    Err(Error::new(
        ErrorKind::Mismatch,
        format!(
            "{who} says to be a machine of type {machine:?}, and what its pages mean is not known: {} are known here; start it \
             with --machine and one of these, or upgrade this host",
            Machine::words()
        ),
    ))
}

impl Cluster {
    /// A host that is being connected is of that machine type.
    pub(super) fn is_on(&self, host: HostId, machine: &str) {
        if let Some(machine) = Machine::of_word(machine) {
            self.machines.write().unwrap_or_else(PoisonError::into_inner).insert(host, machine);
        }
    }

    /// Of which machine type a host is that is connected, or was.
    pub fn machine_type(&self, host: HostId) -> Option<Machine> {
        self.machines.read().unwrap_or_else(PoisonError::into_inner).get(&host).copied()
    }

    /// At the home: changes tags of an object while no other host has it. Who opens it meanwhile waits, and is told the new ones.
    pub fn while_nobody_else_has(
        &self,
        object: u128,
        name: &str,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // One that is new, or whose process is, begins soon.
        let deadline = Instant::now() + PATIENCE / 2;
        let has_begun = || self.driver(object).is_none_or(|driver| driver.home().is_some());
        while !has_begun() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !has_begun() {
            return Err(busy("this home has not heard yet who has the object: try again later"));
        }
        let admitted = self.admitted.write().unwrap_or_else(PoisonError::into_inner);
        let uses = |((used, host), admission): (&(u128, HostId), &super::rights::Admission)| {
            (*used == object && *host != self.me.host && !admission.rests()).then_some(*host)
        };
        let users: Vec<HostId> = admitted.iter().filter_map(uses).collect();
        if users.is_empty() {
            return change();
        }
        drop(admitted);
        let mut names: Vec<String> = users.into_iter().map(|host| self.called(host)).collect();
        names.sort();
        Err(busy(format!(
            "{name} is in use at {}, where its pages are in the format of their tags now: tags change while no other host than \
             its home uses it. Close it there, then try again",
            names.join(", ")
        )))
    }

    /// At the home: a host that had the object in use, and has it still, knows its tags.
    pub(super) fn check_knows_types(&self, object: u128, version: u32) -> Result<()> {
        if self.record_of(object)?.record().options.types.version() == version {
            return Ok(());
        }
        let text = "tags of its pages have changed since it was opened: close it, and open it again";
        Err(Error::new(ErrorKind::Mismatch, text))
    }

    /// Asks the home of a name to change tags.
    pub fn tag_elsewhere(
        self: &Arc<Self>,
        name: &Name,
        who: &Credentials,
        of: Option<u128>,
        tagging: &Tagging,
    ) -> Result<()> {
        let (home, _) = self.registry()?.look_up(name)?;
        self.reach(home)?;
        let call = Call::Tag { name: name.clone(), who: who.clone(), of, tagging: tagging.clone() };
        self.ask(home, call, PATIENCE).map(drop)
    }

    /// Another host's process says what is in pages of an object of this host.
    pub(super) fn tag_for_other(
        &self,
        from: HostId,
        name: &Name,
        who: &Credentials,
        of: Option<u128>,
        tagging: &Tagging,
    ) -> Result<Answer> {
        self.check_may_change(from)?;
        self.wait_begun(PATIENCE / 2)?;
        self.host()?.tag_for(who, name, of, tagging).map(|()| Answer::Done)
    }
}
