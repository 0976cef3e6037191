//! The hotspot on real hosts: parties that all write one word, in cycles with a barrier between them, or freely.

use super::{Cluster, Sharer, Traffic};
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::view::PAGE;
use commonhold::{Counts, Host};
use commonhold_simulator::measure::Strict;
use std::time::{Duration, Instant};

/// Most parties on one machine.
pub const MOST: usize = 8;
/// How long a page stays where it went, in cycles.
pub const HOLD: Duration = Duration::from_millis(30);
/// The same where all are to ask before anybody is done, as in the paper's example: what was held back is said again by
/// then.
pub const LONG_HOLD: Duration = Duration::from_millis(400);
/// Between the requests of two parties, so that they come in the order of their numbers. TCP says again what was held back
/// after as long as it was held for each, give or take a tick of the kernel's clock: this is three of them.
const BETWEEN: Duration = Duration::from_millis(12);
/// How long the network holds everything back after the last has asked, so that it has, on a busy machine too. TCP says the
/// first request again 200 ms after it was said: by then this must be over, or it comes last.
const HELD_BACK: Duration = Duration::from_millis(25);
/// Before and after the time in which free-running parties are looked at.
const RUN_UP: Duration = Duration::from_millis(300);
/// Fewer turns than that for each party, in the mean, say nothing of free-running ones.
const FEWEST_TURNS: u64 = 10;
/// How long it may take until a wait is counted.
const DEADLINE: Duration = Duration::from_secs(10);

/// Hosts, and which of them take part.
pub struct Field {
    cluster: Cluster,
    clients: Vec<Host>,
    made: usize,
}

/// What free-running parties did.
pub struct Free {
    /// How often each host got the page while all of them ran.
    pub acquired: Vec<u64>,
    /// How often each process found that somebody else had added meanwhile.
    pub came: Vec<u64>,
    /// Requests and pages, by how often any of them got it.
    pub messages: f64,
    /// Acknowledgements likewise.
    pub acknowledgements: f64,
    /// Requests that were sent on, likewise.
    pub forwarded: f64,
}

/// One object that parties write.
pub struct Game<'f> {
    field: &'f Field,
    strict: Strict,
    name: String,
    /// The home's process, which does nothing, under the central scheduler.
    _idle: Option<Sharer>,
    parties: Vec<Sharer>,
    /// Who has the page.
    owner: usize,
    /// All ask before any of them is heard.
    at_once: bool,
}

impl Field {
    /// Starts the hosts: one more than there are parties.
    pub fn start(context: &Context) -> Result<Field> {
        let cluster = Cluster::start(context, MOST + 1)?;
        let clients = cluster.clients()?;
        Ok(Field { cluster, clients, made: 0 })
    }

    /// What the hosts reach each other by, in words.
    pub fn network(&self) -> String {
        self.cluster.network().words()
    }

    /// A new object with so many parties. Central: its home is a host that takes no part. Forwarding: it is the first.
    pub fn game(&mut self, strict: Strict, parties: usize, hold: Option<Duration>) -> Result<Game<'_>> {
        self.made += 1;
        let name = format!("/bench/hotspot-{}", self.made);
        let mut home = self.cluster.sharer(0)?;
        home.create_scheduled(&name, PAGE, hold, strict)?;
        let mut sharers = Vec::new();
        let others = if strict == Strict::Central { 1..parties + 1 } else { 1..parties };
        for number in others {
            let mut sharer = self.cluster.sharer(number)?;
            sharer.open(&name)?;
            sharers.push(sharer);
        }
        let idle = if strict == Strict::Central {
            Some(home)
        } else {
            sharers.insert(0, home);
            None
        };
        Ok(Game { field: self, strict, name, _idle: idle, parties: sharers, owner: 0, at_once: false })
    }
}

impl Game<'_> {
    /// What was said so far, when all of it has arrived.
    pub fn traffic(&self) -> Result<Traffic> {
        Traffic::of(&self.field.clients, &self.name)
    }

    /// The same, when so many accesses that waited are counted, too: an access may go on before that. What is not by then has
    /// not waited.
    pub fn traffic_with(&self, waits: u64) -> Result<Traffic> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let traffic = self.traffic()?;
            if traffic.waits >= waits || Instant::now() > deadline {
                return Ok(traffic);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// From now on nothing that a party says in a cycle is heard before all have asked, as when messages take longer than
    /// the parties differ. Whether that can be done here.
    pub fn ask_at_once(&mut self, at_once: bool) -> Result<bool> {
        self.at_once = at_once && self.field.cluster.network().hold_back(false)?;
        Ok(self.at_once)
    }

    /// The first access of all parties, from the initial state. Under forwarding the origin is served on its own host.
    pub fn first_cycle(&mut self) -> Result<()> {
        self.parties[0].write_first()?;
        self.all_but_owner()
    }

    /// Every party writes once; who has the page first, which is served on its own host (forwarding), or last, when it has
    /// the page no more (central).
    pub fn cycle(&mut self) -> Result<()> {
        let last = self.owner;
        if self.strict == Strict::Forwarding {
            self.parties[last].write_first()?;
            return self.all_but_owner();
        }
        self.all_but_owner()?;
        self.parties[last].write_first()?;
        self.owner = last;
        Ok(())
    }

    /// All the others ask, in the order of their numbers, before anybody is done; then all are waited for.
    fn all_but_owner(&mut self) -> Result<()> {
        let others: Vec<usize> = (0..self.parties.len()).filter(|party| *party != self.owner).collect();
        let network = self.field.cluster.network();
        if self.at_once {
            network.hold_back(true)?;
        }
        for party in &others {
            self.parties[*party].begin_write_first()?;
            std::thread::sleep(BETWEEN);
        }
        if self.at_once {
            std::thread::sleep(HELD_BACK);
            network.hold_back(false)?;
        }
        self.owner = self.last_to_write()?.unwrap_or(self.owner);
        Ok(())
    }

    /// Waits for all but the owner; who of them was the last, and so has the page now. Under forwarding that need not be who
    /// asked last.
    fn last_to_write(&mut self) -> Result<Option<usize>> {
        let owner = self.owner;
        let others = self.parties.iter_mut().enumerate().filter(|(party, _)| *party != owner);
        let ends: Result<Vec<(Instant, usize)>> = std::thread::scope(|scope| {
            let waiting: Vec<_> = others
                .map(|(party, sharer)| {
                    scope.spawn(move || sharer.wrote_first().map(|()| (Instant::now(), party)))
                })
                .collect();
            let ends = waiting.into_iter().map(|one| one.join().expect("a thread that waits does not panic"));
            ends.collect()
        });
        Ok(ends?.into_iter().max().map(|(_, party)| party))
    }

    /// All add to the word as fast as they can. Looked at is so long a time in the middle, in which
    /// all of them do: who begins first also ends first, and a busy machine makes the difference
    /// longer. If hardly anybody gets the page, there is nothing to judge by.
    pub fn free(&mut self, time: Duration) -> Result<Free> {
        let (before, said, sent_on) = (self.acquired()?, self.traffic()?, self.forwarded()?);
        self.parties.iter_mut().try_for_each(|party| party.begin_adding(time + 2 * RUN_UP))?;
        std::thread::sleep(RUN_UP);
        let from = self.acquired()?;
        std::thread::sleep(time);
        let to = self.acquired()?;
        let came = self.parties.iter_mut().map(|party| Ok(party.added()?.came)).collect::<Result<_>>()?;
        let after = self.acquired()?;
        let between = |one: &[u64], other: &[u64]| -> Vec<u64> {
            one.iter().zip(other).map(|(one, other)| other - one).collect()
        };
        let acquired = between(&from, &to);
        let turns = acquired.iter().sum::<u64>();
        if turns < FEWEST_TURNS * acquired.len() as u64 {
            return failed(format!(
                "free-running hosts got the page {turns} times in {time:?}: {acquired:?}"
            ));
        }
        let traffic = self.traffic()?;
        let by_turn = |count: u64| count as f64 / between(&before, &after).iter().sum::<u64>() as f64;
        Ok(Free {
            messages: by_turn(traffic.messages - said.messages),
            acknowledgements: by_turn(traffic.acknowledgements - said.acknowledgements),
            forwarded: by_turn(self.forwarded()? - sent_on),
            acquired,
            came,
        })
    }

    /// How often each party's host got the right to write.
    fn acquired(&self) -> Result<Vec<u64>> {
        self.of_each(|counts| counts.hand_overs)
    }

    /// How often the parties' hosts have sent a request on to whom they thought to be the owner.
    fn forwarded(&self) -> Result<u64> {
        Ok(self.of_each(|counts| counts.forwards)?.iter().sum())
    }

    /// A number of each party's host.
    fn of_each(&self, number: impl Fn(&Counts) -> u64) -> Result<Vec<u64>> {
        let first = usize::from(self.strict == Strict::Central);
        let hosts = self.field.clients[first..first + self.parties.len()].iter();
        let counted = |client: &Host| {
            let seen = client.counts(&self.name, 0)?;
            Ok(seen.objects.iter().map(|object| number(&object.counts)).sum())
        };
        hosts.map(counted).collect()
    }
}
