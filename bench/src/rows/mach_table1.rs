//! `mach.table1`: Table 1 of Forin et al., "costs of the server".

use crate::cluster::hotspot::{Field, Free, MOST};
use crate::cluster::{Cluster, Sharer};
use crate::conclusions::{self, Conclusion, named};
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::faults::{FreshPages, Touch};
use crate::measure::median;
use crate::processes::{processor_time, user_and_system};
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use crate::view::PAGE;
use commonhold_simulator::measure::Strict;
use serde_json::{Value, json};
use std::time::Duration;

const PAGES: usize = 4096;
/// Hosts that free-run, whose messages are counted.
const PARTIES: [usize; 3] = [2, 4, MOST];

/// The row.
pub struct MachTable1;

impl Row for MachTable1 {
    fn id(&self) -> &'static str {
        "mach.table1"
    }

    fn unit(&self) -> &'static str {
        conclusions::UNIT
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Table 1 of Forin et al., costs of the server: faults of one machine, and free-running real hosts that all write one \
         word"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let cluster = Cluster::start(context, 2)?;
        let (mut home, mut other) = (cluster.sharer(0)?, cluster.sharer(1)?);
        let rounds = context.pick(15, 3);
        let (zero_fill, protection) = local_faults(context, &mut home, rounds)?;
        let cycle = hotspot_cycle(context, &cluster, &mut home, &mut other)?;
        let network = cluster.network().words();
        drop((home, other, cluster));
        let sizes = page_sizes(context, rounds)?;
        let mut field = Field::start(context)?;
        let central = free_runs(context, &mut field, Strict::Central)?;
        let forwarding = free_runs(context, &mut field, Strict::Forwarding)?;
        let none: Option<f64> = None;
        let table = [
            ("Zero-fill fault", zero_fill, "ms/fault", json!(1.5)),
            ("Protection fault", protection, "ms/fault", json!(1.1)),
            ("Hotspot cycle, processor time of the hosts", cycle.host_ms, "ms/cycle", json!(4.2)),
            ("Hotspot cycle, elapsed", cycle.elapsed_ms, "ms/cycle", json!(none)),
            ("Multiple page size overhead, 4 to 32 KiB", sizes.overhead_ms, "ms/fault", json!(0.2)),
            ("Remote messages, centralized hotspot", central.messages, "a fault", json!(5.0)),
            ("Remote messages, distributed hotspot", forwarding.messages, "a fault", json!(2.0)),
            (
                "Remote acknowledgements, centralized hotspot",
                central.acknowledgements,
                "a fault",
                json!(none),
            ),
            (
                "Remote acknowledgements, distributed hotspot",
                forwarding.acknowledgements,
                "a fault",
                json!(none),
            ),
            ("Forwarded faults", forwarding.forwarded_percent, "%", json!(10)),
            ("System time", cycle.system_percent, "%", json!(93)),
        ];
        let rows = table.map(|(parameter, ours, unit, published)| {
            json!({"parameter": parameter, "measured": ours, "unit": unit, "published": published})
        });
        let detail = json!({
            "table": rows,
            "zero_fill_fault": "first write of a page that nobody has touched, by a process of its home; p50",
            "protection_fault": "first write of a page that the process has read; p50",
            "hotspot_cycle": "two hosts add to one word as fast as they can, minimum hold 0: time by \
                              hand-overs of the page. The paper's is of one server, and its network took 98 % of the elapsed time besides",
            "messages": format!("{PARTIES:?} hosts add to one word as fast as they can, without cycles; by the times that one \
                                 of them gets the page, the mean. Two more a fault under forwarding are local in the paper"),
            "multiple_page_sizes": "a host with pages of 32 KiB reads one that its home wrote: p50 of an object in pages of \
                                    4 KiB, eight of which are collected and sent at once, less that of one in pages of 32 KiB",
            "milliseconds": "the paper's machine is an IBM RT of 1986: that a fault takes less today is no conclusion of its",
            "network": network,
        });
        let judged = conclude(&Costs { zero_fill, protection, cycle, sizes, central, forwarding });
        conclusions::measured(&judged, rounds, detail)
    }

    fn page(&self, detail: &Value) -> String {
        let columns = ["parameter", "measured", "unit", "published"];
        let rows = detail["table"].as_array().into_iter().flatten();
        let rows: Vec<Vec<String>> =
            rows.map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
        let mut text = format!("\n{}{}\n", markdown(&columns, &rows), conclusions::list(detail));
        for what in [
            "zero_fill_fault",
            "protection_fault",
            "hotspot_cycle",
            "multiple_page_sizes",
            "messages",
            "milliseconds",
        ] {
            text.push_str(&format!("- {}: {}.\n", what.replace('_', " "), cell(&detail[what])));
        }
        text
    }
}

/// Milliseconds of a fault on a page without a frame, and of one on a page that may be read only.
fn local_faults(context: &Context, home: &mut Sharer, rounds: usize) -> Result<(f64, f64)> {
    let (mut zero_fill, mut protection) = (Vec::new(), Vec::new());
    let mut random = context.random(1);
    for round in 0..rounds {
        let name = format!("/bench/table1-{round}");
        home.create(&name, PAGES * PAGE, None)?;
        let mut fresh = FreshPages::new(PAGES, &mut random);
        let (written, read) = (fresh.take(PAGES / 8), fresh.take(PAGES / 8));
        zero_fill.push(median(&home.touch(Touch::Write, None, &written)?));
        home.touch(Touch::Read, None, &read)?;
        protection.push(median(&home.touch(Touch::Write, None, &read)?));
        home.close()?;
        home.remove(&name)?;
    }
    Ok((rounded(median(&zero_fill) * 1e-6), rounded(median(&protection) * 1e-6)))
}

/// What a fault costs a host with larger pages, in milliseconds.
struct PageSizes {
    one_ms: f64,
    overhead_ms: f64,
}

/// The same bytes for the same touch, as eight pages of the scheduler's and as one. The paper's ratio.
fn page_sizes(context: &Context, rounds: usize) -> Result<PageSizes> {
    const LARGE: usize = 8 * PAGE;
    let cluster = Cluster::of_page_sizes(context, &[PAGE as u64, LARGE as u64])?;
    let (mut home, mut other) = (cluster.sharer(0)?, cluster.sharer(1)?);
    let mut random = context.random(2);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (which, page) in [PAGE, LARGE].into_iter().enumerate() {
            let name = format!("/bench/sizes-{round}-{page}");
            home.create_in_pages(&name, PAGES * PAGE, page as u64)?;
            home.write_all()?;
            other.open(&name)?;
            let large = FreshPages::new(PAGES / 8, &mut random).take(PAGES / 8);
            let pages: Vec<u32> = large.iter().map(|page| page * 8).collect();
            times[which].push(median(&other.touch(Touch::Read, None, &pages)?));
            other.close()?;
            home.close()?;
            home.remove(&name)?;
        }
    }
    let [eight, one] = times.map(|times| median(&times) * 1e-6);
    Ok(PageSizes { one_ms: rounded(one), overhead_ms: rounded(eight - one) })
}

/// What a hand-over of one page costs.
struct Cycle {
    elapsed_ms: f64,
    host_ms: f64,
    system_percent: f64,
}

fn hotspot_cycle(
    context: &Context,
    cluster: &Cluster,
    home: &mut Sharer,
    other: &mut Sharer,
) -> Result<Cycle> {
    home.create("/bench/hotspot", PAGE, Some(Duration::ZERO))?;
    other.open("/bench/hotspot")?;
    // The host, not its keeper: that is the paper's server.
    let hosts: Vec<u32> =
        cluster.hosts().iter().map(|host| Ok(host.processes()?[0])).collect::<Result<_>>()?;
    let cost = || hosts.iter().map(|pid| processor_time(*pid)).sum::<Result<Duration>>();
    let kinds = || -> Result<[f64; 2]> {
        let times = hosts.iter().map(|pid| user_and_system(*pid)).collect::<Result<Vec<_>>>()?;
        Ok(times.iter().fold([0.0; 2], |sum, (user, system)| {
            [sum[0] + user.as_secs_f64(), sum[1] + system.as_secs_f64()]
        }))
    };
    let (cost_before, kinds_before) = (cost()?, kinds()?);
    let time = Duration::from_secs(context.pick(10, 2));
    home.begin_adding(time)?;
    other.begin_adding(time)?;
    let both = [home.added()?, other.added()?];
    let cycles = both.iter().map(|one| one.came).sum::<u64>() as f64;
    if cycles < 10.0 {
        return failed("the word stayed with one host");
    }
    let (used, kinds) = (cost()?.saturating_sub(cost_before), kinds()?);
    let [user, system] = [kinds[0] - kinds_before[0], kinds[1] - kinds_before[1]];
    Ok(Cycle {
        elapsed_ms: rounded(both[0].seconds * 1e3 / cycles),
        host_ms: rounded(used.as_secs_f64() * 1e3 / cycles),
        system_percent: rounded(100.0 * system / (user + system)),
    })
}

/// What free-running hosts cost, means over their numbers.
struct FreeRuns {
    messages: f64,
    acknowledgements: f64,
    forwarded_percent: f64,
}

fn free_runs(context: &Context, field: &mut Field, strict: Strict) -> Result<FreeRuns> {
    let time = Duration::from_millis(context.pick(5000, 1000));
    let each = PARTIES.map(|hosts| field.game(strict, hosts, None)?.free(time));
    let each = each.into_iter().collect::<Result<Vec<Free>>>()?;
    let mean = |of: fn(&Free) -> f64| rounded(each.iter().map(of).sum::<f64>() / each.len() as f64);
    Ok(FreeRuns {
        messages: mean(|free| free.messages),
        acknowledgements: mean(|free| free.acknowledgements),
        forwarded_percent: mean(|free| 100.0 * free.forwarded),
    })
}

/// All that was measured.
struct Costs {
    zero_fill: f64,
    protection: f64,
    cycle: Cycle,
    sizes: PageSizes,
    central: FreeRuns,
    forwarding: FreeRuns,
}

/// What the paper says that does not depend on how fast its machines were.
fn conclude(costs: &Costs) -> Vec<Conclusion> {
    let (central, forwarding) = (costs.central.messages, costs.forwarding.messages);
    let led_on = "free-running hosts ask while the page is on its way, so a request is led from host to host: docs/PROTOCOL.md";
    vec![
        Conclusion::new(
            "a centralized hotspot takes at least 4 remote messages a fault, and 5 with its scheduler",
            "messages a fault, free-running",
            central,
            Bar::Between(3.9, 5.0),
        ),
        Conclusion::new("a distributed hotspot takes 2.0 remote messages a fault", "messages a fault, free-running", forwarding, Bar::AtMost(2.05))
            .unless(led_on),
        Conclusion::new(
            "the distributed algorithm is more efficient than the centralized one",
            "its messages a fault ÷ the centralized ones, free-running",
            forwarding / central,
            Bar::AtMost(0.95),
        ),
        Conclusion::new("10 % of the requests are forwarded", "percent", costs.forwarding.forwarded_percent, Bar::AtMost(15.0))
            .unless(led_on),
        Conclusion::new(
            "a protection fault costs less than a zero-fill fault",
            "protection ÷ zero-fill",
            costs.protection / costs.zero_fill,
            Bar::AtMost(0.95),
        ),
        Conclusion::new(
            "pages of eight times the size add no more than 0.2 of 1.5 ms to a fault",
            named("overhead ÷ a fault of one page", &[("ms of one", costs.sizes.one_ms)]),
            costs.sizes.overhead_ms / costs.sizes.one_ms,
            Bar::AtMost(0.14),
        )
        .unless("eight pages are looked up, taken and installed one by one"),
        Conclusion::new("system time is by far the dominant factor", "percent", costs.cycle.system_percent, Bar::AtLeast(80.0))
            .unless("the hosts' own code, with encryption, is most of it: the paper's work was messages of its kernel"),
        Conclusion::new(
            "the network takes 98 % of the time that a hotspot's cycle takes",
            "percent of the elapsed time in which no host works",
            100.0 * (1.0 - costs.cycle.host_ms / costs.cycle.elapsed_ms),
            Bar::AtLeast(90.0),
        )
        .unless("the network is a pair of devices within one machine"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let runs =
            |messages, forwarded_percent| FreeRuns { messages, acknowledgements: 0.0, forwarded_percent };
        let mut costs = Costs {
            zero_fill: 1.5,
            protection: 1.1,
            cycle: Cycle { elapsed_ms: 210.0, host_ms: 4.2, system_percent: 93.0 },
            sizes: PageSizes { one_ms: 1.5, overhead_ms: 0.2 },
            central: runs(5.0, 0.0),
            forwarding: runs(2.0, 10.0),
        };
        let value = |costs: &Costs| conclusions::measured(&conclude(costs), 1, json!({})).unwrap().value;
        assert_eq!(value(&costs), 8.0);
        costs.forwarding = runs(4.9, 78.0);
        costs.zero_fill = 1.0;
        assert_eq!(value(&costs), 4.0);
    }
}
