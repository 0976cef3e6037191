//! Data images: structures with ordinary pointers, built at the addresses where every process will read them.

mod arena;
mod flat;
mod layout;
mod run;
mod seal;
mod table;
mod types;
mod walk;

pub use arena::{Arena, Options};
pub use layout::Layout;
pub use run::{Run, Text};
pub use table::{Entry, EntryField, What};
pub use types::{Field, Scalar, Shape, Type, TypeRef, Types, Variant};
