//! Who waits for which page: the queue with reference counts of section 3.1.
//!
//! A request may be for several pages. Only when nobody is before it on any of them does it become *active*: only then are
//! others asked to give their pages up, because only then can it use them. `answers` counts what it still waits for.
//!
//! Order on a page: writers first come, first served; readers after all waiting writers, and then all at once. A request
//! joins the queues of all its pages in one step, so any two stand in the same order everywhere, and nobody waits in a
//! circle. Readers that were overtaken `reader_bound` times join the writers' order themselves.
//!
//! Nobody looks through a queue: a request is looked at when it comes, when it is let through, and when it is served, once
//! for each of its pages. (Each look is a search in an ordered map.) Two things see to it. Who has a turn is *cleared* on a
//! page when nobody is before it there, and stays so; `blocked` counts the pages where it is not, and on a page the cleared
//! are those before a place. A reader that may be overtaken is parked at one page that writers keep from it, and looked at
//! when those are done. Only a loss looks at all that wait.

use crate::event::Access;
use crate::few::Few;
use crate::span::{HostId, Span};
use std::collections::{BTreeMap, BTreeSet};

/// A request, in the order of arrival.
pub(super) type RequestId = u64;

/// Where a request stands among those that take turns.
type Place = u64;

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// It takes its turn. `blocked`: pages where others are before it.
    Turn { place: Place, blocked: u32 },
    /// A reader that writers may overtake. It waits for the writers of that page; none: it was let through.
    Reader { parked: Option<u32> },
    /// It is being served.
    Active,
}

/// One request that is not answered yet (the paper's record).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    /// Who asks; none: it is lost.
    pub host: Option<HostId>,
    pub access: Access,
    pub span: Span,
    pub has_copy: bool,
    /// Answers that it waits for, once active.
    pub answers: u32,
    stage: Stage,
}

/// Who waits for one page, and who is being served there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PageQueue {
    pub active_writer: Option<RequestId>,
    pub active_readers: BTreeSet<RequestId>,
    /// Hosts whose answer is awaited.
    pub expected: Few<HostId>,
    /// First come, first served.
    turns: BTreeMap<Place, RequestId>,
    /// Writers among them.
    writers: u32,
    /// Of `turns`, those before this place have nobody before them here: one writer, or readers.
    cleared_to: Place,
    /// Readers that are not in `turns`.
    readers: BTreeSet<RequestId>,
    /// Those of them that wait for this page's writers.
    parked: BTreeSet<RequestId>,
    /// Writers that went before the readers that wait now.
    passed: u32,
}

impl PageQueue {
    fn is_idle(&self) -> bool {
        self.active_writer.is_none()
            && self.active_readers.is_empty()
            && self.expected.is_empty()
            && self.turns.is_empty()
            && self.readers.is_empty()
    }

    /// Whether writers, or who takes turns like them, are before a reader that does not.
    fn is_taken(&self) -> bool {
        self.active_writer.is_some() || !self.turns.is_empty()
    }

    /// A request waits here no longer.
    fn take_out(&mut self, id: RequestId, access: Access, stage: Stage) {
        match stage {
            Stage::Turn { place, .. } => {
                self.turns.remove(&place);
                self.writers -= u32::from(access == Access::Write);
                if self.turns.first_key_value().is_none_or(|(first, _)| *first >= self.cleared_to) {
                    self.cleared_to = 0;
                }
            }
            Stage::Reader { .. } => {
                self.readers.remove(&id);
                self.parked.remove(&id);
            }
            Stage::Active => {
                self.active_readers.remove(&id);
                self.active_writer = self.active_writer.filter(|active| *active != id);
            }
        }
    }
}

/// All that wait for pages of one object. Pages that nobody waits for take no room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Queues {
    pub requests: BTreeMap<RequestId, Request>,
    pages: BTreeMap<u32, PageQueue>,
    /// Of requests and of places: a writer's place is its number.
    next: u64,
    /// How often waiting readers let writers pass; 0: for ever, as in the paper.
    reader_bound: u32,
}

impl Queues {
    pub fn new(reader_bound: u32) -> Queues {
        Queues { reader_bound, ..Queues::default() }
    }

    pub fn page(&self, page: u32) -> Option<&PageQueue> {
        self.pages.get(&page)
    }

    /// The queue of a page, made if there is none.
    pub fn page_mut(&mut self, page: u32) -> &mut PageQueue {
        self.pages.entry(page).or_default()
    }

    /// A request that is known.
    pub fn request(&mut self, id: RequestId) -> &mut Request {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        self.requests.get_mut(&id).expect("who waits or is served is known")
    }

    /// Takes note of a host's answer. False: none was awaited.
    pub fn answered(&mut self, page: u32, host: HostId) -> bool {
        self.pages.get_mut(&page).is_some_and(|queue| queue.expected.remove(&host))
    }

    /// Writers among those that wait for a page, or are served there.
    pub fn has_writer(&self, page: u32) -> bool {
        self.pages.get(&page).is_some_and(|queue| queue.active_writer.is_some() || queue.writers > 0)
    }

    /// Pages where a host's answer is awaited: a loss alone asks for them.
    pub fn pages_expecting(&self, host: HostId) -> Vec<u32> {
        self.pages.iter().filter(|(_, queue)| queue.expected.contains(&host)).map(|(page, _)| *page).collect()
    }

    /// Takes a request in. Gives those that may be served now.
    pub fn join(&mut self, host: HostId, span: Span, access: Access, has_copy: bool) -> Vec<RequestId> {
        let id = self.take_number();
        let mut ready = Vec::new();
        let stage = match access {
            Access::Write => Stage::Turn { place: id, blocked: span.count },
            _ => Stage::Reader { parked: None },
        };
        self.requests.insert(id, Request { host: Some(host), access, span, has_copy, answers: 0, stage });
        if access == Access::Write {
            for page in span.pages() {
                let queue = self.page_mut(page);
                queue.turns.insert(id, id);
                queue.writers += 1;
                self.clear(page, &mut ready);
            }
        } else {
            span.pages().for_each(|page| _ = self.page_mut(page).readers.insert(id));
            ready.push(id);
        }
        ready
    }

    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Whether a request that was let through may be served: a reader may have been overtaken since.
    pub fn may_be_served(&mut self, id: RequestId) -> bool {
        if !self.requests.contains_key(&id) {
            return false;
        }
        let Request { span, stage, .. } = *self.request(id);
        match stage {
            Stage::Turn { blocked, .. } => blocked == 0,
            Stage::Reader { .. } => self.is_let_through(id, span),
            Stage::Active => false,
        }
    }

    /// Whether no writers are before a reader. If some are it waits for them, at one of the pages.
    fn is_let_through(&mut self, id: RequestId, span: Span) -> bool {
        let taken = span.pages().find(|page| self.pages.get(page).is_some_and(PageQueue::is_taken));
        if let Some(page) = taken {
            self.page_mut(page).parked.insert(id);
        }
        self.request(id).stage = Stage::Reader { parked: taken };
        taken.is_none()
    }

    /// A request is served from now on. Gives those that may be served beside it.
    pub fn activate(&mut self, id: RequestId) -> Vec<RequestId> {
        let request = self.request(id);
        let stage = std::mem::replace(&mut request.stage, Stage::Active);
        let (span, access) = (request.span, request.access);
        let mut ready = Vec::new();
        for page in span.pages() {
            let queue = self.page_mut(page);
            queue.take_out(id, access, stage);
            if access == Access::Write {
                queue.active_writer = Some(id);
                queue.passed += u32::from(!queue.readers.is_empty());
            } else {
                queue.active_readers.insert(id);
            }
            self.promote(page, &mut ready);
            self.clear(page, &mut ready);
        }
        ready
    }

    /// Readers that were overtaken too often take their turn like writers, on all their pages in one step.
    fn promote(&mut self, page: u32, ready: &mut Vec<RequestId>) {
        let bound = self.reader_bound;
        let queue = self.page_mut(page);
        if queue.readers.is_empty() {
            queue.passed = 0;
        }
        if bound == 0 || queue.passed < bound {
            return;
        }
        queue.passed = 0;
        for id in std::mem::take(&mut queue.readers) {
            let place = self.take_number();
            let request = self.request(id);
            let span = request.span;
            let was = std::mem::replace(&mut request.stage, Stage::Turn { place, blocked: span.count });
            for page in span.pages() {
                let queue = self.page_mut(page);
                queue.take_out(id, Access::Read, was);
                queue.turns.insert(place, id);
            }
            span.pages().for_each(|page| self.clear(page, ready));
        }
    }

    /// A request was answered, or its host is lost. Gives those that may be served now.
    pub fn finish(&mut self, id: RequestId) -> Vec<RequestId> {
        let Some(Request { access, span, stage, .. }) = self.requests.remove(&id) else { return Vec::new() };
        let mut ready = Vec::new();
        for page in span.pages() {
            self.page_mut(page).take_out(id, access, stage);
        }
        for page in span.pages() {
            self.clear(page, &mut ready);
            if self.pages.get(&page).is_some_and(PageQueue::is_idle) {
                self.pages.remove(&page);
            }
        }
        ready
    }

    /// Clears whoever has nobody before him on a page any more. Adds those who now may be served everywhere.
    fn clear(&mut self, page: u32, ready: &mut Vec<RequestId>) {
        loop {
            let queue = self.page_mut(page);
            if queue.active_writer.is_some() {
                return;
            }
            let is_free = queue.active_readers.is_empty();
            let first = queue.turns.first_key_value().map(|(_, id)| *id);
            let Some((place, id)) = queue.turns.range(queue.cleared_to..).next().map(|(at, id)| (*at, *id))
            else {
                break;
            };
            let is_reader = self.request(id).access == Access::Read;
            // Readers go together. Before a writer there must be nobody, and before a reader no writer.
            let may = match first {
                Some(first) if first == id => is_reader || is_free,
                Some(first) => is_reader && self.request(first).access == Access::Read,
                None => false,
            };
            if !may {
                return;
            }
            self.page_mut(page).cleared_to = place + 1;
            if let Stage::Turn { blocked, .. } = &mut self.request(id).stage {
                *blocked -= 1;
                if *blocked == 0 {
                    ready.push(id);
                }
            }
        }
        let queue = self.page_mut(page);
        if queue.turns.is_empty() {
            for id in std::mem::take(&mut queue.parked) {
                let span = self.request(id).span;
                if self.is_let_through(id, span) {
                    ready.push(id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// How often a request was looked at.
        pub(super) static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    fn looks(does: impl FnOnce()) -> u64 {
        let before = LOOKS.get();
        does();
        LOOKS.get() - before
    }

    fn serve(queues: &mut Queues, ready: Vec<RequestId>) -> Vec<RequestId> {
        let mut served = Vec::new();
        let mut ready = std::collections::VecDeque::from(ready);
        while let Some(id) = ready.pop_front() {
            if queues.may_be_served(id) {
                ready.extend(queues.activate(id));
                served.push(id);
            }
        }
        served
    }

    /// What coming, giving up in the middle and going on cost while so many wait: a writer, a reader of two pages, and the
    /// two before the last.
    fn costs(waiting: u32) -> [u64; 4] {
        let mut queues = Queues::new(3);
        let (one, both) = (Span::one(0), Span::new(0, 2));
        let ready = queues.join(HostId(0), both, Access::Write, false);
        let first = serve(&mut queues, ready)[0];
        for host in 1..=waiting {
            queues.join(HostId(host), one, Access::Write, false);
            let ready = queues.join(HostId(host), both, Access::Read, false);
            assert!(serve(&mut queues, ready).is_empty());
        }
        let (mut writer, mut ready) = (0, Vec::new());
        let comes = looks(|| {
            queues.join(HostId(5000), one, Access::Write, false);
            writer = queues.next - 1;
        });
        let reads = looks(|| {
            let come = queues.join(HostId(5000), both, Access::Read, false);
            assert!(serve(&mut queues, come).is_empty());
        });
        let leaves = looks(|| assert!(queues.finish(writer).is_empty()));
        let goes_on = looks(|| {
            let next = queues.finish(first);
            ready = serve(&mut queues, next);
        });
        assert_eq!(ready, [1], "the first writer that waited");
        [comes, reads, leaves, goes_on]
    }

    #[test]
    fn a_request_costs_the_same_whoever_waits() {
        // With one there is nobody behind it to be looked at.
        assert_eq!(costs(1000), costs(2));
        assert!(costs(1).iter().zip(costs(1000)).all(|(one, many)| many <= one + 1), "{:?}", costs(1));
    }

    /// All of a crowd: each request is looked at some times in all, however many there are.
    #[test]
    fn a_crowd_costs_as_much_as_it_is_large() {
        for bound in [0, 1, 7] {
            let a_request = |crowd: u32| {
                let mut queues = Queues::new(bound);
                let mut active: Vec<RequestId> = Vec::new();
                let looks = looks(|| {
                    for host in 0..crowd {
                        let access = if host % 3 == 0 { Access::Write } else { Access::Read };
                        let ready = queues.join(HostId(host), Span::new(host % 2, 2), access, false);
                        active.extend(serve(&mut queues, ready));
                    }
                    while let Some(id) = active.pop() {
                        let ready = queues.finish(id);
                        active.extend(serve(&mut queues, ready));
                    }
                });
                assert!(queues.requests.is_empty() && queues.pages.is_empty(), "{queues:?}");
                looks as f64 / f64::from(crowd)
            };
            let (few, many) = (a_request(10), a_request(1000));
            assert!(many < 2.0 * few + 10.0, "bound {bound}: {few} looks a request of 10, {many} of 1000");
        }
    }
}
