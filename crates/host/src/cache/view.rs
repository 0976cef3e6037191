//! A mapping as its object sees it: which pages it shows, where, and how the page tables behind it are asked.

use super::book;
use crate::asker::Asker;
use crate::faults::stream::Stream;
use commonhold_object::{MapFlags, MappingId, PAGE_SIZE_BYTES, PageRange, Protection, SessionId, Sharing};
use commonhold_sys::claims::{Claims, INSTALLED};
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use roaring::RoaringBitmap;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// The descriptors through which one client's address space is served.
#[derive(Default)]
pub struct Space {
    /// One userfaultfd for each [`Kind`] in use.
    pub faults: [OnceLock<Arc<Userfaultfd>>; 3],
    /// Its page map.
    pub pagemap: OnceLock<Arc<Pagemap>>,
}

/// One mapping of a controlled object. It may have been split since: the object's views say what is left.
pub struct Mapping {
    /// Client's number for it.
    pub id: MappingId,
    /// Whose.
    pub session: SessionId,
    /// Process and user, for `map-info`.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// For whom pages of it are brought.
    pub asker: Arc<Asker>,
    /// Address of the object's page 0, had it been mapped: address = base + page × 4096 (wrapping).
    pub base: u64,
    /// What it may be used for.
    pub protection: Protection,
    /// Who sees its writes.
    pub sharing: Sharing,
    /// Wishes.
    pub flags: MapFlags,
    /// How first writes are noticed.
    pub kind: Kind,
    /// Where faults of it come in.
    pub uffd: Arc<Userfaultfd>,
    /// Where its dirty bits are.
    pub pagemap: Arc<Pagemap>,
    /// Claim words, with in-thread service; word 0 is the page at `claims_first`.
    pub claims: Option<Claims>,
    /// First page of the mapping as it was made.
    pub claims_first: u64,
    /// Faults served.
    pub faults: AtomicU64,
    /// Its access pattern.
    pub stream: Mutex<Stream>,
    /// Held for reading while pages are put at its addresses without the object's lock; who takes pages out of the
    /// mapping waits for that, because other things may be mapped there afterwards.
    pub gate: RwLock<()>,
    /// Pages at whose addresses something else was found: a client may unmap without a word, and map what it likes there.
    pub foreign: Mutex<RoaringBitmap>,
}

impl Mapping {
    /// Protects pages from writes. Addresses that are not the mapping's any more are passed over: the kernel stops at the
    /// first of them, and does not say where that was. An error: some page may be written as before.
    pub fn protect(&self, pages: PageRange) -> Result<(), Errno> {
        let own = {
            let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
            if foreign.is_empty() { None } else { Some(book::set_of(pages) - &*foreign) }
        };
        let Some(own) = own else { return self.protect_parts(pages) };
        book::runs(&own).into_iter().try_for_each(|run| self.protect_parts(run))
    }

    fn protect_parts(&self, pages: PageRange) -> Result<(), Errno> {
        match self.uffd.protect(self.address_of(pages.first), pages.length_bytes()) {
            Err(Errno::NOENT) if pages.count > 1 => {
                let half = pages.count / 2;
                self.protect_parts(PageRange::new(pages.first, half))?;
                self.protect_parts(PageRange::new(pages.first + half, pages.count - half))
            }
            Err(Errno::NOENT) => {
                let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
                foreign.insert(pages.first as u32);
                Ok(())
            }
            Err(Errno::SRCH) => Ok(()), // the process is gone
            done => done,
        }
    }

    /// Whether writes through it change the object.
    pub fn writes_object(&self) -> bool {
        self.protection == Protection::ReadWrite && self.sharing == Sharing::Shared
    }

    /// The claim word's number of a page.
    pub fn claim_of(&self, page: u64) -> Option<(&Claims, usize)> {
        let claims = self.claims.as_ref()?;
        let index = usize::try_from(page.checked_sub(self.claims_first)?).ok()?;
        (index < claims.pages()).then_some((claims, index))
    }

    /// Those of `pages` whose word the host did not get.
    pub fn claimed_now(&self, pages: &RoaringBitmap) -> RoaringBitmap {
        let not_ours =
            |page: &u32| self.claim_of(u64::from(*page)).is_some_and(|(claims, at)| !claims.is_taken(at));
        pages.iter().filter(not_ours).collect()
    }

    /// Where `page` is.
    pub fn address_of(&self, page: u64) -> u64 {
        self.base.wrapping_add(page * PAGE_SIZE_BYTES)
    }

    /// Where it began when it was made.
    pub fn first_address(&self) -> u64 {
        self.address_of(self.claims_first)
    }

    /// Which page is at `address`.
    pub fn page_at(&self, address: u64) -> u64 {
        address.wrapping_sub(self.base) / PAGE_SIZE_BYTES
    }
}

/// A run of pages that a mapping shows.
pub struct View {
    /// Of which mapping.
    pub mapping: Arc<Mapping>,
    /// Which pages.
    pub pages: PageRange,
    /// Pages that the host ever put into its page tables, and did not take out again.
    pub installed: RoaringBitmap,
}

/// The views of one object, in no order. There may be thousands, and each fault asks for those of one mapping.
#[derive(Default)]
pub struct Views {
    all: Vec<View>,
    /// Where in `all` the views of a mapping are. Mappings are told apart by where they lie in the host's memory.
    places: HashMap<usize, Vec<usize>>,
    /// How many have claim words.
    claiming: usize,
}

fn key(mapping: &Arc<Mapping>) -> usize {
    Arc::as_ptr(mapping).addr()
}

impl Views {
    /// Adds a view.
    pub fn push(&mut self, view: View) {
        self.claiming += usize::from(view.mapping.claims.is_some());
        self.places.entry(key(&view.mapping)).or_default().push(self.all.len());
        self.all.push(view);
    }

    /// Where the views of a mapping are.
    pub fn of(&self, mapping: &Arc<Mapping>) -> &[usize] {
        self.places.get(&key(mapping)).map_or(&[], Vec::as_slice)
    }

    /// Whether any has claim words.
    pub fn any_claims(&self) -> bool {
        self.claiming > 0
    }

    /// Takes out the views of a mapping.
    pub fn take(&mut self, mapping: &Arc<Mapping>) -> Vec<View> {
        let mut places = self.places.remove(&key(mapping)).unwrap_or_default();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let taken = places.into_iter().map(|at| {
            let view = self.all.swap_remove(at);
            self.claiming -= usize::from(view.mapping.claims.is_some());
            // The last one, of another mapping, lies there now: those of this mapping that lay behind went before.
            if let Some(moved) = self.all.get(at)
                && let Some(places) = self.places.get_mut(&key(&moved.mapping))
                && let Some(place) = places.iter_mut().find(|place| **place == self.all.len())
            {
                *place = at;
            }
            view
        });
        taken.collect()
    }

    /// Keeps those that `keep` says.
    pub fn retain(&mut self, keep: impl FnMut(&View) -> bool) {
        let mut all = std::mem::take(self).all;
        all.retain(keep);
        all.into_iter().for_each(|view| self.push(view));
    }
}

impl Deref for Views {
    type Target = [View];

    fn deref(&self) -> &[View] {
        &self.all
    }
}

/// To change what a view notes; its mapping stays.
impl DerefMut for Views {
    fn deref_mut(&mut self) -> &mut [View] {
        &mut self.all
    }
}

impl<'v> IntoIterator for &'v mut Views {
    type Item = &'v mut View;
    type IntoIter = std::slice::IterMut<'v, View>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter_mut()
    }
}

impl View {
    /// Pages of `run` with frames (`resident`) that may stand in this view's page tables: those the host put there, and
    /// those its own threads may have.
    pub fn may_show(&self, run: PageRange, resident: &RoaringBitmap) -> RoaringBitmap {
        let mut pages = book::within(&self.installed, run) & resident;
        if self.mapping.claims.is_some() {
            let claimed = |page: &u32| {
                self.mapping
                    .claim_of(u64::from(*page))
                    .is_some_and(|(claims, at)| claims.may_be_installed(at))
            };
            pages |= book::within(resident, run).iter().filter(claimed).collect::<RoaringBitmap>();
        }
        pages
    }

    /// The host took these pages out of the page tables.
    pub fn forget(&mut self, pages: &RoaringBitmap) {
        self.installed -= pages;
        if self.mapping.claims.is_some() {
            for page in book::within(pages, self.pages) {
                if let Some((claims, at)) = self.mapping.claim_of(page.into())
                    && claims.take(at).is_some()
                {
                    claims.release(at);
                }
            }
        }
    }

    /// Takes the claim words of pages for the host; gives those that the client is at right now, and remembers which
    /// it had installed.
    pub fn take_claims(&mut self, pages: &RoaringBitmap) -> RoaringBitmap {
        let mut refused = RoaringBitmap::new();
        if self.mapping.claims.is_none() {
            return refused;
        }
        for page in book::within(pages, self.pages) {
            let Some((claims, at)) = self.mapping.claim_of(page.into()) else { continue };
            match claims.take(at) {
                Some(INSTALLED) => drop(self.installed.insert(page)),
                Some(_) => {}
                None => drop(refused.insert(page)),
            }
        }
        refused
    }

    /// Gives claim words back that [`take_claims`](Self::take_claims) took.
    pub fn release_claims(&self, pages: &RoaringBitmap) {
        if self.mapping.claims.is_none() {
            return;
        }
        for page in book::within(pages, self.pages) {
            if let Some((claims, at)) = self.mapping.claim_of(page.into()) {
                claims.release(at);
            }
        }
    }
}
