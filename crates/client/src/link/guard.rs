//! Sockets that are not (yet) the connection of all threads, for the sake of fork.

use super::{Shared, lock};
use crate::own;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// While it lives, the socket is open, and a fork child will not keep it so.
pub(crate) struct Guard {
    shared: &'static Shared,
    socket: Arc<OwnedFd>,
}

impl Guard {
    pub(crate) fn new(shared: &'static Shared, socket: OwnedFd) -> Self {
        own::note(&socket);
        let socket = Arc::new(socket);
        lock(&shared.state).guarded.push(socket.clone());
        Guard { shared, socket }
    }

    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&self.shared.state).guarded.retain(|socket| !Arc::ptr_eq(socket, &self.socket));
    }
}
