//! The kernel's FUSE protocol (`linux/fuse.h`, version 7.40): what is asked, what is answered, and the device between.
//!
//! Written here, and not taken from a library, because a mount is to outlive its server: the next one goes on with the same
//! descriptor, without INIT, and has the kernel send again what was under way. It knows nothing of objects.

pub mod bytes;
pub mod device;
pub mod flags;
pub mod reply;
pub mod request;

pub use device::Device;
pub use reply::{Attributes, EntryReply, Opened};
pub use request::{Asked, Header, Operation};
