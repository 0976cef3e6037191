//! The authority of a cluster: it says who its hosts are. A directory with a key that never leaves it.

mod authority;
mod files;

pub use authority::{Authority, Issued, Validity};
pub use files::{TOKENS_FILE, default_directory};
