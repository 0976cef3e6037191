//! A heap in an object: blocks of memory that any process allocates and any other frees.
//! `docs/HEAP.md` has the design.
//!
//! | file | does |
//! |---|---|
//! | `words` | what a heap needs of its memory |
//! | `layout` | where everything lies, by the object's size alone |
//! | `class` | sizes of blocks |
//! | `chunk` | a chunk's header, as it is read from memory that nobody trusts |
//! | `book` | the same as its owner knows it, who believes nothing that it reads |
//! | `arena` | allocate and free by the owner, on the short way |
//! | `spans` | pages for blocks; runs of pages |
//! | `central` | chunks are taken in batches, and given back |
//! | `remote` | blocks of other arenas are freed, and collected by their owner |
//! | `publish` | allocate into a word, and free from it, of which a death leaves both or none |
//! | `adopt` | arenas of processes that ended, and what is mended in them |
//! | `people` | who uses the heap, and who of them lives |
//! | `names` | roots and types by name |
//! | `check` | reads all of it, and says what is wrong |
//!
//! All is written against the trait [`Words`]: the tests kill it after every step. Memory of zeroes
//! is an empty heap, so nobody can die while he makes one.

mod adopt;
mod arena;
mod book;
mod central;
mod check;
mod chunk;
mod class;
mod layout;
mod names;
mod people;
mod publish;
mod refused;
mod remote;
mod spans;
mod words;

pub use arena::Arena;
pub use check::{Block, Report, check, visit};
pub use class::SMALLEST;
pub use layout::{Layout, PAGE};
pub use names::{MOST_NAMES, ROOT_BYTES, TAG_BYTES, Tagged};
pub use people::{Known, People};
pub use refused::{Problem, Refused};
pub use words::Words;
