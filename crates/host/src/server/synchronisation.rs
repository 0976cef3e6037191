//! Locks by name (`docs/PRIMITIVES.md`). They lie in memory of the programs that use them, which lock and unlock without the
//! host. It does what they cannot: when one of them has ended, it frees what that had.
//!
//! The host trusts no word there. Whoever may write the object may have written it, and harms those who may write it, too.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::{Access, CreateOptions, Error, ErrorKind, ObjectId, PagerKind, Result, Translation};
use commonhold_primitives::{Kind, Mapped, Who, free_of_the_dead};
use commonhold_sys::frames;
use commonhold_sys::memory::FileWindow;
use commonhold_sys::process::Identity;
use rustix::fs::SealFlags;
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// The kind of primitive that an object holds.
pub(super) fn kind_of(options: &CreateOptions) -> Option<Kind> {
    let memory = options.pager == PagerKind::Anonymous && options.translation == Translation::Paged;
    Kind::of_object(&options.description, options.size_bytes).filter(|_| memory && !options.is_controlled())
}

/// Whether an object holds primitives, of one host or of several.
pub(super) fn holds_locks(options: &CreateOptions) -> bool {
    kind_of(options).is_some() || super::tokens::are_shared(options)
}

/// A process as its primitives name it: never 0, and no two that live have the same.
fn member(process: Identity) -> u32 {
    Who::member_of(process.pid, process.start_ticks)
}

impl Host {
    /// What a client writes into the words of what it locks.
    pub(super) fn member_of(&self, session: &Session) -> Result<u32> {
        // Without the time of its start the next host would not expect it back.
        if session.process.pid == 0 || session.process.start_ticks == 0 {
            let what = "the host does not see this process, which is of another PID name space, and could not free the locks that \
                        it had when it ended: run host or program in the same one, or in one that contains it";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Ok(member(session.process))
    }

    /// Whether a session may have locks: it lasts as long as its process then, also without a connection.
    pub(super) fn has_locks(&self, session: &Session) -> bool {
        let writes = |(id, access): (&ObjectId, &Access)| access.writes().then_some(*id);
        let opened: Vec<ObjectId> = lock(&session.opened).iter().filter_map(writes).collect();
        opened.into_iter().any(|id| self.object(id).is_ok_and(|object| object.synchronises()))
    }

    /// Frees what processes have that do not have the object open any more. `left`: that session closed it; `None`: one of them
    /// ended with it.
    pub(super) fn free_locks(&self, object: &Object, left: Option<&Session>) {
        let options = object.record().options.clone();
        if super::tokens::are_shared(&options) {
            return self.free_tokens(object, left);
        }
        let Some(kind) = kind_of(&options) else { return };
        let Some(memory) = object.descriptor() else { return };
        let _one_at_a_time = lock(&object.freeing);
        // Who is expected back has it still, and says so soon.
        if self.returning.expects(object.id) {
            return;
        }
        if let Err(error) = self.free_in(object, kind, &memory, left) {
            let id = object.id.0;
            self.machine.log(format_args!("object {id}: freeing the locks of who ended: {error}"));
        }
    }

    fn free_tokens(&self, object: &Object, left: Option<&Session>) {
        let uuid = object.record().uuid;
        let Some(tokens) = self.tokens_in_use(uuid).filter(|_| !self.returning.expects(object.id)) else {
            return;
        };
        let left = left.map(|session| member(session.process));
        tokens.free_of_the_dead(|| self.members_of(object.id), left);
    }

    fn free_in(
        &self,
        object: &Object,
        kind: Kind,
        memory: &OwnedFd,
        left: Option<&Session>,
    ) -> io::Result<()> {
        let bytes = object.record().options.size_bytes as usize;
        // As a host of an earlier version made it, it could become shorter while it is looked at.
        if !rustix::fs::fcntl_get_seals(memory)?.contains(SealFlags::SHRINK) {
            return Ok(());
        }
        let window = FileWindow::for_writing(memory, 0, bytes)?;
        let Some(start) = NonNull::new(window.as_ptr().cast_mut()) else { return Ok(()) };
        // SAFETY: mapped shared, to read and to write, until the window is dropped, which is after it. The memory was made with
        // its size, and sealed. Nobody else is given the address.
        let mapped = unsafe { Mapped::new(start, bytes) };
        let left = left.map(|session| member(session.process));
        // Where there are no pages nobody has anything, and a look would make some, at the host's expense.
        frames::runs_of_memory(memory, bytes as u64, |offset, length| {
            let part = offset as usize..bytes.min((offset + length) as usize);
            free_of_the_dead(&mapped, part, kind, || self.members_of(object.id), left);
        })
    }

    /// The processes that have an object open.
    fn members_of(&self, id: ObjectId) -> HashSet<u32> {
        let has = |session: &&std::sync::Arc<Session>| lock(&session.opened).contains_key(&id);
        self.sessions().iter().filter(has).map(|session| member(session.process)).collect()
    }
}

impl Object {
    /// Whether it holds primitives: whoever maps it relies on its size.
    pub(super) fn synchronises(&self) -> bool {
        holds_locks(&self.record().options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_live_have_numbers_of_their_own() {
        let number = |pid, start_ticks| member(Identity { pid, start_ticks });
        assert_ne!(number(7, 100), number(8, 100));
        assert_ne!(number(7, 100), number(7, 101), "another process may get the number later");
        assert_ne!(number(1, 0), 0);
    }

    #[test]
    fn only_plain_memory_synchronises() {
        let options =
            CreateOptions { description: "sync:mutex".into(), size_bytes: 64, ..CreateOptions::default() };
        assert_eq!(kind_of(&options), Some(Kind::Mutex));
        let wired = CreateOptions { translation: Translation::Wired, ..options.clone() };
        let file = CreateOptions { pager: PagerKind::File, ..options.clone() };
        let larger = CreateOptions { size_bytes: Kind::Mutex.most_bytes() + 1, ..options.clone() };
        let other = CreateOptions { description: "float32".into(), ..options };
        assert!([wired, file, larger, other].iter().all(|options| kind_of(options).is_none()));
    }
}
