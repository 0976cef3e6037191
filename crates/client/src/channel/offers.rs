//! Objects in messages: handles, with the rights that the sender states, and regions by reference.
//!
//! The host keeps what is on its way: the message has a number of 128 bits alone, which who
//! receives it gives to the host. `docs/MESSAGES.md`, "Handles".

use super::errors::Asked;
use super::{Channel, Wait};
use crate::host::nonce;
use crate::object::Core;
use crate::{Access, CreateOptions, Error, ErrorKind, MapOptions, Object, Protection, Result, fixed};
use commonhold_channel::copy_once;
use commonhold_object::PAGE_SIZE_BYTES;
use commonhold_object::wire::{Offered, Request};
use std::time::Instant;

impl Channel {
    /// Sends a message with a handle to an object: whoever receives it has the object open, with
    /// that right, whatever its name and mode are. The sender may close it at once: so memory is
    /// given away, without a copy. Waits for room in the queue, until the deadline.
    ///
    /// [`ErrorKind::Permission`]: the sender has less than that right. A wired object in an arena is
    /// received only by who may open it by name, for its memory comes with that of all others in
    /// the arena.
    pub fn send_object(
        &self,
        kind: u32,
        bytes: &[u8],
        object: &Object,
        access: Access,
        deadline: Option<Instant>,
    ) -> Result<()> {
        self.check_same_host(object)?;
        if access.writes() && !object.access().writes() {
            let label = object.core.label();
            let what = format!("object {label} is open for reading: it cannot be sent for writing");
            return Err(Error::new(ErrorKind::Permission, what));
        }
        object.core.open_again_if_needed()?;
        let what = Offered::Object { object: object.id(), access };
        self.send_offer(what, (kind, bytes), deadline)
    }

    /// Sends a message with a region by reference: part of an object, as it is at one instant. The
    /// receiver gets an object of that part, to read. A page is copied when it is written here, or
    /// touched there, for the first time: nothing of a region that nobody writes or reads
    /// (Bernadat & Black, 8.1: what Mach with pages did).
    ///
    /// That takes an object whose writers can be held ([`CreateOptions::freezable`]), open for
    /// writing, and an offset that is a multiple of a page. Else the region is copied once, page
    /// for page, while others may write.
    pub fn send_by_reference(
        &self,
        kind: u32,
        bytes: &[u8],
        object: &Object,
        (offset, length): (u64, u64),
        deadline: Option<Instant>,
    ) -> Result<()> {
        self.check_same_host(object)?;
        let size = object.size_bytes();
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > size) {
            let label = object.core.label();
            let what = format!("{length} bytes from {offset} on are no part of the {size} bytes of {label}");
            return Err(Error::invalid(what));
        }
        object.core.open_again_if_needed()?;
        let options = object.options();
        if options.read_only && (offset, length) == (0, size) {
            return self.send_object(kind, bytes, object, Access::Read, deadline); // nobody writes it
        }
        let begins_page = offset.is_multiple_of(PAGE_SIZE_BYTES);
        if begins_page && (options.freezable || options.read_only) {
            let what = Offered::Pages { of: object.id(), offset, length };
            match self.send_offer(what, (kind, bytes), deadline) {
                Err(error) if has_no_snapshot(&error) => {}
                other => return other,
            }
        }
        let copy = self.copy_of(object, offset, length)?;
        self.send_object(kind, bytes, &copy, Access::Read, deadline)
    }

    /// A new object with part of another's bytes.
    fn copy_of(&self, object: &Object, offset: u64, length: u64) -> Result<Object> {
        let options = CreateOptions { size_bytes: length, ..CreateOptions::default() };
        let copy = self.inner.host.create_nameless(&options)?;
        let first = offset / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
        let (skip, whole) = ((offset - first) as usize, offset - first + length);
        let wanted = MapOptions {
            offset: first,
            length: Some(whole),
            protection: Protection::Read,
            flags: fixed::ANYWHERE,
            ..MapOptions::default()
        };
        let (from, to) = (object.map(&wanted)?, copy.map(&MapOptions::default())?);
        // SAFETY: the one has the bytes from `skip` on, the other as many; they are two objects,
        // and no reference of Rust's points there. Others may write what is read.
        unsafe { copy_once(from.as_ptr().wrapping_add(skip), to.as_ptr(), length as usize) };
        self.inner.landed_bytes.fetch_add(length, std::sync::atomic::Ordering::Relaxed);
        Ok(copy)
    }

    fn send_offer(
        &self,
        what: Offered,
        (kind, bytes): (u32, &[u8]),
        deadline: Option<Instant>,
    ) -> Result<()> {
        let wait = Wait::from(deadline);
        self.ready()?;
        let channel = &self.inner.object.core;
        channel.open_again_if_needed()?;
        let (id, token) = (channel.id(), nonce()?);
        channel.ask(&Request::Offer { channel: id, token, what })?;
        let sent = self.inner.queue.send_offered(token, (kind, bytes), wait);
        sent.map_err(|refused| {
            // If that fails the host lets it go with the channel, and the first error says more.
            let _ = channel.ask(&Request::WithdrawOffer { channel: id, token });
            self.explain(refused, Asked { bytes: bytes.len(), wait })
        })
    }

    /// A message says that the host has an object for this process.
    pub(super) fn take_offer(&self, token: u128) -> Result<Object> {
        let channel = &self.inner.object.core;
        channel.open_again_if_needed()?;
        let request = Request::TakeOffer { channel: channel.id(), token };
        let taken = channel.shared().open(&request, &[]).and_then(|(reply, fd, generation)| {
            Ok(Object { core: Core::new(channel.lease(), reply, fd, generation)? })
        });
        taken.map_err(|error| {
            let name = channel.label();
            let what = format!(
                "channel {name}: the object of a message cannot be had, and the message is dropped: {error}"
            );
            Error::new(error.kind, what)
        })
    }

    /// Numbers of objects are each host's own.
    fn check_same_host(&self, object: &Object) -> Result<()> {
        if std::ptr::eq(object.core.shared(), self.inner.object.core.shared()) {
            return Ok(());
        }
        let (label, name) = (object.core.label(), self.inner.object.core.label());
        let what = format!("object {label} is open at another host than channel {name}: open it at the same");
        Err(Error::new(ErrorKind::Mismatch, what))
    }
}

fn has_no_snapshot(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unsupported | ErrorKind::Permission)
}
