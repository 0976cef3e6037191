//! `hotspot.*`: all hosts write one word. Simulated hosts here; [`messages`] is where those of real hosts join.

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::measure::{least, most};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_simulator::measure::{HasPage, Strict, free_running, hotspot};
use commonhold_simulator::news::Traffic;
use serde_json::json;

/// How many hosts take part.
const PARTIES: [usize; 10] = [2, 3, 4, 5, 6, 7, 8, 16, 32, 64];

fn a_fault(traffic: Traffic) -> f64 {
    traffic.messages as f64 / traffic.faults as f64
}

/// Messages a fault of cycles on simulated hosts: the worst over the number of parties. Under the central scheduler every
/// party's fault is a remote one. Under forwarding, which puts a server on each host, the party that has the page is served
/// there, and its fault counts: so the paper gets 2N - 1 or 2N for N faults.
fn messages(strict: Strict, context: &Context) -> Result<Measured> {
    let cycles = context.pick(200, 20);
    let (mut each, mut lines) = (Vec::new(), Vec::new());
    for hosts in PARTIES {
        let late = hotspot(strict, hosts, cycles, None, HasPage::Late).later;
        let local = hotspot(strict, hosts, cycles, None, HasPage::Local).later;
        let shuffled = hotspot(strict, hosts, cycles, Some(context.seed), HasPage::Local).later;
        let free = free_running(strict, hosts, context.pick(1000, 100), context.seed);
        let free = free.map_err(Failure::Failed)?.traffic;
        let parties = (hosts * cycles) as f64;
        let value = match strict {
            Strict::Central => a_fault(late),
            Strict::Forwarding => local.messages as f64 / parties,
        };
        each.push(value);
        lines.push(json!({
            "hosts": hosts,
            "messages_a_fault": rounded(value),
            "if_all_faults_are_remote": rounded(a_fault(late)),
            "local_one_not_counted": rounded(a_fault(local)),
            "any_order": rounded(shuffled.messages as f64 / parties),
            "free_running_a_remote_fault": rounded(a_fault(free)),
        }));
    }
    let counted = match strict {
        Strict::Central => "remote ones: who has the page faults when it has it no more",
        Strict::Forwarding => {
            "N a cycle: who has the page is served on its own host, as in the paper's example"
        }
    };
    let detail = json!({
        "hosts": "simulated; not yet measured on real hosts",
        "cycles": cycles,
        "faults_counted": counted,
        "order_of_faults": "by number, as in the paper's example; `any_order` is drawn anew each cycle",
        "each": lines,
    });
    Ok(Measured { value: most(&each), runs: each.len(), min: least(&each), max: most(&each), detail })
}

/// The row.
pub struct CentralMessages;

impl Row for CentralMessages {
    fn id(&self) -> &'static str {
        "hotspot.central_messages"
    }

    fn unit(&self) -> &'static str {
        "messages a fault"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(4.0))
    }

    fn about(&self) -> &'static str {
        "remote requests and pages a fault, N-party write cycles on one word, centralized, N = 2 to 64: the worst (simulated \
         hosts; paper 5.0)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        messages(Strict::Central, context)
    }
}

/// The row.
pub struct ForwardingMessages;

impl Row for ForwardingMessages {
    fn id(&self) -> &'static str {
        "hotspot.forwarding_messages"
    }

    fn unit(&self) -> &'static str {
        "messages a fault"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.05))
    }

    fn about(&self) -> &'static str {
        "remote requests and pages a fault, N-party write cycles on one word, forwarding, N = 2 to 64: the worst (simulated \
         hosts; paper 2.0)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        messages(Strict::Forwarding, context)
    }
}

/// The row.
pub struct Fairness;

impl Row for Fairness {
    fn id(&self) -> &'static str {
        "hotspot.fairness"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.05))
    }

    fn about(&self) -> &'static str {
        "free-running writers of one word: most acquisitions of the page by any host over fewest, the worst of N and scheduler \
         (simulated hosts; paper within 2 to 3 %)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (mut worst, mut least, mut lines) = (f64::MIN, f64::MAX, Vec::new());
        for strict in [Strict::Central, Strict::Forwarding] {
            for hosts in PARTIES {
                let free = free_running(strict, hosts, context.pick(1000, 200), context.seed);
                let acquisitions = free.map_err(Failure::Failed)?.acquisitions;
                let most = acquisitions.iter().max().copied().unwrap_or(0) as f64;
                let fewest = acquisitions.iter().min().copied().unwrap_or(0) as f64;
                let ratio = most / fewest;
                worst = worst.max(ratio);
                least = least.min(ratio);
                let scheduler = format!("{strict:?}").to_lowercase();
                lines.push(json!({"scheduler": scheduler, "hosts": hosts, "ratio": rounded(ratio)}));
            }
        }
        let detail = json!({"hosts": "simulated", "each": lines});
        Ok(Measured { value: worst, runs: 2 * PARTIES.len(), min: least, max: worst, detail })
    }
}

/// The row.
pub struct FirstCycle;

impl Row for FirstCycle {
    fn id(&self) -> &'static str {
        "hotspot.first_cycle"
    }

    fn unit(&self) -> &'static str {
        "messages"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.0))
    }

    fn about(&self) -> &'static str {
        "remote messages of the first N-party fault from the initial state, forwarding, less the paper's 3N - 4, N = 2 to 64: \
         the worst (simulated hosts)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let _ = context; // nothing is drawn
        let excess = |hosts: usize| {
            hotspot(Strict::Forwarding, hosts, 0, None, HasPage::Local).first as f64 - (3 * hosts - 4) as f64
        };
        let each: Vec<f64> = (2..=64).map(excess).collect();
        let detail = json!({"hosts": "simulated", "parties": "2 to 64", "excess_over_3n_less_4": each});
        Ok(Measured { value: most(&each), runs: each.len(), min: least(&each), max: most(&each), detail })
    }
}
