//! A host's whole part in a centrally scheduled object: what it does as a client, and as the home if it is that.

use super::cache::Cache;
use super::home::{Home, Options};
use super::message::Message;
use crate::event::{Access, Action, Carried, Event, Kind, NotRead, Scheduler, Why};
use crate::span::{HostId, Span};

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The scheduler, at the home alone.
    home: Option<Home>,
    cache: Cache,
}

impl Node {
    /// The host `me` of an object whose home is `home`. `holds`: granted pages stay for a minimum time.
    pub fn new(me: HostId, home: HostId, options: Options, holds: bool) -> Node {
        Node { home: (me == home).then(|| Home::new(options)), cache: Cache::new(home, holds) }
    }

    /// At a home that begins anew: the newest versions of these pages were with other hosts, and are lost.
    pub fn were_lost(&mut self, pages: impl IntoIterator<Item = u32>) {
        if let Some(home) = &mut self.home {
            home.were_lost(pages);
        }
    }

    /// At the home: lost pages serve again, from what the home has. Gives them.
    pub fn revert(&mut self) -> Vec<u32> {
        self.home.as_mut().map_or_else(Vec::new, Home::revert)
    }

    /// The same for pages from `first` on alone: the object has shrunk, and there is nothing to lose.
    pub fn revert_from(&mut self, first: u32) -> Vec<u32> {
        self.home.as_mut().map_or_else(Vec::new, |home| home.revert_from(first))
    }

    /// Which of these pages another host waits for that this one is to have no more.
    pub fn wanted_in(&self, span: Span) -> Vec<u32> {
        span.pages().filter(|page| self.cache.is_wanted(*page)).collect()
    }

    /// The scheduler, at the home.
    pub fn home(&self) -> Option<&Home> {
        self.home.as_ref()
    }
}

impl Scheduler for Node {
    type Message = Message;

    fn kind(message: &Message) -> Kind {
        message.kind()
    }

    fn carries(message: &Message) -> Carried {
        match message {
            Message::Grant { span, with_data: true, .. } => Carried::Saved(span.pages().collect()),
            Message::PageOut { page, .. } => Carried::Frames(vec![*page]),
            _ => Carried::Nothing,
        }
    }

    fn not_read(message: &Message, me: HostId, to: HostId) -> Option<NotRead<Message>> {
        let Message::Grant { span, access, .. } = *message else { return None };
        let returns = |page| (to, Message::PageOut { page, answers: false, keeps: Access::Read });
        let heard = span.pages().filter(|_| access == Access::Write).map(returns).collect();
        let told = Some(Message::Refuse { span, why: Why::NotRead });
        (to != me).then_some(NotRead { told, heard })
    }

    fn handle(&mut self, event: Event<Message>, actions: &mut Vec<Action<Message>>) {
        match (event, &mut self.home) {
            // Only the home schedules: to whoever believes otherwise there is nothing to say.
            (Event::Message { from, message }, home) if message.is_for_home() => {
                if let Some(home) = home {
                    home.handle(from, message, actions);
                }
            }
            (Event::Lost { host, .. }, Some(home)) => home.lose(host, actions),
            (event, _) => self.cache.handle(event, actions),
        }
    }

    fn access(&self, page: u32) -> Access {
        self.cache.access(page)
    }

    fn is_waiting(&self) -> bool {
        self.cache.is_waiting() || self.home.as_ref().is_some_and(|home| home.waiting() > 0)
    }
}
