//! Whether one memory could have given a history.
//!
//! The operations are gone through in the order of their starts and ends. All ways in which the register may have come
//! to where it is are kept (`Configuration`); when an operation ends, only those stay in which it has happened, or can
//! happen now after others that are under way. No value is written twice, so a read leaves few ways, and the whole takes
//! about as long as the history is.

use crate::arena::Arena;
use crate::configuration::{Configuration, Rules, Step};
use crate::history::{Act, History, Loss, OnLoss, Operation};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

/// Operations that may be under way at once, those without an end included.
const MOST_AT_ONCE: usize = 64;

/// Ways that are looked at for one register beyond what a long history has by itself, some minutes' worth. Where hosts were lost
/// again and again while nobody got on, the losses that may have come first are too many.
const MOST_WAYS: u64 = if cfg!(test) { 100_000 } else { 10_000_000 };
/// Ways of each operation that are none too many.
const WAYS_OF_EACH: u64 = 100;

/// Lines of the history that are shown with a violation.
const SHOWN: usize = 24;

/// Why no memory could have given a history, or why nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Of which register.
    pub register: u32,
    /// What cannot be, and what was done before.
    pub text: String,
}

/// Checks every register of a history. Registers hold 0 at first.
pub fn check(history: &History) -> Result<(), Violation> {
    check_all(history).into_iter().next().map_or(Ok(()), Err)
}

/// All registers of which a history is none of one memory, or of which that cannot be decided.
pub fn check_all(history: &History) -> Vec<Violation> {
    let mut registers: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    for operation in &history.operations {
        registers.entry(operation.register).or_default().push(*operation);
    }
    let wrong = |(register, operations): (u32, Vec<Operation>)| {
        check_register(&operations, history).err().map(|text| Violation { register, text })
    };
    registers.into_iter().filter_map(wrong).collect()
}

/// The values of a register, as numbers of writes.
struct Values {
    numbers: HashMap<u64, u32>,
    writers: Vec<Option<u8>>,
    last_read: Vec<u64>,
    /// When each write began.
    started: Vec<u64>,
}

impl Values {
    fn of(operations: &[Operation]) -> Result<Values, String> {
        let mut this = Values {
            numbers: HashMap::from([(0, 0)]),
            writers: vec![None],
            last_read: vec![0],
            started: vec![0],
        };
        for operation in operations {
            if let Act::Write(value) = operation.act {
                if this.numbers.insert(value, this.writers.len() as u32).is_some() {
                    return Err(format!("{operation}: this value was written before"));
                }
                this.writers.push(Some(operation.host));
                this.last_read.push(0);
                this.started.push(operation.start);
            }
        }
        for operation in operations {
            if let (Act::Read(value), Some(end)) = (operation.act, operation.end) {
                let Some(number) = this.numbers.get(&value) else {
                    return Err(format!("{operation}: nobody wrote that"));
                };
                let last = &mut this.last_read[*number as usize];
                *last = end.max(*last);
            }
        }
        Ok(this)
    }

    /// Which of them some loss may bring back so that somebody sees it.
    fn that_matter(&self, losses: &[Loss], on_loss: OnLoss) -> Vec<bool> {
        let since = losses.iter().map(|loss| loss.start).min().unwrap_or(u64::MAX);
        let seen_after = |loss: &Loss, write: usize| {
            // Where an error comes first, the revert may be later than the loss.
            let until = if on_loss == OnLoss::Error { u64::MAX } else { loss.end.unwrap_or(u64::MAX) };
            self.last_read[write] >= loss.start && self.started[write] <= until
        };
        let matters = |write: usize| {
            self.last_read[write] >= since && losses.iter().any(|loss| seen_after(loss, write))
        };
        (0..self.last_read.len()).map(matters).collect()
    }

    /// A write of each host that nobody reads, if it has one.
    fn unread(&self) -> [Option<u32>; 64] {
        let mut found = [None; 64];
        for (number, host) in self.writers.iter().enumerate().rev() {
            if let Some(host) = host.filter(|_| self.last_read[number] == 0) {
                found[usize::from(host)] = Some(number as u32);
            }
        }
        found
    }

    fn step(&self, operation: &Operation) -> Step {
        let number = |value| self.numbers[&value];
        match operation.act {
            Act::Read(value) => Step::Read { value: number(value), host: operation.host },
            Act::Write(value) => Step::Write { value: number(value), host: operation.host },
            Act::Sync => Step::Sync,
            Act::Failed => Step::Failed,
            Act::Revert => Step::Revert,
        }
    }

    /// Whether anything depends on it. What has no end and gave nothing that anybody saw may as well not have been.
    fn matters(&self, operation: &Operation) -> bool {
        operation.end.is_some()
            || matches!(operation.act, Act::Revert)
            || matches!(operation.act, Act::Write(value) if self.last_read[self.numbers[&value] as usize] > 0)
    }
}

/// What starts or ends, in the order of time; at one instant what starts comes first.
struct Event {
    at: u64,
    ends: bool,
    what: usize,
}

fn check_register(operations: &[Operation], history: &History) -> Result<(), String> {
    let values = Values::of(operations)?;
    let used: Vec<&Operation> = operations.iter().filter(|operation| values.matters(operation)).collect();
    let mut steps: Vec<(Step, u64, Option<u64>)> =
        used.iter().map(|one| (values.step(one), one.start, one.end)).collect();
    for loss in &history.losses {
        let about_to_write = operations.iter().any(|one| is_about_to_write(one, loss));
        let wanted = operations.iter().any(|one| is_a_write_during(one, loss));
        let step = Step::Loss { hosts: loss.hosts, start: loss.start, about_to_write, wanted };
        steps.push((step, loss.start, loss.end));
    }
    let mut events: Vec<Event> = Vec::new();
    for (what, (_, start, end)) in steps.iter().enumerate() {
        events.push(Event { at: *start, ends: false, what });
        events.extend(end.map(|at| Event { at, ends: true, what }));
    }
    events.sort_by_key(|event| (event.at, event.ends));
    let matters = values.that_matter(&history.losses, history.on_loss);
    let rules = Rules {
        on_loss: history.on_loss,
        kept: history.kept,
        writers: &values.writers,
        matters: &matters,
        last_read: &values.last_read,
        unread: values.unread(),
        now: 0,
    };
    let mut search = Search::new(rules, used.len() as u64);
    for event in &events {
        search.rules.now = event.at;
        let (step, _, end) = steps[event.what];
        if !event.ends {
            search.begins(event.what, step, end.is_some())?;
        } else if matches!(step, Step::Loss { .. }) {
            search.is_over(event.what);
        } else if !search.has_happened(event.what) && !search.gives_up() {
            return Err(explained(used[event.what], &used));
        }
        if search.gives_up() {
            let most = search.most_ways;
            return Err(format!("undecided: more than {most} ways are open, so much was lost at once"));
        }
    }
    Ok(())
}

fn is_about_to_write(operation: &Operation, loss: &Loss) -> bool {
    loss.hosts & (1 << operation.host) != 0 && is_a_write_during(operation, loss)
}

fn is_a_write_during(operation: &Operation, loss: &Loss) -> bool {
    matches!(operation.act, Act::Write(_) | Act::Failed)
        && operation.start <= loss.end.unwrap_or(u64::MAX)
        && operation.end.unwrap_or(u64::MAX) >= loss.start
}

/// The operation that cannot be, and those of its register that started last before its end.
fn explained(wrong: &Operation, all: &[&Operation]) -> String {
    let end = wrong.end.unwrap_or(u64::MAX);
    let mut before: Vec<&&Operation> = all.iter().filter(|one| one.start <= end).collect();
    before.sort_by_key(|one| one.start);
    let mut text = format!("{wrong}: cannot be after");
    for one in &before[before.len().saturating_sub(SHOWN)..] {
        let _ = write!(text, "\n  {one}");
    }
    text
}

/// An operation that has started and not ended.
#[derive(Clone, Copy)]
struct UnderWay {
    what: usize,
    step: Step,
    /// Whether it ever ends.
    ends: bool,
}

/// All ways in which the register may have come to where it is.
struct Search<'a> {
    rules: Rules<'a>,
    arena: Arena,
    /// What is under way, by its bit.
    under_way: [Option<UnderWay>; MOST_AT_ONCE],
    configurations: HashSet<Configuration>,
    /// That were looked at.
    ways: u64,
    /// When that is too many.
    most_ways: u64,
}

impl<'a> Search<'a> {
    fn new(rules: Rules<'a>, operations: u64) -> Search<'a> {
        let mut arena = Arena::default();
        let first = Configuration { happened: 0, version: arena.certain(0), lost: false };
        Search {
            rules,
            arena,
            under_way: [None; MOST_AT_ONCE],
            configurations: HashSet::from([first]),
            ways: 0,
            most_ways: MOST_WAYS + WAYS_OF_EACH * operations,
        }
    }

    fn gives_up(&self) -> bool {
        self.ways >= self.most_ways
    }

    fn begins(&mut self, what: usize, step: Step, ends: bool) -> Result<(), String> {
        let Some(bit) = self.under_way.iter().position(Option::is_none) else {
            return Err(format!("more than {MOST_AT_ONCE} operations at once cannot be checked"));
        };
        self.under_way[bit] = Some(UnderWay { what, step, ends });
        Ok(())
    }

    fn bit_of(&self, what: usize) -> Option<usize> {
        self.under_way.iter().position(|slot| slot.is_some_and(|one| one.what == what))
    }

    /// A loss is over: whatever it did is done.
    fn is_over(&mut self, what: usize) {
        let Some(bit) = self.bit_of(what) else { return };
        // Without it, or with it at some instant until now.
        let with = self.reached(bit);
        self.configurations.extend(with);
        self.release(bit);
    }

    /// An operation ends: only those ways stay in which it has happened. False if none does.
    fn has_happened(&mut self, what: usize) -> bool {
        let Some(bit) = self.bit_of(what) else { return false };
        self.configurations = self.reached(bit);
        self.release(bit);
        // Of what has no end, what has happened for certain needs its bit no longer.
        let certain = self.configurations.iter().fold(u64::MAX, |bits, one| bits & one.happened);
        (0..MOST_AT_ONCE).filter(|bit| certain & (1 << bit) != 0).for_each(|bit| self.settled(bit));
        !self.configurations.is_empty()
    }

    /// Where every way may go on to so that the operation of that bit has happened last, or has happened already: as long as
    /// there are not too many.
    fn reached(&mut self, bit: usize) -> HashSet<Configuration> {
        let mut found = HashSet::new();
        let mut seen = self.configurations.clone();
        let mut left: Vec<Configuration> = seen.iter().copied().collect();
        while let Some(at) = left.pop().filter(|_| !self.gives_up()) {
            self.ways += 1;
            if at.happened & (1 << bit) != 0 {
                found.insert(at);
                continue;
            }
            for (other, slot) in self.under_way.iter().enumerate() {
                let Some(one) = slot.filter(|_| at.happened & (1 << other) == 0) else { continue };
                for mut next in self.rules.after(&mut self.arena, at, one.step) {
                    next.happened |= 1 << other;
                    if seen.insert(next) {
                        left.push(next);
                    }
                }
            }
        }
        found
    }

    /// Its bit is free for others.
    fn release(&mut self, bit: usize) {
        self.under_way[bit] = None;
        self.settled(bit);
    }

    fn settled(&mut self, bit: usize) {
        if self.under_way[bit].is_some_and(|one| one.ends) {
            return; // its end looks for the bit
        }
        self.under_way[bit] = None;
        let all = self.configurations.drain().collect::<Vec<_>>().into_iter();
        self.configurations =
            all.map(|from| Configuration { happened: from.happened & !(1 << bit), ..from }).collect();
    }
}
