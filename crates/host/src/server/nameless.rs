//! Objects that never have a name: memory that one program makes, and others get by messages (`docs/MESSAGES.md`, "Handles").
//!
//! The registry's file learns nothing of them, for its commit would cost more than all the rest. `live/<id>.record` is what the
//! next host knows them by. They do not outlive a boot, as no anonymous object does.

use super::object::Object;
use super::session::Session;
use super::typing::check_new;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::wire::Reply;
use commonhold_object::{
    Access, Coherence, CreateOptions, Error, ErrorKind, Name, ObjectId, PagerKind, Result, Translation,
};
use commonhold_registry::ObjectRecord;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// What such an object is called where an object must be called something.
pub(super) fn first_name() -> Result<Name> {
    Name::new("/nameless")
}

/// Refuses what needs a name.
fn check(options: &CreateOptions) -> Result<()> {
    let refused =
        |what: &str| Err(Error::new(ErrorKind::Unsupported, format!("an object without a name {what}")));
    if options.pager != PagerKind::Anonymous {
        return refused("is anonymous: give the one on a file a name");
    }
    if options.coherence != Coherence::Local {
        return refused("is local to its host: other hosts find objects by name");
    }
    if !matches!(options.translation, Translation::Paged) {
        return refused(
            "is paged: a wired one lies among those of its directory, and shared page tables have a name",
        );
    }
    if options.is_channel() {
        return refused("is no channel: others find channels by name");
    }
    Ok(())
}

impl Host {
    fn record_path(&self, id: ObjectId) -> PathBuf {
        self.machine.path("live", id).with_extension("record")
    }

    /// Before it is known to anybody.
    pub(super) fn note_nameless(&self, record: &ObjectRecord) -> Result<()> {
        let bytes = postcard::to_stdvec(record).map_err(|_| Error::invalid("the record of an object"))?;
        std::fs::write(self.record_path(record.id), bytes).doing("noting an object without a name")
    }

    /// What the host before noted. Before the registry is asked what there is.
    pub(super) fn adopt_nameless(&self) -> Result<()> {
        let folder = self.machine.directory.join("live");
        for entry in std::fs::read_dir(&folder).doing(format!("reading {}", folder.display()))?.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "record") {
                continue;
            }
            let record =
                std::fs::read(&path).ok().and_then(|bytes| postcard::from_bytes::<ObjectRecord>(&bytes).ok());
            let its = record.filter(|record| {
                record.boot_id == self.machine.boot_id && self.record_path(record.id) == path
            });
            // Of an earlier boot, or cut off when it was written: nobody has such an object.
            if its.and_then(|record| lock(&self.registry).adopt_nameless(record)).is_none() {
                std::fs::remove_file(&path).doing(format!("removing {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// What a request made that no host answered.
    fn made_before(&self, session: &Session, nonce: u128) -> Option<Arc<Object>> {
        let uid = session.credentials.uid;
        let opened: Vec<ObjectId> = lock(&session.opened).keys().copied().collect();
        opened.into_iter().filter_map(|id| self.object(id).ok()).find(|object| {
            let record = object.record();
            let its_owner = record.charged_uid == uid && record.ownership.uid == uid;
            record.nonce == nonce && its_owner && record.name.is_none() && !record.is_elsewhere
        })
    }

    pub(super) fn create_nameless(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut options: CreateOptions,
        (nonce, repeated): (u128, bool),
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        check(&options)?;
        options.check()?;
        check_new(&options)?;
        // What others may is what they are sent, and no mode.
        options.mode &= 0o700;
        if options.read_only {
            return Err(Error::invalid("nobody could write what a read-only object is to have"));
        }
        self.check_can_keep(&options)?;
        if repeated && let Some(made) = self.made_before(session, nonce) {
            return self.give(session, &made, Access::ReadWrite, give);
        }
        let charged = self.limits.counted(session.credentials.uid, &options, 0);
        let first = first_name()?;
        let prepared =
            lock(&self.registry).prepare_nameless(&session.credentials, first, options, nonce, charged)?;
        let id = prepared.record().id;
        let memory = self.make_memory(prepared.record(), None).and_then(|fd| {
            self.keep_new_object(id, fd.as_ref())?;
            self.note_nameless(prepared.record()).map(|()| fd)
        });
        let fd = match memory {
            Ok(fd) => fd,
            Err(error) => {
                self.unkeep_object(id);
                self.remove_files(id);
                lock(&self.registry).abandon_create(prepared);
                return Err(error);
            }
        };
        let record = lock(&self.registry).commit_create(prepared)?;
        let object = Object::new(record, fd, String::new());
        // Others can ask of any number whether its object is to end.
        let given = object.hold().and_then(|_held| {
            self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(id, object.clone());
            self.give(session, &object, Access::ReadWrite, give)
        });
        self.settle_object(id); // if it was not given nobody has it
        given
    }
}
