//! `local.seq_controlled_ratio`: a controlled object read from end to end, against `pread` into shared memory.

use crate::context::{Context, GIB};
use crate::failure::Result;
use crate::measure::{alternate, seconds};
use crate::objects;
use crate::row::{Bar, Measured, Row};
use crate::sprite::pread_into;
use crate::view::{RawMapping, View, memory_file};
use commonhold::{Host, SyncMode};
use serde_json::json;
use std::fs::File;
use std::hint::black_box;

const NAME: &str = "/bench/seq-controlled";

/// The row.
pub struct SeqControlledRatio;

/// What reads the memory once it is there.
type Reader = fn(View<'_>) -> u64;

impl Row for SeqControlledRatio {
    fn id(&self) -> &'static str {
        "local.seq_controlled_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.5))
    }

    fn about(&self) -> &'static str {
        "sequential read (every word added up) of a 1 GiB controlled object none of whose frames are resident, \
         page cache warm ÷ pread of the file into a fresh shared mapping of that size, then the same sum"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (_, file) = context.make_file("seq", GIB)?;
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let count = context.pick(11, 3);
        ours(&host, &file, sum)?;
        theirs(&file, Some(sum))?;
        let summed = alternate(count, |_| ours(&host, &file, sum), |_| theirs(&file, Some(sum)))?;
        let brought = alternate(count, |_| ours(&host, &file, touch), |_| theirs(&file, None))?;
        let detail = json!({
            "unit_of_times": "ms",
            "read_and_summed": summed.summary(1e3),
            "brought_in_only": brought.summary(1e3),
            "brought_in_only_means": "one byte of each page touched ÷ the pread alone",
            "both_sides": "a fresh mapping is made and read; making the object, unmapping and freeing are not timed",
        });
        Ok(summed.measured(summed.ratio(), detail))
    }
}

fn sum(view: View<'_>) -> u64 {
    view.sum_words()
}

fn touch(view: View<'_>) -> u64 {
    view.touch_pages()
}

fn ours(host: &Host, file: &File, read: Reader) -> Result<f64> {
    // A new object has no frames; the old one's are freed outside of the measured time.
    let object = objects::on_file(host, NAME, file, SyncMode::Ordered)?;
    let mut kept = None;
    let elapsed = seconds(|| {
        let mapping = object.map(&objects::everything())?;
        black_box(read(View::of(&mapping)));
        kept = Some(mapping);
        Ok(())
    })?;
    drop(kept);
    host.remove(NAME)?;
    Ok(elapsed)
}

fn theirs(file: &File, read: Option<Reader>) -> Result<f64> {
    let mut kept = None;
    let elapsed = seconds(|| {
        let mapping = RawMapping::shared(memory_file(GIB)?, GIB)?;
        pread_into(file, &mapping, GIB)?;
        if let Some(read) = read {
            black_box(read(mapping.view()));
        }
        kept = Some(mapping);
        Ok(())
    })?;
    drop(kept);
    Ok(elapsed)
}
