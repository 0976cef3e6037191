//! Wired objects: places in arenas. An arena is an object with shared page tables in the same directory, of the same owner, group
//! and mode: whoever may reach one object of an arena may reach all of them, for its descriptor gives all. So nothing is given
//! before it is seen that this holds (`settle_place`). `docs/REAL-MEMORY.md`.

use super::object::Object;
use super::revoking::comes_again;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::{
    Access, Error, ErrorKind, Name, ObjectId, Ownership, PAGE_SIZE_BYTES, Place, Result, pages_of,
};
use commonhold_registry::ObjectRecord;
use commonhold_wired::{Resized, copy, zero};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Who may reach an object: objects of a class may lie in one arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) directory: Name,
    pub(super) ownership: Ownership,
}

impl Class {
    /// None: the object has no name any more.
    pub(super) fn of(record: &ObjectRecord) -> Option<Class> {
        Some(Class { directory: record.name.as_ref()?.parent(), ownership: record.ownership })
    }
}

/// Where an object lies, for `live/<id>.wired`.
#[derive(Serialize, Deserialize)]
struct Noted {
    boot_id: String,
    /// None: it lies on disk.
    place: Option<Place>,
}

pub(super) fn gone() -> Error {
    Error::new(
        ErrorKind::Lost,
        "the memory of the object's arena is gone: remove the object and create it again",
    )
}

impl Host {
    /// Gives a new object a place, which is zero. `NoSpace` and `Unsupported`: the machine has no huge pages for it.
    /// `fill`: makes it something else.
    pub(super) fn place_new(
        self: &Arc<Self>,
        record: &ObjectRecord,
        fill: impl FnOnce(&OwnedFd, u64) -> Result<()>,
    ) -> Result<Arc<OwnedFd>> {
        let class = Class::of(record).ok_or_else(gone)?;
        let (id, bytes) = (record.id, record.options.size_bytes);
        let place = self.find_place(id, bytes, &class)?;
        // Whoever may write to the arena can take its pages away. That leaves nobody without an object.
        let none = |error: Error| Error::new(ErrorKind::NoSpace, error.message);
        let ready = self.memory_at(place).and_then(|memory| {
            let length = pages_of(bytes) * PAGE_SIZE_BYTES;
            zero(&*memory, place.offset_bytes, length).doing("zeroing the object's place")?;
            Ok(memory)
        });
        let ready = ready.map_err(none).and_then(|memory| {
            fill(&memory, place.offset_bytes)?;
            self.note_place(id, Some(place)).map(|()| memory).map_err(none)
        });
        ready.inspect_err(|_| self.free_place(id))
    }

    /// Whether a wired object that got no place is of ordinary pages, then.
    pub(super) fn takes_ordinary_pages(&self, label: &str, error: &Error) -> bool {
        let none = matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Unsupported) && !comes_again();
        if none {
            self.machine.log(format_args!("{label} is wired in ordinary pages: {error}"));
        }
        none
    }

    pub(super) fn memory_at(&self, place: Place) -> Result<Arc<OwnedFd>> {
        self.object(place.arena).ok().and_then(|arena| arena.descriptor()).ok_or_else(gone)
    }

    /// Whether a session has something open that lies in an arena. The host does not know what of that is mapped.
    pub(super) fn has_places(&self, session: &Session) -> bool {
        let opened: Vec<ObjectId> = lock(&session.opened).keys().copied().collect();
        let wired = lock(&self.wired);
        opened.into_iter().any(|id| wired.place_of(id).is_some())
    }

    /// Where an object lies, if it lies in an arena.
    pub(super) fn place_in_arena(&self, id: ObjectId) -> Option<Place> {
        lock(&self.wired).place_of(id)
    }

    /// Finds a place in an arena that is there; else by moving others, or in a new arena.
    pub(super) fn find_place(self: &Arc<Self>, id: ObjectId, bytes: u64, class: &Class) -> Result<Place> {
        let mut made = Vec::new();
        let found = self.find_place_or_make(id, bytes, class, &mut made);
        // Another may have made one at the same time, in which the object lies now.
        made.into_iter().for_each(|arena| self.settle_arena(arena));
        found
    }

    fn find_place_or_make(
        self: &Arc<Self>,
        id: ObjectId,
        bytes: u64,
        class: &Class,
        made: &mut Vec<ObjectId>,
    ) -> Result<Place> {
        loop {
            let among = self.arenas_of(class);
            // A new one is looked at in any case: its directory may have another name already.
            let all = [&among[..], &made[..]].concat();
            let found = lock(&self.wired).allocate(id, bytes, &all);
            if let Some(place) = found {
                return Ok(place);
            }
            if self.move_one(bytes, &among)? {
                continue;
            }
            let has = lock(&self.wired).bytes_of(&among);
            match self.make_arena(class, bytes, has) {
                Ok(arena) => made.extend(arena), // none: another just made one
                // Without huge pages for another arena, what nobody has open makes room.
                Err(error) if error.kind == ErrorKind::NoSpace => {
                    if !self.swap_out_one(class)? && !self.empty_one_arena(class)? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the next of those moves by which an object of so many bytes finds room; whether there was one. Whoever opens the
    /// moving object meanwhile waits.
    fn move_one(self: &Arc<Self>, bytes: u64, among: &[ObjectId]) -> Result<bool> {
        // What is not known is not an object yet, or not any more.
        let stays = |id: ObjectId| {
            self.object(id)
                .map_or(true, |object| self.is_in_the_way(&object) || object.making.try_lock().is_err())
        };
        let begun = lock(&self.wired).begin_move(bytes, among, stays);
        let Some(transfer) = begun else { return Ok(false) };
        let busy = |what: &str| Error::new(ErrorKind::Busy, what);
        let moved = self.object(transfer.object).map_err(|_| busy("it ended")).and_then(|object| {
            // While it moves its place cannot be freed.
            let _held = object.hold().map_err(|_| busy("it ended"))?;
            let _making = object.making.try_lock().map_err(|_| busy("it is being opened"))?;
            if self.is_in_use(&object) {
                return Err(busy("it was opened"));
            }
            let memory = self.memory_at(transfer.from)?;
            let (from, to) = (transfer.from.offset_bytes, transfer.to.offset_bytes);
            copy(&*memory, from, &*memory, to, transfer.length).doing("moving a wired object")?;
            self.note_place(transfer.object, Some(transfer.to))?;
            lock(&self.wired).finish_move(&transfer);
            Ok(())
        });
        if moved.is_err() {
            lock(&self.wired).abandon_move(&transfer);
            self.settle_arena(transfer.from.arena); // the object may be elsewhere by now
        }
        // It may end now, but for this, or have ended while its place could not be freed.
        self.settle_object(transfer.object);
        if self.object(transfer.object).is_err() {
            self.free_place(transfer.object);
        }
        match moved {
            Ok(()) => Ok(true),
            Err(error) if error.kind == ErrorKind::Busy => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether somebody has the object open, or had it when host and keeper died, and lives.
    pub(super) fn is_in_use(&self, object: &Object) -> bool {
        self.revoking.is_used(object) || self.returning.expects(object.id)
    }

    /// The same; if all who have it open let it move they may be asked to.
    pub(super) fn is_in_the_way(&self, object: &Object) -> bool {
        let in_use = self.is_in_use(object);
        if in_use {
            self.stands_in_the_way(object);
        }
        in_use
    }

    pub(super) fn place_path(&self, id: ObjectId) -> PathBuf {
        self.machine.path("live", id).with_extension("wired")
    }

    /// Writes down where an object lies: whole, whoever dies.
    pub(super) fn note_place(&self, id: ObjectId, place: Option<Place>) -> Result<()> {
        let bytes = postcard::to_stdvec(&Noted { boot_id: self.machine.boot_id.clone(), place });
        let (path, new) = (self.place_path(id), self.place_path(id).with_extension("wired-new"));
        let written =
            std::fs::write(&new, bytes.unwrap_or_default()).and_then(|()| std::fs::rename(&new, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&new); // there may be none
        }
        written.doing("noting the object's place")
    }

    /// Nobody needs an object's place any more. An arena that the host made goes with the last one.
    pub(super) fn free_place(self: &Arc<Self>, id: ObjectId) {
        let freed = {
            let mut wired = lock(&self.wired);
            wired.remove_empty(id); // it may be an arena itself
            wired.free(id)
        };
        let Some(arena) = freed else { return };
        let _ = std::fs::remove_file(self.place_path(id)); // of an object that is not there it says nothing
        self.settle_arena(arena);
    }

    /// Whoever dies, objects are where they were noted to be. What is nobody's goes.
    pub(super) fn adopt_places(self: &Arc<Self>) {
        let objects = self.all_objects();
        objects.iter().for_each(|object| self.note_arena(object));
        for object in objects.iter().filter(|object| object.record().options.is_wired()) {
            let Ok(bytes) = std::fs::read(self.place_path(object.id)) else { continue }; // it has its own memory
            let noted = postcard::from_bytes::<Noted>(&bytes).ok(); // damaged: gone
            let is_over = |noted: &Noted| {
                let arena = noted.place.map(|place| place.arena);
                noted.boot_id != self.machine.boot_id || arena.is_some_and(|id| self.object(id).is_err())
            };
            if object.record().options.is_fetched() && noted.as_ref().is_some_and(is_over) {
                self.is_in_memory(object); // as its pager has it: it is fetched when it is opened
                continue;
            }
            let noted = noted.filter(|noted| noted.boot_id == self.machine.boot_id).ok_or_else(gone);
            if let Err(error) = noted.and_then(|noted| self.adopt_place(object, noted.place)) {
                object.set_unusable(error.message);
            }
        }
        let arenas: Vec<ObjectId> = lock(&self.wired).all().collect();
        arenas.into_iter().for_each(|arena| self.settle_arena(arena));
    }

    fn adopt_place(&self, object: &Object, place: Option<Place>) -> Result<()> {
        let Some(place) = place else {
            lock(&self.wired).is_swapped_out(object.id);
            return Ok(());
        };
        lock(&self.wired).adopt(object.id, place, object.record().options.size_bytes)?;
        self.is_in_memory(object);
        if let Ok(memory) = self.memory_at(place) {
            object.set_descriptor(memory);
        }
        Ok(())
    }

    /// Arenas of which a client that is expected back has something open, or the arena.
    pub(super) fn expected_arenas(&self) -> HashSet<ObjectId> {
        let all: Vec<(ObjectId, ObjectId)> = lock(&self.wired).placed().collect();
        let expects = |id: &ObjectId| self.returning.expects(*id);
        all.into_iter().filter(|(id, arena)| expects(id) || expects(arena)).map(|(_, arena)| arena).collect()
    }

    /// Whether an object is one of these arenas, or lies in one, or on disk.
    pub(super) fn is_of_arena(&self, id: ObjectId, arenas: &HashSet<ObjectId>) -> bool {
        let wired = lock(&self.wired);
        wired.is_on_disk(id) || arenas.contains(&wired.place_of(id).map_or(id, |place| place.arena))
    }

    /// These objects, and all that lies in the same arenas, and those: it is there or lost together.
    pub(super) fn with_neighbours(&self, objects: &[Arc<Object>]) -> Vec<Arc<Object>> {
        let wired = lock(&self.wired);
        let arenas: HashSet<ObjectId> =
            objects.iter().filter_map(|object| Some(wired.place_of(object.id)?.arena)).collect();
        let mut more: HashSet<ObjectId> =
            wired.placed().filter(|(_, arena)| arenas.contains(arena)).map(|(id, _)| id).collect();
        drop(wired);
        more.extend(arenas);
        for object in objects {
            more.remove(&object.id);
        }
        objects.iter().cloned().chain(more.into_iter().filter_map(|id| self.object(id).ok())).collect()
    }

    /// Those are lost.
    pub(super) fn forget_places(&self, lost: &[ObjectId]) {
        let mut wired = lock(&self.wired);
        for id in lost {
            wired.free(*id);
        }
        for id in lost {
            wired.remove_empty(*id);
        }
    }

    /// Before an object is given to a client, who gets its arena with it: only those may reach that who may reach the object. After
    /// a change of its name, owner or mode it moves to another arena. The caller holds `making`.
    pub(super) fn settle_place(self: &Arc<Self>, object: &Object) -> Result<()> {
        if lock(&self.wired).is_on_disk(object.id) {
            self.swap_in(object)?;
        } else {
            self.fetch_if_missing(object)?;
        }
        let Some(place) = self.place_in_arena(object.id) else { return Ok(()) };
        lock(&self.wired).is_opened(object.id);
        self.wait_for_arena(place)?;
        let arena = self.object(place.arena)?;
        let (class, size) = {
            let record = object.record();
            (Class::of(&record), record.options.size_bytes)
        };
        if class.is_some() && class == Class::of(&arena.record()) {
            return Ok(());
        }
        let class = class.ok_or_else(gone)?;
        if self.is_in_the_way(object) {
            let what = "name, owner or mode of the object changed while it was in use: it can be opened when nobody has it open";
            return Err(Error::new(ErrorKind::Busy, what));
        }
        self.relocate(object, size, &class)
    }

    /// Of an object that was settled, and that counts as open by now: refuses it to whoever may not have it any more, and if it is
    /// not among its like any more. Its name, owner and mode may have changed before it counted as open, and do not change now.
    pub(super) fn check_settled(&self, session: &Session, object: &Object, access: Access) -> Result<()> {
        self.check_settled_and(session, object, access, || {})
    }

    /// The same; `then` is done before any of that can change.
    pub(super) fn check_settled_and<T>(
        &self,
        session: &Session,
        object: &Object,
        access: Access,
        then: impl FnOnce() -> T,
    ) -> Result<T> {
        let Some(place) = self.place_in_arena(object.id) else { return Ok(then()) };
        let arena = self.object(place.arena)?;
        let registry = lock(&self.registry);
        let record = object.record().clone();
        let class = Class::of(&record);
        let Some(name) = record.name.filter(|_| class == Class::of(&arena.record())) else {
            let what = "the object's name, owner or mode has changed just now: open it again";
            return Err(Error::new(ErrorKind::Busy, what));
        };
        // Its owner may have made it, and not be allowed to open it.
        if record.ownership.uid != session.credentials.uid {
            registry.lookup(&name, &session.credentials, access)?;
        }
        let done = then();
        drop(registry);
        Ok(done)
    }

    /// Waits until somebody has brought the arena back.
    pub(super) fn wait_for_arena(&self, place: Place) -> Result<()> {
        if self.memory_at(place).is_err() {
            let neighbours = lock(&self.wired).objects_in(place.arena);
            // Whoever has one of them open, or the arena itself, brings the arena back.
            for other in neighbours.into_iter().chain([place.arena]) {
                self.returning
                    .wait_for(other)
                    .or_else(|why| self.memory_at(place).map(drop).map_err(|_| why))?;
                if self.memory_at(place).is_ok() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Moves an object that nobody has open to a place of another size, or in another arena.
    fn relocate(self: &Arc<Self>, object: &Object, bytes: u64, class: &Class) -> Result<()> {
        let from = self.place_in_arena(object.id).ok_or_else(gone)?;
        let source = self.memory_at(from)?;
        let had = object.record().options.size_bytes.min(bytes);
        self.place_anew(object, bytes, class, had, |target, offset| {
            copy(&*source, from.offset_bytes, target, offset, had).doing("moving a wired object")
        })
    }

    /// Gives an object another place, of which `fill` makes so many bytes what they are to be; the rest is zero.
    pub(super) fn place_anew(
        self: &Arc<Self>,
        object: &Object,
        bytes: u64,
        class: &Class,
        filled: u64,
        fill: impl FnOnce(&OwnedFd, u64) -> Result<()>,
    ) -> Result<()> {
        // Two places at once: the new one is kept under a number that no object has.
        let meanwhile = ObjectId(u64::MAX - object.id.0);
        let place = self.find_place(meanwhile, bytes, class)?;
        let ready = self.memory_at(place).and_then(|memory| {
            let rest = pages_of(bytes) * PAGE_SIZE_BYTES - filled;
            fill(&memory, place.offset_bytes)?;
            zero(&*memory, place.offset_bytes + filled, rest).doing("zeroing the object's new place")?;
            self.note_place(object.id, Some(place)).map(|()| memory)
        });
        let left = match &ready {
            Ok(memory) => {
                object.set_descriptor(memory.clone());
                lock(&self.wired).replace(object.id, meanwhile)
            }
            Err(_) => lock(&self.wired).free(meanwhile),
        };
        left.into_iter().for_each(|arena| self.settle_arena(arena));
        ready.map(drop)
    }

    /// Gives an object in an arena another size; what it did not have is zero. The caller holds `making`.
    pub(super) fn resize_wired(self: &Arc<Self>, object: &Object, old_bytes: u64, bytes: u64) -> Result<()> {
        let place = self.place_in_arena(object.id).ok_or_else(gone)?;
        let resized = lock(&self.wired).resize(object.id, bytes)?;
        match resized {
            Resized::InPlace => {}
            Resized::Elsewhere if !self.is_in_the_way(object) => {
                let class = Class::of(&object.record()).ok_or_else(gone)?;
                return self.relocate(object, bytes, &class);
            }
            Resized::Elsewhere => {
                let what = "the object is open, so that it stays where it is, and what lies behind it is taken: close it first";
                return Err(Error::new(ErrorKind::Busy, what));
            }
        }
        if bytes <= old_bytes {
            return Ok(());
        }
        let more = pages_of(bytes) * PAGE_SIZE_BYTES - old_bytes;
        let zeroed = self.memory_at(place).and_then(|memory| {
            zero(&*memory, place.offset_bytes + old_bytes, more).doing("zeroing what is new of the object")
        });
        zeroed.inspect_err(|_| {
            let _ = lock(&self.wired).resize(object.id, old_bytes); // shorter is always in place
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::is_of_the_state;

    #[test]
    fn notes_are_those_of_their_version() {
        let place = Place { arena: ObjectId(2), offset_bytes: 3 << 21, arena_bytes: 8 << 21 };
        is_of_the_state("wired", &Noted { boot_id: "boot".into(), place: Some(place) });
    }
}
