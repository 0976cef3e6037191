//! `hotspot.*`: all hosts write one word. Two to eight real hosts, and up to 64 simulated ones; a row's value is the worse
//! of the two.

use crate::cluster::hotspot::{Field, HOLD, LONG_HOLD, MOST};
use crate::context::Context;
use crate::failure::{Failure, Result, failed};
use crate::measure::{least, most, some};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_simulator::measure::{HasPage, Strict, free_running, hotspot};
use commonhold_simulator::news::Traffic;
use serde_json::{Value, json};
use std::time::Duration;

/// How many simulated hosts take part.
const PARTIES: [usize; 10] = [2, 3, 4, 5, 6, 7, 8, 16, 32, 64];
/// How many real hosts take part.
const REAL: std::ops::RangeInclusive<usize> = 2..=MOST;

fn a_fault(traffic: Traffic) -> f64 {
    traffic.messages as f64 / traffic.faults as f64
}

/// Messages a fault of cycles on simulated hosts: the worst over the number of parties. Under the central scheduler every
/// party's fault is a remote one. Under forwarding, which puts a server on each host, the party that has the page is served
/// there, and its fault counts: so the paper gets 2N - 1 or 2N for N faults.
fn messages(strict: Strict, context: &Context) -> Result<Measured> {
    let (mut each, simulated) = simulated_messages(strict, context)?;
    let (real_each, real) = real_messages(strict, context)?;
    let detail = json!({
        "simulated_worst": rounded(most(&each)),
        "real_worst": rounded(most(&real_each)),
        "order_of_faults": "by number, as in the paper's example; `any_order` is drawn anew each cycle",
        "simulated": simulated,
        "real": real,
    });
    each.extend(real_each);
    some(least(&each), "the least of messages a fault")?;
    let lines = detail["real"]["each"].as_array().cloned().unwrap_or_default();
    let worst = |figures: [&str; 2]| {
        let sum = |line: &Value| figures.iter().filter_map(|figure| line[*figure].as_f64()).sum::<f64>();
        rounded(most(&lines.iter().map(sum).collect::<Vec<_>>()))
    };
    let (free, acknowledged) = (
        worst(["free_running", ""]),
        [
            worst(["messages_a_fault", "acknowledgements_a_fault"]),
            worst(["free_running", "acknowledgements_free_running"]),
        ],
    );
    Ok(Measured::most(&each, detail)
        .beside("real hosts, free-running", free, None)
        .beside("real hosts, with acknowledgements", acknowledged[0], None)
        .beside("real hosts, free-running, with acknowledgements", acknowledged[1], None))
}

/// The same cycles on real hosts, with a barrier between them: messages and faults as the hosts count them.
fn real_messages(strict: Strict, context: &Context) -> Result<(Vec<f64>, Value)> {
    let (cycles, few) = (context.pick(6, 2) as u64, 2);
    // Under the central scheduler nothing depends on who asks when.
    let hold = if strict == Strict::Central { HOLD } else { LONG_HOLD };
    let mut field = Field::start(context)?;
    let network = field.network();
    let (mut each, mut lines) = (Vec::new(), Vec::new());
    for hosts in REAL {
        let mut game = field.game(strict, hosts, Some(hold))?;
        match strict {
            Strict::Central => game.cycle()?,
            Strict::Forwarding => game.first_cycle()?,
        }
        // Central: it makes no difference.
        let at_once = strict == Strict::Forwarding && game.ask_at_once(true)?;
        let before = game.traffic()?;
        (0..cycles).try_for_each(|_| game.cycle())?;
        let faults = hosts as u64 * cycles;
        let remote = match strict {
            Strict::Central => faults,
            Strict::Forwarding => faults - cycles,
        };
        let after = game.traffic_with(before.waits + remote)?;
        let messages = after.messages - before.messages;
        if after.waits - before.waits < remote {
            let waits = after.waits - before.waits;
            return failed(format!("{waits} accesses waited for another host, and {remote} should have"));
        }
        // One after the other, each heard at once: a later request is led to where an earlier one is.
        game.ask_at_once(false)?;
        let said = game.traffic()?.messages;
        (0..few).try_for_each(|_| game.cycle())?;
        let in_turn = game.traffic()?.messages - said;
        let value = messages as f64 / faults as f64;
        each.push(value);
        drop(game);
        let free = field.game(strict, hosts, None)?.free(Duration::from_millis(context.pick(2000, 1500)))?;
        lines.push(json!({
            "hosts": hosts,
            "messages_a_fault": rounded(value),
            "acknowledgements_a_fault": rounded((after.acknowledgements - before.acknowledgements) as f64 / faults as f64),
            "free_running": rounded(free.messages),
            "acknowledgements_free_running": rounded(free.acknowledgements),
            "all_ask_before_any_is_heard": at_once,
            "asking_one_after_the_other": rounded(in_turn as f64 / (hosts as u64 * few) as f64),
        }));
    }
    Ok((
        each,
        json!({"network": network, "cycles": cycles, "hold_ms": hold.as_millis() as u64, "each": lines}),
    ))
}

/// The cycles on simulated hosts.
fn simulated_messages(strict: Strict, context: &Context) -> Result<(Vec<f64>, Value)> {
    let cycles = context.pick(200, 20);
    let (mut each, mut lines) = (Vec::new(), Vec::new());
    for hosts in PARTIES {
        let late = hotspot(strict, hosts, cycles, None, HasPage::Late).later;
        let local = hotspot(strict, hosts, cycles, None, HasPage::Local).later;
        let shuffled = hotspot(strict, hosts, cycles, Some(context.seed), HasPage::Local).later;
        let free =
            free_running(strict, hosts, context.pick(1000, 100), context.seed).map_err(Failure::Failed)?;
        let turns = free.acquisitions.iter().sum::<u64>() as f64;
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
            "free_running": rounded(free.traffic.messages as f64 / turns),
            "acknowledgements_free_running": rounded(free.traffic.acknowledgements as f64 / turns),
        }));
    }
    let counted = match strict {
        Strict::Central => "remote ones: who has the page faults when it has it no more",
        Strict::Forwarding => {
            "N a cycle: who has the page is served on its own host, as in the paper's example"
        }
    };
    Ok((each, json!({"cycles": cycles, "faults_counted": counted, "each": lines})))
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
        "remote requests and pages a fault, N-party write cycles on one word, centralized, N = 2 to 8 real hosts, and to \
         64 simulated ones: the worst (paper 5.0); free-running, and with acknowledgements, beside"
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
        "remote requests and pages a fault, N-party write cycles on one word, forwarding, N = 2 to 8 real hosts, and to \
         64 simulated ones: the worst (paper 2.0); free-running, and with acknowledgements, beside"
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
        "free-running writers of one word: most acquisitions of the page by any host over fewest, the worst of N and scheduler, \
         on real and on simulated hosts (paper within 2 to 3 %)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (mut each, mut lines) = (Vec::new(), Vec::new());
        for strict in [Strict::Central, Strict::Forwarding] {
            for hosts in PARTIES {
                let free = free_running(strict, hosts, context.pick(1000, 200), context.seed);
                let acquisitions = free.map_err(Failure::Failed)?.acquisitions;
                let ratio = unfairness(&acquisitions)?;
                each.push(ratio);
                let scheduler = format!("{strict:?}").to_lowercase();
                lines.push(json!({"scheduler": scheduler, "hosts": hosts, "ratio": rounded(ratio)}));
            }
        }
        let (real, network, real_lines) = real_fairness(context)?;
        let detail = json!({
            "simulated_worst": rounded(most(&each)),
            "real_worst": rounded(most(&real)),
            "network": network,
            "simulated": lines,
            "real": real_lines,
        });
        each.extend(real);
        Ok(Measured::most(&each, detail))
    }
}

/// Most ÷ fewest turns. Who had none counts as one: the ratio is that much at least.
fn unfairness(turns: &[u64]) -> Result<f64> {
    match (turns.iter().max(), turns.iter().min()) {
        (Some(most), Some(fewest)) if *most > 1 => Ok(*most as f64 / (*fewest).max(1) as f64),
        _ => failed(format!("hosts had no turns: {turns:?}")),
    }
}

/// Real hosts that add to one word as fast as they can: most ÷ fewest times that one of them got the page.
fn real_fairness(context: &Context) -> Result<(Vec<f64>, String, Vec<Value>)> {
    let mut field = Field::start(context)?;
    let network = field.network();
    let time = Duration::from_millis(context.pick(3000, 1500));
    let (mut each, mut lines) = (Vec::new(), Vec::new());
    for strict in [Strict::Central, Strict::Forwarding] {
        for hosts in REAL {
            let mut game = field.game(strict, hosts, None)?;
            let free = game.free(time)?;
            let ratio = unfairness(&free.acquired)?;
            each.push(ratio);
            lines.push(json!({
                "scheduler": format!("{strict:?}").to_lowercase(),
                "hosts": hosts,
                "ratio": rounded(ratio),
                "acquired": free.acquired,
                "came_to_the_process": free.came,
                "messages_an_acquisition": rounded(free.messages),
                "acknowledgements_an_acquisition": rounded(free.acknowledgements),
            }));
        }
    }
    Ok((each, network, lines))
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
        "remote messages of the first N-party fault from the initial state, forwarding, less the paper's 3N - 4, N = 2 to 8 \
         real hosts, and to 64 simulated ones: the worst"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let excess = |hosts: usize| {
            let first = hotspot(Strict::Forwarding, hosts, 0, None, HasPage::Local).first;
            Ok(some(first as f64, "messages of the first cycle")? - (3 * hosts - 4) as f64)
        };
        let mut each: Vec<f64> = (2..=64).map(excess).collect::<Result<_>>()?;
        let mut field = Field::start(context)?;
        let network = field.network();
        let mut real = Vec::new();
        for hosts in REAL {
            let mut worst = f64::MIN;
            for _ in 0..context.pick(5, 1) {
                let mut game = field.game(Strict::Forwarding, hosts, Some(HOLD))?;
                let before = game.traffic()?;
                game.first_cycle()?;
                let messages = game.traffic()?.messages - before.messages;
                worst =
                    worst.max(some(messages as f64, "messages of the first cycle")? - (3 * hosts - 4) as f64);
            }
            real.push(worst);
        }
        let detail = json!({
            "network": network,
            "excess_over_3n_less_4": {"simulated_2_to_64": each, "real_2_to_8": real},
        });
        each.extend(real);
        Ok(Measured::most(&each, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_had_no_turns_are_no_fair_hosts() {
        assert_eq!(unfairness(&[6, 3, 4]).unwrap(), 2.0);
        assert_eq!(unfairness(&[6, 0]).unwrap(), 6.0);
        assert!(unfairness(&[0, 0]).is_err() && unfairness(&[]).is_err());
    }
}
