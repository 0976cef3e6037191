//! `ptshare.hugetlb_…`: what page tables that all processes share save, on huge pages: memory, faults and time.

use crate::context::{Context, GIB};
use crate::failure::{Result, failed, skipped};
use crate::host::BenchHost;
use crate::measure::{alternate, seconds};
use crate::objects;
use crate::processes::page_tables_kib;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::{RawMapping, View};
use crate::worker::Worker;
use commonhold::{Access, CreateOptions, Host, Translation};
use commonhold_tables::{HUGE, Pool, make};
use serde_json::json;
use std::ffi::OsStr;
use std::time::Duration;

const NAME: &str = "/bench/segment";
const BYTES: usize = 2 * GIB;
/// The kernel frees tables some time after their process has gone.
const SETTLES: Duration = Duration::from_secs(5);

/// Memory of tables, a process.
pub struct KibPerProcess;
/// Faults of the second process.
pub struct SecondFaults;
/// Attaching and touching all of it.
pub struct AttachRatio;

/// The pool, a host, and a segment of 2 GiB in it. The pool goes last.
fn begin(context: &Context, segments: u64) -> Result<(BenchHost, Host, Pool)> {
    let pages = segments * BYTES as u64 / HUGE;
    let pool =
        Pool::more(pages).or_else(|error| skipped(format!("{pages} huge pages cannot be had: {error}")))?;
    let bench = context.start_host()?;
    let host = bench.connect()?;
    let translation = Translation::SharedTables;
    host.create(
        NAME,
        &CreateOptions { size_bytes: BYTES as u64, translation, ..CreateOptions::default() },
        None,
    )?;
    Ok((bench, host, pool))
}

/// Starts a process, which attaches the segment so and touches all of it; gives its faults meanwhile.
fn attach(bench: &BenchHost, how: &str) -> Result<(Worker, u64)> {
    let arguments = [bench.state().as_os_str(), OsStr::new(NAME), OsStr::new(how)];
    let mut worker = Worker::start("segment-client", &arguments)?;
    let faults = worker.line()?.parse()?;
    Ok((worker, faults))
}

impl Row for KibPerProcess {
    fn id(&self) -> &'static str {
        "ptshare.hugetlb_kib_per_process"
    }

    fn unit(&self) -> &'static str {
        "KiB"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.0))
    }

    fn about(&self) -> &'static str {
        "growth of PageTables in /proc/meminfo by each process that attached a segment of 2 GiB with shared page tables and \
         touched all of it, less that of the same processes with the segment open alone"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (bench, _host, _pool) = begin(context, 1)?;
        let count = context.pick(100, 10);
        let pairs = alternate(
            context.pick(7, 1),
            |_| grown(&bench, "shared", count),
            |_| grown(&bench, "open", count),
        )?;
        let each: Vec<f64> =
            pairs.ours.iter().zip(&pairs.theirs).map(|(ours, open)| (ours - open) / count as f64).collect();
        let own = grown(&bench, "own", count)?;
        let detail = json!({
            "processes": count,
            "grown_kib": { "shared tables": pairs.ours, "open alone": pairs.theirs, "tables of their own": own },
            "kib_per_process_with_tables_of_its_own": rounded((own - pairs.theirs[0]) / count as f64),
        });
        Ok(Measured::median(&each, detail))
    }
}

/// By how many KiB all page tables grow with so many processes.
fn grown(bench: &BenchHost, how: &str, count: usize) -> Result<f64> {
    std::thread::sleep(SETTLES);
    let before = page_tables_kib()?;
    let all: Result<Vec<(Worker, u64)>> = (0..count).map(|_| attach(bench, how)).collect();
    let all = all?;
    std::thread::sleep(SETTLES);
    let grown = page_tables_kib()? as f64 - before as f64;
    drop(all);
    Ok(grown)
}

impl Row for SecondFaults {
    fn id(&self) -> &'static str {
        "ptshare.hugetlb_second_faults"
    }

    fn unit(&self) -> &'static str {
        "faults"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(4.0))
    }

    fn about(&self) -> &'static str {
        "faults of the second process that attached a segment of 2 GiB with shared page tables, while it touches all of it"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (bench, host, _pool) = begin(context, 1)?;
        let (_first, first) = attach(&bench, "shared")?;
        let (_second, second) = attach(&bench, "shared")?;
        let (_third, own) = attach(&bench, "own")?;
        if own < BYTES as u64 / HUGE {
            return failed(format!("a process with tables of its own faulted {own} times: it shares them"));
        }
        let tables = match host.stat(NAME)? {
            commonhold::EntryInfo::Object(info) => info.page_tables,
            commonhold::EntryInfo::Directory { .. } => 0,
        };
        let detail = json!({
            "first": first,
            "second": second,
            "with_tables_of_its_own": own,
            "tables_that_map_each_page": { "counted by the kernel": tables, "of the host": 2, "of the process with its own": 1 },
        });
        Ok(Measured::single(second as f64, 1, detail))
    }
}

impl Row for AttachRatio {
    fn id(&self) -> &'static str {
        "ptshare.attach_us_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.5))
    }

    fn about(&self) -> &'static str {
        "open + map + touch every huge page + unmap of a segment of 2 GiB with shared page tables ÷ map + touch + unmap of a \
         plain hugetlb file of that size, by hand, whose pages are there; touching every 4 KiB beside"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (_bench, host, _pool) = begin(context, 2)?;
        let plain = make("plain", BYTES as u64)?;
        let rounds = context.pick(31, 5);
        let compare = |step: usize| {
            let ours = |_| {
                seconds(|| {
                    let mapping = host.open(NAME, Access::ReadWrite)?.map(&objects::everything())?;
                    touch(View::of(&mapping), step);
                    mapping.unmap(0, BYTES)?;
                    Ok(())
                })
            };
            let theirs = |_| {
                seconds(|| {
                    let mapping = RawMapping::shared(&plain, BYTES)?;
                    touch(mapping.view(), step);
                    drop(mapping);
                    Ok(())
                })
            };
            alternate(rounds, ours, theirs)
        };
        let (huge, small) = (compare(HUGE as usize)?, compare(4096)?);
        let detail = json!({
            "unit_of_times": "µs",
            "every huge page": huge.summary(1e6),
            "every 4 KiB": small.summary(1e6),
        });
        let measured = huge.measured(huge.ratio(), detail);
        Ok(measured.beside("every 4 KiB", small.ratio(), Some(small.ratio_interval())))
    }
}

fn touch(view: View<'_>, step: usize) {
    (0..view.len()).step_by(step).for_each(|at| {
        view.write_word(at, 1);
    });
}
