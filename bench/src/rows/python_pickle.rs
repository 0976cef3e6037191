//! `python.pickle_us_ratio`: an array that goes to another process and back by reference.

use super::local_python_attach_ratio::{python, script};
use crate::context::Context;
use crate::failure::Result;
use crate::measure::alternate;
use crate::row::{Bar, Measured, Row};
use crate::worker::Worker;
use serde_json::json;

const SCRIPT: &str = include_str!("../../python/pickle_pool.py");

/// The row.
pub struct PickleRatio;

impl Row for PickleRatio {
    fn id(&self) -> &'static str {
        "python.pickle_us_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.5))
    }

    fn about(&self) -> &'static str {
        "Python: an array of 1 GiB sent to a worker of a pool that has had it before, and back, by reference ÷ an empty message \
         through the same pool"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let python = python()?;
        let bench = context.start_host()?;
        let state = bench.state().to_string_lossy().into_owned();
        let worker = script(context, &python, "pool_of_one.py", SCRIPT, &[&state, "/bench/pickle"])?;
        let worker = std::cell::RefCell::new(worker);
        let rounds = context.pick(200, 20);
        let ask = |what: &str| -> Result<f64> {
            let worker: &mut Worker = &mut worker.borrow_mut();
            Ok(worker.ask(&format!("{what} {rounds}"))?.parse()?)
        };
        let first_us = ask("first")?;
        let pairs = alternate(context.pick(21, 5), |_| ask("ours"), |_| ask("empty"))?;
        let detail = json!({
            "unit_of_times": "µs there and back, p50",
            "times": pairs.summary(1.0),
            "first_time_us": first_us,
            "python": python.display().to_string(),
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}
