//! What a scheduler wants done, in order: frames, rights, messages. What it says to this very host is done at once.

use super::Role;
use super::driver::{Driver, PAGE, State, why_not};
use super::part::{How, NotRead, Part, Said};
use super::recalls::own_recall;
use crate::cache::Cache;
use crate::cache::coherent::PageBytes;
use crate::cache::versions::Version;
use commonhold_coherence::{
    Access, Action, Carried, Event, HostId, Span, Why, central, explicit, forwarding,
};
use commonhold_object::{PageRange, Result};
use roaring::RoaringBitmap;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Bytes that came with a message, and how many of them are in their place.
#[derive(Default)]
pub(super) struct Came {
    bytes: Vec<u8>,
    used: usize,
}

/// One event, and what follows of it at this host.
pub(super) struct Turn<'d> {
    pub(super) driver: &'d Arc<Driver>,
    pub(super) state: &'d mut State,
    pub(super) cache: Option<Arc<Cache>>,
    saved: Option<Arc<Cache>>,
    /// Bytes that came with the message, from the next page on.
    came: Came,
    /// Bytes of pages that were taken from processes of this host.
    taken: HashMap<u32, PageBytes>,
    /// The page that this host's own part gave back last, centrally scheduled: what the saved copy is now.
    given_back: Option<(u32, PageBytes)>,
    /// What this host said to itself.
    pub(super) to_do: VecDeque<(Event<Said>, Vec<u8>)>,
    /// Room for what the scheduler wants done.
    actions: Vec<Action<Said>>,
}

impl<'d> Turn<'d> {
    /// Something happened, with these bytes.
    pub fn take(driver: &'d Arc<Driver>, state: &'d mut State, event: Event<Said>, bytes: Vec<u8>) {
        let (cache, saved) = (driver.cache(), driver.saved());
        if cache.is_none() && saved.is_none() && !matches!(state.part, Part::Forwarding(_)) {
            return; // the object ends
        }
        let mut turn = Turn {
            actions: std::mem::take(&mut state.actions),
            driver,
            state,
            cache,
            saved,
            came: Came::default(),
            taken: HashMap::new(),
            given_back: None,
            to_do: VecDeque::new(),
        };
        let now = if turn.state.held.is_empty() { None } else { Some(Instant::now()) };
        while let Some(page) = now.and_then(|now| turn.state.held.next_over(now)) {
            turn.to_do.push_back((Event::HoldOver { page }, Vec::new()));
        }
        if turn.to_do.is_empty() {
            turn.happened(event, bytes);
        } else {
            turn.to_do.push_back((event, bytes));
        }
        while let Some((event, bytes)) = turn.to_do.pop_front().filter(|_| !turn.state.stuck) {
            turn.happened(event, bytes);
        }
        turn.state.actions = turn.actions;
    }

    /// Minimum holds are over.
    pub fn holds_over(driver: &'d Arc<Driver>, state: &'d mut State) {
        if let Some(page) = state.held.next_over(Instant::now()) {
            Turn::take(driver, state, Event::HoldOver { page }, Vec::new());
        }
    }

    fn happened(&mut self, event: Event<Said>, bytes: Vec<u8>) {
        if self.state.put_off.takes(&event) {
            return self.state.put_off.put(event, bytes);
        }
        if let Event::Message { message, .. } = &event {
            self.wait_for_holds(message);
            self.driver.note_wanted(self.state, message);
        }
        if let Event::Message { from, message: Said::Central(central::Message::Done { page }) } = &event {
            self.was_never_there(*from, *page);
        }
        let stopped = self.stop_writers(&event);
        let evicts = matches!(event, Event::Evict { .. });
        let (me, seen) = (self.driver.plan.me, &self.driver.seen);
        seen.event(me, &event);
        let mut actions = std::mem::take(&mut self.actions);
        let recalled = own_recall(me, &event);
        self.state.part.handle(event, &mut actions);
        if let Some(page) = recalled {
            self.recall_next(page, &mut actions);
        }
        self.came = Came { bytes, used: 0 };
        self.taken.clear();
        for action in actions.drain(..) {
            seen.action(me, &action);
            if let Err(error) = self.act(action)
                && let Some(cache) = self.cache.as_ref().or(self.saved.as_ref())
            {
                cache.report(&error);
            }
        }
        self.actions = actions;
        if let (true, Some(cache)) = (stopped, &self.cache) {
            cache.let_writers_go();
        }
        if !evicts && !self.state.late.is_empty() {
            self.send_late_pages_away();
        }
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

    fn act(&mut self, action: Action<Said>) -> Result<()> {
        match action {
            Action::Send { to, message } => self.send_or_take_back(to, message)?,
            Action::Install { span, access, with_data } => {
                let installed = self.install(span, access, with_data);
                if installed.is_err() && !self.driver.plan.is_home {
                    self.begin_again(); // the scheduler believes that it is here
                }
                installed?;
            }
            Action::Restrict { page, access } => {
                let frames = self.frames_of(Span::one(page));
                if let Some(cache) = &self.cache
                    && let Some(bytes) = cache.restrict(frames, self.driver.reach(frames), access)?
                {
                    if cache.role() == Some(Role::Saved) {
                        self.given_back = Some((page, bytes)); // it is the saved copy now
                    } else {
                        self.taken.insert(page, bytes);
                    }
                }
            }
            Action::Save { page } => {
                // From this host's own part, centrally scheduled: the bytes are in the frame already.
                let frames = self.frames_of(Span::one(page));
                let bytes = self.came.next(frames.count as usize);
                self.given_back.take_if(|(saved, _)| *saved == page && !bytes.is_empty());
                if let Some(saved) = self.saved.as_ref().filter(|_| !bytes.is_empty()) {
                    saved.save_copy(frames, bytes)?;
                    // What another host wrote its loss does not take any more, nor this home's.
                    let published = saved.publish(frames);
                    saved.returned(frames);
                    published?;
                }
            }
            // At the origin the frame stays as it was sent, until something else comes into it.
            Action::KeepSent { page } => {
                if let Some(bytes) = self.taken.get(&page).filter(|_| !self.driver.plan.is_home) {
                    self.keep(page, bytes.clone());
                }
            }
            Action::KeepCame { page } => {
                let frames = self.frames_of(Span::one(page));
                let bytes = self.came.next(frames.count as usize);
                if let Some(saved) = &self.saved {
                    saved.save_copy(frames, bytes)?; // with another host it stays: nothing is returned
                } else {
                    let bytes = bytes.into();
                    self.keep(page, bytes);
                }
            }
            Action::DropKept { page } => drop(self.state.sent.remove(&page)),
            Action::Restore { page } => {
                // Where nobody uses the object, it stays what it is until somebody does or it goes on.
                if let Some(cache) = &self.cache
                    && let Some(version) = self.state.sent.remove(&page)
                {
                    cache.restore(self.frames_of(Span::one(page)), &version)?;
                }
            }
            Action::Keep => self.state.kept.push_back(std::mem::take(&mut self.came)),
            Action::TakeKept => self.came = self.state.kept.pop_front().unwrap_or_default(),
            Action::Hold { page } => {
                let end = Instant::now() + self.driver.plan.hold;
                self.state.held.begin(page, end);
                // Under forwarding who waits for it may have asked before it came.
                if matches!(self.driver.plan.how, How::Forwarding(_)) || self.state.late.contains(page) {
                    self.driver.holds.say_at(end, self.driver);
                }
            }
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
                    cache.cannot_be_had(reach, &why_not(why));
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, page: u32, bytes: PageBytes) {
        let version = Version::keep(bytes, &self.driver.machine, self.cache.as_ref());
        self.state.sent.insert(page, version);
    }

    fn end_sync(&mut self, result: Result<()>) {
        if let Some((waiting, pages)) = self.state.syncs.pop_front() {
            if let Some(cache) = self.cache.as_ref().filter(|_| result.is_ok()) {
                cache.is_synced(&pages);
            }
            let _ = waiting.send(result); // who waited may have given up
        }
    }

    /// What cannot be sent must not be waited for.
    fn send_or_take_back(&mut self, to: HostId, message: Said) -> Result<()> {
        let granted = match &message {
            Said::Central(central::Message::Grant { span, access, .. }) if to != self.driver.plan.me => {
                Some((*span, *access))
            }
            _ => None,
        };
        let pages = self.driver.plan.is_home.then(|| message.not_read()).flatten();
        let sent = self.send(to, message);
        match (granted.filter(|_| sent.is_err()), pages) {
            (Some((span, access)), _) => self.take_back(to, span, access),
            (None, _) if sent.is_err() && !self.driver.plan.is_home => self.begin_again(),
            (None, Some(not_read)) if sent.is_err() => self.refuse(to, not_read),
            _ => {}
        }
        sent
    }

    /// At the home: what somebody asked for could not be read, and is said to be so; under forwarding it is the home's still.
    fn refuse(&mut self, to: HostId, NotRead { told, stays }: NotRead) {
        let me = self.driver.plan.me;
        match told {
            Some(told) if to == me => {
                self.to_do.push_back((Event::Message { from: me, message: told }, Vec::new()))
            }
            Some(told) => self.driver.say(self.state, to, told, Vec::new()),
            None => {}
        }
        let stays = stays.map(|message| (Event::Message { from: me, message }, Vec::new()));
        self.to_do.extend(stays);
    }

    /// At the home: a grant could not be sent. Whoever waits for it is told, and what it would have owned is the home's; it may
    /// have a copy from before.
    fn take_back(&mut self, to: HostId, span: Span, access: Access) {
        let refusal = central::Message::Refuse { span, why: Why::NotRead };
        self.driver.say(self.state, to, Said::Central(refusal), Vec::new());
        for page in span.pages().filter(|_| access == Access::Write) {
            self.saved.iter().for_each(|saved| saved.returned(self.driver.frames(Span::one(page))));
            let message = central::Message::PageOut { page, answers: false, keeps: Access::Read };
            self.to_do.push_back((Event::Message { from: to, message: Said::Central(message) }, Vec::new()));
        }
    }

    /// At another host: what the scheduler counts on could not be done. What is newest here the home asks for.
    fn begin_again(&mut self) {
        self.state.stuck = true;
        self.driver.carrier.begin_again(self.driver.plan.object);
    }

    fn send(&mut self, to: HostId, message: Said) -> Result<()> {
        let plan = &self.driver.plan;
        if message == Said::Explicit(explicit::Message::Synced) && self.driver.stores(to) {
            return Ok(()); // said when it is stored
        }
        if to == plan.me {
            // Centrally scheduled, the home's frames are the saved copies: between its two parts no bytes need move.
            let bytes =
                if matches!(plan.how, How::Central(_)) { Vec::new() } else { self.bytes_of(&message)? };
            self.to_do.push_back((Event::Message { from: to, message }, bytes));
            return Ok(());
        }
        let mut bytes = self.bytes_of(&message)?;
        let lent = match &message {
            Said::Central(central::Message::Grant { span, access: Access::Write, .. }) => Some(*span),
            Said::Forwarding(forwarding::Message::HandOver { page, .. }) => Some(Span::one(*page)),
            _ => None,
        };
        if let (Some(span), Some(saved)) = (lent, &self.saved) {
            let stamp = if stamped(&message) { self.state.next_stamp() } else { 0 };
            // The next host must know that it has not the newest.
            saved.lend(self.driver.frames(span), to, stamp)?;
            if stamp != 0 {
                bytes.extend_from_slice(&stamp.to_le_bytes());
            }
        }
        self.publish(&message)?;
        self.driver.say(self.state, to, message, bytes);
        Ok(())
    }

    /// At the home of an object that replicas keep: what another host is about to get they have first.
    fn publish(&self, message: &Said) -> Result<()> {
        if let (Said::Central(central::Message::Grant { span, access, .. }), Some(saved)) =
            (message, &self.saved)
        {
            saved.publish(self.driver.frames(*span))?;
            if *access == Access::Read {
                saved.settle_replicas()?; // else a page that the reader drops could count as newer than it is
            }
        }
        Ok(())
    }

    fn bytes_of(&mut self, message: &Said) -> Result<Vec<u8>> {
        match message.carries() {
            Carried::Nothing => Ok(Vec::new()),
            Carried::Saved(pages) => {
                let just_now = self.given_back.take_if(|(page, _)| *pages == [*page]);
                match (just_now, &self.saved) {
                    (Some((_, bytes)), _) => Ok(bytes.into_vec()),
                    (None, Some(saved)) => {
                        saved.content(pages.into_iter().flat_map(|page| self.numbers(page)))
                    }
                    (None, None) => Ok(Vec::new()),
                }
            }
            Carried::Frames(pages) => self.frames(&pages),
        }
    }

    /// Of pages that were taken from the page tables, what was taken; of others, what the frames have.
    fn frames(&mut self, pages: &[u32]) -> Result<Vec<u8>> {
        if let [page] = pages
            && let Some(bytes) = self.state.late.take(*page).or_else(|| self.taken.remove(page))
        {
            return Ok(bytes.into_vec());
        }
        let mut all = Vec::with_capacity(pages.len() * PAGE);
        for page in pages {
            match (self.state.late.take(*page).or_else(|| self.taken.remove(page)), &self.cache) {
                (Some(bytes), _) => all.extend_from_slice(&bytes[..]),
                (None, Some(cache)) => all.extend(cache.content(self.numbers(*page))?),
                (None, None) => {
                    // It came back here by a loss, and nobody has used it since.
                    let version = self.state.sent.get(page);
                    all.extend_from_slice(version.map_or(&[], |version| &version[..]));
                }
            }
        }
        Ok(all)
    }

    /// Pages come. Those past the end go back, as they came.
    fn install(&mut self, span: Span, access: Access, with_data: bool) -> Result<()> {
        let driver = self.driver;
        let past = |page: u32| {
            let ends = |cache: &Arc<Cache>| cache.is_past_end(driver.frames(Span::one(page)));
            self.cache.as_ref().filter(|cache| !cache.has_pages()).is_some_and(ends)
        };
        if self.state.late.is_empty() && !span.pages().any(past) {
            return self.install_in_time(span, access, with_data, None);
        }
        let late: Vec<bool> = span.pages().map(past).collect();
        for (page, late) in span.pages().zip(late) {
            let count = self.frames_of(Span::one(page)).count as usize;
            let came: Option<PageBytes> = with_data.then(|| self.came.next(count).into());
            if late {
                // What is in a frame here the frame's end would take.
                let here = || self.cache.as_ref().and_then(|cache| cache.content(self.numbers(page)).ok());
                let bytes = came.or_else(|| here().map(Vec::into_boxed_slice));
                self.state.late.put(page, bytes);
                continue;
            }
            let bytes = came.or_else(|| self.state.late.take(page));
            self.state.late.is_in_time(page);
            self.install_in_time(Span::one(page), access, bytes.is_some(), bytes)?;
        }
        Ok(())
    }

    /// `bytes`: theirs, if they are not the next of those that came.
    fn install_in_time(
        &mut self,
        span: Span,
        access: Access,
        with_data: bool,
        bytes: Option<PageBytes>,
    ) -> Result<()> {
        self.given_back = None; // whoever may use it may change it
        let plan = &self.driver.plan;
        let in_place = plan.is_home && matches!(plan.how, How::Central(_));
        let stamp = self.came.stamp().filter(|_| access == Access::Write && !plan.is_home);
        let frames = self.frames_of(span);
        let bytes = match &bytes {
            Some(bytes) => Some(&bytes[..]),
            None => (with_data && !in_place).then(|| self.came.next(frames.count as usize)),
        };
        let Some(cache) = &self.cache else { return Ok(()) };
        if access == Access::Write && plan.is_home && with_data && !in_place {
            cache.returned(frames); // owned here again
        }
        if let Some(stamp) = stamp {
            cache.granted(frames, stamp).inspect_err(|error| cache.cannot_be_had(frames, error))?;
        }
        let installed = if plan.sizes.host_is_larger() {
            let arrived = bytes.map_or(Ok(()), |bytes| cache.arrive(frames, access, bytes));
            arrived.and_then(|()| self.install_what_is_whole(cache, frames))
        } else {
            cache.install(frames, access, bytes)
        };
        installed.inspect_err(|error| {
            if stamp.is_some() {
                let _ = cache.granted(frames, 0); // as if it had never come
            }
            cache.cannot_be_had(frames, error);
        })
    }

    /// A page of this host that is several scheduler pages may be used as the one of them that allows least.
    fn install_what_is_whole(&self, cache: &Arc<Cache>, frames: PageRange) -> Result<()> {
        let sizes = self.driver.plan.sizes;
        let host = sizes.host();
        for page in frames.first / host..frames.end().div_ceil(host) {
            let whole = self.driver.reach(PageRange::new(page * host, 1));
            let parts = sizes.requests(whole, self.driver.end()).flat_map(Span::pages);
            let least = parts.map(|part| self.state.part.access(part)).min().unwrap_or(Access::None);
            if least > Access::None {
                cache.install(whole, least, None)?;
            }
        }
        Ok(())
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
    pub(super) fn wait_for_holds(&self, message: &Said) {
        if let Some(end) = self.state.held.end_of(message) {
            self.driver.holds.say_at(end, self.driver);
        }
    }
}

/// Bytes of a stamp.
pub(super) const STAMP: usize = 8;

/// Whether a message says by which stamp its pages are granted: behind their bytes.
pub(super) fn stamped(message: &Said) -> bool {
    matches!(message, Said::Central(central::Message::Grant { access: Access::Write, .. }))
}

impl State {
    /// Each grant to write has its own, which no process of the home gives twice.
    fn next_stamp(&mut self) -> u64 {
        self.stamp = self.stamp.wrapping_add(1).max(1);
        self.stamp
    }
}

/// Anywhere, far from where other processes begin.
pub(super) fn first_stamp() -> u64 {
    let mut bytes = [0; 8];
    // Without it, stamps of an earlier process could be given again.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random numbers");
    u64::from_le_bytes(bytes)
}

impl Came {
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

/// Tells the scheduler what was written here.
pub(super) fn tell_written(node: &mut explicit::Node, pages: &RoaringBitmap) {
    use commonhold_coherence::Scheduler;
    for run in crate::cache::book::runs(pages) {
        let span = Span::new(run.first as u32, run.count as u32);
        node.handle(Event::Written { span }, &mut Vec::new());
    }
}
