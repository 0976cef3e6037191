//! The distributed scheduler (section 4 of the paper): every host schedules for its own processes, and asks its fellows.
//!
//! A page has one owner; every other host has a *hint* who that is, and a request travels along hints. Hints are never
//! wrong in the end: a request to write turns every hint that it passes to the one who asks, who will own the page.
//! So the hints are a tree whose root asked last, at every instant, with requests under way as edges of it. (The paper
//! does the same with `hinted(page)` and by forwarding what is queued; this is the path reversal of Li and Hudak, and of
//! Naimi and Tréhel, whose proofs hold for it.) Each host keeps at most one successor.
//!
//! Copies to read are a tree as well: who has a copy gives copies, and knows whom it gave one. An invalidation goes down
//! that tree, each host asking those it supplied (divide and conquer), and the answers come back up it. The right to
//! write is handed over when they all have.
//!
//! With `replicas`, a version is kept by so many hosts before it is given to any other (`replicas`). A page where nothing is
//! under way takes 16 bytes (`table`, `packed`).
//!
//! The next process of a host speaks for the one before it (`following`). Who takes part is known to all who do (`joining`). A loss is settled in a round that one of them leads (`round`,
//! `decide`): nothing of the time before it is under way when they report what they have.

mod decide;
mod following;
mod joining;
mod members;
mod message;
mod node;
mod packed;
mod page;
mod replicas;
mod round;
mod serve;
mod table;

pub use members::{Epoch, MOST_HOSTS, View};
pub use message::{Fate, Message, Restored, Settled, Standing};
pub use node::{Node, Options};
