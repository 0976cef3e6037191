//! `scale.hosts_1000`: messages when a thousand hosts share one page.

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_simulator::measure::{Strict, crowd};
use serde_json::json;

/// The row.
pub struct Hosts1000;

impl Row for Hosts1000 {
    fn id(&self) -> &'static str {
        "scale.hosts_1000"
    }

    fn unit(&self) -> &'static str {
        "messages a fault"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "remote requests and pages a fault at 1,000 simulated hosts: the most of read-mostly (99:1) and hotspot (all write), \
         both schedulers"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let hosts = context.pick(1000, 100);
        let accesses = 20;
        let (mut each, mut lines) = (Vec::new(), Vec::new());
        for strict in [Strict::Central, Strict::Forwarding] {
            for (load, writes) in [("read-mostly, 99:1", 100), ("hotspot, all write", 1)] {
                let traffic = crowd(strict, hosts, accesses, writes, context.seed);
                let traffic = traffic.map_err(Failure::Failed)?;
                let a_fault = traffic.messages as f64 / traffic.faults as f64;
                each.push(a_fault);
                lines.push(json!({
                    "scheduler": format!("{strict:?}").to_lowercase(),
                    "load": load,
                    "messages_a_fault": rounded(a_fault),
                    "acknowledgements_a_fault": rounded(traffic.acknowledgements as f64 / traffic.faults as f64),
                    "faults": traffic.faults,
                    "accesses": traffic.accesses,
                }));
            }
        }
        let detail = json!({"hosts": hosts, "accesses_of_each_host": accesses, "pages": 1, "each": lines});
        Ok(Measured::most(&each, detail))
    }
}
