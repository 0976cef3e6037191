//! Images: data with ordinary pointers that has one address in every process (docs/IMAGES.md). No host is needed.
//!
//! ```no_run
//! use commonhold::image::{self, Arena, Text};
//!
//! image::layout! {
//!     struct Word<'a> { text: Text<'a>, next: Option<&'a Word<'a>> }
//! }
//!
//! # fn main() -> commonhold::Result<()> {
//! let arena = Arena::new("words@1.0.0")?;
//! let second = arena.place(Word { text: arena.text("second")?, next: None })?;
//! let first = arena.place(Word { text: arena.text("first")?, next: Some(second) })?;
//! arena.root("list", first)?;
//! arena.seal()?;
//!
//! // In any process, in microseconds:
//! let words = image::include("words@1")?;
//! let first: &'static Word<'static> = words.root("list")?;
//! assert_eq!(first.next.unwrap().text.as_str(), "second");
//! # Ok(())
//! # }
//! ```

pub use commonhold_images::data::{
    Arena, Entry, EntryField, Field, Layout, Options, Run, Scalar, Text, TypeRef, Types, What,
};
pub use commonhold_images::format::{Id, Version};
pub use commonhold_images::include::{Image, include, include_from, include_newest, included};
pub use commonhold_images::layout;
pub use commonhold_images::ranges::Owner;
pub use commonhold_images::store::{Published, Store};
pub use commonhold_images::{Error, Result};
