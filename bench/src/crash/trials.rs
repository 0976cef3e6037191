//! `crash-trials`: goes through the trials of a segment, and judges each.
//!
//! A trial: the writers are at work; at the planned instant the victims die (SIGKILL); every other writer must
//! go on within the deadline; then all hold still, and what is stored, what is in memory and what `incore`
//! says are compared with the ledger; then whoever died is replaced.

use super::environment::{DEADLINE, Environment};
use super::ledger::WRITERS;
use super::pattern;
use super::plan::{Plan, Scene, Victim};
use super::tally::Tally;
use super::verify::{self, Finding};
use crate::context::Random;
use crate::failure::{Result, failed};
use crate::host::BenchHost;
use crate::processes::{self, kill};
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::Host;
use commonhold_sys::process::{self, Identity};
use rand::{RngExt, SeedableRng};
use serde_json::json;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Pages of an anonymous object that are looked at after each trial; after the last one all are.
const SAMPLE: usize = 512;

/// Arguments: state directory, folder, seed, first trial, number of trials, segment.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, directory, seed, first, count, segment] = arguments else {
        return failed("crash-trials takes six arguments");
    };
    let (seed, first, count): (u64, u64, u64) = (seed.parse()?, first.parse()?, count.parse()?);
    let scene = Scene::of_segment(segment.parse()?);
    let mut judge = Judge {
        environment: Environment::create(scene, Path::new(state), Path::new(directory), seed ^ first)?,
        tally: Tally::default(),
    };
    for trial in first..first + count {
        let plan = Plan::new(seed, trial);
        let said = format!("{scene:?}, {plan:?}");
        worker::say(
            &json!({ "begins": trial, "victim": plan.victim.to_string(), "plan": said }).to_string(),
        )?;
        judge.tally = Tally::default();
        let recovery = judge.trial(plan, trial + 1 == first + count)?;
        let errors = judge.environment.ledger.sync_errors();
        let ended = json!({
            "ended": trial,
            "tally": judge.tally.to_json(),
            "recovery_ms": recovery.map(|time| time.as_secs_f64() * 1e3),
            "sync_errors": errors,
        });
        worker::say(&ended.to_string())?;
        if judge.tally.hung > 0 {
            // Whoever hangs cannot go through another trial: the rest of the segment is begun anew.
            break;
        }
    }
    Ok(())
}

struct Judge {
    environment: Environment,
    tally: Tally,
}

impl Judge {
    /// One trial; gives how long it took until everybody was at work again, or `None` if they did not.
    fn trial(&mut self, plan: Plan, last: bool) -> Result<Option<Duration>> {
        let wrong_before = self.environment.ledger.wrong();
        let status = Host::connect_to(&self.environment.state)?.status()?;
        let host = process::identity(status.host_pid);
        let keeper = process::identity(status.keeper_pid);
        std::thread::sleep(plan.delay);
        let start = Instant::now();
        self.strike(plan, &[host, keeper].into_iter().flatten().collect::<Vec<_>>());
        let dead = (plan.victim == Victim::Client).then_some(plan.writer);
        if !self.goes_on(dead)? {
            return Ok(None);
        }
        let recovery = start.elapsed();
        if !self.hold_still(dead)? {
            return Ok(None);
        }
        self.count(Finding::Torn, self.environment.ledger.wrong() - wrong_before);
        match self.environment.scene {
            Scene::Anonymous => self.check_anonymous(last)?,
            Scene::Atomic | Scene::AtomicSmallBudget => self.check_atomic()?,
        }
        self.replace_the_dead(dead)?;
        self.environment.ledger.ask_pause(false);
        Ok(Some(recovery))
    }

    /// Kills whom the plan names. `service` is host and keeper, in this order.
    fn strike(&mut self, plan: Plan, service: &[Identity]) {
        match plan.victim {
            Victim::Client => self.environment.writers[plan.writer].kill(),
            Victim::Host => service.iter().take(1).for_each(|who| kill(*who)),
            Victim::Keeper => service.iter().skip(1).for_each(|who| kill(*who)),
            Victim::Both => service.iter().for_each(|who| kill(*who)),
        }
        let Some(again) = plan.again else { return };
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            let now = processes::of_directory(&self.environment.state);
            if let Some(successor) = now.into_iter().find(|who| !service.contains(who)) {
                std::thread::sleep(again);
                return kill(successor);
            }
        }
    }

    /// Waits until every writer that lives has finished two more operations: the first may have been nearly
    /// done when the death came.
    fn goes_on(&mut self, dead: Option<usize>) -> Result<bool> {
        let before: Vec<u64> = (0..WRITERS).map(|writer| self.environment.ledger.progress(writer)).collect();
        let wanted = |judge: &Judge, n: usize| judge.environment.ledger.progress(n) >= before[n] + 2;
        self.wait(dead, "go on", wanted)
    }

    /// Asks all writers to hold still, and waits until they do.
    fn hold_still(&mut self, dead: Option<usize>) -> Result<bool> {
        self.environment.ledger.ask_pause(true);
        self.wait(dead, "hold still", |judge, n| judge.environment.ledger.is_paused(n))
    }

    /// Waits for every writer that lives; counts those that hang or died by themselves.
    fn wait(&mut self, dead: Option<usize>, what: &str, is: impl Fn(&Judge, usize) -> bool) -> Result<bool> {
        let deadline = Instant::now() + DEADLINE;
        let mut looked = Instant::now();
        for writer in (0..WRITERS).filter(|writer| Some(*writer) != dead) {
            while !is(self, writer) && self.environment.writers[writer].is_running() {
                if Instant::now() > deadline {
                    eprintln!("commonhold-bench: writer {writer} does not {what} within {DEADLINE:?}");
                    self.tally.hung += 1;
                    return Ok(false);
                }
                if looked.elapsed() > Duration::from_millis(100) {
                    self.start_host_if_gone()?;
                    looked = Instant::now();
                }
                std::thread::sleep(Duration::from_micros(500));
            }
        }
        Ok(true)
    }

    /// After the death of both, somebody has to start a host: here the judge, as an administrator would.
    fn start_host_if_gone(&self) -> Result<()> {
        if processes::of_directory(&self.environment.state).is_empty() {
            BenchHost::borrowed(&self.environment.state)?.start_again()?;
        }
        Ok(())
    }

    fn count(&mut self, finding: Finding, times: u64) {
        match finding {
            Finding::Good => {}
            Finding::Torn => self.tally.torn += times,
            Finding::Lost => self.tally.lost += times,
            Finding::WronglyClean => self.tally.wrongly_clean += times,
        }
    }

    /// Counts a finding, and says where it was.
    fn judge(&mut self, finding: Finding, what: impl FnOnce() -> String) {
        if finding != Finding::Good {
            eprintln!("commonhold-bench: {finding:?}: {}", what());
        }
        self.count(finding, 1);
    }

    fn check_atomic(&mut self) -> Result<()> {
        let (pages, each) = (self.environment.pages(), self.environment.pages_each());
        // The judge's own sync comes after any that a dead client had begun: one at a time for each object.
        self.sync_own_page()?;
        let mut stored = vec![0; pages * PAGE];
        if let Some(file) = &self.environment.file {
            file.read_exact_at(&mut stored, 0)?;
        }
        let own = self.environment.own_generation;
        for lane in 0..=WRITERS {
            let first = lane * each;
            let last = (first + each).min(pages);
            let ledger = &self.environment.ledger;
            let (acknowledged, syncing) =
                if lane < WRITERS { (ledger.acknowledged(lane), ledger.syncing(lane)) } else { (own, own) };
            let finding =
                verify::lane_in_store(first, &stored[first * PAGE..last * PAGE], acknowledged, syncing);
            self.judge(finding, || {
                format!("stored lane {lane}, acknowledged {acknowledged}, begun {syncing}")
            });
        }
        let states = self.environment.mapping.incore()?;
        for page in 0..pages {
            let memory = self.page(page);
            let notes = self.environment.ledger.versions(page);
            let finding = verify::page_in_memory(page, &memory, notes);
            self.judge(finding, || format!("page {page} in memory, started and done {notes:?}"));
            let state = states.get(page).map_or(commonhold::PageState::Invalid, |(state, _)| *state);
            let finding = verify::state(&memory, &stored[page * PAGE..(page + 1) * PAGE], state);
            self.judge(finding, || format!("page {page} is {state:?}, started and done {notes:?}"));
        }
        Ok(())
    }

    fn sync_own_page(&mut self) -> Result<()> {
        let environment = &mut self.environment;
        let page = environment.own_page();
        environment.own_generation += 1;
        environment.ledger.start(page, environment.own_generation);
        pattern::write(View::of(&environment.mapping), page, environment.own_generation);
        environment.ledger.finish(page, environment.own_generation);
        let deadline = Instant::now() + DEADLINE;
        while let Err(error) = environment.mapping.sync_range(page * PAGE, PAGE) {
            if Instant::now() > deadline {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn check_anonymous(&mut self, all: bool) -> Result<()> {
        let pages = self.environment.pages();
        let mut random = Random::seed_from_u64(self.environment.ledger.progress(0));
        let chosen: Vec<usize> = if all {
            (0..pages).collect()
        } else {
            (0..SAMPLE).map(|_| random.random_range(0..pages)).collect()
        };
        for page in chosen {
            let memory = self.page(page);
            let notes = self.environment.ledger.versions(page);
            let finding = verify::page_in_memory(page, &memory, notes);
            self.judge(finding, || format!("anonymous page {page}, started and done {notes:?}"));
        }
        Ok(())
    }

    fn page(&self, page: usize) -> Vec<u8> {
        let mut bytes = vec![0; PAGE];
        View::of(&self.environment.mapping).read(page * PAGE, &mut bytes);
        bytes
    }

    fn replace_the_dead(&mut self, killed: Option<usize>) -> Result<()> {
        for writer in 0..WRITERS {
            if self.environment.writers[writer].is_running() {
                continue;
            }
            if killed != Some(writer) {
                eprintln!("commonhold-bench: writer {writer} died, and nobody had killed it");
                self.tally.died += 1;
            }
            self.environment.replace_writer(writer)?;
        }
        Ok(())
    }
}
