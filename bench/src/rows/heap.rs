//! `heap.alloc_ratio`, `heap.scaling` and `heap.first_fit`: what blocks of a heap in an object cost.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::heaps::{FirstFit, Load, Mimalloc, ours};
use crate::measure::{Pairs, alternate, alternate_best, median, some};
use crate::row::{Bar, Measured, Row, rounded};
use crate::worker::Worker;
use serde_json::json;
use std::path::Path;

/// One thread.
pub struct AllocRatio;
/// Two processes.
pub struct Scaling;
/// Beside first fit.
pub struct AgainstFirstFit;

/// Of each side of a pair the best of so many runs counts.
const TRIES: usize = 5;

impl Row for AllocRatio {
    fn id(&self) -> &'static str {
        "heap.alloc_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.0))
    }

    fn about(&self) -> &'static str {
        "one thread allocates and frees blocks of 16 B to 4 KiB in a heap in an object, 1,024 live ones, and writes a word of each \
         ÷ the same in memory of its own, by mimalloc"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let (mut ours, load) = (ours(&bench.connect()?, "/bench/heap")?, Load::of(context));
        let pairs = alternate_best(
            context.pick(21, 3),
            TRIES,
            |_| load.run(&mut ours, || ()),
            |_| load.run(&mut Mimalloc, || ()),
        )?;
        some(pairs.ratio(), "ratio")?;
        let detail = json!({
            "unit_of_times": "ns for a free and an allocation",
            "times": pairs.summary(1e9 / load.steps() as f64),
            "blocks": load.steps(),
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

impl Row for Scaling {
    fn id(&self) -> &'static str {
        "heap.scaling"
    }

    fn unit(&self) -> &'static str {
        "share"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(0.95))
    }

    fn about(&self) -> &'static str {
        "throughput of two processes that allocate and free in one heap at once ÷ that of one, as a share of what mimalloc reaches \
         with two processes"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        drop(ours(&bench.connect()?, "/bench/heap")?);
        let steps = context.pick(1 << 21, 1 << 15);
        let mut heap = [worker(bench.state(), "ours", steps)?, worker(bench.state(), "ours", steps)?];
        let mut peer = [worker(bench.state(), "mimalloc", steps)?, worker(bench.state(), "mimalloc", steps)?];
        let pairs = alternate(context.pick(21, 3), |_| scaling(&mut heap), |_| scaling(&mut peer))?;
        some(pairs.ratio(), "share")?;
        let detail = json!({
            "throughput_of_two_by_that_of_one": pairs.summary(1.0),
            "blocks_of_each": steps,
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

fn worker(state: &Path, kind: &str, steps: usize) -> Result<Worker> {
    let state = state.to_string_lossy().into_owned();
    let steps = steps.to_string();
    Worker::start("heap-client", &[state.as_str(), "/bench/heap", "load", kind, &steps])
}

/// How much more two do in a time than one alone.
fn scaling(two: &mut [Worker; 2]) -> Result<f64> {
    let alone: f64 = two[0].ask("go")?.parse()?;
    two.iter_mut().try_for_each(|worker| worker.tell("go"))?;
    let mut rate = 0.0;
    for worker in two {
        let seconds: f64 = worker.line()?.parse()?;
        rate += 1.0 / seconds;
    }
    Ok(rate * alone)
}

impl Row for AgainstFirstFit {
    fn id(&self) -> &'static str {
        "heap.first_fit"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "time of a heap's lists by size ÷ that of first fit (Knuth), one thread, the same blocks; the memory of both in detail. \
         Forin et al. (1988, section 7.3): a quarter less memory, 20 to 30 % faster"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let mut ours = ours(&bench.connect()?, "/bench/heap")?;
        let load = Load::new(&mut context.random(2), context.pick(1 << 18, 1 << 13), 1024);
        let mut most_fit = 0;
        let pairs: Pairs = alternate(
            context.pick(11, 3),
            |_| load.run(&mut ours, || ()),
            |_| {
                let mut memory = FirstFit::new(16 << 20);
                let seconds = load.run(&mut memory, || ())?;
                most_fit = memory.bytes_used();
                Ok(seconds)
            },
        )?;
        some(pairs.ratio(), "ratio")?;
        let heap = ours.heap().clone();
        let mut pages = None;
        load.run(&mut ours, || pages = heap.check().ok().map(|report| report.pages))?;
        let Some(pages) = pages else { return failed("the heap could not be read") };
        let (asked, bytes) = (load.bytes_at_end(), pages * 4096);
        let detail = json!({
            "unit_of_times": "ns for a free and an allocation",
            "times": pairs.summary(1e9 / load.steps() as f64),
            "bytes_asked_for_at_the_end": asked,
            "bytes_of_pages_at_the_end": bytes,
            "bytes_up_to_the_last_block_of_first_fit": most_fit,
            "memory_by_that_of_first_fit": rounded(bytes as f64 / most_fit as f64),
            "median_ns": rounded(median(&pairs.ours) * 1e9 / load.steps() as f64),
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}
