//! What a host has newest of another's object when it cannot say so: the home, or this host, is another process now, or
//! messages between the two were lost. Frames that may be the newest version stay, in no page table and without rights, until
//! the home has asked for those that it misses, or says that it goes on without (`docs/LEASES.md`, "Giving back").
//!
//! Which frames those are the book says: a page is marked before it may be written here, and the mark goes with the frame. A
//! page that was paged out and is still read here has its mark too: the home, which knows to whom it lent what, does not ask
//! for it.

use super::coherent::{FENCE_PAGES, Rights};
use super::{Cache, Inner, book, read_frames, sync};
use crate::live::Grant;
use crate::shared::Back;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{PAGE_SIZE_BYTES, PageRange, Result};
use commonhold_sys::frames;
use roaring::RoaringBitmap;
use std::collections::BTreeMap;

/// Pages that a home had lent when its process ended.
#[derive(Debug, Default)]
pub struct Lent {
    /// To whom.
    pub to: BTreeMap<HostId, RoaringBitmap>,
    /// Those whose newest version nobody has any more.
    pub to_nobody: RoaringBitmap,
}

impl Cache {
    /// The same where other pages than the marked ones are the newest: those are marked.
    pub fn keep_only(&self, is_newest: impl Fn(u32) -> bool) -> Result<()> {
        let mut inner = self.lock();
        let newest: RoaringBitmap = inner.resident.iter().filter(|page| is_newest(*page)).collect();
        let others = inner.book.dirty() - &newest;
        inner.book.forget(&others);
        self.record(&mut inner, &newest);
        drop(inner);
        self.keep_newest()
    }

    /// No process here uses the object any more. What may be the newest version of a page stays in its frame; everything
    /// else goes.
    pub fn keep_newest(&self) -> Result<()> {
        let mut inner = self.lock();
        if let Some(rights) = &mut inner.rights {
            *rights = Rights::default();
        }
        let all = inner.resident.clone();
        let kept = &all & inner.book.dirty();
        let gone = &all - &kept;
        // What grows old first.
        for run in book::runs(&gone) {
            frames::punch(&*self.frames, run.offset_bytes(), run.length_bytes()).doing("dropping frames")?;
        }
        let mut bytes = Vec::new();
        for part in book::runs(&kept).into_iter().flat_map(|run| sync::parts(run, FENCE_PAGES)) {
            self.protect_everywhere(&inner, part);
            bytes.resize(part.length_bytes() as usize, 0);
            read_frames(&self.frames, part.first, &mut bytes).doing("reading frames")?;
            let anew = self.make_anew(part, &bytes);
            anew.doing("taking frames from page tables")?;
        }
        inner.views.iter_mut().for_each(|view| view.forget(&all));
        inner.resident = kept;
        self.give_back(gone.len());
        drop(inner);
        self.ask_again();
        Ok(())
    }

    /// Pages leave this host that may be the newest versions: until they have arrived they can be had from the ring.
    pub(super) fn note_on_way(&self, inner: &Inner, pages: PageRange, bytes: &[u8]) {
        if !self.is_copies() {
            return;
        }
        let dirty = |page: &u64| inner.book.is_dirty(*page as u32);
        for (page, bytes) in
            (pages.first..pages.end()).zip(bytes.as_chunks().0).filter(|(page, _)| dirty(page))
        {
            let stamp = inner.book.live().grant(page).stamp;
            if stamp != 0
                && let Err(error) = self.machine.on_way.put(self.uuid, page as u32, stamp, bytes)
            {
                self.machine
                    .log(format_args!("object {}: page {page} is only on its way: {error}", self.id.0));
            }
        }
    }

    /// Pages come that may be written here, by the grant of that stamp.
    pub fn granted(&self, pages: PageRange, stamp: u64) -> Result<()> {
        let inner = self.lock();
        let pages = pages.intersect(inner.whole()); // the object may have shrunk since
        inner.book.live().granted(pages.first, pages.count, Grant { to: None, stamp })
    }

    /// What is here of pages that were granted by these stamps.
    pub fn newest_of(&self, asked: &[(u32, u64)]) -> Result<Back> {
        let inner = self.lock();
        let mut back = Back::default();
        for (page, stamp) in asked {
            let mut bytes = Box::new([0; PAGE_SIZE_BYTES as usize]);
            if inner.resident.contains(*page) && inner.book.dirty().contains(*page) {
                let read = read_frames(&self.frames, u64::from(*page), &mut bytes[..]);
                if let Err(error) = read.doing("reading a frame") {
                    self.report(&error); // this one is lost, and no other
                    continue;
                }
            } else if let Some(found) = self.machine.on_way.find(self.uuid, *page, *stamp) {
                bytes = found;
            } else {
                let never_came = *stamp != 0 && inner.book.live().grant((*page).into()).stamp != *stamp;
                back.untouched.extend(never_came.then_some(*page));
                continue;
            }
            back.pages.push(*page);
            back.bytes.extend_from_slice(&bytes[..]);
        }
        Ok(back)
    }

    /// At the home: the stamps by which pages were granted.
    pub fn stamps_of(&self, pages: &[u32]) -> Vec<(u32, u64)> {
        let inner = self.lock();
        pages.iter().map(|page| (*page, inner.book.live().grant((*page).into()).stamp)).collect()
    }

    /// Whether a frame may be the newest version of its page.
    pub fn has_newest(&self) -> bool {
        let inner = self.lock();
        !inner.resident.is_disjoint(inner.book.dirty())
    }

    /// The host under whose number the frames were granted.
    pub fn holder(&self) -> Option<HostId> {
        self.lock().book.live().holder().map(HostId)
    }

    /// Nothing is kept any more. What comes from now on is granted to that host.
    pub fn held_by(&self, host: HostId) -> Result<()> {
        self.forget_all()?;
        if self.holder() == Some(host) { Ok(()) } else { self.lock().book.live().set_holder(host.0) }
    }

    /// At the home: pages that are lent, and to whom.
    pub(super) fn lent(&self) -> Lent {
        let inner = self.lock();
        let mut found = Lent::default();
        for page in inner.book.lent() {
            match inner.book.live().grant(page.into()).to {
                Some(host) => found.to.entry(HostId(host)).or_default().insert(page),
                None => found.to_nobody.insert(page),
            };
        }
        found
    }

    /// At the home: the newest versions of these pages are lost, whoever comes with them later.
    pub fn nobody_has(&self, pages: PageRange) -> Result<()> {
        self.lock().book.live().granted(pages.first, pages.count, Grant::default())
    }
}
