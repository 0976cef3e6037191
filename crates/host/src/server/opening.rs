//! Requests to open and to close: what a session is given, and what it then has.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::wire::{OpenReply, Reply};
use commonhold_object::{Access, Error, ErrorKind, Name, ObjectId, Result, limits};
use commonhold_wired::Event as Moves;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The object counts as open.
struct Counted<'o>(&'o Object);

impl Counted<'_> {
    fn of(object: &Object) -> Counted<'_> {
        object.opens.fetch_add(1, Ordering::AcqRel);
        Counted(object)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.opens.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How often a use of an object may end while it is opened.
const TRIES: u32 = 16;

impl Host {
    /// The object of that name, if the session may have it so.
    pub(super) fn lookup(&self, session: &Session, name: &Name, access: Access) -> Result<Arc<Object>> {
        let record = lock(&self.registry).lookup(name, &session.credentials, access)?;
        self.object(record.id)
    }

    pub(super) fn open(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: &Name,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        self.give_found(session, || self.look_everywhere(session, name, access), access, give)
    }

    /// Opens an object for a session: what to tell, and the descriptor to map.
    pub(super) fn give(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let find = || if object.has_ended() { Err(object.gone()) } else { Ok(object.clone()) };
        self.give_found(session, find, access, give)
    }

    fn give_found(
        self: &Arc<Self>,
        session: &Arc<Session>,
        find: impl Fn() -> Result<Arc<Object>>,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        for _ in 0..TRIES {
            let used = &self.as_used(&find()?)?;
            let result = used.hold().and_then(|_held| self.give_held(session, used, access, give));
            // Its name and its last user may have gone meanwhile, and this one, too.
            self.settle_object(used.id);
            match result {
                // Nobody used it, just when it was found: it is begun anew.
                Err(error) if error.kind == ErrorKind::NotFound && used.has_ended() => {}
                other => return other,
            }
        }
        let what = "the object ends again and again while it is opened: try again";
        Err(Error::new(ErrorKind::Busy, what))
    }

    fn give_held(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        access: Access,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        object.check_access(access)?;
        // Until it is noted that a session has it open it may not move.
        let wired = object.record().options.is_wired();
        let _making = wired.then(|| lock(&object.making));
        let counted = wired.then(|| self.settle_place(object).map(|()| Counted::of(object))).transpose()?;
        if wired {
            self.check_settled(session, object, access)?;
        }
        // Before its home is looked for: that hears who opens it.
        let _opening = session.opens(object.id, access);
        let controlled = object.is_controlled();
        let whole = if controlled {
            let cache = self.cache_of(object)?;
            self.begins_to_use(session, object, access)?;
            if self.machine.is_ordinary(session.credentials.uid) {
                cache.is_opened_by_others(access.writes());
            }
            self.tell_losses(object, &cache)?;
            cache.frames.clone()
        } else {
            let none =
                || Error::new(ErrorKind::Lost, "the object's memory is gone: remove it and create it again");
            if object.descriptor().is_none() {
                self.returning.wait_for(object.id)?;
                self.settle_returned();
            }
            object.descriptor().ok_or_else(none)?
        };
        // A writer gets what was given for the object, and nothing that the host opened. A reader must not write, and gets the
        // same file, opened for reading alone: it was looked at, and is the same to whoever opens it (`backing`).
        let fd = if access.writes()
            || object.record().file.as_ref().is_some_and(|f| f.read_only) && !controlled && !wired
        {
            whole
        } else {
            Arc::new(super::tables::for_readers(object, &whole)?)
        };
        self.note_open(session, object, access)?;
        drop(counted);
        give.push(fd);
        Ok(Reply::Opened(Box::new(OpenReply { info: self.short_info(object), access })))
    }

    fn note_open(self: &Arc<Self>, session: &Session, object: &Object, access: Access) -> Result<()> {
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
        let (is_wired, is_channel) = {
            let record = object.record();
            (record.options.is_wired(), record.options.is_channel())
        };
        if is_channel && access.writes() {
            self.note_writer(object, session.credentials.uid);
        }
        if is_wired {
            self.take_in(Moves::Pinned { session: session.id, object: object.id });
        }
        if object.is_with_clients() {
            self.keep_open(session, object.id);
            self.note_client(session, object.id);
        }
        Ok(())
    }

    pub(super) fn close(self: &Arc<Self>, session: &Session, id: ObjectId) -> Result<()> {
        let removed = lock(&session.opened).remove(&id);
        lock(&session.watched).remove(&id);
        self.machine.watches.end_of(session.id, id);
        self.forget_taken(session, id);
        if let (Some(access), Ok(object)) = (removed, self.object(id)) {
            if let Some(cache) = object.cache() {
                cache.remove_holds(session.id);
                self.keep_holds(session, &cache);
            }
            if object.is_controlled() {
                self.forget_client(session, id);
            } else {
                self.forget_client_soon(session, id);
            }
            self.is_open_no_more(session, &object);
            if access.writes() {
                self.free_locks(&object, Some(session));
            }
            // Of a direct one that goes on, it does no harm if the next host takes it for open: attaching is to be quick. A wired
            // one that is open stays where and as it is, and of locks it matters who has them open.
            let (is_wired, has_name) = {
                let record = object.record();
                (record.options.is_wired(), record.name.is_some())
            };
            let matters = is_wired || object.synchronises() || object.is_with_clients() && !has_name;
            if object.is_controlled() || matters {
                self.keep_session(session);
            }
            self.settle_object(id);
        }
        Ok(())
    }
}
