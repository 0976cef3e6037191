//! Fork: the child is a client of its own, and sees the same objects at the same addresses.
//!
//! Before: the forking thread takes every lock of the library, so that the child finds all of it whole. After,
//! in the parent: it lets them go. In the child:
//!
//! * The parent's sockets are put out of use: the child must neither speak for the parent nor keep its
//!   connections open past its death. So are its userfaultfds and pagemaps, by which the child would reach into the parent.
//! * Direct mappings are inherited as any shared mapping. Of wired objects in arenas the host has to know that the child has
//!   them: it gives their places to others when nobody has them open. If no host answers, the child's arenas are without access.
//! * Controlled mappings are not inherited by the kernel (a child without its own userfaultfd would read and
//!   write past the host), so the child maps them anew at the same addresses, makes a userfaultfd of its own,
//!   and registers them in a session of its own before fork returns. If no host answers, the addresses stay
//!   without access: a touch is SIGSEGV, never a page of zeroes. A raw clone, which runs no handlers, gets the same.
//! * A private writable mapping of a controlled object is not inherited unless as a copy: its copied pages cannot be had
//!   again. The child gets SIGSEGV there.
//! * Of mappings whose inheritance is *none* or *copy* (`inherit.rs`) the kernel gives the child nothing. Their addresses are
//!   reserved, and the copies that the parent made before it took any lock (`inheriting.rs`) are moved there.
//!
//! vfork and posix_spawn run no handlers and need none: every descriptor is closed at exec.

use crate::addresses::{ADDRESSES, Piece, PieceState, start_of};
use crate::c_api::DEFAULT_HOST;
use crate::in_thread::{self, Changes};
use crate::inheriting::{self, Left};
use crate::link::{HOSTS, Opens, Shared, State, lock};
use crate::{Host, Inherit, channel, complain, exit, link, movable, wired};
use commonhold_object::{AddressMap, Region};
use commonhold_sys::memory;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, MutexGuard, Once};

/// Makes fork and exit known to the library. Done before the first host is; and, by who calls the library while he has a lock
/// that his own handlers of fork take, before those are registered: of the handlers before fork the last comes first.
pub fn register_handlers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        LazyLock::force(&ADDRESSES);
        // What another thread is about to set up when this one forks would never be ready in the child.
        link::prepare();
        // SAFETY: the three are functions of this library, which is never unloaded (see build.rs).
        let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        if failed != 0 {
            complain("fork cannot be watched (out of memory): do not fork this process");
        }
        exit::link_in();
    });
}

/// All locks of the library, in their order.
#[allow(dead_code)] // guards are there to be dropped
struct Held {
    default_host: MutexGuard<'static, Option<Host>>,
    hosts: MutexGuard<'static, Vec<&'static Shared>>,
    map: MutexGuard<'static, AddressMap<Piece>>,
    each: Vec<(MutexGuard<'static, Opens>, MutexGuard<'static, State>)>,
    in_thread: MutexGuard<'static, Changes>,
    seats: MutexGuard<'static, movable::Seats>,
    arenas: MutexGuard<'static, Vec<wired::Mapped>>,
    channels: MutexGuard<'static, HashMap<u64, channel::Private>>,
    /// The controlled mappings. Copied by the parent, because the child may not allocate before it has mapped
    /// them: memory for that could be given the very addresses that fork left empty.
    pieces: Vec<Region<Piece>>,
    /// What the child is to have another way than the parent has it, and the copies for that.
    left: Vec<Left>,
    /// The arenas that the child does not have.
    apart: Vec<Arc<wired::Arena>>,
}

impl Held {
    fn all() -> Held {
        let default_host = lock(&DEFAULT_HOST);
        let hosts = lock(&HOSTS);
        let map = lock(&ADDRESSES);
        let each = hosts.iter().map(|shared| (lock(&shared.opens), lock(&shared.state))).collect();
        let in_thread = in_thread::lock_changes();
        let seats = movable::lock_all();
        let arenas = wired::arenas();
        let channels = channel::private();
        let shared = |r: &&Region<Piece>| {
            r.value.is_served() && r.value.inherit == Inherit::Share && r.value.state != PieceState::Lost
        };
        let pieces = map.iter().filter(shared).cloned().collect();
        let apart = wired::apart(&arenas);
        let left = Vec::new();
        Held { default_host, hosts, map, each, in_thread, seats, arenas, channels, pieces, left, apart }
    }
}

/// What a forking thread holds between the handlers.
struct Slot(UnsafeCell<Option<Held>>);

// SAFETY: only the three handlers touch it, and only while their thread holds the first lock of all: the
// second of two threads that fork at once waits in `before`. The guards are dropped by the thread that took
// them, or by its image in the child.
unsafe impl Sync for Slot {}

static SLOT: Slot = Slot(UnsafeCell::new(None));

extern "C" fn before() {
    let _ = catch_unwind(|| {
        let mut left = Vec::new();
        let mut tries = 0;
        let mut held = loop {
            left = inheriting::make(left);
            let held = Held::all();
            tries += 1;
            if tries == inheriting::TRIES || inheriting::are_all(&left, &held.map) {
                break held;
            }
        };
        held.left = inheriting::settle(left, &held.map);
        // SAFETY: this thread holds the first lock.
        unsafe { *SLOT.0.get() = Some(held) };
    });
}

extern "C" fn in_parent() {
    // SAFETY: this thread holds the first lock since `before`.
    drop(unsafe { (*SLOT.0.get()).take() });
}

extern "C" fn in_child() {
    // SAFETY: as above; this is the image of the thread that ran `before`, and the only one.
    let Some(held) = (unsafe { (*SLOT.0.get()).take() }) else { return };
    if catch_unwind(AssertUnwindSafe(|| begin_anew(held))).is_err() {
        complain("a fork child could not take over its parent's mappings: do not touch them");
    }
}

fn begin_anew(mut held: Held) {
    in_thread::forget_all_after_fork();
    let mut pieces = std::mem::take(&mut held.pieces);
    let (mut left, apart) = (std::mem::take(&mut held.left), std::mem::take(&mut held.apart));
    // First of all, and without allocating.
    let mapped = map_again(&mut pieces);
    wired::reserve_again(&apart);
    inheriting::put_in_place(&mut left);
    for lost in pieces.drain(mapped..) {
        let _ = held.map.remove(lost.address, lost.length);
    }
    let gone = inheriting::enter(left, &mut held.map);
    wired::populate_again(&held.arenas, &held.map);
    let hosts: Vec<&'static Shared> = held.hosts.clone();
    let mut in_arenas: Vec<*const Shared> = wired::hosts_of(&held.map);
    let stays = movable::begin_anew_after_fork(&mut held.seats);
    in_arenas.extend(&stays.hosts);
    for (opens, state) in &mut held.each {
        opens.begin_anew_after_fork();
        state.begin_anew_after_fork();
    }
    drop(held);
    drop((gone, apart, stays));
    for shared in hosts {
        let of_it = |piece: &&Region<Piece>| std::ptr::eq(piece.value.object().shared(), shared);
        let of_it: Vec<_> = pieces.iter().filter(of_it).cloned().collect();
        let has_places = in_arenas.contains(&std::ptr::from_ref(shared));
        // The child is a user of its own: an ephemeral object that only it has left is to stay.
        let is_counted = || lock(&shared.opens).has_ephemeral();
        if of_it.is_empty() && !has_places && !is_counted() {
            continue;
        }
        let back = shared.bring_to_new_session(of_it.clone()).and_then(|()| {
            shared.ensure_watcher().map_err(|error| crate::Error::io("starting the watching thread", &error))
        });
        if let Err(error) = back {
            of_it.iter().for_each(forget);
            let which = if has_places {
                wired::bury(shared, |_| true);
                movable::lose_all(shared, "is not the child's");
                "controlled and wired"
            } else if of_it.is_empty() {
                complain(&format!("a fork child's ephemeral objects go with its parent: {error}"));
                continue;
            } else {
                "controlled"
            };
            complain(&format!("a fork child is without its {which} mappings: {error}"));
        }
    }
}

/// Maps the controlled objects again where the parent had them. Nobody touches them until the host serves them:
/// the child has one thread, and it is here. Puts those that are mapped first, and gives their number.
fn map_again(pieces: &mut [Region<Piece>]) -> usize {
    let mut mapped = 0;
    for i in 0..pieces.len() {
        let piece = &pieces[i];
        let origin = &piece.value.origin;
        let inherited = piece.value.state == PieceState::Mapped && !origin.has_own_pages();
        let wish = origin.wish(piece.address as *mut u8, true);
        let length = piece.length as usize;
        if inherited && memory::map(origin.object.fd(), piece.offset, length, wish).is_ok() {
            pieces.swap(i, mapped);
            mapped += 1;
            continue;
        }
        // Kept from other use: else a touch could meet memory of something else.
        if let Ok(got) = memory::reserve(piece.address as *mut u8, length)
            && got != start_of(piece.address)
        {
            // SAFETY: reserved just now, at an address of no use.
            let _ = unsafe { memory::unmap(got, length) };
        }
    }
    mapped
}

/// Gives up a mapping that no host serves; its addresses stay taken, and a touch of them is SIGSEGV.
fn forget(piece: &Region<Piece>) {
    let mut map = lock(&ADDRESSES);
    // SAFETY: mapped by `map_again`, and no code of the child has run since.
    let _ = unsafe { memory::make_inaccessible(start_of(piece.address), piece.length as usize) };
    let _ = map.remove(piece.address, piece.length);
}

/// Puts an end that leads nowhere in place of each descriptor. They are not closed: threads of the parent had
/// them in their hands, whose images here still own them.
pub(crate) fn deaden(descriptors: impl Iterator<Item = RawFd>) {
    let mut nowhere = None;
    for fd in descriptors {
        if nowhere.is_none() {
            // One end of a pair whose other end is closed at once.
            nowhere = commonhold_sys::socket::pair().ok().map(|(end, _)| end);
        }
        let Some(nowhere) = &nowhere else { return };
        // SAFETY: `fd` is a descriptor that this library made, alive since the parent; dup3 replaces it in one
        // step, and whoever owns the number goes on owning it.
        unsafe { libc::dup3(nowhere.as_raw_fd(), fd, libc::O_CLOEXEC) };
    }
}
