//! `segments.alloc_ratio`: allocating and freeing segments, beside an allocator of the same design.

use crate::context::Context;
use crate::failure::{Doing, Result};
use crate::measure::{alternate_best, some};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_engines::fill::{PAGES, Sizes};
use commonhold_segments::{Arena, SegmentId, Tlsf};
use serde_json::json;
use std::alloc::Layout;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::time::Instant;

/// The row.
pub struct AllocRatio;

/// Of each side of a pair the best of so many runs counts. A run takes milliseconds, so that some
/// are not interrupted by other programs.
const TRIES: usize = 9;
/// Segments that live at most.
const SLOTS: usize = 256;
/// Bytes that stand for a page in the memory of `rlsf`.
const UNIT: usize = 64;

/// A slot, whose segment is freed if it has one, and the size of its next.
type Step = (usize, u32);

impl Row for AllocRatio {
    fn id(&self) -> &'static str {
        "segments.alloc_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.5))
    }

    fn about(&self) -> &'static str {
        "one allocation and one free of a segment ÷ the same by the crate rlsf, a TLSF whose headers are in the memory that it \
         manages: one random trace, sizes log-uniform from 1 to 1,024 pages"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        use rand::RngExt;
        let mut random = context.random(0);
        let steps = 1 << 17;
        // Sizes are drawn by the row's own kind of generator.
        let mut sizes = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(context.seed);
        let trace: Vec<Step> =
            (0..steps).map(|_| (random.random_range(0..SLOTS), Sizes::LogUniform.draw(&mut sizes))).collect();
        let failures = (by_arena(&trace)?.1, by_rlsf(&trace)?.1);
        let pairs = alternate_best(
            context.pick(21, 3),
            TRIES,
            |_| by_arena(&trace).map(|(seconds, _)| seconds),
            |_| by_rlsf(&trace).map(|(seconds, _)| seconds),
        )?;
        some(pairs.ratio(), "ratio")?;
        let refused = [failures.0, failures.1].map(|failed| rounded(failed as f64 / trace.len() as f64));
        let detail = json!({
            "unit_of_times": "ns for one allocation and one free",
            "times": pairs.summary(1e9 / trace.len() as f64),
            "steps": trace.len(),
            "refused_share (commonhold, rlsf)": refused,
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// Seconds that a trace takes when it has been gone through once, and how many allocations failed.
fn by_arena(trace: &[Step]) -> Result<(f64, usize)> {
    let mut arena: Arena<Tlsf> = Arena::new(PAGES);
    let mut slots: Vec<Option<SegmentId>> = vec![None; SLOTS];
    let mut once = || -> Result<usize> {
        let mut failed = 0;
        for (slot, pages) in trace {
            if let Some(old) = slots[*slot].take() {
                arena.free(old).doing("a segment is not freed")?;
            }
            slots[*slot] = arena.alloc(*pages, 1, 0).ok(); // none is counted
            failed += usize::from(slots[*slot].is_none());
        }
        Ok(failed)
    };
    timed(&mut once)
}

/// The same by `rlsf`.
fn by_rlsf(trace: &[Step]) -> Result<(f64, usize)> {
    let mut pool: Box<[MaybeUninit<u8>]> = vec![MaybeUninit::uninit(); PAGES as usize * UNIT].into();
    let mut tlsf: rlsf::Tlsf<'_, u32, u32, 26, 32> = rlsf::Tlsf::new();
    tlsf.insert_free_block(&mut pool);
    let mut slots: Vec<Option<NonNull<u8>>> = vec![None; SLOTS];
    let mut once = || -> Result<usize> {
        let mut failed = 0;
        for (slot, pages) in trace {
            if let Some(old) = slots[*slot].take() {
                // SAFETY: allocated below with this alignment, and freed once.
                unsafe { tlsf.deallocate(old, UNIT) };
            }
            let layout = Layout::from_size_align(*pages as usize * UNIT, UNIT).doing("no layout")?;
            slots[*slot] = tlsf.allocate(layout);
            failed += usize::from(slots[*slot].is_none());
        }
        Ok(failed)
    };
    timed(&mut once)
}

/// Seconds of the second time: the first brings memory in.
fn timed(once: &mut impl FnMut() -> Result<usize>) -> Result<(f64, usize)> {
    once()?;
    let begun = Instant::now();
    let failed = black_box(once()?);
    Ok((begun.elapsed().as_secs_f64(), failed))
}
