//! What one user may have: of trusted users (root, and who runs the host) more than of others.

use crate::Registry;
use commonhold_object::{Error, ErrorKind, Result};

/// What one user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of memory and disk that are counted against a user.
    pub bytes: u64,
    /// Objects, removed ones that are in use included.
    pub objects: u64,
    /// Directories: they stay when what was in them goes.
    pub directories: u64,
}

/// The quota of each user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Who runs the host.
    pub owner: u32,
    /// That user's, and root's.
    pub trusted: Quota,
    /// Everybody else's.
    pub ordinary: Quota,
}

impl Quotas {
    /// The same for everybody, with as many directories as they like.
    pub fn same(bytes: u64, objects: u64) -> Quotas {
        let quota = Quota { bytes, objects, directories: u64::MAX };
        Quotas { owner: 0, trusted: quota, ordinary: quota }
    }

    /// Whether the user is neither root nor who runs the host.
    pub fn is_ordinary(&self, uid: u32) -> bool {
        uid != 0 && uid != self.owner
    }

    /// That user's.
    pub fn of(&self, uid: u32) -> Quota {
        if self.is_ordinary(uid) { self.ordinary } else { self.trusted }
    }
}

impl Registry {
    /// Refuses growth alone: who is past a quota that was lowered may still shrink, and create what reserves nothing.
    pub(crate) fn check_quota(&self, uid: u32, more_objects: u64, more_bytes: u64) -> Result<()> {
        let quota = self.quotas.of(uid);
        let (objects, bytes) = self.usage(uid);
        if more_objects > 0 && objects.saturating_add(more_objects) > quota.objects {
            return Err(Error::new(
                ErrorKind::Quota,
                format!(
                    "user {uid} has {objects} objects, the limit: remove some, or start the host with --max-objects"
                ),
            ));
        }
        if more_bytes > 0 && bytes.saturating_add(more_bytes) > quota.bytes {
            let way_out = if self.quotas.is_ordinary(uid) {
                "make it smaller, or start the host with a larger --quota"
            } else if more_objects == 0 {
                "or start the host with a larger --quota"
            } else {
                "or create the object with --reserve no"
            };
            return Err(Error::new(
                ErrorKind::Quota,
                format!(
                    "user {uid} has reserved {bytes} of {} bytes, and {more_bytes} more were asked: remove something, \
                     {way_out}",
                    quota.bytes
                ),
            ));
        }
        Ok(())
    }

    /// Refuses directories that would be made on the way, past what the user may have.
    pub(crate) fn check_directories(&self, uid: u32, more: u64) -> Result<()> {
        let (has, limit) = (self.tree.directories_of(uid), self.quotas.of(uid).directories);
        if more == 0 || has.saturating_add(more) <= limit {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Quota,
            format!(
                "user {uid} has {has} directories, and {more} more were asked; the limit is {limit}: remove empty ones \
                 (`commonhold rm`), or start the host with --max-objects"
            ),
        ))
    }
}
