//! What the segment manager (`commonhold-segments`) is tried on. No part of what is shipped.
//!
//! | module | what it has |
//! |---|---|
//! | [`Checked`], [`Windows`], [`Descriptors`] | three engines: segment hardware with memory behind it |
//! | [`conformance`] | one suite for every engine, beside a table that checks each access |
//! | [`model`] | arenas, and machines on engines, beside a model that knows every page |
//! | [`races`] | every interleaving of threads that share an arena |
//! | [`fill`] | how full an arena gets |
//! | [`growth`] | what growth copies, and best fit, which it is compared with |

mod checked;
pub mod conformance;
mod descriptors;
mod engine;
pub mod fill;
pub mod growth;
mod memory;
pub mod model;
pub mod races;
mod windows;

pub use checked::Checked;
pub use descriptors::Descriptors;
pub use engine::{Access, Engine, Kind, LoadFailed, Word};
pub use memory::{Memory, PAGE, WORDS};
pub use windows::{Accesses, Windows};
