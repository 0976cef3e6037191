//! A cluster whose threads use mutexes of one object.

use super::memory::{Told, WORDS, Words};
use commonhold_coherence::HostId;
use commonhold_primitives::Kind;
use commonhold_primitives::between::Monitor;
use commonhold_tokens::{Event, Leaving, Message, Part, Timer};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Instant;

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
    /// They are semaphores of the value 1: monitors, in which threads wait for a change.
    pub semaphores: bool,
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
pub(super) enum Does {
    /// It calls lock next.
    Locks,
    /// It sleeps on that of its machine's words.
    Sleeps(usize),
    /// It was woken on that word, and looks again.
    Woken(usize),
    /// It has the mutex; whether it was told that an owner died.
    Owns(bool),
    /// It has taken the semaphore, sleeps on that word to give it back, or was woken there.
    Gives(usize, bool),
    Done,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Thread {
    pub(super) machine: usize,
    pub(super) does: Does,
    /// Which mutex.
    pub(super) index: u32,
    /// How often it locks yet.
    pub(super) left: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) host: HostId,
    /// None: it has no part in it now.
    pub(super) part: Option<Part>,
    pub(super) words: RefCell<Vec<u64>>,
    pub(super) told: VecDeque<(u32, Told)>,
    pub(super) timers: BTreeSet<Timer>,
    /// It has left, and no home has answered that it knows.
    pub(super) leaving: Option<Leaving>,
    /// It is to hear who the home is, or to say to it that it has left.
    pub(super) seeks: bool,
    pub(super) lost: bool,
    /// The processes before this one.
    pub(super) former: Vec<HostId>,
}

impl Hash for Machine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let words = self.words.borrow();
        (self.host, &self.part, &*words, &self.told, &self.timers).hash(state);
        (&self.leaving, self.seeks, self.lost).hash(state);
    }
}

/// A cluster, its threads, and what went wrong.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) plan: Plan,
    pub(super) machines: Vec<Machine>,
    pub(super) threads: Vec<Thread>,
    pub(super) channels: BTreeMap<(HostId, HostId), VecDeque<Message>>,
    pub(super) next_host: u32,
    /// Mutexes with which an owner died that nobody was told of yet.
    pub(super) died: BTreeSet<u32>,
    /// Tokens and requests that were sent.
    pub messages: u32,
    /// How often a thread had a mutex.
    pub locked: u32,
    pub(super) violation: Option<String>,
    pub(super) began: Instant,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.plan, &self.machines, &self.threads, &self.channels, self.next_host, &self.died).hash(state);
    }
}

pub(super) const HOME: usize = 0;

/// Which word of a monitor has, above which bit, how often the token has moved; one that is made anew is so far ahead.
const LOCAL: usize = 2;
const MOVES: u32 = 24;
const FAR: u64 = 1 << 10;
/// A search goes no further.
const MOST_MOVES: u64 = 5;

impl Plan {
    pub(super) fn kind(&self) -> Kind {
        if self.semaphores { Kind::Semaphore { value: 1 } } else { Kind::Mutex }
    }

    /// One of them, as its host sees it.
    pub(super) fn at(&self, index: u32) -> Monitor {
        Monitor::nth(self.kind(), index)
    }

    pub(super) fn part(&self, part: Part) -> Part {
        if self.semaphores { part.of_monitors() } else { part }
    }
}

impl World {
    /// Everything is at the beginning: the home has all tokens, and the others are about to join.
    pub fn new(plan: &Plan) -> World {
        let machines = (0..plan.machines.len()).map(|number| {
            let host = HostId(number as u32 + 1);
            let words = RefCell::new(vec![0; plan.mutexes as usize * WORDS]);
            let part = if number == HOME {
                plan.part(Part::first(host, plan.mutexes))
            } else {
                away(host, plan, &words)
            };
            let (told, timers) = (VecDeque::new(), BTreeSet::new());
            Machine {
                host,
                part: Some(part),
                words,
                told,
                timers,
                leaving: None,
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

    /// Whether tokens of monitors have moved so often that a search goes no further: they count that, so that no state comes again.
    pub fn is_far(&self) -> bool {
        let moves = |index: u32| {
            let moves = |machine: &Machine| machine.words.borrow()[index as usize * WORDS + LOCAL] >> MOVES;
            self.machines.iter().map(moves).max().unwrap_or(0) % FAR
        };
        self.plan.semaphores && (0..self.plan.mutexes).any(|index| moves(index) > MOST_MOVES)
    }

    /// All that may happen next.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, thread) in self.threads.iter().enumerate() {
            if self.machines[thread.machine].part.is_some()
                && matches!(thread.does, Does::Locks | Does::Woken(_) | Does::Owns(_) | Does::Gives(_, true))
            {
                steps.push(Step::Thread(number));
            }
            let somebody_died = self.threads.iter().any(|thread| thread.does == Does::Dead);
            if somebody_died && matches!(thread.does, Does::Sleeps(_) | Does::Gives(_, false)) {
                steps.push(Step::Looks(number));
            }
            // Nobody gives back what a process took of a semaphore that ended.
            let has = self.plan.semaphores && matches!(thread.does, Does::Owns(_) | Does::Gives(..));
            if self.plan.clients_die > 0 && !has && !matches!(thread.does, Does::Done | Does::Dead) {
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
        let takes_part = machine.part.is_some() || machine.leaving.is_some();
        if machine.part.is_some() && !machine.told.is_empty() {
            steps.push(Step::Told(number));
        }
        let has_counted = || self.home_part().is_some_and(Part::has_counted);
        if machine.seeks || machine.leaving.is_some() && has_counted() && !self.has_said(machine.host) {
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
        if self.plan.hosts_restart > 0 && takes_part {
            steps.push(Step::Restart(number));
        }
        if number != HOME && !machine.lost {
            if self.plan.machines_die > 0 && takes_part {
                steps.push(Step::MachineDies(number));
            }
            if !takes_part {
                steps.push(Step::Return(number));
            } else if self.plan.leave > 0 && machine.part.is_some() && is_idle() && machine.told.is_empty() {
                steps.push(Step::Leave(number));
            }
        }
    }

    /// Whether all that take part have said what they have to a home that waits for it.
    fn all_joined(&self) -> bool {
        let takes_part = |other: &&Machine| other.part.is_some() || other.leaving.is_some();
        let others = self.machines.iter().skip(1).filter(takes_part);
        others.into_iter().all(|other| !other.seeks && !self.has_said(other.host))
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
                let leaves = matches!(message, Some(Message::Leave(_)));
                let machine =
                    self.machines.iter().position(|machine| machine.host == to && machine.part.is_some());
                if let (Some(message), Some(machine)) = (message, machine) {
                    let joins = leaves || matches!(message, Message::Join { .. });
                    self.handle(machine, Event::Said { from, message });
                    let follower = self.machines.iter().find(|other| joins && other.host == from);
                    for former in follower.map_or_else(Vec::new, |other| other.former.clone()) {
                        self.handle(machine, Event::Follows { former, by: from });
                    }
                }
                if leaves {
                    self.knows_who_left(from, to);
                }
            }
            Step::Home(number) => {
                self.machines[number].seeks = false;
                let home = self.machines[HOME].host;
                self.say_left(number, home);
                self.handle(number, Event::Home(home));
            }
            Step::Over(number, timer) => {
                self.machines[number].timers.remove(&timer);
                self.handle(number, Event::Over(timer));
            }
            Step::Looks(number) => self.wakes(number),
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
                let words = RefCell::new(vec![0; self.plan.mutexes as usize * WORDS]);
                let part = away(self.machines[number].host, &self.plan, &words);
                (self.machines[number].words, self.machines[number].part) = (words, Some(part));
                self.machines[number].seeks = true;
            }
        }
        self.check();
    }

    fn check(&mut self) {
        for index in 0..self.plan.mutexes {
            let owners = self.threads.iter().filter(|thread| {
                thread.index == index && matches!(thread.does, Does::Owns(_) | Does::Gives(..))
            });
            if owners.count() > 1 {
                self.violation.get_or_insert_with(|| format!("two threads have mutex {index}"));
            }
        }
    }
}

/// The part of a host that comes to the object.
fn away(host: HostId, plan: &Plan, words: &RefCell<Vec<u64>>) -> Part {
    let memory = Words::new(words, vec![0; plan.mutexes as usize * WORDS], false, Instant::now());
    (0..plan.mutexes).for_each(|index| plan.at(index).begin_away(&memory));
    plan.part(Part::following(host, plan.mutexes, false, []))
}
