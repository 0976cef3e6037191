//! How full an arena gets before an allocation fails; `segments.fill` of the benchmark says more.

use commonhold_engines::fill::{Sizes, fill};
use commonhold_segments::{NextBucket, Placement, ScannedBuckets, Tlsf};

fn mean<P: Placement>(allocations: usize, moves: bool) -> f64 {
    fill::<P>(Sizes::LogUniform, moves, allocations, 1).mean
}

#[test]
fn the_default_fills_86_percent_without_moves() {
    let fill = mean::<Tlsf>(60_000, false);
    assert!(fill >= 0.86, "{fill}");
}

#[test]
fn moves_fill_98_percent() {
    let fill = mean::<Tlsf>(3_000, true);
    assert!(fill >= 0.98, "{fill}");
}

#[test]
fn the_papers_readings_fill_less() {
    let (scanned, next) = (mean::<ScannedBuckets>(20_000, false), mean::<NextBucket>(20_000, false));
    assert!(next < 0.70 && 0.80 < scanned && scanned < 0.87, "{scanned} and {next}");
}
