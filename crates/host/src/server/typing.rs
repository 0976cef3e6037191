//! What is in pages of an object, as its users say it.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::{
    Access, CreateOptions, Credentials, Error, ErrorKind, Name, ObjectId, Result, Tagging,
};
use std::sync::Arc;

/// Refuses an object that begins with tags: in which format its bytes are is said by its home.
pub(super) fn check_new(options: &CreateOptions) -> Result<()> {
    if options.types.is_empty() {
        return Ok(());
    }
    Err(Error::invalid("an object is created without tags: say what is in its pages when it is there"))
}

impl Host {
    pub(super) fn tag(
        self: &Arc<Self>,
        session: &Session,
        name: &Name,
        of: Option<u128>,
        tagging: &Tagging,
    ) -> Result<()> {
        let object = match (self.lookup(session, name, Access::ReadWrite), self.cluster.get()) {
            (Err(error), Some(cluster)) if error.kind == ErrorKind::NotFound && cluster.is_up() => {
                return cluster.tag_elsewhere(name, &session.credentials, of, tagging);
            }
            (found, _) => found?,
        };
        object.record().check_is(name, of)?;
        self.tag_found(&object, tagging)
    }

    /// Of an object whose home is this host: a process of another host asks.
    pub fn tag_for(
        self: &Arc<Self>,
        who: &Credentials,
        name: &Name,
        of: Option<u128>,
        tagging: &Tagging,
    ) -> Result<()> {
        let record = lock(&self.registry).lookup(name, who, Access::ReadWrite)?;
        record.check_is(name, of)?;
        if !record.options.is_shared() {
            let text = format!("{name} is local to its host: say there what is in its pages");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.tag_found(&self.object(record.id)?, tagging)
    }

    /// The same of an object that the session has open, whatever its name is, if it has one.
    pub(super) fn tag_opened(
        self: &Arc<Self>,
        session: &Session,
        id: ObjectId,
        tagging: &Tagging,
    ) -> Result<()> {
        if !session.access(id)?.writes() {
            let text = "a tag changes what the object means: open it for writing";
            return Err(Error::new(ErrorKind::Permission, text));
        }
        let object = self.object(id)?;
        let (is_elsewhere, first, uuid) = {
            let record = object.record();
            (record.is_elsewhere, record.first_name.clone(), record.uuid)
        };
        // Of explicit coherence the home's own processes have it open as those of other hosts do.
        if let Some(home) = self.object_of(uuid, false) {
            return self.tag_found(&home, tagging);
        }
        match self.cluster.get().filter(|cluster| is_elsewhere && cluster.is_up()) {
            Some(cluster) => cluster.tag_elsewhere(&first, &session.credentials, Some(uuid), tagging),
            None => self.tag_found(&object, tagging),
        }
    }

    fn tag_found(self: &Arc<Self>, object: &Arc<Object>, tagging: &Tagging) -> Result<()> {
        let result = object.hold().and_then(|_held| {
            // What was said is of the size that the object has until this is done.
            let _one_at_a_time = lock(&object.resizing);
            self.tag_object(object, tagging)
        });
        self.tell_of_moving();
        self.settle_object(object.id);
        result
    }

    fn tag_object(self: &Arc<Self>, object: &Arc<Object>, tagging: &Tagging) -> Result<()> {
        object.check_access(Access::ReadWrite)?;
        let (options, uuid, label) = {
            let record = object.record();
            (record.options.clone(), record.uuid, record.label())
        };
        if options.is_channel() || object.synchronises() {
            let text = "what is in channels and locks is said by what they are, and stays on one machine";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let types = tagging.of(&options.types, options.size_bytes, self.machine.types.here())?;
        let users = self.object_of(uuid, true); // at the home of an explicit one
        let change = || {
            for known in users.iter().chain([object]) {
                *known.record() = lock(&self.registry).set_types(known.id, &types)?;
            }
            let driver = self.with_cluster().and_then(|cluster| cluster.driver(uuid));
            driver.iter().for_each(|driver| driver.has_types(&types));
            Ok(())
        };
        match self.cluster.get().filter(|_| options.is_shared()) {
            Some(cluster) => cluster.while_nobody_else_has(uuid, &label, change),
            None => change(),
        }
    }
}
