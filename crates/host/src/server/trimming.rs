//! Memory that a writer made larger than its object. Whoever has a descriptor that can write may make the memory longer, and
//! a seal against that would end changes of size: so what is past the end goes, when a session ends and every few seconds.
//!
//! Looking is quick. Cutting waits for whoever writes to the same memory by write(2), and that for as long as its sender likes: it
//! is done on threads of that user's share, with a lock that nothing but changes of that object's size waits for.

use super::Host;
use super::object::Object;
use commonhold_object::error::Doing;
use commonhold_object::{ObjectId, PAGE_SIZE_BYTES, Result, pages_of};
use commonhold_points as points;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

/// Between two looks at all objects.
const APART: Duration = Duration::from_secs(10);

/// Looks for such memory for as long as this process lives. A host of one user has nobody whose quota would be passed.
pub(super) fn start(host: &Arc<Host>) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let host = host.clone();
    let look = move || loop {
        std::thread::sleep(APART);
        host.all_objects().iter().for_each(|object| host.trim(object));
    };
    points::thread(|| std::thread::Builder::new().name("trimming".into()).spawn(look))
        .doing("starting a thread")
        .map(drop)
}

/// The memory of an object, if the host made it and gives it to clients.
fn memory_of(object: &Object) -> Option<Arc<OwnedFd>> {
    match object.cache() {
        Some(cache) => Some(cache.frames.clone()),
        None => object.descriptor().filter(|_| object.is_with_clients()),
    }
}

fn bytes_of(memory: &OwnedFd) -> Result<u64> {
    // Memory: the kernel answers at once, whoever writes to it.
    let stat = rustix::fs::fstat(memory).map_err(std::io::Error::from).doing("looking at memory")?;
    Ok(stat.st_size as u64)
}

fn whole_pages(size_bytes: u64) -> u64 {
    pages_of(size_bytes) * PAGE_SIZE_BYTES
}

impl Host {
    /// The same of what a session had open.
    pub(super) fn trim_all(self: &Arc<Self>, objects: &[ObjectId]) {
        objects.iter().filter_map(|id| self.object(*id).ok()).for_each(|object| self.trim(&object));
    }

    /// Has the memory of an ordinary user's object cut off at the object's end, if it is longer.
    fn trim(self: &Arc<Self>, object: &Arc<Object>) {
        let (uid, size_bytes, of_the_pool) = {
            let record = object.record();
            let of_the_pool = record.options.is_of_huge_pages();
            (record.charged_uid, record.options.size_bytes, of_the_pool)
        };
        // An arena is an object of its own.
        if !self.machine.is_ordinary(uid) && !of_the_pool || self.place_in_arena(object.id).is_some() {
            return;
        }
        let longer = |memory: &OwnedFd| bytes_of(memory).is_ok_and(|now| now > whole_pages(size_bytes));
        if !memory_of(object).is_some_and(|memory| longer(&memory))
            || object.trimming.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let (this, object) = (self.clone(), object.clone());
        self.share_of(uid).run(&self.machine.workers, move || {
            match cut(&object) {
                Ok(0) => {}
                Ok(bytes) => this.machine.log(format_args!(
                    "object {}: a process of user {uid} made its memory {bytes} bytes longer than it is: cut off",
                    object.id.0
                )),
                Err(error) => this.machine.log(format_args!("object {}: {error}", object.id.0)),
            }
            object.trimming.store(false, Ordering::Release);
        });
    }
}

/// Cuts the memory off, unless the object's size changes now; how much went.
fn cut(object: &Object) -> Result<u64> {
    let _still = match object.resizing.try_lock() {
        Ok(still) => still,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(0),
    };
    let Some(memory) = memory_of(object) else { return Ok(0) };
    let known = object.record().options.size_bytes;
    // Where noting a new size failed, the cache has that.
    let end = whole_pages(object.cache().map_or(known, |cache| cache.size_bytes().max(known)));
    let now = bytes_of(&memory)?;
    if now <= end {
        return Ok(0);
    }
    rustix::fs::ftruncate(&*memory, end)
        .map_err(std::io::Error::from)
        .doing("cutting off memory past the object's end")?;
    Ok(now - end)
}
