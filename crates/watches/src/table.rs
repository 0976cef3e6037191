//! The watches of one host.

use crate::range::Range;
use commonhold_object::{ObjectId, SessionId};
use std::collections::HashMap;

/// Whose a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Which client's.
    pub session: SessionId,
    /// By which of the objects that it has open.
    pub object: ObjectId,
    /// Whose client it is.
    pub uid: u32,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// That of a client.
    Client(usize),
    /// That of a user.
    User(usize),
}

#[derive(Debug)]
struct Watch<T> {
    number: u64,
    who: Who,
    range: Range,
    end: T,
}

/// All watches, by the identity of what they watch. `T`: what wakes one.
#[derive(Debug)]
pub struct Table<T> {
    watches: HashMap<u128, Vec<Watch<T>>>,
    of_client: HashMap<SessionId, usize>,
    of_user: HashMap<u32, usize>,
    last: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let (watches, of_client, of_user) = Default::default();
        Table { watches, of_client, of_user, last: 0 }
    }
}

impl<T: Clone> Table<T> {
    /// Refuses one more of a client that has `most` (of which and of whose user).
    pub fn check_room(&self, who: Who, of_client: usize, of_user: usize) -> Result<(), Limit> {
        let has = |count: Option<&usize>| count.copied().unwrap_or_default();
        match (has(self.of_client.get(&who.session)), has(self.of_user.get(&who.uid))) {
            (count, _) if count >= of_client => Err(Limit::Client(count)),
            (_, count) if count >= of_user => Err(Limit::User(count)),
            _ => Ok(()),
        }
    }

    /// Adds one; gives its number.
    pub fn add(&mut self, object: u128, who: Who, range: Range, end: T) -> u64 {
        self.last += 1;
        let number = self.last;
        self.watches.entry(object).or_default().push(Watch { number, who, range, end });
        *self.of_client.entry(who.session).or_default() += 1;
        *self.of_user.entry(who.uid).or_default() += 1;
        number
    }

    /// What wakes those that watch bytes of which it says so, and their numbers.
    pub fn touched(&self, object: u128, touches: impl Fn(Range) -> bool) -> Vec<(u64, T)> {
        let of_object = self.watches.get(&object).into_iter().flatten();
        of_object
            .filter(|watch| touches(watch.range))
            .map(|watch| (watch.number, watch.end.clone()))
            .collect()
    }

    /// What wakes the watches of a user.
    pub fn of_user(&self, uid: u32) -> Vec<(u64, T)> {
        let all = self.watches.values().flatten().filter(|watch| watch.who.uid == uid);
        all.map(|watch| (watch.number, watch.end.clone())).collect()
    }

    /// Takes out those of a client of which it says so. Who has none costs nothing, however many others have.
    pub fn remove_of(&mut self, session: SessionId, gone: impl Fn(u64, ObjectId) -> bool) {
        if self.of_client.contains_key(&session) {
            self.remove_if(|number, who| who.session == session && gone(number, who.object));
        }
    }

    /// Takes those out of which it says so.
    pub fn remove_if(&mut self, gone: impl Fn(u64, Who) -> bool) {
        let (of_client, of_user) = (&mut self.of_client, &mut self.of_user);
        self.watches.retain(|_, watches| {
            watches.retain(|watch| {
                let goes = gone(watch.number, watch.who);
                if goes {
                    less(of_client, watch.who.session);
                    less(of_user, watch.who.uid);
                }
                !goes
            });
            !watches.is_empty()
        });
    }
}

fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_touches_who_watches_a_byte_of_it_and_what_ended_is_not_counted() {
        let mut table = Table::default();
        let who = |session, uid| Who { session: SessionId(session), object: ObjectId(session), uid };
        let range = |first, length| Range::new(first, length).unwrap();
        let first = table.add(1, who(1, 10), range(0, 8), "a");
        table.add(1, who(2, 10), range(8, 8), "b");
        table.add(2, who(2, 10), Range::ALL, "c");
        let touched = |table: &Table<&'static str>, object, range: Range| {
            table.touched(object, |one| range.overlaps(one)).into_iter().map(|(_, end)| end).collect()
        };
        let both: Vec<&str> = touched(&table, 1, range(7, 2));
        assert_eq!(both, ["a", "b"]);
        assert_eq!(touched(&table, 1, range(8, 1)), ["b"]);
        assert_eq!(touched(&table, 3, Range::ALL), [""; 0]);
        assert_eq!(table.check_room(who(2, 10), 2, 9), Err(Limit::Client(2)));
        assert_eq!(table.check_room(who(3, 10), 2, 3), Err(Limit::User(3)));
        assert_eq!(table.check_room(who(3, 11), 2, 3), Ok(()));
        table.remove_if(|number, _| number == first);
        assert_eq!(table.check_room(who(1, 11), 1, 9), Ok(()));
        table.remove_of(SessionId(1), |_, _| true);
        table.remove_of(SessionId(2), |_, object| object == ObjectId(7));
        assert_eq!(table.check_room(who(2, 10), 2, 9), Err(Limit::Client(2)));
        table.remove_of(SessionId(2), |_, object| object == ObjectId(2));
        assert!(table.watches.is_empty() && table.of_client.is_empty() && table.of_user.is_empty());
    }
}
