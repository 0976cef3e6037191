//! Whom the connections speak to.

use crate::{Error, Hello, HostId, Payload, PeerRights, Result};
use std::net::SocketAddr;

/// What becomes of connections and messages. Called on the connections' own threads, without a lock held; a call that
/// takes long holds up that one peer. It may send and disconnect from within; it must not connect to the same host.
///
/// What is told is the life of *sessions* with one process of another host each, which outlive their connections:
/// `connected`, then for each connection that breaks `broken` and, when there is another, `resumed`; at the end `lost`.
pub trait Handler: Send + Sync + 'static {
    /// Whether a host that says so may be a peer, beside what the connections know: its number may be another's. Asked
    /// before anything of an earlier connection ends.
    fn may_come(&self, _peer: &Hello) -> Result<()> {
        Ok(())
    }

    /// A session with a host begins; before anything of it is received. Sending to it works from here on.
    fn connected(&self, peer: &Hello, rights: PeerRights);

    /// A message, in the order of sending, once. `payload` are the raw bytes behind it, still in the socket: what is
    /// not read is skipped. If reading it fails, the connection has broken, and the whole message comes again by the next
    /// one: so nothing may be done about a message before all is read that will be.
    fn received(&self, from: HostId, message: &[u8], payload: &mut Payload<'_>);

    /// The connection with a host broke. Messages to it and from it wait until either end has connected again: nothing
    /// is lost unless the session ends before.
    fn broken(&self, _host: HostId, _incarnation: u64, _why: &Error) {}

    /// There is a connection again, and the session goes on.
    fn resumed(&self, _peer: &Hello, _rights: PeerRights) {}

    /// A session is over, once for each that [`Handler::connected`] announced: messages may be lost, either way.
    /// Nothing comes from that incarnation afterwards, unless it is announced again.
    fn lost(&self, host: HostId, incarnation: u64, why: &Error);

    /// Where a host of the cluster listens, if connections of `from` with it are passed on here.
    fn passes_on_to(&self, _from: &Hello, _host: HostId) -> Option<SocketAddr> {
        None
    }

    /// A connection of `from` with a host that it cannot reach is passed on here.
    fn passes_on(&self, _from: &Hello, _to: HostId) {}

    /// There is no way to a host from here, and one through `relay`, which passes on.
    fn reached_through(&self, _host: HostId, _relay: HostId) {}

    /// Somebody was turned away before they became a peer. One line on standard error unless told otherwise.
    fn refused(&self, from: SocketAddr, why: &Error) {
        eprintln!("commonhold: a connection from {from} was refused: {why}");
    }
}
