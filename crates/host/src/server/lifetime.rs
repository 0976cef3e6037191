//! Ends: of sessions, orderly or not, and of objects whose name is gone.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use crate::cache::Cache;
use commonhold_object::wire::Event;
use commonhold_object::{
    Access, Error, ErrorKind, ObjectId, OnLastDeath, PAGE_SIZE_BYTES, PagerKind, Result, SessionId,
};
use commonhold_points as points;
use commonhold_wired::Event as Moves;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long the end waits for objects of ordinary users to be whole without their journals.
const WHOLE_WITHIN: Duration = Duration::from_secs(5);

thread_local! {
    static SERVES_ALL: Cell<bool> = const { Cell::new(false) };
}

/// Everybody waits for this thread: from now on it ends no object itself.
pub(super) fn serves_all() {
    SERVES_ALL.set(true);
}

impl Host {
    /// A client's process has ended: its mappings, locks and pins go, what it wrote stays.
    pub(super) fn process_ended(self: &Arc<Self>, session: &Arc<Session>) {
        let (this, session, share) = (self.clone(), session.clone(), session.share.clone());
        // Its address space may be that of a process that lives on, and be waited for: by that user alone.
        share.run(&self.machine.urgent, move || this.end_session(&session));
    }

    /// Ends a session.
    pub(super) fn end_session(self: &Arc<Self>, session: &Arc<Session>) {
        let known = self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(&session.id);
        if known.is_none() {
            return; // ended already: socket and process both report the end
        }
        // First: whoever closes the socket last, here or the keeper, must find nothing in its queue to wait for.
        self.end_connection(session.socket.clone());
        session.asker.leave();
        self.sweep(session);
        self.returning.departed();
    }

    /// Sweeps a session that ended while a request of it was worked on: what that left is nobody's.
    pub(super) fn sweep_if_ended(self: &Arc<Self>, session: &Arc<Session>) {
        if !self.sessions.read().unwrap_or_else(PoisonError::into_inner).contains_key(&session.id) {
            self.sweep(session);
        }
    }

    /// Takes everything that the session has. May be done again, and by several at once.
    fn sweep(self: &Arc<Self>, session: &Arc<Session>) {
        self.pagers.disconnect(session.id.0);
        self.machine.watches.end_of_client(session.id);
        let regions = session.space.end();
        // By identity: a client may have thousands of objects.
        let mut caches: HashMap<ObjectId, Arc<Cache>> = HashMap::new();
        for region in regions.iter() {
            caches.entry(region.value.cache.id).or_insert_with(|| region.value.cache.clone());
        }
        for id in lock(&session.opened).keys() {
            if let Some(cache) = self.object(*id).ok().and_then(|o| o.cache()) {
                caches.entry(*id).or_insert(cache);
            }
        }
        let caches: Vec<Arc<Cache>> = caches.into_values().collect();
        for cache in &caches {
            let mapped = cache.is_mapped();
            cache.remove_session(session.id);
            if mapped && !cache.is_mapped() {
                self.last_death(cache);
            }
        }
        for token in lock(&session.tokens).drain(..) {
            self.faults.remove(token);
        }
        let opened: Vec<(ObjectId, Access)> = lock(&session.opened).drain().collect();
        for (id, access) in &opened {
            match self.object(*id) {
                Ok(object) => {
                    self.is_open_no_more(session, &object);
                    // Who only read has no locks. Everybody's end would wait for looks that such a one calls for.
                    if access.writes() {
                        self.free_locks(&object, None);
                    }
                }
                // It is lost. Nobody is to wait for who had it.
                Err(_) => self.take_in(Moves::Closed { session: session.id, object: *id }),
            }
            self.forget_taken(session, *id);
            self.settle_object(*id);
        }
        caches.iter().for_each(|cache| self.settle_object(cache.id));
        let opened: Vec<ObjectId> = opened.into_iter().map(|(id, _)| id).collect();
        self.trim_all(&opened);
        self.forget_session(session, &regions, &opened);
    }

    /// The last process that mapped the object is gone without unmapping it.
    fn last_death(&self, cache: &Arc<Cache>) {
        let revert = self.object(cache.id).is_ok_and(|o| {
            o.record().options.on_last_death == OnLastDeath::Revert
                && o.record().options.pager != PagerKind::Anonymous
        });
        let result = if revert { cache.revert_if_unmapped() } else { cache.trim().map(|()| 0) };
        if let Err(error) = result {
            self.machine.log(format_args!("object {}: after its last mapper died: {error}", cache.id.0));
        }
    }

    /// Ends an object that has neither name nor user. What of that may wait for its clients (the
    /// file of one that syncs as a whole) is done by threads of its owner's share, where everybody
    /// waits for this thread.
    pub(super) fn settle_object(self: &Arc<Self>, id: ObjectId) {
        let Ok(object) = self.object(id) else { return };
        let (has_name, ephemeral_ms) = {
            let record = object.record();
            (record.name.is_some(), record.options.ephemeral_ms)
        };
        let has_ended = match ephemeral_ms {
            None if has_name => return,
            Some(linger_ms) if has_name => self.ends_with_its_name(&object, linger_ms),
            _ => self.ends_if_unused(&object),
        };
        if !has_ended {
            return;
        }
        self.is_about_to_leave(&object); // before nobody finds it any more
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let cache = object.cache.lock().unwrap_or_else(PoisonError::into_inner).take();
        cache.iter().for_each(|cache| cache.pager.end());
        // At a take-over, too, an arena goes at once: it waits for nobody, and whoever comes next may need its pages.
        let is_arena = super::tables::is_arena(&object.record().options);
        if !SERVES_ALL.get() && (is_arena || !self.machine.takes_over()) {
            return self.leave_off(&object, cache);
        }
        let (this, share) = (self.clone(), self.share_of(object.record().charged_uid));
        share.run(&self.machine.urgent, move || this.leave_off(&object, cache));
    }

    /// Whether anybody uses it, or may: clients that are expected back may have it mapped.
    pub(super) fn is_used(&self, object: &Object) -> bool {
        object.opens.load(Ordering::Relaxed) > 0
            || lock(&self.offers).holds(object.id)
            || object.cache().is_some_and(|cache| cache.is_mapped())
            || self.returning.expects(object.id)
            || self.is_used_elsewhere(object)
    }

    fn ends_if_unused(self: &Arc<Self>, object: &Arc<Object>) -> bool {
        let has_snapshots = Cell::new(false);
        let needed = || {
            let used = self.is_used(object);
            has_snapshots.set(!used && self.has_snapshots(object.id));
            used || has_snapshots.get()
        };
        let has_ended = object.end_unless(needed);
        if !has_ended && has_snapshots.get() {
            self.collapse_soon(object);
        }
        has_ended
    }

    /// Nothing of an object is needed any more.
    pub(super) fn end_object(self: &Arc<Self>, object: &Object, cache: Option<&Cache>) {
        self.forget_snapshot(object.id);
        if let Some(cache) = cache {
            cache.discard();
        } else {
            self.redo_now(object);
        }
        self.remove_files(object.id);
        if super::tables::is_arena(&object.record().options) {
            self.give_pages_back(object);
        }
        self.forget_moving(&object.record());
        self.forget_object(object);
        if let Err(error) = lock(&self.registry).forget(object.id) {
            self.machine.log(format_args!("object {}: {error}", object.id.0));
        }
        self.free_place(object.id);
        self.forget_offered(object.id);
    }

    /// Everything that was kept in files for an object.
    pub(super) fn remove_files(&self, id: ObjectId) {
        let live = self.machine.path("live", id);
        let remove = |path: PathBuf| {
            let _ = std::fs::remove_file(path); // it has some of them; what stays is set aside by the next host
        };
        remove(live.clone());
        ["direct", "wired", "of", "of-new"].iter().for_each(|note| remove(live.with_extension(note)));
        self.note_used(id);
        remove(self.machine.path("spill", id));
        let journal = self.machine.directory.join("journal");
        ["a", "b"].iter().for_each(|side| remove(journal.join(format!("{}.{side}", id.0))));
        remove(live.with_extension("record")); // last: with it the next host knows whose the others were
    }

    /// Ends host and keeper.
    pub(super) fn stop(self: &Arc<Self>, session: &Session, force: bool) -> Result<()> {
        self.check_may_administer(session)?;
        if !force {
            self.check_idle(session)?;
            self.wait_all_left(false)?;
        }
        self.stop_now();
        Ok(())
    }

    /// The orderly end, whoever is connected: stored objects are made whole, then host and keeper go.
    pub(super) fn stop_now(self: &Arc<Self>) {
        if self.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.make_all_whole();
        if let Err(error) = self.wait_all_left(true) {
            self.machine.log(format_args!("at the end: {error}"));
        }
        self.send_all_home();
        self.store_moving();
        self.leave_cluster();
        self.machine.log("stopping");
        crate::types::ends(&self.machine.directory);
        let _ = std::fs::remove_file(self.machine.directory.join("host.sock"));
        self.vault.exit();
        self.exit_soon();
    }

    /// Empties all journals. Of ordinary users that is waited for a while only: who writes to a
    /// file for ever would keep the host from ending. The next host redoes what is in the journals
    /// still.
    fn make_all_whole(self: &Arc<Self>) {
        let (all_done, until_all_are) = channel::<()>();
        for cache in self.all_objects().iter().filter_map(|object| object.cache()) {
            let (this, uid, done) = (self.clone(), cache.traits.uid, all_done.clone());
            let make_whole = move || {
                if let Err(error) = cache.checkpoint_all() {
                    this.machine.log(format_args!("object {}: at the end: {error}", cache.id.0));
                }
                drop(done);
            };
            if self.machine.is_ordinary(uid) {
                self.share_of(uid).run(&self.machine.urgent, make_whole);
            } else {
                make_whole();
            }
        }
        drop(all_done);
        if until_all_are.recv_timeout(WHOLE_WITHIN) == Err(RecvTimeoutError::Timeout) {
            self.machine
                .log("at the end: some journals are not empty yet: the next host redoes what is in them");
        }
    }

    /// Whether a client would notice if the host went away. One that only keeps its connection finds the next host by
    /// itself: an interpreter that used an object once must not keep a host from stopping.
    fn would_lose(&self, session: &Session) -> bool {
        !lock(&session.opened).is_empty()
            || session.maps_something()
            || self.pagers.serves(session.id.0)
            || session.busy.load(Ordering::Relaxed) > 0
    }

    fn check_idle(&self, session: &Session) -> Result<()> {
        let others: Vec<String> = self
            .sessions()
            .iter()
            .filter(|s| s.id != session.id && !s.is_leaving() && self.would_lose(s))
            .map(|s| format!("{} ({})", s.process.pid, lock(&s.program)))
            .collect();
        if !others.is_empty() {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("clients are connected: {}; end them, or stop with --force", some_of(&others)),
            ));
        }
        for object in self.all_objects() {
            let record = object.record().clone();
            let name = record.label();
            // What lies in an arena is looked at itself.
            let is_anonymous = record.options.pager == PagerKind::Anonymous;
            if is_anonymous && lock(&self.wired).objects_in(object.id).is_empty() {
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!(
                        "{name} is anonymous and would be lost: copy it out and remove it, or stop with --force"
                    ),
                ));
            }
            self.check_stored(&object)?;
            if self.is_used_elsewhere(&object) {
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!("processes of other hosts use {name}: end them, or stop with --force"),
                ));
            }
            if object.cache().is_some_and(|c| c.numbers().dirty_pages > 0) {
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!(
                        "{name} has pages that were never synced: sync or revert it, or stop with --force"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Host (and keeper) go and others come in their place; nothing is lost.
    pub(super) fn replace(
        self: &Arc<Self>,
        session: &Session,
        program: Option<String>,
        keeper: bool,
    ) -> Result<()> {
        self.check_may_administer(session)?;
        let program = program.map(std::path::PathBuf::from);
        if keeper {
            self.start_keeper(program.clone().unwrap_or_else(|| self.program.clone()))?;
            // So that it knows to which it may return, if the other refuses to go on with what is here.
            if program.is_some()
                && let Err(error) = self.vault.restart_me(Some(&self.program))
            {
                self.machine.log(format_args!("there is no way back from the next program: {error}"));
            }
        }
        self.vault.restart_me(program.as_deref())?;
        self.exit_soon();
        Ok(())
    }

    fn check_may_administer(&self, session: &Session) -> Result<()> {
        let me = rustix::process::geteuid().as_raw();
        if session.credentials.is_root() || session.credentials.uid == me {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Permission,
            format!("only user {me}, whose host this is, or root may stop or replace it"),
        ))
    }

    /// Ends the process after the answer to this request has gone out.
    fn exit_soon(self: &Arc<Self>) {
        let exit = || {
            std::thread::sleep(Duration::from_millis(30));
            std::process::exit(0);
        };
        if points::thread(|| std::thread::Builder::new().spawn(exit)).is_err() {
            exit(); // no thread: here
        }
    }

    pub(crate) fn all_objects(&self) -> Vec<Arc<Object>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Looks for waits that are past their deadline, and for refused pages that may be asked for
    /// again. The control thread does: it waits for nobody.
    pub(super) fn check_deadlines(self: &Arc<Self>) {
        self.machine.disarm();
        self.forget_lapsed();
        self.look_at_revocations();
        if self.returning.is_under_way() {
            self.machine.arm();
            let this = self.clone();
            self.machine.urgent.run(move || this.settle_returned());
        }
        for session in self.sessions() {
            if !session.space.has_parked() {
                continue;
            }
            self.machine.arm();
            if !session.looking.swap(true, Ordering::AcqRel) {
                let share = session.share.clone();
                share.run(&self.machine.urgent, move || {
                    session.space.look_at_parked();
                    session.looking.store(false, Ordering::Release);
                });
            }
        }
        for cache in self.all_objects().iter().filter_map(|object| object.cache()) {
            match cache.waits_with_deadline() {
                Some(false) => {}
                None => self.machine.arm(), // at the next look
                Some(true) => {
                    self.machine.arm();
                    if !cache.ends_waits.swap(true, Ordering::AcqRel) {
                        let (this, of) = (self.clone(), cache.clone());
                        cache.run_apart(move || {
                            this.end_waits(&of);
                            of.ends_waits.store(false, Ordering::Release);
                        });
                    }
                }
            }
        }
    }

    /// Ends waits of one object that are past their deadline, and lets refused pages be asked for
    /// again. It may wait for clients.
    fn end_waits(&self, cache: &Cache) {
        cache.end_waits();
        let mut healed = cache.healed();
        healed.sort_unstable_by_key(|(session, address)| (session.0, *address));
        for (id, address, length) in ranges(&healed) {
            let session = self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
            if let Some(session) = session {
                session.tell(Event::Heal { address, length });
            }
        }
    }
}

/// The first few, and how many more: a message has a length.
fn some_of(clients: &[String]) -> String {
    let (named, rest) = clients.split_at(clients.len().min(10));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    named.join(", ") + &more
}

/// Pages side by side as one range: a message for each would fill a client's socket. `pages` are in order.
fn ranges(pages: &[(SessionId, u64)]) -> Vec<(SessionId, u64, u64)> {
    let mut ranges: Vec<(SessionId, u64, u64)> = Vec::new();
    for (session, address) in pages {
        match ranges.last_mut() {
            Some((last, first, length)) if last == session && *address == *first + *length => {
                *length += PAGE_SIZE_BYTES;
            }
            Some((last, first, length))
                if last == session && (*first..*first + *length).contains(address) => {}
            _ => ranges.push((*session, *address, PAGE_SIZE_BYTES)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_side_by_side_are_told_of_at_once() {
        let (a, b) = (SessionId(1), SessionId(2));
        let pages = [(a, 0x1000), (a, 0x2000), (a, 0x2000), (a, 0x4000), (b, 0x5000), (b, 0x6000)];
        assert_eq!(ranges(&pages), [(a, 0x1000, 0x2000), (a, 0x4000, 0x1000), (b, 0x5000, 0x2000)]);
    }
}
