//! For the fuzz targets: what is private of what hosts, keepers, files and others say.

pub use crate::cluster::fuzzing::{messages, sample_messages};
pub use crate::cluster::registry::fuzzing::{keys, members, sample_keys, sample_members};
pub use crate::seeing::fuzzing::{questions, sample_questions};
pub use crate::server::fuzzing::{blobs, sample_blobs};
pub use crate::shared::fuzzing::{sample_turns, turns};
