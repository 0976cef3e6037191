//! Prints how full an arena gets, and how long an allocation takes beside the crate `rlsf`.
//!
//! `cargo run --release -p commonhold-segments --example figures`

use commonhold_segments::{Arena, NextBucket, Placement, ScannedBuckets, SegmentId, Tlsf};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::alloc::Layout;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::time::Instant;

const PAGES: u32 = 65_536;
const SEEDS: u64 = 3;
/// Allocations of a run, and how many of them fill the arena before anything counts.
const ALLOCATIONS: usize = 6_000;
const WARM: usize = 1_000;

#[derive(Clone, Copy)]
enum Sizes {
    LogUniform,
    Uniform,
    Bimodal,
}

impl Sizes {
    fn draw(self, rng: &mut SmallRng) -> u32 {
        match self {
            Sizes::LogUniform => 1024f64.powf(rng.random_range(0.0..1.0)) as u32,
            Sizes::Uniform => rng.random_range(1..=1024),
            Sizes::Bimodal if rng.random_bool(0.9) => rng.random_range(1..=16),
            Sizes::Bimodal => rng.random_range(256..2048),
        }
    }
}

/// What one run found: the mean and the least fill at a first failure, and pages moved for each
/// page allocated.
struct Fill {
    mean: f64,
    least: f64,
    moved: f64,
}

/// Allocates without end. When an allocation fails (after moves, if `moves`), the fill counts, and
/// random segments are freed until it succeeds. One segment in ten is busy for its whole life.
fn fill<P: Placement>(sizes: Sizes, moves: bool, busy: f64) -> Fill {
    let (mut sum, mut count, mut least) = (0.0, 0, 1.0f64);
    let (mut moved, mut allocated) = (0u64, 0u64);
    for seed in 0..SEEDS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut arena: Arena<P> = Arena::new(PAGES);
        let mut live: Vec<SegmentId> = Vec::new();
        for n in 0..ALLOCATIONS {
            let pages = sizes.draw(&mut rng);
            let mut failed = false;
            let id = loop {
                if let Ok(id) = arena.alloc(pages, 1, 0) {
                    break id;
                }
                if moves && let Some(room) = arena.make_room(pages, 1, u32::MAX) {
                    for relocation in room.moves {
                        moved += u64::from(relocation.to.pages);
                        let moved = arena.begin_move(relocation).unwrap();
                        arena.finish_move(&moved).unwrap();
                    }
                    break arena.alloc_at(room.run, 1, 0).unwrap();
                }
                if !failed && n > WARM {
                    let full = 1.0 - f64::from(arena.free_pages()) / f64::from(PAGES);
                    (sum, count, least) = (sum + full, count + 1, least.min(full));
                }
                failed = true;
                let victim = live.swap_remove(rng.random_range(0..live.len()));
                while arena.unpin(victim).is_ok() {}
                arena.free(victim).unwrap();
            };
            allocated += u64::from(pages);
            if rng.random_bool(busy) {
                arena.pin(id).unwrap();
            }
            live.push(id);
        }
    }
    Fill { mean: sum / f64::from(count), least, moved: moved as f64 / allocated as f64 }
}

fn print_fill<P: Placement>(name: &str) {
    for (what, sizes) in
        [("log-uniform", Sizes::LogUniform), ("uniform", Sizes::Uniform), ("bimodal", Sizes::Bimodal)]
    {
        let still = fill::<P>(sizes, false, 0.0);
        print!("{name:16} {what:12} fill {:.3} (least {:.3})", still.mean, still.least);
        let moving = fill::<P>(sizes, true, 0.1);
        println!(
            "; with moves {:.3} (least {:.3}), {:.2} pages moved a page allocated",
            moving.mean, moving.least, moving.moved
        );
    }
}

/// A trace of allocations and frees that both allocators can follow: which slot, and how large.
fn trace(rng: &mut SmallRng) -> Vec<(usize, u32)> {
    (0..1 << 20).map(|_| (rng.random_range(0..256), Sizes::LogUniform.draw(rng))).collect()
}

/// Nanoseconds for one allocation and one free here.
fn time_arena(trace: &[(usize, u32)]) -> f64 {
    let mut arena: Arena<Tlsf> = Arena::new(PAGES);
    let mut slots: Vec<Option<SegmentId>> = vec![None; 256];
    let begun = Instant::now();
    for (slot, pages) in trace {
        if let Some(old) = slots[*slot].take() {
            arena.free(old).unwrap();
        }
        slots[*slot] = arena.alloc(*pages, 1, 0).ok();
    }
    black_box(&slots);
    begun.elapsed().as_nanos() as f64 / trace.len() as f64
}

/// Nanoseconds for one allocation and one free by `rlsf`, with 64 bytes for a page.
fn time_rlsf(trace: &[(usize, u32)]) -> f64 {
    let mut pool: Box<[MaybeUninit<u8>]> = vec![MaybeUninit::uninit(); PAGES as usize * 64].into();
    let mut tlsf: rlsf::Tlsf<'_, u32, u32, 26, 32> = rlsf::Tlsf::new();
    tlsf.insert_free_block(&mut pool);
    let mut slots: Vec<Option<NonNull<u8>>> = vec![None; 256];
    let begun = Instant::now();
    for (slot, pages) in trace {
        if let Some(old) = slots[*slot].take() {
            // SAFETY: allocated below with this alignment, and freed once.
            unsafe { tlsf.deallocate(old, 64) };
        }
        let layout = Layout::from_size_align(*pages as usize * 64, 64).unwrap();
        slots[*slot] = tlsf.allocate(layout);
    }
    black_box(&slots);
    begun.elapsed().as_nanos() as f64 / trace.len() as f64
}

fn main() {
    let trace = trace(&mut SmallRng::seed_from_u64(1));
    let mut pairs: Vec<(f64, f64)> = (0..9).map(|_| (time_arena(&trace), time_rlsf(&trace))).collect();
    pairs.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (ours, theirs) = pairs[pairs.len() / 2];
    println!("allocate and free: {ours:.1} ns; rlsf {theirs:.1} ns; ratio {:.2}", ours / theirs);
    print_fill::<Tlsf>("TLSF");
    print_fill::<ScannedBuckets>("buckets, scanned");
    print_fill::<NextBucket>("next bucket");
}
