//! Waiting for changes that somebody says there were (`docs/WAIT.md`).

use crate::addresses;
use crate::controlled::no_descriptor_left;
use crate::inherit;
use crate::link::{Answer, Call, OnLoss, lock, wrong_reply};
use crate::object::Core;
use crate::{Error, ErrorKind, Object, PAGE_SIZE_BYTES, Result, copying, own};
use commonhold_object::error::Doing;
use commonhold_object::pages_of;
use commonhold_object::wire::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where a host has died, a wait looks so long for the next one at least.
const LEAST: Duration = Duration::from_millis(100);

/// What waits for a change of bytes of an object: of one that came since it was made, or since its last wait returned.
///
/// Make it, look at the data, and wait only if that is not yet as it should be: then no change is missed. It keeps the object
/// open. [`as_fd`](AsFd::as_fd) can be polled, and is readable when [`wait`](Self::wait) would return at once.
#[derive(Debug)]
pub struct Watch {
    core: Arc<Core>,
    range: (u64, u64),
    /// An epoll set of the end alone: it stays the same where another host gives another end.
    set: OwnedFd,
    end: Mutex<End>,
    /// Who asked the next host has its answer.
    answered: Condvar,
    /// A fork child would take what wakes its parent.
    process: u32,
}

/// The client's end of the host's pair of sockets.
#[derive(Debug)]
struct End {
    socket: OwnedFd,
    number: u64,
    /// Of the connection on which it was asked for.
    generation: u64,
    /// It is closed, and one of the threads that wait asks the next host for another.
    next_is_asked_for: bool,
}

/// What became of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Yes,
    /// The time is over.
    No,
    /// A signal handler has run.
    Interrupted,
}

impl Core {
    /// Asks of an object that is open at the host which answers.
    fn ask_opened(&self, request: &Request, deadline: Option<Instant>) -> Result<(Reply, Vec<OwnedFd>, u64)> {
        loop {
            self.shared().connected_by(deadline)?;
            self.open_again_if_needed()?;
            let call = Call { deadline, on_loss: OnLoss::AskAnew, ..Call::new(request) };
            if let Answer::Reply(reply, fds, generation) = self.shared().call(call)? {
                return Ok((reply, fds, generation));
            }
        }
    }

    /// As far as the object reaches: its last page may be mapped as a whole.
    fn within(&self, offset: u64, length: u64) -> u64 {
        let size = self.size_bytes();
        let end = offset.saturating_add(length);
        if offset < size && end <= pages_of(size) * PAGE_SIZE_BYTES {
            length.min(size - offset)
        } else {
            length
        }
    }
}

/// Refuses what is no range of the object.
fn check(object: &Object, offset: u64, length: u64) -> Result<()> {
    if length == 0 {
        return Err(Error::invalid("the length is zero: name at least one byte"));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    copying::check(object, offset, length)
}

/// The bytes of an object at these addresses.
fn bytes_at(address: usize, length: usize) -> Result<(Object, u64, u64)> {
    if length == 0 {
        return Err(Error::invalid("the length is zero: name at least one byte"));
    }
    let skip = address as u64 % PAGE_SIZE_BYTES;
    let pages = (length as u64).saturating_add(skip).checked_next_multiple_of(PAGE_SIZE_BYTES);
    let pages =
        pages.ok_or_else(|| Error::invalid(format!("address {address:#x} + length {length} overflows")))?;
    let pieces = addresses::covering(address as u64 - skip, pages)?;
    inherit::refuse_copies(&pieces)?;
    let first = &pieces[0];
    let follows = |two: &[commonhold_object::Region<addresses::Piece>]| {
        let (one, next) = (&two[0], &two[1]);
        Arc::ptr_eq(one.value.object(), next.value.object()) && one.offset + one.length == next.offset
    };
    if !pieces.windows(2).all(follows) {
        return Err(Error::invalid(
            "these addresses show more than one range of one object: take each by itself",
        ));
    }
    let core = first.value.object().clone();
    let offset = first.offset + skip;
    let length = core.within(offset, length as u64);
    Ok((Object { core }, offset, length))
}

/// Watches the bytes at these addresses.
pub(crate) fn at(address: usize, length: usize) -> Result<Watch> {
    let (object, offset, length) = bytes_at(address, length)?;
    object.watch(offset, length)
}

/// Notifies of the bytes at these addresses.
pub(crate) fn notify_at(address: usize, length: usize) -> Result<()> {
    let (object, offset, length) = bytes_at(address, length)?;
    object.notify(offset, length)
}

/// Has the host watch.
fn ask(object: &Object, (offset, length): (u64, u64), deadline: Option<Instant>) -> Result<End> {
    let core = &object.core;
    let request = Request::WatchRange { object: core.id(), offset, length };
    let (Reply::Watching { number, to_read }, mut fds, generation) = core.ask_opened(&request, deadline)?
    else {
        return Err(wrong_reply());
    };
    let socket = fds.pop().ok_or_else(|| no_descriptor_left("what wakes the watch"))?;
    own::note(&socket);
    let end = End { socket, number, generation, next_is_asked_for: false };
    if let Some(offset) = to_read {
        // Of other hosts' syncs a host hears that has read the object.
        copying::read(object, &mut [0], offset)?;
    }
    Ok(end)
}

impl Object {
    /// Watches bytes of it: see [`Watch`]. Whoever may read the object may.
    pub fn watch(&self, offset: u64, length: u64) -> Result<Watch> {
        check(self, offset, length)?;
        let range = (offset, length);
        let end = ask(self, range, None)?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from);
        let set = set.doing("making the descriptor of a watch")?;
        own::note(&set);
        let (core, answered, process) = (self.core.clone(), Condvar::new(), std::process::id());
        let watch = Watch { core, range, set, end: Mutex::new(end), answered, process };
        watch.listen(&lock(&watch.end))?;
        Ok(watch)
    }

    /// Wakes all who watch any of these bytes, in whatever process on whatever host. Whoever may write the object may.
    ///
    /// What was written before is seen by whoever was woken; of an object of explicit coherence on other hosts, what was
    /// synced before.
    pub fn notify(&self, offset: u64, length: u64) -> Result<()> {
        if !self.access().writes() {
            let what =
                format!("object {} is open for reading: open it for writing to notify", self.core.label());
            return Err(Error::new(ErrorKind::Permission, what));
        }
        check(self, offset, length)?;
        let request = Request::Notify { object: self.id(), offset, length };
        self.core.ask_opened(&request, None).map(drop)
    }
}

impl Watch {
    /// Waits until the watch is woken; false if that does not happen before the deadline. Several changes may wake it once.
    ///
    /// It may also be woken where nobody notified: when another host process serves, when a host of the cluster is lost, and
    /// when the object's home is found again.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<bool> {
        loop {
            match self.wait_once(deadline)? {
                Woken::Yes => return Ok(true),
                Woken::No => return Ok(false),
                Woken::Interrupted => {}
            }
        }
    }

    /// The same, until a signal handler has run.
    pub(crate) fn wait_once(&self, deadline: Option<Instant>) -> Result<Woken> {
        if self.process != std::process::id() {
            return Err(Error::invalid(
                "the watch was made in another process, before fork: make another here",
            ));
        }
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A time too long for the kernel is for ever.
            let time = left.and_then(|left| Timespec::try_from(left).ok());
            let mut polled = [PollFd::new(&self.set, PollFlags::IN)];
            match poll(&mut polled, time.as_ref()) {
                Ok(0) => return Ok(Woken::No),
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(Woken::Interrupted),
                Err(errno) => return Err(errno).doing("waiting for a change"),
            }
            let mut end = lock(&self.end);
            match recv(&end.socket, &mut [0; 64], RecvFlags::DONTWAIT) {
                Ok((_, count)) if count > 0 => return Ok(Woken::Yes),
                Ok(_) | Err(Errno::CONNRESET) if end.next_is_asked_for => {
                    if !self.wait_for_answer(end, deadline) {
                        return Ok(Woken::No);
                    }
                }
                Ok(_) | Err(Errno::CONNRESET) => {
                    end.next_is_asked_for = true;
                    drop(end);
                    return self.watch_anew(deadline);
                }
                Err(Errno::AGAIN | Errno::INTR) => {} // another thread took it
                Err(errno) => return Err(errno).doing("waiting for a change"),
            }
        }
    }

    /// Waits for what another thread asks; false if it has no answer before the deadline.
    fn wait_for_answer(&self, end: MutexGuard<'_, End>, deadline: Option<Instant>) -> bool {
        let is_asked_for = |end: &mut End| end.next_is_asked_for;
        let Some(deadline) = deadline else {
            drop(self.answered.wait_while(end, is_asked_for).unwrap_or_else(PoisonError::into_inner));
            return true;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.answered.wait_timeout_while(end, left, is_asked_for);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The host's end is closed: it died, or was replaced. The next one watches, and what came between is not known.
    fn watch_anew(&self, deadline: Option<Instant>) -> Result<Woken> {
        let until = deadline.map(|deadline| deadline.max(Instant::now() + LEAST));
        let object = Object { core: self.core.clone() };
        let fresh = ask(&object, self.range, until).and_then(|fresh| self.listen(&fresh).map(|()| fresh));
        let mut end = lock(&self.end);
        end.next_is_asked_for = false;
        self.answered.notify_all();
        match fresh {
            Ok(fresh) => {
                *end = fresh;
                Ok(Woken::Yes)
            }
            Err(error) if error.kind == ErrorKind::TimedOut => Ok(Woken::No),
            Err(error) => {
                let what = format!("the host has ended this watch, and watches no more: {}", error.message);
                Err(Error::new(error.kind, what))
            }
        }
    }

    fn listen(&self, end: &End) -> Result<()> {
        let data = epoll::EventData::new_u64(0);
        let added = epoll::add(&self.set, &end.socket, data, epoll::EventFlags::IN);
        added.map_err(std::io::Error::from).doing("making the descriptor of a watch")
    }
}

impl AsFd for Watch {
    /// Readable when the watch is woken. Only [`Watch::wait`] makes that undone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let (number, generation) = {
                let end = lock(&self.end);
                (end.number, end.generation)
            };
            self.core.shared().note(&Request::Unwatch { number }, generation);
        }
    }
}
