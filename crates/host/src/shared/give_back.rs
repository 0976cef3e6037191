//! Giving back: who had pages newest when their home became another process, when messages between it and the home were
//! lost, or when its own process did, is asked for them before they count as lost (`docs/LEASES.md`, "Giving back").

use super::driver::{Driver, PAGE, State};
use super::insist::insist;
use super::part::{How, Part, Said};
use super::turn::Turn;
use crate::cache::kept::{Handover, Lent};
use crate::cache::{Cache, book};
use crate::handovers::{Handovers, Left};
use commonhold_coherence::{Access, Event, HostId, Span, central};
use commonhold_object::{Error, ErrorKind, PageRange, Result};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a host has of the pages that it is asked for.
#[derive(Debug, Default)]
pub struct Back {
    /// Those that it has.
    pub pages: Vec<u32>,
    /// Their bytes, one page after the other.
    pub bytes: Vec<u8>,
    /// Those that were granted to it and never came: nobody wrote them.
    pub untouched: Vec<u32>,
    /// Of forwarding, those that it handed over and keeps, with their bytes behind the others': by which hand-over, and to whom.
    pub kept: Vec<(u32, u64, Option<HostId>)>,
    /// What it has notes of, of forwarding.
    pub seen: Option<Seen>,
}

/// What came to processes of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// To which.
    pub by: Vec<HostId>,
    /// By which hand-over a page was there last, or left. Of others none came.
    pub numbers: Vec<(u32, u64)>,
}

/// Between which processes pages were lent.
#[derive(Clone, Copy, Debug)]
pub struct Loan {
    /// The one that had them.
    pub to: HostId,
    /// The home's, if it is known.
    pub by: Option<HostId>,
}

/// Of forwarding, at a home that begins: what nobody has said that he owns may have been on its way between two others when its
/// process ended.
#[derive(Default)]
pub(super) struct OnTheirWay {
    /// Of pages, the latest hand-over of which anybody keeps the bytes, and to whom it went, if it may not have come.
    latest: HashMap<u32, (u64, Option<HostId>)>,
    /// Of pages that the home's process had read since a hand-over, which: what it saved is newer than what others keep of it.
    read: HashMap<u32, u64>,
    /// Processes that are spoken for, and by which hand-over each had a page last.
    seen: HashMap<HostId, HashMap<u32, u64>>,
}

impl OnTheirWay {
    /// Pages that never came where they were sent: what is kept of them is the newest.
    fn never_came(&self) -> Vec<u32> {
        let never_came = |(number, to): &(u64, Option<HostId>), page: &u32| {
            let seen = to.and_then(|to| self.seen.get(&to));
            seen.is_some_and(|seen| seen.get(page).is_none_or(|seen| seen < number))
        };
        self.latest.iter().filter(|(page, latest)| never_came(latest, page)).map(|(page, _)| *page).collect()
    }
}

impl Driver {
    /// At a host that is not the home: what is here of pages that the process of that number had newest: this one, or the
    /// one before it.
    pub fn give_back(&self, loan: Loan, pages: &[(u32, u64)]) -> Result<Back> {
        let state = self.state();
        if state.home.is_some() && loan.to == self.plan.me {
            let text = "this host has not heard yet that the object's home begins anew: ask again";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        if self.plan.is_home || state.home.is_some() {
            return Ok(Back::default());
        }
        if let Some(begun) = self.handovers.as_ref().and_then(Handovers::begun)
            && loan.by.is_some_and(|by| by != begun.home)
        {
            // It was given back to the home between the two, which has lent it to others since.
            return Ok(Back::default());
        }
        let mut back = match self.cache() {
            Some(cache) if cache.holder() == Some(loan.to) => cache.newest_of(&self.owned_of(pages)?)?,
            // Nobody uses it here any more: what is kept of it may be the newest.
            None if self.handovers.is_some() && loan.to == self.plan.me => Back::default(),
            _ => return Ok(Back::default()),
        };
        if let Some(handovers) = &self.handovers {
            self.give_kept(handovers, pages, &mut back)?;
        }
        Ok(back)
    }

    /// Those of them whose frames are the newest versions, if they are here. Of an object whose home moves all frames were marked
    /// when the process before this one ended, also what was there to be read alone: there it is the notes that say it.
    fn owned_of(&self, pages: &[(u32, u64)]) -> Result<Vec<(u32, u64)>> {
        let (Some(handovers), true) = (&self.handovers, self.plan.home_moves) else {
            return Ok(pages.to_vec());
        };
        let unit = self.plan.sizes.page() as u32;
        let mut owned = Vec::new();
        for page in pages {
            if handovers.left_of(page.0 / unit)?.standing.owned {
                owned.push(*page);
            }
        }
        Ok(owned)
    }

    /// Of what is not owned here, what was handed over.
    pub(super) fn give_kept(
        &self,
        handovers: &Handovers,
        pages: &[(u32, u64)],
        back: &mut Back,
    ) -> Result<()> {
        let owned: RoaringBitmap = back.pages.iter().copied().collect();
        back.seen = handovers.begun().map(|begun| Seen { by: begun.by, numbers: Vec::new() });
        let mut leaving = Vec::new();
        let mut bytes = Vec::new();
        for (frame, _) in pages.iter().filter(|(frame, _)| !owned.contains(*frame)) {
            let unit = self.plan.sizes.page() as u32;
            let Left { standing, is_kept } = handovers.left_of(frame / unit)?;
            let part = |bytes: &mut Vec<u8>| {
                let begin = bytes.len();
                bytes.resize(begin + PAGE, 0);
                handovers.part(frame / unit, u64::from(frame % unit) * PAGE as u64, &mut bytes[begin..])
            };
            if is_kept {
                part(&mut back.bytes)?; // it was about to be handed over
                leaving.push(*frame);
            } else if let Some(number) = standing.kept {
                part(&mut bytes)?;
                back.kept.push((*frame, number, standing.sent_to));
            }
            if let (false, 1.., Some(seen)) = (standing.owned, standing.number, &mut back.seen) {
                seen.numbers.push((*frame, standing.number));
            }
        }
        back.pages.extend(leaving);
        back.bytes.extend(bytes);
        Ok(())
    }

    /// In whose name this host gives back what is newest here.
    pub fn holder(&self) -> Option<HostId> {
        self.cache().filter(|_| !self.plan.is_home)?.holder()
    }

    /// Whether the home may not get what is sent to it now: what is newest here stays until it is reached again.
    pub fn home_may_not_hear(&self) -> bool {
        !self.plan.is_home && self.home().is_none_or(|home| self.carrier.is_away(home))
    }

    /// The home is to be found again: what is newest here stays for it.
    pub(super) fn keep_newest(&self, state: &mut State) {
        let Some(cache) = self.cache() else { return };
        let kept = match &state.part {
            // Who owns a page has its newest version, written here or not.
            Part::Forwarding(node) => {
                let page = self.plan.sizes.page() as u32;
                cache.keep_only(|frame| node.owns(frame / page))
            }
            _ => cache.keep_newest(),
        };
        state.keeps_old = kept.is_err();
        if let Err(error) = kept {
            cache.report(&error);
        }
    }

    /// At a host that has no home now: what may be old is in no page table any more. Before that is so nobody may hear that
    /// this host has given it up. Where it fails it is tried again by whoever asks next.
    pub fn has_dropped_old(&self) -> Result<()> {
        let mut state = self.state();
        if state.keeps_old
            && let Some(cache) = self.cache()
        {
            cache.keep_newest()?; // which is the newest is marked
        }
        state.keeps_old = false;
        Ok(())
    }

    /// At a home that has not begun: whoever may have pages of the process before, of these members and others.
    pub fn borrowers(&self, members: &[HostId]) -> Vec<HostId> {
        let state = self.state();
        match (&state.part, state.lent.to.is_empty()) {
            // Pages went on from whom they were lent to.
            (Part::Forwarding(_), false) => {
                members.iter().copied().filter(|host| *host != self.plan.me).collect()
            }
            _ => state.lent.to.keys().copied().collect(),
        }
    }

    /// At the home: frames of pages whose newest version that host has, as far as the home knows; of each page all of them.
    pub fn lent_to(&self, host: HostId) -> Vec<u32> {
        let state = self.state();
        let frames = match (&state.part, state.home) {
            (Part::Central(node), Some(_)) => self.owned_by(node, host),
            // Pages went on from whom they were lent to.
            (Part::Forwarding(_), None) => state.lent.to_anybody(),
            (_, None) => state.lent.to.get(&host).cloned().unwrap_or_default(),
            _ => RoaringBitmap::new(),
        };
        frames.iter().collect()
    }

    fn owned_by(&self, node: &central::Node, host: HostId) -> RoaringBitmap {
        let pages = node.home().map_or_else(Vec::new, |home| home.table().owned_by(host));
        let mut frames = RoaringBitmap::new();
        pages.into_iter().for_each(|page| book::insert(&mut frames, self.frames(Span::one(page))));
        frames
    }

    /// At a home that begins: the process of it that lent what is lent, under forwarding.
    pub fn lent_by(&self) -> Option<HostId> {
        let saved = self.saved().filter(|_| matches!(self.plan.how, How::Forwarding(_)))?;
        self.state().lent.by.or_else(|| saved.holder())
    }

    /// Of forwarding: what is lent from now on this process lends.
    pub(super) fn lends_itself(&self) {
        if let Some(saved) = self.saved().filter(|_| matches!(self.plan.how, How::Forwarding(_))) {
            insist(&saved, || saved.is_held_by(self.plan.me));
        }
    }

    /// At the home: by which stamps these pages were lent; under forwarding by none.
    pub fn stamps_of(&self, pages: &[u32]) -> Vec<(u32, u64)> {
        match self.plan.how {
            How::Forwarding(_) => pages.iter().map(|page| (*page, 0)).collect(),
            _ => self.saved().map_or_else(Vec::new, |saved| saved.stamps_of(pages)),
        }
    }

    /// Of forwarding, at a home that begins to ask: by which hand-overs the processes before it, of these numbers, had last what
    /// they had lent. What did not come to whom they lent it is as it was when it went.
    pub fn begins_to_ask(&self, formers: &[HostId]) {
        let mut state = self.state();
        let (State { part: Part::Forwarding(_), lent, on_their_way, .. }, Some(saved)) =
            (&mut *state, self.saved())
        else {
            return;
        };
        let unit = self.plan.sizes.page() as u32;
        for (to, frames) in &lent.to {
            let frames: Vec<u32> = frames.iter().collect();
            for (frame, Handover { number, is_read }) in saved.handovers_of(&frames) {
                on_their_way.latest.insert(frame / unit, (number, Some(*to).filter(|_| !is_read)));
                on_their_way.read.extend(is_read.then_some((frame / unit, number)));
                if lent.by.is_some() {
                    continue; // it was lent by another host: of what processes before this one had, their notes speak
                }
                for former in formers {
                    on_their_way.seen.entry(*former).or_default().insert(frame / unit, number);
                }
            }
        }
    }

    /// At the home: a host, or the next process of it, gives back pages that it had newest. Of what is nobody's, or
    /// another's, by now, nothing is taken.
    pub fn given_back(self: &Arc<Self>, former: HostId, back: &Back) -> Result<()> {
        let Back { pages, bytes, untouched, kept, seen } = back;
        let count = pages.len() + kept.len();
        if bytes.len() != count * PAGE {
            let text = format!("{former} gave {} bytes back for {count} pages", bytes.len());
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        let (bytes, of_kept) = bytes.split_at(pages.len() * PAGE);
        let given: BTreeMap<u32, &[u8]> = pages.iter().copied().zip(bytes.chunks(PAGE)).collect();
        let all: RoaringBitmap = pages.iter().chain(untouched).copied().collect();
        let mut state = self.state();
        for page in self.plan.sizes.pages_of(&all) {
            let frames = self.frames(Span::one(page));
            let numbers = || frames.first as u32..frames.end() as u32;
            if !numbers().all(|frame| all.contains(frame)) {
                continue; // a page is the newest as a whole
            }
            // Of what was never written the saved copies are the newest; where a part never came, nobody had the page.
            let came = numbers().all(|frame| given.contains_key(&frame));
            let bytes = numbers().filter(|_| came).filter_map(|frame| given.get(&frame)).copied().flatten();
            self.take_back(&mut state, former, page, bytes.copied().collect())?;
        }
        self.take_kept(&mut state, seen.as_ref(), kept.iter().zip(of_kept.chunks(PAGE)))
    }

    /// Of forwarding: what a host keeps of pages that it handed over is newer than the saved copies, or has been.
    fn take_kept<'b>(
        &self,
        state: &mut State,
        seen: Option<&Seen>,
        kept: impl Iterator<Item = (&'b (u32, u64, Option<HostId>), &'b [u8])>,
    ) -> Result<()> {
        if state.home.is_some() || !matches!(state.part, Part::Forwarding(_)) {
            return Ok(());
        }
        let unit = self.plan.sizes.page() as u32;
        if let Some(Seen { by, numbers }) = seen {
            for process in by {
                let known = state.on_their_way.seen.entry(*process).or_default();
                known.extend(numbers.iter().map(|(frame, number)| (frame / unit, *number)));
            }
        }
        // Of what an owner gave back, nothing else is of use.
        let is_lent = |lent: &Lent, frame| lent.to.values().any(|lent| lent.contains(frame));
        for ((frame, number, to), bytes) in kept.filter(|((frame, ..), _)| is_lent(&state.lent, *frame)) {
            let latest = state.on_their_way.latest.get(&(frame / unit)).copied();
            let (before, was_sent_to) = latest.unwrap_or_default();
            let was_read = state.on_their_way.read.get(&(frame / unit)).is_some_and(|read| read >= number);
            if *number >= before
                && !was_read
                && let Some(saved) = self.saved()
            {
                saved.save_copy(PageRange::new((*frame).into(), 1), bytes)?;
                let to = to.or(was_sent_to.filter(|_| *number == before));
                state.on_their_way.latest.insert(frame / unit, (*number, to));
            }
        }
        Ok(())
    }

    /// Of forwarding, when all have been asked: what was on its way when the home's process ended, and did not come.
    pub fn all_were_asked(&self) {
        let mut state = self.state();
        let (state, Some(saved)) = (&mut *state, self.saved()) else { return };
        for page in std::mem::take(&mut state.on_their_way).never_came() {
            let frames = self.frames(Span::one(page));
            let is_lent = |lent: &RoaringBitmap| lent.contains(frames.first as u32);
            if let Some(lent) = state.lent.to.values_mut().find(|lent| is_lent(lent)) {
                saved.returned(frames);
                book::remove(lent, frames);
            }
        }
    }

    fn take_back(
        self: &Arc<Self>,
        state: &mut State,
        former: HostId,
        page: u32,
        bytes: Vec<u8>,
    ) -> Result<()> {
        let (frames, Some(saved)) = (self.frames(Span::one(page)), self.saved()) else { return Ok(()) };
        if state.home.is_some() {
            let is_owner = matches!(&state.part, Part::Central(node)
                if node.home().is_some_and(|home| home.table().owner(page) == Some(former)));
            // As if it had been paged out unasked, by the scheduler's rules.
            let message = central::Message::PageOut { page, answers: false, keeps: Access::None };
            Turn::take(self, state, Event::Message { from: former, message: Said::Central(message) }, bytes);
            if is_owner {
                saved.returned(frames);
            }
            return Ok(());
        }
        let forwarded = matches!(state.part, Part::Forwarding(_));
        let is_lent =
            |lent: &RoaringBitmap| (frames.first..frames.end()).all(|frame| lent.contains(frame as u32));
        let mut lent = state.lent.to.iter_mut().filter(|(host, _)| forwarded || **host == former);
        if let Some((_, lent)) = lent.find(|(_, lent)| is_lent(lent)) {
            if !bytes.is_empty() {
                saved.save_copy(frames, &bytes)?;
            }
            saved.returned(frames);
            book::remove(lent, frames);
        }
        Ok(())
    }

    /// At the home, which begins: of what was lent and not given back the newest version is lost.
    pub(super) fn rest_is_lost(&self, state: &mut State) {
        let lent = std::mem::take(&mut state.lent);
        let lost_now = lent.to_anybody();
        if !lost_now.is_empty() {
            self.has_losses(); // of the others the process before has told
        }
        let lost = lost_now | lent.to_nobody;
        if let Some(saved) = self.saved() {
            note_lost(&saved, &lost);
        }
        if self.plan.how.serves_older() {
            self.reverted.fetch_add(lost.len(), Ordering::Relaxed);
            book::runs(&lost).into_iter().for_each(|run| self.has_again(run));
        }
        let pages = self.plan.sizes.pages_of(&lost);
        match &mut state.part {
            Part::Central(node) => node.were_lost(pages),
            Part::Forwarding(node) => node.were_lost(pages),
            Part::Explicit(_) => {}
        }
    }

    /// At the home: what that host had newest is lost from now on, and stays so, whoever comes with it later.
    pub(super) fn will_be_lost(&self, state: &State, host: HostId) {
        if let (Part::Central(node), Some(saved)) = (&state.part, self.saved()) {
            let owned = self.owned_by(node, host);
            if !owned.is_empty() {
                self.has_losses(); // before: what is noted here the next process does not tell
            }
            note_lost(&saved, &owned);
        }
    }
}

/// Notes that nobody has these pages. Without the note they could be given back after somebody has read older ones.
fn note_lost(saved: &Cache, pages: &RoaringBitmap) {
    book::runs(pages).into_iter().for_each(|run| insist(saved, || saved.nobody_has(run)));
}

#[cfg(test)]
mod tests {
    use super::super::driver::Plan;
    use super::super::part::Kept;
    use super::super::{About, Carrier, Sizes};
    use super::*;
    use crate::cache::kept::tests::{Memory, cache};
    use crate::clock::Clock;
    use crate::handovers::new_memory;
    use commonhold_object::SessionId;
    use std::time::Duration;

    const ME: HostId = HostId(5);

    /// Nobody hears anything.
    struct Silence;

    impl Carrier for Silence {
        fn send(&self, _to: HostId, _about: About, _messages: Vec<Said>, _pages: &mut Vec<u8>) {}
        fn unlocked(&self, _object: u128, _session: SessionId, _pages: PageRange) {}
    }

    #[test]
    fn what_never_came_is_known_by_its_number() {
        let (here, gone) = (HostId(2), HostId(9));
        let latest = [
            (1, (23, Some(here))), // what it had last is older
            (2, (5, Some(here))),  // it came
            (3, (8, Some(here))),  // it came, and went on
            (4, (1, Some(here))),  // it never had any
            (5, (7, None)),        // it came where it was sent, somebody said
            (6, (9, Some(gone))),  // who has no notes
        ];
        let seen = [(here, HashMap::from([(1, 21), (2, 5), (3, 9)]))];
        let mut pages =
            OnTheirWay { latest: latest.into(), seen: seen.into(), ..OnTheirWay::default() }.never_came();
        pages.sort();
        assert_eq!(pages, [1, 4]);
    }

    fn plan(is_home: bool) -> Plan {
        Plan {
            object: 1,
            me: ME,
            is_home,
            pages: 16,
            sizes: Sizes::FRAMES,
            how: How::Forwarding(Kept { on_loss: central::OnLoss::Error, replicas: 0 }),
            hold: Duration::ZERO,
            home_moves: false,
            is_replicated: false,
        }
    }

    /// One host sent a page to another, whose process died; the next has begun with the home, and then the home's process dies. Who
    /// gave the page keeps it, and who is asked in the dead one's place speaks for it, or not.
    #[test]
    fn what_was_sent_to_a_process_before_is_not_lost_with_the_home() {
        let (keeper, dead, next) = (HostId(6), HostId(7), HostId(8));
        for (by, is_lost) in [(vec![dead, next], false), (vec![next], true)] {
            let directory = tempfile::tempdir().unwrap();
            let memory = Memory::new();
            let cache = cache(directory.path(), &memory);
            let lent = Lent { to: [(keeper, [3].into())].into(), ..Lent::default() };
            let clock = Clock::start().unwrap();
            let driver = Driver::start(plan(true), Arc::new(Silence), clock, &cache, lent, None);
            driver.begins_to_ask(&[]);
            let kept = Back { bytes: vec![7; PAGE], kept: vec![(3, 9, Some(dead))], ..Back::default() };
            driver.given_back(keeper, &kept).unwrap();
            let seen = Seen { by, numbers: vec![(3, 4)] };
            driver.given_back(next, &Back { seen: Some(seen), ..Back::default() }).unwrap();
            driver.all_were_asked();
            assert_eq!(!driver.lent_to(keeper).is_empty(), is_lost);
        }
    }

    /// A home's process had read a page that it had lent: what it saved then is not replaced by what others keep of before. What was
    /// handed over later is newer.
    #[test]
    fn what_the_home_had_read_is_newer_than_what_was_handed_over_before() {
        for (number, kept) in [(9, 5), (10, 6)] {
            let directory = tempfile::tempdir().unwrap();
            let memory = Memory::new();
            let cache = cache(directory.path(), &memory);
            let page = PageRange::new(3, 1);
            cache.save_copy(page, &[5; PAGE]).unwrap();
            cache.was_read(page, 9).unwrap();
            let (keeper, owner) = (HostId(6), HostId(7));
            let lent = Lent { to: [(owner, [3].into())].into(), ..Lent::default() };
            let clock = Clock::start().unwrap();
            let driver = Driver::start(plan(true), Arc::new(Silence), clock, &cache, lent, None);
            driver.begins_to_ask(&[]);
            let kept_there = vec![(3, number, Some(owner))];
            let back = Back { bytes: vec![6; PAGE], kept: kept_there, ..Back::default() };
            driver.given_back(keeper, &back).unwrap();
            let seen = Seen { by: vec![owner], numbers: vec![(3, number)] };
            driver.given_back(owner, &Back { seen: Some(seen), ..Back::default() }).unwrap();
            driver.all_were_asked();
            assert!(!driver.lent_to(owner).is_empty(), "it came, and is lost with its owner");
            assert_eq!(cache.content([3]).unwrap(), vec![kept; PAGE]);
        }
    }

    /// Two processes of a home die before this host has found the first of the next: that one was given all it had lent, and may
    /// have lent it to others.
    #[test]
    fn what_one_home_was_given_back_the_next_is_not_given() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        let cache = cache(directory.path(), &memory);
        let (page, first_home) = (PageRange::new(3, 1), HostId(1));
        let handovers = Handovers::new(Arc::new(new_memory().unwrap()), PAGE as u64).unwrap();
        handovers.begin(first_home, ME).unwrap();
        cache.held_by(ME).unwrap();
        handovers.own(3, 1).unwrap();
        cache.granted(page, 0).unwrap();
        cache.install(page, Access::Write, true, Some(&[7; PAGE])).unwrap();
        let clock = Clock::start().unwrap();
        let driver =
            Driver::start(plan(false), Arc::new(Silence), clock, &cache, Lent::default(), Some(handovers));
        let given = |by| driver.give_back(Loan { to: ME, by }, &[(3, 0)]).unwrap();
        for by in [Some(first_home), None] {
            let back = given(by);
            assert_eq!((back.pages, back.bytes), (vec![3], vec![7; PAGE]), "{by:?}");
            assert_eq!(back.seen.map(|seen| seen.by), Some(vec![ME]));
        }
        let back = given(Some(HostId(2)));
        assert!(back.pages.is_empty() && back.untouched.is_empty() && back.seen.is_none(), "{back:?}");
    }
}
