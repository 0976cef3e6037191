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
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::sync::MutexGuard;

/// Pages that a home had lent when its process ended.
#[derive(Debug, Default)]
pub struct Lent {
    /// To whom.
    pub to: BTreeMap<HostId, RoaringBitmap>,
    /// Those whose newest version nobody has any more.
    pub to_nobody: RoaringBitmap,
    /// Whether this is all there is to know, because the frames are those of that process.
    pub is_known: bool,
    /// Which home's process had lent it, if not the one that the frames say.
    pub by: Option<HostId>,
}

/// A hand-over of a page that is lent, as its home notes it in the place of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Hand-overs of a page are numbered.
    pub number: u64,
    /// Whether the home read it since: so it came where it was sent.
    pub is_read: bool,
}

/// In a stamp: see [`Handover::is_read`].
const READ: u64 = 1 << 63;

impl Lent {
    /// Those that others may have, whoever.
    pub fn to_anybody(&self) -> RoaringBitmap {
        self.to.values().fold(RoaringBitmap::new(), |all, pages| all | pages)
    }
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
        if self.traits.home_moves {
            // The next home may be another, which asks for whatever was valid.
            let all = inner.resident.clone();
            self.record(&mut inner, &all);
        }
        self.keep_marked(inner)
    }

    /// The same of the pages that are marked, and no others.
    fn keep_marked(&self, mut inner: MutexGuard<'_, Inner>) -> Result<()> {
        if let Some(rights) = &mut inner.rights {
            *rights = Rights::default();
        }
        let all = inner.resident.clone();
        let kept = &all & inner.book.dirty();
        let gone = &all - &kept;
        // What grows old first.
        for run in book::runs(&gone) {
            self.punch(run).doing("dropping frames")?;
        }
        let mut bytes = Vec::new();
        for part in book::runs(&kept).into_iter().flat_map(|run| sync::parts(run, FENCE_PAGES)) {
            self.protect_everywhere(&inner, part)?;
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
        let mut inner = self.lock();
        let pages = pages.intersect(inner.whole()); // the object may have shrunk since
        // In this order: of a page that is marked, under this stamp, without a frame and not on its way it is known that it
        // did not come so far that somebody wrote it. Without the mark it may have left long ago.
        self.note_newest(&mut inner, pages, true, true);
        inner.book.granted(pages, Grant { to: None, stamp })
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
                let is_another = || inner.book.live().grant((*page).into()).stamp != *stamp;
                let never_came = *stamp != 0 && (inner.book.dirty().contains(*page) || is_another());
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

    /// Whether one of these frames may be, or may have been when the home asked for it last.
    pub fn may_be_newest(&self, frames: PageRange) -> bool {
        let inner = self.lock();
        (frames.first..frames.end()).any(|frame| inner.book.is_dirty(frame as u32))
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
        self.is_held_by(host)
    }

    /// What is newest here of these pages stays, though it was granted to a process before; everything else goes.
    pub fn held_still(&self, pages: &RoaringBitmap, host: HostId) -> Result<()> {
        self.keep_these(pages)?;
        self.is_held_by(host)
    }

    /// These pages stay as they are here; everything else goes.
    pub fn keep_these(&self, pages: &RoaringBitmap) -> Result<()> {
        let mut inner = self.lock();
        let kept = &inner.resident & pages;
        let others = inner.book.dirty() - &kept;
        inner.book.forget(&others);
        self.record(&mut inner, &kept);
        self.keep_marked(inner)
    }

    /// What comes from now on is granted to that host.
    pub fn is_held_by(&self, host: HostId) -> Result<()> {
        if self.holder() == Some(host) { Ok(()) } else { self.lock().book.live().set_holder(host.0) }
    }

    /// Of pages that are here, this host's versions are the newest from now on.
    pub fn is_newest(&self, pages: PageRange) {
        let mut inner = self.lock();
        let here = book::within(&inner.resident, pages);
        self.record(&mut inner, &here);
    }

    /// At the home: pages that are lent, and to whom.
    pub(super) fn lent(&self) -> Lent {
        let inner = self.lock();
        let mut found = Lent { is_known: true, ..Lent::default() };
        for page in inner.book.lent() {
            match inner.book.live().grant(page.into()).to {
                Some(host) => found.to.entry(HostId(host)).or_default().insert(page),
                None => found.to_nobody.insert(page),
            };
        }
        found
    }

    /// At the home, of forwarding: what is here of these pages was read when their owner had them by that hand-over. Whom they were
    /// lent to is as before.
    pub fn was_read(&self, pages: PageRange, number: u64) -> Result<()> {
        let mut inner = self.lock();
        (pages.first..pages.end()).try_for_each(|page| {
            let grant = inner.book.live().grant(page);
            inner.book.granted(PageRange::new(page, 1), Grant { stamp: number | READ, ..grant })
        })
    }

    /// At the home, of forwarding: by which hand-overs these pages went, or what is here of them was read since.
    pub fn handovers_of(&self, pages: &[u32]) -> Vec<(u32, Handover)> {
        let of = |stamp: u64| Handover { number: stamp & !READ, is_read: stamp & READ != 0 };
        self.stamps_of(pages).into_iter().map(|(page, stamp)| (page, of(stamp))).collect()
    }

    /// At the home: the newest versions of these pages are lost, whoever comes with them later.
    pub fn nobody_has(&self, pages: PageRange) -> Result<()> {
        self.lock().book.granted(pages, Grant::default())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{Book, Evictor, Traits};
    use super::*;
    use crate::live::Live;
    use crate::machine::Machine;
    use crate::on_way::{self, OnWay};
    use crate::pagers::ElsewherePager;
    use crate::refuge::{self, Refuge};
    use crate::shared::Role;
    use crate::spill::Spill;
    use commonhold_coherence::Access;
    use commonhold_object::{Error, ErrorKind, ObjectId, SyncMode};
    use commonhold_sys::frames;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::{Arc, Weak};

    const PAGES: u64 = 16;

    /// What the keeper keeps.
    pub(crate) struct Memory {
        frames: Arc<OwnedFd>,
        on_way: Arc<OwnedFd>,
    }

    impl Memory {
        pub(crate) fn new() -> Memory {
            Memory {
                frames: frames::create("commonhold-test", PAGES * PAGE_SIZE_BYTES).unwrap().into(),
                on_way: on_way::new_memory().unwrap().into(),
            }
        }

        /// The same, whose frames can be read alone.
        pub(crate) fn to_be_read(&self) -> Memory {
            let frames = frames::reopen_read_only(&*self.frames).unwrap();
            Memory { frames: frames.into(), on_way: self.on_way.clone() }
        }
    }

    /// The cache of an object of another host, in the next process if there was one before.
    pub(crate) fn cache(directory: &Path, memory: &Memory) -> Arc<Cache> {
        let machine = Machine::new(
            directory,
            "boot".into(),
            PAGES,
            Evictor::new([], Box::new(|_, _| Ok(()))),
            Refuge::new(refuge::new_memory().unwrap().into()),
            OnWay::open(memory.on_way.clone()).unwrap(),
        )
        .unwrap();
        let (path, size) = (directory.join("live"), PAGES * PAGE_SIZE_BYTES);
        let live = Live::reopen(&path, "boot").unwrap().map(|(live, _)| live);
        let live = live.unwrap_or_else(|| Live::create(&path, "boot", 1, size).unwrap());
        let traits = Traits {
            uid: 0,
            sync: SyncMode::Plain,
            freezable: false,
            space_reserved: false,
            fault_deadline_ms: None,
            limit_pages: PAGES,
            home_moves: false,
        };
        let (pager, book) = (Box::new(ElsewherePager), Book::recover(live).unwrap());
        let spill = Spill::new(&directory.join("spill"));
        let frames = memory.frames.clone();
        let cache = Cache::new(machine, ObjectId(1), 7, traits, size, frames, pager, book, spill);
        cache.belongs_to_all();
        cache.driver.set((Weak::new(), Role::Copies)).unwrap();
        cache.adopt_frames().unwrap();
        cache
    }

    /// Of explicit coherence: the home is lost, and a sync fails, when it has said of a part of the pages that they are synced.
    #[test]
    fn what_is_synced_counts_as_written_here_no_longer() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        let host = cache(directory.path(), &memory);
        let pages: RoaringBitmap = [1, 2, 3].into();
        {
            let mut inner = host.lock();
            inner.book.add_dirty(&pages).unwrap();
            inner.book.start_writing(&pages).unwrap();
            inner.book.add_dirty(&[3].into()).unwrap(); // written again meanwhile
        }
        host.is_synced(&[1, 3].into());
        assert_eq!(host.keep_written().unwrap(), [2, 3].into());
        let lost = Err(Error::new(ErrorKind::Disconnected, "the home is lost"));
        host.end_writing(&pages, lost).unwrap_err();
        assert_eq!(*host.lock().book.dirty(), [2, 3].into());
        assert!(host.lock().book.writing().is_empty());
    }

    /// The host dies at any instant of a grant, or of what follows from it: the next knows of each page what became of it.
    #[test]
    fn what_became_of_a_grant_is_known_to_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        let page = |number| PageRange::new(number, 1);
        let bytes = |number: u8| [number; PAGE_SIZE_BYTES as usize];
        let host = cache(directory.path(), &memory);
        // 1 was never granted, 2 was and did not come, 3 came, 4 came and left again.
        for number in 2..5 {
            host.granted(page(number), 100 + number).unwrap();
        }
        for number in 3..5 {
            host.install(page(number), Access::Write, true, Some(&bytes(number as u8))).unwrap();
        }
        assert!(host.restrict(page(4), page(4), Access::None).unwrap().is_some());
        drop(host);
        let asked: Vec<(u32, u64)> = (1..5).map(|number| (number, 100 + u64::from(number))).collect();
        for _ in 0..2 {
            let next = cache(directory.path(), &memory);
            next.begin_anew(false).unwrap();
            let back = next.newest_of(&asked).unwrap();
            assert_eq!((back.pages, back.untouched), (vec![3, 4], vec![1, 2]));
            assert!(back.bytes == [bytes(3), bytes(4)].concat());
        }
        let forgotten = Memory { on_way: on_way::new_memory().unwrap().into(), ..memory };
        let back = cache(directory.path(), &forgotten).newest_of(&asked[3..]).unwrap();
        assert!(back.pages.is_empty() && back.untouched.is_empty(), "nobody knows what was written there");
    }
}
