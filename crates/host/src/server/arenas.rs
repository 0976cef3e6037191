//! Arenas of wired objects: made when an object finds no room, given up with the last one, brought back by clients. Who had an arena
//! has it still: so it keeps its name, owner and mode.

use super::object::Object;
use super::wired::{Class, gone};
use super::{Host, lock, tables};
use commonhold_object::{
    CreateOptions, Credentials, Error, ErrorKind, Name, ObjectId, Ownership, Place, Result, Translation,
};
use commonhold_registry::{Entry, Prepared, Registry};
use commonhold_sys::frames;
use commonhold_tables::HUGE;
use commonhold_wired::{DESCRIPTION, NAME};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A new arena is as large as those that its class has, up to this, or as its first object needs.
const LARGEST: u64 = 1 << 30;
/// So many names are tried for a new arena.
const NAMES: u32 = 100_000;

/// Root's rights, for what the host does by itself.
fn root() -> Credentials {
    Credentials { uid: 0, gid: 0, groups: Vec::new() }
}

impl Host {
    /// The arenas of a class whose memory is there.
    pub(super) fn arenas_of(&self, class: &Class) -> Vec<ObjectId> {
        let all: Vec<ObjectId> = lock(&self.wired).all().collect();
        let of_it = |id: &ObjectId| {
            self.object(*id).is_ok_and(|arena| {
                Class::of(&arena.record()).as_ref() == Some(class) && arena.descriptor().is_some()
            })
        };
        all.into_iter().filter(of_it).collect()
    }

    /// Makes an arena for a class, for its owner's account. None: another just did.
    pub(super) fn make_arena(
        self: &Arc<Self>,
        class: &Class,
        bytes: u64,
        has: u64,
    ) -> Result<Option<ObjectId>> {
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
            description: DESCRIPTION.to_owned(),
            ..CreateOptions::default()
        };
        options.check()?;
        self.check_room_for_tables(&options, uid)?;
        let charged = self.limits.counted(uid, &options, 0);
        let prefix = if class.directory.as_str() == "/" { "" } else { class.directory.as_str() };
        for number in 1..NAMES {
            let name = Name::new(&format!("{prefix}/{NAME}{number}"))?;
            let prepared = {
                let mut registry = lock(&self.registry);
                // The owner has an object in it, or is about to, and may add no names himself.
                let is_there = registry.check_is_in_directory(&name).is_ok();
                let by = if is_there { root() } else { who.clone() };
                let prepared =
                    registry.prepare_create_for((&by, &who), &name, options.clone(), None, 0, charged);
                prepared.map(|prepared| (prepared, is_there))
            };
            let prepared = prepared.map(|(mut prepared, is_there)| {
                if let Prepared::New(new) = &mut prepared {
                    new.only_in_directory(is_there);
                }
                prepared
            });
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
                Ok((tables, fd)) => match self.commit_create(prepared, (Some(fd), None), tables) {
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
        if tables::is_arena(&options) {
            lock(&self.wired).add(object.id, options.size_bytes);
        }
    }

    pub(super) fn settle_arena(self: &Arc<Self>, id: ObjectId) {
        let Ok(arena) = self.object(id) else {
            lock(&self.wired).remove_empty(id); // somebody removed it
            return;
        };
        // Under this lock its name is its own: a directory that is renamed takes it along.
        let mut registry = lock(&self.registry);
        let name = arena.record().name.clone().filter(|name| name.last().starts_with(NAME));
        let Some(name) = name.filter(|_| lock(&self.wired).remove_empty(id)) else { return };
        if let Err(error) = registry.remove(&name, &root(), false) {
            self.note_arena(&arena);
            return self.machine.log(format_args!("arena {name}: {error}"));
        }
        arena.record().name = None;
        drop(registry);
        self.settle_object(id);
    }

    /// An arena that ended gives its huge pages back at once: the keeper, and clients that had it,
    /// let go of it only later, and whoever it makes room for looks for them next.
    pub(super) fn give_pages_back(&self, arena: &Object) {
        let bytes = arena.record().options.size_bytes;
        let punched = arena.descriptor().map_or(Ok(()), |memory| frames::punch(&*memory, 0, bytes));
        if let Err(error) = punched {
            self.machine.log(format_args!("arena {}: its pages come back later: {error}", arena.id.0));
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
        self.share_memory(&arena)
    }

    /// All objects in an arena have its memory.
    pub(super) fn share_memory(&self, arena: &Object) -> Result<()> {
        let memory = arena.descriptor().ok_or_else(gone)?;
        let objects = lock(&self.wired).objects_in(arena.id);
        for object in objects.into_iter().filter_map(|id| self.object(id).ok()) {
            object.set_descriptor(memory.clone());
        }
        Ok(())
    }

    /// Refuses to let an arena go that is in use.
    pub(super) fn check_may_go(&self, registry: &Registry, name: &Name, who: &Credentials) -> Result<()> {
        if lock(&self.wired).is_empty() {
            return Ok(());
        }
        // Who may not look at it is refused by what follows.
        let Ok(Entry::Object(record)) = registry.stat(name, who) else { return Ok(()) };
        let objects = lock(&self.wired).objects_in(record.id).len();
        match objects {
            0 => Ok(()),
            objects => {
                let text = format!("{name} is the arena of {objects} wired objects: remove those first");
                Err(Error::new(ErrorKind::Busy, text))
            }
        }
    }

    /// Refuses another name, owner or mode: of an arena, and of a wired object or a channel that somebody has open. Who had an arena
    /// before has it still; who writes a channel may have others write to wired objects of its class.
    /// `owner`: who owns it then, where that changes.
    pub(super) fn check_may_change(
        &self,
        registry: &Registry,
        name: &Name,
        who: &Credentials,
        owner: Option<u32>,
    ) -> Result<()> {
        let Ok(Entry::Object(record)) = registry.stat(name, who) else { return Ok(()) };
        let refused = |text| Err(Error::new(ErrorKind::Busy, text));
        if tables::is_arena(&record.options) {
            return refused(format!(
                "{name} is an arena of wired objects, which keeps its name, owner and mode: remove it, and make another one"
            ));
        }
        let object = self.object(record.id);
        if record.options.is_channel()
            && let Ok(object) = &object
        {
            self.check_channel_may_change(object, name, owner.unwrap_or(record.ownership.uid))?;
        }
        if record.options.is_wired() && object.is_ok_and(|object| self.is_in_the_way(&object)) {
            return refused(format!(
                "{name} is wired and open: with another name, owner or mode it would lie in another arena; close it first"
            ));
        }
        Ok(())
    }
}
