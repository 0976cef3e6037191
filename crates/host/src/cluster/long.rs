//! Messages that are longer than a connection's: the names of a host with many objects, all locks of an object, the news of
//! a large cluster. They go in parts, one after the other, and are heard when all are there.

use super::registry::names::{CLAIM_BYTES, MOST_NAMES};
use super::wire::Message;
use super::{Cluster, lock};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result, limits};
use commonhold_peers::MAX_PAYLOAD_BYTES;
use std::collections::HashMap;
use std::sync::Mutex;

/// Longest message. Of a host that never comes to an end no more is kept.
const MOST_BYTES: usize = 32 << 20;

/// Most names that this host's shared objects may have, and most bytes of them: they are told in one message. The rest is
/// for what renaming adds.
const MOST_OWN_NAMES: usize = MOST_NAMES / 4 * 3;
const MOST_OWN_BYTES: usize = 24 << 20;

/// Parts of messages.
#[derive(Default)]
pub(super) struct Parts {
    /// Parts of two messages do not mix: one is sent at a time.
    sending: Mutex<()>,
    /// What has come of messages that are not all there.
    came: Mutex<HashMap<HostId, Vec<u8>>>,
}

impl Parts {
    /// Another part came. Gives the message if it is the last. What is left of one whose first parts went with a session that
    /// is over is no message.
    pub(super) fn add(
        &self,
        from: HostId,
        is_first: bool,
        is_last: bool,
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let mut came = lock(&self.came);
        if is_first {
            came.insert(from, Vec::new());
        }
        let Some(all) = came.get_mut(&from) else { return Ok(None) };
        if bytes.is_empty() || all.len() + bytes.len() > MOST_BYTES {
            came.remove(&from);
            let words =
                format!("{from} sent a message of more than {MOST_BYTES} bytes, or one in empty parts");
            return Err(Error::new(ErrorKind::Protocol, words));
        }
        all.extend_from_slice(bytes);
        Ok(if is_last { came.remove(&from) } else { None })
    }

    /// Nothing comes from that host any more.
    pub fn forget(&self, from: HostId) {
        lock(&self.came).remove(&from);
    }
}

impl Cluster {
    /// Sends a message in parts.
    pub(super) fn send_long(&self, to: HostId, message: &[u8]) -> Result<()> {
        if message.len() > MOST_BYTES {
            let words =
                format!("a message of {} bytes is too long, the limit is {MOST_BYTES}", message.len());
            return Err(Error::new(ErrorKind::TooMany, words));
        }
        let _in_order = lock(&self.parts.sending);
        let mut parts = message.chunks(MAX_PAYLOAD_BYTES).peekable();
        let mut is_first = true;
        while let Some(part) = parts.next() {
            let message = Message::Part { is_first, is_last: parts.peek().is_none() };
            self.send(to, &message, &mut part.to_vec())?;
            is_first = false;
        }
        Ok(())
    }

    /// A part of a message came. Gives the message if it is the last.
    pub(super) fn part_came(
        &self,
        from: HostId,
        is_first: bool,
        is_last: bool,
        bytes: &[u8],
    ) -> Result<Option<Message>> {
        let Some(all) = self.parts.add(from, is_first, is_last, bytes)? else { return Ok(None) };
        postcard::from_bytes(&all)
            .map(Some)
            .map_err(|e| Error::new(ErrorKind::Protocol, format!("{from} sent what is no message: {e}")))
    }

    /// Refuses a name for a shared object if the others could not be told all of this host's any more.
    pub(super) fn check_names_can_be_told(&self, name: &Name) -> Result<()> {
        if self.host()?.all_objects().len() * (limits::NAME_BYTES + CLAIM_BYTES) < MOST_OWN_BYTES {
            return Ok(()); // however long they are
        }
        let claims = self.claims();
        let told: usize = claims.iter().map(|claim| claim.name.as_str().len() + CLAIM_BYTES).sum();
        if told + name.as_str().len() + CLAIM_BYTES <= MOST_OWN_BYTES && claims.len() < MOST_OWN_NAMES {
            return Ok(());
        }
        let words = format!(
            "the names of this host's {} shared objects have {told} bytes, and the limits are {MOST_OWN_NAMES} names \
             and {MOST_OWN_BYTES} bytes: remove some, or give them shorter names",
            claims.len()
        );
        Err(Error::new(ErrorKind::TooMany, words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_after_its_last_part_and_never_too_long() {
        let parts = Parts::default();
        let (one, other) = (HostId(1), HostId(2));
        assert_eq!(parts.add(one, true, false, &[1, 2]).unwrap(), None);
        assert_eq!(parts.add(other, true, true, &[9]).unwrap(), Some(vec![9]));
        assert_eq!(parts.add(one, false, true, &[3]).unwrap(), Some(vec![1, 2, 3]));
        assert_eq!(parts.add(one, true, false, &[7]).unwrap(), None);
        parts.forget(one);
        assert_eq!(parts.add(one, false, true, &[8]).unwrap(), None, "its first parts went with a session");
        assert_eq!(parts.add(one, true, false, &[5]).unwrap(), None);
        assert_eq!(parts.add(one, true, true, &[6]).unwrap(), Some(vec![6]), "it begins anew");
        assert_eq!(parts.add(one, true, false, &[]).unwrap_err().kind, ErrorKind::Protocol);
        let part = vec![0; MAX_PAYLOAD_BYTES];
        for number in 0..MOST_BYTES / MAX_PAYLOAD_BYTES {
            parts.add(one, number == 0, false, &part).unwrap();
        }
        assert_eq!(parts.add(one, false, true, &[0]).unwrap_err().kind, ErrorKind::Protocol);
        assert!(lock(&parts.came).is_empty());
    }
}
