//! The centralized scheduler (section 3 of the paper): the object's home decides, every host asks it.
//!
//! [`Home`] is the paper's server: Figures 2, 3 and 4, for any page sizes (section 3.1). [`Cache`] is what the paper's
//! kernel does with its answers. The home's own host has both, and they talk by the same messages, which are then the
//! paper's local ones: [`Node`] is a host with all it plays.
//!
//! What the paper's pseudo-code leaves out and is here: a grant to write waits until every reader has said that its copy
//! is gone; each recall and each invalidation is answered exactly once, also when it crosses a page-out; a page stays
//! for a minimum hold after it was granted, so that the instruction that faulted retires; and writers do not overtake
//! waiting readers for ever.

mod cache;
mod home;
mod message;
mod node;
mod pages;
mod queue;
mod table;

pub use cache::Cache;
pub use home::{Home, OnLoss, Options, State};
pub use message::Message;
pub use node::Node;
pub use table::PageTable;
