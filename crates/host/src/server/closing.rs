//! What came from clients is closed where nobody waits for it: each user has a thread for that.

use super::session::Session;
use super::{Host, lock};
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_sys::closing::{Closer, WAITING};
use commonhold_sys::socket;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Users whose closers are remembered before those that have nothing to do are forgotten.
const REMEMBERED: usize = 64;

fn too_many() -> Error {
    Error::new(
        ErrorKind::TooMany,
        format!(
            "{WAITING} files that this user's clients sent wait to be closed, the limit: connect again when their file \
             systems have answered, and send only what a request calls for"
        ),
    )
}

impl Host {
    /// Who closes what came from that user.
    fn closer_of(&self, uid: u32) -> Closer {
        let mut closers = lock(&self.closers);
        if closers.len() >= REMEMBERED {
            closers.retain(|_, closer| !closer.is_idle());
        }
        closers.entry(uid).or_default().clone()
    }

    /// Closes what a client sent and no request calls for. An error where too much waits: then no more is taken from it.
    pub(super) fn close_for(&self, session: &Session, fds: impl IntoIterator<Item = OwnedFd>) -> Result<()> {
        let closer = self.closer_of(session.credentials.uid);
        closer.close(fds);
        if closer.is_full() { Err(too_many()) } else { Ok(()) }
    }

    /// Refuses a user whose files are not closed.
    pub(super) fn check_closed(&self, uid: u32) -> Result<()> {
        let full = lock(&self.closers).get(&uid).is_some_and(Closer::is_full);
        if full { Err(too_many()) } else { Ok(()) }
    }

    /// A connection is over; whatever lies in its queue goes.
    pub(super) fn end_connection(&self, socket: Arc<OwnedFd>) {
        // Of a socket that does not say whose it is, nobody's.
        let uid = socket::peer(&*socket).map_or(u32::MAX, |peer| peer.uid);
        self.closer_of(uid).end_connection(socket);
    }
}
