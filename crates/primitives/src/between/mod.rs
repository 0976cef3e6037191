//! Primitives that several hosts share: each is a *monitor*, whose state travels with its mutex's token.
//!
//! | file | does |
//! |---|---|
//! | `monitor` | what a thread does in a monitor: enter, look, change, wait, leave |
//! | `host` | what a host does with the words of one, when its token comes, goes, or a process has ended |
//! | `condition`, `rwlock`, `semaphore`, `barrier`, `counter` | what the five do there |

mod barrier;
mod condition;
mod counter;
mod host;
mod monitor;
mod rwlock;
mod semaphore;

pub use barrier::Barrier;
pub use condition::Condition;
pub use counter::Counter;
pub use host::{Given, Left, Monitor, Seen, free_monitors_of_the_dead};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
