//! Pages leave this host unasked: memory is short, the object shrinks, or no process here uses it any more. What is newest
//! goes no faster than the home deals with it: until it has, nobody has it but the ring of pages on their way
//! (`crate::on_way`), which is not large. (What is asked for meanwhile: `dealt_with`.)

use super::driver::{Driver, State};
use super::part::{Part, Said};
use commonhold_coherence::{Access, Event, HostId, Span, explicit, forwarding};
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

    /// Of explicit coherence: no process here uses the object any more, and what was not synced is given up. From now on this host
    /// says nothing of it, and nothing comes. Gives the home, which has been sent everything; none if it is not known.
    pub fn depart_at_once(&self) -> Option<HostId> {
        let mut state = self.state();
        if let Some(home) = state.home {
            self.say(&state, home, Said::Explicit(explicit::Message::Leave), Vec::new());
        }
        let home = state.home.take();
        state.has_left = true;
        state.granted_by = None;
        drop(state);
        self.outbox.wait_sent();
        home
    }

    /// At the home: waits until all that was to be said to that host so far has been given to its connection.
    pub fn wait_said(&self, to: HostId) {
        self.outbox.wait_sent_to(to);
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

#[cfg(test)]
mod tests {
    use super::super::driver::Plan;
    use super::super::part::How;
    use super::super::{About, Carrier, Sizes, Touch, UsersTold};
    use super::*;
    use crate::cache::kept::Lent;
    use crate::cache::kept::tests::{Memory, cache};
    use crate::clock::Clock;
    use commonhold_object::{Access as Allowed, PageRange, SessionId};
    use explicit::Message;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const HOME: HostId = HostId(3);

    /// The connection with the home: it says what it is given, and takes it when it is let.
    struct Connection {
        taken: Mutex<Vec<Message>>,
        begins: Mutex<Sender<()>>,
        goes_on: Mutex<Receiver<()>>,
    }

    impl Carrier for Connection {
        fn send(&self, to: HostId, _about: About, messages: Vec<Said>, _pages: &mut Vec<u8>) {
            assert_eq!(to, HOME);
            self.begins.lock().unwrap().send(()).unwrap();
            self.goes_on.lock().unwrap().recv().unwrap();
            let said = messages.into_iter().map(|message| match message {
                Said::Explicit(message) => message,
                other => panic!("{other:?}"),
            });
            self.taken.lock().unwrap().extend(said);
        }
        fn unlocked(&self, _object: u128, _session: SessionId, _pages: PageRange) {}
    }

    /// An object of explicit coherence at a host that uses it, whose home is not found.
    fn sharer(connection: Arc<Connection>) -> (Arc<Driver>, Arc<crate::cache::Cache>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), &Memory::new());
        let plan = Plan {
            object: 1,
            me: HostId(5),
            is_home: false,
            pages: 16,
            sizes: Sizes::FRAMES,
            how: How::Explicit,
            hold: Duration::ZERO,
            home_moves: false,
            is_replicated: false,
        };
        let clock = Clock::start().unwrap();
        (Driver::start(plan, connection, clock, &cache, Lent::default(), None), cache, directory)
    }

    fn connection() -> (Arc<Connection>, Receiver<()>, Sender<()>) {
        let ((begins, begun), (go_on, goes_on)) = (channel(), channel());
        let connection =
            Connection { taken: Mutex::default(), begins: begins.into(), goes_on: goes_on.into() };
        (connection.into(), begun, go_on)
    }

    fn fetch(page: u32) -> Message {
        Message::Fetch { span: Span::one(page) }
    }

    const NOBODY: UsersTold = UsersTold { access: None, begun: 0 };

    /// A fault was answered late, or asked for more than anybody waited for: its question is on its way to the connection when
    /// the last process closes the object, or comes when it has. After its departure the host tells the home that it left.
    #[test]
    fn a_host_that_left_an_object_has_said_all_and_says_nothing_more() {
        let (connection, begun, go_on) = connection();
        let (driver, _cache, _directory) = sharer(connection.clone());
        assert!(driver.found_home(HOME, &[], NOBODY));
        std::thread::scope(|scope| {
            scope.spawn(|| driver.fault(PageRange::new(1, 1), Touch::Read));
            begun.recv().unwrap(); // the connection has it, and has not taken it
            let departing = scope.spawn(|| {
                let home = driver.depart_at_once();
                (home, connection.taken.lock().unwrap().clone())
            });
            while driver.home().is_some() {
                std::thread::yield_now();
            }
            driver.fault(PageRange::new(2, 1), Touch::Read); // late
            go_on.send(()).unwrap();
            go_on.send(()).unwrap();
            let (home, taken) = departing.join().unwrap();
            assert_eq!(home, Some(HOME));
            assert_eq!(taken, [fetch(1), Message::Leave], "all that was said has gone");
        });
        driver.fault(PageRange::new(3, 1), Touch::Read);
        assert!(driver.found_home(HOME, &[], NOBODY), "who looked for the home");
        driver.fault(PageRange::new(4, 1), Touch::Read);
        assert_eq!(*connection.taken.lock().unwrap(), [fetch(1), Message::Leave]);
        assert_eq!((driver.home(), driver.has_left()), (None, true));
    }

    /// The home was told of a reader, when a writer came.
    #[test]
    fn nobody_touches_a_page_of_whom_the_home_has_not_heard() {
        let (connection, begun, go_on) = connection();
        let (driver, _cache, _directory) = sharer(connection.clone());
        assert_eq!(driver.begins_to_use(Allowed::Read), None, "who looks for the home tells it");
        let begins = driver.users_begun();
        assert_eq!(driver.begins_to_use(Allowed::ReadWrite), None);
        let told = |access, begun| UsersTold { access: Some(access), begun };
        assert!(!driver.found_home(HOME, &[], told(Allowed::Read, begins)));
        assert_eq!(driver.home(), None, "it hears of the writer first");
        assert!(driver.found_home(HOME, &[], told(Allowed::Read, driver.users_begun())));
        assert_eq!(driver.begins_to_use(Allowed::Read), None, "it knows");
        let Some((HOME, beginnings)) = driver.begins_to_use(Allowed::ReadWrite) else {
            panic!("it does not")
        };
        // It began anew meanwhile, and heard of those who were there.
        driver.lost(HOME, None);
        assert!(!driver.home_heard_of_use(beginnings, Allowed::ReadWrite));
        assert!(driver.found_home(HOME, &[], told(Allowed::Read, driver.users_begun())));
        assert!(!driver.home_heard_of_use(beginnings, Allowed::ReadWrite));
        let Some((HOME, beginnings)) = driver.begins_to_use(Allowed::ReadWrite) else {
            panic!("it does not")
        };
        assert!(driver.home_heard_of_use(beginnings, Allowed::ReadWrite));
        assert_eq!(driver.begins_to_use(Allowed::ReadWrite), None);
        drop((begun, go_on));
    }
}
