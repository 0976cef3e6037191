//! Joining the cluster, staying in it, and learning of losses.

use super::wire::{Answer, Call, Claim, Member, Message};
use super::{Cluster, PATIENCE, Payload, lock};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Between two attempts to join.
const PAUSE: Duration = Duration::from_millis(200);

impl Cluster {
    /// Joins, and joins again whenever the list's host is another one. Ends with the host.
    pub(super) fn stay_a_member(self: &Arc<Self>) {
        let Some(address) = self.join else {
            let me = self.me.clone();
            if lock(&self.names).join(me, self.claims()).is_ok() {
                self.tell_members();
            }
            return;
        };
        let this = Arc::downgrade(self);
        let joining = move || {
            let mut said = false;
            while let Some(this) = this.upgrade() {
                if lock(&this.list).is_none()
                    && let Err(error) = this.join_at(address)
                    && !std::mem::replace(&mut said, true)
                {
                    this.report(format_args!("joining the cluster at {address}: {error}; trying again"));
                }
                said &= lock(&this.list).is_none();
                drop(this);
                std::thread::sleep(PAUSE);
            }
        };
        let _ = std::thread::Builder::new().name("joining".into()).spawn(joining);
    }

    fn join_at(self: &Arc<Self>, address: std::net::SocketAddr) -> Result<()> {
        let list = self.transport()?.who(address)?;
        self.transport()?.connect(list, address)?;
        // Before the answer: the list of members may come first.
        *lock(&self.list) = Some(list);
        let call = Call::Join { member: self.me.clone(), claims: self.claims() };
        self.ask(list, call, PATIENCE).map(drop).inspect_err(|_| *lock(&self.list) = None)
    }

    /// The names of this host's shared objects.
    fn claims(&self) -> Vec<Claim> {
        let Ok(host) = self.host() else { return Vec::new() };
        let records = host.shared_records();
        let claim = |(name, object)| Claim { name, object };
        records.into_iter().map(claim).collect()
    }

    /// The names of this host's shared objects are others now.
    pub fn tell_names(self: &Arc<Self>) {
        // Without the list's host nobody knows them; it is told when it is joined again.
        if let Ok(list) = self.list() {
            let _ = self.ask(list, Call::Names(self.claims()), PATIENCE);
        }
    }

    /// The host that keeps the list.
    pub fn list(&self) -> Result<HostId> {
        (*lock(&self.list)).ok_or_else(|| {
            Error::new(
                ErrorKind::Disconnected,
                "the host that keeps the cluster's list cannot be reached: what is mapped goes on; try again later",
            )
        })
    }

    /// From the host that keeps the list: tells everybody who belongs.
    pub(super) fn tell_members(&self) {
        let members = lock(&self.names).members();
        self.now_members(members.clone());
        for member in members.iter().filter(|member| member.host != self.me.host) {
            let _ = self.send(member.host, &Message::Members(members.clone()), &Payload::default());
        }
    }

    /// Who belongs now.
    pub(super) fn now_members(&self, members: Vec<Member>) {
        let members = members.into_iter().map(|member| (member.host, member)).collect();
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// Everybody who belongs, this host too.
    pub fn members(&self) -> Vec<Member> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let mut members: Vec<Member> = members.values().cloned().collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }

    /// Makes sure that there is a connection to a host.
    pub(super) fn reach(&self, host: HostId) -> Result<()> {
        if host == self.me.host {
            return Ok(());
        }
        let address =
            self.members.read().unwrap_or_else(PoisonError::into_inner).get(&host).map(|m| m.address);
        let unknown =
            || Error::new(ErrorKind::Disconnected, format!("{host} does not belong to the cluster any more"));
        self.transport()?.connect(host, address.ok_or_else(unknown)?)
    }

    /// Nothing comes from that host any more.
    pub fn lost(self: &Arc<Self>, host: HostId, why: &Error) {
        self.report(format_args!("{} is lost: {why}", self.called(host)));
        self.forget_rights(host);
        self.not_answered_by(host);
        if *lock(&self.list) == Some(host) {
            *lock(&self.list) = None; // joined again, at the same address, as soon as one is there
        }
        if lock(&self.names).leave(host) {
            self.tell_members();
        }
        let drivers: Vec<_> =
            self.shared.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for driver in drivers {
            if driver.lost(host) {
                self.find_home(&driver);
            }
        }
        if let Ok(this) = self.host() {
            this.settle_removed();
        }
    }

    /// Asks the list for a name.
    pub(super) fn look_up(self: &Arc<Self>, name: &commonhold_object::Name) -> Result<HostId> {
        match self.ask(self.list()?, Call::Lookup(name.clone()), PATIENCE)? {
            Answer::Home(home) => Ok(home),
            _ => Err(Error::new(ErrorKind::Protocol, "the list's host answers something else")),
        }
    }
}
