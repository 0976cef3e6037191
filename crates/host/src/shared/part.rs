//! This host's part in an object's scheduling, whichever scheduler the object has.

use commonhold_coherence::{Access, Action, Carried, Event, HostId, Kind, NotRead, Scheduler, Span};
use commonhold_coherence::{central, explicit, forwarding};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::RefCell;
use std::fmt;

/// How an object is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By its home.
    Central(central::Options),
    /// By all hosts that have it.
    Forwarding(Kept),
    /// Not at all: what is written is seen elsewhere after a sync.
    Explicit,
}

/// What is left of a page by a loss, under forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What serves pages whose newest version is lost.
    pub on_loss: central::OnLoss,
    /// How many hosts keep each version beside its owner.
    pub replicas: u32,
}

/// Most messages that travel as one.
pub const MOST_TOGETHER: usize = 256;

/// Those that came as one. More than may is no message: what they take in memory is far more than on their way.
pub(crate) fn some_together<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Said>, D::Error> {
    struct Together;
    impl<'de> Visitor<'de> for Together {
        type Value = Vec<Said>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "1 to {MOST_TOGETHER} messages")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut messages: A) -> Result<Vec<Said>, A::Error> {
            let mut all = Vec::new();
            while let Some(next) = messages.next_element()? {
                if all.len() == MOST_TOGETHER {
                    return Err(A::Error::invalid_length(all.len() + 1, &self));
                }
                all.push(next);
            }
            if all.is_empty() { Err(A::Error::invalid_length(0, &self)) } else { Ok(all) }
        }
    }
    from.deserialize_seq(Together)
}

/// What schedulers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// Under the central scheduler.
    Central(central::Message),
    /// Under forwarding.
    Forwarding(forwarding::Message),
    /// Under explicit coherence.
    Explicit(explicit::Message),
}

/// The state machine.
#[derive(Debug)]
pub enum Part {
    /// Of the central scheduler.
    Central(central::Node),
    /// Of forwarding.
    Forwarding(Box<forwarding::Node>),
    /// Of explicit coherence.
    Explicit(explicit::Node),
}

impl How {
    /// The part of host `me` in an object whose home is `home`.
    pub fn part(self, me: HostId, home: HostId, holds: bool) -> Part {
        match self {
            How::Central(options) => Part::Central(central::Node::new(me, home, options, holds)),
            How::Forwarding(Kept { on_loss, replicas }) => {
                let options = forwarding::Options {
                    has_hold: holds,
                    on_loss,
                    replicas,
                    ..forwarding::Options::default()
                };
                Part::Forwarding(forwarding::Node::new(me, home, options).into())
            }
            How::Explicit => Part::Explicit(explicit::Node::new(me, home)),
        }
    }

    /// Whether the version before serves when the newest is lost, without being asked.
    pub fn serves_older(self) -> bool {
        let on_loss = match self {
            How::Central(options) => options.on_loss,
            How::Forwarding(kept) => kept.on_loss,
            How::Explicit => return false,
        };
        on_loss == central::OnLoss::Revert
    }

    /// Whether the message is of this scheduler.
    pub fn speaks(self, message: &Said) -> bool {
        matches!(
            (self, message),
            (How::Central(_), Said::Central(_))
                | (How::Forwarding(_), Said::Forwarding(_))
                | (How::Explicit, Said::Explicit(_))
        )
    }
}

impl Part {
    /// Whether this host owns the page, as only forwarding has it: it has the newest version, to be written or not.
    pub fn owns(&self, page: u32) -> bool {
        matches!(self, Part::Forwarding(node) if node.owns(page))
    }

    /// Something happened. A message of another scheduler is nothing: whoever lets messages in has looked.
    pub fn handle(&mut self, event: Event<Said>, actions: &mut Vec<Action<Said>>) {
        match self {
            Part::Central(node) => ROOM.with_borrow_mut(|wanted| {
                drive(node, event, (wanted, actions), of_central, Said::Central);
            }),
            Part::Forwarding(node) => {
                drive(&mut **node, event, (&mut Vec::new(), actions), of_forwarding, Said::Forwarding)
            }
            Part::Explicit(node) => {
                drive(node, event, (&mut Vec::new(), actions), of_explicit, Said::Explicit)
            }
        }
    }

    /// Which of these pages another host waits for that this one is to have no more.
    pub fn wanted_in(&self, span: Span) -> Vec<u32> {
        match self {
            Part::Central(node) => node.wanted_in(span),
            Part::Forwarding(node) => node.wanted_in(span),
            Part::Explicit(_) => Vec::new(),
        }
    }

    /// Whether anything is under way with a page that was just granted: then somebody asked before it came.
    pub fn waits_for_hold(&self, page: u32) -> bool {
        matches!(self, Part::Forwarding(node) if node.waits_for_hold(page))
    }

    /// Pages whose newest version is lost, as far as this host knows.
    pub fn lost_pages(&self) -> Vec<u32> {
        match self {
            Part::Central(node) => node.home().map_or_else(Vec::new, |home| home.table().lost_pages()),
            Part::Forwarding(node) => node.lost_pages(),
            Part::Explicit(_) => Vec::new(),
        }
    }

    /// What processes of this host may do with a page.
    pub fn access(&self, page: u32) -> Access {
        match self {
            Part::Central(node) => node.access(page),
            Part::Forwarding(node) => node.access(page),
            Part::Explicit(node) => node.access(page),
        }
    }
}

thread_local! {
    /// For what the central scheduler wants: every event of every fault needs some.
    static ROOM: RefCell<Vec<Action<central::Message>>> = const { RefCell::new(Vec::new()) };
}

fn drive<S: Scheduler>(
    node: &mut S,
    event: Event<Said>,
    (wanted, actions): (&mut Vec<Action<S::Message>>, &mut Vec<Action<Said>>),
    of: impl FnOnce(Said) -> Option<S::Message>,
    said: impl Fn(S::Message) -> Said,
) {
    let Some(event) = event.map(of) else { return };
    node.handle(event, wanted);
    actions.extend(wanted.drain(..).map(|action| action.map(&said)));
}

fn of_central(said: Said) -> Option<central::Message> {
    if let Said::Central(message) = said { Some(message) } else { None }
}

fn of_forwarding(said: Said) -> Option<forwarding::Message> {
    if let Said::Forwarding(message) = said { Some(message) } else { None }
}

fn of_explicit(said: Said) -> Option<explicit::Message> {
    if let Said::Explicit(message) = said { Some(message) } else { None }
}

impl Said {
    /// How it is counted.
    pub fn kind(&self) -> Kind {
        match self {
            Said::Central(message) => message.kind(),
            Said::Forwarding(message) => message.kind(),
            Said::Explicit(message) => message.kind(),
        }
    }

    /// Whether it is short, and so may travel with others.
    pub fn is_short(&self) -> bool {
        use forwarding::Message::{Flush, Hello, Known, Report, Settle, Welcome};
        match self {
            Said::Central(_) => true,
            Said::Forwarding(Welcome(_) | Hello(_) | Known(_) | Flush(_) | Report { .. } | Settle { .. }) => {
                false
            }
            Said::Forwarding(_) => true,
            Said::Explicit(_) => false, // of many pages by itself
        }
    }

    /// The pages whose bytes go along with it, and where the sender takes them from.
    pub fn carries(&self) -> Carried {
        match self {
            Said::Central(message) => central::Node::carries(message),
            Said::Forwarding(message) => forwarding::Node::carries(message),
            Said::Explicit(message) => explicit::Node::carries(message),
        }
    }

    /// The pages that it is about.
    pub fn pages(&self) -> Vec<u32> {
        match self {
            Said::Central(message) => message.span().pages().collect(),
            Said::Forwarding(message) => message.pages(),
            Said::Explicit(message) => message.pages(),
        }
    }

    /// Whether it is about a span of pages, which has at least one.
    pub fn is_of_a_span(&self) -> bool {
        use explicit::Message::{Fetch, NotRead, Pages};
        matches!(self, Said::Central(_) | Said::Explicit(Fetch { .. } | Pages { .. } | NotRead { .. }))
    }

    /// How many pages it is about, and the end of the last.
    pub fn extent(&self) -> (u64, u64) {
        let of_pages =
            |pages: &[u32]| (pages.len() as u64, pages.iter().max().map_or(0, |last| u64::from(*last) + 1));
        let of_span = |span: Span| (u64::from(span.count), u64::from(span.first) + u64::from(span.count));
        match self {
            Said::Central(message) => of_span(message.span()),
            Said::Explicit(
                explicit::Message::Fetch { span }
                | explicit::Message::Pages { span }
                | explicit::Message::NotRead { span },
            ) => of_span(*span),
            Said::Forwarding(message) => of_pages(&message.pages()),
            Said::Explicit(message) => of_pages(&message.pages()),
        }
    }

    /// At the home `me`: what becomes of this message to that host, if the pages that it carries cannot be read.
    pub(super) fn not_read(&self, me: HostId, to: HostId) -> Option<NotRead<Said>> {
        Some(match self {
            Said::Central(message) => central::Node::not_read(message, me, to)?.map(Said::Central),
            Said::Forwarding(message) => forwarding::Node::not_read(message, me, to)?.map(Said::Forwarding),
            Said::Explicit(message) => explicit::Node::not_read(message, me, to)?.map(Said::Explicit),
        })
    }

    /// What a host answers that has nothing of the object (any more).
    pub fn answer_of_nobody(&self) -> Vec<Said> {
        match self {
            Said::Central(message) => message.answer_of_nobody().map(Said::Central).into_iter().collect(),
            Said::Forwarding(message) => {
                message.answer_of_nobody().into_iter().map(Said::Forwarding).collect()
            }
            Said::Explicit(message) => message.answer_of_nobody().map(Said::Explicit).into_iter().collect(),
        }
    }
}
