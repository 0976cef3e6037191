//! Types of data in memory, and their translation between machines of other formats (Forin, Barrera,
//! Young and Rashid, 1988, section 3.2). `docs/TYPES.md` has the tables.
//!
//! | file | does |
//! |---|---|
//! | `machine` | byte order and floating point format of a machine |
//! | `tag` | what is in a range of memory: a type, or a record of some |
//! | `translate` | from one machine's format to another's, once |
//! | `swap` | byte orders; with the processor's own instructions where it has them |
//! | `vax` | the formats F and D, and what has no counterpart |
//! | `map` | which pages of an object have which tag, and in which format they are stored |
//! | `pages` | pages that come from another machine, translated where they lie |
//!
//! A value: no memory but what the caller gives.

mod machine;
mod map;
mod pages;
mod swap;
mod tag;
mod translate;
mod vax;

pub use machine::{ByteOrder, Floats, Machine};
pub use map::{MOST_RUNS, MOST_TAGS, MOST_TEXT_BYTES, PAGE_BYTES, Refusal, Tagged, Types};
pub use pages::Translated;
pub use swap::swap;
pub use tag::{Field, Tag, Type};
pub use translate::{Refused, Translation};
pub use vax::Losses;
