//! `rebase.memory`: what all programs together take of the machine, with copies and without.

use crate::context::Context;
use crate::failure::{Doing, Result, failed};
use crate::measure::some;
use crate::processes::kill_group;
use crate::rebase::memory::{Footprint, family, footprint, forget};
use crate::rebase::programs::waiting;
use crate::rebase::server::Server;
use crate::rebase::watch::copies;
use crate::rebase::{Program, Rebased};
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// For programs to come to rest, on a machine that may have much else to do.
const PATIENCE: Duration = Duration::from_secs(300);

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
        "memory of all programs at once, with copies ÷ without: the sum of their shares (Pss), or their own pages, their page \
         tables and the page cache of all files that they map and of the originals that others keep beside copies, whichever \
         is worse"
    }

    fn limit(&self) -> Duration {
        crate::row::LONGEST
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (programs, server) = waiting(context)?;
        let all: Vec<&Program> = server.iter().map(|server| &server.program).chain(&programs).collect();
        let rebased = Rebased::new(context, &all)?;
        let expected = all.iter().map(|program| rebased.expected(program)).collect::<Result<Vec<_>>>()?;
        let mut together = Together { rebased, programs, server, expected, files: BTreeSet::new() };
        // The first of each side is for the files that it maps: what is built or read is in the page cache until then.
        together.start(false)?;
        together.start(true)?;
        let mut ratios = Vec::new();
        let mut rounds = Vec::new();
        for round in 0..context.pick(5, 1) {
            let (stock, ours) = if round % 2 == 0 {
                let stock = together.afresh(false)?;
                (stock, together.afresh(true)?)
            } else {
                let ours = together.afresh(true)?;
                (together.afresh(false)?, ours)
            };
            some(ours.pss_kib.min(stock.pss_kib) as f64, "memory of the programs")?;
            let shares = ours.pss_kib as f64 / stock.pss_kib as f64;
            let frames = ours.frames_kib() as f64 / stock.frames_kib() as f64;
            ratios.push(shares.max(frames));
            rounds.push(json!({
                "pss_kib": { "commonhold": ours.pss_kib, "stock": stock.pss_kib },
                "own_kib": { "commonhold": ours.own_kib, "stock": stock.own_kib },
                "page_cache_kib": { "commonhold": ours.cached_kib, "stock": stock.cached_kib },
                "other_sides_files_that_others_keep_kib": {
                    "commonhold": ours.kept_kib, "stock": stock.kept_kib,
                },
                "page_tables_kib": { "commonhold": ours.tables_kib, "stock": stock.tables_kib },
                "processes": { "commonhold": ours.processes, "stock": stock.processes },
                "ratio_of_shares": rounded(shares),
                "ratio_of_frames": rounded(frames),
            }));
        }
        let detail = json!({
            "programs_and_their_copies": together.names(),
            "files_of_both_sides": together.files.len(),
            "rounds": rounds,
        });
        Ok(Measured::median(&ratios, detail))
    }
}

/// Programs that run, ended with this; the server last, if there is one, which is the first of them.
struct Running {
    children: Vec<Child>,
    has_server: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        let others = usize::from(self.has_server).min(self.children.len());
        for child in &mut self.children[others..] {
            kill_group(child.id());
            let _ = child.wait();
        }
        for server in &mut self.children[..others] {
            Server::stop(server);
            kill_group(server.id());
            let _ = server.wait();
        }
    }
}

/// All of them, and what they need.
struct Together {
    rebased: Rebased,
    programs: Vec<Program>,
    server: Option<Server>,
    /// How many copies each has, the server first.
    expected: Vec<usize>,
    /// All files that any of them was seen to map, on either side: originals, copies, and what both share.
    files: BTreeSet<PathBuf>,
}

impl Together {
    fn all(&self) -> impl Iterator<Item = &Program> {
        self.server.iter().map(|server| &server.program).chain(&self.programs)
    }

    fn names(&self) -> Vec<Value> {
        let all = self.all().zip(&self.expected);
        all.map(|(program, copies)| json!(format!("{}: {copies}", program.path.display()))).collect()
    }

    /// What all of them take once they wait, and nothing of their files was there before but what others have mapped.
    fn afresh(&mut self, with_copies: bool) -> Result<Footprint> {
        let kept = forget(&self.files);
        let (mut footprint, mapped) = self.start(with_copies)?;
        let others = kept.iter().filter(|(path, _)| !mapped.contains(*path));
        footprint.kept_kib = others.map(|(_, kib)| kib).sum();
        Ok(footprint)
    }

    fn start(&mut self, with_copies: bool) -> Result<(Footprint, BTreeSet<PathBuf>)> {
        let mut running = Running { children: Vec::new(), has_server: self.server.is_some() };
        for (place, program) in self.all().enumerate() {
            let mut command = self.rebased.command(program, with_copies);
            // Standard input stays open, so they wait for it.
            let child = command.stdin(Stdio::piped()).process_group(0).spawn();
            running.children.push(child.doing(format!("starting {}", program.path.display()))?);
            if let Some(server) = self.server.as_ref().filter(|_| place == 0) {
                server.wait(&mut running.children[0])?;
            }
        }
        let leaders: Vec<u32> = running.children.iter().map(Child::id).collect();
        let all = || leaders.iter().flat_map(|leader| family(*leader)).collect::<Vec<u32>>();
        let deadline = Instant::now() + PATIENCE;
        let (mut last, mut same) = (Footprint::default(), 0);
        // Three seconds without a new process and hardly any new page.
        while same < 6 {
            if Instant::now() > deadline {
                return failed("the programs do not come to rest within five minutes");
            }
            std::thread::sleep(Duration::from_millis(500));
            // Their shares change with whatever else the machine starts: pages of their own do not.
            let (now, _) = footprint(&all());
            let is_same = now.processes == last.processes && now.own_kib.abs_diff(last.own_kib) < 1024;
            same = if is_same { same + 1 } else { 0 };
            last = now;
        }
        self.look(&mut running.children, with_copies)?;
        let (footprint, mapped) = footprint(&all());
        self.files.extend(mapped.iter().cloned());
        Ok((footprint, mapped))
    }

    /// All of them run, with all of their copies or with none.
    fn look(&self, children: &mut [Child], with_copies: bool) -> Result<()> {
        for ((child, program), expected) in children.iter_mut().zip(self.all()).zip(&self.expected) {
            let name = program.path.display();
            if child.try_wait()?.is_some() {
                return failed(format!("{name} did not wait"));
            }
            let (mapped, wanted) =
                (copies(&self.rebased.store, child.id())?.len(), if with_copies { *expected } else { 0 });
            if mapped != wanted {
                return failed(format!("{name} has {mapped} copies mapped where {wanted} should be"));
            }
        }
        Ok(())
    }
}
