//! `rebase.memory`: what all programs together take of the machine, with copies and without.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::processes::kill_group;
use crate::rebase::memory::{Footprint, family, footprint};
use crate::rebase::{Program, Rebased, waiting};
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The row.
pub struct Memory;

impl Row for Memory {
    fn id(&self) -> &'static str {
        "rebase.memory"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.0))
    }

    fn about(&self) -> &'static str {
        "memory of all programs at once, with copies ÷ without: the sum of their shares (Pss), or their own pages and the \
         page cache of all files that they map, whichever is worse"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let programs = waiting(context)?;
        let rebased = Rebased::new(context, &programs.iter().collect::<Vec<_>>())?;
        let mut ratios = Vec::new();
        let mut rounds = Vec::new();
        for _ in 0..context.pick(5, 1) {
            let stock = together(&rebased, &programs, false)?;
            let ours = together(&rebased, &programs, true)?;
            let shares = ours.pss_kib as f64 / stock.pss_kib as f64;
            let frames = ours.frames_kib() as f64 / stock.frames_kib() as f64;
            ratios.push(shares.max(frames));
            rounds.push(json!({
                "pss_kib": { "commonhold": ours.pss_kib, "stock": stock.pss_kib },
                "own_kib": { "commonhold": ours.own_kib, "stock": stock.own_kib },
                "page_cache_kib": { "commonhold": ours.cached_kib, "stock": stock.cached_kib },
                "page_tables_kib": { "commonhold": ours.tables_kib, "stock": stock.tables_kib },
                "processes": { "commonhold": ours.processes, "stock": stock.processes },
                "ratio_of_shares": rounded(shares),
                "ratio_of_frames": rounded(frames),
            }));
        }
        let names: Vec<_> = programs.iter().map(|program| &program.path).collect();
        let (min, max) = (crate::measure::least(&ratios), crate::measure::most(&ratios));
        let value = crate::measure::median(&ratios);
        Ok(Measured {
            value,
            runs: ratios.len(),
            min,
            max,
            detail: json!({ "programs": names, "rounds": rounds }),
        })
    }
}

/// Programs that run, ended with this.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            kill_group(child.id());
            let _ = child.wait();
        }
    }
}

/// What all of them take once they wait.
fn together(rebased: &Rebased, programs: &[Program], with_copies: bool) -> Result<Footprint> {
    let mut running = Running(Vec::new());
    for program in programs {
        // Standard input stays open, so they wait for it.
        let mut command = rebased.command(program, with_copies);
        running.0.push(command.stdin(Stdio::piped()).process_group(0).spawn()?);
    }
    let leaders: Vec<u32> = running.0.iter().map(Child::id).collect();
    let all = || leaders.iter().flat_map(|leader| family(*leader)).collect::<Vec<u32>>();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut last, mut same) = (0, 0);
    // Three seconds without a new process and hardly any new page.
    while same < 6 {
        if Instant::now() > deadline {
            return failed("the programs do not come to rest within a minute");
        }
        std::thread::sleep(Duration::from_millis(500));
        let now = footprint(&all()).pss_kib;
        same = if now.abs_diff(last) < 1024 { same + 1 } else { 0 };
        last = now;
    }
    let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
    if let Some(ended) = running.0.iter_mut().position(has_ended) {
        return failed(format!("{} did not wait", programs[ended].path.display()));
    }
    Ok(footprint(&all()))
}
