//! So many of something at once, and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many there may be, and how many there are.
pub struct Places {
    most: usize,
    taken: AtomicUsize,
}

/// One of them, until it is dropped.
pub struct Place(Arc<Places>);

impl Places {
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places { most, taken: AtomicUsize::new(0) })
    }
}

impl Place {
    /// None if all are taken.
    pub fn take(of: &Arc<Places>) -> Option<Place> {
        let place = Place(of.clone()); // given back in any case
        (of.taken.fetch_add(1, Ordering::AcqRel) < of.most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
