//! Virtual time: what happens when, to a cluster of up to a thousand hosts, and what goes wrong with them meanwhile.

use crate::dice::Dice;
use crate::news::News;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A moment, in microseconds since the beginning.
pub type Moment = u64;

/// A cluster that the clock drives. What cannot happen any more does nothing.
pub trait Cluster {
    /// The oldest message from one host to another arrives.
    fn deliver(&mut self, from: usize, to: usize);
    /// A host's program goes on; whether it will again at once (it is not asleep and not at its end).
    fn act(&mut self, host: usize) -> bool;
    /// The minimum hold of a page ends.
    fn hold_over(&mut self, host: usize, page: u32);
    /// A host is short of memory.
    fn evict(&mut self, host: usize, page: u32);
    /// A host dies, or its lease ends while it is stopped or cut off.
    fn lose(&mut self, host: usize);
    /// A host learns of the next loss that it does not know of.
    fn learn(&mut self, host: usize);
    /// No process of a host uses the object for now.
    fn leave(&mut self, _host: usize) {}
    /// Somebody at a host wants lost pages back.
    fn revert(&mut self, _host: usize) {}
    /// Losses that a host that has just come is told of.
    fn lessons(&self, _host: usize) -> usize {
        0
    }
    /// A host comes, under a new number; none: such an object takes nobody in just now.
    fn join(&mut self) -> Option<usize>;
    /// Hosts that were ever there, dead ones too.
    fn hosts(&self) -> usize;
    /// What the last steps brought.
    fn news(&mut self) -> News;
    /// What is wrong by now.
    fn violation(&self) -> Option<String>;
}

/// How long things take, in microseconds: from, to.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A message on its way. Two hosts' messages keep their order; otherwise any may overtake any.
    pub delay: (u64, u64),
    /// Between two accesses of a program.
    pub think: (u64, u64),
    /// The minimum hold.
    pub hold: u64,
    /// A host that is not heard of for so long is lost.
    pub lease: u64,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A host dies.
    Crash(usize),
    /// A host does nothing for so long, neither programs nor protocol; past its lease it is lost.
    Stop(usize, u64),
    /// A host's messages, both ways, wait for so long, while its programs go on; past its lease it is lost.
    CutOff(usize, u64),
    /// The messages between two hosts, both ways, wait for so long, while each reaches all others and nobody is lost for it.
    CutPair(usize, usize, u64),
    /// All that a host does takes so many times as long, from then on.
    Slow(usize, u64),
    /// A host gives a page up.
    Evict(usize, u32),
    /// A host comes, or comes back under a new number.
    Join,
    /// No process of a host uses the object for now.
    Leave(usize),
    /// Somebody at a host wants lost pages back.
    Revert(usize),
}

/// What comes to pass at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Deliver(usize, usize),
    Act(usize),
    HoldOver(usize, u32),
    Learn(usize),
    Lose(usize),
    Fault(usize),
}

/// What is known of one host beside the cluster.
#[derive(Clone, Copy, Debug)]
struct Condition {
    /// It does nothing before.
    stopped_until: Moment,
    /// Nothing comes from it or to it before.
    cut_until: Moment,
    slow: u64,
}

const WELL: Condition = Condition { stopped_until: 0, cut_until: 0, slow: 1 };

/// A cluster with its calendar.
pub struct Clock<C> {
    /// What is driven.
    pub cluster: C,
    times: Times,
    dice: Dice,
    now: Moment,
    calendar: BinaryHeap<Reverse<(Moment, u64, What)>>,
    entries: u64,
    conditions: Vec<Condition>,
    /// Hosts that do not reach each other, and until when.
    apart: Vec<([usize; 2], Moment)>,
    faults: Vec<Fault>,
    /// Faults that came to pass.
    pub injected: u64,
}

impl<C: Cluster> Clock<C> {
    /// A cluster whose programs begin within one thinking time, and what will go wrong when.
    pub fn new(cluster: C, times: Times, dice: Dice, faults: Vec<(Moment, Fault)>) -> Clock<C> {
        let hosts = cluster.hosts();
        let mut clock = Clock {
            cluster,
            times,
            dice,
            now: 0,
            calendar: BinaryHeap::new(),
            entries: 0,
            conditions: vec![WELL; hosts],
            apart: Vec::new(),
            faults: Vec::new(),
            injected: 0,
        };
        (0..hosts).for_each(|host| clock.think(host));
        for (moment, fault) in faults {
            clock.enter(moment, What::Fault(clock.faults.len()));
            clock.faults.push(fault);
        }
        clock
    }

    /// The time.
    pub fn now(&self) -> Moment {
        self.now
    }

    fn enter(&mut self, moment: Moment, what: What) {
        self.entries += 1;
        self.calendar.push(Reverse((moment, self.entries, what)));
    }

    fn think(&mut self, host: usize) {
        let pause = self.dice.between(self.times.think) * self.conditions[host].slow;
        self.enter(self.now + pause, What::Act(host));
    }

    /// Lets time go on until nothing is to come, something is wrong, or `steps` steps are done. Gives the steps.
    pub fn run(&mut self, steps: u64) -> u64 {
        let mut done = 0;
        while done < steps {
            let Some(Reverse((moment, _, what))) = self.calendar.pop() else { break };
            self.now = moment;
            done += 1;
            if let Some(later) = self.postponed(what) {
                self.enter(later, what);
                continue;
            }
            self.happens(what);
            self.plan_news();
            if self.cluster.violation().is_some() {
                break;
            }
        }
        done
    }

    /// When something happens that cannot happen now, because a host is stopped or cut off.
    fn postponed(&self, what: What) -> Option<Moment> {
        let until = match what {
            What::Deliver(from, to) => {
                let between =
                    |apart: &&([usize; 2], Moment)| apart.0.contains(&from) && apart.0.contains(&to);
                let apart = self.apart.iter().filter(between).map(|(_, until)| *until).max().unwrap_or(0);
                let (from, to) = (self.conditions[from], self.conditions[to]);
                from.cut_until.max(to.cut_until).max(to.stopped_until).max(apart)
            }
            What::Act(host) | What::HoldOver(host, _) => self.conditions[host].stopped_until,
            // A loss is told by the registry, which a host that is cut off does not hear either.
            What::Learn(host) => self.conditions[host].stopped_until.max(self.conditions[host].cut_until),
            What::Lose(_) | What::Fault(_) => 0,
        };
        (until > self.now).then_some(until)
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Deliver(from, to) => self.cluster.deliver(from, to),
            What::Act(host) => {
                if self.cluster.act(host) {
                    self.think(host);
                }
            }
            What::HoldOver(host, page) => self.cluster.hold_over(host, page),
            What::Learn(host) => self.cluster.learn(host),
            What::Lose(host) => self.lose(host),
            What::Fault(number) => self.go_wrong(self.faults[number]),
        }
    }

    fn lose(&mut self, host: usize) {
        self.cluster.lose(host);
        for other in (0..self.cluster.hosts()).filter(|other| *other != host) {
            let after = self.dice.between(self.times.delay);
            self.enter(self.now + after, What::Learn(other));
        }
    }

    fn go_wrong(&mut self, fault: Fault) {
        self.injected += 1;
        let end = |long: u64| self.now + long.min(self.times.lease);
        match fault {
            Fault::Crash(host) => self.lose(host),
            Fault::Stop(host, long) => {
                let end = end(long);
                self.conditions[host].stopped_until = end;
                if long > self.times.lease {
                    self.enter(end, What::Lose(host));
                }
            }
            Fault::CutOff(host, long) => {
                let end = end(long);
                self.conditions[host].cut_until = end;
                if long > self.times.lease {
                    self.enter(end, What::Lose(host));
                }
            }
            Fault::CutPair(one, other, long) if one != other => {
                self.apart.push(([one, other], self.now + long));
            }
            Fault::CutPair(..) => {}
            Fault::Slow(host, times) => self.conditions[host].slow = times.max(1),
            Fault::Evict(host, page) => self.cluster.evict(host, page),
            Fault::Join => {
                if let Some(host) = self.cluster.join() {
                    self.conditions.push(WELL);
                    self.think(host);
                    for _ in 0..self.cluster.lessons(host) {
                        let after = self.dice.between(self.times.delay);
                        self.enter(self.now + after, What::Learn(host));
                    }
                }
            }
            Fault::Leave(host) => self.cluster.leave(host),
            Fault::Revert(host) => self.cluster.revert(host),
        }
    }

    fn plan_news(&mut self) {
        let news = self.cluster.news();
        for (from, to) in news.sent {
            let slow = self.conditions[from].slow.max(self.conditions[to].slow);
            // What a host says to itself takes no time to speak of.
            let delay = if from == to { 0 } else { self.dice.between(self.times.delay) * slow };
            self.enter(self.now + delay, What::Deliver(from, to));
        }
        for host in news.woken {
            self.enter(self.now, What::Act(host));
        }
        for (host, page) in news.held {
            self.enter(self.now + self.times.hold, What::HoldOver(host, page));
        }
    }
}
