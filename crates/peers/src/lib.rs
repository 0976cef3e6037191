//! Connections between the hosts of a cluster. They move messages, in order, and know nothing of objects.
//!
//! One connection for each pair of hosts, over mutual TLS 1.3 ([`Security`]). What comes in is given to a [`Handler`]
//! on the connection's own thread; what goes out is written by whoever sends, if the socket takes it at once. A
//! *session* of two host processes outlives its connections: what was not received is sent again by the next one. A
//! peer that sends nonsense, does not read, or dies loses its session; the others do not notice.

pub mod ca;
pub mod frame;
pub mod greeting;
pub mod joining;

mod accept;
mod address;
mod certificate;
mod channel;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(test)]
mod golden;
mod handler;
mod handshake;
mod hello;
mod hex;
mod identity;
mod inbound;
mod judge;
mod link;
mod out;
mod peers;
mod pieces;
mod places;
mod random;
mod relay;
mod retained;
mod security;
mod session;
mod socket;
mod standing;
mod table;
mod through;
mod timed;
mod tls;
mod verify;
mod who;

pub use address::{HostAddress, Resolver, is_nowhere};
pub use certificate::{PeerRights, Role, Subject, check_host_name};
pub use commonhold_coherence::HostId;
pub use commonhold_object::{Error, ErrorKind, Result};
pub use frame::{MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES};
pub use handler::Handler;
pub use hello::{Hello, PROTOCOL_VERSION};
pub use identity::Identity;
pub use inbound::Payload;
pub use peers::Peers;
pub use security::Security;
pub use through::HostAt;
