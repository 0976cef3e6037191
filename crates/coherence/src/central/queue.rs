//! Who waits for which page: the queue with reference counts of section 3.1.
//!
//! A request may be for several pages. It is *cleared* on a page when nobody there is before it; `blocked` counts the
//! pages where it is not cleared yet. At zero it becomes *active*: only then are others asked to give their pages up,
//! because only then can it use them. `answers` counts what it still waits for. All work is in proportion to the pages of
//! the request at hand, and to those it lets through.
//!
//! Order on a page: writers first come, first served; readers after all waiting writers, and then all at once. A request
//! joins the queues of all its pages in one step, so any two stand in the same order everywhere, and nobody waits in a
//! circle. Readers that were overtaken `reader_bound` times join the writers' order themselves.

use crate::event::Access;
use crate::few::Few;
use crate::span::{HostId, Span};
use std::collections::{BTreeMap, VecDeque};

/// A request, in the order of arrival.
pub(super) type RequestId = u64;

/// One request that is not answered yet (the paper's record).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    /// Who asks; none: it is lost.
    pub host: Option<HostId>,
    pub access: Access,
    pub span: Span,
    pub has_copy: bool,
    /// Pages where others are before it.
    pub blocked: u32,
    /// Answers that it waits for, once active.
    pub answers: u32,
}

/// Who waits for one page, and who is being served there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PageQueue {
    pub active_writer: Option<RequestId>,
    pub active_readers: Few<RequestId>,
    /// Hosts whose answer is awaited.
    pub expected: Few<HostId>,
    /// First come, first served.
    turns: VecDeque<RequestId>,
    /// Readers that are not in `turns`.
    readers: Few<RequestId>,
    /// Those waiting whom nobody on this page is before.
    cleared: Few<RequestId>,
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
}

/// All that wait for pages of one object. Pages that nobody waits for take no room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Queues {
    pub requests: BTreeMap<RequestId, Request>,
    pages: BTreeMap<u32, PageQueue>,
    next: RequestId,
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

    /// Takes note of a host's answer. False: none was awaited.
    pub fn answered(&mut self, page: u32, host: HostId) -> bool {
        self.pages.get_mut(&page).is_some_and(|queue| queue.expected.remove(&host))
    }

    /// Writers among those that wait for a page, or are served there.
    pub fn has_writer(&self, page: u32) -> bool {
        let is_writer = |id: &RequestId| self.requests[id].access == Access::Write;
        self.pages.get(&page).is_some_and(|q| q.active_writer.is_some() || q.turns.iter().any(is_writer))
    }

    /// Pages where a host's answer is awaited.
    pub fn pages_expecting(&self, host: HostId) -> Vec<u32> {
        self.pages.iter().filter(|(_, queue)| queue.expected.contains(&host)).map(|(page, _)| *page).collect()
    }

    /// Takes a request in. Gives those that may be served now.
    pub fn join(&mut self, host: HostId, span: Span, access: Access, has_copy: bool) -> Vec<RequestId> {
        let id = self.next;
        self.next += 1;
        let request = Request { host: Some(host), access, span, has_copy, blocked: span.count, answers: 0 };
        self.requests.insert(id, request);
        for page in span.pages() {
            let queue = self.page_mut(page);
            if access == Access::Write {
                queue.turns.push_back(id);
            } else {
                queue.readers.insert(id);
            }
        }
        self.refresh_all(span)
    }

    /// A request is served from now on. Gives those that may be served beside it.
    pub fn activate(&mut self, id: RequestId) -> Vec<RequestId> {
        let Request { span, access, .. } = self.requests[&id];
        let mut ready = Vec::new();
        for page in span.pages() {
            let queue = self.page_mut(page);
            queue.cleared.remove(&id);
            queue.turns.retain(|turn| *turn != id);
            queue.readers.remove(&id);
            if access == Access::Write {
                queue.active_writer = Some(id);
                queue.passed += u32::from(!queue.readers.is_empty());
            } else {
                queue.active_readers.insert(id);
            }
            self.promote(page);
            ready.extend(self.refresh(page));
        }
        ready
    }

    /// Readers that were overtaken too often take their turn like writers, on all their pages in one step.
    fn promote(&mut self, page: u32) {
        let queue = self.page_mut(page);
        if queue.readers.is_empty() {
            queue.passed = 0;
        }
        if self.reader_bound == 0 || self.page_mut(page).passed < self.reader_bound {
            return;
        }
        let queue = self.page_mut(page);
        queue.passed = 0;
        for id in std::mem::take(&mut queue.readers) {
            for page in self.requests[&id].span.pages() {
                let queue = self.page_mut(page);
                queue.readers.remove(&id);
                queue.turns.push_back(id);
                self.refresh(page);
            }
        }
    }

    /// A request was answered, or its host is lost. Gives those that may be served now.
    pub fn finish(&mut self, id: RequestId) -> Vec<RequestId> {
        let Some(request) = self.requests.remove(&id) else { return Vec::new() };
        for page in request.span.pages() {
            let queue = self.page_mut(page);
            queue.turns.retain(|turn| *turn != id);
            queue.readers.remove(&id);
            queue.cleared.remove(&id);
            queue.active_readers.remove(&id);
            if queue.active_writer == Some(id) {
                queue.active_writer = None;
            }
        }
        self.refresh_all(request.span)
    }

    fn refresh_all(&mut self, span: Span) -> Vec<RequestId> {
        let mut ready = Few::default();
        for page in span.pages() {
            self.refresh(page).into_iter().for_each(|id| _ = ready.insert(id));
            if self.pages.get(&page).is_some_and(PageQueue::is_idle) {
                self.pages.remove(&page);
            }
        }
        ready.into_iter().filter(|id| self.requests[id].blocked == 0).collect()
    }

    /// Finds anew whom nobody on this page is before. Gives those who now may be served everywhere.
    fn refresh(&mut self, page: u32) -> Vec<RequestId> {
        let Some(queue) = self.pages.get_mut(&page) else { return Vec::new() };
        let is_read = |id: &RequestId| self.requests[id].access == Access::Read;
        let now: Few<RequestId> = if queue.active_writer.is_some() {
            Few::default()
        } else if let Some(head) = queue.turns.front() {
            if is_read(head) {
                queue.turns.iter().copied().take_while(is_read).collect()
            } else if queue.active_readers.is_empty() {
                Few::from_iter([*head])
            } else {
                Few::default()
            }
        } else {
            queue.readers.clone()
        };
        if queue.cleared == now {
            return Vec::new();
        }
        let before = std::mem::replace(&mut queue.cleared, now.clone());
        for id in before.iter().filter(|id| !now.contains(id)) {
            if let Some(request) = self.requests.get_mut(id) {
                request.blocked += 1;
            }
        }
        let mut ready = Vec::new();
        for id in now.iter().filter(|id| !before.contains(id)) {
            let request = self.requests.get_mut(id).expect("who waits is known");
            request.blocked -= 1;
            if request.blocked == 0 {
                ready.push(*id);
            }
        }
        ready
    }
}
