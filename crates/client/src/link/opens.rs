//! Which objects this process has open. A host keeps a set for each session: an object is open or not,
//! however often it was opened. So handles are counted here, and the last one closes.

use super::{Answer, Call, Shared, lock};
use crate::object::Core;
use crate::{ObjectId, Result};
use commonhold_object::wire::{OpenReply, Reply, Request};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, Weak};

/// So many objects may wait to be closed before those who would open more wait too: where some thread is always about to
/// open one, none would ever be closed.
const CLOSES_LEFT: usize = 64;

/// Open objects of one host.
#[derive(Default)]
pub(crate) struct Opens {
    handles: HashMap<ObjectId, usize>,
    /// Those of them that let the object move.
    movable: HashMap<ObjectId, usize>,
    /// Requests to open under way: one of them may be for an object that another thread is closing.
    under_way: usize,
    /// To be closed when none is under way.
    to_close: Vec<(ObjectId, u64)>,
    /// What the next host must be brought, because nobody else may have it: frames of controlled objects, and
    /// the memory of anonymous ones. And ephemeral objects, which go with their last user.
    to_bring: Vec<Weak<Core>>,
}

impl Opens {
    /// Those of them that are still open or mapped.
    pub(crate) fn belongings(&mut self) -> Vec<Arc<Core>> {
        self.to_bring.retain(|core| core.strong_count() > 0);
        self.to_bring.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether there is one whose users are counted.
    pub(crate) fn has_ephemeral(&self) -> bool {
        self.to_bring.iter().filter_map(Weak::upgrade).any(|core| core.options().ephemeral_ms.is_some())
    }

    /// Remembers an object that must be brought.
    pub(crate) fn remember(&mut self, core: &Arc<Core>) {
        // Looked through only before it grows: there may be thousands.
        if self.to_bring.len() == self.to_bring.capacity() {
            self.to_bring.retain(|core| core.strong_count() > 0);
            let more = self.to_bring.len().max(64);
            self.to_bring.reserve(more);
        }
        self.to_bring.push(Arc::downgrade(core));
    }

    /// In a fork child: the threads that had requests under way are not here.
    pub(crate) fn begin_anew_after_fork(&mut self) {
        self.under_way = 0;
        self.to_close.clear();
    }
}

impl Shared {
    /// Asks for an object. Gives also the generation of the connection on which it is open.
    pub(crate) fn open(
        &'static self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(OpenReply, Option<OwnedFd>, u64)> {
        self.begin_to_open();
        let answer = self.call(Call { fds, ..Call::new(request) });
        let mut opens = lock(&self.opens);
        opens.under_way = opens.under_way.saturating_sub(1);
        let result = match answer {
            Ok(Answer::Reply(Reply::Opened(reply), fds, generation)) => {
                *opens.handles.entry(reply.info.id).or_default() += 1;
                Ok((*reply, fds.into_iter().next(), generation))
            }
            Ok(_) => Err(super::dispatch::wrong_reply()),
            Err(error) => Err(error),
        };
        if opens.under_way == 0 {
            for (id, generation) in std::mem::take(&mut opens.to_close) {
                self.close_if_unheld(&opens, id, generation);
            }
            self.all_opened.notify_all();
        }
        result
    }

    /// Counts a request to open. Nobody who is counted waits here, so the wait ends when they have their answers.
    fn begin_to_open(&self) {
        let mut opens = lock(&self.opens);
        while opens.to_close.len() >= CLOSES_LEFT && opens.under_way > 0 {
            opens = self.all_opened.wait(opens).unwrap_or_else(PoisonError::into_inner);
        }
        opens.under_way += 1;
    }

    /// Handles that keep an object where it is.
    pub(crate) fn pinned_handles(&self, id: ObjectId) -> usize {
        let opens = lock(&self.opens);
        let [all, movable] = [&opens.handles, &opens.movable].map(|of| of.get(&id).copied().unwrap_or(0));
        all.saturating_sub(movable)
    }

    /// One of the handles lets the object move.
    pub(crate) fn is_movable(&self, id: ObjectId) {
        *lock(&self.opens).movable.entry(id).or_default() += 1;
    }

    /// One handle less, of those that let the object move or of the others.
    pub(crate) fn close_one(&self, id: ObjectId, generation: u64, movable: bool) {
        if movable {
            let mut opens = lock(&self.opens);
            let left = opens.movable.get_mut(&id).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                opens.movable.remove(&id);
            }
        }
        self.close(id, generation);
    }

    /// One handle less.
    pub(crate) fn close(&self, id: ObjectId, generation: u64) {
        let mut opens = lock(&self.opens);
        let Some(count) = opens.handles.get_mut(&id) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        opens.handles.remove(&id);
        if opens.under_way > 0 {
            opens.to_close.push((id, generation));
        } else {
            self.close_if_unheld(&opens, id, generation);
        }
    }

    fn close_if_unheld(&self, opens: &Opens, id: ObjectId, generation: u64) {
        if !opens.handles.contains_key(&id) {
            self.note(&Request::Close { object: id }, generation);
        }
    }
}
