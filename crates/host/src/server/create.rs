//! Creation of an object: checks, its memory or its reserved space, and then its name.

use super::backing::grow_file;
use super::channels::Writers;
use super::moving::Unused;
use super::object::Object;
use super::session::Session;
use super::typing::check_new;
use super::{Host, lock, synchronisation, tables};
use crate::spill::{Spill, check_room};
use commonhold_object::error::Doing;
use commonhold_object::wire::Reply;
use commonhold_object::{
    Access, CreateOptions, Error, ErrorKind, Fixed, Name, PAGE_SIZE_BYTES, PagerKind, Part, Result, pages_of,
    system_v,
};
use commonhold_registry::{NewObject, ObjectRecord};
use commonhold_sys::frames;
use commonhold_tables::Segment;
use commonhold_wired::OWN_MEMORY;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

/// What a client asks for.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) name: Name,
    pub(super) options: CreateOptions,
    pub(super) in_directory: bool,
    pub(super) nonce: u128,
}

/// Where a new wired object gets its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wired {
    InArena,
    OfItsOwn,
}

/// The descriptors of a request that may be worked on once more.
pub(super) fn copies(fds: &[OwnedFd]) -> Result<Vec<OwnedFd>> {
    let copies: std::io::Result<_> = fds.iter().map(OwnedFd::try_clone).collect();
    copies.doing("keeping what came with the request")
}

impl Host {
    pub(super) fn create(
        self: &Arc<Self>,
        session: &Arc<Session>,
        asked: Asked,
        fds: Vec<OwnedFd>,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        if !asked.options.is_wired() {
            return self.create_in(session, asked, fds, give, None);
        }
        let again = copies(&fds)?;
        match self.create_in(session, asked.clone(), fds, give, Some(Wired::InArena)) {
            Err(error) if self.takes_ordinary_pages(asked.name.as_str(), &error) => {
                self.create_in(session, asked, again, give, Some(Wired::OfItsOwn))
            }
            other => other,
        }
    }

    fn create_in(
        self: &Arc<Self>,
        session: &Arc<Session>,
        Asked { name, mut options, in_directory, nonce }: Asked,
        fds: Vec<OwnedFd>,
        give: &mut Vec<Arc<OwnedFd>>,
        wired: Option<Wired>,
    ) -> Result<Reply> {
        check_new(&options)?;
        let (given, own) = match options.is_replicated() {
            true => self.own_file(&mut options).map(|(file, unused)| (Some(file), Some(unused)))?,
            false => (fds.into_iter().next(), None),
        };
        let taken = self.take_backing(&mut options, given.as_ref(), session, own.is_some())?;
        let (backing, memory_bytes) = taken.map_or((None, 0), |taken| (Some(taken.file), taken.memory_bytes));
        if options.shares_tables() {
            options.size_bytes = tables::whole_pages(options.size_bytes);
        }
        if options.read_only {
            return Err(Error::invalid(
                "read_only is of snapshots: nobody could write what the object is to have",
            ));
        }
        options.check()?;
        self.check_can_keep(&options)?;
        self.check_fixed(&options)?;
        self.check_page_size(&options)?;
        self.check_room_for_tables(&options, session.credentials.uid)?;
        if in_directory {
            lock(&self.registry).check_is_in_directory(&name)?; // before anything is made for it
        }
        let charged = self.counted_of_new(session.credentials.uid, &options, wired, memory_bytes);
        let prepared = lock(&self.registry).prepare_create(
            &name,
            &session.credentials,
            options.clone(),
            backing,
            nonce,
            charged,
        )?;
        let mut prepared = match prepared {
            commonhold_registry::Prepared::Exists(record) => {
                let access = if record.file.as_ref().is_some_and(|f| f.read_only) {
                    Access::Read
                } else {
                    Access::ReadWrite
                };
                return self.give(session, &self.object(record.id)?, access, give);
            }
            commonhold_registry::Prepared::New(mut prepared) => {
                prepared.only_in_directory(in_directory);
                prepared
            }
        };
        own.into_iter().for_each(Unused::used); // if it is not made, it goes with what else was
        let id = prepared.record().id;
        // Kept before it has a name: what the next host would not have must not be written to.
        let fetched = prepared.record().options.is_fetched();
        let (given, backing) = if fetched { (None, given.map(Arc::new)) } else { (given, None) };
        let made = match wired {
            Some(wired) if fetched => {
                let in_arena = wired == Wired::InArena;
                self.make_fetched(prepared.record(), backing.as_ref(), in_arena).map(Some)
            }
            Some(Wired::InArena) => self.place_new(prepared.record(), |_, _| Ok(())).map(Some),
            Some(Wired::OfItsOwn) | None => self.make_memory(prepared.record(), given),
        };
        let kept = made.and_then(|fd| {
            let own = fd.as_ref().filter(|_| wired != Some(Wired::InArena));
            self.keep_new_object(id, own)?;
            self.keep_backing(id, backing.as_ref()).map(|()| fd)
        });
        let kept = kept.and_then(|fd| Ok((self.claim_name(prepared.record())?, fd)));
        let held = kept.and_then(|(claiming, fd)| {
            self.give_address(&mut prepared)?;
            Ok((claiming, tables::begin(&prepared.record().options, fd.as_deref())?, fd))
        });
        let (claiming, tables, descriptor) = match held {
            Ok(made) => made,
            Err(error) => {
                self.unkeep_object(id);
                self.remove_files(id);
                self.free_place(id);
                self.forget_moving(prepared.record());
                let has_claimed = prepared.record().options.fixed.is_some();
                lock(&self.registry).abandon_create(prepared);
                if has_claimed {
                    self.tell_names(); // it has its name there before it has an address
                }
                return Err(error);
            }
        };
        let (moves, fixed) = (prepared.record().options.home_moves, prepared.record().options.fixed);
        let committed = self.commit_create(prepared, (descriptor, backing), tables);
        drop(claiming);
        let object = committed.inspect_err(|_| {
            self.free_place(id);
            if moves || fixed.is_some() {
                self.tell_names(); // its name, or its address, hangs on no lease
            }
        })?;
        let read_only = object.record().file.as_ref().is_some_and(|f| f.read_only);
        self.give(session, &object, if read_only { Access::Read } else { Access::ReadWrite }, give)
    }

    /// The object has its name from now on.
    pub(super) fn commit_create(
        &self,
        prepared: NewObject,
        (descriptor, backing): (Option<Arc<OwnedFd>>, Option<Arc<OwnedFd>>),
        tables: Option<Segment>,
    ) -> Result<Arc<Object>> {
        let id = prepared.record().id;
        let mut registry = lock(&self.registry);
        let about = prepared.record().clone();
        let record = registry.commit_create(prepared).inspect_err(|_| {
            self.remove_files(id);
            self.forget_moving(&about);
            self.unkeep_object(id);
        })?;
        let object = Object::new(record, descriptor, String::new());
        object.set_backing(backing);
        *lock(&object.tables) = tables;
        *lock(&object.writers) = Writers::none_yet();
        self.note_arena(&object);
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(id, object.clone());
        Ok(object)
    }

    /// What counts against a user's quota of a new object.
    fn counted_of_new(
        &self,
        uid: u32,
        options: &CreateOptions,
        wired: Option<Wired>,
        memory_bytes: u64,
    ) -> u64 {
        match wired {
            Some(Wired::OfItsOwn) if options.is_fetched() => {
                let own_bytes = if self.machine.is_ordinary(uid) { options.size_bytes } else { 0 };
                self.limits.counted(uid, options, memory_bytes) + own_bytes
            }
            Some(Wired::InArena) if !options.is_fetched() => 0, // what lies in an arena counts with that
            _ => self.limits.counted(uid, options, memory_bytes),
        }
    }

    /// Refuses one address for what has none, or nobody to give it.
    fn check_fixed(&self, options: &CreateOptions) -> Result<()> {
        let refused = |what: &str| Err(Error::new(ErrorKind::Unsupported, format!("fixed: {what}")));
        if options.fixed.is_none() {
            return Ok(());
        }
        if synchronisation::kind_of(options).is_some() {
            return refused("locks with names are used by calls, wherever they are mapped: leave it out");
        }
        if options.is_shared() && !self.with_cluster().is_some_and(|cluster| cluster.is_up()) {
            return refused(
                "the registry of a cluster gives objects that hosts share their addresses, and this host is in none: start it \
                 with --listen, or create the object local",
            );
        }
        Ok(())
    }

    /// An object that hosts share gets its address from the cluster's registry. It has its name there already.
    fn give_address(&self, prepared: &mut NewObject) -> Result<()> {
        let record = prepared.record();
        let (Some(fixed), true) = (record.options.fixed, record.options.is_shared()) else { return Ok(()) };
        let none =
            || Error::new(ErrorKind::Disconnected, "this host is in no cluster any more: try again later");
        let cluster = self.with_cluster().ok_or_else(none)?;
        let (uuid, uid) = (record.uuid, record.charged_uid);
        let address = cluster.give_addresses(uuid, fixed.room_bytes, uid)?;
        Fixed { address, ..fixed }.check_given(Part::Shared, record.options.size_bytes)?;
        prepared.is_at(address);
        Ok(())
    }

    pub(super) fn check_can_keep(&self, options: &CreateOptions) -> Result<()> {
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
    pub(super) fn make_memory(
        &self,
        record: &ObjectRecord,
        given: Option<OwnedFd>,
    ) -> Result<Option<Arc<OwnedFd>>> {
        let options = &record.options;
        match &options.pager {
            PagerKind::File => {
                let given = given.ok_or_else(|| Error::invalid("no descriptor"))?;
                self.prepare_moving(record, &given)?;
                grow_file(&given, options, self.machine.is_ordinary(record.charged_uid))?;
                Ok(Some(Arc::new(given)))
            }
            PagerKind::Anonymous if options.is_controlled() => {
                if options.reserves() {
                    let bytes = pages_of(options.size_bytes) * PAGE_SIZE_BYTES;
                    self.reserve_spill(record, bytes, bytes)?;
                }
                self.note_unused(record.id)?;
                Ok(None)
            }
            PagerKind::Anonymous if options.shares_tables() => {
                if !options.is_of_huge_pages() {
                    super::status::check_memory_for(options.size_bytes)?;
                }
                let fd = tables::make(options, record.charged_uid)?;
                self.note_memory(record.id, &fd)?;
                Ok(Some(Arc::new(fd)))
            }
            PagerKind::Anonymous => {
                let bytes = options.size_bytes;
                let is_segment = record.name.as_ref().is_some_and(system_v::is_segment);
                let is_heap = options.is_heap() && !options.is_controlled();
                let is_relied_on =
                    is_heap || options.is_channel() || synchronisation::kind_of(options).is_some();
                let keeps_size = is_segment || is_relied_on || record.name.is_none();
                let make = if keeps_size { frames::create_of_fixed_size } else { frames::create };
                let label = if options.is_wired() { OWN_MEMORY } else { "commonhold-object" };
                let fd = make(label, bytes).doing("making memory for the object")?;
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

    /// Takes disk space for all pages of an anonymous object, `more` of which it did not have.
    pub(super) fn reserve_spill(&self, record: &ObjectRecord, bytes: u64, more: u64) -> Result<()> {
        if self.machine.is_ordinary(record.charged_uid) {
            check_room(&self.machine.directory, more)?;
        }
        Spill::new(&self.machine.path("spill", record.id)).reserve(bytes)
    }
}
