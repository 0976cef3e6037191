//! What is counted and traced of each object (`docs/SEEING.md`).
//!
//! | file | does |
//! |---|---|
//! | `counts` | the numbers of one object; the driver and the cache say what happens |
//! | `hot` | its hottest pages, in bounded memory |
//! | `trace` | its last messages, while somebody wants to see them |
//! | `told` | what there is to see of a message |
//! | `exposition`, `endpoint`, `conversations` | the same for Prometheus, who asks for it, and many who do at once |

mod conversations;
mod counts;
pub mod endpoint;
mod exposition;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod hot;
mod told;
mod trace;

pub use counts::{Fault, Seen};
pub use told::Told;
