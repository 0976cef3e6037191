//! The authority of a cluster: it says who its hosts are. A directory with a key that never leaves it.

mod authority;
mod files;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod records;
mod token;

pub use authority::{Authority, Issued, Validity, write_identity};
pub(crate) use authority::{new_key, prepare_identity};
pub use files::default_directory;
pub use records::Grant;
pub use token::Token;
