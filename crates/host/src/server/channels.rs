//! Channels (`docs/MESSAGES.md`), which the host knows of only that whoever could write one may have its memory for ever, also
//! when it is closed. Who writes a channel says where others write: to wired objects of its class, which he may write himself.
//! So a channel comes to no other class than one in which all who had it may write.

use super::object::Object;
use super::{Host, lock};
use commonhold_object::{Error, ErrorKind, Name, Ownership, Result};
use std::collections::BTreeSet;

/// Ordinary users who were given a channel to write, but for what a host process before did, of which nothing is known.
#[derive(Debug, Default)]
pub(super) struct Writers {
    known: BTreeSet<u32>,
    is_all: bool,
}

impl Writers {
    /// Of a channel that was made just now.
    pub(super) fn none_yet() -> Writers {
        Writers { known: BTreeSet::new(), is_all: true }
    }

    /// Whether that user, root and the host's own are all who may have it.
    fn are_only(&self, owner: u32, now: Ownership) -> bool {
        let others_may_write = now.mode & 0o022 != 0;
        // What nobody else may write by now nobody else could ever write: else its mode had stayed.
        (self.is_all || !others_may_write && now.uid == owner) && self.known.iter().all(|uid| *uid == owner)
    }
}

impl Host {
    /// A user is given a channel to write.
    pub(super) fn note_writer(&self, object: &Object, uid: u32) {
        if self.machine.is_ordinary(uid) {
            lock(&object.writers).known.insert(uid);
        }
    }

    /// Refuses another name, owner or mode of a channel. `owner`: who owns it then.
    pub(super) fn check_channel_may_change(&self, object: &Object, name: &Name, owner: u32) -> Result<()> {
        let refused = |text| Err(Error::new(ErrorKind::Busy, text));
        if self.is_in_use(object) {
            return refused(format!(
                "{name} is a channel and open: those who use it rely on its name, owner and mode; close it first"
            ));
        }
        let now = object.record().ownership;
        if !lock(&object.writers).are_only(owner, now) {
            return refused(format!(
                "{name} is a channel that other users could write, who may have its memory still: it keeps its name, owner and \
                 mode; remove it, and make another one"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_changes_while_nobody_but_its_owner_could_write_it() {
        let now = |mode| Ownership { uid: 7, gid: 7, mode };
        let mut writers = Writers::none_yet();
        assert!(writers.are_only(7, now(0o666)) && writers.are_only(8, now(0o600)), "nobody has had it");
        writers.known.insert(7);
        assert!(writers.are_only(7, now(0o666)) && !writers.are_only(8, now(0o666)), "who owned it has it");
        writers.known.insert(8);
        assert!(!writers.are_only(7, now(0o666)) && !writers.are_only(7, now(0o600)));
        // What a host before gave to whom.
        let unknown = Writers::default();
        assert!(unknown.are_only(7, now(0o644)) && !unknown.are_only(8, now(0o644)));
        assert!(!unknown.are_only(7, now(0o620)) && !unknown.are_only(7, now(0o602)));
    }
}
