//! Pages of a pager in another process, which nobody waits for in between: the thread that answers faults asks, and whoever
//! reads the answer puts them in their place. What this cannot do at once threads do that may wait (`bring_slowly`).

use super::Cache;
use super::view::Mapping;
use crate::arriving::Arrival;
use crate::pagers::Answer;
use commonhold_object::{Error, PageRange};
use std::sync::Arc;
use std::time::Instant;

/// Pages that were asked for. Their room is taken, and they are in flight.
struct Asked {
    cache: Arc<Cache>,
    mapping: Arc<Mapping>,
    run: PageRange,
    begun: Instant,
    /// They count as on their way until they came.
    _arrival: Option<Arrival>,
}

impl Cache {
    /// Asks the pager for pages that are in flight, for whoever faulted. False: it would have to wait.
    pub(super) fn ask_pager(self: &Arc<Self>, mapping: &Arc<Mapping>, run: PageRange) -> bool {
        if !self.is_whole() || self.pager.has_parent() {
            return false;
        }
        let acting = mapping.asker.acts();
        let arrival = match self.pays_for_pager() {
            Some(uid) => match self.machine.arriving.now(uid, run.count) {
                None => return false,
                arrival => arrival,
            },
            None => None,
        };
        drop(acting);
        if !self.try_take(run.count) {
            return false;
        }
        let asked = Asked {
            cache: self.clone(),
            mapping: mapping.clone(),
            run,
            begun: Instant::now(),
            _arrival: arrival,
        };
        let then = Box::new(|answer| asked.answered(answer));
        let is_asked = self.pager.ask(run.offset_bytes(), run.length_bytes() as usize, &mapping.asker, then);
        if !is_asked {
            self.give_back(run.count);
        }
        is_asked
    }
}

impl Asked {
    fn answered(self, answer: Answer) {
        match answer {
            // Who reads the answers of one user's pager waits for no other user, nor for who keeps the object's lock.
            Answer::Bytes(bytes, from) if self.is_near(from) => self.came(&bytes),
            Answer::Bytes(bytes, _) => {
                let cache = self.cache.clone();
                cache.run_fault(move || self.came(&bytes));
            }
            Answer::Failed(error) => {
                let cache = self.cache.clone();
                cache.run_fault(move || self.failed(&error));
            }
            Answer::Gone => {
                let Asked { cache, mapping, run, .. } = self;
                cache.give_back(run.count);
                super::book::insert(&mut cache.lock().queued, run);
                let this = cache.clone();
                cache.run_fault(move || this.bring_slowly(&mapping, run, true));
            }
        }
    }

    fn is_near(&self, from: u32) -> bool {
        let uid = self.mapping.uid;
        (uid == from || !self.cache.machine.is_ordinary(uid)) && self.cache.lock_soon().is_some()
    }

    fn came(self, bytes: &[u8]) {
        match self.cache.place_bytes(Some(&self.mapping), self.run, bytes) {
            Ok(shown) => {
                self.cache.placed(Some(&self.mapping), self.run, shown, self.begun);
                self.cache.evict_ahead();
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(self, error: &Error) {
        let _acting = self.mapping.asker.acts();
        let mut inner = self.cache.lock();
        self.cache.abandon(&mut inner, self.run);
        self.cache.not_brought(&mut inner, self.run, error);
    }
}
