//! What hosts and the home say to each other.

use crate::event::Kind;
use crate::span::Span;
use serde::{Deserialize, Serialize};

/// A message of explicit coherence.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// To the home: a process here touches these pages. Who fetches shares from then on.
    Fetch {
        /// The pages.
        span: Span,
    },
    /// From the home: the pages, with their bytes.
    Pages {
        /// The pages.
        span: Span,
    },
    /// From the home: it could not read them.
    NotRead {
        /// The pages.
        span: Span,
    },
    /// To the home: these pages are what everybody sees from now on, with their bytes.
    Sync {
        /// The pages, in order.
        pages: Vec<u32>,
    },
    /// From the home: others synced these pages.
    Changed {
        /// The pages, in order.
        pages: Vec<u32>,
    },
    /// To the home: known.
    Known,
    /// From the home: your sync is done.
    Synced,
    /// From the home: others see your sync, but it could not be stored.
    NotSynced,
    /// To the home: this host shares the object no longer.
    Leave,
}

impl Message {
    /// How it is counted.
    pub fn kind(&self) -> Kind {
        match self {
            Message::Fetch { .. } | Message::Sync { .. } | Message::Changed { .. } => Kind::Request,
            Message::Pages { .. } | Message::NotRead { .. } => Kind::Page,
            Message::Known | Message::Synced | Message::NotSynced | Message::Leave => Kind::Acknowledgement,
        }
    }

    /// The pages that it is about, in order.
    pub fn pages(&self) -> Vec<u32> {
        match self {
            Message::Fetch { span } | Message::Pages { span } | Message::NotRead { span } => {
                span.pages().collect()
            }
            Message::Sync { pages } | Message::Changed { pages } => pages.clone(),
            Message::Known | Message::Synced | Message::NotSynced | Message::Leave => Vec::new(),
        }
    }

    /// What a host answers that has nothing of the object (any more).
    pub fn answer_of_nobody(&self) -> Option<Message> {
        matches!(self, Message::Changed { .. }).then_some(Message::Known)
    }

    /// Whether it is for the home; else it is for a host that shares.
    pub(super) fn is_for_home(&self) -> bool {
        matches!(self, Message::Fetch { .. } | Message::Sync { .. } | Message::Known | Message::Leave)
    }
}
