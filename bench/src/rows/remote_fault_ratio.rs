//! `remote.read_fault_ratio` and `remote.write_fault_ratio`: a page that another host wrote last, against what it
//! costs at least.

use crate::cluster::floor::{Floor, Least, WARM_UP};
use crate::cluster::{Awaiting, Cluster, Sharer};
use crate::context::{Context, Random};
use crate::failure::Result;
use crate::faults::{FreshPages, Touch};
use crate::measure::{Pairs, alternate, median};
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::PAGE;
use commonhold_simulator::measure::Strict;
use serde_json::{Map, Value, json};
use std::time::Duration;

const NAME: &str = "/bench/remote-faults";
const PAGES: usize = 16_384;
const GAP: Duration = Duration::from_millis(2);

/// The row.
pub struct ReadFaultRatio;

impl Row for ReadFaultRatio {
    fn id(&self) -> &'static str {
        "remote.read_fault_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.6))
    }

    fn about(&self) -> &'static str {
        "read fault of one page that another host wrote last, TLS on ÷ (TCP round trip 32 B → 4 KiB + bare \
         userfaultfd fault), to the home and from it, back to back and with pauses (the worst); medians of the single faults, everybody \
         asleep while waiting"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        measure(context, Touch::Read)
    }
}

/// The row.
pub struct WriteFaultRatio;

impl Row for WriteFaultRatio {
    fn id(&self) -> &'static str {
        "remote.write_fault_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.0))
    }

    fn about(&self) -> &'static str {
        "write fault of one page that another host wrote last, TLS on ÷ (TCP round trip 32 B → 4 KiB + bare \
         userfaultfd fault), to the home and from it, back to back and with pauses (the worst); medians of the single faults, everybody \
         asleep while waiting"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        measure(context, Touch::Write)
    }
}

/// The process that writes pages first, and the one whose faults are timed.
struct Sides {
    writer: Sharer,
    toucher: Sharer,
    fresh: FreshPages,
    random: Random,
}

impl Sides {
    /// Median of `count` faults, in nanoseconds.
    fn faults(&mut self, touch: Touch, count: usize, gap: Option<Duration>) -> Result<f64> {
        if self.fresh.left() < WARM_UP + count {
            self.fresh = FreshPages::new(PAGES, &mut self.random);
        }
        let pages = self.fresh.take(WARM_UP + count);
        self.writer.touch(Touch::Write, None, &pages)?;
        Ok(median(&self.toucher.touch(touch, gap, &pages)?[WARM_UP..]))
    }

    fn turn(&mut self) {
        std::mem::swap(&mut self.writer, &mut self.toucher);
    }
}

fn measure(context: &Context, touch: Touch) -> Result<Measured> {
    let forwarding = Strict::Forwarding; // as an object is unless somebody says otherwise
    let (worst, mut detail) = measure_one(context, touch, (Awaiting::Asleep, forwarding), [31, 15])?;
    let (centrally, its_detail) = measure_one(context, touch, (Awaiting::Asleep, Strict::Central), [15, 7])?;
    detail.insert("ratio_scheduled_centrally".into(), json!(rounded(centrally.ratio())));
    detail.insert("scheduled_centrally".into(), Value::Object(its_detail));
    let (as_usual, its_detail) = measure_one(context, touch, (Awaiting::AsUsual, forwarding), [9, 5])?;
    detail.insert("ratio_with_idle_polling".into(), json!(rounded(as_usual.ratio())));
    detail.insert("with_idle_polling".into(), Value::Object(its_detail));
    Ok(worst.measured(worst.ratio(), Value::Object(detail)))
}

/// The worst of four, in so many pairs back to back, and with pauses; and all of them.
fn measure_one(
    context: &Context,
    touch: Touch,
    (awaiting, strict): (Awaiting, Strict),
    [back_to_back, with_pauses]: [usize; 2],
) -> Result<(Pairs, Map<String, Value>)> {
    let cluster = Cluster::start_two_apart(context, awaiting)?;
    let mut floor = Floor::start(context, cluster.network())?;
    let (mut home, mut other) = (cluster.sharer(0)?, cluster.sharer(1)?);
    home.create_scheduled(NAME, PAGES * PAGE, None, strict)?;
    other.open(NAME)?;
    let mut random = context.random(1);
    let fresh = FreshPages::new(PAGES, &mut random);
    let mut sides = Sides { writer: home, toucher: other, fresh, random };
    let mut detail = Map::new();
    detail.insert("unit_of_times".into(), json!("µs, p50 of single faults"));
    detail.insert("network".into(), json!(cluster.network().words()));
    let mut worst: Option<Pairs> = None;
    for direction in ["from the home", "to the home"] {
        for (way, gap, count, pairs) in [
            ("back to back", None, context.pick(512, 128), context.pick(back_to_back, 5)),
            ("with pauses", Some(GAP), context.pick(80, 40), context.pick(with_pauses, 3)),
        ] {
            let (pairs, summary) = compare(&mut sides, &mut floor, touch, (count, gap), pairs)?;
            detail.insert(format!("{direction}, {way}"), summary);
            if worst.as_ref().is_none_or(|worst| pairs.ratio() > worst.ratio()) {
                worst = Some(pairs);
            }
        }
        sides.turn();
    }
    // On one processor whoever looks would keep it from whom it looks for.
    if cluster.network().processors(1).len() != 1 {
        let looking = floor.fault_while_looking(context.pick(512, 128))?;
        detail.insert("bare_fault_if_the_server_looks_all_the_time".into(), json!(rounded(looking * 1e-3)));
    }
    match worst {
        Some(pairs) => Ok((pairs, detail)),
        None => crate::failure::failed("nothing was measured"),
    }
}

fn compare(
    sides: &mut Sides,
    floor: &mut Floor,
    touch: Touch,
    (count, gap): (usize, Option<Duration>),
    pairs: usize,
) -> Result<(Pairs, Value)> {
    let mut parts: Vec<Least> = Vec::new();
    let pairs = alternate(
        pairs,
        |_| sides.faults(touch, count, gap),
        |_| {
            let least = floor.measure(count, gap)?;
            parts.push(least);
            Ok(least.sum())
        },
    )?;
    let mut summary = pairs.summary(1e-3);
    let part = |of: fn(&Least) -> f64| rounded(median(&parts.iter().map(of).collect::<Vec<_>>()) * 1e-3);
    summary["of_the_peer_round_trip"] = json!(part(|least| least.round_trip));
    summary["of_the_peer_bare_fault"] = json!(part(|least| least.fault));
    Ok((pairs, summary))
}
