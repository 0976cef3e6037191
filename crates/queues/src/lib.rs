//! A submission queue and a completion queue in memory that a host shares with one pager. The host
//! believes nothing that the pager writes there. `docs/PAGERS.md` has the design.
//!
//! | file | does |
//! |---|---|
//! | `layout` | where everything is in the memory |
//! | `memory` | what the queues need of their memory: words, bytes, sleep |
//! | `area` | which pages of the data area are free |
//! | `asking` | the host's end of the submission queue, and which call owns which slot |
//! | `answers` | the host's end of the completion queue |
//! | `answering` | the pager's ends of both |
//! | `shared` | memory that is mapped from a file |
//! | `sleeper` | how an end sleeps, and is woken only if it does |
//!
//! All but `shared` is written against the trait [`Memory`]: the tests run it in every
//! interleaving (loom), and with garbage in every word.

mod answering;
mod answers;
mod area;
mod asking;
mod layout;
mod memory;
mod shared;
mod sleeper;

pub use answering::{Answering, Given};
pub use answers::{Answers, Completion};
pub use asking::{Asking, PageIn, Place};
pub use layout::{BYTES, DATA, DATA_PAGES, ENTRIES, LONGEST_NAME, PAGE};
pub use memory::Memory;
pub use shared::{Shared, create};
pub use sleeper::{wake_host, wake_pager};
