//! What hosts and the home say to each other about pages.

use crate::event::{Access, Kind, Why};
use crate::span::Span;
use serde::{Deserialize, Serialize};

/// A message of the central scheduler. The paper's names are those of its external pager interface (Figure 1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// To the home: a process here wants these pages (`memory_object_data_request`; with `has_copy`,
    /// `memory_object_data_unlock`).
    Request {
        /// The pages.
        span: Span,
        /// What for.
        access: Access,
        /// The asker has copies to read of all of them, and keeps them until it is answered or told to drop them.
        has_copy: bool,
    },
    /// From the home: they are yours to use so (`memory_object_data_provided`, or `memory_object_lock_request` granting
    /// more). With their bytes if `with_data`.
    Grant {
        /// The pages.
        span: Span,
        /// What for.
        access: Access,
        /// Whether the bytes come along.
        with_data: bool,
    },
    /// From the home to the owner: give it back, and keep no more than that access (`memory_object_lock_request`).
    Recall {
        /// The page.
        page: u32,
        /// What the owner may keep.
        keep: Access,
    },
    /// From the home to a reader: drop your copy.
    Invalidate {
        /// The page.
        page: u32,
    },
    /// To the home: the page, in answer to a recall or unasked (`memory_object_data_write`).
    PageOut {
        /// The page.
        page: u32,
        /// Whether it answers a recall.
        answers: bool,
        /// What the sender keeps.
        keeps: Access,
    },
    /// To the home: done, and no bytes to give (`memory_object_lock_completed`): an invalidated reader, or an owner that
    /// had paged out already when the recall came.
    Done {
        /// The page.
        page: u32,
    },
    /// From the home: it cannot be had.
    Refuse {
        /// The pages.
        span: Span,
        /// Why.
        why: Why,
    },
}

impl Message {
    /// How it is counted.
    pub fn kind(&self) -> Kind {
        match self {
            Message::Request { .. } | Message::Recall { .. } | Message::Invalidate { .. } => Kind::Request,
            Message::Grant { .. } | Message::PageOut { .. } | Message::Refuse { .. } => Kind::Page,
            Message::Done { .. } => Kind::Acknowledgement,
        }
    }

    /// The pages that it is about.
    pub fn span(&self) -> Span {
        match self {
            Message::Request { span, .. } | Message::Grant { span, .. } | Message::Refuse { span, .. } => {
                *span
            }
            Message::Recall { page, .. }
            | Message::Invalidate { page }
            | Message::PageOut { page, .. }
            | Message::Done { page } => Span::one(*page),
        }
    }

    /// What a host answers that has nothing of the object (any more).
    pub fn answer_of_nobody(&self) -> Option<Message> {
        match self {
            Message::Recall { page, .. } | Message::Invalidate { page } => {
                Some(Message::Done { page: *page })
            }
            Message::Request { span, .. } => Some(Message::Refuse { span: *span, why: Why::HomeLost }),
            _ => None,
        }
    }

    /// Whether it is for the home's scheduler; else it is for the host's own part.
    pub(super) fn is_for_home(&self) -> bool {
        matches!(self, Message::Request { .. } | Message::PageOut { .. } | Message::Done { .. })
    }
}
