//! Which mappings show pages of an object: they come, are cut, and go.

use super::view::{Mapping, View};
use super::{Cache, Inner, book, fault, without};
use commonhold_object::{PageRange, SessionId};
use roaring::RoaringBitmap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl Cache {
    /// Its views: mapping and pages.
    pub fn views(&self) -> Vec<(Arc<Mapping>, PageRange)> {
        self.lock().views.iter().map(|v| (v.mapping.clone(), v.pages)).collect()
    }

    /// Whether anybody maps it.
    pub fn is_mapped(&self) -> bool {
        self.view_count.load(Ordering::Acquire) > 0
    }

    /// Views came or went.
    pub(super) fn count_views(&self, inner: &Inner) {
        self.view_count.store(inner.views.len(), Ordering::Release);
    }

    /// Whether a process that may write maps it.
    pub fn has_writer(&self) -> bool {
        self.lock().views.iter().any(|v| v.mapping.writes_object())
    }

    /// Adds a view. What was changed in the stored object while nobody mapped it is seen now.
    pub fn add_view(&self, mapping: Arc<Mapping>, pages: PageRange) {
        let mut inner = self.see_changes(self.lock());
        if mapping.writes_object() {
            book::remove(&mut inner.left_in_order, pages); // its end decides
        }
        inner.views.push(View { mapping, pages, installed: RoaringBitmap::new() });
        self.count_views(&inner);
    }

    /// Takes pages out of the views of one mapping, after their dirty bits were collected.
    pub fn remove_pages(&self, mapping: &Arc<Mapping>, pages: PageRange) {
        let mut inner = self.lock();
        for view in inner.views.take(mapping) {
            for part in without(view.pages, pages) {
                let installed = book::within(&view.installed, part);
                inner.views.push(View { mapping: view.mapping.clone(), pages: part, installed });
            }
        }
        self.count_views(&inner);
        let (gone, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut inner.waiting)
            .into_iter()
            .partition(|w| Arc::ptr_eq(&w.mapping, mapping) && pages.contains(u64::from(w.page)));
        inner.waiting = waiting;
        // Whoever touches what is being unmapped must not sleep on in what is mapped there next.
        gone.iter().for_each(|w| fault::wake(&w.mapping, w.page.into()));
        if inner.views.is_empty() {
            self.note_stamp(&mut inner);
        }
        drop(inner);
        // Nobody puts pages at these addresses any more.
        drop(mapping.gate.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes out every view, lock and waiting fault of a session. Its page tables may be gone already:
    /// whatever was installed in a writable view of it counts as written.
    pub fn remove_session(&self, session: SessionId) {
        self.remove_holds(session);
        let mut inner = self.lock();
        inner.waiting.retain(|w| w.mapping.session != session);
        let is_mine = |(at, view): (usize, &View)| (view.mapping.session == session).then_some(at);
        let mine: Vec<usize> = inner.views.iter().enumerate().filter_map(is_mine).collect();
        if mine.is_empty() {
            return;
        }
        let whole = inner.whole();
        self.collect_from(&mut inner, whole, mine);
        inner.views.retain(|v| v.mapping.session != session);
        self.count_views(&inner);
        if inner.views.is_empty() {
            self.note_stamp(&mut inner);
        }
    }
}
