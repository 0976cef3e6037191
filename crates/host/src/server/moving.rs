//! Objects whose home moves, as the server sees them: their file and what lies beside it, and their records here when this
//! host becomes the home, or is not any more.

use super::object::Object;
use super::{Host, lock};
use crate::cache::book;
use crate::cluster::options_here;
use crate::cluster::wire::{Claim, Moving};
use crate::newer::{self, Newer};
use commonhold_object::error::Doing;
use commonhold_object::{
    Coherence, CreateOptions, Error, ErrorKind, PageRange, PagerKind, Part, Result, pages_of,
};
use commonhold_registry::{BackingFile, ObjectRecord};
use commonhold_sys::file_lock;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

fn try_lock(file: &File, path: &Path) -> Result<bool> {
    let path = path.display();
    file_lock::try_lock(file).doing(format!(
        "locking {path}, which is how hosts know who may write to it (home_moves needs a file system with such locks)"
    ))
}

/// Of two sizes one was not known to all when the home was lost: nobody was told that the change is done, or this host had no
/// part in the object. An object that grows has a longer file before anybody is told, and the file of one that shrinks is cut
/// when all know: so the larger one is the size as long as the file has it.
fn size_of_next(registered: u64, here: u64, file: u64) -> u64 {
    let (smaller, larger) = (registered.min(here), registered.max(here));
    if file >= larger { larger } else { smaller }
}

/// A file that was made for an object, and goes unless that comes to be.
pub(super) struct Unused(Option<PathBuf>);

impl Unused {
    /// Whoever has the object removes it.
    pub fn used(mut self) {
        self.0 = None;
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

impl Host {
    /// A file of this process alone: its lock ends with the process. Its path may be another host's word.
    fn open_moving(&self, path: &Path) -> Result<File> {
        self.open_by_path(path).map(File::from).map_err(|error| {
            let what = "the file of an object whose home moves";
            Error::new(error.kind, format!("{what}: {}", error.message))
        })
    }

    /// What the cluster must know of the name of a shared object.
    pub fn claim_of(&self, record: &ObjectRecord) -> Option<Claim> {
        let name = record.name.clone()?;
        let (ownership, options) = (record.ownership, record.options.clone());
        let file = record.file.as_ref().filter(|_| options.home_moves);
        // Without a common file the path says something here alone, and nobody is to open it.
        let path = file.map(|file| if options.is_replicated() { PathBuf::new() } else { file.path.clone() });
        let moving = path.map(|path| Box::new(Moving { name: name.clone(), ownership, options, path }));
        let fixed = record.options.fixed.filter(|fixed| fixed.is_of(Part::Shared));
        let fixed = fixed.map(|fixed| (fixed, record.charged_uid));
        Some(Claim { name, object: record.uuid, moving, fixed })
    }

    /// Refuses a file that the next home could not take over, and prepares one that it could.
    pub(super) fn prepare_moving(&self, record: &ObjectRecord, given: &OwnedFd) -> Result<()> {
        let Some(file) = record.file.as_ref().filter(|_| record.options.home_moves) else { return Ok(()) };
        let refused =
            |what: &str| Err(Error::invalid(format!("home_moves: {}: {what}", file.path.display())));
        if file.read_only {
            return refused("the file is open for reading alone: open it for writing, too");
        }
        let path = &file.path;
        if record.options.is_replicated() {
            // This host has it all, for there is nothing yet.
            newer::make_own(path, record.uuid)?;
            let me = self.with_cluster().map_or(0, |cluster| cluster.me.host.0);
            return Newer::open(path, record.uuid)?.note_whole(&self.machine.boot_id, [me, 0]);
        }
        let (own, theirs) = (self.open_moving(path)?, rustix::fs::fstat(given));
        let theirs = theirs.map_err(std::io::Error::from).doing("looking at the backing file")?;
        let own_is = own.metadata().doing("looking at the backing file")?;
        if (own_is.dev(), own_is.ino()) != (theirs.st_dev, theirs.st_ino) {
            return refused(
                "the path leads to another file than was given: give a file that is where it was opened",
            );
        }
        if !try_lock(&own, path)? {
            return refused("another program has locked the file: end that first");
        }
        let owner = record.charged_uid;
        newer::make(path, &own, record.uuid, self.machine.is_ordinary(owner).then_some(owner))
    }

    /// An object is no more, or was never made.
    pub(super) fn forget_moving(&self, record: &ObjectRecord) {
        if let Some(file) = record.file.as_ref().filter(|_| record.options.home_moves) {
            newer::remove(&file.path, record.uuid);
            if record.options.is_replicated() {
                let _ = std::fs::remove_file(&file.path);
                self.with_cluster().into_iter().for_each(|cluster| cluster.end_replicas(record.uuid));
            }
        }
    }

    /// Where this host has what it keeps of an object whose home moves without a common file.
    pub fn replica_path(&self, object: u128) -> PathBuf {
        self.machine.directory.join("replicas").join(format!("{object:032x}"))
    }

    /// At the creation of such an object: the file in which this home stores it. The object has no number yet.
    pub(super) fn own_file(&self, options: &mut CreateOptions) -> Result<(OwnedFd, Unused)> {
        options.check()?;
        if options.pager != PagerKind::Anonymous {
            return Err(Error::invalid(
                "home_moves: give a file that hosts share, or replicas without one, not both",
            ));
        }
        options.pager = PagerKind::File;
        options.reserve = options.reserve.or(Some(false));
        let mut number = [0; 16];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)
            .doing("choosing a name for a file")?;
        let name = format!("own-{:032x}", u128::from_le_bytes(number));
        let path = self.machine.directory.join("replicas").join(name);
        let file = newer::open_own(&path)?;
        let unused = Unused(Some(path));
        file.set_len(options.size_bytes).doing("making the file of an object")?;
        Ok((file.into(), unused))
    }

    /// The file of an object whose home this host is, when nobody else can write to it.
    pub fn open_home_file(&self, object: &Object) -> Result<(File, Newer)> {
        let record = object.record().clone();
        let lost = || Error::new(ErrorKind::Lost, "it has no file");
        let path = record.file.ok_or_else(lost)?.path;
        let file = self.open_moving(&path)?;
        if !try_lock(&file, &path)? {
            let text =
                format!("another host has {} still: waiting until its process is gone", path.display());
            return Err(Error::new(ErrorKind::Busy, text));
        }
        // In this order: who had the lock before may have written to it.
        let mut newer = Newer::open(&path, record.uuid)?;
        // What lies past the end is nobody's, and is not to be missed if the object grows.
        let past_end = newer.pages() - book::set_of(PageRange::new(0, pages_of(record.options.size_bytes)));
        newer.clear(&past_end)?;
        Ok((file, newer))
    }

    /// How large an object is of which this host becomes the home: what the last home told the registry, or told this host.
    pub fn size_as_home(&self, uuid: u128, about: &Moving) -> Result<u64> {
        let gone = || Error::new(ErrorKind::NotFound, "the object is not in use here any more");
        let used = self.object_of(uuid, true).ok_or_else(gone)?;
        let here = used.record().options.size_bytes;
        if about.options.is_replicated() {
            // Sharers hear of a larger size when replicas have it, and those cut theirs when it grows again: the larger is there.
            return Ok(about.options.size_bytes.max(here));
        }
        let file = self.open_moving(&about.path)?.metadata().doing("looking at the backing file")?.len();
        Ok(size_of_next(about.options.size_bytes, here, file))
    }

    /// Refuses to be the home of what this host could not look after.
    pub fn check_can_be_home(&self, object: u128, about: &Moving) -> Result<()> {
        if about.options.is_replicated() {
            return lock(&self.registry).check_home_here(object, &about.name, (0, 0));
        }
        let file = self.open_moving(&about.path)?.metadata().doing("looking at the backing file")?;
        Newer::open(&about.path, object)?;
        lock(&self.registry).check_home_here(object, &about.name, (file.dev(), file.ino()))
    }

    /// This host is the object's home from now on: with a record of its own, or the one of what is used here. May be said
    /// again.
    pub fn be_home(&self, uuid: u128, about: &Moving) -> Result<Arc<Object>> {
        if let Some(home) = self.object_of(uuid, false) {
            return Ok(home);
        }
        let used = self.object_of(uuid, true);
        let gone = || Error::new(ErrorKind::NotFound, "the object is not in use here any more");
        let used = used.ok_or_else(gone)?;
        let _held = used.hold()?;
        let replicated = about.options.is_replicated();
        let path = if replicated { self.replica_path(uuid) } else { about.path.clone() };
        let file = if replicated { newer::open_own(&path)? } else { self.open_moving(&path)? };
        let stat = file.metadata().doing("looking at the backing file")?;
        let (device, inode, owner_uid) = (stat.dev(), stat.ino(), stat.uid());
        let size_bytes = self.size_as_home(uuid, about)?;
        let record = {
            let here = used.record();
            ObjectRecord {
                name: Some(about.name.clone()),
                ownership: about.ownership,
                // What was told here when it was opened is no older than what the registry has.
                options: CreateOptions {
                    size_bytes,
                    types: here.options.types.clone(),
                    ..about.options.clone()
                },
                file: Some(BackingFile { path, device, inode, owner_uid, read_only: false }),
                charged_uid: about.ownership.uid,
                is_elsewhere: false,
                ..here.clone()
            }
        };
        let apart = record.options.coherence == Coherence::Explicit;
        let descriptor = Arc::new(OwnedFd::from(file));
        let mut registry = lock(&self.registry);
        let record = registry.home_here((!apart).then_some(used.id), record)?;
        let home = if apart {
            let home = Object::new(record, Some(descriptor), String::new());
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            objects.insert(home.id, home.clone());
            home
        } else {
            *used.record() = record;
            used.set_descriptor(descriptor);
            used.clone()
        };
        drop(registry);
        self.keep_object(&home);
        home.cache().iter().for_each(|cache| self.keep_frames(&home, &cache.frames));
        Ok(home)
    }

    /// At the orderly end: what this home alone has newest, the next one finds in the file.
    pub(super) fn store_moving(&self) {
        for object in self.all_objects() {
            let record = object.record().clone();
            let is_home = record.options.home_moves && !record.is_elsewhere;
            let driver =
                self.with_cluster().filter(|_| is_home).and_then(|cluster| cluster.driver(record.uuid));
            driver.iter().for_each(|driver| driver.catch_up()); // what others gave back is among it
            if let Some(cache) = object.cache().filter(|cache| is_home && cache.has_file())
                && let Err(error) = cache.sync(PageRange::new(0, pages_of(cache.size_bytes())), false)
            {
                self.machine.log(format_args!("object {}: at the end: {error}", object.id.0));
            }
        }
    }

    /// Another host is the object's home. For a process that has not joined: the next one takes it over as any sharer.
    pub fn give_home_up(&self, uuid: u128) -> Result<()> {
        let Some(home) = self.object_of(uuid, false) else { return Ok(()) };
        let options = options_here(&home.record().options);
        if options.coherence == Coherence::Explicit {
            // What processes use is another's here already.
            lock(&self.registry).forget(home.id)?;
            self.remove_files(home.id);
            self.forget_object(&home);
            return Ok(());
        }
        if options.is_replicated() {
            // Until the next home schedules this may be all that there is: from now on it is what this host keeps. By both
            // names until the record has changed; what has its first name, and no record, goes at the next start.
            let path = home.record().file.as_ref().map(|file| file.path.clone());
            let kept = self.replica_path(uuid);
            path.filter(|path| *path != kept).map_or(Ok(()), |path| newer::also_as(&path, &kept))?;
        }
        lock(&self.registry).home_elsewhere(home.id, options)?;
        self.unkeep_object(home.id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_home_has_the_size_that_its_file_has() {
        for (what, registered, here, file, size) in [
            ("nothing changes", 8, 8, 8, 8),
            ("it shrinks, nothing is cut", 8, 4, 8, 8),
            ("it shrinks, and is cut", 8, 4, 4, 4),
            ("it has shrunk, which was not heard here", 4, 8, 4, 4),
            ("it grows", 4, 8, 8, 8),
            ("it has grown, which was not heard here", 8, 4, 8, 8),
            ("it shrinks in a file that is longer", 8, 4, 12, 8),
            ("something else cut the file", 8, 8, 2, 8),
        ] {
            assert_eq!(size_of_next(registered, here, file), size, "{what}");
        }
    }
}
