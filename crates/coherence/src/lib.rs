//! Fault schedulers: who may read and write a page of a shared object, and when.
//!
//! Each scheduler is a state machine, `handle(event, &mut actions)`, without I/O, clocks or threads. The host, the
//! simulator and the model checker drive the same code. Page contents never pass through here: an action that sends or
//! installs a page speaks of the frame that its driver has, or of the bytes that came with the message being handled.
//!
//! After Forin, Barrera, Young and Rashid, *Distributed Shared Memory Server for Mach* (1988): section 3 is `central`,
//! section 4 `forwarding`. `explicit` is the limited consistency of Shirriff, *Sprite Memory Sharing and File Mapping*.
//! `docs/PROTOCOL.md` leads from the paper's figures to the functions.
//!
//! What the driver promises: messages between two hosts arrive once and in order, until one of the two is declared lost;
//! after that nothing arrives from it. (A connection that breaks is a loss; who comes back is another host.)

pub mod central;
mod event;
pub mod explicit;
mod few;
pub mod forwarding;
mod span;

pub use event::{Access, Action, Carried, Event, Kind, NotRead, Scheduler, Why};
pub use span::{HostId, Span};
