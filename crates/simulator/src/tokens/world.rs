//! A cluster whose threads use mutexes of one object.

use super::memory::{BYTES, SLEEPERS, Told, Words};
use commonhold_coherence::HostId;
use commonhold_primitives::{Kind, Mutex, Refused, Taken, Wait, Who, free_of_the_dead};
use commonhold_tokens::{Action, Event, Message, Part, Timer};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

/// What a run begins with, and what may go wrong in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Of each machine, how often each of its threads locks, and which mutex first. The first machine is the home's.
    pub machines: Vec<Vec<u8>>,
    /// How many mutexes the object holds.
    pub mutexes: u32,
    /// How many clients may die.
    pub clients_die: u8,
    /// How many processes of hosts may die, and others follow them.
    pub hosts_restart: u8,
    /// How many machines but the home's may be lost.
    pub machines_die: u8,
    /// How many hosts may leave the object whose threads are done, and come back.
    pub leave: u8,
    /// All have joined before it begins, and a host hears at once what its threads tell it: fewer states.
    pub is_short: bool,
}

/// Something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A thread calls lock or unlock.
    Thread(usize),
    /// A host hears what a thread told it.
    Told(usize),
    /// A message arrives.
    Message(HostId, HostId),
    /// A host that was not yet part of it, or whose process is new, hears who the home is.
    Home(usize),
    /// That was waited for long enough.
    Over(usize, Timer),
    /// A thread has slept for as long as one does, and looks again: somebody died who had been woken in its place.
    Looks(usize),
    /// A client dies, with its one thread.
    ClientDies(usize),
    /// A host's process dies, and another follows it.
    Restart(usize),
    /// A machine is lost.
    MachineDies(usize),
    /// A host leaves the object.
    Leave(usize),
    /// It uses it again.
    Return(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    /// It calls lock next.
    Locks,
    /// It sleeps.
    Sleeps,
    /// It was woken, and looks again.
    Woken,
    /// It has the mutex; whether it was told that an owner died.
    Owns(bool),
    Done,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    machine: usize,
    does: Does,
    /// Which mutex.
    index: u32,
    /// How often it locks yet.
    left: u8,
}

#[derive(Clone, Debug)]
struct Machine {
    host: HostId,
    /// None: it has no part in it now.
    part: Option<Part>,
    words: RefCell<Vec<u64>>,
    told: VecDeque<(u32, Told)>,
    timers: BTreeSet<Timer>,
    /// It is to hear who the home is.
    seeks: bool,
    lost: bool,
    /// The processes before this one.
    former: Vec<HostId>,
}

impl Hash for Machine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let words = self.words.borrow();
        (self.host, &self.part, &*words, &self.told, &self.timers, self.seeks, self.lost).hash(state);
    }
}

/// A cluster, its threads, and what went wrong.
#[derive(Clone, Debug)]
pub struct World {
    plan: Plan,
    machines: Vec<Machine>,
    threads: Vec<Thread>,
    channels: BTreeMap<(HostId, HostId), VecDeque<Message>>,
    next_host: u32,
    /// Mutexes with which an owner died that nobody was told of yet.
    died: BTreeSet<u32>,
    /// Tokens and requests that were sent.
    pub messages: u32,
    /// How often a thread had a mutex.
    pub locked: u32,
    violation: Option<String>,
    began: Instant,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.plan, &self.machines, &self.threads, &self.channels, self.next_host, &self.died).hash(state);
    }
}

const HOME: usize = 0;

fn at(index: u32) -> Mutex {
    Mutex(index as usize * BYTES)
}

impl World {
    /// Everything is at the beginning: the home has all tokens, and the others are about to join.
    pub fn new(plan: &Plan) -> World {
        let machines = (0..plan.machines.len()).map(|number| {
            let host = HostId(number as u32 + 1);
            let words = RefCell::new(vec![0; plan.mutexes as usize]);
            let part =
                if number == HOME { Part::first(host, plan.mutexes) } else { away(host, plan, &words) };
            let (told, timers) = (VecDeque::new(), BTreeSet::new());
            Machine {
                host,
                part: Some(part),
                words,
                told,
                timers,
                seeks: number != HOME,
                lost: false,
                former: Vec::new(),
            }
        });
        let thread = |(machine, left): (usize, u8)| {
            let index = machine as u32 % plan.mutexes;
            Thread { machine, does: Does::Locks, index, left }
        };
        let all = plan.machines.iter().enumerate();
        let threads = all.flat_map(|(machine, threads)| threads.iter().map(move |left| (machine, *left)));
        let mut world = World {
            threads: threads.map(thread).collect(),
            machines: machines.collect(),
            channels: BTreeMap::new(),
            next_host: plan.machines.len() as u32 + 1,
            died: BTreeSet::new(),
            messages: 0,
            locked: 0,
            violation: None,
            began: Instant::now(),
            plan: plan.clone(),
        };
        while plan.is_short
            && let Some(step) =
                world.steps().into_iter().find(|step| matches!(step, Step::Home(_) | Step::Message(..)))
        {
            world.step(&step);
        }
        world
    }

    /// What is wrong by now.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// Whether all threads have come to their end.
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(|thread| matches!(thread.does, Does::Done | Does::Dead))
    }

    /// All that may happen next.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, thread) in self.threads.iter().enumerate() {
            if self.machines[thread.machine].part.is_some()
                && matches!(thread.does, Does::Locks | Does::Woken | Does::Owns(_))
            {
                steps.push(Step::Thread(number));
            }
            let somebody_died = self.threads.iter().any(|thread| thread.does == Does::Dead);
            if somebody_died && thread.does == Does::Sleeps {
                steps.push(Step::Looks(number));
            }
            if self.plan.clients_die > 0 && !matches!(thread.does, Does::Done | Does::Dead) {
                steps.push(Step::ClientDies(number));
            }
        }
        let ways = self.channels.iter().filter(|(_, messages)| !messages.is_empty());
        steps.extend(ways.map(|((from, to), _)| Step::Message(*from, *to)));
        for number in 0..self.machines.len() {
            self.steps_of(number, &mut steps);
        }
        steps
    }

    fn steps_of(&self, number: usize, steps: &mut Vec<Step>) {
        let machine = &self.machines[number];
        let home = &self.machines[HOME];
        if machine.part.is_some() && !machine.told.is_empty() {
            steps.push(Step::Told(number));
        }
        // The home hears last that it is: only then it hears who joins.
        if machine.seeks && (number == HOME || !home.seeks) {
            steps.push(Step::Home(number));
        }
        let is_over = |timer: &&Timer| match timer {
            Timer::Taken(_) => true,
            Timer::Follows(host) => {
                !self.machines.iter().any(|other| !other.lost && other.former.contains(host))
            }
            Timer::Opens => self.all_joined(),
        };
        steps.extend(machine.timers.iter().filter(is_over).map(|timer| Step::Over(number, *timer)));
        let mine = || self.threads.iter().filter(|thread| thread.machine == number);
        let is_idle = || mine().all(|thread| matches!(thread.does, Does::Done | Does::Dead | Does::Locks));
        if self.plan.hosts_restart > 0 && machine.part.is_some() {
            steps.push(Step::Restart(number));
        }
        if number != HOME && !machine.lost {
            if self.plan.machines_die > 0 && machine.part.is_some() {
                steps.push(Step::MachineDies(number));
            }
            if machine.part.is_none() {
                // The home has answered that it left, so all that was said before has come.
                let said = |(ends, _): &(&(HostId, HostId), _)| {
                    **ends == (machine.host, home.host) || **ends == (home.host, machine.host)
                };
                if self.channels.iter().filter(said).all(|(_, messages)| messages.is_empty()) {
                    steps.push(Step::Return(number));
                }
            } else if self.plan.leave > 0
                && is_idle()
                && machine.told.is_empty()
                && !machine.seeks
                && !home.seeks
            {
                steps.push(Step::Leave(number));
            }
        }
    }

    /// Whether all that take part have said what they have to a home that waits for it.
    fn all_joined(&self) -> bool {
        let home = self.machines[HOME].host;
        let others = self.machines.iter().skip(1).filter(|other| other.part.is_some() && !other.lost);
        let said = |from: HostId| self.channels.get(&(from, home)).is_none_or(VecDeque::is_empty);
        others.into_iter().all(|other| !other.seeks && said(other.host))
    }

    /// Something happens.
    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Thread(number) => self.thread(number),
            Step::Told(number) => {
                if let Some((index, told)) = self.machines[number].told.pop_front() {
                    self.hears(number, index, told);
                }
            }
            Step::Message(from, to) => {
                let message = self.channels.get_mut(&(from, to)).and_then(VecDeque::pop_front);
                let machine =
                    self.machines.iter().position(|machine| machine.host == to && machine.part.is_some());
                if let (Some(message), Some(machine)) = (message, machine) {
                    let joins = matches!(message, Message::Join { .. });
                    self.handle(machine, Event::Said { from, message });
                    let follower = self.machines.iter().find(|other| joins && other.host == from);
                    for former in follower.map_or_else(Vec::new, |other| other.former.clone()) {
                        self.handle(machine, Event::Follows { former, by: from });
                    }
                }
            }
            Step::Home(number) => {
                self.machines[number].seeks = false;
                let home = self.machines[HOME].host;
                self.handle(number, Event::Home(home));
            }
            Step::Over(number, timer) => {
                self.machines[number].timers.remove(&timer);
                self.handle(number, Event::Over(timer));
            }
            Step::Looks(number) => self.threads[number].does = Does::Woken,
            Step::ClientDies(number) => {
                self.plan.clients_die -= 1;
                self.client_dies(number);
            }
            Step::Restart(number) => {
                self.plan.hosts_restart -= 1;
                self.restart(number);
            }
            Step::MachineDies(number) => {
                self.plan.machines_die -= 1;
                self.machine_dies(number);
            }
            Step::Leave(number) => {
                self.plan.leave -= 1;
                self.leave(number);
            }
            Step::Return(number) => {
                let words = RefCell::new(vec![0; self.plan.mutexes as usize]);
                let part = away(self.machines[number].host, &self.plan, &words);
                (self.machines[number].words, self.machines[number].part) = (words, Some(part));
                self.machines[number].seeks = true;
            }
        }
        self.check();
    }

    fn check(&mut self) {
        for index in 0..self.plan.mutexes {
            let owners = self
                .threads
                .iter()
                .filter(|thread| thread.index == index && matches!(thread.does, Does::Owns(_)));
            if owners.count() > 1 {
                self.violation.get_or_insert_with(|| format!("two threads have mutex {index}"));
            }
        }
    }

    /// Does something with a machine's words; then its threads wake, and its host is to hear what it was told.
    fn with_words<T>(&mut self, machine: usize, job: impl FnOnce(&Words<'_>) -> T) -> T {
        let sleeping = |index: usize| {
            let sleeps = |thread: &&Thread| {
                thread.machine == machine && thread.does == Does::Sleeps && thread.index == index as u32
            };
            self.threads.iter().filter(sleeps).count() as u32
        };
        let sleepers = (0..self.plan.mutexes as usize).map(sleeping).collect();
        let words = Words::new(&self.machines[machine].words, sleepers, self.began);
        let result = job(&words);
        let (told, woken) = (words.told.into_inner(), words.woken.into_inner());
        for (index, count) in woken {
            let sleeps = |thread: &&mut Thread| {
                thread.machine == machine && thread.does == Does::Sleeps && thread.index == index as u32
            };
            self.threads
                .iter_mut()
                .filter(sleeps)
                .take(count as usize)
                .for_each(|thread| thread.does = Does::Woken);
        }
        let waiting = &mut self.machines[machine].told;
        for told in told.into_iter().map(|(index, told)| (index as u32, told)) {
            // What is told twice before it is heard is no more than told once: so the states are finitely many.
            if !waiting.contains(&told) {
                waiting.push_back(told);
            }
        }
        while self.plan.is_short
            && let Some((index, told)) = self.machines[machine].told.pop_front()
        {
            self.hears(machine, index, told);
        }
        result
    }

    fn thread(&mut self, number: usize) {
        let Thread { machine, does, index, .. } = self.threads[number].clone();
        let who = Who { member: number as u32 + 1, thread: 1 };
        if let Does::Owns(died) = does {
            let done = self.with_words(machine, |words| {
                let mended = if died { at(index).mend(words, who) } else { Ok(()) };
                mended.and_then(|()| at(index).unlock(words, who))
            });
            if let Err(error) = done {
                self.violation.get_or_insert_with(|| format!("thread {number} lost its mutex: {error:?}"));
            }
            let thread = &mut self.threads[number];
            thread.left -= 1;
            thread.index = (thread.index + 1) % self.plan.mutexes;
            thread.does = if thread.left == 0 { Does::Done } else { Does::Locks };
            return;
        }
        let until = Wait::Until(self.began + Duration::from_millis(1));
        match self.with_words(machine, |words| at(index).lock(words, who, until)) {
            Ok(died) => {
                if self.died.remove(&index) && !died {
                    self.violation
                        .get_or_insert_with(|| format!("nobody says that an owner of {index} died"));
                }
                self.locked += 1;
                if does == Does::Woken {
                    // It has slept, and says in the same step that others may: here that is the next call.
                    self.with_words(machine, |words| words.set(index, |word| word | SLEEPERS));
                }
                self.threads[number].does = Does::Owns(died);
            }
            Err(Refused::TimedOut) => self.threads[number].does = Does::Sleeps,
            Err(error) => {
                self.violation.get_or_insert_with(|| format!("thread {number} cannot lock: {error:?}"));
            }
        }
    }

    fn hears(&mut self, machine: usize, index: u32, told: Told) {
        match told {
            Told::Wanted => self.handle(machine, Event::Wanted(index)),
            Told::Released => self.claim(machine, index, false),
        }
    }

    fn handle(&mut self, machine: usize, event: Event) {
        let mut actions = Vec::new();
        let Some(part) = &mut self.machines[machine].part else { return };
        part.handle(event, &mut actions);
        for action in actions {
            self.act(machine, action);
        }
    }

    fn act(&mut self, machine: usize, action: Action) {
        match action {
            Action::Send(to, message) => {
                if matches!(message, Message::Request { .. } | Message::Token { .. }) {
                    self.messages += 1;
                }
                let from = self.machines[machine].host;
                if self.machines.iter().any(|other| other.host == to && !other.lost) {
                    self.channels.entry((from, to)).or_default().push_back(message);
                }
            }
            Action::Claim { index, firmly } => self.claim(machine, index, firmly),
            Action::Give { index, died, wanted } => {
                self.with_words(machine, |words| at(index).give(words, died, wanted));
                if wanted {
                    self.machines[machine].timers.insert(Timer::Taken(index));
                }
            }
            Action::Void(index) => {
                if self.with_words(machine, |words| at(index).void(words)) {
                    self.handle(machine, Event::Wanted(index));
                }
            }
            Action::Wait(timer) => _ = self.machines[machine].timers.insert(timer),
        }
    }

    fn claim(&mut self, machine: usize, index: u32, firmly: bool) {
        match self.with_words(machine, |words| at(index).take_away(words, firmly)) {
            Taken::Yes { died, sleepers } => self.handle(machine, Event::Released { index, died, sleepers }),
            Taken::Owned => {}
            Taken::Reserved => _ = self.machines[machine].timers.insert(Timer::Taken(index)),
        }
    }

    fn client_dies(&mut self, number: usize) {
        let Thread { machine, does, index, .. } = self.threads[number].clone();
        if matches!(does, Does::Owns(_)) {
            self.died.insert(index);
        }
        self.threads[number].does = Does::Dead;
        self.free_the_dead(machine);
    }

    fn free_the_dead(&mut self, machine: usize) {
        let alive = |(_, thread): &(usize, &Thread)| thread.does != Does::Dead;
        let living: HashSet<u32> =
            self.threads.iter().enumerate().filter(alive).map(|(number, _)| number as u32 + 1).collect();
        let bytes = self.plan.mutexes as usize * BYTES;
        self.with_words(machine, |words| {
            free_of_the_dead(words, 0..bytes, Kind::Mutex, || living.clone(), None)
        });
    }

    /// A host's process dies: its words stay, and another reads them.
    fn restart(&mut self, number: usize) {
        let former = self.machines[number].host;
        let host = HostId(self.next_host);
        self.next_host += 1;
        let mutexes = self.plan.mutexes;
        let seen: Vec<_> = self
            .with_words(number, |words| (0..mutexes).map(|index| (index, at(index).seen(words))).collect());
        let first = number == HOME;
        let changed = seen.into_iter().filter(|(_, seen)| seen.here != first || seen.sleepers);
        let words = changed.map(|(index, seen)| (index, seen.here, seen.sleepers));
        let part = Part::following(host, mutexes, first, words);
        let machine = &mut self.machines[number];
        (machine.host, machine.part, machine.seeks) = (host, Some(part), true);
        machine.former.push(former);
        machine.told.clear();
        machine.timers.clear();
        self.forget(former);
        if first {
            // Each hears of it some time later.
            self.machines.iter_mut().skip(1).for_each(|other| other.seeks = other.part.is_some());
        } else {
            self.handle(HOME, Event::Lost(former));
        }
        self.free_the_dead(number);
    }

    fn machine_dies(&mut self, number: usize) {
        let host = self.machines[number].host;
        let owned = |thread: &&Thread| thread.machine == number && matches!(thread.does, Does::Owns(_));
        let owned: Vec<u32> = self.threads.iter().filter(owned).map(|thread| thread.index).collect();
        self.died.extend(owned);
        let mine = |thread: &&mut Thread| thread.machine == number && thread.does != Does::Done;
        self.threads.iter_mut().filter(mine).for_each(|thread| thread.does = Does::Dead);
        let machine = &mut self.machines[number];
        (machine.part, machine.seeks, machine.lost) = (None, false, true);
        machine.told.clear();
        machine.timers.clear();
        self.forget(host);
        self.handle(HOME, Event::Lost(host));
    }

    /// Nothing comes from that host any more, and nothing reaches it.
    fn forget(&mut self, host: HostId) {
        self.channels.retain(|(from, to), _| *from != host && *to != host);
    }

    fn leave(&mut self, number: usize) {
        let mutexes = self.plan.mutexes;
        let died: BTreeSet<u32> = self.with_words(number, |words| {
            let died =
                |index: &u32| matches!(at(*index).take_away(words, true), Taken::Yes { died: true, .. });
            (0..mutexes).filter(died).collect()
        });
        let machine = &mut self.machines[number];
        let Some(part) = machine.part.take() else { return };
        machine.timers.clear();
        let host = machine.host;
        if let Some(home) = part.home() {
            self.channels
                .entry((host, home))
                .or_default()
                .push_back(part.leaves(|index| died.contains(&index)));
        }
    }
}

/// The part of a host that comes to the object.
fn away(host: HostId, plan: &Plan, words: &RefCell<Vec<u64>>) -> Part {
    let memory = Words::new(words, vec![0; plan.mutexes as usize], Instant::now());
    (0..plan.mutexes).for_each(|index| at(index).begin_away(&memory));
    Part::following(host, plan.mutexes, false, [])
}
