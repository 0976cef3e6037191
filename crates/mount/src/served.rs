//! The bytes of objects that a host serves: through a mapping of this process. All copies are the kernel's, so that a page that
//! cannot be had is an error of a call, and no signal that ends the server.

use crate::failure::{Failure, Outcome};
use crate::lock;
use commonhold::{Coherence, MapFlags, MapOptions, Mapping, Object, PAGE_SIZE_BYTES, Protection, Sharing};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes that are mapped at once. Of explicit coherence the last unmap publishes what was written: of that a window is large, so
/// that it comes with the end of the file.
const WINDOW_BYTES: [u64; 2] = [4 << 20, 1 << 30];

/// Windows of one open file.
const WINDOWS: [usize; 2] = [8, 16];

/// A part of the object that is mapped.
struct Window {
    mapping: Mapping,
    first: u64,
    length: u64,
}

/// What an open file has of its object.
#[derive(Default)]
pub struct Served {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    object: Option<Object>,
    /// By where they begin.
    windows: BTreeMap<u64, Arc<Window>>,
}

impl Served {
    /// With the object opened.
    pub fn with(object: Object) -> Served {
        Served { held: Mutex::new(Held { object: Some(object), windows: BTreeMap::new() }) }
    }

    /// The object; opened now if it was not.
    pub fn object(&self, open: impl FnOnce() -> Outcome<Object>) -> Outcome<Object> {
        let mut held = self.lock();
        if held.object.is_none() {
            held.object = Some(open()?);
        }
        held.object.clone().ok_or(Failure(Errno::STALE))
    }

    /// Bytes of the object, which has so many there. What cannot be had, or is asked of a server that dies, is
    /// asked again, since nothing was answered yet.
    pub fn read(&self, object: &Object, offset: u64, size: u64) -> Outcome<Vec<u8>> {
        let mut all = vec![0; size as usize];
        let scratch = scratch()?;
        let mut done = 0;
        while done < all.len() {
            let piece =
                self.piece(object, offset + done as u64, (all.len() - done) as u64, Protection::Read)?;
            copy_out(&scratch, &piece)?;
            whole(rustix::io::pread(&scratch, &mut all[done..done + piece.length], 0)?, piece.length)?;
            done += piece.length;
        }
        Ok(all)
    }

    /// Writes bytes to the object, which has room for them.
    pub fn write(&self, object: &Object, offset: u64, data: &[u8]) -> Outcome<()> {
        let scratch = scratch()?;
        let mut done = 0;
        while done < data.len() {
            let piece =
                self.piece(object, offset + done as u64, (data.len() - done) as u64, Protection::ReadWrite)?;
            commonhold_sys::frames::write_in_place(&scratch, &data[done..done + piece.length], 0)?;
            copy_in(&scratch, &piece)?;
            done += piece.length;
        }
        Ok(())
    }

    /// Nothing of it is mapped any more.
    pub fn let_go(&self) {
        self.lock().windows.clear();
    }

    /// The bytes from `offset` on that one window has, at most so many.
    fn piece(&self, object: &Object, offset: u64, most: u64, protection: Protection) -> Outcome<Piece> {
        let mut held = self.lock();
        // What may be written may be read: one window for both.
        let protection = if object.access().writes() { Protection::ReadWrite } else { protection };
        let kind = usize::from(object.options().coherence == Coherence::Explicit);
        let window_bytes = WINDOW_BYTES[kind];
        let first = offset / window_bytes * window_bytes;
        let has = |window: &&Arc<Window>| (window.first..window.first + window.length).contains(&offset);
        let window = match held.windows.get(&first).filter(has) {
            Some(window) => window.clone(),
            None => {
                let end = object.size_by_now()?.next_multiple_of(PAGE_SIZE_BYTES);
                let length = end.saturating_sub(first).min(window_bytes);
                let options = MapOptions {
                    offset: first,
                    length: Some(length),
                    protection,
                    sharing: Sharing::Shared,
                    flags: MapFlags { anywhere: true, ..MapFlags::default() },
                    ..MapOptions::default()
                };
                let window = Arc::new(Window { mapping: object.map(&options)?, first, length });
                if held.windows.len() >= WINDOWS[kind] {
                    held.windows.pop_first();
                }
                held.windows.insert(first, window.clone());
                window
            }
        };
        let within = offset - window.first;
        let length = window.length.saturating_sub(within).min(most) as usize;
        if length == 0 {
            return Err(Failure::io(format_args!("the object has no byte {offset} any more: it was shrunk")));
        }
        Ok(Piece { start: window.mapping.as_ptr().wrapping_add(within as usize), length, _window: window })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }
}

/// Bytes of a window, which stays mapped with this.
struct Piece {
    start: *mut u8,
    length: usize,
    _window: Arc<Window>,
}

/// Memory through which the kernel copies.
fn scratch() -> io::Result<OwnedFd> {
    commonhold_sys::frames::create("commonhold-copy", 0)
}

/// Copies bytes of a mapping to the beginning of the scratch memory.
fn copy_out(scratch: &OwnedFd, piece: &Piece) -> io::Result<()> {
    // SAFETY: the kernel alone reads there, and fails where it cannot.
    let written = unsafe { libc::pwrite(scratch.as_raw_fd(), piece.start.cast(), piece.length, 0) };
    done(written, piece.length)
}

/// Copies bytes from the beginning of the scratch memory into a mapping.
fn copy_in(scratch: &OwnedFd, piece: &Piece) -> io::Result<()> {
    // SAFETY: the kernel alone writes there, within a mapping that other processes share and to which no reference of Rust
    // points; it fails where it cannot.
    let read = unsafe { libc::pread(scratch.as_raw_fd(), piece.start.cast(), piece.length, 0) };
    done(read, piece.length)
}

fn done(count: isize, length: usize) -> io::Result<()> {
    whole(usize::try_from(count).map_err(|_| io::Error::last_os_error())?, length)
}

fn whole(count: usize, length: usize) -> io::Result<()> {
    let short = || io::Error::other(format!("{count} of {length} bytes were copied: a page cannot be had"));
    if count == length { Ok(()) } else { Err(short()) }
}
