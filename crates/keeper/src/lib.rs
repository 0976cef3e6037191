//! The keeper: a small process that holds what must outlive the host, and starts the host again when it dies; and
//! the [`Vault`], the host's side of it.
//!
//! The keeper knows nothing of objects, but for two promises that it must keep itself while no host serves: that a fault
//! waits no longer than its object allows ([`FaultDeadline`]), and that nobody uses what is shared with other machines
//! when this host's lease is over ([`fence`]). It holds *kept things*: a [`Key`], a small blob, and
//! perhaps a descriptor.
//! The host puts them there; when the host dies the keeper starts another and hands it all of them. The host holds a
//! mirror of the same things; when the keeper dies the host starts another and fills it. So either may be killed at
//! any instant, and only the loss of both at once loses what was kept.
//!
//! What makes `put` safe: a message lies in the keeper's socket as soon as `sendmsg` returns, with its descriptor,
//! and stays there when the sender dies. The keeper reads its socket to the end before it starts the next host.

mod backoff;
mod config;
pub mod deadline;
mod descriptor;
pub mod fence;
mod filter;
#[cfg(test)]
mod golden;
mod hosted;
mod keeper;
mod kept;
mod limits;
mod link;
mod lock;
mod log;
pub mod marks;
pub mod protocol;
mod store;
mod stuck;
mod vault;
mod waits;

pub use backoff::RestartPolicy;
pub use config::{KeeperCommand, KeeperConfig, Serves};
pub use deadline::{EndedFaults, FaultDeadline};
pub use descriptor::adopt_descriptor;
pub use keeper::run_keeper;
pub use kept::{
    BLOB_BYTES, BLOBS_BYTES, Generation, KEPT_THINGS, KEY_BYTES, Kept, Key, LOCK_KEY, STUCK_PART,
};
pub use limits::raise_descriptor_limit;
pub use lock::lock_state_directory;
pub use log::StateLog;
pub use stuck::TELLS_KERNEL;
pub use vault::{Inheritance, KeeperEvent, Vault};
