//! Runs a program and counts the page faults in each of its mappings: those of its threads and its
//! children, too. What it proves is that wired memory has none: `docs/REAL-MEMORY.md`.
//!
//! The kernel tells of each fault, with its address, and of each mapping when it is made
//! (perf_event_open(2)). So an address is put to the mapping that was there then.
//!
//! | module | what |
//! |---|---|
//! | `rings` | what the kernel tells, read from a buffer for each processor and put in order |
//! | `space` | which mapping is where in a process |
//! | `tally` | the processes, their mappings, and how many faults each mapping had |
//! | `report` | what came of it, and whether wired memory had faults |
//! | `refused` | why the kernel does not tell, and what to do |
//! | `run` | the program, from its start to its end |

mod refused;
mod report;
mod rings;
mod run;
mod space;
mod tally;

pub use report::{Report, Verdict};
pub use run::{can_count, count};
pub use tally::{Faults, Mapping};
