//! What a scheduler wants done, in order: frames, rights, messages. What it says to this very host is done at once.

mod bytes;
mod installing;
mod recalls;
mod saying;
mod together;

pub(super) use saying::{STAMP, first_stamp, stamped};
pub(super) use together::in_a_row;

use super::driver::{Driver, PAGE, State, why_not};
use super::part::{How, Part, Said};
use crate::cache::Cache;
use crate::cache::coherent::PageBytes;
use commonhold_coherence::{Access, Action, Event, HostId, Span, Why, central, explicit, forwarding};
use commonhold_object::{PageRange, Result};
use recalls::own_recall;
use roaring::RoaringBitmap;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes that came with a message, and how many of them are in their place.
#[derive(Default)]
pub(super) struct Came {
    bytes: Vec<u8>,
    used: usize,
}

/// One event, and what follows of it at this host.
pub(super) struct Turn<'d> {
    driver: &'d Arc<Driver>,
    state: &'d mut State,
    cache: Option<Arc<Cache>>,
    saved: Option<Arc<Cache>>,
    /// Bytes that came with the message, from the next page on.
    came: Came,
    /// Bytes of pages that were taken from processes of this host.
    taken: HashMap<u32, PageBytes>,
    /// Pages that this host owns since the event at hand.
    owned: Vec<u32>,
    /// The page that this host's own part gave back last, centrally scheduled: what the saved copy is now.
    given_back: Option<(u32, PageBytes)>,
    /// What this host said to itself.
    to_do: VecDeque<(Event<Said>, Vec<u8>)>,
    /// Room for what the scheduler wants done.
    actions: Vec<Action<Said>>,
    /// Of the event at hand, what is not done yet.
    left: Left,
}

/// What an event wants done, in its order.
#[derive(Default)]
struct Left {
    actions: VecDeque<Action<Said>>,
    /// Writers wait until all of it is done.
    stopped: bool,
    /// The log says why it is not done.
    is_said: bool,
    /// Of explicit coherence, pages that others synced: whoever watches them is woken when all of it is done.
    changed: RoaringBitmap,
}

/// At the home: a turn that cannot go on now, because page tables cannot be changed: for lack of memory, or because a client
/// keeps the host from it.
pub(super) struct Parked {
    left: Left,
    came: Came,
    taken: HashMap<u32, PageBytes>,
    given_back: Option<(u32, PageBytes)>,
    to_do: VecDeque<(Event<Said>, Vec<u8>)>,
}

/// How soon it is tried again.
const AGAIN: Duration = Duration::from_millis(20);

impl<'d> Turn<'d> {
    /// Something happened, with these bytes.
    pub fn take(driver: &'d Arc<Driver>, state: &'d mut State, event: Event<Said>, bytes: Vec<u8>) {
        let Some(mut turn) = Turn::begin(driver, state) else { return };
        if turn.to_do.is_empty() && turn.left.actions.is_empty() {
            turn.happened(event, bytes);
        } else {
            turn.to_do.push_back((event, bytes));
        }
        turn.follow();
        turn.end();
    }

    /// First come holds that are over. None: the object ends.
    fn begin(driver: &'d Arc<Driver>, state: &'d mut State) -> Option<Turn<'d>> {
        let (cache, saved) = (driver.cache(), driver.saved());
        if cache.is_none() && saved.is_none() && !matches!(state.part, Part::Forwarding(_)) {
            return None;
        }
        let mut turn = Turn {
            actions: std::mem::take(&mut state.actions),
            driver,
            state,
            cache,
            saved,
            came: Came::default(),
            taken: HashMap::new(),
            owned: Vec::new(),
            given_back: None,
            to_do: VecDeque::new(),
            left: Left::default(),
        };
        if let Some(parked) = turn.state.parked.take() {
            let Parked { left, came, taken, given_back, to_do } = *parked;
            (turn.left, turn.came, turn.taken) = (left, came, taken);
            (turn.given_back, turn.to_do) = (given_back, to_do);
            turn.go_on();
        }
        let now = if turn.state.held.is_empty() { None } else { Some(Instant::now()) };
        while let Some(page) = now.and_then(|now| turn.state.held.next_over(now)) {
            turn.to_do.push_back((Event::HoldOver { page }, Vec::new()));
        }
        Some(turn)
    }

    /// What this host says to itself.
    fn follow(&mut self) {
        while self.left.actions.is_empty()
            && let Some((event, bytes)) = self.to_do.pop_front().filter(|_| !self.state.stuck)
        {
            self.happened(event, bytes);
        }
    }

    fn end(self) {
        self.state.actions = self.actions;
        if !self.left.actions.is_empty() {
            self.driver.holds_end_at(Instant::now() + AGAIN);
            self.state.parked = Some(Box::new(Parked {
                left: self.left,
                came: self.came,
                taken: self.taken,
                given_back: self.given_back,
                to_do: self.to_do,
            }));
        }
    }

    /// A turn that could not go on may do so now.
    fn take_up_parked(driver: &'d Arc<Driver>, state: &'d mut State) {
        if state.parked.is_some()
            && let Some(mut turn) = Turn::begin(driver, state)
        {
            turn.follow();
            turn.end();
        }
    }

    /// Minimum holds are over.
    pub fn holds_over(driver: &'d Arc<Driver>, state: &'d mut State) {
        Turn::take_up_parked(driver, state);
        if let Some(page) = state.held.next_over(Instant::now()) {
            Turn::take(driver, state, Event::HoldOver { page }, Vec::new());
        }
        if matches!(driver.plan.how, How::Forwarding(_)) {
            look_later(driver, state, Instant::now());
        }
    }

    fn happened(&mut self, event: Event<Said>, bytes: Vec<u8>) {
        if self.state.put_off.takes(&event) {
            self.state.put_off.put(event, bytes);
            return self.read_what_is_put_off();
        }
        if let Event::Message { message, .. } = &event {
            self.wait_for_holds(message);
            self.driver.note_wanted(self.state, message);
        }
        if let Event::Message { from, message: Said::Central(central::Message::Done { page }) } = &event {
            self.was_never_there(*from, *page);
        }
        let stopped = self.stop_writers(&event);
        let news = news_of(&event);
        let evicts = matches!(event, Event::Evict { .. });
        let (me, seen) = (self.driver.plan.me, &self.driver.seen);
        seen.event(me, &event);
        let mut actions = std::mem::take(&mut self.actions);
        let recalled = own_recall(me, &event);
        self.state.part.handle(event, &mut actions);
        if let Some(page) = recalled {
            self.recall_next(page, &mut actions);
        }
        let changed = news.map_or_else(RoaringBitmap::new, |pages| self.changed_by(pages, &actions));
        if actions.iter().any(|action| matches!(action, Action::NewestLost { .. })) {
            self.driver.has_losses(); // before anything of it can be put off
        }
        self.came = Came { bytes, used: 0 };
        self.taken.clear();
        self.owned.clear();
        self.left.actions.extend(actions.drain(..));
        self.actions = actions;
        self.left.stopped = stopped;
        self.left.changed = changed;
        self.go_on();
        if !evicts && !self.state.late.is_empty() {
            self.send_late_pages_away();
        }
        self.read_what_is_put_off();
    }

    /// At a home that is frozen.
    fn read_what_is_put_off(&mut self) {
        if self.state.put_off.is_empty() {
            return;
        }
        let part = &self.state.part;
        let is_here = |page| part.access(page) != Access::None;
        let asked = self.state.put_off.ask_to_read(self.driver.plan.me, is_here);
        self.to_do.extend(asked.into_iter().map(|event| (event, Vec::new())));
    }

    /// Does what is left to be done, in its order, up to what cannot be done now.
    fn go_on(&mut self) {
        let me = self.driver.plan.me;
        while let Some(action) = self.left.actions.pop_front() {
            if let Action::Restrict { page, access } = action {
                if !self.restricted(page, access) && !self.left.actions.is_empty() {
                    return; // it goes on from here
                }
            } else {
                self.driver.seen.action(me, &action);
                self.act_or_report(action);
            }
        }
        if let (true, Some(cache)) = (std::mem::take(&mut self.left.stopped), &self.cache) {
            cache.let_writers_go();
        }
        let changed = std::mem::take(&mut self.left.changed);
        if !changed.is_empty() {
            self.driver.machine.watches.wake_pages(self.driver.plan.object, &changed);
        }
    }

    /// Of explicit coherence: pages that are another version to processes here from now on. What was written or is locked here
    /// stays.
    fn changed_by(&self, synced: Vec<u32>, actions: &[Action<Said>]) -> RoaringBitmap {
        let explicit = matches!(self.state.part, Part::Explicit(_));
        let goes = |action: &Action<Said>| match action {
            Action::Restrict { page, .. } if explicit => Some(*page),
            _ => None,
        };
        let absent = synced.into_iter().filter(|page| self.state.part.access(*page) == Access::None);
        absent.chain(actions.iter().filter_map(goes)).collect()
    }

    /// Whether processes of this host may do no more than that with the page now. If not, nothing that follows happens:
    /// elsewhere this host begins again with the home, and the home tries again in a moment.
    fn restricted(&mut self, page: u32, access: Access) -> bool {
        let Err(error) = self.restrict(page, access) else {
            self.driver.seen.action(self.driver.plan.me, &Action::<Said>::Restrict { page, access });
            return true;
        };
        if !std::mem::replace(&mut self.left.is_said, true)
            && let Some(cache) = &self.cache
        {
            cache.report(&error);
        }
        if self.driver.plan.is_home {
            self.left.actions.push_front(Action::Restrict { page, access });
        } else {
            self.left.actions.clear();
            self.begin_again();
        }
        false
    }

    /// At the home: an owner has nothing of a page, because it left the object off before the grant came. Then the home's
    /// own version is the newest, also for its next process.
    fn was_never_there(&self, owner: HostId, page: u32) {
        if let (Part::Central(node), Some(saved)) = (&self.state.part, &self.saved)
            && node.home().is_some_and(|home| home.table().owner(page) == Some(owner))
        {
            saved.returned(self.frames_of(Span::one(page)));
        }
    }

    /// Pages that came when the object had shrunk go as soon as they may.
    fn send_late_pages_away(&mut self) {
        let part = &self.state.part;
        let here = |page| part.access(page) != Access::None;
        self.state.late.retain(here);
        let pages = self.state.late.pages().into_iter();
        self.to_do.extend(pages.map(|page| (Event::Evict { page }, Vec::new())));
    }

    /// Of explicit coherence: what was written is told before a page may have to go, and nobody writes until then.
    fn stop_writers(&mut self, event: &Event<Said>) -> bool {
        let (Part::Explicit(node), Some(cache)) = (&mut self.state.part, &self.cache) else { return false };
        let pages: RoaringBitmap = match event {
            Event::Message { message: Said::Explicit(explicit::Message::Changed { pages }), .. } => {
                pages.iter().copied().collect()
            }
            Event::Unlock { span } => span.pages().collect(),
            Event::Evict { page } => [*page].into(),
            _ => return false,
        };
        let written = cache.stop_writers(&pages);
        tell_written(node, &written);
        true
    }

    fn act_or_report(&mut self, action: Action<Said>) {
        if let Err(error) = self.act(action)
            && let Some(cache) = self.cache.as_ref().or(self.saved.as_ref())
        {
            cache.report(&error);
        }
    }

    fn act(&mut self, action: Action<Said>) -> Result<()> {
        if self.state.stuck && is_of_owners(&action) {
            return Ok(()); // what it counts on was not noted, or not done
        }
        match action {
            Action::Send { to, message } => self.send_or_take_back(to, message)?,
            Action::Install { span, access, with_data } => {
                let installed = self.install(span, access, with_data);
                if installed.is_err() && !self.driver.plan.is_home {
                    self.begin_again(); // the scheduler believes that it is here
                }
                installed?;
            }
            Action::Restrict { page, access } => self.restrict(page, access)?,
            Action::Save { page } => self.save(page)?,
            Action::Own { page, number } => {
                let noted = self.own(page, number);
                self.goes_on_if(noted)?;
            }
            Action::KeepSent { page, number, to } => {
                let noted = self.keep_sent(page, number, to);
                self.goes_on_if(noted)?;
            }
            Action::KeepCame { page, number } => self.keep_came(page, number)?,
            Action::KeepRead { page, number } => self.keep_read(page, number)?,
            Action::KeepOld { page } => self.keep_old(page)?,
            Action::DropKept { page } => self.drop_kept(page)?,
            Action::Restore { page } => self.restore(page)?,
            Action::NewestLost { page, older_serves } if older_serves => {
                let frames = self.frames_of(Span::one(page));
                self.driver.reverted.fetch_add(frames.count, Ordering::Relaxed);
                self.driver.has_again(frames);
            }
            Action::NewestLost { .. } => {}
            Action::Keep => self.state.kept.push_back(std::mem::take(&mut self.came)),
            Action::TakeKept => self.came = self.state.kept.pop_front().unwrap_or_default(),
            Action::Hold { page } => self.begin_hold(page),
            Action::Synced { conflicts, .. } => {
                if let Some(cache) = self.cache.as_ref().filter(|_| conflicts > 0) {
                    cache.replaced_unseen(conflicts);
                }
                self.end_sync(Ok(()));
            }
            Action::SyncFailed { why } => self.end_sync(Err(why_not(why))),
            Action::Fail { page, why } => {
                if let Some(cache) = &self.cache {
                    // A page of this host that lacks a part cannot be used.
                    let reach = self.driver.reach(self.frames_of(Span::one(page)));
                    match why {
                        Why::NewestLost => cache.is_lost(reach, &why_not(why)),
                        _ => cache.cannot_be_had(reach, &why_not(why)),
                    }
                }
            }
        }
        Ok(())
    }

    /// What is not noted the next process of this host would not know: nothing is used, or handed over, without.
    fn goes_on_if(&mut self, noted: Result<()>) -> Result<()> {
        if noted.is_err() && !self.driver.plan.is_home {
            self.begin_again();
        }
        noted
    }

    /// The page's minimum hold begins.
    fn begin_hold(&mut self, page: u32) {
        let now = Instant::now();
        let end = now + self.driver.plan.hold;
        self.state.held.begin(page, end);
        // Under forwarding who waits for it may have asked before it came. Where nobody has, no thread is woken.
        if self.state.late.contains(page) || self.state.part.waits_for_hold(page) {
            self.driver.holds_end_at(end);
        }
        if matches!(self.driver.plan.how, How::Forwarding(_)) {
            look_later(self.driver, self.state, now);
        }
    }

    fn end_sync(&mut self, result: Result<()>) {
        if let Some((waiting, pages)) = self.state.syncs.pop_front() {
            if let Some(cache) = self.cache.as_ref().filter(|_| result.is_ok()) {
                cache.is_synced(&pages);
            }
            let _ = waiting.send(result); // who waited may have given up
        }
    }

    fn frames_of(&self, span: Span) -> PageRange {
        self.driver.frames(span)
    }

    /// The numbers of a scheduler page's frames.
    fn numbers(&self, page: u32) -> std::ops::Range<u64> {
        let frames = self.frames_of(Span::one(page));
        frames.first..frames.end()
    }

    /// Somebody asks about pages that are within their minimum hold: a clock is set only now.
    fn wait_for_holds(&self, message: &Said) {
        if let Some(end) = self.state.held.end_of(message) {
            self.driver.holds_end_at(end);
        }
    }
}

impl Came {
    /// Whether the message had no bytes.
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// By which stamp the pages were granted.
    fn stamp(&self) -> Option<u64> {
        let tail = self.bytes.last_chunk().filter(|_| self.bytes.len() % PAGE == STAMP)?;
        Some(u64::from_le_bytes(*tail))
    }

    fn next(&mut self, frames: usize) -> &[u8] {
        let begin = self.used;
        self.used = (begin + frames * PAGE).min(self.bytes.len());
        &self.bytes[begin..self.used]
    }
}

/// Whether it lets a page be used, here or elsewhere.
fn is_of_owners(action: &Action<Said>) -> bool {
    let hands_over =
        |message: &Said| matches!(message, Said::Forwarding(forwarding::Message::HandOver { .. }));
    match action {
        Action::Install { .. } => true,
        Action::Send { message, .. } => hands_over(message),
        _ => false,
    }
}

/// Of explicit coherence: whether an event may let syncs of other hosts be seen here, and pages of such a sync.
fn news_of(event: &Event<Said>) -> Option<Vec<u32>> {
    match event {
        Event::Message { message: Said::Explicit(explicit::Message::Changed { pages }), .. } => {
            Some(pages.clone())
        }
        Event::Unlock { .. } => Some(Vec::new()),
        _ => None,
    }
}

/// By forwarding: whoever waits for the end of a hold and did not say so by a message is not forgotten.
fn look_later(driver: &Arc<Driver>, state: &mut State, now: Instant) {
    if let Some(at) = state.held.look_later(now) {
        driver.holds_end_at(at);
    }
}

/// Tells the scheduler what was written here.
pub(super) fn tell_written(node: &mut explicit::Node, pages: &RoaringBitmap) {
    use commonhold_coherence::Scheduler;
    for run in crate::cache::book::runs(pages) {
        let span = Span::new(run.first as u32, run.count as u32);
        node.handle(Event::Written { span }, &mut Vec::new());
    }
}
