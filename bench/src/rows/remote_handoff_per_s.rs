//! `remote.handoff_per_s`: two hosts add to one word as fast as they can.

use crate::cluster::floor::Floor;
use crate::cluster::{Awaiting, Cluster};
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{Pairs, alternate, median};
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::PAGE;
use commonhold_simulator::measure::Strict;
use serde_json::{Value, json};
use std::time::Duration;

const NAME: &str = "/bench/handoff";

/// The row.
pub struct HandoffPerSecond;

impl Row for HandoffPerSecond {
    fn id(&self) -> &'static str {
        "remote.handoff_per_s"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(0.6))
    }

    fn about(&self) -> &'static str {
        "two hosts adding to one word, minimum hold 0: how often a second the word came to a host that then \
         added, ÷ (1 s ÷ (TCP round trip 32 B → 4 KiB + bare userfaultfd fault)), everybody asleep while waiting"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let forwarding = Strict::Forwarding; // as an object is unless somebody says otherwise
        let few = context.pick(5, 3);
        let (pairs, mut detail) = measure(context, Awaiting::Asleep, forwarding, context.pick(15, 3))?;
        let (centrally, its_detail) = measure(context, Awaiting::Asleep, Strict::Central, few)?;
        detail["ratio_scheduled_centrally"] = json!(rounded(centrally.ratio()));
        detail["scheduled_centrally"] = its_detail;
        let (as_usual, its_detail) = measure(context, Awaiting::AsUsual, forwarding, few)?;
        detail["ratio_with_idle_polling"] = json!(rounded(as_usual.ratio()));
        detail["with_idle_polling"] = its_detail;
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

fn measure(context: &Context, awaiting: Awaiting, strict: Strict, pairs: usize) -> Result<(Pairs, Value)> {
    // On one processor whoever has lost the word would wait for its share of it before it asks again: the
    // scheduler's slices would be measured.
    let cluster = Cluster::start_two_apart(context, awaiting)?;
    let mut floor = Floor::start(context, cluster.network())?;
    let (mut home, mut other) = (cluster.sharer(0)?, cluster.sharer(1)?);
    home.create_scheduled(NAME, PAGE, Some(Duration::ZERO), strict)?;
    other.open(NAME)?;
    let time = Duration::from_millis(context.pick(1000, 300));
    let count = context.pick(512, 128);
    let mut additions = Vec::new();
    let pairs = alternate(
        pairs,
        |_| {
            home.begin_adding(time)?;
            other.begin_adding(time)?;
            let both = [home.added()?, other.added()?];
            if both.iter().any(|one| one.came < 2) {
                return failed("the word stayed with one host");
            }
            additions.push(both.iter().map(|one| one.times as f64).sum::<f64>());
            Ok(both.iter().map(|one| one.came as f64 / one.seconds).sum())
        },
        |_| Ok(1e9 / floor.measure(count, None)?.sum()),
    )?;
    let detail = json!({
        "a_second": pairs.summary(1.0),
        "additions_a_second": rounded(median(&additions) / time.as_secs_f64()),
        "network": cluster.network().words(),
    });
    Ok((pairs, detail))
}
