//! Who is expected back after the death of host and keeper, and which objects wait for them. There may be thousands of
//! either, and all come at once: what one arrival costs does not depend on how many are still to come.

use super::clients::{ClientList, Expected};
use super::lock;
use commonhold_object::{Error, ErrorKind, ObjectId, Result};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long others wait for a client that is expected back.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked at which of the expected processes still live: that is a file of each.
const LOOKS_APART: Duration = Duration::from_millis(50);

/// The clients that are expected back.
#[derive(Default)]
pub struct Returning {
    expected: Mutex<Expectations>,
    changed: Condvar,
    /// Objects that were waited for, until it is settled what became of them.
    unsettled: Mutex<HashSet<ObjectId>>,
    /// Whether there are any.
    under_way: AtomicBool,
    pub(super) one_at_a_time: Mutex<()>,
    /// `live/clients`.
    pub(super) list: Mutex<ClientList>,
}

#[derive(Default)]
struct Expectations {
    clients: HashMap<u64, Expected>,
    /// How many of them have an object.
    of_object: HashMap<ObjectId, usize>,
    /// Objects for which nobody is expected any more, until somebody settles them.
    released: Vec<ObjectId>,
    /// Objects to which somebody may have written whose page tables nobody can ask any more.
    unsure: HashSet<ObjectId>,
    looked: Option<Instant>,
}

impl Expectations {
    fn add(&mut self, client: Expected) {
        client.objects.iter().for_each(|id| *self.of_object.entry(*id).or_default() += 1);
        if let Some(before) = self.clients.insert(client.session, client) {
            self.let_go(&before);
        }
    }

    fn remove(&mut self, session: u64) {
        if let Some(client) = self.clients.remove(&session) {
            self.let_go(&client);
        }
    }

    fn let_go(&mut self, client: &Expected) {
        for id in &client.objects {
            let Some(count) = self.of_object.get_mut(id) else { continue };
            *count -= 1;
            if *count == 0 {
                self.of_object.remove(id);
                self.released.push(*id);
            }
        }
    }

    /// Expects nobody who is dead, unless that was looked at just now.
    fn look(&mut self, now: Instant) {
        if self.clients.is_empty() || self.looked.is_some_and(|at| now.duration_since(at) < LOOKS_APART) {
            return;
        }
        self.looked = Some(now);
        let dead: Vec<u64> = self.clients.values().filter(|c| !c.lives()).map(|c| c.session).collect();
        for session in dead {
            self.unsure.extend(self.clients[&session].objects.iter().copied());
            self.remove(session);
        }
    }
}

impl Returning {
    /// Expects those of these clients that live. Gives the objects that they have.
    pub(super) fn expect(&self, clients: impl IntoIterator<Item = Expected>) -> HashSet<ObjectId> {
        let mut unsettled = lock(&self.unsettled);
        let mut expected = lock(&self.expected);
        let (alive, dead): (Vec<_>, Vec<_>) = clients.into_iter().partition(Expected::lives);
        alive.into_iter().for_each(|client| expected.add(client));
        // What nobody else has is gone with them.
        let had_by_dead = dead.into_iter().flat_map(|client| client.objects);
        let unsure = had_by_dead.filter(|id| expected.of_object.contains_key(id)).collect();
        expected.unsure = unsure;
        *unsettled = expected.of_object.keys().copied().collect();
        self.under_way.store(!unsettled.is_empty(), Ordering::Release);
        unsettled.clone()
    }

    /// Waits until every living client that had the object is back, or says who is not.
    pub fn wait_for(&self, object: ObjectId) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let mut expected = lock(&self.expected);
        loop {
            let now = Instant::now();
            expected.look(now);
            if !expected.of_object.contains_key(&object) {
                return Ok(());
            }
            if now >= until {
                let missing = expected.clients.values().find(|client| client.objects.contains(&object));
                return missing.map_or(Ok(()), |client| Err(still_away(client.pid)));
            }
            let waited = self.changed.wait_timeout(expected, LOOKS_APART);
            expected = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether nobody is expected any more who still lives.
    pub fn nobody_is_missing(&self) -> bool {
        let mut expected = lock(&self.expected);
        expected.look(Instant::now());
        expected.clients.is_empty()
    }

    /// Whether nobody is expected any more.
    pub fn is_over(&self) -> bool {
        lock(&self.expected).clients.is_empty()
    }

    /// How many are expected.
    pub(super) fn count(&self) -> usize {
        lock(&self.expected).clients.len()
    }

    /// Who is expected under the number of that session.
    pub(super) fn arrived(&self, session: u64) -> Option<Expected> {
        lock(&self.expected).clients.get(&session).cloned()
    }

    /// Those who are expected back.
    pub(super) fn expected_back(&self) -> Vec<Expected> {
        lock(&self.expected).clients.values().cloned().collect()
    }

    /// A process has brought everything, objects (`has` says which) and mappings, that it had in that session (`None`: in all).
    /// Gives the sessions that are over with that: those of the same process which had no more than that are, too. Where two
    /// copies of the library are in a process each has a session, and brings what is its own.
    pub(super) fn finished(
        &self,
        pid: u32,
        session: Option<u64>,
        has: impl Fn(ObjectId) -> bool,
    ) -> Vec<u64> {
        let mut expected = lock(&self.expected);
        let is_over = |client: &&Expected| {
            let is_it = session.is_none_or(|session| session == client.session);
            client.pid == pid && (is_it || client.objects.iter().all(|id| has(*id)))
        };
        let former: Vec<u64> = expected.clients.values().filter(is_over).map(|c| c.session).collect();
        let had = former.iter().flat_map(|session| expected.clients[session].objects.clone());
        let not_brought: Vec<ObjectId> = had.filter(|id| !has(*id)).collect();
        expected.unsure.extend(not_brought);
        former.iter().for_each(|session| expected.remove(*session));
        self.changed.notify_all();
        former
    }

    /// A mapping of a client that comes back was refused: where it wrote nobody knows.
    pub(super) fn is_unsure_of(&self, object: ObjectId) {
        let mut expected = lock(&self.expected);
        if expected.of_object.contains_key(&object) {
            expected.unsure.insert(object);
        }
    }

    /// Whether somebody may have written to the object of whom that cannot be known. Asked once.
    pub(super) fn was_unsure_of(&self, object: ObjectId) -> bool {
        lock(&self.expected).unsure.remove(&object)
    }

    /// Whether somebody who lives has pages of the object that the host does not know of yet.
    pub(super) fn expects(&self, object: ObjectId) -> bool {
        lock(&self.expected).of_object.contains_key(&object)
    }

    /// Calls `publish` with whether clients may still bring pages of the object; nobody settles it meanwhile.
    pub(super) fn publish(&self, object: ObjectId, publish: impl FnOnce(bool)) {
        let unsettled = lock(&self.unsettled);
        publish(unsettled.contains(&object));
    }

    /// Whether it is not settled yet what became of some objects.
    pub fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire)
    }

    /// Some client ended: whoever waits looks again.
    pub fn departed(&self) {
        lock(&self.expected).look(Instant::now());
        self.changed.notify_all();
    }

    /// Calls `begin` and then `settle` with the objects whose clients are all back by now, or dead, each once. Nobody
    /// publishes an object while `settle` runs. Gives those objects.
    pub(super) fn settle(
        &self,
        begin: impl FnOnce(&[ObjectId]),
        settle: impl FnOnce(&[ObjectId]),
    ) -> Vec<ObjectId> {
        let mut now = {
            let unsettled = lock(&self.unsettled);
            let mut expected = lock(&self.expected);
            expected.look(Instant::now());
            let mut now = std::mem::take(&mut expected.released);
            now.retain(|id| unsettled.contains(id));
            now
        };
        now.sort_unstable();
        now.dedup();
        if now.is_empty() {
            return now;
        }
        begin(&now);
        let mut unsettled = lock(&self.unsettled);
        settle(&now);
        now.iter().for_each(|id| _ = unsettled.remove(id));
        self.under_way.store(!unsettled.is_empty(), Ordering::Release);
        self.changed.notify_all();
        now
    }
}

fn still_away(pid: u32) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!(
            "process {pid} holds the newest pages of this object and has not come back since host and keeper died: let \
             it run on (is it stopped?) or end it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_sys::process;

    fn client(session: u64, pid: u32, objects: &[u64]) -> Expected {
        let start_ticks = process::identity(pid).map_or(1, |who| who.start_ticks);
        Expected { session, pid, start_ticks, objects: objects.iter().map(|id| ObjectId(*id)).collect() }
    }

    #[test]
    fn an_object_is_settled_once_when_the_last_who_has_it_is_back() {
        // Two processes that live for as long as this test.
        let (me, init) = (std::process::id(), 1);
        let returning = Returning::default();
        let objects = returning.expect([client(1, me, &[10, 11]), client(2, init, &[11])]);
        assert_eq!(objects.len(), 2);
        assert!(returning.is_under_way() && returning.expects(ObjectId(10)));
        assert_eq!(returning.settle(|_| {}, |_| panic!("nobody is back")), []);
        assert_eq!(returning.finished(me, None, |_| true), [1]);
        assert_eq!(returning.settle(|_| {}, |_| returning.publish_is_shut()), [ObjectId(10)]);
        assert!(returning.is_under_way() && returning.expects(ObjectId(11)));
        assert!(!returning.expects(ObjectId(10)) && returning.wait_for(ObjectId(10)).is_ok());
        assert_eq!(returning.finished(init, None, |id| id == ObjectId(10)), [2]);
        assert_eq!(returning.settle(|_| {}, |_| {}), [ObjectId(11)]);
        assert!(!returning.was_unsure_of(ObjectId(10)), "whoever had it brought it");
        assert!(returning.was_unsure_of(ObjectId(11)) && !returning.was_unsure_of(ObjectId(11)), "once");
        assert_eq!(returning.settle(|_| {}, |_| panic!("it is settled")), []);
        assert!(!returning.is_under_way() && returning.is_over());
    }

    #[test]
    fn each_session_of_a_process_is_waited_for() {
        let me = std::process::id();
        let returning = Returning::default();
        // Another copy of the library, and an attempt to come back that was cut short.
        returning.expect([client(1, me, &[10]), client(2, me, &[11, 12]), client(3, me, &[10])]);
        let mut over = returning.finished(me, Some(1), |id| id == ObjectId(10));
        over.sort_unstable();
        assert_eq!(over, [1, 3]);
        assert!(!returning.expects(ObjectId(10)) && returning.expects(ObjectId(11)));
        assert_eq!(returning.finished(me, Some(2), |_| false), [2]);
        assert!(returning.is_over());
    }

    #[test]
    fn nobody_waits_for_the_dead() {
        let returning = Returning::default();
        let mut dead = client(1, std::process::id(), &[10]);
        dead.start_ticks += 1; // another process had the number
        let alive = client(2, std::process::id(), &[11]);
        returning.expect([dead.clone(), alive]);
        returning.wait_for(ObjectId(10)).unwrap();
        assert_eq!((returning.count(), returning.was_unsure_of(ObjectId(10))), (1, false));
        dead.objects = [ObjectId(10), ObjectId(11)].into();
        returning.expect([dead]);
        assert!(returning.was_unsure_of(ObjectId(11)) && !returning.was_unsure_of(ObjectId(10)));
    }

    impl Returning {
        /// What is being settled is not published meanwhile.
        fn publish_is_shut(&self) {
            assert!(self.unsettled.try_lock().is_err());
        }
    }
}
