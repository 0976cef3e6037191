//! Explicit coherence (Sprite's limited consistency): what a host writes, others see after its sync.
//!
//! The home keeps the list of hosts that share the object. A sync sends the pages that were written to the home, in one
//! message; the home tells every other host, in one message each, that its copies are not current; their next access
//! fetches the page. The sync is done when all have been told: an access that begins after that finds the new pages.
//!
//! A page that was written or locked at a host survives another host's sync there, until it is synced or unlocked. The
//! last sync of a page wins, and each version that is replaced unseen is counted as a conflict.

mod cache;
mod home;
mod message;
mod node;

pub use message::Message;
pub use node::Node;
