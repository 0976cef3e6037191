//! The words of primitives: memory of this host's processes, and, of mutexes that hosts share, what the host is told of them.

use crate::object::Core;
use crate::{ErrorKind, Result};
use commonhold_object::error::Doing;
use commonhold_object::wire::Request;
use commonhold_primitives::{Kind, Mapped, Memory};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Words that primitives lie in.
#[derive(Debug)]
pub(crate) struct Words {
    mapped: Mapped,
    /// Of those that hosts share.
    between: Option<Between>,
}

/// Who is told that a mutex is wanted which another host has, and on which connection the words were given.
#[derive(Debug)]
struct Between {
    core: Arc<Core>,
    /// On which connection they were given, or seen to be the same.
    given_at: AtomicU64,
    /// Which memory they are.
    inode: u64,
    /// Bytes of one primitive.
    bytes: usize,
}

impl Words {
    /// Those of one host's processes.
    pub(super) fn of_host(mapped: Mapped) -> Words {
        Words { mapped, between: None }
    }

    /// Those that hosts share.
    pub(super) fn between_hosts(
        mapped: Mapped,
        kind: Kind,
        core: &Arc<Core>,
        words: &OwnedFd,
    ) -> Result<Words> {
        let (given_at, inode, bytes) = (core.opened_at().into(), inode(words)?, kind.bytes());
        Ok(Words { mapped, between: Some(Between { core: core.clone(), given_at, inode, bytes }) })
    }

    /// Whether hosts share them.
    #[inline]
    pub(super) fn are_between_hosts(&self) -> bool {
        self.between.is_some()
    }

    /// Whether they were given on another connection: the host may have died with its keeper since, and give others.
    #[inline]
    pub(super) fn are_in_doubt(&self) -> bool {
        let given_at = |between: &Between| between.given_at.load(Ordering::Relaxed);
        self.between.as_ref().is_some_and(|between| between.core.opened_at() != given_at(between))
    }

    /// Whether the host gives these words still.
    pub(super) fn are_given(&self) -> Result<bool> {
        let Some(between) = &self.between else { return Ok(true) };
        let opened_at = between.core.opened_at();
        let is_given = inode(&between.core.ask_for_words()?)? == between.inode;
        if is_given {
            between.given_at.store(opened_at, Ordering::Relaxed);
        }
        Ok(is_given)
    }

    fn tell(&self, at: usize, wanted: bool) {
        if let Some(Between { core, bytes, .. }) = &self.between {
            let index = (at / bytes) as u32;
            core.shared().note_now(&Request::Token { object: core.id(), index, wanted });
        }
    }
}

fn inode(words: &OwnedFd) -> Result<u64> {
    let stat = rustix::fs::fstat(words).map_err(std::io::Error::from);
    Ok(stat.doing("looking at the memory of locks")?.st_ino)
}

impl Memory for Words {
    const SPINS: u32 = Mapped::SPINS;

    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.mapped.load(at)
    }

    #[inline]
    fn exchange(&self, at: usize, old: u64, new: u64) -> std::result::Result<(), u64> {
        self.mapped.exchange(at, old, new)
    }

    #[inline]
    fn add(&self, at: usize, more: u64) -> u64 {
        self.mapped.add(at, more)
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        Memory::sleep(&self.mapped, at, value, at_most);
    }

    fn wake(&self, at: usize, most: u32) -> u32 {
        Memory::wake(&self.mapped, at, most)
    }

    fn has_sleepers(&self, at: usize) -> bool {
        Memory::has_sleepers(&self.mapped, at)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wanted(&self, at: usize) {
        self.tell(at, true);
    }

    fn released(&self, at: usize) {
        self.tell(at, false);
    }

    fn are_gone(&self) -> bool {
        let is_left = |given: Result<bool>| match given {
            Ok(is_given) => is_given,
            // Nobody knows yet.
            Err(error) => matches!(error.kind, ErrorKind::Disconnected | ErrorKind::TimedOut),
        };
        self.are_in_doubt() && !is_left(self.are_given())
    }
}
