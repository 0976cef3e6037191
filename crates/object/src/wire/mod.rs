//! What host and client say to each other.
//!
//! One datagram of a Unix SOCK_SEQPACKET socket is one message: a fixed header, then a body in postcard. File
//! descriptors travel beside it. The decoder takes bytes from anybody: it never panics and never allocates more
//! than the datagram could hold (`./run fuzz` stands on that: formats `requests` and `replies`).
//!
//! Every request has a number, and a reply carries the number of its request. A request may arrive twice: when
//! a host process is replaced, the client is told so ([`Event::HostReplaced`]) and repeats what was not
//! answered, with [`Header::repeated`] set. That one works on what was sent after the client was told alone
//! ([`Header::generation`]): each host process does a request once. The one before may have done it, too, and died before it
//! answered. So each request is idempotent: identities are chosen by the client
//! (mapping ids, the creation nonce), and a repeated removal of what is gone succeeds.

mod bytes;
mod frame;
mod replies;
mod requests;
#[cfg(any(test, feature = "fuzzing"))]
pub mod samples;

pub use frame::{Header, PROTOCOL_VERSION, decode, encode, readdress, split};
pub use replies::{Event, FromHost, HelloReply, OpenReply, Reply};
pub use requests::{MapRequest, Offered, PagerReply, Request, Sizing, SnapshotRequest};
