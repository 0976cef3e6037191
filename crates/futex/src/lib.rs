//! What processes need to wait for each other in memory that they share: words of 32 and 64 bits,
//! sleep and wake-up (futex), how long to wait, and this thread's number.
//!
//! Channels and locks with names (`commonhold-channel`, `commonhold-primitives`) are made of it.

mod copy;
mod mapped;
mod thread;
mod wait;

pub use copy::copy_once;
pub use mapped::Mapped;
pub use thread::{forks, thread};
pub use wait::{LONGEST_SLEEP, Wait};
