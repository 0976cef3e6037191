//! Mappings of controlled objects: the userfaultfds of this process, and how the host learns of a mapping.

use crate::addresses::{self, Origin, Piece, PieceState};
use crate::in_thread::Service;
use crate::link::{Answer, Call, OnLoss, Shared, State, lock};
use crate::{Error, ErrorKind, Inherit, MapFlags, Result, own};
use commonhold_object::Region;
use commonhold_object::error::Doing;
use commonhold_object::wire::{MapRequest, Reply, Request};
use commonhold_sys::memory;
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// What a host needs to serve the mappings of one kind in this process.
#[derive(Debug)]
pub(crate) struct Descriptors {
    userfaultfd: Userfaultfd,
    pagemap: Pagemap,
}

impl Descriptors {
    /// The descriptor through which faults are answered.
    pub(crate) fn userfaultfd(&self) -> &Userfaultfd {
        &self.userfaultfd
    }

    /// In the order of the wire.
    pub(crate) fn to_send(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.userfaultfd.as_fd(), self.pagemap.as_fd()]
    }
}

/// The userfaultfds of this process that one host serves.
#[derive(Default)]
pub(crate) struct Kinds {
    held: [Option<Arc<Descriptors>>; Kind::ALL.len()],
    /// The host of this connection has them.
    introduced: [bool; Kind::ALL.len()],
    /// A thread is sending them.
    introducing: bool,
}

impl Kinds {
    /// The descriptors of a kind, made at first use. `device`: an open /dev/userfaultfd from the host.
    pub(crate) fn get_or_create(&mut self, kind: Kind, device: Option<&OwnedFd>) -> Result<Arc<Descriptors>> {
        let slot = &mut self.held[kind.index()];
        if let Some(held) = slot {
            return Ok(held.clone());
        }
        let own = if device.is_none() { Userfaultfd::open_device().ok() } else { None };
        let device = device.or(own.as_ref()).map(AsFd::as_fd);
        let (userfaultfd, _) = Userfaultfd::create(kind, device).doing(
            "making a userfaultfd, which controlled objects need (`commonhold doctor` says what is missing)",
        )?;
        let pagemap =
            Pagemap::of_self().doing("opening /proc/self/pagemap, which controlled objects need")?;
        own::note(&userfaultfd.as_fd());
        own::note(&pagemap.as_fd());
        Ok(slot.insert(Arc::new(Descriptors { userfaultfd, pagemap })).clone())
    }

    /// All of them.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.held.iter().flatten().flat_map(|held| held.to_send()).map(|fd| fd.as_raw_fd())
    }

    /// The host has the descriptors of that kind.
    pub(crate) fn introduced(&mut self, kind: Kind, descriptors: &Arc<Descriptors>) {
        let held = self.held[kind.index()].as_ref();
        self.introduced[kind.index()] = held.is_some_and(|held| Arc::ptr_eq(held, descriptors));
    }

    /// The next host has none.
    pub(crate) fn forget_introductions(&mut self) {
        self.introduced = [false; Kind::ALL.len()];
    }
}

/// The request that tells a host of a mapping.
pub(crate) fn map_request(piece: &Region<Piece>) -> MapRequest {
    let origin = &piece.value.origin;
    MapRequest {
        mapping: origin.mapping,
        object: origin.object.id(),
        address: piece.address,
        length: piece.length,
        offset: piece.offset,
        protection: origin.protection,
        sharing: origin.sharing,
        flags: MapFlags { in_thread: origin.kind() == Kind::InThread, ..origin.flags },
        with_descriptors: false,
        with_claims: origin.kind() == Kind::InThread && origin.service.get().is_some(),
    }
}

/// Makes a mapping known to the host, then to this process. On failure it is unmapped.
pub(crate) fn announce(
    address: NonNull<u8>,
    length: usize,
    offset: u64,
    origin: &Arc<Origin>,
    inherit: Inherit,
) -> Result<()> {
    let value = Piece { origin: origin.clone(), state: PieceState::Mapped, inherit };
    let piece = Region { address: address.as_ptr() as u64, length: length as u64, offset, value };
    let shared = origin.object.shared();
    let watched =
        shared.ensure_watcher().doing("starting the thread that watches the connection to the host");
    let mut known_at = match watched.and_then(|()| tell_host(shared, &piece)) {
        Ok(generation) => generation,
        Err(error) => {
            // SAFETY: the mapping was made by the caller, who has told nobody of it yet.
            let _ = unsafe { memory::unmap(address, length) };
            return Err(error);
        }
    };
    addresses::insert(address, length, offset, origin.clone(), inherit)?;
    // A connection lost between the host's answer and the entry in the address map: whoever made the next one
    // may not have seen the entry. Telling a host twice of the same mapping is harmless.
    while shared.generation() != known_at {
        known_at = tell_host(shared, &piece).inspect_err(|_| {
            let _ = addresses::unmap_of(origin, piece.address, piece.length);
        })?;
    }
    Ok(())
}

/// Whether this thread is the one that sends a kind's descriptors.
struct Introduction {
    descriptors: Arc<Descriptors>,
    first: bool,
}

/// Sends the Map request; gives the generation of the connection on which it was answered.
fn tell_host(shared: &'static Shared, piece: &Region<Piece>) -> Result<u64> {
    let kind = piece.value.kind();
    loop {
        let introduction = shared.drive(None, Duration::from_millis(1), |state| prepare(state, kind))??;
        let mut request = map_request(piece);
        request.with_descriptors = introduction.first;
        let mut fds = if introduction.first { introduction.descriptors.to_send() } else { vec![] };
        fds.extend(claims_of(piece));
        let request = Request::Map(request);
        let answer = shared.call(Call { fds: &fds, on_loss: OnLoss::AskAnew, ..Call::new(&request) });
        if introduction.first {
            let mut state = lock(&shared.state);
            state.kinds.introducing = false;
            if matches!(&answer, Ok(Answer::Reply(_, _, generation)) if *generation == state.generation) {
                state.kinds.introduced(kind, &introduction.descriptors);
            }
        }
        match answer? {
            Answer::Reply(Reply::Claims, mut fds, generation) => {
                if fds.is_empty() && piece.value.origin.service.get().is_none() {
                    return Err(no_descriptor_left("the claim words of the mapping"));
                }
                if let Some(fd) = fds.pop() {
                    let service = Service::new(fd, piece.length as usize / 4096)?;
                    let _ = piece.value.origin.service.set(service); // told again: the words are the same
                }
                return Ok(generation);
            }
            Answer::Reply(_, _, generation) => return Ok(generation),
            Answer::AskAnew => {}
        }
    }
}

/// The descriptors through which a mapping is served. They are kept for the life of the process: a signal handler may
/// be using them at any time.
pub(crate) fn descriptors_of(origin: &Origin) -> Result<&'static Descriptors> {
    let held = lock(&origin.object.shared().state).kinds.get_or_create(origin.kind(), None)?;
    // SAFETY: the count that is given up here is never taken back, so the value is never dropped.
    Ok(unsafe { &*Arc::into_raw(held) })
}

/// The claim words of a mapping that serves itself, for a host that does not have them.
pub(crate) fn claims_of(piece: &Region<Piece>) -> Option<BorrowedFd<'_>> {
    let origin = &piece.value.origin;
    let service = origin.service.get().filter(|_| origin.kind() == Kind::InThread)?;
    Some(service.claims_fd().as_fd())
}

/// Waits for the host's greeting, and for another thread that sends descriptors at this moment.
fn prepare(state: &mut State, kind: Kind) -> Option<Result<Introduction>> {
    let greeting = state.greeting()?;
    let known = state.kinds.introduced[kind.index()];
    if !known && state.kinds.introducing {
        return None;
    }
    let descriptors = match state.kinds.get_or_create(kind, greeting.device.as_deref()) {
        Ok(descriptors) => descriptors,
        Err(error) => return Some(Err(explain(error))),
    };
    state.kinds.introducing |= !known;
    Some(Ok(Introduction { descriptors, first: !known }))
}

/// Something was sent with a descriptor, and no descriptor came: the kernel drops those for which there is no room.
pub(crate) fn no_descriptor_left(what: &str) -> Error {
    let what = format!(
        "{what} did not arrive: this process has no file descriptor left; close some, or raise the limit (ulimit -n)"
    );
    Error::new(ErrorKind::TooMany, what)
}

fn explain(error: Error) -> Error {
    Error { message: format!("the object cannot be mapped: {}", error.message), ..error }
}
