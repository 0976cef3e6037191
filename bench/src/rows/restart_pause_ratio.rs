//! `restart.pause_ratio`: how long a process of a home is held up when the home's host is killed,
//! with much memory and with little.

use crate::cluster::Cluster;
use crate::context::{Context, GIB};
use crate::failure::{Result, failed};
use crate::measure::{Pairs, alternate, least, median, most};
use crate::processes;
use crate::row::{Bar, Measured, Row, rounded};
use crate::worker::Worker;
use commonhold_sys::process;
use serde_json::json;
use std::cell::RefCell;
use std::time::{Duration, Instant};

const NAME: &str = "/bench/restarted";
const MIB: usize = 1 << 20;
/// The bar of the ratio.
const RATIO: f64 = 1.5;
/// What the pause with much memory must not be longer than: 112 ms, as it was with 128 MiB, and a
/// fifth.
const LONGEST_MS: f64 = 134.0;
/// A pause that is shorter counts as that: a ratio of shorter ones would be the machine's, not the
/// host's.
const LEAST_MS: f64 = 1.0;
/// A host that is killed sooner after its start is followed later by the next.
const OLD_ENOUGH: Duration = Duration::from_millis(10_500);
/// Touched before the kill, and after it.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_millis(4000);
/// How long a host may take to be followed by the next.
const DEADLINE: Duration = Duration::from_secs(30);
/// Pages that nobody has touched: a touch each 2 ms, of all watches.
const FRESH: usize = GIB;

/// The row.
pub struct RestartPauseRatio;

impl Row for RestartPauseRatio {
    fn id(&self) -> &'static str {
        "restart.pause_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(RATIO))
    }

    fn about(&self) -> &'static str {
        "the longest pause of a process of a strict home that touches resident pages at random, around the kill of the home's \
         host, with 4 GiB resident ÷ with 128 MiB (medians); or 1.5 × that with 4 GiB ÷ 134 ms, if this is more"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let sizes = [context.pick(4 * GIB, 128 * MIB), context.pick(128 * MIB, 16 * MIB)];
        let rounds = context.trials.unwrap_or(context.pick(9, 2)) as usize;
        let [large, small] = sizes.map(|bytes| Home::start(context, bytes).map(RefCell::new));
        let (large, small) = (large?, small?);
        let quiet = |home: &RefCell<Home>| home.borrow_mut().watch(false, 0).map(|seen| seen.pause_ms);
        let noise = alternate(rounds.div_ceil(3), |_| quiet(&large), |_| quiet(&small))?;
        let pauses = alternate(
            rounds,
            |round| large.borrow_mut().killed(round as u64),
            |round| small.borrow_mut().killed(round as u64),
        )?;
        let homes = [large.into_inner(), small.into_inner()];
        Ok(measured(&pauses, &noise, &homes))
    }
}

fn measured(pauses: &Pairs, noise: &Pairs, homes: &[Home; 2]) -> Measured {
    let (large, small) = (median(&pauses.ours), median(&pauses.theirs));
    let (ratio, against_limit) = (large / small, RATIO * large / LONGEST_MS);
    let value = ratio.max(against_limit);
    let faults = median(&homes[0].faults);
    let side = |home: &Home, pauses: &[f64], noise: &[f64]| {
        json!({
            "resident_mib": home.bytes / MIB,
            "pause_ms": {"median": rounded(median(pauses)), "least": rounded(least(pauses)), "most": rounded(most(pauses))},
            "without_a_kill_ms": {"median": rounded(median(noise)), "most": rounded(most(noise))},
            "touch_that_needs_the_host_ms": {
                "median": rounded(median(&home.faults)), "most": rounded(most(&home.faults)),
            },
            "also_without_the_processor_ms": {
                "median": rounded(median(&home.gaps)), "most": rounded(most(&home.gaps)),
            },
            "touches_in_all": home.touches,
        })
    };
    let detail = json!({
        "large": side(&homes[0], &pauses.ours, &noise.ours),
        "small": side(&homes[1], &pauses.theirs, &noise.theirs),
        "ratio_of_pauses": rounded(ratio),
        "longest_pause_allowed_ms": LONGEST_MS,
        "pause_is_short_enough": large <= LONGEST_MS,
        "value_is": if ratio >= against_limit { "the ratio" } else { "1.5 × the longer pause ÷ the longest that is allowed" },
        "shorter_pauses_count_as_ms": LEAST_MS,
        "what": "a pause is a time between two touches in which the thread waited for something; that another program had its \
                 processor is told beside it",
        "ratio_of_touches_that_need_the_host": rounded(faults / median(&homes[1].faults)),
        "value_if_these_counted": rounded((faults / median(&homes[1].faults)).max(RATIO * faults / LONGEST_MS)),
    });
    let ratios = pauses.ratios();
    Measured { min: least(&ratios), max: most(&ratios), ..Measured::single(value, ratios.len(), detail) }
}

/// A home with an object, and the process that touches its pages.
struct Home {
    bytes: usize,
    toucher: Worker,
    cluster: Cluster,
    /// When its host was started last.
    started: Instant,
    /// Milliseconds of the longest touch that needed the host, at each kill.
    faults: Vec<f64>,
    /// Milliseconds of the longest time between two touches, whatever for, at each kill.
    gaps: Vec<f64>,
    touches: u64,
}

struct Seen {
    pause_ms: f64,
    gap_ms: f64,
    fault_ms: f64,
}

impl Home {
    fn start(context: &Context, bytes: usize) -> Result<Home> {
        let budget = (bytes + 2 * FRESH).to_string();
        let cluster = Cluster::start_with_words(context, 2, None, &["--budget", &budget])?;
        let state = cluster.host(0).state().to_string_lossy().into_owned();
        let arguments = [state, NAME.to_owned(), bytes.to_string(), FRESH.to_string()];
        let toucher = cluster.network().at(0, || Worker::start("gap-watcher", &arguments))?;
        Ok(Home {
            bytes,
            toucher,
            cluster,
            started: Instant::now(),
            faults: Vec::new(),
            gaps: Vec::new(),
            touches: 0,
        })
    }

    /// Milliseconds of the longest pause around a kill.
    fn killed(&mut self, seed: u64) -> Result<f64> {
        std::thread::sleep(OLD_ENOUGH.saturating_sub(self.started.elapsed()));
        let seen = self.watch(true, seed)?;
        self.faults.push(seen.fault_ms);
        self.gaps.push(seen.gap_ms);
        Ok(seen.pause_ms)
    }

    fn watch(&mut self, kill: bool, seed: u64) -> Result<Seen> {
        let [host, _] = self.cluster.host(0).processes()?;
        let host = process::identity(host)?;
        self.toucher.tell(&format!("{} {seed}", (BEFORE + AFTER).as_millis()))?;
        self.toucher.expect("begun")?;
        std::thread::sleep(BEFORE);
        if kill {
            processes::kill(host);
        }
        let line = self.toucher.line()?;
        let numbers: std::result::Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let Ok([touches, pause, gap, faults, fault]) = numbers.as_deref() else {
            return failed(format!("a process that touches pages said `{line}`"));
        };
        if *touches < 1000 || *faults < 2 {
            return failed(format!("too little was touched to tell: `{line}`"));
        }
        self.touches += touches;
        if kill {
            self.wait_for_another(host.pid)?;
        }
        let in_ms = |nanoseconds: &u64| *nanoseconds as f64 / 1e6;
        Ok(Seen { pause_ms: in_ms(pause).max(LEAST_MS), gap_ms: in_ms(gap), fault_ms: in_ms(fault) })
    }

    fn wait_for_another(&mut self, before: u32) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while self.cluster.host(0).processes().is_ok_and(|[host, _]| host == before) {
            if Instant::now() > deadline {
                return failed("no host follows the one that was killed");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.started = Instant::now();
        Ok(())
    }
}
