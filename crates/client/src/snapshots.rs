//! Snapshots of an open object.

use crate::host::nonce;
use crate::object::Core;
use crate::{Error, ErrorKind, Name, Object, PagerKind, Result, reflink};
use commonhold_object::wire::{Request, SnapshotRequest};
use std::path::PathBuf;

/// What a snapshot shall be. `Default`: all of the object, read-only, of its owner alone.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// First byte of the object that it has: a multiple of [`PAGE_SIZE_BYTES`](crate::PAGE_SIZE_BYTES).
    pub offset: u64,
    /// Bytes. None: all from there on.
    pub length: Option<u64>,
    /// Its mode bits.
    pub mode: u32,
    /// It may be written; the object does not see that.
    pub writable: bool,
    /// Its pages are copied soon, also those that nobody writes: it takes memory for all of them then, and the object's
    /// writers no longer wait for copies.
    pub whole: bool,
    /// Of a direct object on a file: the file that is made, a clone of the object's own, which the snapshot is on. It lies on the
    /// same file system, which has clones: XFS, Btrfs or bcachefs.
    pub file: Option<PathBuf>,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        SnapshotOptions { offset: 0, length: None, mode: 0o600, writable: false, whole: false, file: None }
    }
}

impl Object {
    /// Creates an object that has this one's pages as they are at one instant, at which no process is in the middle of a
    /// write that another has seen. Gives it opened: for reading, or (`writable`) for reading and writing.
    ///
    /// It costs the write-protection of what was written since the last one. A page is copied when it is written here, or
    /// touched there, for the first time.
    ///
    /// The object is freezable and opened for writing, or it is a snapshot itself; else `Unsupported` and `Permission`. Of a
    /// direct object on a file there are snapshots with `file` alone, and whoever reads it may take one.
    /// `docs/SNAPSHOTS.md`.
    pub fn snapshot(&self, name: &str, options: &SnapshotOptions) -> Result<Object> {
        let core = &*self.core;
        let name = Name::new(name)?;
        if options.length == Some(0) {
            return Err(Error::invalid("a snapshot of no bytes: leave the length out for all of the object"));
        }
        if let Some(path) = &options.file {
            return reflink::snapshot(core, name, path, options);
        }
        if !core.is_controlled() && core.options().pager == PagerKind::File {
            let what = "a snapshot is of an object whose writers can be held: create it with --freezable (freezable = true), or \
                        give a file (--file) that becomes a clone of the object's";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        core.open_again_if_needed()?;
        let request = Request::Snapshot(SnapshotRequest {
            of: core.id(),
            offset: options.offset,
            length: options.length.unwrap_or(0),
            name,
            mode: options.mode,
            writable: options.writable,
            whole: options.whole,
            nonce: nonce()?,
        });
        if !core.access().writes() && !core.options().read_only {
            let what = "a snapshot holds the object's writers for an instant: open the object for writing";
            return Err(Error::new(ErrorKind::Permission, what));
        }
        let lease = core.lease();
        let (reply, fd, generation) = lease.shared().open(&request, &[])?;
        Ok(Object { core: Core::new(lease, reply, fd, generation)? })
    }
}
