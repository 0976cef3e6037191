//! What fellow hosts say to each other about a page.

use crate::event::Kind;
use crate::span::HostId;
use serde::{Deserialize, Serialize};

/// A message of the distributed scheduler. All are about one scheduler page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// `who` wants a copy to read; goes from hint to hint until somebody has one to give, or will.
    Read {
        /// The page.
        page: u32,
        /// Who wants it.
        who: HostId,
        /// How often it was forwarded.
        hops: u32,
    },
    /// `who` wants to own the page; goes from hint to hint, and turns them.
    Write {
        /// The page.
        page: u32,
        /// Who wants it.
        who: HostId,
    },
    /// Your request to read was forwarded too often: ask to write.
    Insist {
        /// The page.
        page: u32,
    },
    /// A copy to read, with its bytes.
    Copy {
        /// The page.
        page: u32,
    },
    /// The page, with its bytes, and its ownership. No other copy exists.
    HandOver {
        /// The page.
        page: u32,
    },
    /// Drop your copy, and those that you supplied: `owner` is about to write.
    Invalidate {
        /// The page.
        page: u32,
        /// Who will own the page.
        owner: HostId,
    },
    /// Done, here and below.
    Invalidated {
        /// The page.
        page: u32,
    },
}

impl Message {
    /// Which page it is about.
    pub fn page(&self) -> u32 {
        match *self {
            Message::Read { page, .. }
            | Message::Write { page, .. }
            | Message::Insist { page }
            | Message::Copy { page }
            | Message::HandOver { page }
            | Message::Invalidate { page, .. }
            | Message::Invalidated { page } => page,
        }
    }

    /// How it is counted.
    pub fn kind(&self) -> Kind {
        match self {
            Message::Read { .. } | Message::Write { .. } | Message::Invalidate { .. } => Kind::Request,
            Message::Copy { .. } | Message::HandOver { .. } => Kind::Page,
            Message::Insist { .. } | Message::Invalidated { .. } => Kind::Acknowledgement,
        }
    }
}
