//! Tokens of the mutexes and monitors of one object that several hosts share. `docs/PRIMITIVES.md`, "Between hosts", has the design.
//!
//! Each mutex has one token, which is at one host or on its way. While a host has it, the host's processes lock and unlock in
//! memory that they share, without anybody else. Who waits is in a queue that travels with the token, and asks the last host of
//! the queue that it knows: so a hand-over is one request and one token, as pages are under forwarding (Forin, Barrera, Young and
//! Rashid, *Distributed Shared Memory Server for Mach*, 1988, section 4).
//!
//! | file | does |
//! |---|---|
//! | `event` | what a host's part hears, says, and wants done |
//! | `token` | what a host knows of one token |
//! | `part` | a host's part of one object: requests, hand-overs |
//! | `count` | the home counts the tokens anew: after a loss, or when a host leaves |
//!
//! A value, `handle(event) -> actions`, without I/O, clock or lock: the host, and the search and the simulation in
//! `commonhold-simulator`, run the same code. Messages between two hosts arrive once and in order, until one of the two is lost.

mod count;
mod early;
mod event;
mod part;
mod token;

pub use event::{Action, Event, Has, Kept, Leaving, Message, Placed, State, Timer};
pub use part::Part;
