//! How much a machine shares, and how much it could.
//!
//! Read-only by design: `snapshot` reads /proc and ELF files into plain values, `figures` are pure functions from those
//! values, `report` is what they come to, for people and programs. Nothing else of Commonhold is used, and no host.
//! `docs/AUDIT.md` defines each figure and names its source (Govindan, section 5).

pub mod advice;
pub mod figures;
pub mod library;
pub mod report;
pub mod snapshot;
