//! `mach.table1`: Table 1 of Forin et al., "costs of the server".

use crate::cluster::hotspot::{Field, HOLD};
use crate::cluster::{Cluster, Sharer};
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::faults::{FreshPages, Touch};
use crate::measure::median;
use crate::processes::{processor_time, user_and_system};
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use crate::view::PAGE;
use commonhold_simulator::measure::{HasPage, Strict, hotspot};
use serde_json::{Value, json};
use std::time::Duration;

const PAGES: usize = 4096;
/// Hosts that take part in the cycles whose messages are counted.
const PARTIES: std::ops::RangeInclusive<usize> = 2..=8;

/// The row.
pub struct MachTable1;

impl Row for MachTable1 {
    fn id(&self) -> &'static str {
        "mach.table1"
    }

    fn unit(&self) -> &'static str {
        "of the paper's eight costs, not above them"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Table 1 of Forin et al., costs of the server: faults of one machine and of a hotspot between real \
         hosts, messages of simulated ones (of real ones: rows hotspot.*)"
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
        let central = remote_messages(context, Strict::Central);
        let forwarding = remote_messages(context, Strict::Forwarding);
        let forwarded = forwarded_percent(context)?;
        let none: Option<f64> = None;
        let table = [
            ("Zero-fill fault", json!(zero_fill), "ms/fault", json!(1.5), "real hosts"),
            ("Protection fault", json!(protection), "ms/fault", json!(1.1), "real hosts"),
            (
                "Hotspot cycle",
                json!(cycle.host_ms),
                "ms/cycle",
                json!(4.2),
                "real hosts: their processor time",
            ),
            ("Hotspot cycle, elapsed", json!(cycle.elapsed_ms), "ms/cycle", json!(none), "real hosts"),
            (
                "Multiple page size overhead",
                json!(sizes.overhead_ms),
                "ms/fault",
                json!(0.2),
                "real hosts, pages of 4 KiB of the scheduler's to 32 KiB of a host's",
            ),
            (
                "Remote messages, centralized hotspot",
                json!(central),
                "a fault",
                json!(5.0),
                "simulated hosts",
            ),
            (
                "Remote messages, distributed hotspot",
                json!(forwarding),
                "a fault",
                json!(2.0),
                "simulated hosts",
            ),
            ("Forwarded faults", json!(forwarded), "%", json!(10), "real hosts, free-running"),
            ("System time", json!(cycle.system_percent), "%", json!(93), "real hosts, in the hotspot"),
        ];
        let not_above = |(ours, published): (Option<f64>, Option<f64>)| {
            ours.zip(published).is_some_and(|(ours, published)| ours <= published)
        };
        let reproduced = table.iter().filter(|line| not_above((line.1.as_f64(), line.3.as_f64()))).count();
        let rows = table.map(|(parameter, ours, unit, published, of)| {
            json!({"parameter": parameter, "measured": ours, "unit": unit, "published": published, "of": of})
        });
        let detail = json!({
            "table": rows,
            "zero_fill_fault": "first write of a page that nobody has touched, by a process of its home; p50",
            "protection_fault": "first write of a page that the process has read; p50",
            "hotspot_cycle": "two hosts add to one word as fast as they can, minimum hold 0: time by \
                              hand-overs of the page. The paper's is of one server, and its network took 98 % of the elapsed time besides",
            "messages": "cycles of 2 to 8 hosts, the mean; the paper's 4.1 of the distributed case counts local ones too",
            "multiple_page_sizes": "a host with pages of 32 KiB reads one that its home wrote: p50 of an object in pages of \
                                    4 KiB, eight of which are collected and sent at once, less that of one in pages of 32 KiB",
            "fault_of_8_pages_ms": sizes.eight_ms,
            "fault_of_1_page_ms": sizes.one_ms,
            "forwarded_faults": "four hosts write one word by forwarding as fast as they can: requests that were sent on, of \
                                 all by which the page was got",
            "network": network,
        });
        Ok(Measured::single(reproduced as f64, rounds, detail))
    }

    fn page(&self, detail: &Value) -> String {
        let columns = ["parameter", "measured", "unit", "published", "of"];
        let rows = detail["table"].as_array().into_iter().flatten();
        let rows: Vec<Vec<String>> =
            rows.map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
        let mut text = format!("\n{}\n", markdown(&columns, &rows));
        for what in [
            "zero_fill_fault",
            "protection_fault",
            "hotspot_cycle",
            "multiple_page_sizes",
            "messages",
            "forwarded_faults",
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
    eight_ms: f64,
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
    Ok(PageSizes { eight_ms: rounded(eight), one_ms: rounded(one), overhead_ms: rounded(eight - one) })
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

/// How many of the hand-overs of a hotspot came by a host that was no owner any more, in percent.
fn forwarded_percent(context: &Context) -> Result<f64> {
    let mut field = Field::start(context)?;
    let mut game = field.game(Strict::Forwarding, 4, Some(HOLD))?;
    let before = game.forwarded()?;
    let free = game.free(Duration::from_millis(context.pick(5000, 1000)))?;
    if free.in_all == 0 {
        return failed("the word stayed with one host");
    }
    Ok(rounded(100.0 * (game.forwarded()? - before) as f64 / free.in_all as f64))
}

/// The mean over the numbers of hosts, counted as in the rows `hotspot.*`.
fn remote_messages(context: &Context, strict: Strict) -> f64 {
    let cycles = context.pick(200, 20);
    let each = PARTIES.map(|hosts| match strict {
        Strict::Central => {
            let late = hotspot(strict, hosts, cycles, None, HasPage::Late).later;
            late.messages as f64 / late.faults as f64
        }
        Strict::Forwarding => {
            let local = hotspot(strict, hosts, cycles, None, HasPage::Local).later;
            local.messages as f64 / (hosts * cycles) as f64
        }
    });
    rounded(each.sum::<f64>() / PARTIES.count() as f64)
}
