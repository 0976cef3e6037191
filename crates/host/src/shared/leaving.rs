//! Pages leave this host unasked: memory is short, the object shrinks, or no process here uses it any more. What is newest
//! goes no faster than the home deals with it: until it has, nobody has it but the ring of pages on their way
//! (`crate::on_way`), which is not large. (What is asked for meanwhile: `dealt_with`.)

use super::driver::{Driver, State};
use super::part::{Part, Said};
use commonhold_coherence::{Access, Event, HostId, Span, forwarding};
use commonhold_object::Result;
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pages of 4 KiB that an owner offers the home at once when it leaves: what the home asks for goes as one queue.
const PART_PAGES: u64 = 1024;
/// What was within its minimum hold when it was offered is offered again after so many looks.
const LOOKS_AN_OFFER: u32 = 32;
/// Looks at what is on its way, and the time between two of them.
const MOST_LOOKS: u32 = 200;
const AGAIN: Duration = Duration::from_millis(1);

impl Driver {
    /// Of forwarding, when no process of this host uses the object any more: what it has newest goes home. Waits until it has, or
    /// the home is away.
    pub fn leave(self: &Arc<Self>) {
        self.leave_while(|| true);
    }

    /// The same, for as long as there is time.
    fn leave_while(self: &Arc<Self>, has_time: impl Fn() -> bool) {
        if !self.goes_on() {
            return;
        }
        let pages = self.cache().map_or_else(Vec::new, |cache| self.plan.sizes.pages_of(&cache.resident()));
        // The home hears an offer after all that was sent before, so of two parts at most the pages are on their way at once.
        for part in pages.chunks((PART_PAGES / self.plan.sizes.page()).max(1) as usize) {
            let mut looks = 0;
            while self.has_a_home_and(|node| part.iter().any(|page| node.owns(*page))) && has_time() {
                if looks % LOOKS_AN_OFFER == 0 {
                    part.iter().for_each(|page| self.happened(Event::Evict { page: *page }, Vec::new()));
                }
                looks += 1;
                std::thread::sleep(AGAIN);
            }
        }
        self.happened(Event::Leave, Vec::new());
        while self.has_a_home_and(forwarding::Node::owns_anything) && has_time() {
            std::thread::sleep(5 * AGAIN);
        }
    }

    fn has_a_home_and(&self, it: impl Fn(&forwarding::Node) -> bool) -> bool {
        matches!(&*self.state(), State { home: Some(_), part: Part::Forwarding(node), .. } if it(node))
    }

    /// Of forwarding: this host ends, whoever uses the object. What is newest here goes home, and nothing comes any more. Whether
    /// all of it went while there was time.
    pub fn leave_at_the_end(self: &Arc<Self>, has_time: impl Fn() -> bool) -> bool {
        self.ends.store(true, Ordering::SeqCst);
        self.hold_nothing();
        self.leave_while(has_time);
        !self.has_newest_here()
    }

    /// Memory is short here: these frames may go, and with each the pages that it is of. What is newest here stays while the
    /// home may not hear of it, and while too much is on its way there.
    pub fn evict(self: &Arc<Self>, frames: &RoaringBitmap) {
        self.send_away(self.plan.sizes.pages_around(frames, self.end()));
    }

    /// These frames go, and nothing beside them but what is one page with them to the scheduler; what is newest here stays as
    /// above.
    pub fn give_up(self: &Arc<Self>, frames: &RoaringBitmap) {
        self.send_away(self.plan.sizes.pages_of(frames));
    }

    fn send_away(self: &Arc<Self>, pages: Vec<u32>) {
        let mut room = self.room_on_the_way();
        let mut stays = false;
        for page in pages {
            let bytes = self.newest_bytes(page);
            if bytes <= room {
                room -= bytes;
                self.happened(Event::Evict { page }, Vec::new());
            } else {
                stays = true;
            }
        }
        // Of large pages also when little is on the way: that may be as much as keeps one from leaving.
        if stays && !self.home_may_not_hear() {
            self.carrier.ask_what_has_come();
        }
    }

    /// How much is on its way home when a page leaves. What is read alone may be so, too: the home asked for it, and may not
    /// have dealt with it yet.
    fn newest_bytes(&self, page: u32) -> usize {
        // Under forwarding and explicit coherence a page that leaves is kept, or stored, otherwise.
        let state = self.state();
        let part @ Part::Central(_) = &state.part else { return 0 };
        let (is_newest, frames) = (part.access(page) == Access::Write, self.frames(Span::one(page)));
        drop(state);
        let may_be = || self.cache().is_some_and(|cache| cache.may_be_newest(frames));
        if is_newest || may_be() { frames.length_bytes() as usize } else { 0 }
    }

    /// How many bytes of what is newest here may leave now.
    pub fn room_on_the_way(&self) -> usize {
        if self.home_may_not_hear() {
            return 0;
        }
        if self.machine.on_way.is_filling() {
            self.carrier.ask_what_has_come();
        }
        self.machine.on_way.room(self.plan.object)
    }

    /// Waits for a while until so much may leave: but not for a home that is away.
    pub fn wait_for_room(&self, bytes: usize) {
        for look in 0..MOST_LOOKS {
            if self.home_may_not_hear() || self.room_on_the_way() >= bytes {
                return;
            }
            if look == 0 {
                self.carrier.ask_what_has_come();
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Whether a frame here may be the newest version of its page.
    pub fn has_newest_here(&self) -> bool {
        self.has_newest(&self.state())
    }

    fn has_newest(&self, state: &State) -> bool {
        let Some(cache) = self.cache() else { return false };
        match (&state.part, state.home) {
            // Nobody knows any more, but for the marks.
            (_, None) => cache.has_newest(),
            (part @ Part::Central(_), _) => {
                let pages = self.plan.sizes.pages_of(&cache.resident());
                pages.into_iter().any(|page| part.access(page) == Access::Write)
            }
            (Part::Forwarding(node), _) => node.owns_anything(),
            (Part::Explicit(_), _) => false,
        }
    }

    /// This host leaves the object off, if nothing newest is here: from now on nothing comes. Gives the home, which has been
    /// sent everything and is to hear that it was all; none if it is not known, or if something newest is here.
    pub fn depart(&self) -> Option<HostId> {
        let mut state = self.state();
        let home = state.home.filter(|_| !state.stuck && !self.has_newest(&state))?;
        state.has_left = true;
        state.home = None;
        state.granted_by = None; // copies that stay here for a moment are no longer kept valid
        self.answer_held_back(&mut state);
        self.machine.on_way.park(self.plan.object); // until the home says that it was all
        drop(state);
        self.outbox.wait_sent();
        Some(home)
    }

    /// Of forwarding: the home is another process than before, and has had all that was here given back. Nobody here uses the
    /// object, so this host begins nothing with it.
    pub fn all_was_given_back(&self) -> Result<()> {
        let mut state = self.state();
        if let Some(cache) = self.cache() {
            cache.held_by(self.plan.me)?;
        }
        state.has_left = true;
        Ok(())
    }

    /// Of forwarding: whether what is noted here was begun with that process of the home.
    pub fn began_with(&self, home: HostId) -> bool {
        let begun = self.handovers.as_ref().and_then(|handovers| handovers.begun());
        begun.is_some_and(|begun| begun.home == home)
    }

    /// Whether processes of this host map it, or it has not gone home yet.
    pub fn is_attached(&self) -> bool {
        self.cache().is_some()
    }

    /// Whether it has.
    pub fn has_left(&self) -> bool {
        self.state().has_left
    }

    /// Of an object that this host has left off it has nothing: it says so to whoever waits for an answer.
    pub(super) fn answer_if_left(&self, state: &State, from: HostId, message: &Said) {
        for answer in message.answer_of_nobody().into_iter().filter(|_| state.has_left) {
            self.say(state, from, answer, Vec::new());
        }
    }
}
