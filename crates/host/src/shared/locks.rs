//! Who holds which pages of one shared object, and who waits: at the object's home. Pure: who is let in is said to the
//! caller.
//!
//! Hosts exclude each other, processes of one host do not (docs/LOCKS.md). Requests are served in the order in which they
//! came, but for those that nobody before them is in the way of. Who would wait for itself is refused.

use commonhold_coherence::HostId;
use commonhold_object::{PageRange, SessionId};
use std::collections::VecDeque;

/// A process of some host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its host.
    pub host: HostId,
    /// Its session there.
    pub session: SessionId,
}

/// One run of pages that somebody holds, or wants.
#[derive(Debug)]
struct Lock {
    owner: Owner,
    pages: PageRange,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is held.
    Held,
    /// It waits: whatever lets it in names it.
    Waits,
    /// It would wait for its own process, or for one that waits for it.
    Deadlock,
}

/// The locks of one object. `W`: what the caller knows a waiting request by.
#[derive(Debug)]
pub struct Locks<W> {
    held: Vec<Lock>,
    waiting: VecDeque<(Lock, W)>,
    /// It is not known yet who holds what: nobody is let in.
    closed: bool,
}

fn is_in_the_way(of: &Lock, other: &Lock) -> bool {
    of.owner.host != other.owner.host && !of.pages.intersect(other.pages).is_empty()
}

impl<W> Locks<W> {
    /// Nobody holds anything; or, if it is `closed`, that is not known before [`open`](Self::open).
    pub fn new(closed: bool) -> Locks<W> {
        Locks { held: Vec::new(), waiting: VecDeque::new(), closed }
    }

    /// Whoever held pages has said so. Gives who holds what it waited for now.
    pub fn open(&mut self) -> Vec<W> {
        self.closed = false;
        self.let_in()
    }

    /// A process wants pages. `waiting` makes what it is known by if it must wait.
    pub fn ask(&mut self, owner: Owner, pages: PageRange, waiting: impl FnOnce() -> W) -> Outcome {
        let wanted = Lock { owner, pages };
        if self.closed {
            // What it holds already it holds.
            let holds = |lock: &Lock| lock.owner == owner && lock.pages.intersect(pages) == pages;
            if self.held.iter().any(holds) {
                return Outcome::Held;
            }
            self.waiting.push_back((wanted, waiting()));
            return Outcome::Waits;
        }
        if self.before(&wanted, self.waiting.len()).next().is_none() {
            self.held.push(wanted);
            return Outcome::Held;
        }
        if self.would_wait_for_itself(&wanted) {
            return Outcome::Deadlock;
        }
        self.waiting.push_back((wanted, waiting()));
        Outcome::Waits
    }

    /// A process does not wait for pages any more. Gives who holds what it waited for now.
    pub fn wait_no_more(&mut self, owner: Owner, pages: PageRange) -> Vec<W> {
        self.waiting.retain(|(lock, _)| lock.owner != owner || lock.pages != pages);
        self.let_in()
    }

    /// A host says all that its processes hold, and have held before this home's process or their session with it was
    /// another. Gives what another host holds by now, and who holds what it waited for.
    pub fn said_again(
        &mut self,
        host: HostId,
        all: &[(SessionId, PageRange)],
    ) -> (Vec<(SessionId, PageRange)>, Vec<W>) {
        self.held.retain(|lock| lock.owner.host != host);
        let mut lost = Vec::new();
        for (session, pages) in all {
            if !self.held_before(Owner { host, session: *session }, *pages) {
                lost.push((*session, *pages));
            }
        }
        (lost, self.let_in())
    }

    /// A process held pages before. Whether it holds them still: not if another host does.
    pub fn held_before(&mut self, owner: Owner, pages: PageRange) -> bool {
        let lock = Lock { owner, pages };
        let free = !self.held.iter().any(|other| is_in_the_way(&lock, other));
        if free {
            self.held.push(lock);
        }
        free
    }

    /// Whose locks are in the way of `wanted`: of those that are held, and of the first `count` that wait.
    fn before<'l>(&'l self, wanted: &'l Lock, count: usize) -> impl Iterator<Item = Owner> + 'l {
        let waiting = self.waiting.iter().take(count).map(|(lock, _)| lock);
        self.held.iter().chain(waiting).filter(|other| is_in_the_way(wanted, other)).map(|other| other.owner)
    }

    fn would_wait_for_itself(&self, wanted: &Lock) -> bool {
        let mut to_see: Vec<Owner> = self.before(wanted, self.waiting.len()).collect();
        let mut seen: Vec<Owner> = Vec::new();
        while let Some(owner) = to_see.pop() {
            if owner == wanted.owner {
                return true;
            }
            if seen.contains(&owner) {
                continue;
            }
            seen.push(owner);
            for (at, (lock, _)) in
                self.waiting.iter().enumerate().filter(|(_, (lock, _))| lock.owner == owner)
            {
                to_see.extend(self.before(lock, at));
            }
        }
        false
    }

    /// A process lets pages go. Gives who holds what it waited for now.
    pub fn let_go(&mut self, owner: Owner, pages: PageRange) -> Vec<W> {
        let mut left = Vec::new();
        self.held.retain(|lock| {
            let stays = lock.owner != owner || lock.pages.intersect(pages).is_empty();
            if !stays {
                left.extend(
                    crate::cache::without(lock.pages, pages).into_iter().map(|pages| Lock { owner, pages }),
                );
            }
            stays
        });
        self.held.extend(left);
        self.let_in()
    }

    /// A host is lost: it holds nothing, and wants nothing. Gives who holds what it waited for now.
    pub fn lose(&mut self, host: HostId) -> Vec<W> {
        self.held.retain(|lock| lock.owner.host != host);
        self.waiting.retain(|(lock, _)| lock.owner.host != host);
        self.let_in()
    }

    /// Those that waited, and that nobody is in the way of any more, hold what they wanted.
    fn let_in(&mut self) -> Vec<W> {
        let mut all = Vec::new();
        if self.closed {
            return all;
        }
        let mut at = 0;
        while at < self.waiting.len() {
            if self.before(&self.waiting[at].0, at).next().is_some() {
                at += 1;
                continue;
            }
            if let Some((lock, who)) = self.waiting.remove(at) {
                self.held.push(lock);
                all.push(who);
            }
        }
        all
    }

    /// Pages that some host but `me` holds.
    pub fn held_elsewhere(&self, me: HostId) -> Vec<PageRange> {
        self.held.iter().filter(|lock| lock.owner.host != me).map(|lock| lock.pages).collect()
    }

    /// Locks that one process holds or wants.
    pub fn of(&self, owner: Owner) -> usize {
        let waiting = self.waiting.iter().map(|(lock, _)| lock);
        self.held.iter().chain(waiting).filter(|lock| lock.owner == owner).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(host: u32, session: u64) -> Owner {
        Owner { host: HostId(host), session: SessionId(session) }
    }

    fn pages(first: u64, count: u64) -> PageRange {
        PageRange::new(first, count)
    }

    #[test]
    fn hosts_exclude_each_other_and_are_served_in_turn() {
        let mut locks: Locks<u32> = Locks::new(false);
        assert_eq!(locks.ask(owner(1, 1), pages(0, 4), || 0), Outcome::Held);
        assert_eq!(locks.ask(owner(1, 2), pages(2, 4), || 0), Outcome::Held, "processes of one host share");
        assert_eq!(locks.ask(owner(2, 1), pages(3, 1), || 1), Outcome::Waits);
        assert_eq!(locks.ask(owner(3, 1), pages(3, 5), || 2), Outcome::Waits);
        assert_eq!(locks.ask(owner(1, 3), pages(3, 1), || 3), Outcome::Waits, "not before who came first");
        assert_eq!(locks.ask(owner(2, 1), pages(9, 1), || 4), Outcome::Held);
        assert!(locks.let_go(owner(1, 1), pages(0, 4)).is_empty(), "the other process holds page 3");
        assert_eq!(locks.let_go(owner(1, 2), pages(3, 1)), [1], "a part of it");
        assert_eq!(locks.held_elsewhere(HostId(1)), [pages(9, 1), pages(3, 1)]);
        assert!(locks.lose(HostId(2)).is_empty(), "pages 4 and 5 are held still");
        assert_eq!(locks.let_go(owner(1, 2), pages(2, 4)), [2]);
        assert_eq!(locks.lose(HostId(3)), [3]);
        assert_eq!((locks.of(owner(1, 3)), locks.of(owner(3, 1))), (1, 0));
    }

    #[test]
    fn who_would_wait_for_itself_is_refused() {
        let mut locks: Locks<u32> = Locks::new(false);
        for (host, page) in [(1, 0), (2, 1), (3, 2)] {
            assert_eq!(locks.ask(owner(host, 1), pages(page, 1), || 0), Outcome::Held);
        }
        assert_eq!(locks.ask(owner(1, 1), pages(1, 1), || 1), Outcome::Waits);
        assert_eq!(locks.ask(owner(2, 1), pages(2, 1), || 2), Outcome::Waits);
        assert_eq!(locks.ask(owner(3, 1), pages(0, 1), || 3), Outcome::Deadlock);
        assert_eq!(
            locks.ask(owner(3, 2), pages(0, 1), || 4),
            Outcome::Waits,
            "another process, which holds nothing"
        );
        assert_eq!(locks.let_go(owner(3, 1), pages(2, 1)), [2]);
    }

    #[test]
    fn what_was_held_before_is_held_unless_another_came_first() {
        let mut locks: Locks<u32> = Locks::new(true);
        assert_eq!(locks.ask(owner(3, 1), pages(0, 1), || 7), Outcome::Waits, "it is not known who holds it");
        let all = [(SessionId(1), pages(0, 4))];
        assert_eq!(locks.said_again(HostId(1), &all), (vec![], vec![]));
        assert_eq!(locks.said_again(HostId(1), &all), (vec![], vec![]), "said twice");
        let other = [(SessionId(1), pages(3, 1))];
        assert_eq!(locks.said_again(HostId(2), &other), (other.to_vec(), vec![]));
        assert_eq!(locks.ask(owner(1, 1), pages(1, 1), || 8), Outcome::Held, "it held it before");
        assert_eq!(locks.ask(owner(2, 1), pages(3, 1), || 1), Outcome::Waits);
        assert!(locks.let_go(owner(1, 1), pages(0, 2)).is_empty() && locks.lose(HostId(9)).is_empty());
        assert_eq!(locks.open(), [7]);
        assert_eq!(locks.let_go(owner(1, 1), pages(2, 2)), [1]);
    }
}
