//! The objects that the rows measure, each kind made in one place.

use crate::failure::{Doing, Result};
use commonhold::{CreateOptions, Host, MapFlags, MapOptions, Object, PagerKind, SyncMode};
use std::fs::File;
use std::os::fd::AsFd;

/// An anonymous direct object.
pub fn direct(host: &Host, name: &str, size_bytes: usize) -> Result<Object> {
    let options = CreateOptions { size_bytes: size_bytes as u64, ..CreateOptions::default() };
    host.create(name, &options, None).doing(format!("creating {name}"))
}

/// An anonymous controlled object, sparse: a frame comes with the first touch.
pub fn controlled(host: &Host, name: &str, size_bytes: usize) -> Result<Object> {
    let options = CreateOptions {
        size_bytes: size_bytes as u64,
        controlled: true,
        reserve: Some(false),
        ..CreateOptions::default()
    };
    host.create(name, &options, None).doing(format!("creating {name}"))
}

/// An object on a file: `Plain` is direct, the other modes are controlled.
pub fn on_file(host: &Host, name: &str, file: &File, sync: SyncMode) -> Result<Object> {
    let options = CreateOptions { pager: PagerKind::File, sync, ..CreateOptions::default() };
    host.create(name, &options, Some(file.as_fd())).doing(format!("creating {name}"))
}

/// All of the object, shared, readable and writable.
pub fn everything() -> MapOptions {
    MapOptions::default()
}

/// As [`everything`], served by the faulting thread itself where that can be.
pub fn in_thread() -> MapOptions {
    MapOptions { flags: MapFlags { in_thread: true, ..MapFlags::default() }, ..MapOptions::default() }
}
