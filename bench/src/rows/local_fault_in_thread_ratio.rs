//! `local.fault_in_thread_ratio`: pages served by the faulting thread itself, against plain shared memory.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::faults::{FreshPages, Touch};
use crate::measure::{Pairs, alternate, median};
use crate::objects;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::{PAGE, RawMapping, View, memory_file};
use commonhold::Host;
use serde_json::json;
use std::cell::RefCell;

const NAME: &str = "/bench/in-thread";
const PAGES: usize = 4096;

/// The row.
pub struct FaultInThreadRatio;

impl Row for FaultInThreadRatio {
    fn id(&self) -> &'static str {
        "local.fault_in_thread_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.5))
    }

    fn about(&self) -> &'static str {
        "first touch (read; writes beside) of a never written page of a controlled object with in-thread service ÷ first touch \
         of a page of plain shared memory, both allocating the frame; medians of the single touches"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let before = host.status()?.faults;
        let read = compare(context, &host, Touch::Read)?;
        let write = compare(context, &host, Touch::Write)?;
        let served = host.status()?.faults - before;
        let touches = (read.ours.len() + write.ours.len()) * PAGES;
        if served as usize * 2 > touches {
            return failed(format!("the host served {served} of {touches} touches, and not the threads"));
        }
        let detail = json!({
            "unit_of_times": "µs, p50 of single touches",
            "read": read.summary(1e-3),
            "write": write.summary(1e-3),
            "share_served_by_host": rounded(served as f64 / touches as f64),
        });
        Ok(read.measured(read.ratio(), detail).beside("writes", write.ratio(), Some(write.ratio_interval())))
    }
}

/// Each run touches all pages of fresh memory once, in random order.
fn compare(context: &Context, host: &Host, touch: Touch) -> Result<Pairs> {
    let random = RefCell::new(context.random(2));
    let order = || FreshPages::new(PAGES, &mut random.borrow_mut());
    alternate(context.pick(31, 7), |_| in_thread(host, order(), touch), |_| plain(order(), touch))
}

fn in_thread(host: &Host, mut order: FreshPages, touch: Touch) -> Result<f64> {
    let mapping = objects::controlled(host, NAME, PAGES * PAGE)?.map(&objects::in_thread())?;
    let times = order.touch(View::of(&mapping), PAGES, touch, None);
    drop(mapping);
    host.remove(NAME)?;
    Ok(median(&times))
}

fn plain(mut order: FreshPages, touch: Touch) -> Result<f64> {
    let mapping = RawMapping::shared(memory_file(PAGES * PAGE)?, PAGES * PAGE)?;
    Ok(median(&order.touch(mapping.view(), PAGES, touch, None)))
}
