//! `segments.growth_copies`: the paper's claim that a remainder put last leaves room to grow.

use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_engines::growth::{BestFit, Copied, PAGES, SEGMENTS, Who, growth};
use commonhold_segments::{NextBucket, ScannedBuckets, Tlsf};
use serde_json::{Map, Value, json};

/// The row.
pub struct GrowthCopies;

/// What confirms the paper.
const CONFIRMS: f64 = 0.5;

type Run = fn(Who, u64, u64) -> Copied;

/// Placements that put a remainder last in its bin; the first is the paper's.
const REMAINDER_LAST: [(&str, Run); 3] = [
    ("buckets, scanned", growth::<ScannedBuckets>),
    ("next bucket", growth::<NextBucket>),
    ("TLSF, the default", growth::<Tlsf>),
];

impl Row for GrowthCopies {
    fn id(&self) -> &'static str {
        "segments.growth_copies"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "bytes copied for each byte that segments grow by, 1,000 segments at 70 % fill: the paper's buckets, where a remainder \
         is put last ÷ exact best fit; 0.5 or less confirms section 5.5"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (seeds, rounds) = (context.pick(9, 3), context.pick(20_000, 3_000));
        let mut detail = Map::new();
        let mut value = None;
        for who in [Who::Any, Who::Newest] {
            let all = |run: Run| (0..seeds).map(|n| run(who, rounds, context.seed + n)).collect::<Vec<_>>();
            let best = all(growth::<BestFit>);
            let mut of_who = Map::new();
            of_who.insert("best fit".into(), described(&best));
            for (name, run) in REMAINDER_LAST {
                let found = all(run);
                let ratios: Vec<f64> =
                    found.iter().zip(&best).map(|(found, best)| found.ratio() / best.ratio()).collect();
                let ratio = Measured::median(&ratios, Value::Null);
                let mut line = described(&found);
                line["ratio_to_best_fit"] = json!(rounded(ratio.value));
                line["confirms_the_paper"] = json!(ratio.value <= CONFIRMS);
                of_who.insert(name.into(), line);
                value.get_or_insert(ratio);
            }
            detail.insert(format!("grows: {who:?}").to_lowercase(), of_who.into());
        }
        detail.insert("segments".into(), json!(SEGMENTS));
        detail.insert("pages".into(), json!(PAGES));
        detail.insert("growths_of_a_run".into(), json!(rounds));
        let value = value.unwrap_or_default();
        detail.insert("confirms_the_paper".into(), json!(value.value <= CONFIRMS));
        Ok(Measured { detail: detail.into(), ..value })
    }
}

fn described(runs: &[Copied]) -> Value {
    let mean = |of: fn(&Copied) -> f64| rounded(runs.iter().map(of).sum::<f64>() / runs.len() as f64);
    json!({
        "copied_for_each_grown": mean(Copied::ratio),
        "in_place_share": mean(|run| run.in_place as f64 / run.growths as f64),
        "refused": mean(|run| run.refused as f64),
        "fill": mean(|run| run.fill),
    })
}
