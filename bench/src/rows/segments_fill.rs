//! `segments.fill…`: how full an arena of segments gets before an allocation fails.

use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_engines::fill::{self, PAGES, Sizes, fill};
use commonhold_segments::{NextBucket, ScannedBuckets, Tlsf};
use serde_json::{Map, Value, json};

/// Without moves.
pub struct Fill;
/// With moves.
pub struct FillMoving;

type Run = fn(Sizes, bool, usize, u64) -> fill::Fill;

const POLICIES: [(&str, Run); 3] = [
    ("TLSF, the default", fill::<Tlsf>),
    ("buckets, scanned", fill::<ScannedBuckets>),
    ("next bucket", fill::<NextBucket>),
];

/// All policies and distributions; the value is the default's with sizes uniform in the logarithm.
fn measure(context: &Context, moves: bool) -> Measured {
    let (seeds, allocations) = match moves {
        false => (context.pick(5, 2), context.pick(60_000, 6_000)),
        true => (context.pick(5, 1), context.pick(6_000, 2_000)),
    };
    let mut all = Map::new();
    let mut value = None;
    for (policy, run) in POLICIES {
        for sizes in Sizes::ALL {
            let fills: Vec<fill::Fill> =
                (0..seeds).map(|n| run(sizes, moves, allocations, context.seed + n)).collect();
            let means: Vec<f64> = fills.iter().map(|fill| fill.mean).collect();
            let found = Measured::median(&means, Value::Null);
            all.insert(format!("{policy}; {sizes:?}"), described(&found, &fills));
            value.get_or_insert(found);
        }
    }
    let detail = json!({ "pages": PAGES, "allocations": allocations, "seeds": seeds, "all": all });
    Measured { detail, ..value.unwrap_or_default() }
}

fn described(found: &Measured, fills: &[fill::Fill]) -> Value {
    let sum = |of: fn(&fill::Fill) -> u64| fills.iter().map(of).sum::<u64>() as f64;
    let (moved, allocated) = (sum(|fill| fill.moved), sum(|fill| fill.allocated));
    json!({
        "fill": rounded(found.value),
        "least": rounded(fills.iter().map(|fill| fill.least).fold(1.0, f64::min)),
        "failures": fills.iter().map(|fill| fill.failures).sum::<u32>(),
        "bytes_moved": moved * 4096.0,
        "pages_moved_for_each_allocated": rounded(moved / allocated),
    })
}

impl Row for Fill {
    fn id(&self) -> &'static str {
        "segments.fill"
    }

    fn unit(&self) -> &'static str {
        "share"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(0.86))
    }

    fn about(&self) -> &'static str {
        "how full an arena of 65,536 pages is when an allocation first fails: random frees then, sizes log-uniform from 1 to \
         1,024 pages, no moves; other policies and sizes in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        Ok(measure(context, false))
    }
}

impl Row for FillMoving {
    fn id(&self) -> &'static str {
        "segments.fill_moving"
    }

    fn unit(&self) -> &'static str {
        "share"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(0.98))
    }

    fn about(&self) -> &'static str {
        "the same where segments move to make room, but for one in ten, which is busy with I/O for its whole life; what the \
         moves copied in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        Ok(measure(context, true))
    }
}
