//! Regions: what a sender copies straight into memory of the receiver.
//!
//! The table of landings in the channel may be written by anybody who may write the channel. So a
//! receiver knows for itself what it posted. And a sender writes to no object that some writer of
//! the channel could not write himself: else who posts a landing could have others write where he
//! may not. Therefore an object with landings is of the channel's class: of the same directory,
//! owner, group and mode, all of which stay while it is open.

use super::Channel;
use super::errors::Asked;
use crate::link::lock;
use crate::{Access, Error, ErrorKind, MapOptions, Mapping, Object, Result};
use commonhold_channel::{Landing, Place, Wait, copy_once};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Objects that a sender keeps mapped, and that a receiver keeps open.
const MOST_KEPT: usize = 16;
/// How long to try to give a landing back that cannot be used.
const RELEASING: Duration = Duration::from_secs(1);

/// What landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where: as it was posted. It is the receiver's again.
    pub landing: Landing,
    /// Bytes from the landing's beginning on.
    pub length: u64,
}

/// What this process alone knows of a channel.
#[derive(Debug, Default)]
pub(crate) struct Private {
    /// What it posted: the object stays open, and where it is.
    posted: HashMap<Landing, (Object, u64)>,
    /// Objects that it posted of, with their names, which stay while they are open. By their
    /// numbers.
    own: HashMap<u64, (Object, String)>,
    /// Objects that it sends regions to, by their numbers.
    targets: HashMap<u64, Arc<Target>>,
}

/// An object of the channel's class, mapped.
#[derive(Debug)]
struct Target {
    mapping: Mapping,
    _object: Object,
}

/// Of all channels, by their numbers. Nothing is dropped under this lock that would take another.
static PRIVATE: LazyLock<Mutex<HashMap<u64, Private>>> = LazyLock::new(Mutex::default);

pub(crate) fn private() -> MutexGuard<'static, HashMap<u64, Private>> {
    lock(&PRIVATE)
}

/// Keeps one more, or that one alone where there are many; gives what is to be dropped without the
/// lock.
fn keep<T>(map: &mut HashMap<u64, T>, (number, one): (u64, T)) -> (HashMap<u64, T>, Option<T>) {
    let dropped = if map.len() >= MOST_KEPT { std::mem::take(map) } else { HashMap::new() };
    (dropped, map.insert(number, one))
}

impl Drop for super::Inner {
    fn drop(&mut self) {
        let known = private().remove(&self.number);
        drop(known);
    }
}

impl Channel {
    /// Lets senders copy a region to a place in a wired object, until something has landed there or
    /// it is withdrawn. The object is of the channel's directory, owner, group and mode. Gives what
    /// to know the landing by.
    ///
    /// Where several processes receive, only one of them may post: another that takes a message
    /// about a landing gets an error, and the message is gone.
    pub fn post(&self, object: &Object, offset: u64, length: u64) -> Result<Landing> {
        let name = self.own_name(object)?;
        let end = offset.checked_add(length).filter(|end| *end <= object.size_bytes());
        if end.is_none() || length == 0 {
            let (size, name) = (object.size_bytes(), object.core.label());
            let what = format!("{length} bytes from {offset} on are no part of the {size} bytes of {name}");
            return Err(Error::invalid(what));
        }
        let wait = Wait::Forever;
        self.ready()?;
        let place = Place { object: object.id().0, name, offset, length };
        // Known before anybody can send to it. That is not waited for with the lock of all channels: who has this one's queue
        // for himself would hold up all that this process does with others, and fork.
        let note = |landing| match private().entry(self.inner.number).or_default().posted.entry(landing) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert((object.clone(), length));
                true
            }
        };
        let posted = self.inner.queue.post_new(&place, wait, note);
        posted.map_err(|refused| self.explain(refused, Asked { bytes: 0, wait }))
    }

    /// Takes a landing back. A sender that is copying there may still write to it; its message is
    /// refused. [`ErrorKind::Lost`] if it is not posted.
    pub fn withdraw(&self, landing: Landing) -> Result<()> {
        let wait = Wait::Forever;
        self.ready()?;
        let known = private().get_mut(&self.inner.number).and_then(|known| known.posted.remove(&landing));
        let withdrawn = self.inner.queue.withdraw(landing, wait);
        drop(known);
        withdrawn.map_err(|refused| self.explain(refused, Asked { bytes: 0, wait }))
    }

    /// Takes back all landings, also those of a receiver that died; gives how many there were.
    pub fn withdraw_all(&self) -> Result<u32> {
        let wait = Wait::Forever;
        self.ready()?;
        let known = private().get_mut(&self.inner.number).map(|known| std::mem::take(&mut known.posted));
        let withdrawn = self.inner.queue.withdraw_all(wait);
        drop(known);
        withdrawn.map_err(|refused| self.explain(refused, Asked { bytes: 0, wait }))
    }

    /// A message says that something landed there.
    pub(super) fn landed(&self, landing: Landing, length: u64) -> Result<Region> {
        let known = private().get_mut(&self.inner.number).and_then(|known| known.posted.remove(&landing));
        let name = self.inner.object.core.label();
        let Some((_object, posted)) = known else {
            let what = format!(
                "channel {name}: a region of {length} bytes landed where this process posted no \
                 landing, or withdrew it; the message is dropped (where several receive, one may post)"
            );
            return Err(Error::new(ErrorKind::Lost, what));
        };
        if length > posted {
            let what = format!(
                "channel {name}: a message says that {length} bytes landed where there is room for \
                 {posted}: a program that may write the channel damaged it"
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(Region { landing, length })
    }

    /// Copies a region straight to a landing of the receiver, the smallest that has room for it,
    /// and sends a message about it that holds `bytes` in line. Waits for a landing, and for room
    /// for the message, until the deadline.
    ///
    /// Who dies meanwhile leaves the landing taken until the receiver withdraws it.
    pub fn send_region(
        &self,
        kind: u32,
        bytes: &[u8],
        region: &[u8],
        deadline: Option<Instant>,
    ) -> Result<()> {
        // SAFETY: a slice can be read as long as it is borrowed.
        unsafe { self.send_region_from(kind, bytes, (region.as_ptr(), region.len()), deadline) }
    }

    /// As [`send_region`](Self::send_region), of memory that others may write meanwhile: part of a
    /// mapping.
    ///
    /// # Safety
    /// So many bytes from the pointer on can be read until the call returns.
    pub unsafe fn send_region_from(
        &self,
        kind: u32,
        bytes: &[u8],
        region: (*const u8, usize),
        deadline: Option<Instant>,
    ) -> Result<()> {
        let wait = Wait::from(deadline);
        self.ready()?;
        let (queue, length) = (&self.inner.queue, region.1 as u64);
        let asked = Asked { bytes: region.1, wait };
        let (landing, place) = queue.take(length, wait).map_err(|refused| self.explain(refused, asked))?;
        // SAFETY: the caller's promise.
        let sent = unsafe { self.fill(&place, region) }.and_then(|()| {
            let sent = queue.send_landed(landing, length, (kind, bytes), wait);
            sent.map_err(|refused| self.explain(refused, Asked { bytes: bytes.len(), wait }))
        });
        if sent.is_err() {
            // If that fails too it is the receiver's to withdraw, and the first error says more.
            let _ = queue.release(landing, Wait::Until(Instant::now() + RELEASING));
        }
        sent
    }

    /// # Safety
    /// So many bytes from the pointer on can be read.
    unsafe fn fill(&self, place: &Place, (from, length): (*const u8, usize)) -> Result<()> {
        let target = self.target(place)?;
        let room = (target.mapping.len() as u64).checked_sub(place.offset);
        if room.is_none_or(|room| room < length as u64) {
            let what =
                format!("a landing in {} does not lie in it: have its receiver post again", place.name);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        let to = target.mapping.as_ptr().wrapping_add(place.offset as usize);
        // SAFETY: the caller's promise for the source. The target is writable, and the bytes lie in
        // it, by the check above; it is memory that processes share, and no reference of Rust's
        // points there.
        unsafe { copy_once(from, to, length) };
        self.inner.landed_bytes.fetch_add(length as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The object of a landing, with this process's own rights.
    fn target(&self, place: &Place) -> Result<Arc<Target>> {
        let known =
            private().get(&self.inner.number).and_then(|known| known.targets.get(&place.object).cloned());
        // It may have grown since.
        let reaches = |target: &Arc<Target>| {
            let end = place.offset.checked_add(place.length);
            end.is_some_and(|end| end <= target.mapping.len() as u64)
        };
        if let Some(known) = known.filter(reaches) {
            return Ok(known);
        }
        let object = self.inner.host.open(&place.name, Access::ReadWrite)?;
        if object.id().0 != place.object {
            let what = format!("{} is another object than the landing was posted in: post again", place.name);
            return Err(Error::new(ErrorKind::Lost, what));
        }
        self.check_class(&object)?;
        let mapping = object.map(&MapOptions::default())?;
        let target = Arc::new(Target { mapping, _object: object });
        let kept = (place.object, target.clone());
        let dropped = keep(&mut private().entry(self.inner.number).or_default().targets, kept);
        drop(dropped); // after the lock
        Ok(target)
    }

    /// The name of an object that landings are posted of: looked at once.
    fn own_name(&self, object: &Object) -> Result<String> {
        let id = object.id().0;
        let known =
            private().get(&self.inner.number).and_then(|known| known.own.get(&id).map(|own| own.1.clone()));
        if let Some(name) = known {
            return Ok(name);
        }
        let name = self.check_class(object)?;
        let kept = (id, (object.clone(), name.clone()));
        let dropped = keep(&mut private().entry(self.inner.number).or_default().own, kept);
        drop(dropped); // after the lock
        Ok(name)
    }

    /// Refuses an object that a writer of the channel may not write. Gives its name.
    fn check_class(&self, object: &Object) -> Result<String> {
        let label = object.core.label();
        if !object.options().is_wired() {
            let what =
                format!("object {label} is not wired: landings lie in wired objects (translation wired)");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if !object.access().writes() {
            let what = format!("object {label} is open for reading: open it for writing");
            return Err(Error::new(ErrorKind::Permission, what));
        }
        let (channel, other) = (self.inner.object.info()?, object.info()?);
        let (Some(own_name), Some(name)) = (&channel.name, &other.name) else {
            let what = format!("object {label}, or the channel, was removed: a sender finds both by name");
            return Err(Error::new(ErrorKind::NotFound, what));
        };
        if own_name.parent() == name.parent() && channel.ownership == other.ownership {
            return Ok(name.to_string());
        }
        let what = format!(
            "object {name} is not of the class of channel {own_name}: landings lie in objects of \
             its directory, owner, group and mode, for whoever may write the channel says where others write"
        );
        Err(Error::new(ErrorKind::Permission, what))
    }
}
