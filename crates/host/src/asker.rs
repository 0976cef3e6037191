//! For whom pages are brought and stored: what is in flight counts as theirs, and ends when they do.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Faults of one session that may wait at once. A process can wake its threads itself, and each comes again.
const MOST_WAITING: usize = 4096;

/// Whoever a session is of.
#[derive(Debug)]
pub struct Asker {
    /// Its user.
    pub uid: u32,
    gone: AtomicBool,
    waiting: AtomicUsize,
}

/// A fault of the session that waits, until it is dropped.
#[derive(Debug)]
pub struct Waits(Arc<Asker>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    static ACTING_FOR: RefCell<Option<Arc<Asker>>> = const { RefCell::new(None) };
}

impl Asker {
    /// A session's, of that user.
    pub fn new(uid: u32) -> Arc<Asker> {
        Arc::new(Asker { uid, gone: AtomicBool::new(false), waiting: AtomicUsize::new(0) })
    }

    /// Another fault waits. None: so many do that this one is to ask again.
    pub fn waits(self: &Arc<Self>) -> Option<Waits> {
        let counted = Waits(self.clone());
        (self.waiting.fetch_add(1, Ordering::Relaxed) < MOST_WAITING).then_some(counted)
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
