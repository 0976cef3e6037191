//! Objects that their users let move: who holds which, and who is asked for what. A value: what it says is carried out by the
//! host, no thread of which waits for an answer.
//!
//! A session that is given a place *holds* it until it says that it does not (`Released`), goes, or closes the object. What
//! needs such an object to move is a *job*: it runs once nobody holds any of its objects, or when the time is up, and then finds
//! them in use. Whoever asks where an object lies, of which there is a job, hears it after the job. So who answers a revoke
//! cannot be back before the others have answered.

use commonhold_object::{ObjectId, SessionId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// So long a holder may take to answer. Then the move is given up.
pub const DEADLINE_MS: u64 = 2000;

/// What happens.
#[allow(missing_docs)] // what the fields are is said above, and by their names
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job needs these objects to be held by nobody.
    Wanted { job: u64, objects: Vec<ObjectId> },
    /// It has run.
    Done { job: u64 },
    /// A session asks where the object lies; the job tells it.
    Asks { session: SessionId, object: ObjectId, job: u64 },
    /// A session holds the place no more that it was given under this number.
    Released { session: SessionId, object: ObjectId, given: u64 },
    /// A session has the object open, and it may not move.
    Pinned { session: SessionId, object: ObjectId },
    /// A session has closed the object, or is over and had it open.
    Closed { session: SessionId, object: ObjectId },
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[allow(missing_docs)] // as above
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell the session that it is to give up the place that it was given under this number.
    Revoke { session: SessionId, object: ObjectId, given: u64 },
    /// Run the job.
    Run { job: u64 },
}

/// Who holds what.
#[derive(Debug, Default)]
pub struct Revocations {
    objects: HashMap<ObjectId, Movable>,
    /// Of each job its objects, and how many of them are held.
    jobs: HashMap<u64, (Vec<ObjectId>, usize)>,
    /// Of how many objects somebody is waited for. Asked for at each event: there may be thousands of objects.
    waiting: usize,
    given: u64,
}

/// An object that somebody lets move.
#[derive(Debug, Default)]
struct Movable {
    holders: BTreeMap<SessionId, Held>,
    /// Those who have not answered, and until when they may.
    waiting: Option<(BTreeSet<SessionId>, u64)>,
    /// Jobs that wait until they have.
    parked: Vec<u64>,
    /// Jobs that wait or run.
    jobs: usize,
    /// Those who tell where it lies then.
    deferred: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    given: u64,
    holds: bool,
    /// It was told to give up this place.
    asked: bool,
    arena: ObjectId,
}

impl Revocations {
    /// Numbers places from `first` on: those of the next host process are larger.
    pub fn new(first: u64) -> Revocations {
        Revocations { given: first, ..Revocations::default() }
    }

    /// Whether nobody lets anything move.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether a deadline has to be looked at.
    pub fn waits(&self) -> bool {
        self.waiting > 0
    }

    /// How many sessions let the object move.
    pub fn holders(&self, object: ObjectId) -> u64 {
        self.objects.get(&object).map_or(0, |object| object.holders.len() as u64)
    }

    /// How many of them do not hold it now.
    pub fn released(&self, object: ObjectId) -> u64 {
        let holders = self.objects.get(&object).map(|object| object.holders.values());
        holders.map_or(0, |held| held.filter(|held| !held.holds).count() as u64)
    }

    /// The arena that a session was given last for an object that it lets move.
    pub fn arena_of(&self, session: SessionId, object: ObjectId) -> Option<ObjectId> {
        self.objects.get(&object)?.holders.get(&session).map(|held| held.arena)
    }

    /// A session is told where an object lies, and holds it from now on; gives the number for that.
    pub fn give(&mut self, session: SessionId, object: ObjectId, arena: ObjectId) -> u64 {
        self.given += 1;
        let held = Held { given: self.given, holds: true, asked: false, arena };
        self.objects.entry(object).or_default().holders.insert(session, held);
        self.given
    }

    /// A session lets an object move that it had open when this host process began, and does not use it.
    pub fn does_not_hold(&mut self, session: SessionId, object: ObjectId, arena: ObjectId) {
        self.given += 1;
        let held = Held { given: self.given, holds: false, asked: false, arena };
        self.objects.entry(object).or_default().holders.entry(session).or_insert(held);
    }

    /// Takes an event in.
    pub fn handle(&mut self, event: Event, now_ms: u64) -> Vec<Action> {
        let actions = self.act_on(event, now_ms);
        let waiting = || self.objects.values().filter(|object| object.waiting.is_some()).count();
        debug_assert!(
            self.objects.len() > 64 || self.waiting == waiting(),
            "it is counted wrongly who waits"
        );
        actions
    }

    fn act_on(&mut self, event: Event, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Wanted { job, objects } => self.want(job, objects, now_ms, &mut actions),
            Event::Done { job } => self.done(job, &mut actions),
            Event::Asks { session, object, job } => match self.objects.get_mut(&object) {
                Some(found)
                    if found.jobs > 0 && !found.holders.get(&session).is_some_and(|held| held.holds) =>
                {
                    found.deferred.push(job);
                }
                _ => actions.push(Action::Run { job }),
            },
            Event::Released { session, object, given } => {
                let found = self.objects.get(&object);
                let held = found.and_then(|found| found.holders.get(&session));
                // Who was not asked, or not for this, has said nothing. An answer may come when nobody waits for it any more.
                let asked = held.filter(|held| held.given == given && held.holds && held.asked);
                if let Some(held) = asked.copied() {
                    self.answered(session, object, Some(Held { holds: false, ..held }), &mut actions);
                }
            }
            Event::Pinned { session, object } => {
                if self.answered(session, object, None, &mut actions) {
                    self.settle(object, &mut actions);
                }
            }
            Event::Closed { session, object } => drop(self.answered(session, object, None, &mut actions)),
            Event::Tick => {
                let is_late =
                    |object: &Movable| object.waiting.as_ref().is_some_and(|(_, until)| *until <= now_ms);
                let late: Vec<ObjectId> =
                    self.objects.iter().filter(|(_, object)| is_late(object)).map(|(id, _)| *id).collect();
                late.into_iter().for_each(|object| self.settle(object, &mut actions));
            }
        }
        actions
    }

    fn want(&mut self, job: u64, objects: Vec<ObjectId>, now_ms: u64, actions: &mut Vec<Action>) {
        let mut left = 0;
        for id in &objects {
            let object = self.objects.entry(*id).or_default();
            object.jobs += 1;
            if object.waiting.is_none() {
                let hold = object.holders.iter_mut().filter(|(_, held)| held.holds);
                let ask = |(session, held): (&SessionId, &mut Held)| {
                    held.asked = true;
                    (*session, held.given)
                };
                let asked: BTreeMap<SessionId, u64> = hold.map(ask).collect();
                if asked.is_empty() {
                    continue;
                }
                object.waiting = Some((asked.keys().copied().collect(), now_ms + DEADLINE_MS));
                self.waiting += 1;
                let revoke = |(session, given)| Action::Revoke { session, object: *id, given };
                actions.extend(asked.into_iter().map(revoke));
            }
            object.parked.push(job);
            left += 1;
        }
        self.jobs.insert(job, (objects, left));
        if left == 0 {
            actions.push(Action::Run { job });
        }
    }

    fn done(&mut self, job: u64, actions: &mut Vec<Action>) {
        let Some((objects, _)) = self.jobs.remove(&job) else { return };
        for id in objects {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            object.jobs -= 1;
            if object.jobs == 0 {
                let deferred = std::mem::take(&mut object.deferred);
                actions.extend(deferred.into_iter().map(|job| Action::Run { job }));
            }
            self.forget_if_unused(id);
        }
    }

    /// A session holds an object no more, or lets it not move any more (none). Whether it was known.
    fn answered(
        &mut self,
        session: SessionId,
        id: ObjectId,
        held: Option<Held>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(object) = self.objects.get_mut(&id) else { return false };
        let known = match held {
            Some(held) => object.holders.insert(session, held),
            None => object.holders.remove(&session),
        };
        let last = object
            .waiting
            .as_mut()
            .is_some_and(|(waiting, _)| waiting.remove(&session) && waiting.is_empty());
        if last {
            self.settle(id, actions);
        }
        self.forget_if_unused(id);
        known.is_some()
    }

    /// Nobody is waited for any more: the jobs run that wait for nothing else.
    fn settle(&mut self, id: ObjectId, actions: &mut Vec<Action>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        self.waiting -= usize::from(object.waiting.take().is_some());
        for job in std::mem::take(&mut object.parked) {
            if let Some((_, left)) = self.jobs.get_mut(&job) {
                *left -= 1;
                if *left == 0 {
                    actions.push(Action::Run { job });
                }
            }
        }
    }

    fn forget_if_unused(&mut self, id: ObjectId) {
        if self.objects.get(&id).is_some_and(|object| object.holders.is_empty() && object.jobs == 0) {
            self.objects.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const X: ObjectId = ObjectId(10);
    const Y: ObjectId = ObjectId(11);
    const ARENA: ObjectId = ObjectId(99);

    fn run(job: u64) -> Vec<Action> {
        vec![Action::Run { job }]
    }

    fn wanted(job: u64, objects: &[ObjectId]) -> Event {
        Event::Wanted { job, objects: objects.to_vec() }
    }

    fn held() -> (Revocations, [u64; 2]) {
        let mut value = Revocations::new(100);
        let given = [A, B].map(|session| value.give(session, X, ARENA));
        (value, given)
    }

    #[test]
    fn a_job_runs_when_all_have_answered_and_who_asks_hears_after_it() {
        let (mut value, given) = held();
        let asked = value.handle(wanted(1, &[X]), 0);
        assert_eq!(asked.len(), 2);
        assert!(asked.contains(&Action::Revoke { session: A, object: X, given: given[0] }));
        assert_eq!(value.handle(Event::Released { session: A, object: X, given: given[0] }, 1), []);
        assert_eq!((value.holders(X), value.released(X)), (2, 1));
        assert_eq!(value.handle(Event::Asks { session: A, object: X, job: 7 }, 1), []);
        assert_eq!(value.handle(Event::Released { session: B, object: X, given: given[1] }, 2), run(1));
        assert_eq!(value.handle(wanted(2, &[X]), 3), run(2), "nobody holds it");
        assert_eq!(value.handle(Event::Done { job: 1 }, 3), []);
        assert_eq!(value.handle(Event::Done { job: 2 }, 3), run(7));
        assert!(value.give(A, X, ARENA) > given[1]);
        assert_eq!(value.released(X), 1);
        assert!(!value.waits());
    }

    #[test]
    fn a_holder_that_does_not_answer_ends_the_wait_and_may_answer_late() {
        let (mut value, given) = held();
        value.handle(wanted(1, &[X]), 0);
        value.handle(Event::Released { session: A, object: X, given: given[0] }, 1);
        assert_eq!(value.handle(Event::Tick, DEADLINE_MS - 1), []);
        assert_eq!(value.handle(Event::Tick, DEADLINE_MS), run(1));
        assert_eq!(value.released(X), 1, "it is in use");
        assert_eq!(value.handle(Event::Released { session: B, object: X, given: given[1] }, 5000), []);
        assert_eq!(value.released(X), 2, "it was asked, and does not use it");
        assert_eq!(value.handle(Event::Done { job: 1 }, 5000), []);
        assert_eq!(value.handle(Event::Asks { session: A, object: X, job: 2 }, 5000), run(2));
    }

    #[test]
    fn answers_that_nobody_asked_for_are_none() {
        let (mut value, given) = held();
        for session in [A, B, SessionId(9)] {
            assert_eq!(value.handle(Event::Released { session, object: X, given: given[0] }, 0), []);
            assert_eq!(value.handle(Event::Released { session, object: Y, given: given[0] }, 0), []);
        }
        value.handle(wanted(1, &[X]), 0);
        // In another's name, under another number, twice.
        for (session, given) in [(B, given[0]), (A, given[1]), (SessionId(9), given[0]), (A, 0)] {
            assert_eq!(value.handle(Event::Released { session, object: X, given }, 0), []);
        }
        assert_eq!(value.released(X), 0);
        for _ in 0..2 {
            assert_eq!(value.handle(Event::Released { session: A, object: X, given: given[0] }, 0), []);
        }
        assert_eq!((value.released(X), value.waits()), (1, true));
    }

    #[test]
    fn who_says_that_it_does_not_hold_what_it_holds_has_said_nothing() {
        let (mut value, _) = held();
        value.does_not_hold(A, X, ARENA);
        value.does_not_hold(SessionId(3), X, ARENA);
        assert_eq!((value.holders(X), value.released(X)), (3, 1));
    }

    #[test]
    fn who_closes_has_answered_and_who_pins_ends_the_wait() {
        let (mut value, _) = held();
        value.handle(wanted(1, &[X]), 0);
        assert_eq!(value.handle(Event::Closed { session: A, object: X }, 0), []);
        assert_eq!(value.handle(Event::Closed { session: B, object: X }, 0), run(1));
        assert_eq!(value.holders(X), 0);
        value.handle(Event::Done { job: 1 }, 0);
        assert!(value.is_empty());
        let (mut value, _) = held();
        value.handle(wanted(1, &[X]), 0);
        assert_eq!(value.handle(Event::Pinned { session: A, object: X }, 0), run(1));
        assert_eq!((value.holders(X), value.released(X)), (1, 0));
    }

    #[test]
    fn a_job_of_several_objects_waits_for_all_of_them() {
        let (mut value, given) = held();
        let other = value.give(A, Y, ARENA);
        assert_eq!(value.handle(wanted(1, &[X, Y, ObjectId(12)]), 0).len(), 3);
        assert_eq!(value.handle(Event::Released { session: A, object: Y, given: other }, 0), []);
        assert_eq!(value.handle(Event::Asks { session: A, object: Y, job: 5 }, 0), [], "it stays released");
        value.handle(Event::Released { session: A, object: X, given: given[0] }, 0);
        assert_eq!(value.handle(Event::Closed { session: B, object: X }, 0), run(1));
        assert_eq!(value.handle(Event::Done { job: 1 }, 0), run(5));
        [X, Y].into_iter().for_each(|object| drop(value.handle(Event::Closed { session: A, object }, 0)));
        assert!(value.is_empty());
    }
}
