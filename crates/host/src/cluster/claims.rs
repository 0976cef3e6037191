//! Names of this host's shared objects, as the registry has them. Each is claimed before the host's own registry has it; and the
//! registry is told from time to time which are all. Between its claim and its record a name is among them, too: else it would be
//! given up as one that is free, and the object could be found by nobody.

use super::wire::Claim;
use super::{Cluster, lock};
use commonhold_object::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

/// What is claimed.
#[derive(Default)]
pub(super) struct Claims {
    /// Shared by those who claim; whoever tells all is alone, so that what it tells is not older than a claim.
    telling: RwLock<()>,
    /// Claims whose objects are not recorded yet.
    begun: Mutex<Vec<Claim>>,
    /// The registry has not heard of all changes.
    pub untold: AtomicBool,
}

/// A claim, until its object is recorded, or is not to be.
pub struct Claiming {
    cluster: Arc<Cluster>,
    claim: Claim,
}

impl Drop for Claiming {
    fn drop(&mut self) {
        let mut begun = lock(&self.cluster.claims.begun);
        if let Some(at) = begun.iter().position(|claim| *claim == self.claim) {
            begun.swap_remove(at);
        }
    }
}

impl Cluster {
    /// Claims the name of a shared object for this host. The object is recorded while what this gives is held.
    pub fn claim(self: &Arc<Self>, claim: Claim) -> Result<Claiming> {
        if self.reads_alone() {
            return Err(Error::new(
                ErrorKind::Permission,
                format!(
                    "this host was admitted to the cluster for reading alone: create {} on another host, or with \
                     --coherence local",
                    claim.name
                ),
            ));
        }
        self.check_names_can_be_told(&claim.name)?;
        let registry = self.registry()?;
        let _together = self.claims.telling.read().unwrap_or_else(PoisonError::into_inner);
        lock(&self.claims.begun).push(claim.clone());
        let claiming = Claiming { cluster: self.clone(), claim: claim.clone() };
        registry.claim(claim).map(|()| claiming)
    }

    /// Gives an object, whose name is claimed, addresses that no other object of the cluster has.
    pub fn give_addresses(&self, object: u128, room_bytes: u64, uid: u32) -> Result<u64> {
        self.registry()?.give_addresses(object, room_bytes, uid)
    }

    /// The claims of this host's shared objects: what is begun first, which is recorded by what is looked at after it.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let Ok(host) = self.host() else { return Vec::new() };
        if self.reads_alone() {
            return Vec::new(); // it is the home of nothing
        }
        let mut claims = lock(&self.claims.begun).clone();
        let recorded = host.shared_claims();
        claims.retain(|begun| recorded.iter().all(|recorded| recorded.name != begun.name));
        claims.extend(recorded);
        claims
    }

    /// Nobody claims a name until what this gives is dropped.
    pub(super) fn claims_stay(&self) -> RwLockWriteGuard<'_, ()> {
        self.claims.telling.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the registry which names are this host's. One that cannot be reached learns them when it can: with the next renewal.
    pub fn tell_names(self: &Arc<Self>) {
        self.claims.untold.store(true, Ordering::SeqCst);
        if let Ok(registry) = self.registry() {
            let _alone = self.claims_stay();
            self.claims.untold.store(false, Ordering::SeqCst); // what changes from here on is told by who changes it
            if registry.replace(self.claims()).is_err() {
                self.claims.untold.store(true, Ordering::SeqCst);
            }
        }
    }
}
