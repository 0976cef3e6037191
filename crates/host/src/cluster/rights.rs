//! What another host may do with objects of this one: what a process of its was allowed when it opened them here, and
//! nothing that changes anything, if it was admitted to the cluster for reading alone (Forin et al., section 2, the
//! first footnote).

use super::{Cluster, PATIENCE};
use crate::shared::{Driver, Said};
use commonhold_coherence::{HostId, Kind, central, explicit};
use commonhold_object::{Access, CreateOptions, Error, ErrorKind, Result};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// What a host may do with an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    access: Access,
    /// Of forwarding: no process there has it open.
    rests: bool,
}

impl Admission {
    /// Whether no process of the host has the object open.
    pub(super) fn rests(&self) -> bool {
        self.rests
    }
}

impl Cluster {
    /// A host of that name is connected.
    pub fn connected(&self, host: HostId, name: &str, may_write: bool) {
        super::lock(&self.unreachable).remove(&host);
        {
            let mut readers = self.readers.write().unwrap_or_else(PoisonError::into_inner);
            if may_write {
                readers.remove(&host)
            } else {
                readers.insert(host)
            };
        }
        // Who has a name here has its rights, too.
        self.names.write().unwrap_or_else(PoisonError::into_inner).insert(host, name.to_owned());
        self.check_names();
    }

    /// What a connected host is called.
    pub(super) fn name_of(&self, host: HostId) -> Option<String> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).get(&host).cloned()
    }

    /// Refuses to take the word of a host that is connected, and may change nothing: it is the home of nothing, and keeps no
    /// list. Gives what it is called.
    pub(super) fn check_may_decide(&self, host: HostId) -> Result<String> {
        if host == self.me.host {
            return Ok(self.me.name.clone());
        }
        let deadline = Instant::now() + PATIENCE / 10;
        loop {
            // The connection may stand, and not be announced yet.
            if let Some(name) = self.name_of(host) {
                self.check_may_change(host)?;
                return Ok(name);
            }
            if Instant::now() > deadline {
                let words = format!("the connection with {} broke: try again", self.called(host));
                return Err(Error::new(ErrorKind::Disconnected, words));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Refuses who comes under the number of a host that the registry knows by another name.
    pub fn check_number(&self, host: HostId, name: &str) -> Result<()> {
        match self.member(host).filter(|member| member.name != name) {
            None => Ok(()),
            Some(member) => Err(Error::new(
                ErrorKind::Exists,
                format!("{host} ({name:?}) is not {}, whose number that is: it is not let in", member.name),
            )),
        }
    }

    /// Cuts off whoever came under the number of a host that the registry knows by another name: what it says would be
    /// taken for that host's.
    pub(super) fn check_names(&self) {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let other = |host: &HostId, name: &String| {
            self.member(*host).filter(|member| member.name != *name).map(|member| (*host, member.name))
        };
        let pretenders: Vec<_> = names.iter().filter_map(|(host, name)| other(host, name)).collect();
        drop(names);
        for (host, name) in pretenders {
            self.report(format_args!("who came as {host} is not {name}, whose number that is: cut off"));
            if let Ok(transport) = self.transport() {
                transport.disconnect(host, &format!("{host} is the number of {name}, and you are another"));
            }
        }
    }

    /// Refuses a host that joins in another's name, whose place it would take.
    pub(super) fn check_own_name(&self, from: HostId, name: &str) -> Result<()> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        if from == self.me.host || names.get(&from).is_some_and(|own| own == name) {
            return Ok(());
        }
        let words =
            format!("{from} joins as {name:?}, which is not its name: a host joins in its own name alone");
        Err(Error::new(ErrorKind::Permission, words))
    }

    /// Refuses a host that has no lease (any more): nobody would hear of its loss. It may have joined just now.
    pub(super) fn check_belongs(&self, host: HostId, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        while host != self.me.host && !self.is_member(host) {
            if Instant::now() > deadline {
                let words =
                    format!("{host} does not belong to the cluster, as far as {} knows", self.me.name);
                return Err(Error::new(ErrorKind::Permission, words + ": let it join, and try again"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Nothing comes from that host any more under this name.
    pub(super) fn forget_name(&self, host: HostId) {
        self.names.write().unwrap_or_else(PoisonError::into_inner).remove(&host);
    }

    fn is_member(&self, host: HostId) -> bool {
        self.members.read().unwrap_or_else(PoisonError::into_inner).contains_key(&host)
    }

    /// Whether a host was admitted for reading alone.
    pub(super) fn is_reader(&self, host: HostId) -> bool {
        self.readers.read().unwrap_or_else(PoisonError::into_inner).contains(&host)
    }

    /// Refuses a use that the host has no part in, whatever its processes may: where all who use an object schedule it, each
    /// is believed what it says of its pages.
    pub(super) fn check_may_use(&self, host: HostId, access: Access, options: &CreateOptions) -> Result<()> {
        if access.writes() {
            self.check_may_change(host)?;
        }
        if options.coherence.is_forwarded() && self.is_reader(host) {
            let words = format!(
                "all hosts that use the object schedule it (--scheduler forwarding), and {} was admitted to the cluster for \
                 reading alone: create it with --scheduler central",
                self.called(host)
            );
            return Err(Error::new(ErrorKind::Unsupported, words));
        }
        Ok(())
    }

    /// Refuses a host that was admitted for reading alone.
    pub(super) fn check_may_change(&self, host: HostId) -> Result<()> {
        if self.is_reader(host) {
            return Err(Error::new(
                ErrorKind::Permission,
                format!("{} was admitted to the cluster for reading alone", self.called(host)),
            ));
        }
        Ok(())
    }

    /// The same of a host that is not lost: what followed from its loss may have been done while this was prepared.
    pub(super) fn admit_living(&self, object: u128, host: HostId, access: Access) -> Result<()> {
        self.admit(object, host, access);
        self.check_not_lost(host).inspect_err(|_| self.dismiss(object, host))
    }

    /// A process of that host may use the object so: from now on the host may.
    fn admit(&self, object: u128, host: HostId, access: Access) {
        let mut admitted = self.admitted.write().unwrap_or_else(PoisonError::into_inner);
        let known = admitted.entry((object, host)).or_insert(Admission { access, rests: false });
        known.rests = false;
        if access.writes() {
            known.access = access;
        }
    }

    /// Of forwarding: the same as below, but the host takes part until the object ends.
    pub(super) fn rests(&self, object: u128, host: HostId) {
        let mut admitted = self.admitted.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = admitted.get_mut(&(object, host)) {
            known.rests = true;
        }
    }

    /// The object has ended here. Whoever took part until then.
    pub(super) fn dismiss_all(&self, object: u128) -> Vec<HostId> {
        let mut admitted = self.admitted.write().unwrap_or_else(PoisonError::into_inner);
        admitted.extract_if(|(used, _), _| *used == object).map(|((_, host), _)| host).collect()
    }

    /// No process of that host has the object open any more.
    pub(super) fn dismiss(&self, object: u128, host: HostId) {
        self.admitted.write().unwrap_or_else(PoisonError::into_inner).remove(&(object, host));
    }

    /// Whether a process of that host has the object open.
    pub(super) fn is_admitted(&self, object: u128, host: HostId) -> bool {
        self.admitted.read().unwrap_or_else(PoisonError::into_inner).contains_key(&(object, host))
    }

    /// Whether processes of other hosts have the object open.
    pub fn is_used_elsewhere(&self, object: u128) -> bool {
        let admitted = self.admitted.read().unwrap_or_else(PoisonError::into_inner);
        admitted.iter().any(|((used, _), admission)| *used == object && !admission.rests)
    }

    /// Refuses what no process of that host may do.
    pub(super) fn check_admitted(&self, object: u128, host: HostId, writes: bool) -> Result<()> {
        if host == self.me.host {
            return Ok(());
        }
        let admitted = self.admitted.read().unwrap_or_else(PoisonError::into_inner);
        if admitted.get(&(object, host)).is_some_and(|admission| admission.access.writes() || !writes) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Permission,
            format!("no process of {} has opened that object for this", self.called(host)),
        ))
    }

    /// Refuses what an honest host would not say about the object: who does is cut off.
    pub(super) fn check_may_say(&self, driver: &Driver, from: HostId, message: &Said) -> Result<()> {
        driver.check_scheduler(message)?; // before anybody is waited for
        let writes = writes(message);
        if let Said::Forwarding(_) = message {
            return self.check_takes_part(driver, from);
        }
        if !driver.is_home() {
            // Of a home that is to be found (again): said before it heard that this host gave everything up.
            let is_home = driver.home().is_none_or(|home| home == from);
            let not_home = || Error::new(ErrorKind::Permission, "only an object's home schedules it");
            return if is_home { Ok(()) } else { Err(not_home()) };
        }
        if is_of_a_home(message) {
            return Err(Error::new(ErrorKind::Permission, "only an object's home schedules it"));
        }
        if message.kind() == Kind::Acknowledgement {
            // Also of a host whose last process closed the object while it was asked. The scheduler takes it from those
            // alone that it waits for.
            return Ok(());
        }
        if writes {
            self.check_may_change(from)?;
        }
        self.check_admitted(driver.plan().object, from, writes)
    }

    /// Refuses a host that takes no part in an object that is scheduled by forwarding.
    pub(super) fn check_takes_part(&self, driver: &Driver, from: HostId) -> Result<()> {
        // Whoever takes part schedules for the others: who may change nothing does not.
        self.check_may_change(from)?;
        // Who follows a host that took part is admitted with what that one had.
        if driver.is_home() {
            // In this order: whether it takes part is known when the turn at hand is over.
            let admitted = self.check_admitted(driver.plan().object, from, false);
            let takes_part = || driver.has_member(from);
            if admitted.is_ok() || !takes_part() {
                return admitted;
            }
        }
        // Whom the home admitted the others hear from each other. It may have joined the cluster just now: then this
        // holds up that one host.
        self.check_belongs(from, PATIENCE / 2)
    }

    /// What is lost may do nothing any more.
    pub(super) fn forget_rights(&self, host: HostId) {
        self.readers.write().unwrap_or_else(PoisonError::into_inner).remove(&host);
        self.admitted.write().unwrap_or_else(PoisonError::into_inner).retain(|(_, other), _| *other != host);
        self.beginnings.forget(host);
    }
}

/// Whether only an object's home says this, to those who use it.
fn is_of_a_home(message: &Said) -> bool {
    use central::Message as Central;
    use explicit::Message as Explicit;
    match message {
        Said::Central(message) => matches!(
            message,
            Central::Grant { .. }
                | Central::Recall { .. }
                | Central::Invalidate { .. }
                | Central::Refuse { .. }
        ),
        Said::Explicit(message) => matches!(
            message,
            Explicit::Pages { .. }
                | Explicit::NotRead { .. }
                | Explicit::Changed { .. }
                | Explicit::Synced
                | Explicit::NotSynced
        ),
        Said::Forwarding(_) => false,
    }
}

/// Whether only a host that may change the object says this.
fn writes(message: &Said) -> bool {
    match message {
        Said::Central(central::Message::Request { access, .. }) => {
            *access == commonhold_coherence::Access::Write
        }
        Said::Central(message) => matches!(message, central::Message::PageOut { .. }),
        // Also one of no pages: who only reads has nothing to sync.
        Said::Explicit(message) => matches!(message, explicit::Message::Sync { .. }),
        Said::Forwarding(_) => true,
    }
}
