//! Requests to watch bytes of an object, and to say that they have changed (`docs/WAIT.md`).

use super::Host;
use super::session::{Session, no_descriptor_left};
use crate::watches;
use commonhold_object::error::Doing;
use commonhold_object::wire::Reply;
use commonhold_object::{Coherence, Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PageRange, Result, limits};
use commonhold_watches::{Limit, Range, Who};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The bytes, if an object of that size has them.
fn range_of((offset, length): (u64, u64), size_bytes: u64) -> Result<Range> {
    let range = Range::new(offset, length).filter(|range| range.end() <= size_bytes);
    range.ok_or_else(|| {
        let words = format!("{length} bytes from {offset} on are none of the object's {size_bytes}");
        Error::invalid(words)
    })
}

impl Host {
    pub(super) fn watch_range(
        &self,
        session: &Session,
        id: ObjectId,
        bytes: (u64, u64),
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        session.access(id)?;
        let object = self.object(id)?;
        let (uuid, options) = {
            let record = object.record();
            (record.uuid, record.options.clone())
        };
        let range = range_of(bytes, options.size_bytes)?;
        let who = Who { session: session.id, object: id, uid: session.credentials.uid };
        let of_user = if self.machine.is_ordinary(who.uid) { self.limits.watches } else { usize::MAX };
        let room = self.machine.watches.check_room(who, limits::WATCHES_PER_CLIENT, of_user);
        room.map_err(|limit| {
            let whose = match limit {
                Limit::Client(count) => format!("this client has {count} watches"),
                Limit::User(count) => format!("clients of user {} have {count} watches", who.uid),
            };
            Error::new(ErrorKind::TooMany, format!("{whose}, the limit: end some, or watch larger ranges"))
        })?;
        let (ours, theirs) = match watches::pair() {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) => {
                return Err(no_descriptor_left());
            }
            made => made.doing("making the sockets of a watch")?,
        };
        let number = self.machine.watches.add(uuid, who, range, ours);
        give.push(Arc::new(theirs));
        // First it is watched, then it is looked at.
        let explicit = options.coherence == Coherence::Explicit;
        let pages = PageRange::covering(bytes.0, bytes.1, options.size_bytes)?;
        let absent = object.cache().filter(|_| explicit).and_then(|cache| cache.first_absent(pages));
        Ok(Reply::Watching { number, to_read: absent.map(|page| page * PAGE_SIZE_BYTES) })
    }

    pub(super) fn notify(&self, session: &Session, id: ObjectId, bytes: (u64, u64)) -> Result<()> {
        if !session.access(id)?.writes() {
            let words =
                "the object is open for reading here, and who only reads wakes nobody: open it for writing";
            return Err(Error::new(ErrorKind::Permission, words));
        }
        let object = self.object(id)?;
        let (uuid, size_bytes, is_shared) = {
            let record = object.record();
            (record.uuid, record.options.size_bytes, record.options.is_shared())
        };
        let range = range_of(bytes, size_bytes)?;
        self.machine.watches.wake(uuid, |other| range.overlaps(other));
        match self.with_cluster().filter(|cluster| is_shared && cluster.is_up()) {
            Some(cluster) => cluster.notify(uuid, range),
            None => Ok(()),
        }
    }
}
