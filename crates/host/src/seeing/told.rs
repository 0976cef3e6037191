//! What there is to see of a message between schedulers: its name, its kind, its pages.

use crate::shared::Said;
use commonhold_coherence::{Access, HostId, Kind, Scheduler, Span, central, explicit, forwarding};
use commonhold_object::MessageKind;

/// A message, as it is counted and traced.
pub trait Told {
    /// As `docs/PROTOCOL.md` calls it.
    fn name(&self) -> &'static str;
    /// How it is counted.
    fn kind(&self) -> MessageKind;
    /// The pages that it is about.
    fn pages(&self) -> Vec<u32>;
    /// The same, where they are a run.
    fn run(&self) -> Option<Span> {
        None
    }
    /// Pages whose bytes go along.
    fn carried(&self) -> usize;
    /// Whose request it is, where requests are passed on.
    fn asker(&self) -> Option<HostId> {
        None
    }
    /// Whether who gets it owns the pages from then on.
    fn hands_over(&self) -> bool {
        false
    }
    /// Whether who sent it owns the pages no more.
    fn gives_back(&self) -> bool {
        false
    }
}

/// The kind, in the words of the wire.
fn told(kind: Kind) -> MessageKind {
    match kind {
        Kind::Request => MessageKind::Request,
        Kind::Page => MessageKind::Page,
        Kind::Acknowledgement => MessageKind::Acknowledgement,
    }
}

impl Told for commonhold_tokens::Message {
    fn name(&self) -> &'static str {
        use commonhold_tokens::Message;
        match self {
            Message::Request { .. } => "token request",
            Message::Token { .. } => "token",
            Message::Changed { .. } => "token change",
            Message::Join { .. } | Message::Leave(_) => "token join",
            Message::Count { .. } | Message::Counted { .. } | Message::Begin { .. } => "token count",
        }
    }

    fn kind(&self) -> MessageKind {
        use commonhold_tokens::Message;
        match self {
            Message::Request { .. } => MessageKind::Request,
            Message::Token { .. } => MessageKind::Page,
            _ => MessageKind::Acknowledgement,
        }
    }

    fn pages(&self) -> Vec<u32> {
        Vec::new()
    }

    fn carried(&self) -> usize {
        0
    }
}

impl Told for central::Message {
    fn name(&self) -> &'static str {
        match self {
            central::Message::Request { .. } => "request",
            central::Message::Grant { .. } => "grant",
            central::Message::Recall { .. } => "recall",
            central::Message::Invalidate { .. } => "invalidate",
            central::Message::PageOut { .. } => "page-out",
            central::Message::Done { .. } => "done",
            central::Message::Refuse { .. } => "refuse",
        }
    }

    fn kind(&self) -> MessageKind {
        told(central::Message::kind(self))
    }

    fn pages(&self) -> Vec<u32> {
        self.span().pages().collect()
    }

    fn run(&self) -> Option<Span> {
        Some(self.span())
    }

    fn carried(&self) -> usize {
        match self {
            central::Message::Grant { span, with_data: true, .. } => span.count as usize,
            central::Message::PageOut { .. } => 1,
            _ => 0,
        }
    }

    fn hands_over(&self) -> bool {
        matches!(self, central::Message::Grant { access: Access::Write, .. })
    }

    fn gives_back(&self) -> bool {
        matches!(self, central::Message::PageOut { keeps, .. } if *keeps != Access::Write)
    }
}

impl Told for forwarding::Message {
    fn name(&self) -> &'static str {
        match self {
            forwarding::Message::Read { .. } => "read",
            forwarding::Message::Write { .. } => "write",
            forwarding::Message::Insist { .. } => "insist",
            forwarding::Message::Copy { .. } => "copy",
            forwarding::Message::HandOver { .. } => "hand-over",
            forwarding::Message::Invalidate { .. } => "invalidate",
            forwarding::Message::Invalidated { .. } => "invalidated",
            forwarding::Message::Forget { .. } => "forget",
            forwarding::Message::Take { .. } => "take",
            forwarding::Message::Replica { .. } => "replica",
            forwarding::Message::Held { .. } => "held",
            forwarding::Message::Missing { .. } => "missing",
            forwarding::Message::NotRead { .. } => "not-read",
            forwarding::Message::Join => "join",
            forwarding::Message::Welcome(_) => "welcome",
            forwarding::Message::Hello(_) => "hello",
            forwarding::Message::Known(_) => "known-member",
            forwarding::Message::Flush(_) => "flush",
            forwarding::Message::Report { .. } => "report",
            forwarding::Message::Settle { .. } => "settle",
        }
    }

    fn kind(&self) -> MessageKind {
        told(forwarding::Message::kind(self))
    }

    fn pages(&self) -> Vec<u32> {
        match self {
            // What is said of all pages after a loss makes none of them hot.
            forwarding::Message::Report { .. } | forwarding::Message::Settle { .. } => Vec::new(),
            other => forwarding::Message::pages(other),
        }
    }

    fn carried(&self) -> usize {
        forwarding::Node::carries(self).pages().len()
    }

    fn asker(&self) -> Option<HostId> {
        match self {
            forwarding::Message::Read { who, .. } | forwarding::Message::Write { who, .. } => Some(*who),
            _ => None,
        }
    }

    fn hands_over(&self) -> bool {
        matches!(self, forwarding::Message::HandOver { .. })
    }
}

impl Told for explicit::Message {
    fn name(&self) -> &'static str {
        match self {
            explicit::Message::Fetch { .. } => "fetch",
            explicit::Message::Pages { .. } => "pages",
            explicit::Message::NotRead { .. } => "not-read",
            explicit::Message::Sync { .. } => "sync",
            explicit::Message::Changed { .. } => "changed",
            explicit::Message::Known => "known",
            explicit::Message::Synced => "synced",
            explicit::Message::NotSynced => "not-synced",
            explicit::Message::Leave => "leave",
        }
    }

    fn kind(&self) -> MessageKind {
        told(explicit::Message::kind(self))
    }

    fn pages(&self) -> Vec<u32> {
        explicit::Message::pages(self)
    }

    fn carried(&self) -> usize {
        explicit::Node::carries(self).pages().len()
    }
}

impl Told for Said {
    fn name(&self) -> &'static str {
        match self {
            Said::Central(message) => Told::name(message),
            Said::Forwarding(message) => Told::name(message),
            Said::Explicit(message) => Told::name(message),
        }
    }

    fn kind(&self) -> MessageKind {
        match self {
            Said::Central(message) => Told::kind(message),
            Said::Forwarding(message) => Told::kind(message),
            Said::Explicit(message) => Told::kind(message),
        }
    }

    fn pages(&self) -> Vec<u32> {
        match self {
            Said::Central(message) => Told::pages(message),
            Said::Forwarding(message) => Told::pages(message),
            Said::Explicit(message) => Told::pages(message),
        }
    }

    fn run(&self) -> Option<Span> {
        match self {
            Said::Central(message) => Told::run(message),
            Said::Forwarding(message) => Told::run(message),
            Said::Explicit(message) => Told::run(message),
        }
    }

    fn carried(&self) -> usize {
        match self {
            Said::Central(message) => Told::carried(message),
            Said::Forwarding(message) => Told::carried(message),
            Said::Explicit(message) => Told::carried(message),
        }
    }

    fn asker(&self) -> Option<HostId> {
        match self {
            Said::Central(message) => Told::asker(message),
            Said::Forwarding(message) => Told::asker(message),
            Said::Explicit(message) => Told::asker(message),
        }
    }

    fn hands_over(&self) -> bool {
        match self {
            Said::Central(message) => Told::hands_over(message),
            Said::Forwarding(message) => Told::hands_over(message),
            Said::Explicit(message) => Told::hands_over(message),
        }
    }

    fn gives_back(&self) -> bool {
        match self {
            Said::Central(message) => Told::gives_back(message),
            Said::Forwarding(message) => Told::gives_back(message),
            Said::Explicit(message) => Told::gives_back(message),
        }
    }
}
