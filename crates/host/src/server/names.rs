//! Requests about names: create, open, stat, list, resize, remove, rename, mode, owner.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::wire::{OpenReply, Reply};
use commonhold_object::{
    Access, CreateOptions, EntryInfo, Error, ErrorKind, Name, ObjectId, ObjectInfo, PAGE_SIZE_BYTES,
    PagerKind, Result, limits, pages_of,
};
use commonhold_registry::{BackingFile, Entry, ObjectRecord};
use commonhold_sys::frames;
use rustix::fs::{FileType, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl Host {
    /// The object of that name, if the session may have it so.
    pub(super) fn lookup(&self, session: &Session, name: &Name, access: Access) -> Result<Arc<Object>> {
        let record = lock(&self.registry).lookup(name, &session.credentials, access)?;
        self.object(record.id)
    }

    pub(super) fn create(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: Name,
        mut options: CreateOptions,
        nonce: u128,
        fds: Vec<OwnedFd>,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let given = fds.into_iter().next();
        let backing = self.take_backing(&mut options, given.as_ref())?;
        options.check()?;
        self.check_can_keep(&options)?;
        let charged = if options.reserves() { options.size_bytes } else { 0 };
        let prepared = lock(&self.registry).prepare_create(
            &name,
            &session.credentials,
            options.clone(),
            backing,
            nonce,
            charged,
        )?;
        let prepared = match prepared {
            commonhold_registry::Prepared::Exists(record) => {
                let access = if record.file.as_ref().is_some_and(|f| f.read_only) {
                    Access::Read
                } else {
                    Access::ReadWrite
                };
                return self.give(session, &self.object(record.id)?, access, give);
            }
            commonhold_registry::Prepared::New(prepared) => prepared,
        };
        let alone = self.refuse_second_object(prepared.record());
        let made = alone.and_then(|()| self.make_memory(prepared.record(), given));
        let descriptor = match made {
            Ok(descriptor) => descriptor,
            Err(error) => {
                self.remove_files(prepared.record().id);
                lock(&self.registry).abandon_create(prepared);
                return Err(error);
            }
        };
        let object = self.commit_create(prepared, descriptor)?;
        let read_only = object.record().file.as_ref().is_some_and(|f| f.read_only);
        self.keep_object(&object);
        self.give(session, &object, if read_only { Access::Read } else { Access::ReadWrite }, give)
    }

    /// The object has its name from now on.
    fn commit_create(
        &self,
        prepared: commonhold_registry::NewObject,
        descriptor: Option<Arc<OwnedFd>>,
    ) -> Result<Arc<Object>> {
        let id = prepared.record().id;
        let mut registry = lock(&self.registry);
        let record = registry.commit_create(prepared).inspect_err(|_| self.remove_files(id))?;
        let object = Object::new(record, descriptor, String::new());
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(id, object.clone());
        Ok(object)
    }

    /// Looks at the descriptor of a backing file.
    fn take_backing(
        &self,
        options: &mut CreateOptions,
        given: Option<&OwnedFd>,
    ) -> Result<Option<BackingFile>> {
        if options.pager != PagerKind::File {
            return Ok(None);
        }
        let fd = given.ok_or_else(|| {
            Error::invalid(
                "an object with a file pager needs the file's descriptor: open the file, then create",
            )
        })?;
        let stat =
            rustix::fs::fstat(fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::invalid("the backing file is not a regular file: only those can be objects"));
        }
        let flags =
            rustix::fs::fcntl_getfl(fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
        if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::WRONLY {
            return Err(Error::invalid("the backing file must be open for reading: open it so, then create"));
        }
        let read_only = flags & OFlags::RWMODE == OFlags::RDONLY;
        let length = stat.st_size as u64;
        if options.size_bytes == 0 {
            if length == 0 {
                return Err(Error::invalid("the file is empty: give a size, to which it will grow"));
            }
            options.size_bytes = length;
        }
        if options.size_bytes > length && read_only {
            return Err(Error::invalid(format!(
                "the file has {length} bytes, and cannot grow to {} because it is open for reading alone",
                options.size_bytes
            )));
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
        Ok(Some(BackingFile {
            path,
            device: stat.st_dev,
            inode: stat.st_ino,
            owner_uid: stat.st_uid,
            read_only,
        }))
    }

    /// Two objects on one file would each believe to know what is in it, if the host has frames of either.
    fn refuse_second_object(&self, record: &ObjectRecord) -> Result<()> {
        let Some(file) = &record.file else { return Ok(()) };
        for other in self.all_objects() {
            let other = other.record().clone();
            let same = other.file.as_ref().is_some_and(|f| (f.device, f.inode) == (file.device, file.inode));
            if same && (other.options.is_controlled() || record.options.is_controlled()) {
                let name = other
                    .name
                    .map_or_else(|| "one that was removed and is in use".to_owned(), |n| n.to_string());
                let what = format!(
                    "{} is the file of another object already, {name}: use that one, or remove it first",
                    file.path.display()
                );
                return Err(Error::new(ErrorKind::Busy, what));
            }
        }
        Ok(())
    }

    fn check_can_keep(&self, options: &CreateOptions) -> Result<()> {
        if options.is_controlled() && !self.small_frames {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "controlled objects need frames in small pages, and this machine makes shared memory of huge ones: \
                 echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled, then restart the host",
            ));
        }
        if let Some(budget) =
            options.budget_bytes.filter(|b| b / PAGE_SIZE_BYTES > self.machine.budget.limit_pages())
        {
            return Err(Error::invalid(format!(
                "a budget of {budget} bytes is more than the whole host's, {}: give less, or start the host with more",
                self.machine.budget.limit_pages() * PAGE_SIZE_BYTES
            )));
        }
        Ok(())
    }

    /// Makes what the object lives in: its memfd, its reserved disk space. Gives the descriptor to keep.
    fn make_memory(&self, record: &ObjectRecord, given: Option<OwnedFd>) -> Result<Option<Arc<OwnedFd>>> {
        let options = &record.options;
        match &options.pager {
            PagerKind::File => {
                let given = given.ok_or_else(|| Error::invalid("no descriptor"))?;
                let fd = own_description(given, record.file.as_ref().is_some_and(|f| f.read_only))?;
                grow_file(&fd, options)?;
                Ok(Some(Arc::new(fd)))
            }
            PagerKind::Anonymous if options.is_controlled() => {
                if options.reserves() {
                    crate::spill::Spill::new(&self.machine.path("spill", record.id))
                        .reserve(pages_of(options.size_bytes) * PAGE_SIZE_BYTES)?;
                }
                Ok(None)
            }
            PagerKind::Anonymous => {
                let bytes = pages_of(options.size_bytes) * PAGE_SIZE_BYTES;
                let fd = frames::create("commonhold-object", bytes).doing("making memory for the object")?;
                self.note_memory(record.id, &fd)?;
                if options.reserves() {
                    super::status::check_memory_for(options.size_bytes)?;
                    frames::allocate(&fd, 0, bytes).doing("reserving memory for the object")?;
                }
                Ok(Some(Arc::new(fd)))
            }
            PagerKind::External { .. } => Ok(None),
        }
    }

    pub(super) fn open(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: &Name,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let object = self.lookup(session, name, access)?;
        self.give(session, &object, access, give)
    }

    /// Opens an object for a session: what to tell, and the descriptor to map.
    fn give(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let result = object.hold().and_then(|_held| self.give_held(session, object, access, give));
        if result.is_err() {
            self.settle_object(object.id); // its last user may have gone meanwhile
        }
        result
    }

    fn give_held(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        object.check_access(access)?;
        let controlled = object.is_controlled();
        let whole = if controlled {
            self.cache_of(object)?.frames.clone()
        } else {
            let none =
                || Error::new(ErrorKind::Lost, "the object's memory is gone: remove it and create it again");
            if object.descriptor().is_none() {
                self.returning.wait_for(object.id)?;
                self.settle_returned();
            }
            object.descriptor().ok_or_else(none)?
        };
        let fd =
            if access.writes() || object.record().file.as_ref().is_some_and(|f| f.read_only) && !controlled {
                whole
            } else {
                Arc::new(frames::reopen_read_only(&*whole).doing("opening the object for reading")?)
            };
        self.note_open(session, object, access)?;
        give.push(fd);
        Ok(Reply::Opened(Box::new(OpenReply { info: self.info(object), access })))
    }

    fn note_open(&self, session: &Session, object: &Object, access: Access) -> Result<()> {
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
        if object.is_with_clients() {
            self.keep_open(session, object.id);
            self.note_client(session, object.id);
        }
        Ok(())
    }

    pub(super) fn close(&self, session: &Session, id: ObjectId) -> Result<()> {
        let removed = lock(&session.opened).remove(&id);
        if let (Some(_), Ok(object)) = (removed, self.object(id)) {
            if let Some(cache) = object.cache() {
                cache.remove_holds(session.id);
                self.keep_holds(session, &cache);
            }
            self.forget_client(session, id);
            object.opens.fetch_sub(1, Ordering::Relaxed);
            // Of a direct one that goes on, it does no harm if the next host takes it for open: attaching is to be quick.
            if object.is_controlled() || object.is_with_clients() && object.record().name.is_none() {
                self.keep_session(session);
            }
            self.settle_object(id);
        }
        Ok(())
    }

    pub(super) fn stat(&self, session: &Session, name: &Name) -> Result<Reply> {
        let entry = lock(&self.registry).stat(name, &session.credentials)?;
        Ok(Reply::Entry(Box::new(self.entry_info(entry)?)))
    }

    pub(super) fn stat_object(&self, session: &Session, id: ObjectId) -> Result<Reply> {
        session.access(id)?;
        Ok(Reply::Entry(Box::new(EntryInfo::Object(Box::new(self.info(&*self.object(id)?))))))
    }

    fn entry_info(&self, entry: Entry) -> Result<EntryInfo> {
        Ok(match entry {
            Entry::Object(record) => EntryInfo::Object(Box::new(self.info(&*self.object(record.id)?))),
            Entry::Directory { name, ownership } => EntryInfo::Directory { name, ownership },
        })
    }

    pub(super) fn list(&self, session: &Session, directory: &Name, after: Option<&Name>) -> Result<Reply> {
        let (entries, more) =
            lock(&self.registry).list(directory, &session.credentials, after, limits::LIST_ENTRIES)?;
        let entries = entries.into_iter().filter_map(|e| self.entry_info(e).ok()).collect();
        Ok(Reply::Entries { entries, more })
    }

    pub(super) fn resize(self: &Arc<Self>, session: &Session, name: &Name, size_bytes: u64) -> Result<()> {
        let object = self.lookup(session, name, Access::ReadWrite)?;
        let result = object.hold().and_then(|_held| {
            let _one_at_a_time = lock(&object.resizing);
            self.resize_object(&object, size_bytes)
        });
        // Its name may have gone meanwhile, and its last user.
        self.settle_object(object.id);
        result
    }

    fn resize_object(self: &Arc<Self>, object: &Arc<Object>, size_bytes: u64) -> Result<()> {
        object.check_access(Access::ReadWrite)?;
        let options = CreateOptions { size_bytes, ..object.record().options.clone() };
        if size_bytes == 0 {
            return Err(Error::invalid("the size is zero: remove the object instead"));
        }
        options.check()?;
        let external = matches!(options.pager, PagerKind::External { .. });
        if external && size_bytes < object.record().options.size_bytes {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the object of an external pager cannot shrink: its pager is not told of sizes, and would show the \
                 old bytes again when it grows; create a smaller one and copy",
            ));
        }
        let charged = if options.reserves() { size_bytes } else { 0 };
        lock(&self.registry).check_size(object.id, charged)?;
        self.resize_memory(object, &options)?;
        let mut registry = lock(&self.registry);
        *object.record() = registry.set_size(object.id, size_bytes, charged)?;
        Ok(())
    }

    fn resize_memory(self: &Arc<Self>, object: &Arc<Object>, options: &CreateOptions) -> Result<()> {
        let old_bytes = object.record().options.size_bytes;
        let bytes = pages_of(options.size_bytes) * PAGE_SIZE_BYTES;
        if object.is_controlled() {
            if options.reserves() && options.pager == PagerKind::Anonymous && options.size_bytes > old_bytes {
                crate::spill::Spill::new(&self.machine.path("spill", object.id)).reserve(bytes)?;
            }
            return self.cache_of(object)?.resize(options.size_bytes);
        }
        let fd =
            object.descriptor().ok_or_else(|| Error::new(ErrorKind::Lost, "the object's memory is gone"))?;
        let (length, anonymous) = match options.pager {
            PagerKind::File => (options.size_bytes, false),
            _ => (bytes, true),
        };
        let old_length =
            rustix::fs::fstat(&*fd).map_err(std::io::Error::from).doing("resizing")?.st_size as u64;
        let cut = |length| {
            rustix::fs::ftruncate(&*fd, length).map_err(std::io::Error::from).doing("resizing the object")
        };
        if options.size_bytes < old_bytes {
            cut(options.size_bytes)?; // what is past the end in the last page must be zero if the object grows again
        }
        cut(length)?;
        if options.reserves() && length > old_length {
            let reserved =
                (if anonymous { super::status::check_memory_for(length - old_length) } else { Ok(()) })
                    .and_then(|()| {
                        frames::allocate(&*fd, old_length, length - old_length).doing("reserving memory")
                    });
            if let Err(error) = reserved {
                let _ = rustix::fs::ftruncate(&*fd, old_length);
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn remove(&self, session: &Session, name: &Name, repeated: bool) -> Result<()> {
        let mut registry = lock(&self.registry);
        let Some(record) = registry.remove(name, &session.credentials, repeated)? else { return Ok(()) };
        if let Ok(object) = self.object(record.id) {
            object.record().name = None;
        }
        drop(registry);
        self.settle_object(record.id);
        Ok(())
    }

    pub(super) fn rename(&self, session: &Session, from: &Name, to: &Name, repeated: bool) -> Result<()> {
        lock(&self.registry).rename(from, to, &session.credentials, repeated)?;
        self.refresh_records()
    }

    pub(super) fn set_mode(&self, session: &Session, name: &Name, mode: u32) -> Result<()> {
        lock(&self.registry).set_mode(name, &session.credentials, mode)?;
        self.refresh_records()
    }

    pub(super) fn set_owner(
        &self,
        session: &Session,
        name: &Name,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        lock(&self.registry).set_owner(name, &session.credentials, uid, gid)?;
        self.refresh_records()
    }

    /// After names, modes or owners changed (a directory's rename changes many). Under the registry's lock, as every
    /// change of a record: the last word is the registry's.
    fn refresh_records(&self) -> Result<()> {
        let registry = lock(&self.registry);
        let records = registry.records()?;
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            if let Some(object) = objects.get(&record.id) {
                *object.record() = record;
            }
        }
        Ok(())
    }

    pub(super) fn revert(&self, session: &Session, name: &Name) -> Result<Reply> {
        let object = self.lookup(session, name, Access::ReadWrite)?;
        match object.cache() {
            Some(cache) => cache.revert().map(Reply::Pages),
            None if object.is_controlled() => Ok(Reply::Pages(0)),
            None => Err(Error::new(
                ErrorKind::Unsupported,
                "a direct object's pages reach its file at any time: there is nothing to go back to; create it with \
                 sync = ordered or atomic for that",
            )),
        }
    }

    /// All there is to tell of an object.
    pub(super) fn info(&self, object: &Object) -> ObjectInfo {
        let record = object.record().clone();
        let controlled = record.options.is_controlled();
        let numbers = object.cache().map(|c| c.numbers()).unwrap_or_default();
        let direct_bytes = match (object.descriptor(), &record.options.pager) {
            (Some(fd), PagerKind::Anonymous) => frames::resident_bytes(&*fd).unwrap_or(0),
            (Some(fd), _) if !controlled => frames::cache_state(&*fd, 0, record.options.size_bytes)
                .map_or(0, |c| c.cached * PAGE_SIZE_BYTES),
            _ => 0,
        };
        let resident = if controlled { numbers.resident_pages * PAGE_SIZE_BYTES } else { direct_bytes };
        let mappings = if controlled {
            numbers.views
        } else {
            object.direct_mappings.load(Ordering::Relaxed).max(0) as u64
        };
        ObjectInfo {
            id: record.id,
            name: record.name,
            ownership: record.ownership,
            controlled,
            file_path: record.file.map(|f| f.path.to_string_lossy().into_owned()).unwrap_or_default(),
            resident_bytes: resident,
            dirty_bytes: numbers.dirty_pages * PAGE_SIZE_BYTES,
            spilled_bytes: numbers.spilled_pages * PAGE_SIZE_BYTES,
            mappings,
            opens: object.opens.load(Ordering::Relaxed),
            charged_to: super::status::who_pays(controlled),
            warning: Some(object.unusable()).filter(|why| !why.is_empty()).unwrap_or(numbers.warning),
            options: record.options,
        }
    }
}

/// The file of a descriptor, opened anew: the one that came shares its flags with whoever sent it, and O_APPEND would
/// lead every page to the file's end. A file that the host's own user may not open is used through what came, as long
/// as that has no such flag.
fn own_description(given: OwnedFd, read_only: bool) -> Result<OwnedFd> {
    let mode = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let path = format!("/proc/self/fd/{}", given.as_raw_fd());
    let flags = mode | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let errno = match rustix::fs::open(path.as_str(), flags, rustix::fs::Mode::empty()) {
        Ok(fd) => return Ok(fd),
        Err(errno) => errno,
    };
    let flags =
        rustix::fs::fcntl_getfl(&given).map_err(std::io::Error::from).doing("looking at the backing file")?;
    if flags.intersects(OFlags::APPEND | OFlags::DIRECT) {
        return Err(Error::invalid(format!(
            "the host cannot open the backing file itself ({errno}), and the descriptor it was given has O_APPEND or \
             O_DIRECT set, with which pages cannot be stored: open the file without them"
        )));
    }
    Ok(given)
}

/// Makes a backing file as long as its object, and takes its space; on an error it is as it was.
fn grow_file(fd: &OwnedFd, options: &CreateOptions) -> Result<()> {
    let stat = rustix::fs::fstat(fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
    let length = stat.st_size as u64;
    let grown = if options.size_bytes > length {
        rustix::fs::ftruncate(fd, options.size_bytes)
            .map_err(std::io::Error::from)
            .doing("growing the backing file")
    } else {
        Ok(())
    };
    let reserve =
        || frames::allocate(fd, 0, options.size_bytes).doing("reserving disk space for the backing file");
    let done = grown.and_then(|()| if options.reserves() { reserve() } else { Ok(()) });
    if done.is_err() && options.size_bytes > length {
        let _ = rustix::fs::ftruncate(fd, length);
    }
    done
}

/// Opens a backing file again after a reboot: only if it is the same file of the same owner.
pub(super) fn reopen_backing(file: &BackingFile) -> Result<OwnedFd> {
    use rustix::fs::Mode;
    let mode = if file.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let path = file.path.display();
    let fd = rustix::fs::open(
        &file.path,
        mode | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK,
        Mode::empty(),
    )
    .map_err(std::io::Error::from)
    .doing(format!("the backing file {path} cannot be opened again"))?;
    let now = rustix::fs::fstat(&fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
    if (now.st_dev, now.st_ino, now.st_uid) != (file.device, file.inode, file.owner_uid) {
        return Err(Error::new(
            ErrorKind::Lost,
            format!(
                "{path} is not the file that the object was created from (device, inode or owner differ): put the \
                 original back, or remove the object and create it from the new file"
            ),
        ));
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_backing_file_is_written_in_place_whatever_flags_its_descriptor_came_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [0; 8192]).unwrap();
        let mut theirs = std::fs::File::options().read(true).append(true).open(&path).unwrap();
        let ours: std::fs::File = own_description(theirs.try_clone().unwrap().into(), false).unwrap().into();
        ours.write_all_at(b"page", 4096).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[4096..4100], *b"page");
        theirs.write_all(b"end").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8195);
    }
}
