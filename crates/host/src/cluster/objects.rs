//! Objects whose home is another host, and those of this host that others use.

use super::losses::forwards;
use super::opening::{Verdict, judge};
use super::threads::begin;
use super::wire::{Answer, Call, Shared};
use super::{Cluster, PATIENCE, busy, lock, unexpected};
use crate::cache::Cache;
use crate::cache::kept::Lent;
use crate::handovers::Handovers;
use crate::server::object::Object;
use crate::shared::{Driver, How, Kept, Plan, Sizes};
use commonhold_coherence::{HostId, central};
use commonhold_object::{
    Access, Coherence, CreateOptions, Credentials, Error, ErrorKind, Name, OnLoss, PAGE_SIZE_BYTES,
    PageRange, Result, Scheduler, Synced, pages_of,
};
use commonhold_registry::ObjectRecord;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long whoever touches a page waits for a home that is away, before it gets SIGBUS.
const HOME_AWAY: Duration = Duration::from_secs(30);
/// Between two looks for a home: at first, and when it is away for long.
const LOOKS: Duration = Duration::from_millis(100);
const LOOKS_SELDOM: Duration = Duration::from_secs(1);
/// How often a name is asked for whose object is another each time.
const OPENINGS: usize = 3;
/// How long a sync waits for pages that other hosts have.
const PAGES_BACK: Duration = Duration::from_secs(60);
/// How long writers of all hosts are held for a true instant, before it is given up.
const FROZEN: Duration = Duration::from_secs(20);

impl Cluster {
    /// Begins to schedule the object, or to ask its scheduler. Called once for each cache of a shared object. `lent`: what
    /// the process before had lent.
    pub fn take_part(self: &Arc<Self>, record: &ObjectRecord, cache: &Arc<Cache>, lent: Lent) {
        let Some((how, hold_us)) = how(&record.options) else { return };
        if record.is_elsewhere
            && let Ok(home) = self.record_of(record.uuid)
        {
            self.use_own(&home, cache);
            return;
        }
        let plan = Plan {
            object: record.uuid,
            me: self.me.host,
            is_home: !record.is_elsewhere,
            pages: pages_of(record.options.size_bytes),
            sizes: self.sizes_of(&record.options),
            how,
            hold: Duration::from_micros(hold_us.into()),
            home_moves: record.options.home_moves,
            is_replicated: record.options.is_replicated(),
        };
        if record.is_elsewhere
            && let Some(driver) = self.driver_that_goes_on(record.uuid)
        {
            // Before anything comes.
            if let (Ok(host), Some(handovers)) = (self.host(), driver.handovers()) {
                host.keep_handovers(record.id, handovers.memory());
            }
            driver.has_types(&record.options.types);
            driver.attach(cache); // it was used here before
            return;
        }
        let handovers = match self.handovers(record, &plan) {
            Ok(handovers) => handovers,
            // Without, whoever asked would not know what this host had when its process ends.
            Err(error) => return cache.report(&error),
        };
        let begun = lock(&self.begun);
        let driver = Driver::start(plan, self.clone(), self.clock.clone(), cache, lent, handovers);
        driver.has_types(&record.options.types);
        if driver.is_home() {
            driver.told_size(self.me.host, self.next_size(record.options.size_bytes, 0, false));
        }
        self.shared.write().unwrap_or_else(PoisonError::into_inner).insert(record.uuid, driver.clone());
        if *begun && driver.is_home() {
            self.begin_home(&driver);
        }
        drop(begun);
        if record.is_elsewhere {
            self.find_home(&driver);
        }
    }

    /// Of forwarding: what goes on where the object was used before. While it leaves its home for good it is waited for.
    fn driver_that_goes_on(&self, object: u128) -> Option<Arc<Driver>> {
        let driver = self.driver(object).filter(|driver| driver.goes_on())?;
        let _alone = driver.seek_alone();
        (!driver.has_left()).then(|| driver.clone())
    }

    /// Of forwarding: what the process before this one left of an object of another host.
    fn handovers(&self, record: &ObjectRecord, plan: &Plan) -> Result<Option<Handovers>> {
        if plan.is_home || !matches!(plan.how, How::Forwarding(_)) {
            return Ok(None);
        }
        let memory = self.host()?.handovers_of(record.id)?;
        Handovers::new(memory, plan.sizes.page() * PAGE_SIZE_BYTES).map(Some)
    }

    /// What pages are to the object's scheduler, and here. What explicit coherence compares is frames.
    fn sizes_of(&self, options: &CreateOptions) -> Sizes {
        match options.coherence {
            Coherence::Strict { .. } => Sizes::new(options.page_size, self.page_size),
            _ => Sizes::FRAMES,
        }
    }

    /// Where all hosts schedule, one whose pages are several of the scheduler's cannot take part: it would have to collect
    /// them from several owners at once.
    pub fn check_page_size(&self, options: &CreateOptions) -> Result<()> {
        if !options.coherence.is_forwarded() || self.page_size <= options.page_size {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "this host's pages of {} are larger than those in which the object is scheduled by forwarding, {}: use it \
                 on other hosts, or create it with --page-size {} or --scheduler central",
                self.page_size,
                options.page_size,
                self.page_size.bytes()
            ),
        ))
    }

    /// Of explicit coherence, at the home: processes use it as those of any other host do, apart from the saved copies.
    fn use_own(self: &Arc<Self>, home: &Arc<Object>, cache: &Arc<Cache>) {
        let uuid = home.record().uuid;
        match self.serve(uuid) {
            Ok(_) => self.driver(uuid).into_iter().for_each(|driver| driver.attach(cache)),
            Err(error) => cache.report(&error),
        }
    }

    /// Names of this host's shared objects may have become others' while it was away: the log says which.
    pub(super) fn tell_of_taken_names(self: &Arc<Self>) {
        let this = self.clone();
        let look = move || {
            for claim in this.claims() {
                if let Ok(Ok((home, _))) = this.registry().map(|registry| registry.look_up(&claim.name))
                    && home != this.me.host
                {
                    this.report(format_args!(
                        "{} is the name of an object of another host, {}, by now: this host's own is had here alone until \
                         one of the two is renamed",
                        claim.name,
                        this.called(home)
                    ));
                }
            }
        };
        self.pools.short.run(look);
    }

    /// Opens an object of another host: what must be known of it here.
    pub fn open_elsewhere(
        self: &Arc<Self>,
        name: &Name,
        who: &Credentials,
        access: Access,
    ) -> Result<Shared> {
        let mut lies = None;
        for _ in 0..OPENINGS {
            let (home, object) = match self.registry()?.look_up(name) {
                Err(error) if error.kind == ErrorKind::NotFound => {
                    let local = self.local_to(name, who);
                    return Err(local.map_or(error, |host| is_local(name, &self.called(host))));
                }
                found => found?,
            };
            if let Some(shared) = self.open_without_home(name, home, who, access)? {
                return Ok(shared);
            }
            self.check_home(object, home)?;
            self.reach(home)?;
            let called = self.check_may_decide(home)?;
            let call = Call::Open { name: name.clone(), who: who.clone(), access };
            let Answer::Opened(shared) = self.ask(home, call, PATIENCE)? else { return Err(unexpected()) };
            let after = match shared.object == object {
                true => Some((home, object)),
                false => self.registry()?.look_up(name).ok(),
            };
            match judge(name, &shared, (home, object), after) {
                Verdict::Good => return self.check_opened(home, &called, *shared),
                Verdict::Changed => lies = None,
                // A name may go to another object and back between two questions, but not each time.
                Verdict::Lie => lies = Some(home),
            }
        }
        let Some(liar) = lies else {
            return Err(busy(format!("{name} is given to other objects just now: try again later")));
        };
        let why = format!("it answers for {name} with another object than the registry says");
        self.cut_off(liar, &why);
        Err(Error::new(ErrorKind::Permission, format!("{}: {why}", self.called(liar))))
    }

    /// What the home says of an object is looked at as if somebody here wanted to create it.
    fn check_opened(self: &Arc<Self>, home: HostId, called: &str, shared: Shared) -> Result<Shared> {
        let good = shared.options.check().and_then(|()| match shared.options.is_shared() {
            true => self.check_page_size(&shared.options),
            false => Err(unexpected()),
        });
        let good = good.and_then(|()| self.check_home(shared.object, home));
        good.inspect_err(|_| {
            let _ = self.ask(home, self.left(shared.object), PATIENCE); // it is not used here
        })?;
        self.note_home(shared.object, (home, called), shared.options.home_moves);
        Ok(shared)
    }

    /// Looks for the home of an object, until it is found.
    pub(super) fn find_home(self: &Arc<Self>, driver: &Arc<Driver>) {
        let (this, driver) = (Arc::downgrade(self), Arc::downgrade(driver));
        let begun = Instant::now();
        let mut said = false;
        let search = move || {
            while let (Some(this), Some(driver)) = (this.upgrade(), driver.upgrade())
                && driver.home().is_none()
                && !driver.is_over()
                && !driver.has_left()
                && !this.lease.is_fenced()
                && !this.is_ending()
            {
                let alone = driver.seek_alone();
                let is_looked_for = driver.home().is_none() && !driver.has_left();
                let tried = if is_looked_for { this.try_home(&driver) } else { Ok(()) };
                if tried.is_ok() && driver.home().is_some() {
                    return; // when it is lost again another thread looks, which has as long as this one had
                }
                if let Err(error) = tried
                    && begun.elapsed() > HOME_AWAY
                {
                    if !std::mem::replace(&mut said, true) {
                        let home = format!("the home of object {:032x}", driver.plan().object);
                        this.report(format_args!("{home} is not found: {error}; trying again"));
                    }
                    driver.home_is_away();
                }
                drop(alone);
                drop((this, driver));
                std::thread::sleep(if begun.elapsed() > HOME_AWAY { LOOKS_SELDOM } else { LOOKS });
            }
        };
        begin("finding a home", search);
    }

    fn try_home(self: &Arc<Self>, driver: &Arc<Driver>) -> Result<()> {
        let object = driver.plan().object;
        let home = self.home_of(object)?;
        if driver.plan().home_moves && self.take_home_of(driver, home)? {
            return Ok(()); // this host is the home now
        }
        driver.has_dropped_old()?;
        self.say_given_up(home, driver)?;
        self.reach(home)?;
        let called = self.check_may_decide(home)?;
        self.note_home(object, (home, &called), driver.plan().home_moves);
        if self.is_left_off(driver, home) {
            return self.leave_to_the_next(home, driver);
        }
        let mut told = Vec::new();
        let mut users = self.tell_users(home, driver, &mut told)?;
        let locks = self.say_locks_again(home, object)?;
        while !driver.found_home(home, &self.all_gone(), users) {
            users = self.tell_users(home, driver, &mut told)?; // somebody began to use it meanwhile
        }
        self.say_let_go_since(home, object, locks);
        self.tokens_find_home(object);
        // Broken or lost before the driver knew it for its home: nobody else would say so.
        self.reach(home).inspect_err(|_| {
            if !forwards(driver) {
                self.beginnings.gave_up(object);
            } else if self.member(home).is_some() {
                // What the process before left is this one's by now, and others may have heard of it.
                self.fence(&format!("{} was found, and could not be told so", self.called(home)));
                return;
            }
            let _ = driver.lost(home, None);
        })
    }

    pub(super) fn record_of(&self, object: u128) -> Result<Arc<Object>> {
        let found = self.host()?.object_of(object, false);
        found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "this host is not the home of that object (any more)")
        })
    }

    /// This host schedules the object from now on, if it did not.
    pub(super) fn serve(&self, object: u128) -> Result<Arc<Object>> {
        let found = self.record_of(object)?;
        self.host()?.cache_of(&found)?;
        self.host()?.serve_tokens(&found)?;
        Ok(found)
    }

    /// Another host's process opens an object of this host.
    pub(super) fn open_for_other(
        &self,
        from: HostId,
        name: &Name,
        who: &Credentials,
        access: Access,
    ) -> Result<Answer> {
        self.check_belongs(from, PATIENCE / 2)?;
        if access.writes() {
            self.check_may_change(from)?;
        }
        let record = lock(&self.host()?.registry).lookup(name, who, access)?;
        self.check_may_use(from, access, &record.options)?;
        if !record.options.is_shared() {
            return Err(is_local(name, &self.me.name));
        }
        self.wait_begun(PATIENCE / 2)?;
        let object = self.serve(record.uuid)?;
        self.admit_living(record.uuid, from, access)?;
        let record = object.record().clone(); // whoever is admitted before a change of its size is told of that
        let ObjectRecord { uuid: object, ownership, options, .. } = record;
        let loss_generation = self.driver(object).map_or(0, |driver| driver.loss_generation());
        Ok(Answer::Opened(Box::new(Shared {
            object,
            name: name.clone(),
            ownership,
            options,
            loss_generation,
        })))
    }

    /// Another host's process wants pages stored.
    pub(super) fn sync_for_other(
        &self,
        from: HostId,
        object: u128,
        offset: u64,
        length: u64,
        freeze: bool,
    ) -> Result<Answer> {
        self.check_may_change(from)?;
        self.check_admitted(object, from, true)?;
        let cache = self.host()?.cache_of(&self.record_of(object)?)?;
        let pages = PageRange::covering(offset, length, cache.size_bytes())?;
        self.store_shared(&cache, pages, freeze).map(Answer::Synced)
    }

    /// At the home: what other hosts have written comes here first.
    pub fn store_shared(&self, cache: &Arc<Cache>, pages: PageRange, freeze: bool) -> Result<Synced> {
        let pages = self.store_all(cache, pages, freeze)?;
        // Of what was lost before it was stored the number tells.
        let loss_generation =
            self.driver(cache.uuid).map_or(0, |driver| driver.loss_generation_after_turns());
        Ok(Synced { pages, loss_generation })
    }

    fn store_all(&self, cache: &Arc<Cache>, pages: PageRange, freeze: bool) -> Result<u64> {
        cache.fetch_lent(pages, PAGES_BACK)?;
        if freeze {
            self.while_frozen(cache, pages, || cache.sync(pages, true))
        } else {
            cache.sync(pages, false)
        }
    }

    /// At the home: does `job` while no host may write to the object, and all of these pages are here.
    pub fn while_frozen<T>(
        &self,
        cache: &Arc<Cache>,
        pages: PageRange,
        job: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(driver) = self.driver(cache.uuid) else { return job() };
        // One after the other: between two of them those who wait to write do.
        let _one_at_a_time = driver.freeze_alone();
        let _frozen = driver.freeze();
        let deadline = Instant::now() + FROZEN;
        // Whoever asked to write before gets the page, and gives it back.
        loop {
            cache.fetch_lent(pages, deadline.saturating_duration_since(Instant::now()))?;
            // In this order: when nobody is being served, nobody takes away what is here.
            if driver.is_calm() && cache.are_readable(pages) {
                return job();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// At another host: asks the home to store pages.
    pub fn sync_elsewhere(self: &Arc<Self>, object: u128, pages: PageRange, freeze: bool) -> Result<Synced> {
        let home = self.home_to_store_at(object)?;
        let call = Call::Sync { object, offset: pages.offset_bytes(), length: pages.length_bytes(), freeze };
        let Answer::Synced(synced) = self.ask(home, call, PAGES_BACK + FROZEN + PATIENCE)? else {
            return Err(unexpected());
        };
        // If this home is lost the next one has it from here: whoever was told is not told again.
        if let Some(driver) = self.driver(object) {
            driver.is_told_losses(synced.loss_generation);
        }
        Ok(synced)
    }
}

impl Cluster {
    /// The home, which is found a moment after an object is opened.
    fn home_to_store_at(&self, object: u128) -> Result<HostId> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.driver(object).and_then(|driver| driver.home()) {
                Some(home) => return Ok(home),
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                None => {
                    let text = "the object's home is away: try again later";
                    return Err(Error::new(ErrorKind::Disconnected, text));
                }
            }
        }
    }
}

/// A local object's name is seen from all hosts.
fn is_local(name: &Name, host: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{name} is local to {host}: use it there, or create it with --coherence strict"),
    )
}

/// What an import is created with here: the home looks after everything else.
pub fn options_here(options: &CreateOptions) -> CreateOptions {
    let bytes = pages_of(options.size_bytes) * commonhold_object::PAGE_SIZE_BYTES;
    CreateOptions {
        size_bytes: bytes.min(options.size_bytes),
        pager: commonhold_object::PagerKind::Anonymous,
        reserve: Some(false),
        ..options.clone()
    }
}

/// How objects with such options are scheduled, and how long a page stays where it was granted, microseconds.
fn how(options: &CreateOptions) -> Option<(How, u32)> {
    match options.coherence {
        Coherence::Local => None,
        Coherence::Explicit => Some((How::Explicit, 0)),
        Coherence::Strict { scheduler, on_loss, hold_us } => {
            let on_loss = match on_loss {
                OnLoss::Error => central::OnLoss::Error,
                OnLoss::Revert => central::OnLoss::Revert,
            };
            let how = match scheduler {
                Scheduler::Forwarding => How::Forwarding(Kept { on_loss, replicas: options.replicas }),
                Scheduler::Central { reader_bound } => {
                    How::Central(central::Options { reader_bound, on_loss })
                }
            };
            Some((how, hold_us))
        }
    }
}
