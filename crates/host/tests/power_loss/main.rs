//! Power loss of whole syncs: the real cache stores pages that a mapping wrote, its journal and its stored object lie
//! on a simulated disk, and the power is cut after every write and in every way that could be. Recovery must find
//! exactly what some sync left, and no acknowledged one may be lost.
//!
//! | file | does |
//! |---|---|
//! | `rig` | one object, its cache, a mapping that is written to, and the disk |
//! | `atomic` | what happens before the power fails |
//! | `ordered` | the weaker promise: a page that was acknowledged is there, though perhaps newer |

mod atomic;
mod ordered;
mod rig;
