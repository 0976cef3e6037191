//! Page-holding locks in an object's scheduling: pages that processes of this host hold stay here, but not for ever. Who
//! may hold which pages is another question (`locks`).

use super::Driver;
use super::driver::State;
use super::part::Said;
use super::turn::Turn;
use crate::cache::book;
use commonhold_coherence::{Access, Event, HostId, Span, central, forwarding};
use commonhold_object::{PageRange, SessionId};
use roaring::RoaringBitmap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long after another host wanted to write one of them, held pages are kept no longer.
const KEPT: Duration = Duration::from_secs(5);

/// Pages of 4 KiB that are held here.
#[derive(Default)]
pub(super) struct Kept {
    pages: RoaringBitmap,
    /// Those that others want to write, the oldest first, and when they go.
    wanted: VecDeque<(Instant, u32)>,
}

fn span(pages: PageRange) -> Span {
    Span::new(pages.first as u32, pages.count as u32)
}

/// Whether a host that does what the message says has the page no more.
fn takes_away(message: &Said) -> bool {
    match message {
        Said::Central(message) => matches!(
            message,
            central::Message::Recall { keep: Access::None, .. } | central::Message::Invalidate { .. }
        ),
        Said::Forwarding(message) => {
            matches!(message, forwarding::Message::Write { .. } | forwarding::Message::Invalidate { .. })
        }
        Said::Explicit(_) => false,
    }
}

impl Driver {
    /// Pages are held here, or no longer: until then another host's sync leaves them as they are, and another host's write
    /// waits.
    pub fn lock(self: &Arc<Self>, pages: PageRange, locked: bool) {
        let mut state = self.state();
        let set = &mut state.held_here.pages;
        if locked {
            book::insert(set, pages)
        } else {
            book::remove(set, pages)
        }
        let spans = self.spans_held(&state, pages, locked);
        for span in if state.home.is_some() { spans } else { Vec::new() } {
            let event = if locked { Event::Lock { span } } else { Event::Unlock { span } };
            Turn::take(self, &mut state, event, Vec::new());
            if locked {
                self.note_wanted_before(&mut state, span);
            }
        }
    }

    /// This host ends: nothing is held here any more.
    pub(super) fn hold_nothing(self: &Arc<Self>) {
        let held = self.state().held_here.pages.clone();
        book::runs(&held).into_iter().for_each(|run| self.lock(run, false));
    }

    /// Whoever asked just before waits no longer than who asks later.
    fn note_wanted_before(self: &Arc<Self>, state: &mut State, span: Span) {
        let end = Instant::now() + KEPT;
        let wanted = state.part.wanted_in(span);
        if !wanted.is_empty() {
            state.held_here.wanted.extend(wanted.into_iter().map(|page| (end, page)));
            self.holds_end_at(end);
        }
    }

    /// What those pages are to the scheduler; if they are not `held` any more, without those of which a part is.
    fn spans_held(&self, state: &State, pages: PageRange, held: bool) -> Vec<Span> {
        let of =
            |frames: &RoaringBitmap| self.plan.sizes.pages_of(frames).into_iter().collect::<RoaringBitmap>();
        let mut all = of(&book::set_of(pages));
        if !held {
            all -= of(&book::within(&state.held_here.pages, self.whole_pages(pages)));
        }
        book::runs(&all).into_iter().map(span).collect()
    }

    /// Those pages, and what is one page with them to the scheduler: hosts hold all of it or nothing.
    pub fn whole_pages(&self, pages: PageRange) -> PageRange {
        let unit = self.plan.sizes.page();
        let first = pages.first / unit * unit;
        PageRange::new(first, pages.end().next_multiple_of(unit) - first)
    }

    /// A process of this host lets pages go that it held: whoever keeps the list of locks is to know.
    pub fn unlocked(&self, session: SessionId, pages: PageRange) {
        self.carrier.unlocked(self.plan.object, session, pages);
    }

    /// This host's part begins anew: what is held here it does not know yet.
    pub(super) fn hold_again(&self, state: &mut State) {
        let held: Vec<PageRange> = self.cache().map(|cache| cache.held()).unwrap_or_default();
        state.held_here = Kept::default();
        for pages in held {
            book::insert(&mut state.held_here.pages, pages);
            for span in self.spans_held(state, pages, true) {
                state.part.handle(Event::Lock { span }, &mut Vec::new());
            }
        }
    }

    /// Another host wants to write pages that are held here: from now on it is counted how long.
    pub(super) fn note_wanted(self: &Arc<Self>, state: &mut State, message: &Said) {
        if state.held_here.pages.is_empty() || !takes_away(message) {
            return;
        }
        let end = Instant::now() + KEPT;
        for page in message.pages() {
            let held = !book::within(&state.held_here.pages, self.frames(Span::one(page))).is_empty();
            if held {
                state.held_here.wanted.push_back((end, page));
            }
        }
        self.holds_end_at(end);
    }

    /// Who was waited for long enough keeps nothing of what it holds there any more: what is wanted of it goes.
    pub(super) fn let_kept_go(self: &Arc<Self>, state: &mut State) {
        let now = Instant::now();
        while let Some((end, page)) = state.held_here.wanted.front().copied()
            && end <= now
        {
            state.held_here.wanted.pop_front();
            let frames = self.frames(Span::one(page));
            let runs = book::runs(&state.held_here.pages);
            for run in runs.into_iter().filter(|run| !run.intersect(frames).is_empty()) {
                book::remove(&mut state.held_here.pages, run);
                for span in self.spans_held(state, run, false) {
                    Turn::take(self, state, Event::Unlock { span }, Vec::new());
                }
            }
        }
    }

    /// Whether this host has spoken with a home process since then: what that one was told another does not know.
    pub fn beginnings(&self) -> (Option<HostId>, u64) {
        let state = self.state();
        (state.home, state.beginnings)
    }
}
