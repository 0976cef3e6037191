//! A bounded queue of messages in memory that processes share, and that any of them may have
//! damaged. `docs/MESSAGES.md` has the design.
//!
//! | file | does |
//! |---|---|
//! | `layout` | where everything is in the memory |
//! | `memory` | what a queue needs of its memory: words, bytes, sleep |
//! | `lock` | one word that its owner's death frees |
//! | `queue` | send and receive |
//! | `landing` | places in other memory that messages may land in |
//! | `mapped` | memory that is mapped from a file (`commonhold-futex`) |
//! | `thread` | this thread's number, and what the kernel frees when it dies |
//!
//! `queue`, `lock` and `landing` are written against the trait [`Memory`]: their tests run them in
//! every interleaving (loom), and kill them after every step.

mod landing;
mod layout;
mod lock;
mod mapped;
mod memory;
mod queue;
mod thread;

pub use commonhold_futex::{Mapped, Wait, copy_once};
pub use landing::{Landing, Place};
pub use layout::{HEADER_BYTES, SLOTS, bytes_for, other_version};
pub use memory::Memory;
pub use queue::{Buffer, Form, Queue, Received, Refused, most_offered};
pub use thread::is_ready;
