//! `snapshot.…`: what a snapshot costs, what the first write after it costs, and whether it is of one instant.

use crate::context::{Context, GIB};
use crate::failure::{Result, failed};
use crate::faults::{BareService, FreshPages, Touch};
use crate::measure::{Pairs, alternate, median, seconds};
use crate::objects;
use crate::row::{Bar, Measured, Row};
use crate::view::{PAGE, RawMapping, View};
use crate::worker::Worker;
use commonhold::{CreateOptions, Host, Mapping, Object, SnapshotOptions};
use serde_json::json;
use std::cell::Cell;
use std::ffi::OsString;
use std::hint::black_box;
use std::time::Duration;

/// Taking a snapshot.
pub struct Ratio;
/// Writing a page for the first time after one.
pub struct WriteRatio;
/// Whether it is of one instant.
pub struct Torn;

const NAME: &str = "/bench/snapped";
const SNAPSHOT: &str = "/bench/snapped@now";

fn freezable(host: &Host, size_bytes: usize) -> Result<Object> {
    let options =
        CreateOptions { size_bytes: size_bytes as u64, freezable: true, ..CreateOptions::default() };
    Ok(host.create(NAME, &options, None)?)
}

impl Row for Ratio {
    fn id(&self) -> &'static str {
        "snapshot.ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.15))
    }

    fn about(&self) -> &'static str {
        "a snapshot of 1 GiB whose pages are all there and written since the last one, one mapping ÷ memcpy into memory that \
         is there; 2 and 8 mappings in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let size = context.pick(GIB, GIB / 8);
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let object = freezable(&host, size)?;
        let mut copy = vec![1u8; size];
        let mut detail = serde_json::Map::new();
        let mut of_one: Option<Pairs> = None;
        let mut mappings: Vec<Mapping> = Vec::new();
        for count in [1, 2, 8] {
            mappings.resize_with(count, || object.map(&objects::everything()).expect("it can be mapped"));
            let pairs = alternate(
                // Each page of each mapping is a fault before each.
                context.pick(if count == 1 { 5 } else { 1 }, 1),
                |_| {
                    // Each page of each mapping may be written without a fault.
                    mappings.iter().for_each(|mapping| View::of(mapping).write_pages());
                    let taken = seconds(|| Ok(object.snapshot(SNAPSHOT, &SnapshotOptions::default())?))?;
                    host.remove(SNAPSHOT)?;
                    Ok(taken)
                },
                |_| {
                    seconds(|| {
                        View::of(&mappings[0]).read(0, &mut copy);
                        black_box(&copy);
                        Ok(())
                    })
                },
            )?;
            detail.insert(format!("{count} mappings"), pairs.summary(1e3));
            of_one.get_or_insert(pairs);
        }
        let Some(pairs) = of_one else { return failed("nothing was measured") };
        let detail = json!({ "unit_of_times": "ms (a snapshot, memcpy)", "bytes": size, "times": detail });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

const PAGES: usize = 16_384;
/// First faults of each batch that do not count: the server may still be asleep.
const WARM_UP: usize = 16;
const GAP: Duration = Duration::from_millis(2);

impl Row for WriteRatio {
    fn id(&self) -> &'static str {
        "snapshot.write_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.3))
    }

    fn about(&self) -> &'static str {
        "first write to a page after a snapshot ÷ to one that is write-protected by bare userfaultfd, and that another process \
         copies aside and unprotects; both servers spinning, or both sleeping (worse of the two); medians of single writes"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let object = freezable(&host, PAGES * PAGE)?;
        let mapping = object.map(&objects::everything())?;
        let (bare, memory) = BareService::copying_aside(PAGES)?;
        let sides = Sides { host: &host, object: &object, mapping: &mapping, bare: &bare, memory: &memory };
        let spinning = sides.compare(context, context.pick(21, 5), context.pick(512, 256), None)?;
        let sleeping = sides.compare(context, context.pick(11, 3), context.pick(80, 40), Some(GAP))?;
        let detail = json!({
            "unit_of_times": "µs, p50 of single writes",
            "spinning": spinning.summary(1e-3),
            "sleeping": sleeping.summary(1e-3),
        });
        let worse = if spinning.ratio() > sleeping.ratio() { &spinning } else { &sleeping };
        Ok(worse.measured(worse.ratio(), detail))
    }
}

struct Sides<'a> {
    host: &'a Host,
    object: &'a Object,
    mapping: &'a Mapping,
    bare: &'a BareService,
    memory: &'a RawMapping,
}

impl Sides<'_> {
    fn compare(&self, context: &Context, pairs: usize, count: usize, gap: Option<Duration>) -> Result<Pairs> {
        let warm_up = if gap.is_some() { 0 } else { WARM_UP };
        let stream = Cell::new(0);
        let pages = || {
            stream.set(stream.get() + 1);
            FreshPages::new(PAGES, &mut context.random(stream.get()))
        };
        let p50 = |times: Vec<f64>| median(&times[warm_up..]);
        alternate(
            pairs,
            |_| {
                View::of(self.mapping).write_pages();
                drop(self.object.snapshot(SNAPSHOT, &SnapshotOptions::default())?);
                let view = View::of(self.mapping);
                let times = pages().touch(view, warm_up + count, Touch::Write, gap);
                self.host.remove(SNAPSHOT)?;
                Ok(p50(times))
            },
            |_| {
                self.bare.protect(self.memory, PAGES)?;
                let work = || p50(pages().touch(self.memory.view(), warm_up + count, Touch::Write, gap));
                Ok(if gap.is_none() { self.bare.spinning(work) } else { work() })
            },
        )
    }
}

/// Pages of the words that are written in turn: far apart, and not in the order of their addresses.
const TURNS: [usize; 3] = [0, 9000, 4000];

impl Row for Torn {
    fn id(&self) -> &'static str {
        "snapshot.torn"
    }

    fn unit(&self) -> &'static str {
        "snapshots"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "of 1,000 snapshots while three processes write their words in turn, each when it has seen the one before: those that \
         show a word without the one before it"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let object = freezable(&host, PAGES * PAGE)?;
        let writers: Result<Vec<Worker>> = (0..TURNS.len())
            .map(|turn| {
                let before = TURNS[(turn + TURNS.len() - 1) % TURNS.len()];
                let words = [NAME.to_owned(), before.to_string(), TURNS[turn].to_string()];
                let mut arguments: Vec<OsString> = vec![bench.state().into()];
                arguments.extend(words.map(OsString::from));
                Worker::start("turn-writer", &arguments)
            })
            .collect();
        let _writers = writers?;
        let snapshots = context.pick(1000, 50);
        let (mut torn, mut instants, mut last) = (0, 0, 0);
        for number in 0..snapshots {
            let options = SnapshotOptions { writable: number % 2 == 1, ..SnapshotOptions::default() };
            let snapshot = object.snapshot(SNAPSHOT, &options)?;
            let mut words = [0; TURNS.len()];
            for (word, page) in words.iter_mut().zip(TURNS) {
                let mut bytes = [0; 8];
                snapshot.read_at(&mut bytes, (page * PAGE) as u64)?;
                *word = u64::from_le_bytes(bytes);
            }
            let whole = words.is_sorted_by(|one, next| one >= next) && words[0] <= words[TURNS.len() - 1] + 1;
            torn += usize::from(!whole || words[0] < last);
            instants += usize::from(words[0] > last);
            last = words[0];
            host.remove(SNAPSHOT)?;
        }
        if instants < snapshots / 4 {
            return failed(format!("the writers hardly went on: {instants} instants that differ"));
        }
        let detail = json!({ "snapshots": snapshots, "instants that differ": instants, "turns": last });
        Ok(Measured::single(torn as f64, snapshots, detail))
    }
}
