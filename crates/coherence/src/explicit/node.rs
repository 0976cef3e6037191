//! A host's whole part in an object of explicit coherence.

use super::cache::Cache;
use super::home::Home;
use super::message::Message;
use crate::event::{Access, Action, Carried, Event, Kind, NotRead, Scheduler};
use crate::span::HostId;

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// At the home alone.
    home: Option<Home>,
    cache: Cache,
}

impl Node {
    /// The host `me` of an object whose home is `home`.
    pub fn new(me: HostId, home: HostId) -> Node {
        Node { home: (me == home).then(Home::default), cache: Cache::new(home) }
    }

    /// This host's own part begins anew (it was restarted, or finds its home again) with what was written here and not
    /// sent.
    pub fn begin_anew(&mut self, written: impl IntoIterator<Item = u32>) {
        self.cache = self.cache.anew(written);
    }

    /// Whether the page here differs from the home's and is known to: written, being synced, or kept though another host
    /// synced it.
    pub fn is_own(&self, page: u32) -> bool {
        self.cache.is_own(page)
    }
}

impl Scheduler for Node {
    type Message = Message;

    fn kind(message: &Message) -> Kind {
        message.kind()
    }

    fn carries(message: &Message) -> Carried {
        match message {
            Message::Pages { span } => Carried::Saved(span.pages().collect()),
            Message::Sync { pages } => Carried::Frames(pages.clone()),
            _ => Carried::Nothing,
        }
    }

    fn not_read(message: &Message, _me: HostId, _to: HostId) -> Option<NotRead<Message>> {
        let Message::Pages { span } = *message else { return None };
        Some(NotRead { told: Some(Message::NotRead { span }), heard: Vec::new() })
    }

    fn handle(&mut self, event: Event<Message>, actions: &mut Vec<Action<Message>>) {
        match event {
            Event::Message { from, message } if message.is_for_home() => {
                if let Some(home) = &mut self.home {
                    home.handle(from, message, actions);
                }
            }
            Event::Lost { host, .. } => match &mut self.home {
                Some(home) => home.lose(host, actions),
                None => self.cache.handle(event, actions),
            },
            event => self.cache.handle(event, actions),
        }
    }

    fn access(&self, page: u32) -> Access {
        self.cache.access(page)
    }

    fn is_waiting(&self) -> bool {
        self.cache.is_waiting() || self.home.as_ref().is_some_and(Home::is_waiting)
    }
}
