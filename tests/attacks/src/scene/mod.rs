//! Where attacks take place: a host as the shipped unit starts it, or a cluster of such hosts.

mod cluster;
pub mod command;
mod group;
mod local;
mod unit;

pub use cluster::{CLUSTER, Cluster, Members, Rights};
pub use local::{
    ATTACKER, BYSTANDER, Local, MACHINE, Machine, SOON, asked, open, others_go_on, others_go_on_with,
};

use commonhold_object::{CreateOptions, Name, PagerKind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Options of a small object.
pub fn small() -> CreateOptions {
    CreateOptions { size_bytes: 65_536, controlled: true, ..CreateOptions::default() }
}

/// Options of an object in a file, for which nothing is reserved.
pub fn on_file(size_bytes: u64, controlled: bool) -> CreateOptions {
    let reserve = Some(false);
    CreateOptions { pager: PagerKind::File, size_bytes, controlled, reserve, ..CreateOptions::default() }
}

/// A name that is well formed.
pub fn name(text: &str) -> Name {
    Name::directory(text).expect("a name")
}

/// Says that it is over when it is dropped, whatever happens.
pub struct Until<'s>(pub &'s AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
