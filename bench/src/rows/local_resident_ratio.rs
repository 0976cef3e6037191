//! `local.resident_ratio`: random reads and writes of resident pages, against a raw shared mapping.

use crate::context::Context;
use crate::failure::Result;
use crate::measure::{Pairs, alternate_best, seconds};
use crate::objects;
use crate::row::{Bar, Measured, Row};
use crate::view::{RawMapping, View, memory_file};
use commonhold::{Host, Object};
use serde_json::json;
use std::hint::black_box;

const BYTES: usize = 256 << 20;

/// The row.
pub struct ResidentRatio;

impl Row for ResidentRatio {
    fn id(&self) -> &'static str {
        "local.resident_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.02))
    }

    fn about(&self) -> &'static str {
        "random 8-byte reads and writes over 256 MiB through a Commonhold mapping ÷ through a raw shared mmap \
         (worse of a direct and a controlled object)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let direct = compare(context, &host, objects::direct)?;
        let controlled = compare(context, &host, objects::controlled)?;
        let detail = json!({
            "accesses_per_run": accesses(context),
            "each": "the best of 3, in turns",
            "unit_of_times": "ns per access",
            "direct": direct.summary(1e9 / accesses(context) as f64),
            "controlled": controlled.summary(1e9 / accesses(context) as f64),
        });
        let worse = if direct.ratio() > controlled.ratio() { &direct } else { &controlled };
        Ok(worse.measured(worse.ratio(), detail))
    }
}

fn accesses(context: &Context) -> usize {
    context.pick(2_000_000, 400_000)
}

/// Compares on several layouts: which frames a mapping happens to get decides about a few percent, so both
/// sides get new ones now and then.
fn compare(
    context: &Context,
    host: &Host,
    create: impl Fn(&Host, &str, usize) -> Result<Object>,
) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    for layout in 0..context.pick(9, 2) {
        let raw = RawMapping::shared(memory_file(BYTES)?, BYTES)?;
        let object = create(host, "/bench/resident", BYTES)?;
        let mapping = object.map(&objects::everything())?;
        let (ours, theirs) = (View::of(&mapping), raw.view());
        ours.write_pages();
        theirs.write_pages();
        let mix = |view: View<'_>, n: usize| {
            let seed = context.seed ^ ((layout * 1000 + n) as u64 + 1);
            seconds(|| Ok(black_box(view.mix(accesses(context), seed))))
        };
        mix(ours, 999)?;
        mix(theirs, 999)?;
        pairs.extend(alternate_best(context.pick(5, 3), 3, |n| mix(ours, n), |n| mix(theirs, n))?);
        drop(mapping);
        host.remove("/bench/resident")?;
    }
    Ok(pairs)
}
