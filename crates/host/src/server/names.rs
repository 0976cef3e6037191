//! Requests about names: stat, list, remove, rename, mode, owner, revert.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::wire::{Event, Reply};
use commonhold_object::{
    Access, Credentials, EntryInfo, Error, ErrorKind, Losses, Name, ObjectId, ObjectInfo, PAGE_SIZE_BYTES,
    PagerKind, Result, limits,
};
use commonhold_registry::{Entry, ObjectRecord, Registry, Renaming};
use commonhold_sys::frames;
use commonhold_tags::Types;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

impl Host {
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
        // What is in its pages is told of one object at a time: it may be long.
        let without_types = |mut entry: EntryInfo| {
            if let EntryInfo::Object(info) = &mut entry {
                info.options.types = Types::default();
            }
            entry
        };
        let entries = entries.into_iter().filter_map(|e| self.entry_info(e).ok()).map(without_types);
        Ok((entries.collect(), more))
    }

    pub(super) fn remove(
        self: &Arc<Self>,
        session: &Session,
        name: &Name,
        of: Option<u128>,
        repeated: bool,
    ) -> Result<()> {
        let who = &session.credentials;
        let Some(cluster) = self.with_cluster().filter(|cluster| cluster.is_up()) else {
            return self.remove_here(who, name, of, repeated);
        };
        match self.remove_here(who, name, of, false) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                match cluster.remove_elsewhere(name, who, of) {
                    // It went the first time.
                    Err(gone) if gone.kind == ErrorKind::NotFound && repeated => Ok(()),
                    Err(gone) if gone.kind == ErrorKind::NotFound => Err(error),
                    done => done,
                }
            }
            done => done,
        }
    }

    /// A process of another host removes the name of an object that hosts share, and whose home this is.
    pub fn remove_for_other(
        self: &Arc<Self>,
        name: &Name,
        who: &Credentials,
        of: Option<u128>,
    ) -> Result<()> {
        match lock(&self.registry).stat(name, who)? {
            Entry::Object(record) if record.options.is_shared() => {}
            _ => {
                let text = format!("{name} is nothing that hosts share: remove it on its own host");
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
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
            PagerKind::File if !record.options.is_wired() => stat.st_uid,
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
            None if object.record().options.is_fetched() => Err(Error::new(
                ErrorKind::Unsupported,
                "a wired object is fetched once, before anybody gets it, and not reverted: copy what is stored into it",
            )),
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
            info.resident_bytes = match object.is_with_clients() {
                true => frames::resident_bytes(&*fd).unwrap_or(0),
                false => frames::cache_state(&*fd, 0, info.options.size_bytes)
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
        let translated = cache.as_ref().map(|cache| cache.seen.all_translated()).unwrap_or_default();
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
            translated,
        }
    }
}
