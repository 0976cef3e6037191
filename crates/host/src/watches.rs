//! Who waits for changes of which bytes (`docs/WAIT.md`), and how they are woken: by a byte on a pair of sockets, of which the
//! client polls the other end. The host never waits here: where there is no room for another byte, a wake is there already.

use commonhold_object::{ObjectId, PAGE_SIZE_BYTES, SessionId};
use commonhold_watches::{Limit, Range, Table, Who};
use roaring::RoaringBitmap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All watches of this host.
#[derive(Default)]
pub struct Watches(Mutex<Table<Arc<OwnedFd>>>);

/// The host's end of a new pair, and the client's. What a client sends is refused by the kernel, and no more than some bytes wait
/// for one that does not read.
pub fn pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    shutdown(&ours, Shutdown::Read)?;
    set_socket_send_buffer_size(&ours, 0)?; // as small as there is
    Ok((ours, theirs))
}

impl Watches {
    fn table(&self) -> MutexGuard<'_, Table<Arc<OwnedFd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses one more than a client or a user may have. Those whose other end was closed do not count.
    pub fn check_room(&self, who: Who, of_client: usize, of_user: usize) -> Result<(), Limit> {
        if self.table().check_room(who, of_client, of_user).is_ok() {
            return Ok(());
        }
        let ended = |end: &OwnedFd| {
            let mut polled = [PollFd::new(end, PollFlags::empty())];
            let found = poll(&mut polled, Some(&Timespec::default()));
            found == Ok(1) && polled[0].revents().contains(PollFlags::HUP)
        };
        let of_user_now = self.table().of_user(who.uid);
        let gone = of_user_now.into_iter().filter(|(_, end)| ended(end)).map(|(number, _)| number).collect();
        self.forget(gone);
        self.table().check_room(who, of_client, of_user)
    }

    /// Adds one, which is woken through `end`; gives its number.
    pub fn add(&self, object: u128, who: Who, range: Range, end: OwnedFd) -> u64 {
        self.table().add(object, who, range, Arc::new(end))
    }

    /// Wakes those that watch bytes of the object of which it says so.
    pub fn wake(&self, object: u128, touches: impl Fn(Range) -> bool) {
        let touched = self.table().touched(object, touches); // sent to without the lock
        let is_gone = |end: &OwnedFd| {
            let sent = send(end, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            // Full: it is woken already. Where the kernel has no memory for it, the end is closed, and that wakes.
            !matches!(sent, Ok(_) | Err(Errno::AGAIN))
        };
        self.forget(touched.iter().filter(|(_, end)| is_gone(end)).map(|(number, _)| *number).collect());
    }

    /// Wakes those that watch any of these pages.
    pub fn wake_pages(&self, object: u128, pages: &RoaringBitmap) {
        let page = |byte: u64| u32::try_from(byte / PAGE_SIZE_BYTES).unwrap_or(u32::MAX);
        self.wake(object, |range| pages.range_cardinality(page(range.first())..=page(range.end() - 1)) > 0);
    }

    fn forget(&self, gone: Vec<u64>) {
        if !gone.is_empty() {
            self.table().remove_if(|number, _| gone.contains(&number));
        }
    }

    /// A client ends one.
    pub fn end(&self, session: SessionId, which: u64) {
        self.table().remove_of(session, |number, _| number == which);
    }

    /// A client closes an object.
    pub fn end_of(&self, session: SessionId, object: ObjectId) {
        self.table().remove_of(session, |_, of| of == object);
    }

    /// A client has ended.
    pub fn end_of_client(&self, session: SessionId) {
        self.table().remove_of(session, |_, _| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvFlags, recv};

    fn who() -> Who {
        Who { session: SessionId(1), object: ObjectId(2), uid: 3 }
    }

    fn bytes_at(end: &OwnedFd) -> Result<usize, Errno> {
        recv(end, &mut [0; 4096], RecvFlags::DONTWAIT).map(|(_, count)| count)
    }

    #[test]
    fn wakes_are_put_together_where_nobody_reads_and_nobody_waits() {
        let watches = Watches::default();
        let (ours, theirs) = pair().unwrap();
        watches.add(1, who(), Range::new(8, 8).unwrap(), ours);
        for _ in 0..100_000 {
            watches.wake(1, |range| Range::ALL.overlaps(range));
        }
        let waiting = bytes_at(&theirs).unwrap();
        assert!((1..64).contains(&waiting), "{waiting} bytes");
        watches.wake_pages(1, &[1].into());
        assert_eq!(bytes_at(&theirs), Err(Errno::AGAIN));
        watches.wake_pages(1, &[0].into());
        assert_eq!(bytes_at(&theirs), Ok(1));
    }

    #[test]
    fn a_client_can_send_nothing_and_one_that_closed_its_end_is_forgotten() {
        let watches = Watches::default();
        let (ours, theirs) = pair().unwrap();
        watches.add(1, who(), Range::ALL, ours);
        let sent = send(&theirs, &[0; 64], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        assert_eq!(sent, Err(Errno::PIPE));
        assert_eq!(watches.check_room(who(), 1, 9), Err(Limit::Client(1)));
        drop(theirs);
        assert_eq!(watches.check_room(who(), 1, 9), Ok(()), "nobody is at its other end");
        let (ours, theirs) = pair().unwrap();
        watches.add(1, who(), Range::ALL, ours);
        drop(theirs);
        watches.wake(1, |_| true);
        assert!(watches.table().of_user(3).is_empty());
    }
}
