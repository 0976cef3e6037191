//! `local.seq_direct_ratio`: a file object read from end to end, against the kernel's mapping of the same file.

use crate::context::{Context, GIB};
use crate::failure::Result;
use crate::measure::{alternate_best, seconds};
use crate::objects;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::{RawMapping, View};
use commonhold::SyncMode;
use serde_json::json;
use std::hint::black_box;

/// The row.
pub struct SeqDirectRatio;

impl Row for SeqDirectRatio {
    fn id(&self) -> &'static str {
        "local.seq_direct_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.05))
    }

    fn about(&self) -> &'static str {
        "sequential read (every word added up) of a 1 GiB file object, fresh mapping, page cache warm ÷ the same \
         through the kernel's mmap of the same file"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (_, file) = context.make_file("seq", GIB)?;
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let object = objects::on_file(&host, "/bench/seq", &file, SyncMode::Plain)?;
        let ours = || {
            seconds(|| {
                let mapping = object.map(&objects::everything())?;
                Ok(black_box(View::of(&mapping).sum_words()))
            })
        };
        let theirs = || {
            seconds(|| {
                let mapping = RawMapping::shared(&file, GIB)?;
                Ok(black_box(mapping.view().sum_words()))
            })
        };
        ours()?;
        theirs()?;
        let pairs = alternate_best(context.pick(15, 3), 3, |_| ours(), |_| theirs())?;
        let speed = |times: &[f64]| rounded(GIB as f64 / crate::measure::median(times) / 1e9);
        let detail = json!({
            "milliseconds": pairs.summary(1e3),
            "gb_per_second": { "commonhold": speed(&pairs.ours), "peer": speed(&pairs.theirs) },
            "both_sides": "map, read, unmap; each the best of 3, in turns",
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}
