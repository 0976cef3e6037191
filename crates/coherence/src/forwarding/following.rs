//! The next process of a host: it follows the one that ended, and has what that one had newest, because a page is noted
//! before anybody learns of it (`Action::Own`, `Action::KeepSent`), and frames outlive the process.
//!
//! It speaks for the one before it: a loss of which it is said who follows makes that one a member in the other's place, with
//! its rank, and so the round that settles the loss waits for its report. That has the pages which the one before owned, and
//! those that it had handed over: such a page is the newest version if whoever was to get it reports that it never came
//! (`decide`). So the death of processes loses nothing, whatever was on its way between them.

use super::message::Standing;
use super::node::Node;
use super::page::Page;
use crate::event::Access;
use crate::span::HostId;

impl Node {
    /// What the next process of this host has to know, if this one ends now.
    pub fn leaves_behind(&self) -> Vec<Standing> {
        let standing = |(number, page): (u32, super::table::Glance)| Standing {
            page: number,
            owned: page.owned,
            number: page.number,
            has_copy: false,
            kept: page.kept,
            sent_to: page.sent_to,
            lost: None,
        };
        let says = |s: &Standing| s.owned || s.kept.is_some() || s.number != 0;
        self.pages.glances().map(standing).filter(says).collect()
    }

    /// Before anything else: what the process before left behind, and which processes all that came to is noted there. Its
    /// driver says this only to a process of which the others hear that it follows that one, and only to one that is not the
    /// home.
    pub fn follow(&mut self, speaks_for: Vec<HostId>, left: impl IntoIterator<Item = Standing>) {
        self.speaks_for = speaks_for;
        for Standing { page, owned, number, kept, sent_to, .. } in left {
            let hint = if owned { self.me } else { self.first_hint };
            let access = Access::None;
            let (kept, sent_to) = if owned { (None, None) } else { (kept, sent_to) };
            self.pages.insert(page, Page { access, owned, number, kept, sent_to, ..Page::unknown(hint) });
        }
    }
}
