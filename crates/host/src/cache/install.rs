//! A page comes from another host: the right to it, what the book must know of it, and the short way to whoever waits.

use super::{Cache, Inner, Waiting, book};
use crate::shared::Role;
use commonhold_coherence::Access;
use commonhold_object::{PAGE_SIZE_BYTES, PageRange};
use commonhold_sys::userfaultfd::Kind;
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::time::Instant;

impl Cache {
    /// The right comes. Page tables follow.
    pub(super) fn allow(&self, inner: &mut Inner, pages: PageRange, access: Access) {
        let awaited = !inner.waiting.is_empty();
        if let Some(rights) = &mut inner.rights {
            rights.allow_too(pages, access);
            if awaited {
                rights.let_in = Some((pages.first, Instant::now()));
            }
        }
    }

    /// Where this may be the newest version, the next host must know; the origin has it stored some time.
    pub(super) fn note_newest(&self, inner: &mut Inner, pages: PageRange, newest: bool, with_bytes: bool) {
        let newest =
            self.role() == Some(Role::Copies) && newest || self.role() == Some(Role::Origin) && with_bytes;
        let known = pages.count == 1 && inner.book.is_noted(pages.first as u32) && inner.leaving.is_empty();
        if newest && !known {
            self.record(inner, &book::set_of(pages));
        }
    }

    /// A page that has no frame here and that a thread waits for: the kernel makes the frame, fills it, maps it and wakes
    /// the thread in one call. False if it cannot be done so: nobody may use it yet, and the long way is to be gone. So it is
    /// for an ordinary user, who can hold the lock of the address space: a page that came late would be an old one.
    pub(super) fn install_for_waiter(
        self: &Arc<Self>,
        page: u64,
        access: Access,
        newest: bool,
        bytes: &[u8],
    ) -> bool {
        let (mut inner, one) = (self.lock(), PageRange::new(page, 1));
        let fits = |waiter: &Waiting| {
            u64::from(waiter.page) == page
                && waiter.mapping.writes_object()
                && !self.machine.is_ordinary(waiter.mapping.uid)
                && waiter.mapping.claims.is_none()
        };
        let in_the_way = |set: &RoaringBitmap| set.contains(page as u32);
        let Some(at) = inner.waiting.iter().position(fits) else { return false };
        // Where the object ends within it, something is to be done with its frame first.
        if inner.has_tail() && page + 1 == inner.size_pages()
            || in_the_way(&inner.resident)
            || in_the_way(&inner.in_flight)
            || bytes.len() as u64 != PAGE_SIZE_BYTES
        {
            return false;
        }
        let (mapping, write) = (inner.waiting[at].mapping.clone(), inner.waiting[at].write);
        if inner.view_of(&mapping, page).is_none() || !inner.whole().contains(page) {
            return false;
        }
        // Before the thread can write.
        self.note_newest(&mut inner, one, newest, true);
        let may_write = access == Access::Write && !inner.holds_writers();
        let writes = write && may_write && !inner.book.must_tell_page(page as u32);
        if writes && mapping.kind == Kind::Synchronous {
            self.note_write(&mut inner, page);
        }
        let copied = mapping.uffd.copy(mapping.address_of(page), bytes, !writes);
        if copied.stopped_by.is_some() {
            return false; // a frame that nobody counted, or a mapping that is gone: the long way finds out
        }
        self.allow(&mut inner, one, access);
        self.seen.waited(inner.waiting.swap_remove(at).since.elapsed());
        self.count_frames(&mut inner, one);
        inner.installed(&mapping, one);
        self.settle(&mut inner, one); // others who wait for the same page
        true
    }
}
