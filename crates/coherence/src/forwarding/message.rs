//! What fellow hosts say to each other: about a page, about who takes part, and after a loss.

use super::members::{Epoch, View};
use crate::event::Kind;
use crate::span::HostId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A message of the distributed scheduler.
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
        /// It has a copy, of which it gave none: that one need not be dropped before it gets the page.
        keeps_copy: bool,
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
        /// Which version of the page this is, where versions are kept.
        number: u64,
        /// Who keeps it.
        keepers: BTreeSet<HostId>,
        /// Who keeps a version before it, and need not any more.
        before: BTreeSet<HostId>,
    },
    /// Drop your copy, and those that you supplied: `owner` is about to write.
    Invalidate {
        /// The page.
        page: u32,
        /// Who will own the page.
        owner: HostId,
        /// By which hand-over its owner had it: copies are of that version, or a later one.
        number: u64,
    },
    /// Done, here and below.
    Invalidated {
        /// The page.
        page: u32,
    },
    /// What you keep of the page, up to this version, is not needed any more.
    Forget {
        /// The page.
        page: u32,
        /// The version.
        number: u64,
    },
    /// To the home: ask for this page, the sender would rather not own it.
    Take {
        /// The page.
        page: u32,
    },
    /// The newest version of the page that you asked for is lost.
    Missing {
        /// The page.
        page: u32,
    },
    /// The page that you asked for could not be read where it begins: its owner is the home still. Said by a home to itself: it
    /// could not send what it was about to.
    NotRead {
        /// The page.
        page: u32,
    },
    /// Keep this version of the page, with its bytes.
    Replica {
        /// The page.
        page: u32,
        /// The version.
        number: u64,
    },
    /// The sender keeps it.
    Held {
        /// The page.
        page: u32,
    },
    /// To the home: the sender wants to take part.
    Join,
    /// You take part; these do, and this is what is known of losses.
    Welcome(View),
    /// To all who took part before: the sender takes part.
    Hello(View),
    /// The sender knows that you take part.
    Known(View),
    /// All that the sender sends from now on is of this epoch.
    Flush(Epoch),
    /// To the leader of the round: what the sender has.
    Report {
        /// Of these pages, and of those in the parts before.
        pages: Vec<Standing>,
        /// The reverts of the epoch that the sender settled last.
        settled_reverts: u32,
        /// The processes before it that it speaks for: it knows all that came to them.
        speaks_for: Vec<HostId>,
        /// No part follows.
        is_last: bool,
    },
    /// From the leader: how things are from now on.
    Settle {
        /// Of these pages, and of those in the parts before.
        pages: Vec<Settled>,
        /// No part follows.
        is_last: bool,
    },
}

/// What a host has of a page, and knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// The page.
    pub page: u32,
    /// It owns it.
    pub owned: bool,
    /// The version that was the last to be kept, if it owns it; else of the last hand-over to the sender, or by it.
    pub number: u64,
    /// It has a copy to read.
    pub has_copy: bool,
    /// It keeps that version.
    pub kept: Option<u64>,
    /// Because it handed it over to that host, which may not have got it.
    pub sent_to: Option<HostId>,
    /// Its newest version was lost, at so many reverts.
    pub lost: Option<u32>,
}

impl Standing {
    /// Of a host that has nothing of a page.
    pub fn nothing(page: u32) -> Standing {
        Standing { page, owned: false, number: 0, has_copy: false, kept: None, sent_to: None, lost: None }
    }
}

/// What was settled about a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settled {
    /// The page.
    pub page: u32,
    /// What becomes of it.
    pub fate: Fate,
    /// Who keeps what there is of it; whoever else does, but the home, need not any more. The owner is told of all, others
    /// of themselves.
    pub keepers: BTreeSet<HostId>,
}

/// What becomes of a page after a loss.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fate {
    /// Its newest version is lost, at so many reverts.
    Lost(u32),
    /// It has an owner.
    Owned {
        /// Who.
        owner: HostId,
        /// The last version that anybody kept.
        number: u64,
        /// Who has a copy beside it; told to the owner alone.
        copies: Vec<HostId>,
        /// From what the owner keeps of it.
        restored: Option<Restored>,
    },
}

/// What a page is from now on that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Restored {
    /// The newest version: it was on its way to a host that did not get it.
    Newest,
    /// One before: the newest is lost.
    Older,
}

impl Message {
    /// The pages that it is about: whoever takes a message from the network looks whether they are there.
    pub fn pages(&self) -> Vec<u32> {
        match self {
            Message::Read { page, .. }
            | Message::Write { page, .. }
            | Message::Insist { page }
            | Message::Copy { page }
            | Message::HandOver { page, .. }
            | Message::Invalidate { page, .. }
            | Message::Invalidated { page }
            | Message::Forget { page, .. }
            | Message::Replica { page, .. }
            | Message::Held { page }
            | Message::Take { page }
            | Message::Missing { page }
            | Message::NotRead { page } => vec![*page],
            Message::Report { pages, .. } => pages.iter().map(|standing| standing.page).collect(),
            Message::Settle { pages, .. } => pages.iter().map(|settled| settled.page).collect(),
            Message::Join
            | Message::Welcome(_)
            | Message::Hello(_)
            | Message::Known(_)
            | Message::Flush(_) => Vec::new(),
        }
    }

    /// How many hosts it names, at least: whoever takes a message from the network looks at that, too.
    pub fn hosts(&self) -> usize {
        match self {
            Message::HandOver { keepers, before, .. } => keepers.len().max(before.len()),
            Message::Welcome(view) | Message::Hello(view) | Message::Known(view) => {
                view.ranks.len().max(view.epoch.lost.len())
            }
            Message::Flush(epoch) => epoch.lost.len(),
            Message::Report { speaks_for, .. } => speaks_for.len(),
            Message::Settle { pages, .. } => {
                let named = |settled: &Settled| match &settled.fate {
                    Fate::Owned { copies, .. } => settled.keepers.len().max(copies.len()),
                    Fate::Lost(_) => settled.keepers.len(),
                };
                pages.iter().map(named).max().unwrap_or_default()
            }
            _ => 0,
        }
    }

    /// What is answered by a host that has nothing of the object: a process that follows one which took part, and does not use
    /// it. Who settles a loss waits for that.
    pub fn answer_of_nobody(&self) -> Vec<Message> {
        match self {
            Message::Flush(epoch) => {
                let report = Message::Report {
                    pages: Vec::new(),
                    settled_reverts: 0,
                    speaks_for: Vec::new(),
                    is_last: true,
                };
                vec![Message::Flush(epoch.clone()), report]
            }
            _ => Vec::new(),
        }
    }

    /// How it is counted: what is said about members and after losses is apart from the paper's messages.
    pub fn kind(&self) -> Kind {
        match self {
            Message::Read { .. } | Message::Write { .. } | Message::Invalidate { .. } => Kind::Request,
            Message::Copy { .. } | Message::HandOver { .. } | Message::Replica { .. } => Kind::Page,
            _ => Kind::Acknowledgement,
        }
    }
}
