//! Send and receive. What is read here was written by processes that may be hostile: each value is
//! read once, and checked before it is used.

use crate::landing::Landing;
use crate::layout::{
    HEAD, HEADER_BYTES, MAGIC, RECEIVERS_SLEEP, RECORD_HEADER, SENDERS_SLEEP, TAIL, UNIT, VERSION_1, ring_of,
};
use crate::lock::Held;
use crate::memory::Memory;
use commonhold_futex::{LONGEST_SLEEP, Wait};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no queue of this version; the word that says what it is.
    NotAQueue(u32),
    /// What is written there cannot be: the reason.
    Damaged(&'static str),
    /// The message is larger than the queue takes.
    TooLarge {
        /// The largest it takes.
        most: u64,
    },
    /// There is no room yet.
    Full,
    /// There is no message yet.
    Empty,
    /// The next message is larger than the buffer, and still there.
    TooSmall {
        /// Its bytes.
        length: usize,
    },
    /// A message of a form that this version does not know was taken out of the queue.
    UnknownForm(u32),
    /// That thread has the lock, for all of the time that there was.
    Locked {
        /// Its number, or 0.
        thread: u32,
    },
    /// No landing is large enough yet.
    NoLanding {
        /// The largest that is posted.
        largest: u64,
    },
    /// As many landings are posted as can be.
    NoSlot,
    /// The landing is not what it was: its owner withdrew it.
    Withdrawn,
}

/// What a message is, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing else.
    Bytes,
    /// So many bytes are in a landing, as the sender says.
    Landed(Landing, u64),
    /// The host has an object for who receives it, under this number, as the sender says.
    Offered(u128),
}

const BYTES: u32 = 0;
const LANDED: u32 = 1;
const OFFERED: u32 = 2;
/// What a message of another form than bytes has before those. Of a landed one: slot, generation,
/// length.
const ABOUT_BYTES: usize = 16;

/// The most messages about objects that can be in a channel's memory of that size at once.
pub fn most_offered(memory_bytes: u64) -> usize {
    let ring = usize::try_from(memory_bytes).ok().and_then(ring_of).unwrap_or(0);
    (ring / size_of_record(ABOUT_BYTES as u32)) as usize
}

/// A message that was received; its bytes are in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Chosen by the program.
    pub kind: u32,
    /// What else there is.
    pub form: Form,
    /// Bytes in the buffer.
    pub length: usize,
}

/// Where a message is copied to.
pub trait Buffer {
    /// Room for so many bytes; `None` if it has not as much.
    fn room(&mut self, length: usize) -> Option<&mut [u8]>;
}

impl Buffer for Vec<u8> {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.resize(length, 0);
        Some(self)
    }
}

impl Buffer for &mut [u8] {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.get_mut(..length)
    }
}

/// A record's header, as it was read.
struct Record {
    length: u32,
    kind: u32,
    form: u32,
}

/// A queue in some memory.
#[derive(Debug)]
pub struct Queue<M> {
    pub(crate) memory: M,
    ring: u32,
    copied: AtomicU64,
}

impl<M: Memory> Queue<M> {
    /// The queue in that memory. Memory of zeroes becomes an empty one.
    pub fn open(memory: M) -> Result<Queue<M>, Refused> {
        let Some(ring) = ring_of(memory.bytes()) else { return Err(Refused::NotAQueue(0)) };
        match memory.exchange(MAGIC, 0, VERSION_1) {
            Ok(()) | Err(VERSION_1) => Ok(Queue { memory, ring, copied: AtomicU64::new(0) }),
            Err(other) => Err(Refused::NotAQueue(other)),
        }
    }

    /// The largest message.
    pub fn most_bytes(&self) -> usize {
        (self.ring - RECORD_HEADER) as usize
    }

    /// Bytes of messages that were copied here, into the queue or out of it.
    pub fn copied_bytes(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Sends bytes.
    pub fn send(&self, kind: u32, bytes: &[u8], wait: Wait) -> Result<(), Refused> {
        self.put((kind, BYTES), [&[], bytes], wait, |_| Ok(()))
    }

    /// Sends a message about a landing that this sender has taken and filled, so that it is its
    /// owner's again. If that fails the landing is still the sender's, unless it was withdrawn.
    pub fn send_landed(
        &self,
        landing: Landing,
        landed: u64,
        (kind, bytes): (u32, &[u8]),
        wait: Wait,
    ) -> Result<(), Refused> {
        let mut about = [0; ABOUT_BYTES];
        about[..8].copy_from_slice(&landing.number().to_le_bytes());
        about[8..].copy_from_slice(&landed.to_le_bytes());
        self.put((kind, LANDED), [&about, bytes], wait, |held| self.check_taken(held, landing))?;
        Ok(())
    }

    /// Sends a message about an object that the host has under that number.
    pub fn send_offered(&self, token: u128, (kind, bytes): (u32, &[u8]), wait: Wait) -> Result<(), Refused> {
        self.put((kind, OFFERED), [&token.to_le_bytes(), bytes], wait, |_| Ok(()))
    }

    /// Puts a record behind the others, when there is room and `check` agrees.
    fn put(
        &self,
        (kind, form): (u32, u32),
        parts: [&[u8]; 2],
        wait: Wait,
        check: impl Fn(&Held<'_, M>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let length = parts[0].len() + parts[1].len();
        if length > self.most_bytes() {
            let most = (self.most_bytes() - parts[0].len()) as u64;
            return Err(Refused::TooLarge { most });
        }
        let (length, size) = (length as u32, size_of_record(length as u32));
        loop {
            let held = Held::take(&self.memory, wait)?;
            let (head, tail) = self.positions()?;
            check(&held)?;
            if self.ring - tail.wrapping_sub(head) >= size {
                let mut at = tail;
                let header = [length, kind, form, 0].map(u32::to_le_bytes);
                for part in [header.as_flattened(), parts[0], parts[1]] {
                    self.write(at, part);
                    at = at.wrapping_add(part.len() as u32);
                }
                self.memory.store(TAIL, tail.wrapping_add(size));
                let sleep = self.nobody_sleeps(RECEIVERS_SLEEP);
                drop(held);
                if sleep {
                    self.memory.wake(TAIL, u32::MAX);
                }
                return Ok(());
            }
            if wait == Wait::No {
                return Err(Refused::Full);
            }
            self.memory.store(SENDERS_SLEEP, 1);
            drop(held);
            self.sleep(HEAD, head, wait).ok_or(Refused::Full)?;
        }
    }

    /// Takes the first message out of the queue.
    pub fn receive(&self, buffer: &mut impl Buffer, wait: Wait) -> Result<Received, Refused> {
        loop {
            let held = Held::take(&self.memory, wait)?;
            let (head, tail) = self.positions()?;
            if head != tail {
                let received = self.take_first(&held, head, tail, buffer);
                if matches!(received, Err(Refused::TooSmall { .. } | Refused::Damaged(_))) {
                    return received;
                }
                let sleep = self.nobody_sleeps(SENDERS_SLEEP);
                drop(held);
                if sleep {
                    self.memory.wake(HEAD, u32::MAX);
                }
                return received;
            }
            if wait == Wait::No {
                return Err(Refused::Empty);
            }
            self.memory.store(RECEIVERS_SLEEP, 1);
            drop(held);
            self.sleep(TAIL, tail, wait).ok_or(Refused::Empty)?;
        }
    }

    /// Copies the first record out, and then takes it out of the queue.
    fn take_first(
        &self,
        held: &Held<'_, M>,
        head: u32,
        tail: u32,
        buffer: &mut impl Buffer,
    ) -> Result<Received, Refused> {
        let record = self.record(head, tail)?;
        let after = head.wrapping_add(size_of_record(record.length));
        if record.form > OFFERED {
            self.memory.store(HEAD, after);
            return Err(Refused::UnknownForm(record.form));
        }
        let mut about = [0; ABOUT_BYTES];
        let before = if record.form == BYTES { 0 } else { ABOUT_BYTES };
        let at = head.wrapping_add(RECORD_HEADER);
        let Some(length) = (record.length as usize).checked_sub(before) else {
            return Err(Refused::Damaged("a message does not say which landing or object it is about"));
        };
        self.read(at, &mut about[..before]);
        let room = buffer.room(length).ok_or(Refused::TooSmall { length })?;
        self.read(at.wrapping_add(before as u32), room);
        self.memory.store(HEAD, after);
        let form = match record.form {
            BYTES => Form::Bytes,
            LANDED => {
                let [landing, landed] =
                    [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| about[at + byte])));
                let landing = Landing::of_number(landing);
                self.landed(held, landing);
                Form::Landed(landing, landed)
            }
            _ => Form::Offered(u128::from_le_bytes(about)),
        };
        Ok(Received { kind: record.kind, form, length })
    }

    /// Head and tail, which fit each other and the ring.
    fn positions(&self) -> Result<(u32, u32), Refused> {
        let (head, tail) = (self.memory.load(HEAD), self.memory.load(TAIL));
        if tail.wrapping_sub(head) > self.ring || !head.is_multiple_of(UNIT) || !tail.is_multiple_of(UNIT) {
            return Err(Refused::Damaged("its ends do not fit each other"));
        }
        Ok((head, tail))
    }

    /// The header of the record at `head`, which ends at `tail` or before it.
    fn record(&self, head: u32, tail: u32) -> Result<Record, Refused> {
        let used = tail.wrapping_sub(head);
        let mut header = [0; RECORD_HEADER as usize];
        if used < RECORD_HEADER {
            return Err(Refused::Damaged("a message is cut off"));
        }
        self.read(head, &mut header);
        let word = |n: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[4 * n + byte]));
        let [length, kind, form] = [0, 1, 2].map(word);
        if length > used - RECORD_HEADER || size_of_record(length) > used {
            return Err(Refused::Damaged("a message is longer than all that is there"));
        }
        Ok(Record { length, kind, form })
    }

    /// Copies bytes to a position, in two pieces where the ring ends.
    fn write(&self, position: u32, bytes: &[u8]) {
        let at = position & (self.ring - 1);
        let (first, second) = bytes.split_at(bytes.len().min((self.ring - at) as usize));
        for (at, part) in [(at as usize, first), (0, second)] {
            if !part.is_empty() {
                self.memory.write(HEADER_BYTES + at, part);
            }
        }
        self.count(bytes.len());
    }

    fn read(&self, position: u32, bytes: &mut [u8]) {
        let at = position & (self.ring - 1);
        self.count(bytes.len());
        let (first, second) = bytes.split_at_mut(bytes.len().min((self.ring - at) as usize));
        for (at, part) in [(at as usize, first), (0, second)] {
            if !part.is_empty() {
                self.memory.read(HEADER_BYTES + at, part);
            }
        }
    }

    fn count(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Clears a flag; gives whether it was set. The caller has the lock, and wakes whom it is
    /// about.
    pub(crate) fn nobody_sleeps(&self, flag: usize) -> bool {
        let sleep = self.memory.load(flag) != 0;
        if sleep {
            self.memory.store(flag, 0);
        }
        sleep
    }

    /// Sleeps while the word is `value`; `None`: the time is over.
    pub(crate) fn sleep(&self, word: usize, value: u32, wait: Wait) -> Option<()> {
        let left = wait.left(|| self.memory.now(), LONGEST_SLEEP)?;
        self.memory.sleep(word, value, left);
        Some(())
    }
}

/// With its header, in whole units. The length is one that a ring has.
fn size_of_record(length: u32) -> u32 {
    (RECORD_HEADER + length).next_multiple_of(UNIT)
}
