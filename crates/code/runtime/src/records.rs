//! What the program has of the images that it was linked to: one record each, one behind the other, in one section.

use crate::format::{NAME_BYTES, Record};
use crate::include::{self, Place};
use crate::system;
use crate::why::{BUSY, Why};
use crate::words::same;
use core::sync::atomic::{AtomicU32, Ordering};

/// All of them.
#[derive(Clone, Copy)]
pub struct Records {
    first: *const u8,
    end: *const u8,
}

/// One.
#[derive(Clone, Copy)]
pub struct One {
    record: *const Record,
    all: Records,
}

/// Bit of a lock: somebody sleeps.
const WAITING: u32 = 1 << 31;

impl Records {
    /// # Safety
    /// The section lies between the two, and lives as long as the program.
    pub unsafe fn new(first: *const u8, end: *const u8) -> Records {
        Records { first, end }
    }

    /// The record of that name; one whose image is there already is preferred.
    pub fn find(&self, name: &[u8; NAME_BYTES]) -> Option<One> {
        let mut found = None;
        let mut at = self.first;
        while (at as usize) + size_of::<Record>() <= self.end as usize {
            let record = One { record: at.cast(), all: *self };
            // It is about to be written: to write first is one page fault, to read and then to write are two. (An
            // addition of nothing would be made a read by the compiler.)
            let _ = record.get().lock.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
            // SAFETY: a record, as the stubs have them.
            let bytes = unsafe { (*record.record).bytes } as usize;
            if same(record.name(), name) && (found.is_none() || record.is_ready()) {
                found = Some(record);
            }
            if bytes < size_of::<Record>() {
                break;
            }
            at = at.wrapping_add(bytes);
        }
        found
    }

    /// One lock for all records, in the first: images may lead to each other, so there is no order among more. Whether it
    /// was taken now; if not this thread has it.
    fn lock(&self) -> bool {
        let lock = self.lock_word();
        let me = system::thread();
        loop {
            let now = match lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => now,
            };
            if now & !WAITING == me {
                return false;
            }
            let waiting = now | WAITING;
            let told = lock.compare_exchange(now, waiting, Ordering::Relaxed, Ordering::Relaxed);
            if now == waiting || told.is_ok() {
                system::wait(lock, waiting);
            }
        }
    }

    fn unlock(&self) {
        let lock = self.lock_word();
        if lock.swap(0, Ordering::Release) & WAITING != 0 {
            system::wake(lock);
        }
    }

    fn lock_word(&self) -> &AtomicU32 {
        // SAFETY: there is a record, or nobody would ask; it lives as long as the program.
        unsafe { &(*self.first.cast::<Record>()).lock }
    }
}

impl One {
    /// # Safety
    /// A record of the section, as the stubs have them.
    pub unsafe fn new(record: *const Record) -> One {
        // SAFETY: the caller's promise.
        let (first, end) = unsafe { (at(&raw const (*record).first), at(&raw const (*record).end)) };
        One { record, all: Records { first, end } }
    }

    fn get(&self) -> &Record {
        // SAFETY: it lives as long as the program, and only its atomic words change.
        unsafe { &*self.record }
    }

    fn name(&self) -> &[u8; NAME_BYTES] {
        &self.get().name
    }

    fn is_ready(&self) -> bool {
        self.get().ready.load(Ordering::Acquire) != 0
    }

    /// How many slots the program was linked with.
    pub fn slots(&self) -> u32 {
        self.get().slots
    }

    fn place<'a>(&'a self, for_whom: Option<&'a Place<'a>>) -> Place<'a> {
        let record = self.get();
        let path = self.record.wrapping_add(1).cast::<u8>();
        let path_bytes = (record.bytes as usize).saturating_sub(size_of::<Record>());
        Place {
            name: &record.name,
            // SAFETY: the path lies behind the record.
            path: path_of(unsafe { core::slice::from_raw_parts(path, path_bytes) }),
            base: record.base,
            lineage: record.lineage,
            slots: record.slots,
            // SAFETY: a word of the record.
            table: unsafe { at(&raw const record.table) }.cast(),
            table_count: if record.table == 0 { 0 } else { record.table_count },
            table_sum: record.table_sum,
            records: self.all,
            for_whom,
        }
    }

    /// Includes the image, once however many threads ask. The thread that does it may come here again, from a
    /// constructor, for this image or another, by this record or another.
    pub fn include(&self, for_whom: Option<&Place<'_>>) -> Result<(), Why> {
        loop {
            if self.is_ready() {
                return Ok(());
            }
            let is_outermost = self.all.lock();
            let done = if self.is_ready() { Ok(false) } else { include::include(&self.place(for_whom)) };
            if let Ok(true) = done {
                self.get().ready.store(1, Ordering::Release);
            }
            if is_outermost {
                self.all.unlock();
            }
            match done {
                // Who includes it may need what this thread had locked.
                Err(why) if why.code == BUSY && for_whom.is_none() => system::pause(),
                done => return done.map(|_| ()),
            }
        }
    }
}

/// What lies at a distance from a word that says it.
///
/// # Safety
/// A word of a record.
unsafe fn at(distance: *const i32) -> *const u8 {
    // SAFETY: the caller's promise.
    distance.cast::<u8>().wrapping_offset(unsafe { distance.read() } as isize)
}

/// Up to its first zero, with that.
fn path_of(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().position(|byte| *byte == 0).map_or(bytes.len(), |length| length + 1);
    bytes.get(..length).unwrap_or_default()
}
