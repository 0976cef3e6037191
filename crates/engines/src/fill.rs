//! How full an arena gets before an allocation fails.

use crate::model::log_uniform;
use commonhold_segments::{Arena, Placement, SegmentId};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Pages of the arena.
pub const PAGES: u32 = 65_536;
/// Allocations before anything counts.
const WARM: usize = 1_000;

/// How large segments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// 1 to 1,024 pages, uniform in the logarithm.
    LogUniform,
    /// 1 to 1,024 pages.
    Uniform,
    /// Nine in ten up to 16 pages, one in ten 256 to 2,047.
    Bimodal,
}

impl Sizes {
    /// All of them.
    pub const ALL: [Sizes; 3] = [Sizes::LogUniform, Sizes::Uniform, Sizes::Bimodal];

    /// A random size.
    pub fn draw(self, rng: &mut SmallRng) -> u32 {
        match self {
            Sizes::LogUniform => log_uniform(rng, 1024),
            Sizes::Uniform => rng.random_range(1..=1024),
            Sizes::Bimodal if rng.random_bool(0.9) => rng.random_range(1..=16),
            Sizes::Bimodal => rng.random_range(256..2048),
        }
    }
}

/// What a run found.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// The mean of how full the arena was when an allocation failed.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// Failures.
    pub failures: u32,
    /// Pages that were moved.
    pub moved: u64,
    /// Pages that were allocated.
    pub allocated: u64,
}

/// Allocates `allocations` times. When one fails (after moves, if `moves`), the fill counts, and
/// random segments are freed until it succeeds. With moves one segment in ten is busy for its life.
pub fn fill<P: Placement>(sizes: Sizes, moves: bool, allocations: usize, seed: u64) -> Fill {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut arena: Arena<P> = Arena::new(PAGES);
    let mut live: Vec<SegmentId> = Vec::new();
    let mut fill = Fill { mean: 0.0, least: 1.0, failures: 0, moved: 0, allocated: 0 };
    for n in 0..allocations {
        let pages = sizes.draw(&mut rng);
        let mut failed = false;
        let id = loop {
            if let Some(id) = allocate(&mut arena, pages, moves, &mut fill.moved) {
                break id;
            }
            if !failed && n > WARM {
                let full = 1.0 - f64::from(arena.free_pages()) / f64::from(PAGES);
                fill.mean += full;
                fill.failures += 1;
                fill.least = fill.least.min(full);
            }
            failed = true;
            let victim = live.swap_remove(rng.random_range(0..live.len()));
            let _ = arena.unpin(victim); // one in ten is pinned
            arena.free(victim).expect("it is neither mapped nor moving");
        };
        fill.allocated += u64::from(pages);
        if moves && rng.random_bool(0.1) {
            arena.pin(id).expect("it was just allocated");
        }
        live.push(id);
    }
    Fill { mean: fill.mean / f64::from(fill.failures), ..fill }
}

/// Allocates: in what is free, or, if `moves`, in room that moves make. Adds what they copied.
pub(crate) fn allocate<P: Placement>(
    arena: &mut Arena<P>,
    pages: u32,
    moves: bool,
    moved_pages: &mut u64,
) -> Option<SegmentId> {
    if let Ok(id) = arena.alloc(pages, 1, 0) {
        return Some(id);
    }
    let room = moves.then(|| arena.make_room(pages, 1, u32::MAX))??;
    for relocation in room.moves {
        *moved_pages += u64::from(relocation.to.pages);
        let moved = arena.begin_move(relocation).expect("a plan can be carried out");
        arena.finish_move(&moved).expect("it was begun");
    }
    Some(arena.alloc_at(room.run, 1, 0).expect("the room is free"))
}
