//! A mapping as its object sees it: which pages it shows, where, and how the page tables behind it are asked.

use crate::faults::stream::Stream;
use commonhold_object::{MapFlags, MappingId, PAGE_SIZE_BYTES, PageRange, Protection, SessionId, Sharing};
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use roaring::RoaringBitmap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

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
    /// Faults served.
    pub faults: AtomicU64,
    /// Its access pattern.
    pub stream: Mutex<Stream>,
}

impl Mapping {
    /// Whether writes through it change the object.
    pub fn writes_object(&self) -> bool {
        self.protection == Protection::ReadWrite && self.sharing == Sharing::Shared
    }

    /// Where `page` is.
    pub fn address_of(&self, page: u64) -> u64 {
        self.base.wrapping_add(page * PAGE_SIZE_BYTES)
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
