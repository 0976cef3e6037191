//! The heap in memory of the test's own, one process after the other.

mod blocks;
mod damage;
mod deaths;
#[path = "../../../../tests/golden.rs"]
mod golden;
mod meanwhile;
mod model;
