//! A cluster, its writers and their ledger: strikes come from outside, one trial after the other.

use super::excuses::Events;
use super::ledger::{Found, Kind, Ledger, PAGES};
use super::plan::{LEASE, Plan, Scene, Strike};
use super::strike::strike;
use crate::cluster::Cluster;
use crate::failure::Result;
use crate::striking::BOUND;
use crate::view::PAGE;
use crate::worker::{Worker, own_command};
use commonhold_sys::clock;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "/tight/words";

/// The whole.
pub struct Life {
    scene: Scene,
    /// By slot. None: it is to be started.
    writers: Vec<Option<Worker>>,
    ledger: Ledger,
    /// How much of what each writer found has been judged.
    judged: Vec<u64>,
    /// How much of each log was looked at.
    read: Vec<usize>,
    /// What happened in the trial before.
    before: Events,
    cluster: Cluster,
    directory: PathBuf,
}

/// What a trial came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What no promise allows, in words.
    pub failures: Vec<String>,
    /// What a promise allows.
    pub allowed: u64,
    /// From the strike until every writer had been through its pages again, if they had.
    pub recovery: Option<Duration>,
}

impl Life {
    /// Starts hosts and writers.
    pub fn begin(directory: &Path, scene: Scene) -> Result<Life> {
        let hosts = scene.hosts();
        let cluster = Cluster::start_in(directory.join("cluster"), hosts, Some(LEASE))?;
        let slots = hosts * scene.each();
        let mut this = Life {
            scene,
            writers: (0..slots).map(|_| None).collect(),
            ledger: Ledger::open(&directory.join("ledger"))?,
            judged: vec![0; slots],
            read: vec![0; hosts],
            before: Events::default(),
            cluster,
            directory: directory.to_owned(),
        };
        let file = directory.join("stored");
        if scene != Scene::LocalAnonymous {
            std::fs::File::create_new(&file)?.set_len((PAGES * PAGE) as u64)?;
        }
        let file = if scene == Scene::LocalAnonymous { "create".into() } else { file.to_string_lossy() };
        let first = scene.home() * scene.each();
        this.writers[first] = Some(this.start(first, &file)?);
        this.fill_up()?;
        Ok(this)
    }

    /// Additions, and syncs, so far.
    pub fn done(&self) -> [u64; 2] {
        let sum =
            |of: fn(&Ledger, usize) -> u64| (0..self.writers.len()).map(|slot| of(&self.ledger, slot)).sum();
        [sum(Ledger::steps), sum(Ledger::syncs)]
    }

    /// How hosts are connected, in words.
    pub fn network(&self) -> String {
        self.cluster.network().words()
    }

    fn host_of(&self, slot: usize) -> usize {
        slot / self.scene.each()
    }

    /// Pages that writers of a host write.
    fn pages_of(&self, host: usize) -> Range<usize> {
        if self.scene.is_strict() || self.scene.is_local() {
            return 0..PAGES;
        }
        let each = PAGES / self.scene.hosts();
        host * each..(host + 1) * each
    }

    /// Writers whose words a process of that host must see at once.
    fn seen_at(&self, host: usize) -> Vec<usize> {
        let seen = |slot: &usize| self.scene.is_strict() || self.host_of(*slot) == host;
        (0..self.writers.len()).filter(seen).collect()
    }

    fn command(&self, host: usize, slot: &str, file: &str) -> Result<Command> {
        let pages = self.pages_of(host);
        let peers: Vec<String> = self.seen_at(host).iter().map(usize::to_string).collect();
        let peers = peers.into_iter().filter(|peer| peer != slot).collect::<Vec<_>>().join(",");
        let arguments = [
            self.cluster.host(host).state().to_string_lossy().into_owned(),
            NAME.to_owned(),
            self.scene.word(),
            file.to_owned(),
            self.directory.join("ledger").to_string_lossy().into_owned(),
            slot.to_owned(),
            pages.start.to_string(),
            pages.end.to_string(),
            peers,
        ];
        let mut command = own_command("adder", &arguments)?;
        command.stdin(Stdio::null());
        Ok(command)
    }

    fn start(&self, slot: usize, file: &str) -> Result<Worker> {
        let mut worker = Worker::spawn(&mut self.command(self.host_of(slot), &slot.to_string(), file)?)?;
        worker.expect("ready")?;
        Ok(worker)
    }

    fn fill_up(&mut self) -> Result<()> {
        for slot in 0..self.writers.len() {
            if self.writers[slot].is_none() {
                self.writers[slot] = Some(self.start(slot, "-")?);
            }
        }
        Ok(())
    }

    /// One trial.
    pub fn trial(&mut self, plan: Plan) -> Result<Outcome> {
        std::thread::sleep(plan.delay);
        let (begun, struck_at) = (Instant::now(), clock::now());
        self.strike(plan)?;
        let mut outcome = Outcome::default();
        let stuck = self.wait_for_progress(&mut outcome.failures)?;
        outcome.failures.extend(stuck.iter().map(|slot| self.stuck(*slot)));
        outcome.recovery = stuck.is_empty().then(|| begun.elapsed());
        // What is found is read first: of all that could have led to it the logs speak then.
        let found = self.found();
        let now = Events::of(self.scene, &plan, &self.new_of_logs());
        let events = now.and(std::mem::replace(&mut self.before, now));
        for one in found {
            if events.allow(self.scene, &one, |slot| self.host_of(slot)) {
                outcome.allowed += 1;
            } else {
                outcome.failures.push(words(&one, struck_at));
            }
        }
        // Others find the same again and again until the word's writer comes by.
        outcome.failures.sort();
        outcome.failures.dedup();
        Ok(outcome)
    }

    fn strike(&mut self, plan: Plan) -> Result<()> {
        let each = self.scene.each();
        let first = plan.host * each;
        if plan.strike == Strike::Client {
            // One of several: what it wrote stays with the others.
            let slot = first + plan.lasting.as_millis() as usize % each;
            kill(&mut self.writers[slot]);
            return self.fill_up();
        }
        let writers = &mut self.writers;
        let all = first..first + each;
        strike(&self.cluster, plan, || writers[all].iter_mut().for_each(kill))?;
        self.fill_up()
    }

    /// Waits until every writer has been through all its pages again; gives those that have not
    /// within the bound. Whoever is gone is replaced.
    fn wait_for_progress(&mut self, failures: &mut Vec<String>) -> Result<Vec<usize>> {
        let deadline = Instant::now() + BOUND;
        let goals: Vec<u64> =
            (0..self.writers.len()).map(|slot| self.ledger.steps(slot) + 2 * PAGES as u64 + 1).collect();
        loop {
            for slot in 0..self.writers.len() {
                if self.writers[slot].as_mut().is_some_and(|writer| !writer.is_running()) {
                    failures.push(format!("writer {slot} has died, and nobody had killed it"));
                    self.writers[slot] = None;
                }
            }
            self.fill_up()?;
            let behind = |slot: &usize| self.ledger.steps(*slot) < goals[*slot];
            let stuck: Vec<usize> = (0..goals.len()).filter(behind).collect();
            if stuck.is_empty() || Instant::now() > deadline {
                return Ok(stuck);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn stuck(&self, slot: usize) -> String {
        let at = if self.ledger.is_syncing(slot) { "a sync" } else { "a touch" };
        format!("writer {slot} does not go on within 30 s: it waits in {at}")
    }

    fn found(&mut self) -> Vec<Found> {
        let mut all = Vec::new();
        for (slot, judged) in self.judged.iter_mut().enumerate() {
            let (count, new) = self.ledger.found_since(slot, *judged);
            *judged = count;
            all.extend(new);
        }
        all
    }

    fn new_of_logs(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for (number, read) in self.read.iter_mut().enumerate() {
            let path = self.cluster.host(number).state().join("log");
            let log = std::fs::read_to_string(path).unwrap_or_default();
            all.push(log.get(*read..).unwrap_or_default().to_owned());
            *read = log.len();
        }
        all
    }

    /// All hold still, and a new process of each host must see every word as it was left.
    pub fn end(&mut self) -> Result<Vec<String>> {
        self.ledger.ask_pause();
        let deadline = Instant::now() + BOUND;
        let slots = 0..self.writers.len();
        while !slots.clone().all(|slot| self.ledger.is_paused(slot)) {
            if Instant::now() > deadline {
                return Ok(vec!["a writer does not come to its next word within 30 s".into()]);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut failures = Vec::new();
        for host in 0..self.scene.hosts() {
            let mut checker = Worker::spawn(&mut self.command(host, "check", "-")?)?;
            let said = checker.line()?;
            if !said.is_empty() {
                failures.push(format!("at the end host {host} sees other words than were left: {said}"));
            }
        }
        Ok(failures)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // They never end by themselves.
        self.writers.iter_mut().flatten().for_each(Worker::kill);
    }
}

fn kill(writer: &mut Option<Worker>) {
    if let Some(mut writer) = writer.take() {
        writer.kill();
    }
}

fn words(one: &Found, struck_at: u64) -> String {
    let Found { by, kind, of, page, expected, found, synced, synced_at } = one;
    let kind = match kind {
        Kind::Lost => "lost additions",
        Kind::Wrong => "additions of nobody",
        Kind::Stale => "a word that is old",
    };
    let sync = match (found < synced, *synced_at < struck_at) {
        (false, _) => "no sync had returned for these",
        (true, true) => "a sync had returned for them before the strike",
        (true, false) => "a sync returned for them after the strike",
    };
    format!(
        "writer {by} found {kind} of writer {of} on page {page}: {found}, not {expected}; {sync} (of {synced})"
    )
}
