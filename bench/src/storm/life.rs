//! A cluster, its clients, and what they noted: strikes come from outside, one trial after the other.

use super::plan::{HOME, HOSTS, Plan, Scene, Strike};
use super::tally::Tally;
use crate::cluster::Cluster;
use crate::failure::{Result, failed};

use crate::processes::signal;
use crate::striking::{BOUND, end_all, pause, processes_of, stop};
use crate::view::PAGE;
use crate::worker::{Worker, own_command};
use commonhold_linear::trouble::{self, Window};
use commonhold_linear::{Act, EVERYBODY, History, Kept, Loss, OnLoss, Operation, check_all, now, record};
use rustix::process::Signal;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Words that are read and written, each on a page of its own.
const REGISTERS: u32 = 4;
/// Clients of each host.
const EACH: usize = 2;
const NAME: &str = "/storm/words";
/// After so long a page that could not be had is asked for anew.
#[cfg(feature = "faults")]
const HEALED: Duration = Duration::from_millis(1500);

struct Client {
    host: usize,
    worker: Worker,
    notes: PathBuf,
}

/// The whole.
pub struct Life {
    scene: Scene,
    clients: Vec<Client>,
    notes: Vec<PathBuf>,
    losses: Vec<Loss>,
    windows: Vec<Window>,
    /// How much of each log was looked at.
    read: Vec<usize>,
    /// Hosts that became the home when it was looked at last.
    claimed: Vec<bool>,
    /// How often one did.
    moves: u64,
    /// The last that did.
    home: usize,
    quiet_since: u64,
    /// Words that were found wrong before: each is counted once.
    wrong: Vec<u32>,
    /// Accesses beyond the bound that were counted.
    late: u64,
    cluster: Cluster,
    directory: PathBuf,
    started: u32,
}

/// What a trial came to.
pub struct Outcome {
    /// What went wrong.
    pub tally: Tally,
    /// From the strike until every client had used every word again, if they did.
    pub recovery: Option<Duration>,
}

impl Life {
    /// Starts hosts and clients.
    pub fn begin(directory: &Path, scene: Scene) -> Result<Life> {
        let place = directory.join("cluster");
        let cluster = if scene.moves() {
            Cluster::start_with_etcd(place, HOSTS, scene.lease())?
        } else {
            Cluster::start_in(place, HOSTS, Some(scene.lease()))?
        };
        let file = directory.join("stored");
        std::fs::File::create_new(&file)?.set_len(u64::from(REGISTERS) * PAGE as u64)?;
        let mut this = Life {
            scene,
            clients: Vec::new(),
            notes: Vec::new(),
            losses: Vec::new(),
            windows: Vec::new(),
            read: vec![0; HOSTS],
            claimed: vec![false; HOSTS],
            moves: 0,
            home: HOME,
            quiet_since: now(),
            wrong: Vec::new(),
            late: 0,
            cluster,
            directory: directory.to_owned(),
            started: 0,
        };
        this.start_client(HOME, &file.to_string_lossy())?;
        this.fill_up()?;
        Ok(this)
    }

    /// Whether hosts can be cut off; and how they are connected, in words.
    pub fn network(&self) -> (bool, String) {
        (self.cluster.network().has_wires(), self.cluster.network().words())
    }

    /// Operations that were noted.
    pub fn operations(&self) -> u64 {
        self.notes.iter().map(|path| record::begun(path).unwrap_or(0)).sum()
    }

    /// How often a host became the home of the object in another's place.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// What the operations are judged by, in words.
    pub fn troubles(&self) -> String {
        format!("{:#?}\n{:#?}\n", self.losses, self.windows)
    }

    fn start_client(&mut self, host: usize, file: &str) -> Result<()> {
        self.started += 1;
        let notes = self.directory.join(format!("notes-{}", self.started));
        let arguments = [
            self.cluster.host(host).state().to_string_lossy().into_owned(),
            NAME.to_owned(),
            file.to_owned(),
            self.scene.word().to_owned(),
            REGISTERS.to_string(),
            notes.to_string_lossy().into_owned(),
            host.to_string(),
            self.started.to_string(),
        ];
        let mut worker = Worker::spawn(own_command("recorder", &arguments)?.stdin(Stdio::null()))?;
        worker.expect("ready")?;
        self.notes.push(notes.clone());
        self.clients.push(Client { host, worker, notes });
        Ok(())
    }

    fn fill_up(&mut self) -> Result<()> {
        for host in 0..HOSTS {
            let here = self.clients.iter().filter(|client| client.host == host).count();
            (here..EACH).try_for_each(|_| self.start_client(host, "-"))?;
        }
        Ok(())
    }

    /// One trial.
    pub fn trial(&mut self, plan: Plan) -> Result<Outcome> {
        std::thread::sleep(plan.delay);
        let (start, begun) = (now(), Instant::now());
        // Between strikes leases may end too.
        let before = self.lost_by_logs(0);
        self.note_losses(before, self.quiet_since, start);
        let plan = Plan { host: if plan.at_home { self.home } else { plan.host }, ..plan };
        self.strike(plan)?;
        let mut tally = Tally::default();
        let stuck = self.wait_for_progress(&mut tally)?;
        tally.late += stuck;
        let recovery = (stuck == 0).then(|| begun.elapsed());
        let end = now();
        let strikes_process =
            !matches!(plan.strike, Strike::KillClient | Strike::KillKeeper | Strike::KillMember);
        let struck = u64::from(self.scene.is_forwarded() && strikes_process) << plan.host;
        let lost = self.lost_by_logs(struck);
        self.note_losses(lost, start, end);
        self.windows.iter_mut().filter(|window| window.end == 0).for_each(|window| window.end = end);
        self.quiet_since = end;
        tally += self.judge(end)?;
        Ok(Outcome { tally, recovery })
    }

    /// What `disturbance` does may end any process but those of the home's machine together; judged as after a strike at each
    /// host whose process it ended.
    #[cfg(feature = "faults")]
    pub fn disturbed(&mut self, disturbance: impl FnOnce()) -> Result<Tally> {
        let start = now();
        let before = self.lost_by_logs(0);
        self.note_losses(before, self.quiet_since, start);
        let pids = self.host_pids();
        disturbance();
        // Of those that a fault ended nobody asks why; those that end from here on are errors.
        std::thread::sleep(HEALED);
        self.clients.retain_mut(|client| client.worker.is_running());
        (0..HOSTS).try_for_each(|host| self.start_if_gone(host))?;
        let mut tally = Tally::default();
        tally.late += self.wait_for_progress(&mut tally)?;
        let end = now();
        let ended = |(host, (now, then))| u64::from(now != then) << host;
        let struck =
            self.host_pids().into_iter().zip(pids).enumerate().map(ended).fold(0, |all, one| all | one);
        let lost = self.lost_by_logs(if self.scene.is_forwarded() { struck } else { 0 });
        self.note_losses(lost, start, end);
        self.quiet_since = end;
        tally += self.judge(end)?;
        Ok(tally)
    }

    #[cfg(feature = "faults")]
    fn host_pids(&self) -> Vec<Option<u32>> {
        (0..HOSTS).map(|host| self.cluster.host(host).processes().ok().map(|[process, _]| process)).collect()
    }

    #[cfg(feature = "faults")]
    fn start_if_gone(&self, host: usize) -> Result<()> {
        if crate::processes::of_directory(self.cluster.host(host).state()).is_empty() {
            return self.cluster.start_again(host);
        }
        Ok(())
    }

    fn strike(&mut self, plan: Plan) -> Result<()> {
        let host = plan.host;
        if plan.strike == Strike::KillClient {
            self.kill_clients(host, 1);
            return Ok(());
        }
        if plan.strike == Strike::KillMember {
            let Some(etcd) = self.cluster.etcd() else { return failed("this cluster has no etcd") };
            etcd.kill(host);
            std::thread::sleep(plan.lasting);
            return etcd.run(self.cluster.network(), host);
        }
        if matches!(plan.strike, Strike::Flicker | Strike::Cut) {
            self.cluster.network().wire(host, false)?;
            std::thread::sleep(plan.lasting);
            return self.cluster.network().wire(host, true);
        }
        let [process, keeper] = processes_of(self.cluster.host(host))?;
        match plan.strike {
            Strike::KillHost => end_all(&[process]),
            Strike::KillKeeper => end_all(&[keeper]),
            Strike::Pause => {
                pause(process, plan.lasting);
                Ok(())
            }
            Strike::Stop => stop(process),
            _ => {
                let start = now();
                // Stopped first: none can see the death of the other.
                signal(keeper, Signal::STOP);
                end_all(&[process, keeper])?;
                let killed = now();
                if plan.strike == Strike::KillMachine {
                    self.kill_clients(host, EACH);
                }
                std::thread::sleep(plan.lasting);
                // Where a home that stays schedules, nobody gets a page while it is away.
                if host != HOME || self.scene != Scene::Central {
                    let host = host as u8;
                    self.windows.push(Window { host, start, killed, starts: now(), end: 0 });
                }
                // Clients that live may have started it by now.
                self.cluster.start_again(host)
            }
        }
    }

    fn kill_clients(&mut self, host: usize, mut count: usize) {
        while count > 0
            && let Some(index) = self.clients.iter().position(|client| client.host == host)
        {
            self.clients.swap_remove(index).worker.kill();
            count -= 1;
        }
    }

    /// Waits until every client has used every word again; gives how many did not within the bound. Whoever is gone is
    /// replaced.
    fn wait_for_progress(&mut self, tally: &mut Tally) -> Result<u64> {
        let deadline = Instant::now() + BOUND;
        let mut wanted: HashMap<PathBuf, u64> = HashMap::new();
        let begun = |client: &Client| record::begun(&client.notes).unwrap_or(0);
        loop {
            let before = self.clients.len();
            self.clients.retain_mut(|client| client.worker.is_running());
            if self.clients.len() < before {
                eprintln!(
                    "commonhold-bench: {} clients died, and nobody had killed them",
                    before - self.clients.len()
                );
                tally.errors += (before - self.clients.len()) as u64;
            }
            self.fill_up()?;
            let more = 2 * u64::from(REGISTERS) + 1;
            let behind = |client: &&Client| {
                let goal = *wanted.entry(client.notes.clone()).or_insert_with(|| begun(client) + more);
                begun(client) < goal
            };
            let stuck = self.clients.iter().filter(behind).count() as u64;
            if stuck == 0 || Instant::now() > deadline {
                return Ok(stuck);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Hosts of which the logs, since they were last looked at, say that what they alone had may be gone, with those that are
    /// `struck`; and, where the home moves, each loss by itself. Where the home schedules, it says what is lost, and nothing
    /// else may be.
    fn lost_by_logs(&mut self, struck: u64) -> Vec<u64> {
        let mut all = vec![struck];
        for (number, read) in self.read.iter_mut().enumerate() {
            let path = self.cluster.host(number).state().join("log");
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let new = log.get(*read..).unwrap_or_default();
            let claims = trouble::claims(new);
            self.moves += claims as u64;
            self.home = if claims > 0 { number } else { self.home };
            match (self.scene, number) {
                (Scene::Forwarding | Scene::ForwardingMoving, _) => {
                    all[0] |= trouble::named_in(new, number, HOSTS, HOME);
                }
                (Scene::Central, HOME) => all[0] |= trouble::lost_in(new, HOSTS, HOME),
                (Scene::Central, _) => {}
                (Scene::CentralMoving, _) => {
                    let claimed_before = std::mem::replace(&mut self.claimed[number], claims > 0);
                    all.extend(trouble::losses_in(new, HOSTS, claims > 0 || claimed_before));
                }
            }
            *read = log.len();
        }
        all
    }

    fn note_losses(&mut self, all: Vec<u64>, start: u64, end: u64) {
        for hosts in all {
            let of = |hosts| Loss { hosts, start, end: Some(end) };
            self.losses.extend(match self.scene {
                Scene::Central | Scene::Forwarding => trouble::loss(hosts, HOME, start, end),
                Scene::CentralMoving => (hosts != 0).then(|| of(hosts)),
                // Who was the home then, and what it had, nobody says.
                Scene::ForwardingMoving => (hosts != 0).then(|| of(EVERYBODY)),
            });
        }
    }

    fn history(&self, instant: u64) -> Result<History> {
        let mut operations: Vec<Operation> = Vec::new();
        for path in &self.notes {
            operations.extend(record::read(path)?);
        }
        trouble::until(&mut operations, instant);
        trouble::judged(&mut operations, &self.windows);
        let kept = match self.scene {
            Scene::Central => Kept::AtHome,
            Scene::Forwarding => Kept::WhatHomeHad(HOME as u8),
            Scene::CentralMoving | Scene::ForwardingMoving => Kept::Synced,
        };
        Ok(History { operations, losses: self.losses.clone(), on_loss: OnLoss::Revert, kept })
    }

    /// Checks all that was noted until that instant; what was found wrong before is not counted again.
    fn judge(&mut self, instant: u64) -> Result<Tally> {
        let mut history = self.history(instant)?;
        let mut tally = Tally::default();
        let bound = BOUND.as_nanos() as u64;
        let slow =
            |one: &&Operation| one.act != Act::Sync && one.end.is_some_and(|end| end - one.start > bound);
        let late = history.operations.iter().filter(slow).count() as u64;
        tally.late = late - std::mem::replace(&mut self.late, late);
        let violations = check_all(&history);
        let new: Vec<_> = violations.iter().filter(|one| !self.wrong.contains(&one.register)).collect();
        if new.is_empty() {
            return Ok(tally);
        }
        // What only the acknowledged syncs forbid is the loss of one.
        history.operations.retain(|one| one.act != Act::Sync);
        let without: Vec<u32> = check_all(&history).iter().map(|one| one.register).collect();
        for violation in new {
            eprintln!("commonhold-bench: word {}: {}", violation.register, violation.text);
            if without.contains(&violation.register) {
                tally.stale += 1
            } else {
                tally.lost_syncs += 1
            }
            self.wrong.push(violation.register);
        }
        Ok(tally)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // They never end by themselves.
        self.clients.iter_mut().for_each(|client| client.worker.kill());
    }
}
