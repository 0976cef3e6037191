//! `explicit.messages`: what a sync says.

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::measure::some;
use crate::row::{Bar, Measured, Row};
use commonhold_simulator::measure::sync_requests;
use serde_json::json;

/// The row.
pub struct ExplicitMessages;

impl Row for ExplicitMessages {
    fn id(&self) -> &'static str {
        "explicit.messages"
    }

    fn unit(&self) -> &'static str {
        "requests"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.0))
    }

    fn about(&self) -> &'static str {
        "requests of one sync with K = 1 to 16 other hosts that share, less K + 1: the worst (simulated hosts; replies \
         apart)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (mut worst, mut lines) = (f64::MIN, Vec::new());
        for sharing in 1..=16usize {
            let counted = sync_requests(sharing, 8, context.seed);
            let (sync, later) = counted.map_err(Failure::Failed)?;
            let sync = some(sync as f64, "requests of a sync")?;
            worst = worst.max(sync - (sharing as f64 + 1.0));
            lines.push(json!({"sharing": sharing, "requests_of_the_sync": sync, "fetches_after_it": later}));
        }
        let detail = json!({"pages_synced": 8, "hosts": "simulated", "each": lines});
        Ok(Measured::single(worst, 16, detail))
    }
}
