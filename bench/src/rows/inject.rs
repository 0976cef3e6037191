//! `inject.failures`: calls of hosts, keepers and clients under load fail, take long, or end their process; and nothing is
//! wrong, lost, waited for too long, or an error for good.

use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row};
use std::time::Duration;

/// The row.
pub struct InjectFailures;

impl Row for InjectFailures {
    fn id(&self) -> &'static str {
        "inject.failures"
    }

    fn unit(&self) -> &'static str {
        "failures"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(2400)
    }

    fn about(&self) -> &'static str {
        "errors, delays and kills at points in the sources, under load: wrong bytes, lost syncs, endless waits, sticky errors"
    }

    #[cfg(feature = "faults")]
    fn run(&self, context: &Context) -> Result<Measured> {
        crate::inject::row::failures(context)
    }

    #[cfg(not(feature = "faults"))]
    fn run(&self, _context: &Context) -> Result<Measured> {
        crate::failure::skipped(NO_POINTS)
    }
}

/// The row.
pub struct PointsMissed;

impl Row for PointsMissed {
    fn id(&self) -> &'static str {
        "inject.points_missed"
    }

    fn unit(&self) -> &'static str {
        "points"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(2400)
    }

    fn about(&self) -> &'static str {
        "calls of hosts, keepers, clients, journal and pagers without a point, and what points did not do in the last campaign"
    }

    #[cfg(feature = "faults")]
    fn run(&self, context: &Context) -> Result<Measured> {
        crate::inject::row::points_missed(context)
    }

    #[cfg(not(feature = "faults"))]
    fn run(&self, _context: &Context) -> Result<Measured> {
        crate::failure::skipped(NO_POINTS)
    }
}

#[cfg(not(feature = "faults"))]
const NO_POINTS: &str =
    "this program has no points for faults: `./run build faults` makes target/faults/commonhold-bench";
