//! Homes that move: when a home is lost, one of the hosts that can open the object's file becomes the home. `docs/LEASES.md`,
//! "Moving the home", says why nothing that is too old is ever read, and what is lost.
//!
//! Steps, and what the next claimant finds if this host dies after each:
//! 1. `Registry::take_home`: one transaction. The others wait for this host; if it is lost, one of them takes its place.
//! 2. The object's record here says that this is the home: the next process of this host goes on from here.
//! 3. The lock of the file, once nobody else can write to it. If there is no file that hosts share: all that was stored, from a
//!    replica (`super::replicas`).
//! 4. What was valid elsewhere is asked for. Everybody keeps it until the home has begun.
//! 5. `Registry::schedules`: from here on whoever follows asks for what this home granted.
//! 6. The home begins.

use super::registry::Homed;
use super::wire::{Answer, Call, Shared};
use super::{Cluster, PATIENCE, busy, unexpected};
use crate::cache::kept::Lent;
use crate::handovers::Handovers;
use crate::pagers::{HomeFile, Replicas};
use crate::shared::{Driver, How};
use commonhold_coherence::HostId;
use commonhold_object::{
    Access, Coherence, Credentials, Error, ErrorKind, Name, Ownership, PAGE_SIZE_BYTES, Result,
};
use commonhold_points as points;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Most milliseconds that a host waits before it takes the place of a home: not all ask etcd at once.
const MOST_WAIT_MS: u8 = 250;

impl Cluster {
    /// Whether a home is lost, and no process follows it.
    pub(super) fn is_without_successor(&self, home: HostId) -> bool {
        home != self.me.host && self.member(home).is_none() && self.follower(home).is_none()
    }

    /// At a host that uses an object: takes the place of its home, if that is lost. Whether this host is the home now.
    pub(super) fn take_home_of(self: &Arc<Self>, driver: &Arc<Driver>, home: HostId) -> Result<bool> {
        let object = driver.plan().object;
        if home != self.me.host && !self.is_without_successor(home) {
            return Ok(false);
        }
        let Some(homed) = self.registry()?.homed(object)? else { return Ok(false) };
        if homed.home == self.me.host {
            // The answer to an attempt before may have been lost.
            return self
                .become_home(driver, &homed)
                .map(|()| true)
                .inspect_err(|_| self.give_claim_up(object));
        }
        if !self.is_without_successor(homed.home) || !self.has_begun() {
            return Ok(false);
        }
        if self.reads_alone() {
            return Err(busy("this host reads alone, and is the home of nothing"));
        }
        if self.host()?.object_of(object, true).is_none() {
            return Err(busy("the object is not in use here any more"));
        }
        self.check_can_be_home(object, &homed)?;
        std::thread::sleep(Duration::from_millis(u64::from(random() % MOST_WAIT_MS)));
        if homed.about.options.is_replicated() && !self.keeps_all_of(object, &homed) {
            // Who has everything already goes first.
            std::thread::sleep(Duration::from_millis(MOST_WAIT_MS.into()));
        }
        if self.lease.is_fenced() {
            return Err(busy("this host is fenced"));
        }
        let taken = self.registry()?.take_home(object, &homed).inspect_err(|_| {
            if self.driver(object).is_none() {
                self.give_claim_up(object); // nobody tries again, and it may have succeeded
            }
        })?;
        if !taken {
            return Err(busy("another host becomes the object's home"));
        }
        let (name, before) = (&homed.about.name, self.called(homed.home));
        self.report(format_args!("becomes the home of {name}, which was {before}, which is lost"));
        self.become_home(driver, &homed).map(|()| true).inspect_err(|_| self.give_claim_up(object))
    }

    /// What fails before the record here says that this is the home is not begun: another may do it. Tried until the registry
    /// knows: else whoever opens the object would be sent to a host that has nothing of it, until this process is another.
    pub(super) fn give_claim_up(&self, object: u128) {
        while !self.lease.is_fenced() {
            let Ok(host) = self.host() else { return };
            if host.object_of(object, false).is_some() {
                return; // it is the home
            }
            let given_up = self.registry().and_then(|registry| match registry.homed(object)? {
                Some(homed) if homed.home == self.me.host && homed.served != self.me.host => {
                    registry.return_home(object, &Homed { home: homed.served, ..homed })
                }
                _ => Ok(()),
            });
            if given_up.is_ok() {
                return;
            }
            drop(host);
            std::thread::sleep(PAUSE);
        }
    }

    fn check_can_be_home(&self, object: u128, homed: &Homed) -> Result<()> {
        if homed.about.options.is_replicated() {
            self.check_could_find_all(object, homed)?;
        }
        self.host()?.check_can_be_home(object, &homed.about)
    }

    /// The registry says that this host is the home: what was used here as another's is its own.
    fn become_home(self: &Arc<Self>, driver: &Arc<Driver>, homed: &Homed) -> Result<()> {
        let host = self.host()?;
        let object = driver.plan().object;
        if homed.about.options.coherence != Coherence::Explicit && host.object_of(object, false).is_none() {
            // What is used here becomes the home's. (Of explicit coherence it has the home's size when that begins.)
            let size_bytes = host.size_as_home(object, &homed.about)?;
            host.resize_import(object, size_bytes, || true, true)?;
        }
        let home = host.be_home(object, &homed.about)?;
        self.note_moved_here(object);
        if homed.about.options.coherence == Coherence::Explicit {
            // What processes here use stays apart from the saved copies.
            host.cache_of(&home)?;
            let used = host.object_of(object, true).and_then(|object| object.cache());
            if let (Some(home), Some(used)) = (self.driver(object), used) {
                home.attach(&used);
            }
            driver.retire();
            return Ok(());
        }
        let cache = home.cache().ok_or_else(|| busy("the object is not in use here any more"))?;
        cache.nothing_is_lent();
        let record = home.record().clone();
        driver.handovers().iter().for_each(|notes| host.leave_handovers(home.id, notes.memory()));
        self.take_part(&record, &cache, Lent::default());
        driver.retire();
        Ok(())
    }

    /// At the home of an object that moves: schedules it when nobody else can write to its file, and what others had is here.
    pub(super) fn begin_moving_home(self: &Arc<Self>, driver: &Arc<Driver>) {
        let (this, driver) = (Arc::downgrade(self), driver.clone());
        let beginning = move || {
            let mut said = String::new();
            while let Some(this) = this.upgrade() {
                if this.lease.is_fenced() || driver.is_over() {
                    return;
                }
                match this.prepare_home(&driver) {
                    Ok(()) => {
                        driver.begin();
                        this.size_own_import(&driver);
                        return;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        if text != said {
                            let object = driver.plan().object;
                            this.report(format_args!(
                                "object {object:032x}: its home cannot begin yet: {text}"
                            ));
                            said = text;
                        }
                    }
                }
                drop(this);
                std::thread::sleep(PAUSE);
            }
        };
        if points::thread(|| std::thread::Builder::new().name("beginning as home".into()).spawn(beginning))
            .is_err()
        {
            std::process::abort(); // the keeper starts the next, which tries again
        }
    }

    fn prepare_home(self: &Arc<Self>, driver: &Arc<Driver>) -> Result<()> {
        let object = driver.plan().object;
        let gone = || Error::new(ErrorKind::NotFound, "the registry does not know the object (any more)");
        let homed = self.registry()?.homed(object)?.ok_or_else(gone)?;
        if homed.home != self.me.host {
            return Err(busy(format!("{} is its home by now", self.called(homed.home))));
        }
        let host = self.host()?;
        let home = host.object_of(object, false).ok_or_else(gone)?;
        let cache = home.cache().or_else(|| driver.saved()).ok_or_else(gone)?;
        let same =
            homed.served == self.me.host || driver.knows_lent() && cache.holder() == Some(homed.served);
        if !cache.has_file() {
            // Before it is known here what is newer than the file: of what goes now nothing is stored.
            let is_old = !same && driver.plan().how != How::Explicit;
            if is_old && cache.lost_home() != Some(homed.served) {
                let followed = self.whom_this_follows();
                let keeps = |notes: Handovers| driver.keep_owned(&notes, homed.served, &followed);
                if !self.notes_as_sharer(driver).map_or(Ok(false), keeps)? {
                    cache.forget_all()?;
                }
            }
            let (file, newer, replicas) = if driver.plan().is_replicated {
                let (file, newer, replicas) = self.open_replicated(&home, &homed)?;
                (file, newer, Some(replicas))
            } else {
                let (file, newer) = host.open_home_file(&home)?;
                (file, newer, None)
            };
            let lease = self.lease.clone();
            let may_store = Box::new(move || lease.allows_storing());
            let as_pager = replicas.clone().map(|replicas| replicas as Arc<dyn Replicas>);
            cache.becomes_home(HomeFile { file, may_store, replicas: as_pager }, newer)?;
            replicas.iter().for_each(|replicas| self.note_replicas(replicas));
        }
        if same {
            if !self.ask_all_back(driver, &driver.borrowers(&self.who_may_have_pages())) {
                return Err(busy("this host is fenced"));
            }
        } else {
            self.collect(driver, homed.served)?;
        }
        cache.schedules_as(self.me.host)?;
        let replicas = self.replicas_of(object);
        if homed.term == 1 && homed.replicas.is_empty() {
            // It is new: before anybody uses it. Later nobody waits until others have everything.
            replicas.iter().try_for_each(|replicas| replicas.fill().map(drop))?;
        }
        self.registry()?.schedules(object)?;
        host.drop_handovers(home.id);
        if let Some(replicas) = replicas {
            replicas.has_begun()?;
            self.look_after(&replicas);
        }
        let tells = host.clone();
        self.pools.short.run(move || tells.tell_of_moving()); // its size may be another than the registry knows
        Ok(())
    }

    /// At the next home: takes what was valid when the last one was lost.
    fn collect(self: &Arc<Self>, driver: &Arc<Driver>, lost: HostId) -> Result<()> {
        // Nobody uses what the last home granted any more.
        let (heard, _) = self.heard_and_settled();
        while self.heard_and_settled().1 < heard {
            if self.lease.is_fenced() {
                return Err(busy("this host is fenced"));
            }
            std::thread::sleep(PAUSE);
        }
        let is_strict = driver.plan().how != How::Explicit;
        let others =
            self.members().into_iter().map(|member| member.host).filter(|host| *host != self.me.host);
        for other in others.filter(|_| is_strict) {
            self.collect_from(driver, lost, other)?;
        }
        if let How::Forwarding(_) = driver.plan().how
            && driver.asks_for_rest(lost)?
        {
            // Also of this host what it keeps, and the processes before this one.
            let all = [self.who_may_have_pages(), self.whom_this_follows()].concat();
            if !self.ask_all_back(driver, &all) {
                return Err(busy("this host is fenced"));
            }
        }
        let pages = driver.rest_was_lost()?;
        if pages > 0 {
            let (object, who) = (driver.plan().object, self.called(lost));
            self.report(format_args!(
                "object {object:032x}: the newest versions of {pages} pages are lost with {who}"
            ));
        }
        Ok(())
    }

    /// At the next home, under forwarding: what this host was to know of the object as a sharer.
    pub(super) fn notes_as_sharer(&self, driver: &Driver) -> Option<Handovers> {
        let plan = driver.plan();
        let home = self.record_of(plan.object).ok()?;
        let memory = self.host().ok()?.left_handovers(home.id)?;
        Handovers::new(memory, plan.sizes.page() * PAGE_SIZE_BYTES).ok()
    }

    /// Takes all that one host has. One that does not answer for as long as a lease is waited for no longer.
    fn collect_from(self: &Arc<Self>, driver: &Arc<Driver>, lost: HostId, member: HostId) -> Result<()> {
        let (mut from_page, mut deadline) = (0, Instant::now() + self.lease_length());
        while let Some(other) = self.who_has_left(member) {
            if self.lease.is_fenced() {
                return Err(busy("this host is fenced"));
            }
            match self.collect_once(driver, lost, other, from_page) {
                Ok(None) => return Ok(()),
                Ok(Some(next)) => {
                    from_page = next;
                    deadline = Instant::now() + self.lease_length();
                }
                Err(error) if Instant::now() > deadline => {
                    let who = self.called(other);
                    self.report(format_args!("what {who} had of a home that is lost is not had: {error}"));
                    return Ok(());
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// The next page to be asked for; none if that was all.
    fn collect_once(
        self: &Arc<Self>,
        driver: &Arc<Driver>,
        lost: HostId,
        member: HostId,
        from_page: u32,
    ) -> Result<Option<u32>> {
        const PAGE: usize = PAGE_SIZE_BYTES as usize;
        self.reach(member)?;
        let call = Call::Valid { object: driver.plan().object, lost, from_page };
        let (answer, mut bytes) = self.ask_for_bytes(member, call, PATIENCE)?;
        let Answer::Valid { pages, more, loss_generation } = answer else {
            return Err(unexpected());
        };
        let in_order =
            pages.first().is_none_or(|first| *first >= from_page) && pages.is_sorted_by(|a, b| a < b);
        if !in_order || bytes.len() != pages.len() * PAGE || more && pages.is_empty() {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the other host gives pages that were not asked for",
            ));
        }
        let Some(cache) = driver.saved() else { return Ok(None) };
        cache.is_told_losses(loss_generation)?;
        if self.check_may_change(member).is_ok() {
            driver.translate_frames(member, pages.iter().copied(), &mut bytes);
            pages
                .iter()
                .zip(bytes.chunks(PAGE))
                .try_for_each(|(page, bytes)| cache.was_valid(*page, bytes))?;
        }
        Ok(pages.last().and_then(|last| last.checked_add(1)).filter(|_| more))
    }

    /// At a host that is not the home: what was valid here when that home was lost. Only the next home may ask.
    pub(super) fn valid_here(
        self: &Arc<Self>,
        from: HostId,
        object: u128,
        lost: HostId,
        from_page: u32,
    ) -> Result<(Answer, Vec<u8>)> {
        if self.registry()?.where_is(object)? != from {
            return Err(Error::new(ErrorKind::Permission, "only an object's home asks for what was valid"));
        }
        let found = self.driver(object).map(|driver| driver.valid_since(lost, from_page));
        let (pages, bytes, more) = found.unwrap_or_else(|| Ok(Default::default()))?;
        let loss_generation = self.driver(object).map_or(0, |driver| driver.loss_generation());
        Ok((Answer::Valid { pages, more, loss_generation }, bytes))
    }

    /// An object whose home is lost, and that nobody has taken yet, is opened here: this host will look for its home, and
    /// become it.
    pub(super) fn open_without_home(
        &self,
        name: &Name,
        home: HostId,
        who: &Credentials,
        access: Access,
    ) -> Result<Option<Shared>> {
        if !self.is_without_successor(home) || self.reads_alone() {
            return Ok(None);
        }
        self.wait_begun(PATIENCE / 2)?; // before, it may not know yet who belongs
        let Some((object, homed)) = self.registry()?.homed_as(name)? else { return Ok(None) };
        if !self.is_without_successor(homed.home) {
            return Ok(None);
        }
        self.check_can_be_home(object, &homed)?;
        let ownership = homed.about.ownership;
        if !ownership.allows(who, Ownership::wanted(access)) {
            return Err(Error::new(
                ErrorKind::Permission,
                format!("{name} may not be used so by user {}: it belongs to {}", who.uid, ownership.uid),
            ));
        }
        let (name, options) = (name.clone(), homed.about.options);
        Ok(Some(Shared { object, name, ownership, options, loss_generation: 0 }))
    }

    /// Before this host joins: others are the homes of these objects by now. This process ends; the next uses them as any
    /// sharer.
    #[cfg(feature = "etcd")]
    pub(super) fn is_home_no_more(&self, objects: &[u128]) {
        let Ok(host) = self.host() else { return };
        self.lease.fence();
        for object in objects {
            match host.give_home_up(*object) {
                Ok(()) => self.report(format_args!("object {object:032x}: another host is its home by now")),
                Err(error) => self.report(format_args!("object {object:032x}: {error}")),
            }
        }
        host.begin_anew();
    }
}

fn random() -> u8 {
    let mut byte = [0];
    let _ = rustix::rand::getrandom(&mut byte, rustix::rand::GetRandomFlags::empty());
    byte[0]
}
