//! What others do to the stored object while nobody maps it: the next mapper sees it.

use super::{Cache, Inner, book};
use crate::pagers::Stamp;
use std::sync::MutexGuard;

/// What the stored object looked like when nobody mapped it any more.
#[derive(PartialEq, Eq)]
pub(super) enum Seen {
    Stamp(Stamp),
    /// It had just been changed: one more change in the same instant would not be seen.
    Recent,
}

impl Cache {
    /// Nobody maps the object; remembers what is stored.
    pub(super) fn note_stamp(&self, inner: &mut Inner) {
        let seen = |(stamp, tells)| if tells { Seen::Stamp(stamp) } else { Seen::Recent };
        inner.stamp = self.pager.stamp().map(seen);
    }

    /// Before the first mapping: if the stored object may have been changed, what is in memory of it goes.
    pub(super) fn see_changes<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        while self.was_changed_unmapped(&inner) {
            // What is on its way into memory for somebody who unmapped since is of no use either.
            if inner.in_flight.is_subset(&inner.leaving) {
                self.drop_clean(&mut inner);
                break;
            }
            inner = self.wait_settled(inner);
        }
        inner
    }

    fn was_changed_unmapped(&self, inner: &Inner) -> bool {
        let now = || self.pager.stamp().map(|(stamp, _)| Seen::Stamp(stamp));
        inner.views.is_empty() && inner.stamp.is_some() && inner.stamp != now()
    }

    /// Drops frames equal to what was stored. Nobody maps the object, so none can change meanwhile.
    fn drop_clean(&self, inner: &mut Inner) {
        let mut keep = inner.book.dirty() | inner.book.writing() | &inner.in_flight;
        self.held_now().add_to(&mut keep);
        let gone = &inner.resident - keep;
        for run in book::runs(&gone) {
            if self.punch(run).is_err() {
                return;
            }
            book::remove(&mut inner.resident, run);
            self.give_back(run.count);
        }
    }
}
