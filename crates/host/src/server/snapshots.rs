//! Snapshots: objects that have the pages of another as they were at one instant (`docs/SNAPSHOTS.md`).
//!
//! `live/<id>.of` of a snapshot says what it is of as long as it lacks pages. It is written before the instant, and before the
//! snapshot has a name; it is replaced before anything relies on another one.

use super::object::Object;
use super::session::Session;
use super::snapshots_asked::{check_can_have, past_end, range_of};
use super::{Host, lock};
use crate::cache::{Cache, Family, Parent};
use commonhold_object::error::Doing;
use commonhold_object::wire::{Reply, SnapshotRequest};
use commonhold_object::{
    Access, CreateOptions, Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PageRange, PagerKind, Result,
    pages_of,
};
use commonhold_registry::{NewObject, ObjectRecord, Prepared, Registry};
use commonhold_versions::{DEPTH, Link, Versions};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, Weak};

/// What is known of all snapshots. Nothing is waited for while it is locked.
#[derive(Default)]
pub(super) struct Snapshots {
    pub(super) versions: Versions<ObjectId>,
    /// Those that lack pages that nobody has any more, and why.
    pub(super) broken: BTreeMap<ObjectId, Error>,
    /// Those that are being given what they lack of an object that nobody else uses.
    pub(super) leaving: HashSet<ObjectId>,
    /// Those that are to be whole: the next host goes on with it.
    to_be_whole: HashSet<ObjectId>,
}

/// What `live/<id>.of` has after its first byte.
#[derive(Serialize, Deserialize)]
struct Noted {
    boot_id: String,
    parent: ObjectId,
    first_page: u64,
    pages: u64,
}

/// The first byte: overwritten in place, which also a full disk has room for.
const USABLE: u8 = 0;
const BROKEN: u8 = 1;
const TO_BE_WHOLE: u8 = 2;

struct Objects(Weak<Host>);

impl Objects {
    fn host(&self) -> Result<Arc<Host>> {
        self.0.upgrade().ok_or_else(|| Error::new(ErrorKind::Disconnected, "the host ends"))
    }
}

impl Family for Objects {
    fn cache(&self, id: ObjectId) -> Result<Arc<Cache>> {
        let host = self.host()?;
        let object = host.object(id)?;
        host.cache_of(&object)
    }

    fn parent(&self, id: ObjectId) -> Result<Option<Parent>> {
        let host = self.host()?;
        let link = {
            let snapshots = lock(&host.snapshots);
            if let Some(error) = snapshots.broken.get(&id) {
                return Err(error.clone());
            }
            snapshots.versions.of(id)
        };
        let Some(link) = link else { return Ok(None) };
        Ok(Some((link, host.object(link.parent).ok().and_then(|parent| parent.cache()))))
    }

    fn wait_for(&self, id: ObjectId) -> Result<()> {
        let host = self.host()?;
        host.returning.wait_for(id)?;
        host.settle_returned();
        match host.object(id).ok().filter(|object| object.left_frames().is_some()) {
            Some(object) => host.cache_of(&object).map(drop),
            None => Ok(()),
        }
    }

    fn is_broken(&self, id: ObjectId, why: &Error) {
        if let Ok(host) = self.host() {
            host.break_snapshot(id, why);
        }
    }
}

impl Host {
    fn of_path(&self, id: ObjectId) -> PathBuf {
        self.machine.path("live", id).with_extension("of")
    }

    pub(super) fn note_of(&self, id: ObjectId, link: Link<ObjectId>) -> Result<()> {
        let Link { parent, first_page, pages } = link;
        let noted = Noted { boot_id: self.machine.boot_id.clone(), parent, first_page, pages };
        let to_be_whole = lock(&self.snapshots).to_be_whole.contains(&id);
        let bytes = postcard::to_extend(&noted, vec![if to_be_whole { TO_BE_WHOLE } else { USABLE }]);
        let bytes = bytes.map_err(|_| Error::invalid("a note of a snapshot"))?;
        let (path, new) = (self.of_path(id), self.of_path(id).with_extension("of-new"));
        std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &path)).doing("noting a snapshot")
    }

    /// What snapshots are of, as the host before noted it. Before any cache is there.
    pub(super) fn read_snapshots(self: &Arc<Self>, records: &[ObjectRecord]) {
        self.machine.set_family(Box::new(Objects(Arc::downgrade(self))));
        let mut snapshots = lock(&self.snapshots);
        for record in records {
            let Ok(bytes) = std::fs::read(self.of_path(record.id)) else { continue };
            let Some((flag, bytes)) = bytes.split_first() else { continue };
            let noted = postcard::from_bytes::<Noted>(bytes).ok();
            let Some(noted) = noted.filter(|noted| noted.boot_id == self.machine.boot_id) else { continue };
            let Noted { parent, first_page, pages, .. } = noted;
            if *flag == BROKEN {
                snapshots.broken.insert(record.id, not_whole("a page of it was lost before this host began"));
                continue;
            }
            snapshots.versions.link(record.id, Link { parent, first_page, pages });
            if *flag == TO_BE_WHOLE {
                snapshots.to_be_whole.insert(record.id);
            }
        }
    }

    /// What the host before had begun to make whole.
    pub(super) fn go_on_with_whole(self: &Arc<Self>) {
        let to_be_whole: Vec<_> = lock(&self.snapshots).to_be_whole.iter().copied().collect();
        to_be_whole.iter().filter_map(|id| self.object(*id).ok()).for_each(|one| self.make_whole_soon(&one));
    }

    /// Why a snapshot cannot be used; empty if it can.
    pub(super) fn why_not_whole(&self, id: ObjectId) -> String {
        lock(&self.snapshots).broken.get(&id).map(|error| error.message.clone()).unwrap_or_default()
    }

    /// What a cache must know before anybody uses it: its snapshots.
    pub(super) fn tell_of_snapshots(&self, cache: &Cache) {
        let children = lock(&self.snapshots).versions.children(cache.id);
        children.into_iter().for_each(|(id, link)| cache.has_snapshot(id, link, Weak::new(), false));
    }

    /// The frames of an object are new: what its snapshots lack is lost.
    pub(super) fn break_snapshots_of(self: &Arc<Self>, id: ObjectId) {
        let why = "what it lacks was in the memory of the object that it is a snapshot of, and is lost";
        let children = lock(&self.snapshots).versions.children(id);
        children.into_iter().for_each(|(id, _)| self.break_snapshot(id, &Error::new(ErrorKind::Lost, why)));
    }

    /// Of a snapshot: whether what it lacks may have to come from another process.
    pub(super) fn parent_blocks(&self, id: ObjectId) -> Option<bool> {
        let above = {
            let snapshots = lock(&self.snapshots);
            if snapshots.broken.contains_key(&id) {
                return Some(false); // it lacks pages still
            }
            let mut above = snapshots.versions.of(id)?.parent;
            while let Some(link) = snapshots.versions.of(above) {
                above = link.parent;
            }
            above
        };
        let is_external =
            |object: Arc<Object>| matches!(object.record().options.pager, PagerKind::External { .. });
        Some(self.object(above).is_ok_and(is_external))
    }

    pub(super) fn is_snapshot(&self, id: ObjectId) -> bool {
        lock(&self.snapshots).versions.of(id).is_some()
    }

    pub(super) fn has_snapshots(&self, id: ObjectId) -> bool {
        lock(&self.snapshots).versions.is_parent(id)
    }

    /// Nobody gets pages of it that are not as they were; nor of its own snapshots, which may lack the same.
    fn break_snapshot(self: &Arc<Self>, id: ObjectId, why: &Error) {
        let cut: Vec<(ObjectId, ObjectId)> = {
            let mut snapshots = lock(&self.snapshots);
            let cut = snapshots.versions.cut_all(id);
            let error = not_whole(&why.message);
            snapshots.broken.extend(cut.iter().map(|(id, _)| (*id, error.clone())));
            cut.into_iter().map(|(id, link)| (id, link.parent)).collect()
        };
        for (id, parent) in &cut {
            self.mark_broken(*id);
            if let Some(parent) = self.object(*parent).ok().and_then(|parent| parent.cache()) {
                parent.has_no_snapshot(*id);
            }
            self.machine.log(format_args!("object {}: the snapshot is not whole: {why}", id.0));
        }
        cut.iter().for_each(|(_, parent)| self.settle_object(*parent));
    }

    pub(super) fn mark_broken(&self, id: ObjectId) {
        let note = std::fs::File::options().write(true).open(self.of_path(id));
        if let Err(error) = note.and_then(|note| note.write_all_at(&[BROKEN], 0)) {
            self.machine.log(format_args!("object {}: noting that it is not whole: {error}", id.0));
        }
        if let Ok(object) = self.object(id) {
            object.set_unusable(self.why_not_whole(id));
        }
    }

    pub(super) fn snapshot(
        self: &Arc<Self>,
        session: &Arc<Session>,
        asked: &SnapshotRequest,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let access = if asked.writable { Access::ReadWrite } else { Access::Read };
        let object = self.make_snapshot(session, asked, |registry, options, charged| {
            registry.prepare_create(&asked.name, &session.credentials, options, None, asked.nonce, charged)
        })?;
        self.give(session, &object, access, give)
    }

    /// Makes a snapshot as the registry prepares it.
    pub(super) fn make_snapshot(
        self: &Arc<Self>,
        session: &Session,
        asked: &SnapshotRequest,
        prepare: impl FnOnce(&mut Registry, CreateOptions, u64) -> Result<Prepared>,
    ) -> Result<Arc<Object>> {
        let parent = self.object(asked.of)?;
        let access = session.access(asked.of)?;
        let (of, is_elsewhere) = {
            let record = parent.record();
            (record.options.clone(), record.is_elsewhere)
        };
        check_can_have(&of, is_elsewhere, access)?;
        let pages = range_of(&of, asked)?;
        let length = pages.count * PAGE_SIZE_BYTES - past_end(&of, asked, pages);
        let types = of.types.part(pages.first, pages.count, self.machine.types.here());
        let options = CreateOptions { types, ..of.snapshot(length, asked.mode, asked.writable) };
        options.check()?;
        self.check_can_keep(&options)?;
        if lock(&self.snapshots).versions.depth(parent.id) >= DEPTH {
            let text = format!(
                "the object is a snapshot of a snapshot, {DEPTH} deep: copy it, or take the snapshot of one that was taken whole"
            );
            return Err(Error::new(ErrorKind::TooMany, text));
        }
        let charged = self.limits.counted(session.credentials.uid, &options, 0);
        let prepared = prepare(&mut lock(&self.registry), options, charged)?;
        let prepared = match prepared {
            Prepared::Exists(record) => return self.object(record.id),
            Prepared::New(prepared) => prepared,
        };
        let link = Link { parent: parent.id, first_page: pages.first, pages: pages.count };
        let object = Object::new(prepared.record().clone(), None, String::new());
        // One without a name would end before it is whole: others can ask that of any number.
        object.hold().and_then(|_held| self.begin_snapshot(prepared, &object, &parent, link, asked))?;
        if asked.whole {
            self.make_whole_soon(&object);
        }
        Ok(object)
    }

    /// Takes it, and makes it known. An error has changed nothing.
    fn begin_snapshot(
        self: &Arc<Self>,
        prepared: NewObject,
        object: &Arc<Object>,
        parent: &Arc<Object>,
        link: Link<ObjectId>,
        asked: &SnapshotRequest,
    ) -> Result<()> {
        let id = object.id;
        // Before the instant, from which on writers of the parent look for it.
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(id, object.clone());
        // A newer one would be taken for one of those that are older.
        let one_at_a_time = lock(&parent.snapshotting);
        let made = parent.hold().and_then(|_held| {
            if prepared.record().name.is_none() {
                self.note_nameless(prepared.record())?;
            }
            self.take_snapshot(parent, object, link, asked.whole)
        });
        if let Err(error) = made {
            drop(one_at_a_time);
            self.undo_snapshot(id);
            lock(&self.registry).abandon_create(prepared);
            self.settle_object(parent.id);
            return Err(error);
        }
        let committed = lock(&self.registry).commit_create(prepared);
        match committed {
            Ok(record) => *object.record() = record,
            Err(error) => {
                drop(one_at_a_time);
                self.undo_snapshot(id);
                return Err(error);
            }
        }
        if !asked.writable {
            self.stand_between(id);
        }
        drop(one_at_a_time);
        Ok(())
    }

    /// As if it had not been asked for.
    fn undo_snapshot(self: &Arc<Self>, id: ObjectId) {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.forget_snapshot(id);
        self.unkeep_frames(id);
        self.remove_files(id);
    }

    fn take_snapshot(
        self: &Arc<Self>,
        parent: &Arc<Object>,
        object: &Arc<Object>,
        link: Link<ObjectId>,
        whole: bool,
    ) -> Result<()> {
        let of = self.cache_of(parent)?;
        {
            let mut snapshots = lock(&self.snapshots);
            snapshots.versions.link(object.id, link);
            if whole {
                snapshots.to_be_whole.insert(object.id);
            }
        }
        let cache = self.make_cache(object)?;
        self.note_of(object.id, link)?;
        let is_shared = parent.record().options.is_shared();
        let Some(cluster) = self.cluster.get().filter(|_| is_shared) else {
            return of.take_instant(object.id, &cache, link);
        };
        // All of it while no host may write: no later write of another host is seen here in time.
        cluster.while_frozen(&of, PageRange::new(link.first_page, link.pages), || {
            of.take_instant(object.id, &cache, link)?;
            cache.bring_all(PageRange::new(0, link.pages))
        })?;
        object.check_usable()?;
        self.forget_snapshot(object.id);
        Ok(())
    }

    /// It lacks nothing: a note that stays would have the next host look for a parent.
    pub(super) fn remove_note(&self, id: ObjectId) {
        match std::fs::remove_file(self.of_path(id)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                self.machine.log(format_args!("object {}: removing the note of a snapshot: {error}", id.0));
            }
            _ => {}
        }
    }

    /// It lacks nothing any more, or is gone.
    pub(super) fn forget_snapshot(self: &Arc<Self>, id: ObjectId) {
        if let Some(parent) = self.cut_snapshot(id) {
            self.settle_object(parent);
        }
    }

    /// The same; gives what it was a snapshot of, and does not ask whether that is to end now.
    pub(super) fn cut_snapshot(&self, id: ObjectId) -> Option<ObjectId> {
        let link = {
            let mut snapshots = lock(&self.snapshots);
            snapshots.broken.remove(&id);
            snapshots.to_be_whole.remove(&id);
            snapshots.versions.cut(id)
        }?; // the note goes with the object's other files
        self.remove_note(id);
        if let Some(parent) = self.object(link.parent).ok().and_then(|parent| parent.cache()) {
            parent.has_no_snapshot(id);
        }
        Some(link.parent)
    }

    /// The snapshot has all of its pages afterwards.
    pub(super) fn make_snapshot_whole(self: &Arc<Self>, object: &Arc<Object>) -> Result<()> {
        if !self.is_snapshot(object.id) {
            return Ok(());
        }
        let cache = self.cache_of(object)?;
        cache.bring_all(PageRange::new(0, pages_of(cache.size_bytes())))?;
        object.check_usable()?;
        self.forget_snapshot(object.id);
        Ok(())
    }

    fn make_whole_soon(self: &Arc<Self>, object: &Arc<Object>) {
        let (this, object) = (self.clone(), object.clone());
        let share = self.share_of(object.record().charged_uid);
        share.run(&self.machine.workers, move || {
            let held = object.hold().and_then(|_held| this.make_snapshot_whole(&object));
            if let Err(error) = held {
                this.machine.log(format_args!("object {}: it lacks pages still: {error}", object.id.0));
            }
            this.settle_object(object.id);
        });
    }
}

fn not_whole(why: &str) -> Error {
    let text = format!("the snapshot is not whole: {why}; remove it, and take another");
    Error::new(ErrorKind::Lost, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::is_of_the_state;

    #[test]
    fn notes_are_those_of_their_version() {
        let noted = Noted { boot_id: "boot".into(), parent: ObjectId(2), first_page: 3, pages: 4 };
        is_of_the_state("snapshot", &noted);
        assert_eq!([USABLE, BROKEN, TO_BE_WHOLE], [0, 1, 2]);
    }
}
