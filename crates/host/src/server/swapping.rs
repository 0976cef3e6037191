//! Wired objects that nobody has open, on disk: whole, and whole again before anybody gets them (Bernadat & Black, section 9).
//! What an object has on disk lies where other objects spill. It counts against its user's quota, which its arena does while it
//! is in that.

use super::object::Object;
use super::wired::{Class, gone};
use super::{Host, lock};
use crate::spill::check_room;
use commonhold_object::error::Doing;
use commonhold_object::{ErrorKind, ObjectId, Result};
use commonhold_wired::{read, write};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

impl Host {
    /// Puts the object of a class on disk that was not opened for longest; false: there is none that can.
    pub(super) fn swap_out_one(self: &Arc<Self>, class: &Class) -> Result<bool> {
        let among = self.arenas_of(class);
        let candidates = lock(&self.wired).by_last_open(&among);
        for id in candidates {
            if self.swap_out_unless_used(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts all of an arena on disk that another class of the same owner has, so that its huge pages are free: of those in which
    /// nothing is in use, the one that was not used for longest. Nobody makes room at another user's cost. False: there is none.
    pub(super) fn empty_one_arena(self: &Arc<Self>, class: &Class) -> Result<bool> {
        let mut others: Vec<(u64, ObjectId)> = {
            let all: Vec<ObjectId> = lock(&self.wired).all().collect();
            let of_owner = |id: &ObjectId| {
                let other = self.object(*id).ok().and_then(|arena| Class::of(&arena.record()));
                other.is_some_and(|other| other != *class && other.ownership.uid == class.ownership.uid)
            };
            let all: Vec<ObjectId> = all.into_iter().filter(of_owner).collect();
            let wired = lock(&self.wired);
            all.into_iter().map(|id| (wired.last_open_in(id), id)).collect()
        };
        others.sort_unstable();
        for (_, arena) in others {
            if self.empty_arena(arena)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn empty_arena(self: &Arc<Self>, arena: ObjectId) -> Result<bool> {
        let objects = lock(&self.wired).objects_in(arena);
        // What is no object yet, or not any more, has its place for a moment only.
        let is_free = |id: &ObjectId| self.object(*id).is_ok_and(|object| !self.is_in_the_way(&object));
        if objects.is_empty() || !objects.iter().all(is_free) {
            return Ok(false);
        }
        for id in objects {
            if !self.swap_out_unless_used(id)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts an object on disk; false: somebody uses it, or there is no room for it there.
    fn swap_out_unless_used(self: &Arc<Self>, id: ObjectId) -> Result<bool> {
        let Ok(object) = self.object(id) else { return Ok(false) };
        let stored = {
            let Ok(_making) = object.making.try_lock() else { return Ok(false) };
            // While it is stored its place cannot be freed.
            let Ok(_held) = object.hold() else { return Ok(false) };
            if self.is_in_the_way(&object) || object.record().name.is_none() {
                return Ok(false);
            }
            self.swap_out(&object)
        };
        self.settle_object(object.id); // it may have lost its name meanwhile
        match stored {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind, ErrorKind::Quota | ErrorKind::NoSpace) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn swap_out(self: &Arc<Self>, object: &Object) -> Result<()> {
        let (id, bytes, charged_uid) = {
            let record = object.record();
            (record.id, record.options.size_bytes, record.charged_uid)
        };
        let place = self.place_in_arena(id).ok_or_else(gone)?;
        let (memory, path) = (self.memory_at(place)?, self.machine.path("spill", id));
        if self.machine.is_ordinary(charged_uid) {
            check_room(&self.machine.directory, bytes)?;
        }
        self.charge(object, bytes)?;
        let stored = File::options().create(true).truncate(true).write(true).mode(0o600).open(&path);
        let stored = stored.and_then(|file| write(&*memory, place.offset_bytes, bytes, &file));
        let stored = stored.doing("swapping a wired object out").and_then(|()| self.note_place(id, None));
        if let Err(error) = stored {
            let _ = std::fs::remove_file(&path); // the object is where it was
            self.charge(object, 0)?;
            return Err(error);
        }
        object.forget_descriptor();
        let left = lock(&self.wired).is_swapped_out(id);
        left.into_iter().for_each(|arena| self.settle_arena(arena));
        Ok(())
    }

    /// Brings an object back that lies on disk, whole. The caller holds `making`.
    pub(super) fn swap_in(self: &Arc<Self>, object: &Object) -> Result<()> {
        let (class, bytes) = {
            let record = object.record();
            (Class::of(&record), record.options.size_bytes)
        };
        let path = self.machine.path("spill", object.id);
        let file = File::open(&path).doing("swapping a wired object in")?;
        let back = self.place_anew(object, bytes, &class.ok_or_else(gone)?, bytes, |memory, offset| {
            read(&file, memory, offset, bytes).doing("swapping a wired object in")
        });
        back.map_err(|mut error| {
            if error.kind == ErrorKind::NoSpace {
                error.message =
                    format!("the object lies on disk, and has no room in memory: {}", error.message);
            }
            error
        })?;
        let _ = std::fs::remove_file(&path); // it says nothing any more
        self.charge(object, 0)
    }

    /// An object lies in an arena. A host that died on the way to disk, or back, may have left more of it.
    pub(super) fn is_in_memory(&self, object: &Object) {
        let besides = self.counted_for_file(object);
        let counts = object.record().charged_bytes != besides;
        let path = self.machine.path("spill", object.id);
        let removed = std::fs::remove_file(&path).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        let removed = removed.doing(format!("removing {}", path.display()));
        if let Err(error) = removed.and_then(|()| if counts { self.charge(object, 0) } else { Ok(()) }) {
            // It counts more than it should until it comes from disk the next time.
            self.machine.log(format_args!("object {}: {error}", object.id.0));
        }
    }

    /// What the object counts by itself.
    pub(super) fn charge(&self, object: &Object, bytes: u64) -> Result<()> {
        let (size, uid) = {
            let record = object.record();
            (record.options.size_bytes, record.charged_uid)
        };
        let besides = self.counted_for_file(object);
        let charged = if self.machine.is_ordinary(uid) { besides + bytes } else { besides };
        let mut registry = lock(&self.registry);
        registry.check_size(object.id, charged)?;
        let record = registry.set_size(object.id, size, charged)?;
        *object.record() = record;
        Ok(())
    }
}
