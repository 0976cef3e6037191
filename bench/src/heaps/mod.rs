//! What the rows `heap.…` measure: one load for several allocators, and the processes that make it.

mod first_fit;
mod load;
pub mod worker;

pub use first_fit::FirstFit;
pub use load::{Load, Mimalloc, ours};
