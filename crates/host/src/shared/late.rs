//! Pages that came when the object had shrunk here, or was about to: nobody may use them, and they go as soon as they may. Until
//! then their bytes are kept: the home may not have shrunk yet, and if it does not, they are the newest.

use crate::cache::coherent::PageBytes;
use std::collections::BTreeMap;

/// By number; none of a page whose bytes have been sent.
#[derive(Default)]
pub(super) struct Late(BTreeMap<u32, Option<PageBytes>>);

impl Late {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A page came.
    pub fn put(&mut self, page: u32, bytes: Option<PageBytes>) {
        self.0.insert(page, bytes);
    }

    /// The bytes of a page that came, for who sends it away, or uses it after all.
    pub fn take(&mut self, page: u32) -> Option<PageBytes> {
        self.0.get_mut(&page).and_then(Option::take)
    }

    /// The object is as large again: this page may be used.
    pub fn is_in_time(&mut self, page: u32) {
        self.0.remove(&page);
    }

    pub fn contains(&self, page: u32) -> bool {
        self.0.contains_key(&page)
    }

    /// Forgets those that are not here any more.
    pub fn retain(&mut self, is_here: impl Fn(u32) -> bool) {
        self.0.retain(|page, _| is_here(*page));
    }

    pub fn pages(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
