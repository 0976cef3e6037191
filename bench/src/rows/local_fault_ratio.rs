//! `local.fault_ratio`: one-page faults of a controlled object, against bare userfaultfd between two processes.

use crate::context::{Context, Random};
use crate::failure::{Result, failed};
use crate::faults::{BareService, FreshPages, Touch};
use crate::measure::{Pairs, alternate, median};
use crate::objects;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::{PAGE, RawMapping, View};
use commonhold::{Host, Mapping};
use serde_json::json;
use std::time::Duration;

const NAME: &str = "/bench/faults";
/// Pages of one object; when they are used up, a fresh one is made.
const PAGES: usize = 16_384;
/// First faults of each batch that do not count: the server may still be asleep.
const WARM_UP: usize = 16;
const GAP: Duration = Duration::from_millis(2);

/// The row.
pub struct FaultRatio;

impl Row for FaultRatio {
    fn id(&self) -> &'static str {
        "local.fault_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.3))
    }

    fn about(&self) -> &'static str {
        "one-page read fault on a controlled object ÷ bare userfaultfd (UFFDIO_COPY) served by another process, \
         both spinning, or both sleeping (worse of the two); medians of the single faults"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let before = host.status()?;
        let mut sides = Sides::start(context, &host)?;
        let spinning = sides.spinning(context, Touch::Read)?;
        let spinning_write = sides.spinning(context, Touch::Write)?;
        let sleeping = sides.sleeping(context, Touch::Read)?;
        let sleeping_write = sides.sleeping(context, Touch::Write)?;
        drop(sides);
        let after = host.status()?;
        let faults = after.faults - before.faults;
        if faults == 0 {
            return failed("the host served no fault");
        }
        let detail = json!({
            "unit_of_times": "µs, p50 of single faults",
            "read_spinning": spinning.summary(1e-3),
            "read_sleeping": sleeping.summary(1e-3),
            "write_spinning": spinning_write.summary(1e-3),
            "write_sleeping": sleeping_write.summary(1e-3),
            "faults_served": faults,
            "pages_per_fault": rounded((after.pages_installed - before.pages_installed) as f64 / faults as f64),
        });
        let worse = if spinning.ratio() > sleeping.ratio() { &spinning } else { &sleeping };
        let of_writes =
            [&spinning_write, &sleeping_write].into_iter().max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
        let measured = worse.measured(worse.ratio(), detail);
        Ok(of_writes.into_iter().fold(measured, |measured, pairs| {
            measured.beside("writes", pairs.ratio(), Some(pairs.ratio_interval()))
        }))
    }
}

/// Both sides and the pages they have left.
struct Sides<'a> {
    host: &'a Host,
    bare: BareService,
    random: Random,
    ours: Option<(Mapping, FreshPages)>,
    theirs: Option<(RawMapping, FreshPages)>,
}

impl<'a> Sides<'a> {
    fn start(context: &Context, host: &'a Host) -> Result<Sides<'a>> {
        Ok(Sides { host, bare: BareService::start()?, random: context.random(1), ours: None, theirs: None })
    }

    /// Faults back to back: both servers look again before they sleep. Ours decides by itself, the bare one is
    /// told to, and only while its own side is measured.
    fn spinning(&mut self, context: &Context, touch: Touch) -> Result<Pairs> {
        let (count, pairs) = (context.pick(512, 256), context.pick(41, 7));
        self.compare(pairs, WARM_UP, count, |pages, view, n| pages.touch(view, n, touch, None), true)
    }

    /// Faults with a pause before each: both servers have gone to sleep.
    fn sleeping(&mut self, context: &Context, touch: Touch) -> Result<Pairs> {
        let (count, pairs) = (context.pick(80, 40), context.pick(21, 5));
        self.compare(pairs, 0, count, |pages, view, n| pages.touch(view, n, touch, Some(GAP)), false)
    }

    fn compare(
        &mut self,
        pairs: usize,
        warm_up: usize,
        count: usize,
        touch: impl Fn(&mut FreshPages, View<'_>, usize) -> Vec<f64>,
        spin: bool,
    ) -> Result<Pairs> {
        let Sides { host, bare, random, ours, theirs } = self;
        let random = std::cell::RefCell::new(random);
        let p50 = |times: Vec<f64>| median(&times[warm_up..]);
        alternate(
            pairs,
            |_| {
                let (mapping, pages) = fresh_ours(ours, host, &mut random.borrow_mut(), warm_up + count)?;
                Ok(p50(touch(pages, View::of(mapping), warm_up + count)))
            },
            |_| {
                let (mapping, pages) = fresh_theirs(theirs, bare, &mut random.borrow_mut(), warm_up + count)?;
                let mut work = || p50(touch(pages, mapping.view(), warm_up + count));
                Ok(if spin { bare.spinning(work) } else { work() })
            },
        )
    }
}

impl Drop for Sides<'_> {
    fn drop(&mut self) {
        if self.ours.take().is_some() {
            let _ = self.host.remove(NAME);
        }
    }
}

fn fresh_ours<'m>(
    slot: &'m mut Option<(Mapping, FreshPages)>,
    host: &Host,
    random: &mut Random,
    count: usize,
) -> Result<&'m mut (Mapping, FreshPages)> {
    if slot.as_ref().is_some_and(|(_, pages)| pages.left() < count) {
        *slot = None;
        host.remove(NAME)?;
    }
    if slot.is_none() {
        let mapping = objects::controlled(host, NAME, PAGES * PAGE)?.map(&objects::everything())?;
        *slot = Some((mapping, FreshPages::new(PAGES, random)));
    }
    match slot {
        Some(fresh) => Ok(fresh),
        None => crate::failure::failed("no fresh object"),
    }
}

fn fresh_theirs<'m>(
    slot: &'m mut Option<(RawMapping, FreshPages)>,
    bare: &BareService,
    random: &mut Random,
    count: usize,
) -> Result<&'m mut (RawMapping, FreshPages)> {
    if slot.as_ref().is_none_or(|(_, pages)| pages.left() < count) {
        *slot = Some((bare.memory(PAGES)?, FreshPages::new(PAGES, random)));
    }
    match slot {
        Some(fresh) => Ok(fresh),
        None => crate::failure::failed("no fresh memory"),
    }
}
