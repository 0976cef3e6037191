//! Objects as files: `commonhold mount DIR` (`docs/MOUNT.md`).
//!
//! | module | what it does |
//! |---|---|
//! | `fuse` | the kernel's protocol, and the device; knows no objects |
//! | `mounting` | making a mount and ending it |
//! | `begin` | a server begins: a new mount, or that of the server before |
//! | `server` | takes requests, sorts them by user, answers |
//! | `lanes` | each user's requests and threads |
//! | `caller` | asks the host in the name of who asked the kernel |
//! | `nodes`, `log` | what the kernel calls files by, and how that outlives the server |
//! | `names`, `listing` | requests about names, attributes and directories |
//! | `files`, `content` | open files, and requests about what is in them |
//! | `served` | bytes of objects that the host serves |
//! | `watches` | objects of explicit coherence: when the kernel's copies of pages end |
//! | `kind` | of which kind a new file is |
//! | `entry`, `failure` | an object as a file, an error as a number |

mod begin;
mod caller;
mod content;
mod entry;
mod failure;
mod files;
mod fuse;
#[cfg(test)]
mod golden;
mod kind;
mod lanes;
mod listing;
mod log;
pub mod mounting;
mod names;
mod nodes;
mod served;
mod server;
mod watches;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A defect that one request meets ends no other: what a thread left that panicked is used on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub use begin::{MountOptions, keeper_command, serve};
pub use kind::NewFiles;
