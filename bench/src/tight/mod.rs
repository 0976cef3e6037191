//! Processes that read, modify and write without a pause while their hosts are struck, for
//! `crash.tight_failures`.
//!
//! A *life* is a host or a cluster with one object, and writers. Each writer adds to words of its
//! own, on pages that others write too, and must find in each what it left there. What it is about
//! to write, has written and has synced stands in a ledger outside of Commonhold. A *trial* strikes
//! one host and waits until every writer has been through all its pages again.

pub mod excuses;
pub mod ledger;
pub mod life;
pub mod plan;
pub mod strike;
