//! The home of an object: the paper's server, Figures 2 to 4, for requests of any number of scheduler pages.

use super::message::Message;
use super::queue::{Queues, RequestId};
use super::table::PageTable;
use crate::event::{Access, Action, Why};
use crate::span::{HostId, Span};
use commonhold_points as points;
use std::collections::VecDeque;

/// The four states of the paper's automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No writer; the home has the newest version, and there may be readers. The first state of every page.
    Read,
    /// One writer, and nobody waits.
    Write,
    /// One writer that was asked to give the page up; readers wait.
    ReadWait,
    /// Somebody was asked to give the page up; writers wait, and maybe readers.
    WriteWait,
}

/// What serves a page whose newest version died with its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLoss {
    /// Nothing: it is an error to touch it.
    #[default]
    Error,
    /// The newest version that the home has: the one it sent to the owner (section 5 of the paper).
    Revert,
}

/// How an object is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// How many writers may overtake waiting readers; 0: any number, as in the paper.
    pub reader_bound: u32,
    /// What serves a page whose newest version is lost.
    pub on_loss: OnLoss,
}

/// The scheduler of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    options: Options,
    table: PageTable,
    queues: Queues,
}

impl Home {
    /// The scheduler of an object that nobody uses yet.
    pub fn new(options: Options) -> Home {
        Home { options, table: PageTable::default(), queues: Queues::new(options.reader_bound) }
    }

    /// Who has which page.
    pub fn table(&self) -> &PageTable {
        &self.table
    }

    /// The state of a page in the paper's automaton.
    pub fn state(&self, page: u32) -> State {
        let asked = self.queues.page(page).is_some_and(|queue| !queue.expected.is_empty());
        match (self.table.owner(page), asked) {
            _ if asked && self.queues.has_writer(page) => State::WriteWait,
            (Some(_), true) => State::ReadWait,
            (Some(_), false) => State::Write,
            (None, _) => State::Read,
        }
    }

    /// Requests that are not answered yet.
    pub fn waiting(&self) -> usize {
        self.queues.requests.len()
    }

    /// A message from a host, or from this one.
    pub fn handle(&mut self, from: HostId, message: Message, actions: &mut Vec<Action<Message>>) {
        match message {
            Message::Request { span, access, has_copy } => {
                let ready = self.queues.join(from, span, access, has_copy);
                self.serve(ready, actions);
            }
            Message::PageOut { page, answers, keeps } => self.page_out(from, page, answers, keeps, actions),
            Message::Done { page } => {
                self.table.remove_reader(page, from);
                if self.table.owner(page) == Some(from) {
                    // It has left the object off before the grant came: nobody wrote the page.
                    self.table.set_owner(page, None);
                }
                self.answered(from, page, actions);
            }
            Message::Grant { .. }
            | Message::Recall { .. }
            | Message::Invalidate { .. }
            | Message::Refuse { .. } => {}
        }
    }

    /// Figure 4. A page that comes in unasked while it is being recalled saves its bytes; the recall is still answered.
    fn page_out(
        &mut self,
        from: HostId,
        page: u32,
        answers: bool,
        keeps: Access,
        actions: &mut Vec<Action<Message>>,
    ) {
        if self.table.owner(page) == Some(from) {
            actions.push(Action::Save { page });
            if !points::mutant("coherence.owner_stays") {
                self.table.set_owner(page, None);
            }
            if keeps == Access::Read {
                self.table.add_reader(page, from);
            }
        }
        if answers {
            self.answered(from, page, actions);
        }
    }

    /// Serves requests that nobody is before: figures 2 and 3. What is in nobody's hands is granted at once.
    fn serve(&mut self, ready: Vec<RequestId>, actions: &mut Vec<Action<Message>>) {
        let mut ready = VecDeque::from(ready);
        while let Some(id) = ready.pop_front() {
            if !self.queues.may_be_served(id) {
                continue; // somebody took the turn meanwhile: it will be ready again
            }
            let request = self.queues.request(id).clone();
            ready.extend(self.queues.activate(id));
            let pages = request.span.pages();
            let answers = pages.map(|page| self.ask_for(page, request.host, request.access, actions)).sum();
            self.queues.request(id).answers = answers;
            if answers == 0 {
                ready.extend(self.grant(id, actions));
            }
        }
    }

    /// Asks those who are in the way of a request to give a page up. Gives how many answers the request waits for.
    fn ask_for(
        &mut self,
        page: u32,
        host: Option<HostId>,
        access: Access,
        actions: &mut Vec<Action<Message>>,
    ) -> u32 {
        let owner = self.table.owner(page).filter(|owner| Some(*owner) != host);
        let mut asked = Vec::new();
        if let Some(owner) = owner {
            let keep = if access == Access::Write { Access::None } else { Access::Read };
            asked.push((owner, Message::Recall { page, keep }));
        }
        if access == Access::Write && !points::mutant("coherence.readers_stay") {
            let readers = self.table.readers(page).into_iter().filter(|reader| Some(*reader) != host);
            asked.extend(readers.map(|reader| (reader, Message::Invalidate { page })));
        }
        if asked.is_empty() && self.queues.page(page).is_none_or(|queue| queue.expected.is_empty()) {
            return 0;
        }
        let queue = self.queues.page_mut(page);
        for (to, message) in asked {
            if queue.expected.insert(to) {
                actions.push(Action::Send { to, message });
            }
        }
        // A reader waits for a recall that another reader caused, if there is one.
        queue.expected.len() as u32
    }

    /// An answer to a recall or an invalidation.
    fn answered(&mut self, from: HostId, page: u32, actions: &mut Vec<Action<Message>>) {
        if !self.queues.answered(page, from) {
            return;
        }
        let waiting: Vec<RequestId> = self
            .queues
            .page(page)
            .into_iter()
            .flat_map(|q| q.active_writer.iter().chain(&q.active_readers))
            .copied()
            .collect();
        let mut ready = Vec::new();
        for id in waiting {
            let request = self.queues.request(id);
            request.answers -= 1;
            if request.answers == 0 {
                ready.extend(self.grant(id, actions));
            }
        }
        self.serve(ready, actions);
    }

    /// Gives a request all its pages at once. Gives those that may be served now.
    fn grant(&mut self, id: RequestId, actions: &mut Vec<Action<Message>>) -> Vec<RequestId> {
        let request = self.queues.request(id).clone();
        if let Some(to) = request.host {
            let span = request.span;
            let message = if span.pages().any(|page| self.table.is_lost(page)) {
                Message::Refuse { span, why: Why::NewestLost }
            } else {
                self.hand_over(to, span, request.access, request.has_copy)
            };
            actions.push(Action::Send { to, message });
        }
        self.queues.finish(id)
    }

    fn hand_over(&mut self, host: HostId, span: Span, access: Access, has_copy: bool) -> Message {
        let still = |page| self.table.is_reader(page, host) || self.table.owner(page) == Some(host);
        let is_current = points::mutant("coherence.any_copy_is_current") || span.pages().all(still);
        let with_data = !(has_copy && is_current);
        for page in span.pages() {
            if access == Access::Write {
                self.table.remove_reader(page, host);
                self.table.set_owner(page, Some(host));
            } else {
                self.table.add_reader(page, host);
            }
        }
        Message::Grant { span, access, with_data }
    }

    /// A host is lost, with all that it had (section 5).
    pub fn lose(&mut self, host: HostId, actions: &mut Vec<Action<Message>>) {
        let own: Vec<RequestId> =
            self.queues.requests.iter().filter(|(_, r)| r.host == Some(host)).map(|(id, _)| *id).collect();
        for id in &own {
            self.queues.request(*id).host = None;
        }
        for page in self.table.pages_of(host) {
            self.table.remove_reader(page, host);
            if self.table.owner(page) == Some(host) {
                self.table.set_owner(page, None);
                let is_error = self.options.on_loss == OnLoss::Error;
                self.table.set_lost(page, is_error && !points::mutant("coherence.loss_unnoticed"));
                actions.push(Action::NewestLost { page, older_serves: !is_error });
            }
        }
        self.table.forget_host(host);
        let awaited: Vec<u32> = self.queues.pages_expecting(host);
        for page in awaited {
            self.answered(host, page, actions);
        }
        // Those that wait for no answer are taken out; the others end, without a grant, when their answers are in.
        for id in own {
            if self.queues.requests.get(&id).is_some_and(|request| request.answers == 0) {
                let ready = self.queues.finish(id);
                self.serve(ready, actions);
            }
        }
    }

    /// The newest versions of these pages are lost.
    pub fn were_lost(&mut self, pages: impl IntoIterator<Item = u32>) {
        for page in pages {
            self.table.set_lost(page, self.options.on_loss == OnLoss::Error);
        }
    }

    /// Pages whose newest version is lost serve again, from what the home has. Gives them.
    pub fn revert(&mut self) -> Vec<u32> {
        self.revert_from(0)
    }

    /// The same for pages from `first` on alone.
    pub fn revert_from(&mut self, first: u32) -> Vec<u32> {
        let lost: Vec<u32> = self.table.lost_pages().into_iter().filter(|page| *page >= first).collect();
        lost.iter().for_each(|page| self.table.set_lost(*page, false));
        lost
    }
}
