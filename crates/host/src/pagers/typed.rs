//! The pager of an object that is stored in the format of another machine type: what is read is translated, and what is stored
//! translated back. Of all other objects there is none.

use super::{HomeFile, Pager, Replicas, Stamp};
use crate::seeing::Seen;
use crate::types::{HostTypes, Way};
use commonhold_object::{PAGE_SIZE_BYTES, Result};
use commonhold_tags::{Machine, Types};
use roaring::RoaringBitmap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What stands between this host's memory and the pager of the object.
pub struct TypedPager {
    stored: Box<dyn Pager>,
    types: Types,
    format: Machine,
    host: Arc<HostTypes>,
    seen: Arc<Seen>,
}

impl TypedPager {
    /// That pager, or one before it where its bytes are in another format than this host's.
    pub fn before(
        stored: Box<dyn Pager>,
        types: &Types,
        host: &Arc<HostTypes>,
        seen: impl FnOnce() -> Arc<Seen>,
    ) -> Box<dyn Pager> {
        let Some(format) = types.stored_for(host.here()) else { return stored };
        let (types, host) = (types.clone(), host.clone());
        Box::new(TypedPager { stored, types, format, host, seen: seen() })
    }

    fn translate(&self, to_stored: bool, offset: u64, bytes: &mut [u8]) {
        let here = self.host.here();
        let (from, to) = if to_stored { (here, self.format) } else { (self.format, here) };
        let done = self.types.translate(from, to, offset / PAGE_SIZE_BYTES, bytes);
        self.host.translated(&self.seen, Way::Stored, done);
    }

    fn translated(&self, offset: u64, data: &[u8]) -> Vec<u8> {
        let mut bytes = data.to_vec();
        self.translate(true, offset, &mut bytes);
        bytes
    }
}

impl Pager for TypedPager {
    fn page_in(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.stored.page_in(offset, buffer)?;
        self.translate(false, offset, buffer);
        Ok(())
    }

    fn page_out(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.stored.page_out(offset, &self.translated(offset, data))
    }

    fn publish(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.stored.publish(offset, &self.translated(offset, data))
    }

    fn as_stored(&self, offset: u64, bytes: &mut [u8]) {
        self.translate(true, offset, bytes);
    }

    fn page_out_stored(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.stored.page_out(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.stored.flush()
    }

    fn check(&self, size_bytes: u64) -> Result<()> {
        self.stored.check(size_bytes)
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        self.stored.reserve(offset, length)
    }

    fn resize(&self, size_bytes: u64) -> Result<()> {
        self.stored.resize(size_bytes)
    }

    fn is_anonymous(&self) -> bool {
        self.stored.is_anonymous()
    }

    fn has_parent(&self) -> bool {
        self.stored.has_parent()
    }

    fn may_block(&self) -> bool {
        self.stored.may_block()
    }

    fn end(&self) {
        self.stored.end();
    }

    fn would_wait(&self, offset: u64) -> bool {
        self.stored.would_wait(offset)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.stored.file()
    }

    /// What the kernel copies is not translated.
    fn window(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wrote(&self) {
        self.stored.wrote();
    }

    fn stamp(&self) -> Option<(Stamp, bool)> {
        self.stored.stamp()
    }

    fn is_home(&self, home: HomeFile, size_bytes: u64) -> Result<()> {
        self.stored.is_home(home, size_bytes)
    }

    fn replicas(&self) -> Option<&Arc<dyn Replicas>> {
        self.stored.replicas()
    }

    fn begins_writing(&self, pages: &RoaringBitmap) {
        self.stored.begins_writing(pages);
    }
}
