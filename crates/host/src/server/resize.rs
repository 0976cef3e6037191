//! Another size for an object.

use super::backing::{bytes_in_memory, check_file_limit};
use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use crate::cluster::Cluster;
use crate::pagers::check_room;
use commonhold_object::error::Doing;
use commonhold_object::wire::Sizing;
use commonhold_object::{
    Access, CreateOptions, Credentials, Error, ErrorKind, Name, ObjectId, PAGE_SIZE_BYTES, PagerKind, Result,
    pages_of, system_v,
};
use commonhold_sys::frames;
use std::sync::Arc;

impl Host {
    pub(super) fn resize(
        self: &Arc<Self>,
        session: &Session,
        name: &Name,
        of: Option<u128>,
        size_bytes: u64,
    ) -> Result<()> {
        let object = match (self.lookup(session, name, Access::ReadWrite), self.cluster.get()) {
            (Err(error), Some(cluster)) if error.kind == ErrorKind::NotFound && cluster.is_up() => {
                return cluster.resize_elsewhere(
                    name,
                    &session.credentials,
                    size_bytes,
                    (Sizing::Exactly, of),
                );
            }
            (found, _) => found?,
        };
        object.record().check_is(name, of)?;
        system_v::check_change(name, "size")?;
        self.check_file_limit_of(session, &object, size_bytes)?;
        self.resize_found(&object, size_bytes, Sizing::Exactly)
    }

    /// Of an object on a file that grows: as far as the process that asks could make it grow.
    fn check_file_limit_of(&self, session: &Session, object: &Object, size_bytes: u64) -> Result<()> {
        let options = object.record().options.clone();
        let on_file = options.pager == PagerKind::File && !options.is_replicated();
        if on_file && size_bytes > options.size_bytes {
            check_file_limit(session, size_bytes)
        } else {
            Ok(())
        }
    }

    /// Another size for an object whose home is this host: a process of another host asks.
    pub fn resize_for(
        self: &Arc<Self>,
        who: &Credentials,
        name: &Name,
        size_bytes: u64,
        (sizing, of): (Sizing, Option<u128>),
    ) -> Result<()> {
        let record = lock(&self.registry).lookup(name, who, Access::ReadWrite)?;
        record.check_is(name, of)?;
        system_v::check_change(name, "size")?;
        if !record.options.is_shared() {
            let text = format!("{name} is local to its host: resize it there");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.resize_found(&self.object(record.id)?, size_bytes, sizing)
    }

    /// The same of an object that the session has open, whatever its name is, if it has one.
    pub(super) fn resize_opened(
        self: &Arc<Self>,
        session: &Session,
        id: ObjectId,
        size_bytes: u64,
        sizing: Sizing,
    ) -> Result<()> {
        if !session.access(id)?.writes() {
            return Err(Error::new(
                ErrorKind::Permission,
                "resizing changes the object: open it for writing",
            ));
        }
        let object = self.object(id)?;
        let (name, is_elsewhere, first, uuid) = {
            let record = object.record();
            (record.name.clone(), record.is_elsewhere, record.first_name.clone(), record.uuid)
        };
        if let Some(cluster) = self.cluster.get().filter(|cluster| is_elsewhere && cluster.is_up()) {
            return cluster.resize_elsewhere(&first, &session.credentials, size_bytes, (sizing, Some(uuid)));
        }
        if let Some(name) = &name {
            system_v::check_change(name, "size")?;
        }
        self.check_file_limit_of(session, &object, size_bytes)?;
        self.resize_found(&object, size_bytes, sizing)
    }

    fn resize_found(self: &Arc<Self>, object: &Arc<Object>, size_bytes: u64, sizing: Sizing) -> Result<()> {
        let result = object.hold().and_then(|_held| {
            let _one_at_a_time = lock(&object.resizing);
            if sizing != Sizing::Exactly && size_bytes <= object.record().options.size_bytes {
                return Ok(());
            }
            self.resize_object(object, size_bytes, sizing)
        });
        self.tell_of_moving();
        if result.is_ok() {
            self.tell_anew(object);
        }
        // Its name may have gone meanwhile, and its last user.
        self.settle_object(object.id);
        result
    }

    fn resize_object(self: &Arc<Self>, object: &Arc<Object>, size_bytes: u64, sizing: Sizing) -> Result<()> {
        object.check_access(Access::ReadWrite)?;
        let options = CreateOptions { size_bytes, ..object.record().options.clone() };
        if size_bytes == 0 && (options.reserves() && object.is_controlled() || options.is_wired()) {
            let what = "the object has space taken for it, and is not made empty: remove it instead, or create it sparse";
            return Err(Error::invalid(what));
        }
        if size_bytes > 0 {
            options.check()?;
        }
        if options.shares_tables() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "an object with shared page tables keeps its size, which its tables are made for: create another one",
            ));
        }
        if object.synchronises() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "locks keep their number, which all that use them rely on: create others",
            ));
        }
        if options.is_heap() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a heap keeps its size, by which all that use it find what is in it: create another one",
            ));
        }
        if options.is_channel() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a channel keeps its size, which all that use it rely on: create another one",
            ));
        }
        let external = matches!(options.pager, PagerKind::External { .. });
        if external && size_bytes < object.record().options.size_bytes {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the object of an external pager cannot shrink: its pager is not told of sizes, and would show the \
                 old bytes again when it grows; create a smaller one and copy",
            ));
        }
        self.make_snapshot_whole(object)?;
        let charged_uid = object.record().charged_uid;
        // Until it has its size it stays in memory, and where it is.
        let _making = options.is_wired().then(|| lock(&object.making));
        if options.is_wired() && !self.is_with_pager_alone(object) {
            self.settle_place(object)?; // it may lie on disk
        }
        let in_arena = self.place_in_arena(object.id).is_some(); // it counts with that
        let charged = match in_arena {
            _ if options.is_fetched() => self.counted_of_size(object, &options),
            true => 0,
            false => self.limits.counted(charged_uid, &options, self.memory_of(object, &options)?),
        };
        lock(&self.registry).check_size(object.id, charged)?;
        let (old_bytes, old_charged) = {
            let record = object.record();
            (record.options.size_bytes, record.charged_bytes)
        };
        let note = |size_bytes, charged| {
            let mut registry = lock(&self.registry);
            *object.record() = registry.set_size(object.id, size_bytes, charged)?;
            Ok(())
        };
        // What the record says is: the next host makes the memory so large. So nothing is cut off that it still speaks of.
        let finish = || {
            if size_bytes > old_bytes
                && sizing == Sizing::BeforeWrite
                && !(object.is_controlled() || options.is_wired() || options.reserves())
            {
                return note(size_bytes, charged);
            }
            if size_bytes > old_bytes {
                self.resize_memory(object, old_bytes, &options)?;
                return note(size_bytes, charged).inspect_err(|_| {
                    // What cannot be written down is not there.
                    let before = CreateOptions { size_bytes: old_bytes, ..options.clone() };
                    let _ = self.resize_memory(object, size_bytes, &before); // it only gets shorter
                });
            }
            // Before the size is noted: the next host, which goes on with it, has not all of its snapshots at hand.
            let _no_snapshot = lock(&object.snapshotting);
            if self.has_snapshots(object.id) {
                let cache = self.cache_of(object)?;
                cache.complete_snapshots(cache.changed_by(size_bytes));
            }
            note(size_bytes, charged)?;
            self.resize_memory(object, old_bytes, &options).inspect_err(|_| {
                let _ = note(old_bytes, old_charged);
            })
        };
        match self.cluster.get().filter(|_| options.is_shared()) {
            Some(cluster) => self.resize_shared(cluster, object, size_bytes, finish),
            None => finish(),
        }
    }

    /// Of an object that hosts share: before it grows all know that it may have, before it shrinks all have.
    fn resize_shared(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        object: &Arc<Object>,
        size_bytes: u64,
        finish: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (uuid, old_bytes, page) = {
            let record = object.record();
            (record.uuid, record.options.size_bytes, record.options.page_size.bytes())
        };
        if page > PAGE_SIZE_BYTES && !(size_bytes.is_multiple_of(page) && old_bytes.is_multiple_of(page)) {
            return Err(Error::invalid(format!(
                "the object is scheduled in pages of {page} bytes, and its size goes from one multiple of that to another: \
                 {old_bytes} or {size_bytes} is none"
            )));
        }
        self.cache_of(object)?;
        let driver = cluster.driver(uuid).ok_or_else(|| {
            Error::new(ErrorKind::Disconnected, "this host is not in its cluster yet: try again later")
        })?;
        let room_bytes = old_bytes.max(size_bytes);
        if size_bytes < old_bytes {
            driver.check_may_shrink(pages_of(size_bytes))?;
        }
        let first = old_bytes.min(size_bytes);
        let result = cluster.tell_size(&driver, first, room_bytes, size_bytes > old_bytes).and_then(|()| {
            driver.catch_up(); // what came home of what is cut must not come after that
            finish()
        });
        if result.is_err() {
            // Who was told already hears that nothing changed; who does not answer, when it comes back.
            let now_bytes = object.record().options.size_bytes; // its lock is not kept while others are told
            let _ = cluster.tell_size(&driver, now_bytes, room_bytes, false);
            return result;
        }
        driver.forget_lost_from(pages_of(size_bytes));
        // Also whoever opened it meanwhile.
        cluster.tell_size(&driver, size_bytes, room_bytes, false)
    }

    /// The home of an object that is used here says what its size is. `is_newest`: whether it has said no other since.
    /// `home_has_all`: it has asked for what is newest here.
    pub fn resize_import(
        self: &Arc<Self>,
        uuid: u128,
        size_bytes: u64,
        is_newest: impl Fn() -> bool,
        home_has_all: bool,
    ) -> Result<()> {
        let Some(object) = self.object_of(uuid, true) else { return Ok(()) };
        let result = object.hold().and_then(|_held| {
            let _one_at_a_time = lock(&object.resizing);
            let is_known = object.record().options.size_bytes == size_bytes;
            let cache = object.cache();
            if !is_newest() || is_known && cache.as_ref().is_none_or(|cache| cache.has_size(size_bytes)) {
                return Ok(());
            }
            if let Some(cache) = cache {
                cache.give_up_from(pages_of(size_bytes), home_has_all)?;
                cache.resize(size_bytes).inspect_err(|_| cache.stay_as_large())?;
            }
            let mut registry = lock(&self.registry);
            *object.record() = registry.set_size(object.id, size_bytes, 0)?;
            Ok(())
        });
        self.settle_object(object.id);
        match result {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()), // it ended meanwhile
            result => result,
        }
    }

    /// What its file takes of memory when the object has its new size.
    fn memory_of(&self, object: &Object, options: &CreateOptions) -> Result<u64> {
        let file = object.descriptor().filter(|_| options.pager == PagerKind::File);
        let Some(file) = file.filter(|_| !options.is_replicated()) else { return Ok(0) };
        bytes_in_memory(&*file, options.size_bytes)
    }

    fn resize_memory(
        self: &Arc<Self>,
        object: &Arc<Object>,
        old_bytes: u64,
        options: &CreateOptions,
    ) -> Result<()> {
        if object.is_controlled() {
            let bytes = pages_of(options.size_bytes) * PAGE_SIZE_BYTES;
            if options.reserves() && options.pager == PagerKind::Anonymous && options.size_bytes > old_bytes {
                let record = object.record().clone();
                self.reserve_spill(&record, bytes, bytes - pages_of(old_bytes) * PAGE_SIZE_BYTES)?;
            }
            return self.cache_of(object)?.resize(options.size_bytes);
        }
        if options.is_fetched() {
            return self.resize_fetched(object, old_bytes, options);
        }
        if self.place_in_arena(object.id).is_some() {
            return self.resize_wired(object, old_bytes, options.size_bytes);
        }
        let fd =
            object.descriptor().ok_or_else(|| Error::new(ErrorKind::Lost, "the object's memory is gone"))?;
        let (length, anonymous) = (options.size_bytes, options.pager != PagerKind::File);
        let old_length =
            rustix::fs::fstat(&*fd).map_err(std::io::Error::from).doing("resizing")?.st_size as u64;
        let cut = |length| {
            rustix::fs::ftruncate(&*fd, length).map_err(std::io::Error::from).doing("resizing the object")
        };
        // What a mapping wrote past the end, in the last page, does not come with it. (Where a call has written there, the memory
        // is longer already: that is what it grows for.)
        if anonymous
            && length > old_bytes
            && old_length == old_bytes
            && !old_bytes.is_multiple_of(PAGE_SIZE_BYTES)
        {
            cut(old_bytes)?;
        }
        cut(length)?;
        if options.reserves() && length > old_length {
            let more = length - old_length;
            let is_ordinary = self.machine.is_ordinary(object.record().charged_uid);
            let has_room = match anonymous {
                true => super::status::check_memory_for(more),
                false => check_room(&*fd, if is_ordinary { more } else { 0 }),
            };
            let reserved =
                has_room.and_then(|()| frames::allocate(&*fd, old_length, more).doing("reserving memory"));
            if let Err(error) = reserved {
                let _ = rustix::fs::ftruncate(&*fd, old_length);
                return Err(error);
            }
        }
        Ok(())
    }
}
