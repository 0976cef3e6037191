//! `sync.remote_lock_messages` and `sync.violations`: mutexes that hosts share.

use crate::cluster::{Cluster, Traffic};
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::some;
use crate::row::{Bar, Measured, Row, rounded};
use crate::worker::Worker;
use commonhold::Host;
use commonhold_simulator::tokens;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NAME: &str = "/bench/turn";
/// The most hosts.
const MOST: usize = 8;
/// How long a request may take to be sent.
const DEADLINE: Duration = Duration::from_secs(20);

/// A process on each of some hosts, which all want one mutex.
struct Parties {
    workers: Vec<Worker>,
    clients: Vec<Host>,
    name: String,
}

impl Parties {
    fn start(cluster: &Cluster, count: usize) -> Result<Parties> {
        let name = format!("{NAME}-{count}");
        let mut workers = Vec::new();
        for (number, host) in cluster.hosts().iter().take(count).enumerate() {
            let how = if number == 0 { "create" } else { "open" };
            let state = host.state().to_string_lossy().into_owned();
            let start = || Worker::start("locker", &[state.as_str(), &name, how]);
            workers.push(cluster.network().at(number, start)?);
        }
        let clients = cluster.clients()?;
        Ok(Parties { workers, clients, name })
    }

    /// Requests and tokens that were sent, when all have arrived: its object's pages are used by nobody.
    fn messages(&self) -> Result<u64> {
        Ok(Traffic::of(&self.clients, &self.name)?.messages)
    }

    /// It wants the mutex: its request has arrived before another asks.
    fn asks(&mut self, number: usize) -> Result<()> {
        let (before, deadline) = (self.messages()?, Instant::now() + DEADLINE);
        self.workers[number].tell("lock")?;
        while self.messages()? == before {
            if Instant::now() > deadline {
                return failed(format!("process {number} waits, and no request was sent"));
            }
        }
        Ok(())
    }

    /// Hand-overs while all wait: who let go asks at once again. Messages for each.
    fn all_wait(&mut self, rounds: usize) -> Result<f64> {
        let count = self.workers.len();
        self.workers[0].ask("lock")?;
        (1..count).try_for_each(|number| self.asks(number))?;
        // The first round is of those that do not know yet who waits.
        let mut before = 0;
        for turn in 0..(rounds + 1) * count {
            if turn == count {
                before = self.messages()?;
            }
            let (holder, next) = (turn % count, (turn + 1) % count);
            self.workers[holder].ask("unlock")?;
            self.workers[next].line()?;
            self.asks(holder)?;
        }
        let handed_over = rounds * count;
        let after = self.messages()?;
        // All get it once more, and let it go.
        for turn in 0..count {
            self.workers[turn].ask("unlock")?;
            if turn + 1 < count {
                self.workers[turn + 1].line()?;
            }
        }
        let messages = (after - before) as f64 / handed_over as f64;
        some(messages, "messages for a hand-over")?;
        Ok(messages)
    }

    /// Each locks when nobody waits, one after the other.
    fn in_turn(&mut self, rounds: usize) -> Result<f64> {
        let before = self.messages()?;
        for _ in 0..rounds {
            for worker in &mut self.workers {
                worker.ask("lock")?;
                worker.ask("unlock")?;
            }
        }
        Ok((self.messages()? - before) as f64 / (rounds * self.workers.len()) as f64)
    }
}

/// The row.
pub struct RemoteLockMessages;

impl Row for RemoteLockMessages {
    fn id(&self) -> &'static str {
        "sync.remote_lock_messages"
    }

    fn unit(&self) -> &'static str {
        "messages a hand-over"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.05))
    }

    fn about(&self) -> &'static str {
        "requests and tokens between hosts for each hand-over of a mutex by name, N = 2 to 8 hosts that all wait: the worst; \
         each after the other, when nobody waits, in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let cluster = Cluster::start(context, MOST)?;
        let rounds = context.pick(20, 4);
        let (mut each, mut lines) = (Vec::new(), Vec::new());
        for hosts in 2..=MOST {
            let mut parties = Parties::start(&cluster, hosts)?;
            let waiting = parties.all_wait(rounds)?;
            each.push(waiting);
            lines.push(json!({
                "hosts": hosts,
                "messages_a_hand_over": rounded(waiting),
                "each_after_the_other": rounded(parties.in_turn(rounds)?),
            }));
        }
        let detail: Value = json!({"network": cluster.network().words(), "rounds": rounds, "each": lines});
        Ok(Measured::most(&each, detail))
    }
}

/// The row.
pub struct Violations;

impl Row for Violations {
    fn id(&self) -> &'static str {
        "sync.violations"
    }

    fn unit(&self) -> &'static str {
        "violations"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn limit(&self) -> Duration {
        crate::row::LONGEST
    }

    fn about(&self) -> &'static str {
        "two owners, lost waiters, waits without end, deaths that nobody is told of: every interleaving of small clusters whose \
         threads lock mutexes that hosts share, and random schedules of larger ones, with clients, hosts and machines that die"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let schedules = context.pick(1_000_000, 10_000);
        let mut wrong: Vec<String> = Vec::new();
        let mut searched = Vec::new();
        for plan in tokens::configurations() {
            match tokens::search(&plan) {
                Ok(found) => searched.push(json!({"plan": format!("{plan:?}"), "states": found.states})),
                Err(what) => wrong.push(what),
            }
        }
        let threads = std::thread::available_parallelism()?.get() as u64;
        let first = context.seed;
        let results: Vec<(u64, u64, Vec<String>)> = std::thread::scope(|scope| {
            let of = |thread: u64| {
                scope.spawn(move || {
                    let (mut locked, mut steps, mut wrong) = (0, 0, Vec::new());
                    for seed in (first..first + schedules).filter(|seed| seed % threads == thread) {
                        match tokens::schedule(seed) {
                            Ok(found) => {
                                locked += u64::from(found.locked);
                                steps += found.states as u64;
                            }
                            Err(what) => wrong.push(what),
                        }
                    }
                    (locked, steps, wrong)
                })
            };
            let all: Vec<_> = (0..threads).map(of).collect();
            all.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        if results.len() as u64 != threads {
            return failed("a thread that runs schedules panicked");
        }
        wrong.extend(results.iter().flat_map(|(_, _, wrong)| wrong.iter().cloned()));
        let locked: u64 = results.iter().map(|(locked, ..)| locked).sum();
        some(locked as f64, "locks that were taken")?;
        let detail = json!({
            "searched": searched,
            "schedules": schedules,
            "steps": results.iter().map(|(_, steps, _)| steps).sum::<u64>(),
            "locked": locked,
            "first_seed": first,
            "not_simulated": tokens::NOT_SIMULATED,
            "wrong": wrong.iter().take(10).collect::<Vec<_>>(),
        });
        Ok(Measured::single(wrong.len() as f64, schedules as usize, detail))
    }
}
