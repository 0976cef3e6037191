//! A machine beside a model that knows every page of every task; a crash after every action; and,
//! if asked for, an engine to which the same happens.

use super::log_uniform;
use super::real::Real;
use super::world::{World, paged};
use crate::engine::Engine;
use commonhold_segments::{
    Action, Entry, Error, Inheritance, Limits, Machine, ObjectId, Placement, Protection, Record, Rules,
    Source, TaskId,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of memory: an engine needs as many.
pub const MEMORY: u32 = 400;
const SWAP: u32 = 600;
const LIMITS: Limits = Limits { chunk_pages: 16, gap_pages: 12, spacing_pages: 1 << 12 };

const READ: Protection = Protection::READ;
const RW: Protection = Protection::READ_WRITE;
const PROTECTIONS: [Protection; 4] = [READ, RW, Protection::ALL, Protection::EXECUTE];

/// A page of a task: of which object, which page of it, and what the task may do.
type Mapped = (ObjectId, u32, Protection);

/// What a machine is tried on.
pub enum On {
    /// A table that is asked before each access, with those rules.
    Rules(Rules),
    /// The same, and an engine with [`MEMORY`] pages.
    Engine(Box<dyn Engine>),
}

struct Pair<P> {
    machine: Machine<P>,
    world: World,
    /// The same in an engine and its memory.
    real: Option<Real>,
    rules: Rules,
    mapped: BTreeMap<(TaskId, u64), Mapped>,
    /// What objects hold: 0 where nothing is said.
    contents: BTreeMap<(ObjectId, u32), u64>,
    tasks: Vec<TaskId>,
    pinned: Vec<ObjectId>,
    paged: Vec<ObjectId>,
    rng: SmallRng,
    next: u32,
    /// How often each operation succeeded.
    successes: Successes,
}

impl<P: Placement + Clone> Pair<P> {
    fn new(rules: Rules, engine: Option<Box<dyn Engine>>, seed: u64) -> Pair<P> {
        Pair {
            real: engine.map(|engine| Real::new(engine, SWAP)),
            machine: Machine::new(rules, LIMITS, MEMORY, SWAP),
            world: World::new(rules, MEMORY, SWAP, LIMITS.chunk_pages),
            rules,
            mapped: BTreeMap::new(),
            contents: BTreeMap::new(),
            tasks: Vec::new(),
            pinned: Vec::new(),
            paged: Vec::new(),
            rng: SmallRng::seed_from_u64(seed),
            next: 1,
            successes: BTreeMap::new(),
        }
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.rng.random_range(0..of.len())])
    }

    fn object_in_use(&mut self) -> Option<ObjectId> {
        let objects: Vec<ObjectId> = self.mapped.values().map(|page| page.0).collect();
        self.pick(&objects)
    }

    /// One random operation; its actions are carried out, with a crash after each if `crashes`.
    fn step(&mut self, crashes: bool) {
        let contents = self.contents.clone();
        let mut actions = Vec::new();
        let (name, result) = match self.rng.random_range(0..100) {
            0..8 if self.tasks.len() < 3 => ("create task", self.create_task()),
            0..8 => ("destroy task", self.destroy_task(&mut actions)),
            8..34 => ("allocate", self.allocate(&mut actions)),
            34..52 => ("deallocate", self.deallocate(&mut actions)),
            52..62 => ("protect", self.protect(&mut actions)),
            62..65 => ("create object", self.create_object(&mut actions)),
            65..72 => ("map", self.map(&mut actions)),
            72..75 => ("pin", self.pin()),
            75..79 => ("unpin", self.unpin(&mut actions)),
            79..85 => ("compact", self.machine.compact(40, &mut actions).map(|_| ())),
            85..90 => ("swap out", self.swap_out(&mut actions)),
            90..96 => ("swap in", self.swap_in(&mut actions)),
            _ => ("fork", self.fork(&mut actions)),
        };
        *self.successes.entry(name).or_default() += u64::from(result.is_ok());
        let before = crashes.then(|| self.world.clone());
        self.world.carry_out(&actions);
        if let Some(real) = &mut self.real {
            actions.iter().for_each(|action| real.one(*action));
        }
        self.forget_freed();
        if let Some(before) = before {
            self.crash_after_each(&actions, before, &contents);
        }
    }

    fn create_task(&mut self) -> Result<(), Error> {
        let task = TaskId(self.next);
        self.next += 1;
        self.tasks.push(task);
        self.machine.create_task(task)
    }

    fn destroy_task(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let n = self.rng.random_range(0..self.tasks.len());
        let task = self.tasks.swap_remove(n);
        self.mapped.retain(|(of, _), _| *of != task);
        self.machine.destroy_task(task, actions)
    }

    /// An address of the task, or one near it.
    fn address(&mut self, task: TaskId) -> u64 {
        let addresses: Vec<u64> =
            self.mapped.range((task, 0)..=(task, u64::MAX)).map(|((_, page), _)| *page).collect();
        let near = self.pick(&addresses).unwrap_or(LIMITS.spacing_pages);
        near.saturating_sub(4) + self.rng.random_range(0..24)
    }

    fn allocate(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let task = self.pick(&self.tasks.clone()).ok_or(Error::Name)?;
        let pages = log_uniform(&mut self.rng, 40);
        let at = self.rng.random_bool(0.5).then(|| self.address(task));
        let protection = PROTECTIONS[self.rng.random_range(0..PROTECTIONS.len())];
        let start = self.machine.allocate(task, at, pages, protection, actions)?;
        assert!(at.is_none_or(|at| at == start));
        let entry =
            *self.machine.entries(task).find(|entry| entry.start <= start && start < entry.end()).unwrap();
        let offset = entry.offset + (start - entry.start) as u32;
        let used = self.mapped.values().filter(|page| page.0 == entry.object).map(|page| page.1 + 1).max();
        // A gap is as new as what lies behind it.
        let used = used.unwrap_or(0);
        let new = |page: u32| page >= offset && page < offset + pages || offset >= used && page >= used;
        self.contents.retain(|(object, page), _| *object != entry.object || !new(*page));
        for n in 0..pages {
            let page = (entry.object, offset + n, protection);
            assert_eq!(self.mapped.insert((task, start + u64::from(n)), page), None, "it was free");
        }
        Ok(())
    }

    fn deallocate(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let task = self.pick(&self.tasks.clone()).ok_or(Error::Name)?;
        let (start, pages) = (self.address(task), log_uniform(&mut self.rng, 40));
        self.machine.deallocate(task, start, pages, actions)?;
        self.mapped.retain(|(of, page), _| *of != task || !(start..start + u64::from(pages)).contains(page));
        Ok(())
    }

    fn protect(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let task = self.pick(&self.tasks.clone()).ok_or(Error::Name)?;
        let (start, pages) = (self.address(task), log_uniform(&mut self.rng, 20));
        let protection = PROTECTIONS[self.rng.random_range(0..PROTECTIONS.len())];
        self.machine.protect(task, start, pages, protection, actions)?;
        let within = (task, start)..(task, start + u64::from(pages));
        self.mapped.range_mut(within).for_each(|(_, page)| page.2 = protection);
        Ok(())
    }

    fn create_object(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let pages = self.rng.random_range(1..40);
        let cacheable = self.rng.random_bool(0.7);
        let object = self.machine.create_object(pages, Source::Pager, cacheable, actions)?;
        self.paged.push(object);
        self.contents.extend((0..pages).map(|page| ((object, page), paged(object.0, page))));
        Ok(())
    }

    fn map(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let task = self.pick(&self.tasks.clone()).ok_or(Error::Name)?;
        let object = self.pick(&self.paged.clone()).ok_or(Error::Name)?;
        let has = self.machine.object_pages(object)?;
        let offset = self.rng.random_range(0..has);
        let pages = self.rng.random_range(1..=has - offset);
        let start = match (self.rules.translates, self.machine.segment(object)) {
            (false, Ok(segment)) => u64::from(self.machine.memory().run(segment).unwrap().start + offset),
            _ if self.rng.random_bool(0.3) => 77_777 + u64::from(offset),
            _ => self.address(task),
        };
        let protection = PROTECTIONS[self.rng.random_range(0..PROTECTIONS.len())];
        let inheritance =
            [Inheritance::Share, Inheritance::Copy, Inheritance::None][self.rng.random_range(0..3)];
        let entry = Entry { start, pages, object, offset, protection, inheritance };
        self.machine.map(task, entry, actions)?;
        for n in 0..pages {
            let page = (object, offset + n, protection);
            assert_eq!(self.mapped.insert((task, start + u64::from(n)), page), None, "it was free");
        }
        Ok(())
    }

    fn pin(&mut self) -> Result<(), Error> {
        let object = self.object_in_use().ok_or(Error::Name)?;
        self.machine.pin(object)?;
        self.pinned.push(object);
        Ok(())
    }

    fn unpin(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let object = self.pick(&self.pinned.clone()).ok_or(Error::Name)?;
        let n = self.pinned.iter().position(|pinned| *pinned == object).unwrap();
        self.pinned.swap_remove(n);
        self.machine.unpin(object, actions)
    }

    fn swap_out(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let object = self.object_in_use().ok_or(Error::Name)?;
        self.machine.swap_out(object, actions)?;
        assert!(!self.pinned.contains(&object), "I/O goes to memory");
        Ok(())
    }

    fn swap_in(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let objects: Vec<ObjectId> = self.mapped.values().map(|page| page.0).collect();
        let swapped = objects.into_iter().find(|object| self.machine.segment(*object) == Err(Error::Swapped));
        self.machine.swap_in(swapped.ok_or(Error::Name)?, actions)
    }

    fn fork(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let parent = self.pick(&self.tasks.clone()).ok_or(Error::Name)?;
        let child = TaskId(self.next);
        self.next += 1;
        if self.tasks.len() > 3 {
            return Err(Error::Name);
        }
        self.machine.fork(parent, child, actions)?;
        self.tasks.push(child);
        for entry in self.machine.entries(child).copied().collect::<Vec<_>>() {
            for n in 0..entry.pages {
                let at = entry.start + u64::from(n);
                let (original, offset, protection) = self.mapped[&(parent, at)];
                assert_eq!(offset, entry.offset + n);
                assert_eq!(entry.inheritance == Inheritance::Share, original == entry.object);
                self.mapped.insert((child, at), (entry.object, offset, protection));
                if original != entry.object {
                    // The whole object was copied, what no entry maps included.
                    let end = self.machine.object_pages(original).unwrap();
                    let copied: Vec<_> = self.contents.range((original, 0)..(original, end)).collect();
                    let copied: Vec<_> = copied
                        .into_iter()
                        .map(|((_, page), value)| ((entry.object, *page), *value))
                        .collect();
                    self.contents.extend(copied);
                }
            }
        }
        Ok(())
    }

    /// Objects that are gone, and pages that were cut off, hold nothing any more.
    fn forget_freed(&mut self) {
        let records = &self.world.records;
        self.contents.retain(|(object, page), _| {
            records.get(&object.0).is_some_and(|(record, _)| *page < record.run.pages)
        });
        self.paged.retain(|object| records.contains_key(&object.0));
    }

    /// Writes through the hardware, and through the engine.
    fn write(&mut self) {
        let pages: Vec<_> = self.mapped.iter().map(|(at, page)| (*at, *page)).collect();
        let Some(((task, at), (object, offset, protection))) = self.pick(&pages) else { return };
        let token = self.rng.random_range(1..1 << 40);
        let page = self.world.hardware.access(task, at, Protection::WRITE);
        if let Ok(page) = page {
            assert!(self.rules.effective(protection).contains(Protection::WRITE));
            self.world.memory[page as usize] = token;
            self.contents.insert((object, offset), token);
        }
        if let Some(real) = &mut self.real {
            assert_eq!(real.write(task, at, token), page.is_ok(), "{task:?} {at}");
        }
    }

    /// What an engine lets tasks read is what the model says; so are the pages that it does not.
    fn check_real(&mut self) {
        let Some(real) = &mut self.real else { return };
        let near = self
            .mapped
            .keys()
            .flat_map(|(task, at)| [-1, 0, 1].map(|by| (*task, at.saturating_add_signed(by))));
        let pages: BTreeSet<(TaskId, u64)> = near.collect();
        let expected = pages.iter().map(|(task, at)| {
            let page = self.world.hardware.access(*task, *at, READ).ok()?;
            Some(self.world.memory[page as usize])
        });
        let found = real.read(pages.iter().copied());
        for (((task, at), expected), found) in pages.iter().zip(expected).zip(found) {
            assert_eq!(found, expected, "{task:?} {at}");
        }
    }

    fn check(&self) {
        assert!(self.world.note.is_none());
        for task in &self.tasks {
            let entries: Vec<&Entry> = self.machine.entries(*task).collect();
            let listed = entries.iter().flat_map(|entry| {
                (0..entry.pages).map(|n| {
                    ((*task, entry.start + u64::from(n)), (entry.object, entry.offset + n, entry.protection))
                })
            });
            let known = self.mapped.range((*task, 0)..=(*task, u64::MAX)).map(|(at, page)| (*at, *page));
            assert!(listed.eq(known), "entries of {task:?}");
            let merged = |pair: &[&Entry]| {
                pair[0].end() != pair[1].start
                    || pair[0].offset + pair[0].pages != pair[1].offset
                    || (pair[0].object, pair[0].protection, pair[0].inheritance)
                        != (pair[1].object, pair[1].protection, pair[1].inheritance)
            };
            assert!(entries.windows(2).all(merged), "map entries are merged");
            self.check_gaps(*task);
        }
        for ((task, at), (object, offset, protection)) in &self.mapped {
            let access = |wanted| self.world.hardware.access(*task, *at, wanted);
            let Ok(segment) = self.machine.segment(*object) else {
                assert!(access(READ).is_err(), "swapped out");
                continue;
            };
            let page = self.machine.memory().run(segment).unwrap().start + offset;
            for wanted in [READ, Protection::WRITE, Protection::EXECUTE] {
                let allowed = self.rules.effective(*protection).contains(wanted);
                assert_eq!(access(wanted).ok(), allowed.then_some(page), "{task:?} {at}");
            }
        }
        self.check_contents();
    }

    /// What the hardware lets a task touch without an entry is of an object that the task maps.
    fn check_gaps(&self, task: TaskId) {
        for (_, descriptor) in self.world.hardware.of(task) {
            let whole = self.machine.entries(task).any(|entry| {
                let segment = self.machine.segment(entry.object);
                segment
                    .is_ok_and(|segment| self.machine.memory().run(segment).unwrap().contains(descriptor.run))
            });
            assert!(whole, "{descriptor:?} of {task:?} is of no object that it maps");
        }
    }

    fn check_contents(&self) {
        let mut pages = 0;
        for (object, (record, swapped)) in &self.world.records {
            assert_eq!(record.filled, record.run.pages, "all pages have contents");
            let place = if *swapped { &self.world.swap } else { &self.world.memory };
            for offset in 0..record.run.pages {
                let expected = self.contents.get(&(ObjectId(*object), offset)).copied().unwrap_or(0);
                let found = place[(record.run.start + offset) as usize];
                assert_eq!(found, expected, "object {object}, page {offset}");
            }
            pages += if *swapped { 0 } else { record.run.pages };
        }
        assert_eq!(pages + self.machine.memory().free_pages(), MEMORY);
    }

    /// Whoever is killed after any of the actions leaves each object whole at one place.
    fn crash_after_each(
        &self,
        actions: &[Action],
        mut world: World,
        contents: &BTreeMap<(ObjectId, u32), u64>,
    ) {
        let before: Vec<u64> = world.records.keys().copied().collect();
        for action in actions {
            world.one(*action);
            let fresh: Machine<P> = Machine::new(self.rules, LIMITS, MEMORY, SWAP);
            let machine = fresh.recover(world.remains(), |_| Source::Zero).expect("no page is of two");
            let memory: Vec<Record> = machine.memory().records().collect();
            let swap: Vec<Record> = machine.swap().records().collect();
            for object in &before {
                let is_kept = self.world.records.contains_key(object);
                let found = memory.iter().chain(&swap).filter(|record| record.object == *object).count();
                assert!(found == 1 || found == 0 && !is_kept, "object {object} is at {found} places");
            }
            let places = [(&memory, &world.memory), (&swap, &world.swap)];
            for (record, place) in
                places.iter().flat_map(|(records, place)| records.iter().map(move |r| (r, place)))
            {
                let is_known =
                    before.contains(&record.object) || self.world.records.contains_key(&record.object);
                // What a refused call made and dropped again is nobody's.
                for offset in (0..record.filled).filter(|_| is_known) {
                    let page = (ObjectId(record.object), offset);
                    let found = place[(record.run.start + offset) as usize];
                    let may =
                        [contents.get(&page), self.contents.get(&page)].map(|value| *value.unwrap_or(&0));
                    assert!(may.contains(&found), "{page:?} after {action:?}: {found}, and not {may:?}");
                }
            }
        }
    }
}

/// How often each operation succeeded.
pub type Successes = BTreeMap<&'static str, u64>;

/// Random operations beside the model: of a machine that has the engine's rules and that engine, or
/// those rules.
pub fn run<P: Placement + Clone>(on: On, operations: u64, seed: u64) -> Successes {
    let (rules, engine) = match on {
        On::Engine(engine) => (*engine.rules(), Some(engine)),
        On::Rules(rules) => (rules, None),
    };
    let mut pair: Pair<P> = Pair::new(rules, engine, seed);
    for n in 0..operations {
        pair.step(n % 4 == 0);
        pair.write();
        if n % 4 == 0 {
            pair.check();
        }
        if n % 16 == 0 {
            pair.check_real();
        }
    }
    pair.successes
}
