//! For whom pages are brought and stored: what is in flight counts as theirs, and ends when they do.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whoever a session is of.
#[derive(Debug)]
pub struct Asker {
    /// Its user.
    pub uid: u32,
    gone: AtomicBool,
}

thread_local! {
    static ACTING_FOR: RefCell<Option<Arc<Asker>>> = const { RefCell::new(None) };
}

impl Asker {
    /// A session's, of that user.
    pub fn new(uid: u32) -> Arc<Asker> {
        Arc::new(Asker { uid, gone: AtomicBool::new(false) })
    }

    /// The session has ended: nobody waits for what it asked for.
    pub fn leave(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether the session has ended.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// From now on this thread acts for the asker, until what this gives is dropped.
    pub fn acts(self: &Arc<Self>) -> Acting {
        Acting(ACTING_FOR.replace(Some(self.clone())))
    }

    /// For whom this thread acts; none where the host has reasons of its own.
    pub fn acting() -> Option<Arc<Asker>> {
        ACTING_FOR.with_borrow(Clone::clone)
    }
}

/// As long as this is there the thread acts for somebody.
pub struct Acting(Option<Arc<Asker>>);

impl Drop for Acting {
    fn drop(&mut self) {
        ACTING_FOR.replace(self.0.take());
    }
}

/// Whether anybody wants what this thread does: the host itself, or an asker who has not gone.
pub fn is_wanted() -> bool {
    Asker::acting().is_none_or(|asker| !asker.is_gone())
}
