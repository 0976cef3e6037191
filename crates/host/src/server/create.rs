//! Creation of an object: checks, its memory or its reserved space, and then its name.

use super::backing::{grow_file, own_description};
use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::wire::Reply;
use commonhold_object::{
    Access, CreateOptions, Error, ErrorKind, Name, PAGE_SIZE_BYTES, PagerKind, Result, pages_of,
};
use commonhold_registry::ObjectRecord;
use commonhold_sys::frames;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

impl Host {
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
}
