//! Wired objects: places in arenas. An arena is an object with shared page tables in the same directory, of the same owner, group
//! and mode: whoever may reach one object of an arena may reach all of them, for its descriptor gives all. So nothing is given
//! before it is seen that this holds (`settle_place`). `docs/REAL-MEMORY.md`.

use super::object::Object;
use super::session::Session;
use super::{Host, lock, tables};
use commonhold_object::error::Doing;
use commonhold_object::{
    CreateOptions, Credentials, Error, ErrorKind, Name, ObjectId, Ownership, PAGE_SIZE_BYTES, Place, Result,
    Translation, pages_of,
};
use commonhold_registry::{Entry, ObjectRecord, Prepared, Registry};
use commonhold_sys::frames;
use commonhold_tables::HUGE;
use commonhold_wired::{NAME, Resized, TAG, Transfer, copy, zero};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A new arena is as large as those that its class has, up to this, or as its first object needs.
const LARGEST: u64 = 1 << 30;
/// So many names are tried for a new arena.
const NAMES: u32 = 100_000;

/// Who may reach an object: objects of a class may lie in one arena.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    directory: Name,
    ownership: Ownership,
}

impl Class {
    /// None: the object has no name any more.
    fn of(record: &ObjectRecord) -> Option<Class> {
        Some(Class { directory: record.name.as_ref()?.parent(), ownership: record.ownership })
    }
}

/// Where an object lies, for `live/<id>.wired`.
#[derive(Serialize, Deserialize)]
struct Noted {
    boot_id: String,
    place: Place,
}

/// Root's rights, for what the host does by itself.
fn root() -> Credentials {
    Credentials { uid: 0, gid: 0, groups: Vec::new() }
}

fn is_arena(options: &CreateOptions) -> bool {
    options.translation == Translation::SharedTables && options.tag == TAG
}

fn gone() -> Error {
    Error::new(
        ErrorKind::Lost,
        "the memory of the object's arena is gone: remove the object and create it again",
    )
}

impl Host {
    /// Gives a new object a place, which is zero. `NoSpace` and `Unsupported`: the machine has no huge pages for it.
    pub(super) fn place_new(self: &Arc<Self>, record: &ObjectRecord) -> Result<Arc<OwnedFd>> {
        let class = Class::of(record).ok_or_else(gone)?;
        let (id, bytes) = (record.id, record.options.size_bytes);
        let place = self.find_place(id, bytes, &class)?;
        let ready = self.memory_at(place).and_then(|memory| {
            let length = pages_of(bytes) * PAGE_SIZE_BYTES;
            zero(&*memory, place.offset_bytes, length).doing("zeroing the object's place")?;
            self.note_place(id, place).map(|()| memory)
        });
        ready.inspect_err(|_| self.free_place(id))
    }

    /// Gives an object memory of its own, where the machine has no huge pages.
    pub(super) fn make_own(&self, record: &ObjectRecord) -> Result<Arc<OwnedFd>> {
        let bytes = record.options.size_bytes;
        super::status::check_memory_for(bytes)?;
        let fd = frames::create("commonhold-object", bytes).doing("making memory for the object")?;
        self.note_memory(record.id, &fd)?;
        frames::allocate(&fd, 0, bytes).doing("reserving memory for the object")?;
        Ok(Arc::new(fd))
    }

    fn memory_at(&self, place: Place) -> Result<Arc<OwnedFd>> {
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
    fn find_place(self: &Arc<Self>, id: ObjectId, bytes: u64, class: &Class) -> Result<Place> {
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
            let found = lock(&self.wired).allocate(id, bytes, &among);
            if let Some(place) = found {
                return Ok(place);
            }
            if !self.move_one(bytes, &among)? {
                let has: u64 = among
                    .iter()
                    .filter_map(|arena| self.object(*arena).ok())
                    .map(|a| a.record().options.size_bytes)
                    .sum();
                made.extend(self.make_arena(class, bytes, has)?);
            }
        }
    }

    /// The arenas of a class whose memory is there.
    fn arenas_of(&self, class: &Class) -> Vec<ObjectId> {
        let all: Vec<ObjectId> = lock(&self.wired).all().collect();
        let of_it = |id: &ObjectId| {
            self.object(*id).is_ok_and(|arena| {
                Class::of(&arena.record()).as_ref() == Some(class) && arena.descriptor().is_some()
            })
        };
        all.into_iter().filter(of_it).collect()
    }

    /// Makes an arena for a class, for its owner's account. None: another just did.
    fn make_arena(self: &Arc<Self>, class: &Class, bytes: u64, has: u64) -> Result<Option<ObjectId>> {
        let least = bytes
            .checked_next_multiple_of(HUGE)
            .ok_or_else(|| Error::invalid("the size is past any arena's"))?;
        let wanted = least.max(has.min(LARGEST));
        match self.make_arena_of(class, wanted) {
            // A smaller one may do.
            Err(error) if wanted > least && matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Quota) => {
                self.make_arena_of(class, least)
            }
            other => other,
        }
    }

    fn make_arena_of(self: &Arc<Self>, class: &Class, size_bytes: u64) -> Result<Option<ObjectId>> {
        let Ownership { uid, gid, mode } = class.ownership;
        let who = Credentials { uid, gid, groups: Vec::new() };
        let options = CreateOptions {
            size_bytes,
            translation: Translation::SharedTables,
            mode,
            tag: TAG.to_owned(),
            ..CreateOptions::default()
        };
        options.check()?;
        self.check_room_for_tables(&options, uid)?;
        let charged = self.limits.counted(uid, &options, 0);
        let prefix = if class.directory.as_str() == "/" { "" } else { class.directory.as_str() };
        for number in 1..NAMES {
            let name = Name::new(&format!("{prefix}/{NAME}{number}"))?;
            let prepared =
                lock(&self.registry).prepare_create(&name, &who, options.clone(), None, 0, charged);
            let prepared = match prepared {
                Ok(Prepared::New(prepared)) => prepared,
                Ok(Prepared::Exists(_)) => continue,
                Err(error) if error.kind == ErrorKind::Exists => continue,
                Err(error) => return Err(error),
            };
            let id = prepared.record().id;
            let made = tables::make(&options, uid).and_then(|fd| {
                self.note_memory(id, &fd)?;
                let fd = Arc::new(fd);
                self.keep_new_object(id, Some(&fd))?;
                Ok((tables::begin(&options, Some(&*fd))?, fd))
            });
            return match made {
                Ok((tables, fd)) => match self.commit_create(prepared, Some(fd), tables) {
                    Ok(arena) => {
                        lock(&self.wired).add(arena.id, size_bytes);
                        Ok(Some(arena.id))
                    }
                    Err(error) if error.kind == ErrorKind::Exists => Ok(None),
                    Err(error) => Err(error),
                },
                Err(error) => {
                    self.unkeep_object(id);
                    self.remove_files(id);
                    lock(&self.registry).abandon_create(prepared);
                    Err(error)
                }
            };
        }
        Err(Error::new(ErrorKind::TooMany, "the directory has too many arenas"))
    }

    /// An object that is somebody's arena from now on.
    pub(super) fn note_arena(&self, object: &Object) {
        let options = object.record().options.clone();
        if is_arena(&options) {
            lock(&self.wired).add(object.id, options.size_bytes);
        }
    }

    /// Whether somebody may have the object mapped: has it open, or is expected back and had.
    fn is_open(&self, object: &Object) -> bool {
        object.opens.load(Ordering::Acquire) > 0 || self.returning.expects(object.id)
    }

    /// Makes the next of those moves by which an object of so many bytes finds room; whether there was one. Whoever opens the
    /// moving object meanwhile waits.
    fn move_one(self: &Arc<Self>, bytes: u64, among: &[ObjectId]) -> Result<bool> {
        // One that is not known is being made, moved or removed.
        let stays = |id: ObjectId| {
            self.object(id).map_or(true, |object| self.is_open(&object) || object.making.try_lock().is_err())
        };
        let begun = lock(&self.wired).begin_move(bytes, among, stays);
        let Some(transfer) = begun else { return Ok(false) };
        let moved = self.carry_out(&transfer);
        if moved.is_err() {
            lock(&self.wired).abandon_move(&transfer);
        }
        match self.object(transfer.object) {
            Ok(_) => self.settle_object(transfer.object), // its name may have gone meanwhile
            Err(_) => self.free_place(transfer.object),   // it ended, and its place could not be freed
        }
        match moved {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind, ErrorKind::Busy | ErrorKind::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn carry_out(&self, transfer: &Transfer) -> Result<()> {
        let object = self.object(transfer.object)?;
        let _held = object.hold()?;
        let _making =
            object.making.try_lock().map_err(|_| Error::new(ErrorKind::Busy, "it is being opened"))?;
        if self.is_open(&object) {
            return Err(Error::new(ErrorKind::Busy, "it was opened"));
        }
        let memory = self.memory_at(transfer.from)?;
        let (from, to) = (transfer.from.offset_bytes, transfer.to.offset_bytes);
        copy(&*memory, from, &*memory, to, transfer.length).doing("moving a wired object")?;
        self.note_place(transfer.object, transfer.to)?;
        lock(&self.wired).finish_move(transfer);
        Ok(())
    }

    fn place_path(&self, id: ObjectId) -> PathBuf {
        self.machine.path("live", id).with_extension("wired")
    }

    /// Writes down where an object lies: whole, whoever dies.
    fn note_place(&self, id: ObjectId, place: Place) -> Result<()> {
        let bytes = postcard::to_stdvec(&Noted { boot_id: self.machine.boot_id.clone(), place });
        let (path, new) = (self.place_path(id), self.place_path(id).with_extension("wired-new"));
        let written =
            std::fs::write(&new, bytes.unwrap_or_default()).and_then(|()| std::fs::rename(&new, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        written.doing("noting the object's place")
    }

    /// Nobody needs an object's place any more. An arena that the host made goes with the last one.
    pub(super) fn free_place(self: &Arc<Self>, id: ObjectId) {
        let freed = lock(&self.wired).free(id);
        let Some(arena) = freed else { return };
        let _ = std::fs::remove_file(self.place_path(id)); // of an object that is not there it says nothing
        self.settle_arena(arena);
    }

    fn settle_arena(self: &Arc<Self>, id: ObjectId) {
        let Ok(arena) = self.object(id) else { return };
        let name = arena.record().name.clone().filter(|name| name.last().starts_with(NAME));
        let Some(name) = name.filter(|_| lock(&self.wired).remove_empty(id)) else { return };
        let removed = lock(&self.registry).remove(&name, &root(), false);
        match removed {
            Ok(_) => arena.record().name = None,
            Err(error) => {
                self.note_arena(&arena);
                return self.machine.log(format_args!("arena {name}: {error}"));
            }
        }
        self.settle_object(id);
    }

    /// Whoever dies, objects are where they were noted to be. What is nobody's goes.
    pub(super) fn adopt_places(self: &Arc<Self>) {
        let objects = self.all_objects();
        objects.iter().for_each(|object| self.note_arena(object));
        for object in objects.iter().filter(|object| object.record().options.is_wired()) {
            let Ok(bytes) = std::fs::read(self.place_path(object.id)) else { continue }; // it has its own memory
            let noted = postcard::from_bytes::<Noted>(&bytes).ok();
            let noted = noted.filter(|noted| noted.boot_id == self.machine.boot_id).ok_or_else(gone);
            let size = object.record().options.size_bytes;
            let adopted =
                noted.and_then(|noted| lock(&self.wired).adopt(object.id, noted.place, size).map(|()| noted));
            match adopted {
                Ok(noted) => {
                    if let Ok(memory) = self.memory_at(noted.place) {
                        object.set_descriptor(memory);
                    }
                }
                Err(error) => object.set_unusable(error.message),
            }
        }
        let arenas: Vec<ObjectId> = lock(&self.wired).all().collect();
        arenas.into_iter().for_each(|arena| self.settle_arena(arena));
    }

    /// Arenas of which a client that is expected back has something open, or the arena.
    pub(super) fn expected_arenas(&self) -> HashSet<ObjectId> {
        let all: Vec<(ObjectId, ObjectId)> = lock(&self.wired).placed().collect();
        let expects = |id: &ObjectId| self.returning.expects(*id);
        all.into_iter().filter(|(id, arena)| expects(id) || expects(arena)).map(|(_, arena)| arena).collect()
    }

    /// Whether an object is one of these arenas, or lies in one.
    pub(super) fn is_of_arena(&self, id: ObjectId, arenas: &HashSet<ObjectId>) -> bool {
        arenas.contains(&self.place_in_arena(id).map_or(id, |place| place.arena))
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
        more.retain(|id| !objects.iter().any(|object| object.id == *id));
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

    /// A client brought back the arena of an object that it has open: all objects in it have their memory again.
    pub(super) fn return_arena(&self, place: Place, memory: OwnedFd) -> Result<()> {
        let arena = self.object(place.arena)?;
        if arena.descriptor().is_none() {
            let options = arena.record().options.clone();
            let memory = tables::own_segment(&options, memory)?;
            arena.set_descriptor(Arc::new(self.own_memory(arena.id, memory)?));
            self.hold_tables(&arena);
            self.keep_object(&arena);
        }
        let memory = arena.descriptor().ok_or_else(gone)?;
        let objects = lock(&self.wired).objects_in(place.arena);
        for object in objects.into_iter().filter_map(|id| self.object(id).ok()) {
            object.set_descriptor(memory.clone());
        }
        Ok(())
    }

    /// Before an object is given to a client, who gets its arena with it: only those may reach that who may reach the object. After
    /// a change of its name, owner or mode it moves to another arena. The caller holds `making`.
    pub(super) fn settle_place(self: &Arc<Self>, object: &Object) -> Result<()> {
        let Some(place) = self.place_in_arena(object.id) else { return Ok(()) };
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
        if self.is_open(object) {
            let what = "name, owner or mode of the object changed while it was in use: it can be opened when nobody has it open";
            return Err(Error::new(ErrorKind::Busy, what));
        }
        self.relocate(object, size, &class)
    }

    /// Waits until somebody has brought the arena back.
    fn wait_for_arena(&self, place: Place) -> Result<()> {
        if self.memory_at(place).is_err() {
            let neighbours = lock(&self.wired).objects_in(place.arena);
            // Whoever has one of them open brings the arena back.
            for other in neighbours {
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
        // Two places at once: the new one is kept under a number that no object has.
        let meanwhile = ObjectId(u64::MAX - object.id.0);
        let from = self.place_in_arena(object.id).ok_or_else(gone)?;
        let had = object.record().options.size_bytes.min(bytes);
        let to = self.find_place(meanwhile, bytes, class)?;
        let moved = self.memory_at(from).and_then(|source| {
            let target = self.memory_at(to)?;
            let length = pages_of(bytes) * PAGE_SIZE_BYTES;
            zero(&*target, to.offset_bytes, length).doing("zeroing the object's new place")?;
            copy(&*source, from.offset_bytes, &*target, to.offset_bytes, had)
                .doing("moving a wired object")?;
            self.note_place(object.id, to)?;
            Ok(target)
        });
        match moved {
            Ok(memory) => {
                object.set_descriptor(memory);
                let left = lock(&self.wired).replace(object.id, meanwhile);
                left.into_iter().for_each(|arena| self.settle_arena(arena));
                Ok(())
            }
            Err(error) => {
                let left = lock(&self.wired).free(meanwhile);
                left.into_iter().for_each(|arena| self.settle_arena(arena));
                Err(error)
            }
        }
    }

    /// Gives an object in an arena another size; what it did not have is zero.
    pub(super) fn resize_wired(self: &Arc<Self>, object: &Object, old_bytes: u64, bytes: u64) -> Result<()> {
        let _making = lock(&object.making);
        let place = self.place_in_arena(object.id).ok_or_else(gone)?;
        self.wait_for_arena(place)?;
        let resized = lock(&self.wired).resize(object.id, bytes)?;
        match resized {
            Resized::InPlace => {}
            Resized::Elsewhere if !self.is_open(object) => {
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

    /// Refuses to let an arena go that is in use.
    pub(super) fn check_may_go(&self, registry: &Registry, name: &Name) -> Result<()> {
        let Ok(Entry::Object(record)) = registry.stat(name, &root()) else { return Ok(()) };
        let objects = lock(&self.wired).objects_in(record.id).len();
        match objects {
            0 => Ok(()),
            objects => {
                let text = format!("{name} is the arena of {objects} wired objects: remove those first");
                Err(Error::new(ErrorKind::Busy, text))
            }
        }
    }

    /// Refuses another name, owner or mode: of an arena in use, and of an object in one that somebody has open.
    pub(super) fn check_may_change(&self, registry: &Registry, name: &Name) -> Result<()> {
        self.check_may_go(registry, name)?;
        let Ok(Entry::Object(record)) = registry.stat(name, &root()) else { return Ok(()) };
        // One after the other: who looks for what can move has the places locked, and looks at the objects.
        let is_open = self.object(record.id).is_ok_and(|object| self.is_open(&object));
        if is_open && self.place_in_arena(record.id).is_some() {
            let text = format!(
                "{name} is wired and open: with another name, owner or mode it would lie in another arena; close it first"
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(())
    }
}
