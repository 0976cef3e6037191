//! Requests that take much memory. If the host is killed while it does one, the memory was too much, and the client would
//! ask the next host for the same: so the keeper is told before such a request is begun, and the next host answers it with
//! an error instead.

use super::Host;
use super::session::Session;
use commonhold_keeper::Key;
use commonhold_object::wire::{Header, Request};
use commonhold_object::{Error, ErrorKind, PagerKind, Result};
use std::sync::OnceLock;

/// A request for so much is noted, or for a sixteenth of all there is, if that is less.
const MUCH_BYTES: u64 = 64 << 20;

fn much_bytes() -> u64 {
    static MUCH: OnceLock<u64> = OnceLock::new();
    *MUCH.get_or_init(|| MUCH_BYTES.min(super::status::memory_bytes() / 16).max(1))
}

/// How much memory of its own the host takes for a request at once.
fn reserved_bytes(request: &Request) -> u64 {
    match request {
        Request::Create { options, .. } | Request::CreateNameless { options, .. }
            if !options.is_controlled()
                && (options.is_wired() || options.pager == PagerKind::Anonymous && options.reserves()) =>
        {
            options.size_bytes
        }
        Request::Resize { size_bytes, .. } | Request::ResizeOpened { size_bytes, .. } => *size_bytes,
        _ => 0,
    }
}

impl Host {
    /// Notes a request for much memory that is about to be begun; refuses one that a host died of. Gives what is to be
    /// forgotten when it is done.
    pub(super) fn begin_much(
        &self,
        session: &Session,
        header: Header,
        request: &Request,
    ) -> Result<Option<Key>> {
        let bytes = reserved_bytes(request);
        if bytes < much_bytes() || header.number == 0 {
            return Ok(None);
        }
        let key = Key(format!("begun/{}/{}", session.id.0, header.number));
        let by = self.vault.generation().to_le_bytes();
        if let Some(before) = self.vault.get(&key).filter(|note| header.repeated && note.blob != by)
            && !self.is_done(session, request)
        {
            self.unkeep(&before.key);
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "the host was killed while it took {bytes} bytes of memory for this, and does not try again: the \
                     control group {} or the machine has too little; make the object smaller, give it a budget (its \
                     pages then spill to disk), or give the host's control group more memory, then try again",
                    commonhold_sys::cgroup::own_group()
                ),
            ));
        }
        self.vault.put(&key, &by, None)?;
        Ok(Some(key))
    }

    /// Whether the host before had done it, and only the answer is missing.
    fn is_done(&self, session: &Session, request: &Request) -> bool {
        match request {
            Request::Create { nonce, .. } | Request::CreateNameless { nonce, .. } => {
                self.all_objects().iter().any(|o| o.record().nonce == *nonce)
            }
            Request::Resize { name, size_bytes, .. } => self
                .lookup(session, name, commonhold_object::Access::ReadWrite)
                .is_ok_and(|object| object.record().options.size_bytes == *size_bytes),
            Request::ResizeOpened { object, size_bytes, .. } => {
                self.object(*object).is_ok_and(|object| object.record().options.size_bytes == *size_bytes)
            }
            _ => false,
        }
    }

    /// What was noted of sessions that are no more.
    pub(super) fn forget_begun<'k>(&self, kept: impl IntoIterator<Item = &'k Key>) {
        for key in kept {
            let id = key.0.strip_prefix("begun/").and_then(|rest| rest.split('/').next()?.parse().ok());
            let known = |id| self.sessions().iter().any(|session| session.id.0 == id);
            if id.is_some_and(|id: u64| !known(id)) {
                self.unkeep(key);
            }
        }
    }
}
