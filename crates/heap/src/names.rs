//! Names in a heap: roots, each a word in which programs find what lies there, and types. Few are
//! made, under one lock; to find one takes none. A name is there when its first word says so, which is
//! written last.

use crate::arena::Arena;
use crate::layout::{HOSTS, LOCK_AT, MARK_AT, PAGE, PLACES, ROOTS_AT, TAGS_AT};
use crate::refused::{Problem, Refused, Result, damaged};
use crate::words::Words;

/// How many roots a heap has, and how many types.
pub const MOST_NAMES: usize = 64;
pub(crate) const MOST_TAGS: usize = MOST_NAMES;
/// Bytes of a root: length and value, then its name, of 48 bytes at most.
pub const ROOT_BYTES: u64 = PAGE / MOST_NAMES as u64;
/// The same for a type, whose text has 240 bytes at most.
pub const TAG_BYTES: u64 = 4 * ROOT_BYTES;
/// Set in the first word of one that is there.
const THERE: u64 = 1 << 32;
/// Turns of waiting for the lock: some ten seconds.
const PATIENCE: u32 = 200_000;
/// `heap 1`, so that nothing else is taken for a heap.
const MARK: u64 = u64::from_le_bytes(*b"heap   1");

#[derive(Clone, Copy)]
struct Table {
    at: u64,
    bytes: u64,
}
const ROOTS: Table = Table { at: ROOTS_AT, bytes: ROOT_BYTES };
const TAGS: Table = Table { at: TAGS_AT, bytes: TAG_BYTES };

/// A type of a heap, or a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// Bytes of one element; of a root: its value.
    pub value: u64,
}

/// Makes memory of zeroes a heap, and refuses what is another thing.
pub(crate) fn begin(m: &impl Words) -> Result<()> {
    let seen = match m.load(MARK_AT) {
        0 => m.exchange(MARK_AT, 0, MARK).err().unwrap_or(MARK),
        seen => seen,
    };
    if seen == MARK { Ok(()) } else { damaged(MARK_AT, what_else(m)) }
}

/// What it is that was not made a heap by this version.
pub(crate) fn what_else(m: &impl Words) -> &'static str {
    match m.load(MARK_AT).to_le_bytes() {
        [b'h', b'e', b'a', b'p', b' ', b' ', b' ', _] => {
            "another version of Commonhold made this heap: use it with that one"
        }
        _ => "this is no heap",
    }
}

/// Whether it was made a heap, or is empty.
pub(crate) fn is_heap(m: &impl Words) -> bool {
    [0, MARK].contains(&m.load(MARK_AT))
}

impl Table {
    fn entry(self, number: usize) -> u64 {
        self.at + number as u64 * self.bytes
    }

    fn read(self, m: &impl Words, number: usize) -> Result<Option<Tagged>, Problem> {
        let at = self.entry(number);
        let first = m.load(at);
        if first == 0 {
            return Ok(None);
        }
        let none = Problem { at, what: "a name is none" };
        let length = first.wrapping_sub(THERE);
        if length == 0 || length > self.bytes - 16 {
            return Err(none);
        }
        let words = (0..length.div_ceil(8)).map(|word| m.load(at + 16 + 8 * word));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(length as usize);
        let name = String::from_utf8(bytes).map_err(|_| none)?;
        Ok(Some(Tagged { number: number as u16, name, value: m.load(at + 8) }))
    }

    fn all(self, m: &impl Words) -> Result<Vec<Tagged>, Problem> {
        (0..MOST_NAMES).filter_map(|number| self.read(m, number).transpose()).collect()
    }

    fn find(self, m: &impl Words, name: &str) -> Result<Option<Tagged>> {
        Ok(self.all(m)?.into_iter().find(|one| one.name == name))
    }

    /// The one of a name, which is made if there is none.
    fn make(self, m: &impl Words, arena: &mut Arena, name: &str, value: u64) -> Result<Tagged> {
        if name.is_empty() || name.len() as u64 > self.bytes - 16 {
            return Err(Refused::BadName);
        }
        if let Some(found) = self.find(m, name)? {
            return Ok(found);
        }
        lock(m, arena)?;
        let made = self.find(m, name).and_then(|found| match found {
            Some(found) => Ok(found),
            None => self.write(m, name, value),
        });
        m.store(LOCK_AT, 0);
        made
    }

    fn write(self, m: &impl Words, name: &str, value: u64) -> Result<Tagged> {
        let free = (0..MOST_NAMES).find(|number| m.load(self.entry(*number)) == 0);
        let number = free.ok_or(Refused::TooMany)?;
        let at = self.entry(number);
        for (index, part) in name.as_bytes().chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            m.store(at + 16 + 8 * index as u64, u64::from_le_bytes(word));
        }
        m.store(at + 8, value);
        m.store(at, THERE + name.len() as u64);
        Ok(Tagged { number: number as u16, name: name.to_owned(), value })
    }
}

/// Takes the lock of names. If its owner has ended its place is taken, which frees the lock.
fn lock(m: &impl Words, arena: &mut Arena) -> Result<()> {
    for turn in 0..PATIENCE {
        let Err(owner) = m.exchange(LOCK_AT, 0, arena.slots[0]) else { return Ok(()) };
        let is_none = owner >= HOSTS * PLACES || owner.is_multiple_of(PLACES);
        if is_none || arena.slots.contains(&owner) {
            return damaged(LOCK_AT, "the lock of names belongs to nobody");
        }
        if turn % 100 == 0 && arena.is_of_this_host(m, owner) {
            arena.take(m, owner)?;
        }
        m.pause();
    }
    Err(Refused::TimedOut)
}

impl Arena {
    fn is_of_this_host(&self, m: &impl Words, slot: u64) -> bool {
        m.load(crate::layout::Layout::host(slot / PLACES)) == self.people.host()
    }

    /// Where the word of a root is, which is made with the value 0 if there is none.
    pub fn root(&mut self, m: &impl Words, name: &str) -> Result<u64> {
        let root = ROOTS.make(m, self, name, 0)?;
        Ok(ROOTS.entry(usize::from(root.number)) + 8)
    }

    /// The number of a type, of so many bytes for each element.
    pub fn tag(&mut self, m: &impl Words, text: &str, bytes: u64) -> Result<u16> {
        let tag = TAGS.make(m, self, text, bytes)?;
        if tag.value != bytes {
            return damaged(TAGS.entry(usize::from(tag.number)), "a type has another size");
        }
        Ok(tag.number)
    }
}

/// All roots.
pub(crate) fn roots(m: &impl Words) -> Result<Vec<Tagged>, Problem> {
    ROOTS.all(m)
}

/// All types.
pub(crate) fn tags(m: &impl Words) -> Result<Vec<Tagged>, Problem> {
    TAGS.all(m)
}
