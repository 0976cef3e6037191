//! `fence.stale_ms`: how long a process can read pages of a host that others take for lost.

use crate::context::{Context, GIB};
use crate::failure::{Result, failed};
use crate::fence::strike::Strike;
use crate::fence::trial::{Had, Seen, Trial};
use crate::measure::most;
use crate::row::{Bar, Measured, Row};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The row.
pub struct FenceStaleMs;

impl Row for FenceStaleMs {
    fn id(&self) -> &'static str {
        "fence.stale_ms"
    }

    fn unit(&self) -> &'static str {
        "ms"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.0))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(2400)
    }

    fn about(&self) -> &'static str {
        "4 GiB of strict pages that a sharer has read, leases of 10 s: the last instant at which a process of the sharer could \
         read one, less the instant from which the home may give them to others (below zero: margin); the worst of host \
         cut off, stopped, dead, and dead and cut off, its keeper alive"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bytes = context.pick(4 * GIB, GIB / 8);
        let lease = Duration::from_secs(context.pick(10, 2));
        let rounds = context.trials.unwrap_or(1);
        let mut table = Table::default();
        for _ in 0..rounds {
            for strike in Strike::JUDGED {
                table.add(context, Trial { bytes, had: Had::Read, strike, lease })?;
                let bytes = context.pick(bytes, bytes / 8);
                table.add(context, Trial { bytes, had: Had::Written, strike, lease })?;
            }
        }
        for strike in Strike::WINDOW {
            table.add(context, Trial { bytes: bytes / 4, had: Had::Read, strike, lease })?;
        }
        table.measured(lease)
    }
}

#[derive(Default)]
struct Table {
    /// Of pages that were only read, the keeper alive.
    judged: Vec<f64>,
    /// Of pages that the sharer wrote.
    written: Vec<f64>,
    cells: Map<String, Value>,
    left_out: Vec<String>,
}

impl Table {
    fn add(&mut self, context: &Context, trial: Trial) -> Result<()> {
        let key = format!("{}_{}", trial.strike.name(), trial.had.name());
        let Some(seen) = trial.run(context)? else {
            self.left_out.push(format!("{key}: without network namespaces no host can be cut off"));
            return Ok(());
        };
        if Strike::JUDGED.contains(&trial.strike) {
            let all = if trial.had == Had::Read { &mut self.judged } else { &mut self.written };
            all.push(seen.stale_ms());
        }
        self.keep_worst(key, &seen);
        Ok(())
    }

    fn keep_worst(&mut self, key: String, seen: &Seen) {
        let before = self.cells.get(&key).and_then(|cell| cell["stale_ms"].as_f64());
        if before.is_none_or(|before| before < seen.stale_ms()) {
            self.cells.insert(key, seen.to_json());
        }
    }

    fn measured(self, lease: Duration) -> Result<Measured> {
        if self.judged.is_empty() {
            return failed("no host could be struck");
        }
        let detail = json!({
            "lease_s": lease.as_secs(),
            "cases": self.cells,
            "left_out": self.left_out,
            "what": "the lease's end is reckoned from just before the renewal that was answered last was sent (within a \
                     millisecond and a round trip); where the home's own write of such a page was done before that, \
                     from then. A page could be read as long as a thread read it without a wait, or the process's page \
                     tables had it (looked at every 20 ms, and however long the look takes). With host and keeper stopped \
                     or dead nobody can act (the one window of docs/LEASES.md): not judged",
        });
        let measured = Measured::most(&self.judged, detail);
        if self.written.is_empty() {
            return Ok(measured);
        }
        Ok(measured.beside("pages that the sharer wrote", most(&self.written), None))
    }
}
