//! At the home: a request for many pages that its own processes have written. Its own part is asked for each of them, by a
//! message; page tables are changed once for all of them.

use super::Turn;
use crate::cache::book;
use crate::shared::part::Said;
use commonhold_coherence::{Access, Action, Event, HostId, Span, central};
use roaring::RoaringBitmap;

/// The page of which this host's own part is asked to give up writing.
pub(super) fn own_recall(me: HostId, event: &Event<Said>) -> Option<u32> {
    match event {
        Event::Message {
            from,
            message: Said::Central(central::Message::Recall { page, keep: Access::Read }),
        } if *from == me => Some(*page),
        _ => None,
    }
}

/// The page that may only be read from now on.
fn protected(action: &Action<Said>) -> Option<u32> {
    match action {
        Action::Restrict { page, access: Access::Read } => Some(*page),
        _ => None,
    }
}

impl Turn<'_> {
    /// Has the scheduler hear of the pages behind `first` too, as far as they are recalled next and in a row. What becomes
    /// of all page tables comes before anything is said: earlier than one by one, never later.
    pub(super) fn recall_next(&mut self, first: u32, actions: &mut Vec<Action<Said>>) {
        let (me, mut last) = (self.driver.plan().me, first);
        let is_next = |last: u32| {
            move |(event, _): &mut (Event<Said>, Vec<u8>)| own_recall(me, event) == last.checked_add(1)
        };
        while let Some((event, _)) = self.to_do.pop_front_if(is_next(last)) {
            last += 1;
            if let Event::Message { message, .. } = &event {
                self.wait_for_holds(message);
            }
            self.driver.seen.event(me, &event);
            self.state.part.handle(event, actions);
        }
        if last > first {
            self.protect_together(actions);
        }
    }

    /// Pages that may only be read from now on: page tables are changed once for all of them, and that is done.
    pub(super) fn protect_together(&mut self, actions: &mut Vec<Action<Said>>) {
        let Some(cache) = &self.cache else { return };
        let pages: RoaringBitmap = actions.iter().filter_map(protected).collect();
        let mut restricted = RoaringBitmap::new();
        for run in book::runs(&pages) {
            let frames = self.driver.frames(Span::new(run.first as u32, run.count as u32));
            match cache.restrict(frames, self.driver.reach(frames), Access::Read) {
                Ok(_) => book::insert(&mut restricted, run),
                Err(error) => cache.report(&error), // tried again, page by page
            }
        }
        let (me, seen) = (self.driver.plan.me, &self.driver.seen);
        actions.retain(|action| {
            let done = protected(action).is_some_and(|page| restricted.contains(page));
            if done {
                seen.action(me, action);
            }
            !done
        });
    }
}
