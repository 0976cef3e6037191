//! `images.data_include_us` and `images.data_vs_rkyv`: a million-node pointer tree, beside the same in rkyv.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{Pairs, alternate_best, median, seconds};
use crate::pointer_tree::worker::{First, Side, first};
use crate::pointer_tree::{Both, Checks, Node, Sealed, expected, keys, look_up, niched, plain};
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::{Map, Value, json};
use std::hint::black_box;
use std::path::Path;

/// The first look-ups of a process.
const FIRST: usize = 1000;

/// The row of inclusion.
pub struct DataInclude;

impl Row for DataInclude {
    fn id(&self) -> &'static str {
        "images.data_include_us"
    }

    fn unit(&self) -> &'static str {
        "µs"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(100.0))
    }

    fn about(&self) -> &'static str {
        "a new process includes a million-node pointer tree of 45 MiB by name; its first 1,000 look-ups beside rkyv's, file \
         in memory and not, in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let both = Both::make(context)?;
        let rounds = context.pick(51, 3);
        let (mut detail, mut ours) = (Map::new(), Vec::new());
        for (state, is_warm) in [("warm", true), ("cold", false)] {
            let mut results: [Vec<First>; 3] = Default::default();
            for round in 0..rounds {
                for (side, results) in Side::ALL.into_iter().zip(&mut results) {
                    let seed = context.seed.wrapping_add(round);
                    results.push(one(&both, side, is_warm, seed)?);
                }
            }
            if is_warm {
                ours = results[0].iter().map(|one| one.include_us).collect();
            }
            let sides = Side::ALL.into_iter().zip(&results);
            detail.insert(state.into(), sides.map(|(side, all)| (side.name(), summary(all))).collect());
        }
        Ok(Measured::median(&ours, Value::Object(detail)))
    }
}

fn one(both: &Both, side: Side, is_warm: bool, seed: u64) -> Result<First> {
    let (place, file): (&Path, &Path) = match side {
        Side::Image => (&both.store, &both.image),
        Side::Archive | Side::CheckedArchive => (&both.archive, &both.archive),
    };
    if is_warm {
        Both::warm(file)?
    } else {
        Both::forget(file)?
    }
    first(side, place, seed, FIRST)
}

fn summary(all: &[First]) -> Value {
    let of = |pick: fn(&First) -> f64| rounded(median(&all.iter().map(pick).collect::<Vec<_>>()));
    json!({ "include_us": of(|one| one.include_us), "first_1000_look_ups_us": of(|one| one.look_ups_us) })
}

/// The row of look-ups.
pub struct DataVsRkyv;

impl Row for DataVsRkyv {
    fn id(&self) -> &'static str {
        "images.data_vs_rkyv"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.0))
    }

    fn about(&self) -> &'static str {
        "1,000,000 random look-ups in a million-node pointer tree ÷ the same in an rkyv archive (unchecked) of the same nodes \
         in the same order: the worst of rkyv's nodes with Option<Box> and with Niche, and of a search with a compiler fence \
         and without"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let both = Both::make(context)?;
        let keys = keys(&mut context.random(8), context.pick(1_000_000, 50_000));
        let image = Sealed::include(&both.store)?;
        let (archive, smaller) =
            (plain::map(&both.archive, Checks::Trusted)?, niched::map(&both.niched, Checks::Trusted)?);
        let begun = std::time::Instant::now();
        plain::map(&both.archive, Checks::Checked)?;
        let check = begun.elapsed().as_secs_f64();
        let mut all = [
            ("Option<Box>, with the fence", compare::<_, _, true>(context, image, archive, &keys)?),
            ("Option<Box>, without the fence", compare::<_, _, false>(context, image, archive, &keys)?),
            ("Niche, with the fence", compare::<_, _, true>(context, image, smaller, &keys)?),
            ("Niche, without the fence", compare::<_, _, false>(context, image, smaller, &keys)?),
        ];
        let first = &all[0].1;
        let checked = median(&first.ours) / (median(&first.theirs) + check);
        let mut detail = json!({
            "look_ups": keys.len(),
            "unit_of_times": "ns a look-up",
            "rkyv_check_ms": rounded(check * 1e3),
            "ratio_checked": rounded(checked),
        });
        for (name, pairs) in &all {
            detail[*name] = pairs.summary(1e9 / keys.len() as f64);
        }
        all.sort_by(|a, b| b.1.ratio().total_cmp(&a.1.ratio()));
        let [(name, worst), others @ ..] = &all;
        detail["the_value_is_of"] = json!(name);
        let measured = worst.measured(worst.ratio(), detail);
        Ok(others.iter().fold(measured, |measured, (name, pairs)| {
            measured.beside(name, pairs.ratio(), Some(pairs.ratio_interval()))
        }))
    }
}

/// Both sides, searched by the same code. What is in memory has its place there before: nobody pays for the other's first
/// touch.
fn compare<N: Node, M: Node, const FENCED: bool>(
    context: &Context,
    image: N,
    archive: M,
    keys: &[u64],
) -> Result<Pairs> {
    look::<_, FENCED>(image, keys)?;
    look::<_, FENCED>(archive, keys)?;
    let (image, archive) = (|_| look::<_, FENCED>(image, keys), |_| look::<_, FENCED>(archive, keys));
    alternate_best(context.pick(21, 3), 3, image, archive)
}

/// Seconds of all look-ups; what they find is compared.
fn look<N: Node, const FENCED: bool>(top: N, keys: &[u64]) -> Result<f64> {
    let mut sum = 0;
    let taken = seconds(|| {
        sum = black_box(look_up::<_, FENCED>(top, keys));
        Ok(())
    })?;
    if sum == expected(keys) { Ok(taken) } else { failed("the look-ups found other values than were stored") }
}
