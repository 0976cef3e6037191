//! One suite that every pager must pass, and what each kind of pager must do when the world goes wrong around it.
//!
//! | file | does |
//! |---|---|
//! | `subjects` | one of each implementation, over a store of its own |
//! | `suite` | what every pager promises |
//! | `file` | files truncated, unlinked, replaced, read-only, sparse |
//! | `external` | pager processes that die, hang, lie, or answer late |
//! | `player` | a thread that plays the pager process |

mod asked;
mod external;
mod file;
mod player;
mod subjects;
mod suite;
