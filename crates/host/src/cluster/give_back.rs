//! Pages that were newest with other hosts when this home's process is a new one, when messages between a host and this home
//! were lost, or when a host's process is another: they are asked for before they count as lost. `docs/LEASES.md`, "Giving
//! back", says why what comes so is never too old.

use super::beginnings::Turn;
use super::wire::{Answer, Call, Member};
use super::{Cluster, PATIENCE, unexpected};
use crate::shared::{Back, Driver, How, Loan};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Frames of one question: of whole pages of the scheduler, which have no more than that.
const ASKED_PAGES: usize = 512;
/// Between two attempts to ask.
const PAUSE: Duration = Duration::from_millis(50);

impl Cluster {
    /// Which processes follow those that are lost, the registry says.
    pub(super) fn now_follow(&self, members: &[Member]) {
        let following = |member: &Member| {
            let host = member.host;
            member.former.clone().into_iter().map(move |former| (former, host))
        };
        let followers: HashMap<HostId, HostId> = members.iter().flat_map(following).collect();
        *self.followers.write().unwrap_or_else(PoisonError::into_inner) = followers;
    }

    /// Under which numbers other hosts may have pages: those of members, and of processes that they follow.
    pub(super) fn who_may_have_pages(&self) -> Vec<HostId> {
        let members = self.members().iter().map(|member| member.host).collect::<Vec<_>>();
        let followers = self.followers.read().unwrap_or_else(PoisonError::into_inner);
        let others = followers.iter().filter(|(_, next)| **next != self.me.host).map(|(former, _)| *former);
        members.into_iter().chain(others).collect()
    }

    /// The processes that this one follows.
    pub(super) fn whom_this_follows(&self) -> Vec<HostId> {
        let followers = self.followers.read().unwrap_or_else(PoisonError::into_inner);
        followers.iter().filter(|(_, next)| **next == self.me.host).map(|(former, _)| *former).collect()
    }

    /// The processes that one follows.
    pub(super) fn followed_by(&self, host: HostId) -> Vec<HostId> {
        let followers = self.followers.read().unwrap_or_else(PoisonError::into_inner);
        followers.iter().filter(|(_, next)| **next == host).map(|(former, _)| *former).collect()
    }

    /// The process that took the place of that one, while it was a member.
    pub(super) fn follower(&self, former: HostId) -> Option<HostId> {
        self.followers.read().unwrap_or_else(PoisonError::into_inner).get(&former).copied()
    }

    /// At a host that is not the home: what it, or its process before, had newest. Only the home may ask.
    pub(super) fn give_back(
        self: &Arc<Self>,
        from: HostId,
        object: u128,
        loan: Loan,
        pages: &[(u32, u64)],
    ) -> Result<(Answer, Vec<u8>)> {
        if pages.len() > ASKED_PAGES {
            let text =
                format!("{} pages are asked back, the limit is {ASKED_PAGES}: ask for fewer", pages.len());
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        if self.home_of(object)? != from {
            return Err(Error::new(ErrorKind::Permission, "only an object's home has pages given back"));
        }
        let back = match self.driver(object) {
            Some(driver) => driver.give_back(loan, pages)?,
            None => self.what_left_last(object, pages)?,
        };
        let Back { pages, untouched, kept, seen, bytes } = back;
        Ok((Answer::GivenBack { pages, untouched, kept, seen }, bytes))
    }

    /// Of an object that is not in use here any more: what left last, and may not have arrived.
    fn what_left_last(&self, object: u128, pages: &[(u32, u64)]) -> Result<Back> {
        let (host, mut back) = (self.host()?, Back::default());
        for (page, stamp) in pages {
            if let Some(bytes) = host.machine.on_way.find(object, *page, *stamp) {
                back.pages.push(*page);
                back.bytes.extend_from_slice(&bytes[..]);
            }
        }
        Ok(back)
    }

    /// Begins to schedule an object, when whoever had newest pages of it has given them back.
    pub(super) fn begin_home(self: &Arc<Self>, driver: &Arc<Driver>) {
        if driver.plan().home_moves {
            return self.begin_moving_home(driver);
        }
        let borrowers = driver.borrowers(&self.who_may_have_pages());
        if borrowers.is_empty() {
            driver.begin();
            self.tokens_find_home(driver.plan().object);
            self.size_own_import(driver);
            return;
        }
        let (this, driver) = (self.clone(), driver.clone());
        let asking = move || {
            if this.ask_all_back(&driver, &borrowers) {
                driver.begin();
                this.tokens_find_home(driver.plan().object);
            }
        };
        if points::thread(|| std::thread::Builder::new().name("asking back".into()).spawn(asking)).is_err() {
            std::process::abort(); // the keeper starts the next, which tries again
        }
    }

    /// Asks these hosts for what they had newest of an object whose home has not begun. Whether all were asked.
    pub(super) fn ask_all_back(self: &Arc<Self>, driver: &Arc<Driver>, borrowers: &[HostId]) -> bool {
        driver.begins_to_ask(&self.whom_this_follows());
        // One after the other: each is waited for no longer than a lease after it answered last.
        borrowers.iter().for_each(|former| self.ask_back(driver, *former));
        if self.lease.is_fenced() {
            return false; // who was not asked any more has lost nothing: the next process asks
        }
        driver.all_were_asked();
        match driver.plan().how {
            // Each may have had any of it.
            How::Forwarding(_) => self.report_lost(driver, self.me.host, "other hosts"),
            _ => borrowers.iter().for_each(|former| self.report_lost(driver, *former, &self.called(*former))),
        }
        true
    }

    /// Whether somebody may have what a host that is lost had newest of an object of this home.
    pub(super) fn can_be_asked_for(&self, driver: &Driver, host: HostId) -> bool {
        let is_central = matches!(driver.plan().how, How::Central(_));
        let follows = driver.is_home() && is_central && self.follower(host).is_some();
        follows && driver.home().is_some() && !driver.lent_to(host).is_empty()
    }

    /// The scheduler hears that a host is lost when the process that follows it has given back what it had newest.
    pub(super) fn ask_and_lose(self: &Arc<Self>, driver: &Arc<Driver>, host: HostId) {
        let (this, driver) = (self.clone(), driver.clone());
        let asking = move || {
            let _ = this.settle_given_up(driver.plan().object, host, None); // who is at it already says it, too
        };
        if points::thread(|| std::thread::Builder::new().name("asking back".into()).spawn(asking)).is_err() {
            std::process::abort();
        }
    }

    /// A host is lost to an object's scheduler. Whether it was the home.
    pub(super) fn lose(&self, driver: &Arc<Driver>, host: HostId) -> bool {
        if driver.is_home() && driver.home().is_some() {
            self.report_lost(driver, host, &self.called(host));
        }
        driver.lost(host, self.follower(host))
    }

    fn report_lost(&self, driver: &Driver, host: HostId, who: &str) {
        let lost = driver.lent_to(host).len();
        if lost > 0 {
            let object = driver.plan().object;
            self.report(format_args!(
                "object {object:032x}: the newest versions of {lost} pages are lost with {who}"
            ));
        }
    }

    /// At the home: a host has given up what it had (it says so under that number), or is lost. It, or who follows it, is asked
    /// for what it had newest; then it is lost to the object's scheduler.
    pub(super) fn settle_given_up(
        self: &Arc<Self>,
        object: u128,
        former: HostId,
        number: Option<u64>,
    ) -> Result<()> {
        let driver = self.home_driver(object)?;
        if driver.as_ref().is_some_and(|driver| driver.home().is_none()) {
            return Err(self.asks(former));
        }
        // What it said before.
        driver.iter().for_each(|driver| driver.catch_up());
        let _asking = match self.beginnings.ends(object, former, number) {
            Turn::Now(asking) => asking,
            Turn::Later => return Err(self.asks(former)),
            Turn::Over => return Ok(()),
        };
        self.dismiss(object, former);
        self.locks_lost(former, Some(object));
        if let Some(driver) = driver {
            self.ask_back(&driver, former);
            if self.lease.is_fenced() {
                return Err(self.asks(former)); // who was not asked any more has lost nothing: the next process asks
            }
            self.lose(&driver, former);
        }
        self.do_not_send(former, object);
        Ok(())
    }

    /// The driver of an object whose home this host is. None if it is the home of no such object; an error if it is and cannot
    /// look after it (yet): what others have of it is kept until it can.
    fn home_driver(self: &Arc<Self>, object: u128) -> Result<Option<Arc<Driver>>> {
        if let Some(driver) = self.driver(object).filter(|driver| driver.is_home()) {
            return Ok(Some(driver));
        }
        if self.record_of(object).is_ok() {
            self.serve(object)?;
            return Ok(self.driver(object).filter(|driver| driver.is_home()));
        }
        if self.will_be_home(object)? {
            let text = "this host is about to be the object's home: try again later";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(None)
    }

    /// Whether this host is the home of an object that has no record here: it has claimed it, and asks for what others have soon.
    pub(super) fn will_be_home(&self, object: u128) -> Result<bool> {
        if self.record_of(object).is_ok() {
            return Ok(false);
        }
        match self.registry().and_then(|registry| registry.where_is(object)) {
            Err(error) if error.kind != ErrorKind::NotFound => Err(error),
            home => Ok(home.is_ok_and(|home| home == self.me.host)),
        }
    }

    /// A host begins with an object of this home. Refuses who is being asked for what it had newest, who has said something later,
    /// and who comes before this home has begun. `job`: what the beginning is to this home.
    pub(super) fn check_begins(
        &self,
        object: u128,
        from: HostId,
        number: u64,
        job: impl FnOnce(),
    ) -> Result<()> {
        let begun = self.driver(object).is_some_and(|driver| driver.home().is_some());
        if !begun || !self.beginnings.says(object, from, number, job) {
            return Err(self.asks(from));
        }
        Ok(())
    }

    pub(super) fn asks(&self, former: HostId) -> Error {
        let who = self.called(former);
        Error::new(ErrorKind::Busy, format!("pages that {who} had newest are asked back: try again later"))
    }

    /// Who can be asked for what that process had newest.
    pub(super) fn who_has_left(&self, former: HostId) -> Option<HostId> {
        self.member(former).map(|member| member.host).or_else(|| self.follower(former))
    }

    /// Asks for all that a process had newest of an object, until it is here, or nobody is left who can be asked, or who can
    /// has not answered for as long as a lease.
    fn ask_back(self: &Arc<Self>, driver: &Arc<Driver>, former: HostId) {
        // Only the last page of an object is shorter than the others.
        let page = driver.plan().sizes.page() as usize;
        let (mut asked, mut given) = (RoaringBitmap::new(), 0);
        'all: loop {
            // What it had asked for before may be granted to it still, once: that never came, it says then.
            let mut wanted = driver.lent_to(former);
            wanted.retain(|frame| asked.insert(*frame));
            if wanted.is_empty() {
                break;
            }
            for pages in wanted.chunks(ASKED_PAGES / page * page) {
                let Some(here) = self.ask_until_answered(driver, former, pages) else { break 'all };
                given += here;
            }
        }
        if !asked.is_empty() {
            let (id, count) = (driver.plan().object, asked.len());
            let who = self.who_has_left(former).map_or_else(|| former.to_string(), |host| self.called(host));
            self.report(format_args!("object {id:032x}: {who} gave {given} of {count} pages back"));
        }
    }

    /// How many of these pages came; none if nobody is to be asked any more.
    fn ask_until_answered(
        self: &Arc<Self>,
        driver: &Arc<Driver>,
        former: HostId,
        pages: &[u32],
    ) -> Option<usize> {
        let deadline = Instant::now() + self.lease_length();
        while let Some(host) = self.who_has_left(former).filter(|_| !self.lease.is_fenced()) {
            match self.ask_once(driver, host, former, pages) {
                Ok(given) => return Some(given),
                Err(error) if Instant::now() > deadline => {
                    let who = self.called(host);
                    self.report(format_args!("pages that {who} had newest are not given back: {error}"));
                    break;
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        None
    }

    fn ask_once(
        self: &Arc<Self>,
        driver: &Arc<Driver>,
        host: HostId,
        former: HostId,
        pages: &[u32],
    ) -> Result<usize> {
        let (object, lent_by, asked) = (driver.plan().object, driver.lent_by(), driver.stamps_of(pages));
        if host == self.me.host {
            return self.give_back_here(driver, former, lent_by, &asked);
        }
        self.reach(host)?;
        self.check_may_change(host)?;
        let call = Call::GiveBack { object, former, lent_by, pages: asked };
        let (answer, mut bytes) = self.ask_for_bytes(host, call, PATIENCE)?;
        let Answer::GivenBack { pages: given, untouched, kept, mut seen } = answer else {
            return Err(unexpected());
        };
        // Nobody speaks for others' processes.
        seen.iter_mut().for_each(|seen| seen.by.retain(|process| self.who_has_left(*process) == Some(host)));
        let of_seen = seen.iter().flat_map(|seen| &seen.numbers).map(|(page, _)| page);
        let of_kept = kept.iter().map(|(page, ..)| page).chain(of_seen);
        if given.iter().chain(&untouched).chain(of_kept).any(|page| !pages.contains(page)) {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the other host gives pages back that were not asked for",
            ));
        }
        let frames = given.iter().chain(kept.iter().map(|(page, ..)| page)).copied();
        driver.translate_frames(host, frames, &mut bytes);
        let back = Back { pages: given, bytes, untouched, kept, seen };
        driver.given_back(former, &back)?;
        Ok(back.pages.len() + back.untouched.len())
    }

    /// At a home that was another's sharer before: what it keeps from then.
    fn give_back_here(
        &self,
        driver: &Arc<Driver>,
        former: HostId,
        by: Option<HostId>,
        pages: &[(u32, u64)],
    ) -> Result<usize> {
        let Some(notes) = self.notes_as_sharer(driver) else { return Ok(0) };
        let back = driver.back_of_notes(&notes, Loan { to: former, by }, &self.whom_this_follows(), pages)?;
        driver.given_back(former, &back)?;
        Ok(back.pages.len())
    }
}
