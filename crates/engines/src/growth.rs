//! What growth copies: many segments live, and now and then one of them grows (section 5.5).

use crate::fill::{Sizes, allocate};
use crate::model::log_uniform;
use commonhold_segments::{Arena, Growth, Placement, Relocation, SegmentId};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Segments that live.
pub const SEGMENTS: usize = 1_000;
/// Pages of the arena: with that many segments of [`Sizes::LogUniform`], and what they grow, it is
/// 70 % full.
pub const PAGES: u32 = 232_000;
/// The most pages that a segment grows by at once; fewer more often.
const GROWTH: u32 = 64;

/// Exact best fit: a bin for each size, and an allocation takes the smallest that fits. Segments of
/// `BestFit::LAST` pages and more share a bin.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestFit;

impl BestFit {
    const LAST: u32 = Self::BINS as u32 - 1;
}

impl Placement for BestFit {
    const BINS: usize = 4096;
    const LOOKS: usize = usize::MAX;

    fn bin(pages: u32) -> usize {
        pages.min(Self::LAST) as usize
    }

    fn roomy(pages: u32) -> usize {
        if pages <= Self::LAST { pages as usize } else { Self::BINS }
    }
}

/// Which segment grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Any.
    Any,
    /// The one that was allocated last.
    Newest,
}

/// What a run found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    /// Pages that moves copied so that segments could grow.
    pub copied: u64,
    /// Pages that segments grew by.
    pub grown: u64,
    /// Growths.
    pub growths: u64,
    /// Of these in place, without any move.
    pub in_place: u64,
    /// Growths that no plan was found for.
    pub refused: u64,
    /// How full the arena was, in the mean.
    pub fill: f64,
}

impl Copied {
    /// Copied for each grown.
    pub fn ratio(&self) -> f64 {
        self.copied as f64 / self.grown as f64
    }
}

/// So many times a segment grows, a random one is freed, and another takes its place.
pub fn growth<P: Placement>(who: Who, rounds: u64, seed: u64) -> Copied {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut arena: Arena<P> = Arena::new(PAGES);
    let mut live: Vec<SegmentId> = Vec::new();
    let mut found = Copied::default();
    for round in 0..rounds + 2 * SEGMENTS as u64 {
        if live.len() == SEGMENTS {
            let victim = live.swap_remove(rng.random_range(0..SEGMENTS));
            arena.free(victim).expect("it is neither mapped nor moving");
        }
        // What moves copy for an allocation is no matter of growth.
        if let Some(id) = allocate(&mut arena, Sizes::LogUniform.draw(&mut rng), true, &mut 0) {
            let pages = arena.run(id).expect("it was just allocated").pages;
            arena.filled(id, pages).expect("it has that many");
            live.push(id);
        }
        let n = if who == Who::Any { rng.random_range(0..live.len()) } else { live.len() - 1 };
        let more = log_uniform(&mut rng, GROWTH);
        let mut grown = Copied::default();
        grow(&mut arena, live[n], more, &mut grown);
        // What the first did, until all segments live and some have gone, does not count.
        if round >= 2 * SEGMENTS as u64 {
            found.copied += grown.copied;
            found.grown += grown.grown;
            found.growths += grown.growths;
            found.in_place += grown.in_place;
            found.refused += grown.refused;
            found.fill += (1.0 - f64::from(arena.free_pages()) / f64::from(PAGES)) / rounds as f64;
        }
    }
    found
}

fn grow<P: Placement>(arena: &mut Arena<P>, id: SegmentId, more: u32, found: &mut Copied) {
    let pages = arena.run(id).expect("it lives").pages + more;
    match arena.plan_growth(id, pages, 1) {
        Ok(Growth::InPlace) => found.in_place += 1,
        Ok(Growth::Neighbours(moves)) => {
            moves.into_iter().for_each(|relocation| found.copied += relocate(arena, relocation));
        }
        Ok(Growth::Itself(relocation)) => found.copied += relocate(arena, relocation),
        Err(_) => return found.refused += 1,
    }
    if arena.run(id).expect("it lives").pages < pages {
        arena.grow(id, pages).expect("there is room now");
    }
    arena.filled(id, more).expect("it has that many new ones");
    found.grown += u64::from(more);
    found.growths += 1;
}

/// Moves a segment, and returns how many pages were copied.
fn relocate<P: Placement>(arena: &mut Arena<P>, relocation: Relocation) -> u64 {
    let moved = arena.begin_move(relocation).expect("a plan can be carried out");
    arena.finish_move(&moved).expect("it was begun");
    u64::from(moved.pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_segments::Run;

    #[test]
    fn best_fit_takes_the_smallest_that_fits() {
        let mut arena: Arena<BestFit> = Arena::new(100);
        let pieces = [9, 1, 5, 1, 7, 1].map(|pages| arena.alloc(pages, 1, 0).unwrap());
        for n in [0, 2, 4] {
            arena.free(pieces[n]).unwrap();
        }
        let id = arena.alloc(6, 1, 0).unwrap();
        assert_eq!(arena.run(id), Ok(Run::new(16, 6)));
    }

    #[test]
    fn an_arena_of_growing_segments_is_seventy_percent_full() {
        let found = growth::<BestFit>(Who::Any, 4_000, 1);
        assert!((0.66..0.74).contains(&found.fill) && found.growths > 3_900, "{found:?}");
        assert!(found.copied > 0 && found.in_place > 0);
    }
}
