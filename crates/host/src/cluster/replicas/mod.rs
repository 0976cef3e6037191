//! Homes that move without a common file: other hosts, the replicas, keep what the home has stored. `docs/LEASES.md`, "Without
//! a common file: replicas", says why one of those that count has everything that the next home needs.
//!
//! | file | does |
//! |---|---|
//! | `home` | at the home: what is stored goes to all that count, or those that it does not reach count no more |
//! | `choosing` | at the home: hosts come to count when they have everything |
//! | `looking` | at the home: when it is looked whether hosts are missing |
//! | `kept` | at a replica: what it keeps |
//! | `next` | at the next home: what it begins with |

mod choosing;
mod home;
mod kept;
mod looking;
mod next;

pub(super) use home::Home;
pub(super) use kept::KeptHere;
pub(super) use looking::Looking;

use super::wire::{Answer, Call, Keep};
use super::{busy, unexpected};
use commonhold_object::PAGE_SIZE_BYTES;
use roaring::RoaringBitmap;

const PAGE: usize = PAGE_SIZE_BYTES as usize;
/// Pages of one message: a MiB.
const MOST_PAGES: usize = 256;
/// Runs of pages of one message.
const MOST_RUNS: usize = 2048;

/// A set of pages as runs, in parts that fit into messages; at least one.
fn in_parts(pages: &RoaringBitmap) -> Vec<Vec<(u32, u32)>> {
    let runs: Vec<(u32, u32)> =
        crate::cache::book::runs(pages).into_iter().map(|run| (run.first as u32, run.count as u32)).collect();
    let parts: Vec<_> = runs.chunks(MOST_RUNS).map(<[_]>::to_vec).collect();
    if parts.is_empty() { vec![Vec::new()] } else { parts }
}
