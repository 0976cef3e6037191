//! Which version of an object has a page (`docs/SNAPSHOTS.md`). Values alone: no thread, no file, no clock.
//!
//! A snapshot *lacks* a page until somebody touches the page there, or somebody is about to write it in
//! the object that the snapshot is of, its *parent*. What a snapshot lacks its parent has, as it was.
//! (Mach's shadow objects turned round: there the newest version lacks what nobody wrote.)
//!
//! ```mermaid
//! flowchart RL
//!     M["/a@monday: 2 pages of its own"] -- lacks the rest --> T["/a@tuesday: 1 page"]
//!     T -- lacks the rest --> A["/a"]
//! ```
//!
//! * **Before a page of a parent is written**, each of its snapshots has the page ([`before_write`]).
//! * **A newer snapshot stands between** an older one and their parent, so that a page is copied once
//!   for both ([`Versions::covered_by`]).
//! * **A chain collapses** when its middle goes: its snapshots get what it has and they lack, and are
//!   then snapshots of its parent ([`Versions::past`]).

#![no_std]

extern crate alloc;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What a snapshot is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<Id> {
    /// The object that has what the snapshot lacks.
    pub parent: Id,
    /// Page of the parent that is the snapshot's page 0.
    pub first_page: u64,
    /// How many pages the snapshot has.
    pub pages: u64,
}

impl<Id> Link<Id> {
    /// The snapshot's number of a page of the parent, if the snapshot has the page.
    pub fn page_of(&self, parents: u64) -> Option<u64> {
        parents.checked_sub(self.first_page).filter(|page| *page < self.pages)
    }
}

/// So many versions may have to be asked for a page, the last of which is no snapshot.
pub const DEPTH: usize = 64;

/// All snapshots that lack pages, and what they are of.
#[derive(Clone, Debug)]
pub struct Versions<Id> {
    links: BTreeMap<Id, Link<Id>>,
    /// The same by parents.
    below: BTreeMap<Id, BTreeSet<Id>>,
}

impl<Id> Default for Versions<Id> {
    fn default() -> Self {
        Versions { links: BTreeMap::new(), below: BTreeMap::new() }
    }
}

impl<Id: Ord + Copy> Versions<Id> {
    /// What a snapshot is of, as long as it lacks pages.
    pub fn of(&self, id: Id) -> Option<Link<Id>> {
        self.links.get(&id).copied()
    }

    /// Says what a snapshot is of from now on. False, and nothing changes: the parent is, in the end, a
    /// snapshot of it.
    pub fn link(&mut self, id: Id, link: Link<Id>) -> bool {
        let mut above = Some(link.parent);
        while let Some(one) = above {
            if one == id {
                return false;
            }
            above = self.links.get(&one).map(|link| link.parent);
        }
        self.cut(id);
        self.links.insert(id, link);
        self.below.entry(link.parent).or_default().insert(id);
        true
    }

    /// A snapshot lacks nothing any more, or is gone.
    pub fn cut(&mut self, id: Id) -> Option<Link<Id>> {
        let link = self.links.remove(&id)?;
        if let Some(children) = self.below.get_mut(&link.parent) {
            children.remove(&id);
            if children.is_empty() {
                self.below.remove(&link.parent);
            }
        }
        Some(link)
    }

    /// The same of a snapshot and of its own snapshots, and of theirs.
    pub fn cut_all(&mut self, id: Id) -> Vec<(Id, Link<Id>)> {
        let mut cut: Vec<(Id, Link<Id>)> = self.cut(id).map(|link| (id, link)).into_iter().collect();
        let mut at = 0;
        while let Some((parent, _)) = cut.get(at).copied() {
            for (child, link) in self.children(parent) {
                self.cut(child);
                cut.push((child, link));
            }
            at += 1;
        }
        cut
    }

    /// The snapshots of an object.
    pub fn children(&self, id: Id) -> Vec<(Id, Link<Id>)> {
        let below = self.below.get(&id).into_iter().flatten();
        below.filter_map(|child| Some((*child, self.of(*child)?))).collect()
    }

    /// Whether an object has snapshots.
    pub fn is_parent(&self, id: Id) -> bool {
        self.below.contains_key(&id)
    }

    /// How many versions are asked for a page that this one lacks.
    pub fn depth(&self, id: Id) -> usize {
        let mut above = self.of(id);
        let mut depth = 0;
        while let Some(link) = above {
            depth += 1;
            above = self.of(link.parent);
        }
        depth
    }

    /// How many more its snapshots, and theirs, may have to ask.
    fn height(&self, id: Id) -> usize {
        let mut height = 0;
        let mut level = self.children(id);
        while !level.is_empty() {
            height += 1;
            level = level.iter().flat_map(|(id, _)| self.children(*id)).collect();
        }
        height
    }

    /// Older snapshots of the same parent all of whose pages a newer one has: what they can be snapshots
    /// of from now on. Only where nobody writes to the newer one, and where that does not get too deep.
    pub fn covered_by(&self, newer: Id) -> Vec<(Id, Link<Id>)> {
        let Some(new) = self.of(newer) else { return Vec::new() };
        let within = |link: &Link<Id>| {
            link.first_page >= new.first_page && link.first_page + link.pages <= new.first_page + new.pages
        };
        let room = DEPTH.saturating_sub(self.depth(newer) + 1);
        self.children(new.parent)
            .into_iter()
            .filter(|(id, link)| *id != newer && within(link) && self.height(*id) <= room)
            .map(|(id, link)| {
                let first_page = link.first_page - new.first_page;
                (id, Link { parent: newer, first_page, pages: link.pages })
            })
            .collect()
    }

    /// What the snapshots of an object that goes are of then. None: of nothing, they must lack no page.
    pub fn past(&self, middle: Id) -> Vec<(Id, Option<Link<Id>>)> {
        let above = self.of(middle);
        let past = |link: Link<Id>| {
            let up = above?;
            Some(Link { parent: up.parent, first_page: up.first_page + link.first_page, pages: link.pages })
        };
        self.children(middle).into_iter().map(|(id, link)| (id, past(link))).collect()
    }
}

/// How a snapshot stands to one of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// It has the page.
    Yes,
    /// Somebody is bringing the page there.
    Soon,
    /// It lacks the page.
    No,
}

/// What is to be done before a page of its parent is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Write,
    /// The parent's page is copied there.
    Copy,
    /// The snapshot brings the page as for anybody who touches it, and the writer waits.
    Bring,
}

/// What is to be done before a page of the parent is written. `moves`: the snapshot is about to be one of
/// this parent, and another version may have the page yet.
pub fn before_write(has: Has, moves: bool) -> Before {
    match (has, moves) {
        (Has::Yes, _) => Before::Write,
        (Has::No, false) => Before::Copy,
        (Has::Soon, _) | (Has::No, true) => Before::Bring,
    }
}
