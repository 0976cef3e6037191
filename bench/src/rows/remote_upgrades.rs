//! `remote.upgrade_ratio` and `remote.counter_ratio`: a host writes what it has read.

use crate::cluster::{Awaiting, Cluster, Sharer};
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::faults::{FreshPages, Touch};
use crate::measure::{Pairs, alternate, median};
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::PAGE;
use commonhold_simulator::measure::Strict;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::time::Duration;

/// No page of it is used twice: one that is written after it was read again and again comes to be written at once.
const PAGES: usize = 32_768;
const SCHEDULERS: [(Strict, &str); 2] =
    [(Strict::Forwarding, "by forwarding"), (Strict::Central, "scheduled centrally")];

/// The row.
pub struct UpgradeRatio;

impl Row for UpgradeRatio {
    fn id(&self) -> &'static str {
        "remote.upgrade_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.05))
    }

    fn about(&self) -> &'static str {
        "write to a page that another host wrote last and this one has read since ÷ write to one that it has not read, both of the \
         same object; p50 of single faults, to the home and from it, by forwarding and scheduled centrally (the worst), everybody \
         asleep while waiting"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut detail = Map::new();
        let mut worst: Option<Pairs> = None;
        for (strict, name) in SCHEDULERS {
            let cluster = Cluster::start_two_apart(context, Awaiting::Asleep)?;
            detail.insert("network".into(), json!(cluster.network().words()));
            let (mut home, mut other) = (cluster.sharer(0)?, cluster.sharer(1)?);
            home.create_scheduled("/bench/upgrades", PAGES * PAGE, None, strict)?;
            other.open("/bench/upgrades")?;
            let mut fresh = FreshPages::new(PAGES, &mut context.random(1));
            for direction in ["from the home", "to the home"] {
                let pairs = upgrades(context, [&mut home, &mut other], &mut fresh)?;
                detail.insert(format!("{direction}, {name}"), pairs.summary(1e-3));
                if worst.as_ref().is_none_or(|worst| pairs.ratio() > worst.ratio()) {
                    worst = Some(pairs);
                }
                std::mem::swap(&mut home, &mut other);
            }
        }
        detail.insert("unit_of_times".into(), json!("µs, p50 of single faults"));
        match worst {
            Some(pairs) => Ok(pairs.measured(pairs.ratio(), Value::Object(detail))),
            None => failed("nothing was measured"),
        }
    }
}

/// Who writes pages first, who writes them then, and those that nobody has used yet.
struct Upgrades<'a> {
    first: &'a mut Sharer,
    second: &'a mut Sharer,
    fresh: &'a mut FreshPages,
}

impl Upgrades<'_> {
    /// Median of `count` writes by the second, after it has read the pages or not, in nanoseconds.
    fn writes(&mut self, count: usize, after_reading: bool) -> Result<f64> {
        if self.fresh.left() < count {
            return failed("there are no pages left that were not used");
        }
        let pages = self.fresh.take(count);
        self.first.touch(Touch::Write, None, &pages)?;
        if after_reading {
            self.second.touch(Touch::Read, None, &pages)?;
        }
        Ok(median(&self.second.touch(Touch::Write, None, &pages)?))
    }
}

fn upgrades(context: &Context, [first, second]: [&mut Sharer; 2], fresh: &mut FreshPages) -> Result<Pairs> {
    let (count, pairs) = (context.pick(256, 64), context.pick(21, 3));
    let sides = RefCell::new(Upgrades { first, second, fresh });
    let writes = |after_reading| sides.borrow_mut().writes(count, after_reading);
    alternate(pairs, |_| writes(true), |_| writes(false))
}

/// The row.
pub struct CounterRatio;

impl Row for CounterRatio {
    fn id(&self) -> &'static str {
        "remote.counter_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.1))
    }

    fn about(&self) -> &'static str {
        "processes on two hosts in turn, each when it is told to: `x = *p; *p = x + 1` ÷ `fetch_add` of the same word, minimum hold \
         0; p50 of single turns, everybody asleep while waiting"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut detail = Map::new();
        let mut first = None;
        let at_once = SCHEDULERS.map(|(strict, name)| (strict, Some(Duration::ZERO), name));
        let held = (Strict::Forwarding, None, "by forwarding, with the hold that an object has");
        for (strict, hold, name) in at_once.into_iter().chain([held]) {
            let cluster = Cluster::start_two_apart(context, Awaiting::Asleep)?;
            detail.insert("network".into(), json!(cluster.network().words()));
            let mut sharers = [cluster.sharer(0)?, cluster.sharer(1)?];
            let [home, other] = &mut sharers;
            home.create_scheduled("/bench/counter", PAGE, hold, strict)?;
            other.open("/bench/counter")?;
            let pairs = turns(context, &mut sharers)?;
            detail.insert(name.to_owned(), pairs.summary(1e-3));
            detail.insert(format!("ratio {name}"), json!(rounded(pairs.ratio())));
            first.get_or_insert(pairs);
        }
        detail.insert("unit_of_times".into(), json!("µs, p50 of single turns"));
        match first {
            Some(pairs) => Ok(pairs.measured(pairs.ratio(), Value::Object(detail))),
            None => failed("nothing was measured"),
        }
    }
}

/// A word, what was added to it, and who adds in turn.
struct Counter<'a> {
    sharers: &'a mut [Sharer; 2],
    added: u64,
}

impl Counter<'_> {
    /// Median of `count` turns, in nanoseconds.
    fn turns(&mut self, count: usize, atomically: bool) -> Result<f64> {
        let mut times = Vec::new();
        for turn in 0..count {
            let (before, nanoseconds) = self.sharers[turn % 2].add_one(atomically)?;
            if before != self.added {
                return failed(format!("the counter was {before} where {} had been added", self.added));
            }
            self.added += 1;
            times.push(nanoseconds);
        }
        Ok(median(&times))
    }
}

fn turns(context: &Context, sharers: &mut [Sharer; 2]) -> Result<Pairs> {
    let (count, pairs) = (context.pick(200, 40), context.pick(21, 3));
    let counter = RefCell::new(Counter { sharers, added: 0 });
    let turns = |atomically| counter.borrow_mut().turns(count, atomically);
    alternate(pairs, |_| turns(false), |_| turns(true))
}
