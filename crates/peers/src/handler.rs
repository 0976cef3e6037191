//! Whom the connections speak to.

use crate::{Error, Hello, HostId, Payload, PeerRights};
use std::net::SocketAddr;

/// What becomes of connections and messages. Called on the connections' own threads, without a lock held; a call that
/// takes long holds up that one peer. It may send and disconnect from within; it must not connect to the same host.
pub trait Handler: Send + Sync + 'static {
    /// A host is connected; before anything of it is received. Sending to it works from here on.
    fn connected(&self, peer: &Hello, rights: PeerRights);

    /// A message, in the order of sending. `payload` are the raw bytes behind it, still in the socket: what is not
    /// read is skipped. If reading fails, the connection has ended, and [`Handler::lost`] follows.
    fn received(&self, from: HostId, message: &[u8], payload: &mut Payload<'_>);

    /// A connection ended: once for each that [`Handler::connected`] announced. Nothing comes from that incarnation
    /// afterwards, unless it is announced again.
    fn lost(&self, host: HostId, incarnation: u64, why: &Error);

    /// Somebody was turned away before they became a peer. One line on standard error unless told otherwise.
    fn refused(&self, from: SocketAddr, why: &Error) {
        eprintln!("commonhold: a connection from {from} was refused: {why}");
    }
}
