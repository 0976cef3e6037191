//! Pages of a pager in another process, which nobody waits for in between: the thread that answers faults asks, and whoever
//! reads the answer puts them in their place. What this cannot do at once threads do that may wait (`bring_slowly`).

use super::view::Mapping;
use super::{Cache, book};
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
            Answer::Bytes(bytes, Some(user)) if self.is_of(user) => self.came(&bytes),
            answer => self.later(answer),
        }
    }

    /// Whether nobody but that user, and who is trusted, can keep the object's lock or hold up what is to be done with the
    /// pages: whoever reads the answers of that user's pager may wait for it.
    fn is_of(&self, user: u32) -> bool {
        const FEW: usize = 8;
        let machine = &self.cache.machine;
        let is_near = |uid: u32| uid == user || !machine.is_ordinary(uid);
        let Some(inner) = self.cache.lock_soon() else { return false };
        inner.views.len() <= FEW && inner.views.iter().all(|view| is_near(view.mapping.uid))
    }

    /// A thread of the object's own deals with it: it may have to wait for who has the object's lock.
    fn later(self, answer: Answer) {
        let cache = self.cache.clone();
        let deal_with = move || match answer {
            Answer::Bytes(bytes, _) => self.came(&bytes),
            Answer::Failed(error) => self.failed(&error),
            Answer::Gone => self.asks_again(),
        };
        cache.apart.run_within(cache.share_now(), &cache.machine.bringing, deal_with);
    }

    fn asks_again(self) {
        let Asked { cache, mapping, run, .. } = self;
        cache.give_back(run.count);
        book::insert(&mut cache.lock().queued, run);
        let this = cache.clone();
        cache.run_fault(move || this.bring_slowly(&mapping, run, true));
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
