//! Requests about names: open, close, stat, list, remove, rename, mode, owner, revert.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::system_v::key_of;
use commonhold_object::wire::{Event, OpenReply, Reply};
use commonhold_object::{
    Access, Credentials, EntryInfo, Error, ErrorKind, Losses, Name, ObjectId, ObjectInfo, PAGE_SIZE_BYTES,
    PagerKind, Result, limits,
};
use commonhold_registry::{Entry, ObjectRecord, Registry, Renaming};
use commonhold_sys::frames;
use commonhold_wired::Event as Moves;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

/// The object counts as open.
struct Counted<'o>(&'o Object);

impl Counted<'_> {
    fn of(object: &Object) -> Counted<'_> {
        object.opens.fetch_add(1, Ordering::AcqRel);
        Counted(object)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.opens.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How often a use of an object may end while it is opened.
const TRIES: u32 = 16;

fn ends_again(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Busy, format!("{what} ends again and again while it is opened: try again"))
}

impl Host {
    /// The object of that name, if the session may have it so.
    pub(super) fn lookup(&self, session: &Session, name: &Name, access: Access) -> Result<Arc<Object>> {
        let record = lock(&self.registry).lookup(name, &session.credentials, access)?;
        self.object(record.id)
    }

    pub(super) fn open(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: &Name,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        for _ in 0..TRIES {
            let object = self.as_used(&self.look_everywhere(session, name, access)?)?;
            match self.give(session, &object, access, give) {
                // Nobody used it any more just when it was found: it is begun anew.
                Err(error) if error.kind == ErrorKind::NotFound && object.has_ended() => {}
                other => return other,
            }
        }
        Err(ends_again(name))
    }

    /// Opens an object for a session: what to tell, and the descriptor to map.
    pub(super) fn give(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        for _ in 0..TRIES {
            let used = &self.as_used(object)?;
            let result = used.hold().and_then(|_held| self.give_held(session, used, access, give));
            // Its name and its last user may have gone meanwhile, and this one, too.
            self.settle_object(used.id);
            match result {
                // Nobody used it yet when it was found: it is begun anew.
                Err(error)
                    if error.kind == ErrorKind::NotFound && used.has_ended() && used.id != object.id => {}
                other => return other,
            }
        }
        Err(ends_again(format_args!("object {}", object.id.0)))
    }

    fn give_held(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        object.check_access(access)?;
        // Until it is noted that a session has it open it may not move.
        let wired = object.record().options.is_wired();
        let _making = wired.then(|| lock(&object.making));
        let counted = wired.then(|| self.settle_place(object).map(|()| Counted::of(object))).transpose()?;
        if wired {
            self.check_settled(session, object, access)?;
        }
        // Before its home is looked for: that hears who opens it.
        let _opening = session.opens(object.id, access);
        let controlled = object.is_controlled();
        let whole = if controlled {
            let cache = self.cache_of(object)?;
            self.begins_to_use(session, object, access)?;
            if self.machine.is_ordinary(session.credentials.uid) {
                cache.is_opened_by_others(access.writes());
            }
            self.tell_losses(object, &cache)?;
            cache.frames.clone()
        } else {
            let none =
                || Error::new(ErrorKind::Lost, "the object's memory is gone: remove it and create it again");
            if object.descriptor().is_none() {
                self.returning.wait_for(object.id)?;
                self.settle_returned();
            }
            object.descriptor().ok_or_else(none)?
        };
        // A writer gets what was given for the object, and nothing that the host opened. A reader must not write, and gets the
        // same file, opened for reading alone: it was looked at, and is the same to whoever opens it (`backing`).
        let fd =
            if access.writes() || object.record().file.as_ref().is_some_and(|f| f.read_only) && !controlled {
                whole
            } else {
                Arc::new(super::tables::for_readers(object, &whole)?)
            };
        self.note_open(session, object, access)?;
        drop(counted);
        give.push(fd);
        Ok(Reply::Opened(Box::new(OpenReply { info: self.short_info(object), access })))
    }

    fn note_open(self: &Arc<Self>, session: &Session, object: &Object, access: Access) -> Result<()> {
        let mut opened = lock(&session.opened);
        if opened.len() as u64 >= limits::OPEN_OBJECTS_PER_CLIENT && !opened.contains_key(&object.id) {
            return Err(Error::new(
                ErrorKind::TooMany,
                format!("this client has {} objects open, the limit: close some", opened.len()),
            ));
        }
        match opened.insert(object.id, access) {
            // Opened twice: the wider right stays.
            Some(before) if before.writes() => drop(opened.insert(object.id, before)),
            Some(_) => {}
            None => drop(object.opens.fetch_add(1, Ordering::Relaxed)),
        }
        drop(opened);
        let (is_wired, is_channel) = {
            let record = object.record();
            (record.options.is_wired(), record.options.is_channel())
        };
        if is_channel && access.writes() {
            self.note_writer(object, session.credentials.uid);
        }
        if is_wired {
            self.take_in(Moves::Pinned { session: session.id, object: object.id });
        }
        if object.is_with_clients() {
            self.keep_open(session, object.id);
            self.note_client(session, object.id);
        }
        Ok(())
    }

    pub(super) fn close(self: &Arc<Self>, session: &Session, id: ObjectId) -> Result<()> {
        let removed = lock(&session.opened).remove(&id);
        lock(&session.watched).remove(&id);
        self.forget_taken(session, id);
        if let (Some(access), Ok(object)) = (removed, self.object(id)) {
            if let Some(cache) = object.cache() {
                cache.remove_holds(session.id);
                self.keep_holds(session, &cache);
            }
            if object.is_controlled() {
                self.forget_client(session, id);
            } else {
                self.forget_client_soon(session, id);
            }
            self.is_open_no_more(session, &object);
            if access.writes() {
                self.free_locks(&object, Some(session));
            }
            // Of a direct one that goes on, it does no harm if the next host takes it for open: attaching is to be quick. A wired
            // one that is open stays where and as it is, and of locks it matters who has them open.
            let (is_wired, has_name) = {
                let record = object.record();
                (record.options.is_wired(), record.name.is_some())
            };
            let matters = is_wired || object.synchronises() || object.is_with_clients() && !has_name;
            if object.is_controlled() || matters {
                self.keep_session(session);
            }
            self.settle_object(id);
        }
        Ok(())
    }

    /// The session hears once when pages of an object that it has open are not what they were.
    pub(super) fn watch(&self, session: &Session, id: ObjectId) -> Result<()> {
        session.access(id)?;
        self.machine.is_watched();
        lock(&session.watched).insert(id);
        Ok(())
    }

    /// Tells those who watch objects whose pages have changed. The control thread does: it waits for nobody.
    pub(super) fn tell_changes(&self) {
        for object in self.machine.take_changed() {
            for session in self.sessions() {
                if lock(&session.watched).remove(&object) {
                    session.tell(Event::Changed { object });
                }
            }
        }
    }

    /// What this host itself has of that name.
    pub fn stat_own(&self, name: &Name, who: &Credentials) -> Result<EntryInfo> {
        let entry = lock(&self.registry).stat(name, who)?;
        self.entry_info(entry)
    }

    fn entry_info(&self, entry: Entry) -> Result<EntryInfo> {
        Ok(match entry {
            Entry::Object(record) => EntryInfo::Object(Box::new(self.info(&*self.object(record.id)?))),
            Entry::Directory { name, ownership } => EntryInfo::Directory { name, ownership },
        })
    }

    /// What this host itself has in a directory, and whether more follows.
    pub fn list_own(
        &self,
        directory: &Name,
        after: Option<&Name>,
        who: &Credentials,
    ) -> Result<(Vec<EntryInfo>, bool)> {
        let (entries, more) = lock(&self.registry).list(directory, who, after, limits::LIST_ENTRIES)?;
        Ok((entries.into_iter().filter_map(|e| self.entry_info(e).ok()).collect(), more))
    }

    pub(super) fn remove(
        self: &Arc<Self>,
        session: &Session,
        name: &Name,
        of: Option<u128>,
        repeated: bool,
    ) -> Result<()> {
        let who = &session.credentials;
        match (
            self.remove_here(who, name, of, repeated),
            self.with_cluster().filter(|cluster| cluster.is_up()),
        ) {
            (Err(error), Some(cluster)) if error.kind == ErrorKind::NotFound && key_of(name).is_some() => {
                cluster.remove_key_elsewhere(name, who, of)
            }
            (done, _) => done,
        }
    }

    /// A process of another host removes a System V segment that all hosts know by its key, and whose home this is.
    pub fn remove_key(self: &Arc<Self>, name: &Name, who: &Credentials, of: Option<u128>) -> Result<()> {
        let found = lock(&self.registry).stat(name, who)?;
        let is_shared = matches!(&found, Entry::Object(record) if record.options.is_shared());
        if key_of(name).is_none() || !is_shared {
            let text = format!("{name} is no segment that hosts share: remove it on its own host");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.remove_here(who, name, of, false)
    }

    fn remove_here(
        self: &Arc<Self>,
        who: &Credentials,
        name: &Name,
        of: Option<u128>,
        repeated: bool,
    ) -> Result<()> {
        let mut registry = lock(&self.registry);
        if let Err(error) = registry.check_is(name, of) {
            // The one that was meant has gone already, and another has its name.
            return if repeated { Ok(()) } else { Err(error) };
        }
        self.check_may_go(&registry, name, who)?;
        let Some(record) = registry.remove(name, who, repeated)? else { return Ok(()) };
        if let Ok(object) = self.object(record.id) {
            object.record().name = None;
        }
        drop(registry);
        if record.options.is_shared() {
            self.tell_names();
        }
        self.settle_object(record.id);
        Ok(())
    }

    pub(super) fn rename(
        self: &Arc<Self>,
        session: &Session,
        (from, to): (&Name, &Name),
        how: Renaming,
        repeated: bool,
    ) -> Result<()> {
        let claiming = self.claim_new_name(from, to, session)?;
        let mut registry = lock(&self.registry);
        let who = &session.credentials;
        self.check_may_change(&registry, from, who, None)?;
        self.check_may_go(&registry, to, who)?;
        let renamed = registry.rename(from, to, who, how, repeated);
        let renamed = renamed.inspect(|changed| self.note_records(&registry, changed.clone()));
        drop((registry, claiming));
        self.tell_names();
        for replaced in renamed?.iter().filter(|record| record.name.is_none()) {
            self.settle_object(replaced.id);
        }
        Ok(())
    }

    pub(super) fn make_directory(
        &self,
        session: &Session,
        name: &Name,
        mode: u32,
        repeated: bool,
    ) -> Result<()> {
        lock(&self.registry).make_directory(name, &session.credentials, mode, repeated)
    }

    /// When a direct object was modified is what its memory or file says: the kernel notes it.
    pub(super) fn set_modified(
        &self,
        session: &Session,
        name: &Name,
        of: Option<u128>,
        modified_ns: u64,
    ) -> Result<()> {
        let who = &session.credentials;
        let Entry::Object(record) = lock(&self.registry).stat(name, who)? else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{name} is a directory, which has no times"),
            ));
        };
        record.check_is(name, of)?;
        let object = self.object(record.id)?;
        let fd = super::tables::memory_of(&object).doing("looking at the object's memory")?;
        let fd = fd.filter(|_| !object.is_controlled()).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!("{name} is not a direct object: its times are not kept"),
            )
        })?;
        let stat =
            rustix::fs::fstat(&*fd).map_err(std::io::Error::from).doing("looking at the object's memory")?;
        let owner = match record.options.pager {
            PagerKind::File => stat.st_uid,
            _ => record.ownership.uid,
        };
        if !who.is_root() && who.uid != owner {
            let text = format!("only user {owner}, whose it is, or root may change the times of {name}");
            return Err(Error::new(ErrorKind::Permission, text));
        }
        frames::set_modified(&*fd, modified_ns).doing("changing the object's times")
    }

    pub(super) fn set_mode(&self, session: &Session, name: &Name, of: Option<u128>, mode: u32) -> Result<()> {
        let mut registry = lock(&self.registry);
        registry.check_is(name, of)?;
        self.check_may_change(&registry, name, &session.credentials, None)?;
        let changed = registry.set_mode(name, &session.credentials, mode)?;
        self.note_records(&registry, changed);
        drop(registry);
        self.tell_of_moving();
        Ok(())
    }

    pub(super) fn set_owner(
        &self,
        session: &Session,
        name: &Name,
        of: Option<u128>,
        (uid, gid): (Option<u32>, Option<u32>),
    ) -> Result<()> {
        let mut registry = lock(&self.registry);
        registry.check_is(name, of)?;
        self.check_may_change(&registry, name, &session.credentials, uid)?;
        let changed = registry.set_owner(name, &session.credentials, uid, gid)?;
        self.note_records(&registry, changed);
        drop(registry);
        self.tell_of_moving();
        Ok(())
    }

    /// Names, modes or owners changed (a directory's rename changes many). Under the registry's lock, as every change
    /// of a record: the last word is the registry's.
    fn note_records(
        &self,
        _locked: &MutexGuard<'_, Registry>,
        changed: impl IntoIterator<Item = ObjectRecord>,
    ) {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        for record in changed {
            if let Some(object) = objects.get(&record.id) {
                *object.record() = record;
            }
        }
    }

    pub(super) fn revert(self: &Arc<Self>, session: &Session, name: &Name) -> Result<Reply> {
        let object = self.lookup(session, name, Access::ReadWrite)?;
        self.revert_object(&object)
    }

    /// The same of an object that the session has open. Who opened it for reading drops nobody's pages.
    pub(super) fn revert_opened(self: &Arc<Self>, session: &Session, id: ObjectId) -> Result<Reply> {
        if !session.access(id)?.writes() {
            return Err(Error::new(
                ErrorKind::Permission,
                "revert drops what others wrote: open the object for writing",
            ));
        }
        let object = self.object(id)?;
        let (uuid, is_elsewhere) = {
            let record = object.record();
            (record.uuid, record.is_elsewhere)
        };
        if !is_elsewhere {
            return self.revert_object(&object);
        }
        // Of explicit coherence processes of the home use it apart from the saved copies.
        let home = self.object_of(uuid, false).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the object's home is another host: revert it there")
        })?;
        self.revert_object(&home)
    }

    fn revert_object(self: &Arc<Self>, object: &Arc<Object>) -> Result<Reply> {
        if object.record().options.is_shared() {
            return self.revert_lost(object).map(Reply::Pages);
        }
        // What was not synced may be in frames that are not taken over yet.
        let left = object.left_frames().map(|_| self.cache_of(object)).transpose()?;
        match left.or_else(|| object.cache()) {
            Some(cache) => cache.revert().map(Reply::Pages),
            None if object.is_controlled() => Ok(Reply::Pages(0)),
            None => Err(Error::new(
                ErrorKind::Unsupported,
                "a direct object keeps no stored copy apart from its pages: there is nothing to go back to; create it \
                 on a file, with sync = ordered or atomic, for that",
            )),
        }
    }

    /// All there is to tell of an object, but for what only another host knows.
    pub fn info(&self, object: &Object) -> ObjectInfo {
        let mut info = self.short_info(object);
        if let (false, Ok(Some(fd))) = (info.controlled, super::tables::memory_of(object)) {
            info.resident_bytes = match info.options.pager {
                PagerKind::Anonymous => frames::resident_bytes(&*fd).unwrap_or(0),
                _ => frames::cache_state(&*fd, 0, info.options.size_bytes)
                    .map_or(0, |state| state.cached * PAGE_SIZE_BYTES),
            };
            info.mappings = self.direct_mappings(object).len() as u64;
            info.page_tables = super::tables::count(object);
            info.modified_ns = frames::modified_ns(&*fd).unwrap_or(0);
            if info.place.is_some() {
                // What the memory tells is its arena's.
                (info.resident_bytes, info.modified_ns) = (info.options.size_bytes, 0);
            }
        }
        if lock(&self.wired).is_on_disk(object.id) {
            info.spilled_bytes = info.options.size_bytes;
        }
        self.note_home(object, &mut info);
        if info.warning.is_empty()
            && let Some(cache) = object.cache()
        {
            info.warning = cache.pinned_warning().unwrap_or_default();
        }
        if info.warning.is_empty() {
            let uuid = object.record().uuid; // the record's lock ends here: renewing the lease needs it
            info.warning = self.lacks_hosts(uuid).unwrap_or_default();
        }
        info
    }

    /// The same for who opens it: of a direct object without what the kernel has to be asked for.
    pub(super) fn short_info(&self, object: &Object) -> ObjectInfo {
        let mut record = object.record().clone();
        if record.options.is_replicated() {
            // To users it is anonymous: its file is what this host keeps of it, as others do.
            (record.options.pager, record.file) = (PagerKind::Anonymous, None);
        }
        let controlled = record.options.is_controlled();
        let cache = object.cache();
        let generation = cache.as_ref().map_or(0, |cache| cache.loss_generation());
        let numbers = cache.map(|cache| cache.numbers()).unwrap_or_default();
        ObjectInfo {
            id: record.id,
            uuid: record.uuid,
            name: record.name.or_else(|| record.is_elsewhere.then_some(record.first_name)),
            ownership: record.ownership,
            controlled,
            file_path: record.file.map(|f| f.path.to_string_lossy().into_owned()).unwrap_or_default(),
            resident_bytes: numbers.resident_pages * PAGE_SIZE_BYTES,
            dirty_bytes: numbers.dirty_pages * PAGE_SIZE_BYTES,
            spilled_bytes: numbers.spilled_pages * PAGE_SIZE_BYTES,
            mappings: numbers.views,
            opens: object.opens.load(Ordering::Relaxed),
            charged_to: super::status::who_pays(&record.options),
            warning: Some(object.unusable()).filter(|why| !why.is_empty()).unwrap_or(numbers.warning),
            options: record.options,
            home: String::new(),
            is_elsewhere: record.is_elsewhere,
            losses: Losses { generation, ..Losses::default() },
            page_tables: 0,
            modified_ns: 0,
            place: self.place_in_arena(object.id),
        }
    }
}
