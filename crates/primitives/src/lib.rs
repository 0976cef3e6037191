//! Synchronisation in memory that processes share, and that any of them may have damaged.
//! `docs/PRIMITIVES.md` has the design.
//!
//! | file | does |
//! |---|---|
//! | `kind` | which primitive, how many bytes it has, and how an object's description says so |
//! | `memory` | what a primitive needs of its memory: words, sleep |
//! | `mutex` | one word that holds its owner |
//! | `condition`, `rwlock`, `semaphore`, `barrier`, `counter` | the others |
//! | `shared` | a mutex of several hosts, as one host's part of it sees the word |
//! | `between` | the others of several hosts: monitors |
//! | `members` | the table of the processes that read, or that a barrier waits for |
//! | `dead` | what the host does when a process has ended |
//! | `mapped` | memory that is mapped from a file (`commonhold-futex`) |
//!
//! All is written against the trait [`Memory`]: the tests run it in every interleaving (loom), and
//! kill it after every step. Memory of zeroes is each primitive's first state, so nobody can die
//! while he makes one.

mod barrier;
pub mod between;
mod condition;
mod counter;
mod dead;
mod kind;
mod mapped;
mod members;
mod memory;
mod mutex;
mod rwlock;
mod semaphore;
mod shared;

pub use barrier::{Arrived, Barrier};
pub use commonhold_futex::{Mapped, Wait, forks, thread};
pub use condition::Condition;
pub use counter::Counter;
pub use dead::free_of_the_dead;
pub use kind::{Kind, MOST};
pub use members::MEMBERS;
pub use memory::{Memory, Refused, Who};
pub use mutex::Mutex;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use shared::Taken;
