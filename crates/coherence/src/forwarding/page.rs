//! What a host knows of one page.

use super::table::Glance;
use crate::event::Access;
use crate::span::HostId;
use std::collections::{BTreeSet, VecDeque};

/// Why copies that this host supplied are being invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// This host owns the page and wants to write.
    Write,
    /// This host owns the page and hands it over to that one. It may ask for it again meanwhile, and have a successor
    /// for that time already.
    HandOver(HostId),
    /// This host's own copy is being invalidated, by this one.
    Supplier(HostId),
    /// No invalidation: this host owns the page and waits until others keep its version; it hands it over to that one then.
    Publish(Option<HostId>),
}

/// So far it is counted how often a host has written a page after it had read it.
pub(super) const MOST_UPDATES: u8 = 3;

/// One page at one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Page {
    /// What processes here may do.
    pub access: Access,
    /// This host owns the page: it has the newest version, and nobody else may make one.
    pub owned: bool,
    /// Who owns the page, or asked for it last as far as is known here; this host itself if it is that.
    pub hint: HostId,
    /// What is under way for this host.
    pub asked: Access,
    /// The most that faults here want.
    pub wants: Access,
    /// Who gets the page after this host has had it, or has it next.
    pub next: Option<HostId>,
    /// Whether that one keeps its copy until then.
    pub next_keeps_copy: bool,
    /// Who gets copies when this host has the page.
    pub readers: Vec<HostId>,
    /// To whom this host gave copies.
    pub supplied: BTreeSet<HostId>,
    /// Whose word that copies are gone is awaited, and what for.
    pub expected: BTreeSet<HostId>,
    /// See `expected`.
    pub purpose: Option<Purpose>,
    /// Minimum holds that are not over.
    pub holds: u8,
    /// Invalidations that wait for the hold to end: from whom, and for whom.
    pub deferred: VecDeque<(HostId, HostId, u64)>,
    /// How often in a row this host has written the page after it had read it, at most [`MOST_UPDATES`].
    pub updates: u8,
    /// The page came with its ownership to be read, and was not written here since.
    pub is_unwritten: bool,
    /// The home was told that this host would rather not own it.
    pub is_offered: bool,
    /// The version that others keep, if this host owns the page; it may have written since. Else of the last hand-over to
    /// this host, or by it, since the last round: what others keep of before it, it has had. Numbers only grow.
    pub number: u64,
    /// Who keeps it, or one before.
    pub keepers: BTreeSet<HostId>,
    /// Who is to keep the next.
    pub fresh: BTreeSet<HostId>,
    /// What this host has of the page is what those keep, and they are as many as there shall be.
    pub published: bool,
    /// This host keeps that version.
    pub kept: Option<u64>,
    /// It was handed over to that host, which may not have got it: then it is the newest.
    pub sent_to: Option<HostId>,
    /// Its newest version is lost, at so many reverts.
    pub lost: Option<u32>,
}

impl Page {
    /// A page that this host has never had: whoever it copied the object from knows more.
    pub fn unknown(hint: HostId) -> Page {
        Page {
            access: Access::None,
            owned: false,
            hint,
            asked: Access::None,
            wants: Access::None,
            next: None,
            next_keeps_copy: false,
            readers: Vec::new(),
            supplied: BTreeSet::new(),
            expected: BTreeSet::new(),
            purpose: None,
            holds: 0,
            deferred: VecDeque::new(),
            updates: 0,
            is_unwritten: false,
            is_offered: false,
            number: 0,
            keepers: BTreeSet::new(),
            fresh: BTreeSet::new(),
            published: false,
            kept: None,
            sent_to: None,
            lost: None,
        }
    }

    /// A page that nobody has asked for yet, at the host that the object begins at: it has the newest version.
    pub fn origin(me: HostId) -> Page {
        Page { access: Access::Write, owned: true, ..Page::unknown(me) }
    }

    /// A page of which nothing is left.
    pub fn lost(hint: HostId, at: u32) -> Page {
        Page { lost: Some(at), ..Page::unknown(hint) }
    }

    /// What is asked of it most often.
    pub fn glance(&self) -> Glance {
        let Page { access, owned, hint, number, kept, sent_to, lost, .. } = *self;
        Glance { access, owned, hint, number, kept, sent_to, lost }
    }

    /// Whether nothing is under way: nobody here or elsewhere waits for anything of it.
    pub fn is_at_rest(&self) -> bool {
        self.asked == Access::None
            && self.wants == Access::None
            && self.holds == 0
            && self.purpose.is_none()
            && self.next.is_none()
            && self.readers.is_empty()
            && self.expected.is_empty()
            && self.fresh.is_empty()
            && self.deferred.is_empty()
    }

    /// Whether somebody may get it, or is told of it, when its minimum hold is over.
    pub fn is_waited_for(&self) -> bool {
        self.next.is_some() || !self.readers.is_empty() || !self.deferred.is_empty() || self.purpose.is_some()
    }

    /// Whether somebody has copies from here.
    pub fn has_given(&self) -> bool {
        !self.supplied.is_empty()
    }

    /// Whether this host, which asks for the page, has a copy that is nobody's source.
    pub fn keeps_copy(&self) -> bool {
        self.access == Access::Read && !self.has_given() && self.purpose.is_none()
    }

    /// Takes the host that gets the page next. Its copy is not one to be invalidated, if it keeps it until then.
    pub fn take_next(&mut self) -> Option<HostId> {
        let next = self.next.take()?;
        if std::mem::take(&mut self.next_keeps_copy) {
            self.supplied.remove(&next);
        }
        Some(next)
    }

    /// Whether it has a copy to give now. `published`: its owner gives only what was. Who asked for the page said what it gave
    /// by then, and gives no more.
    pub fn can_supply(&self, published: bool) -> bool {
        self.access != Access::None
            && self.asked != Access::Write
            && self.purpose.is_none()
            && !(self.access == Access::Write && self.holds > 0)
            && !(published && self.owned && !self.published)
    }
}
