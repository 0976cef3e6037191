//! Watches: who waits for a change of which bytes of which object, and how a change reaches those of other hosts
//! (`docs/WAIT.md`). Values: whom to wake and what to send is carried out by the host.
//!
//! | file | is |
//! |---|---|
//! | `range` | bytes of an object, and a few such ranges together |
//! | `table` | the watches of one host |
//! | `relay` | at an object's home: what the other hosts are told |

mod range;
mod relay;
mod table;

pub use range::{MOST_RANGES, Range, Ranges};
pub use relay::{Action, Event, Message, Relay};
pub use table::{Limit, Table, Who};
