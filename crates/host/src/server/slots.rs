//! What all clients share and nobody may take all of: places for clients, and what the keeper keeps of their mappings.
//! Root and who runs the host may: they could stop it as well.

use super::Host;
use super::session::Session;
use crate::workers::Share;
use commonhold_keeper::{BLOBS_BYTES, KEPT_THINGS};
use commonhold_object::{Error, ErrorKind, Result, limits};
use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

/// What may be kept of all clients of one ordinary user together: a quarter of what can be kept of everybody's. That is
/// an entry for each mapping and one more if its object has a deadline, one for each object with locked pages, and some
/// for each client.
const THINGS_PER_USER: usize = KEPT_THINGS / 4;
/// The same in bytes.
const BYTES_PER_USER: usize = BLOBS_BYTES / 4;
/// Mappings with in-thread service that one process may have. Each costs the host a descriptor.
const CLAIMED_PER_CLIENT: usize = 64;

fn too_many(message: String) -> Error {
    Error::new(ErrorKind::TooMany, message)
}

impl Host {
    /// A new client's share of the workers: of an ordinary user's, a part of that user's.
    pub(super) fn share_of(&self, uid: u32) -> Arc<Share> {
        self.machine.share_of_user(uid).map_or_else(Arc::default, |user| Arc::new(Share::within(user)))
    }

    /// Refuses a client more than there is place for: for anybody, for one user, or for others than root,
    /// to whom and to whose host it is some places are left.
    pub(super) fn check_place(&self, uid: u32) -> Result<()> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let (count, limit) = (sessions.len() as u64, self.limits.clients);
        if count >= limit {
            return Err(too_many(format!(
                "the host serves {count} clients, its limit: end some, or start it with --max-clients"
            )));
        }
        let half = limit.div_ceil(2);
        // Nobody has more than half as long as all together have not.
        if !self.limits.quotas.is_ordinary(uid) || count < half {
            return Ok(());
        }
        let left = (limit / 8).min(16);
        if count >= limit - left {
            return Err(too_many(format!(
                "the host serves {count} clients, and the last {left} of {limit} places are for root and for who runs \
                 the host: end some, or start it with --max-clients"
            )));
        }
        let mine = sessions.values().filter(|session| session.credentials.uid == uid).count() as u64;
        if mine >= half {
            return Err(too_many(format!(
                "user {uid} has {mine} clients, the most of the host's {limit} that one user may have: end some, or \
                 start it with --max-clients"
            )));
        }
        Ok(())
    }

    /// Refuses a mapping more than one client may have, or one user.
    pub(super) fn check_room(&self, session: &Session, claimed: bool) -> Result<()> {
        let map = session.space.map.read().unwrap_or_else(PoisonError::into_inner);
        let count = map.len() as u64;
        if count >= limits::MAPPINGS_PER_CLIENT {
            return Err(too_many(format!(
                "this client has {count} mappings, the limit: unmap some, or map larger parts"
            )));
        }
        if claimed {
            let claiming = map.iter().map(|region| &region.value.mapping).filter(|m| m.claims.is_some());
            if claiming.map(Arc::as_ptr).collect::<HashSet<_>>().len() >= CLAIMED_PER_CLIENT {
                return Err(too_many(format!(
                    "this client has {CLAIMED_PER_CLIENT} mappings with in-thread service, the limit: unmap some, or \
                     map without it"
                )));
            }
        }
        drop(map);
        self.check_kept_of(session.credentials.uid)
    }

    /// Refuses an ordinary user for whom so much is kept that others would find no room. Nobody is looked at as long as
    /// there is plenty.
    pub(super) fn check_kept_of(&self, uid: u32) -> Result<()> {
        let plenty = self.vault.kept().0 < THINGS_PER_USER && self.vault.kept_bytes() < BYTES_PER_USER;
        if plenty || !self.limits.quotas.is_ordinary(uid) {
            return Ok(());
        }
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let mine = sessions.values().filter(|session| session.credentials.uid == uid);
        let (things, bytes) = self.vault.kept_of(mine.map(|session| session.id.0));
        drop(sessions);
        if things >= THINGS_PER_USER || bytes >= BYTES_PER_USER {
            return Err(too_many(format!(
                "the clients of user {uid} have {things} mappings and objects with locked pages together ({bytes} \
                 bytes are noted of them); the limit is {THINGS_PER_USER} ({BYTES_PER_USER} bytes): unmap some, map larger \
                 parts, or lock less"
            )));
        }
        Ok(())
    }
}
