//! Who may do what: owner, group and mode bits, as of files.

use serde::{Deserialize, Serialize};

/// What a client opened an object for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// Reading alone.
    Read,
    /// Reading and writing.
    ReadWrite,
}

impl Access {
    /// Whether it includes writing.
    pub fn writes(self) -> bool {
        self == Access::ReadWrite
    }
}

/// Who is asking: what the kernel says of the process at the other end of the socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Root may do everything, as with files.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the process is in `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Owner, group and the nine mode bits of an object or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// `rwxrwxrwx`; of an object's bits only read and write mean something.
    pub mode: u32,
}

/// The bits of one class: what is asked of [`Ownership::allows`].
pub mod bits {
    /// Read the object, or list the directory.
    pub const READ: u32 = 4;
    /// Write the object, or add and remove names in the directory.
    pub const WRITE: u32 = 2;
    /// Reach what lies below the directory.
    pub const SEARCH: u32 = 1;
}

impl Ownership {
    /// Whether `who` has all of the bits `wanted` (see [`bits`]).
    pub fn allows(&self, who: &Credentials, wanted: u32) -> bool {
        if who.is_root() {
            return true;
        }
        let class = if who.uid == self.uid {
            self.mode >> 6
        } else if who.in_group(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        class & wanted == wanted
    }

    /// The bits that `access` asks for.
    pub fn wanted(access: Access) -> u32 {
        if access.writes() { bits::READ | bits::WRITE } else { bits::READ }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid: uid, groups: groups.to_vec() }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let object = Ownership { uid: 7, gid: 50, mode: 0o460 };
        assert!(object.allows(&user(7, &[50]), bits::READ));
        assert!(!object.allows(&user(7, &[50]), bits::WRITE), "the owner's bits, not the group's");
        assert!(object.allows(&user(8, &[50]), bits::READ | bits::WRITE));
        assert!(!object.allows(&user(9, &[]), bits::READ));
        assert!(object.allows(&user(0, &[]), bits::READ | bits::WRITE | bits::SEARCH));
    }
}
