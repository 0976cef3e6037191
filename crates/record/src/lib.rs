//! The record of a program that is set for rebasing: which files it is made of, in which state, and which copies stand for
//! them. Written by `commonhold rebase`, and read by the audit library `commonhold-start` before anything of the program
//! runs: so it is flat, is read where it lies, needs no memory, and every offset in it is checked.
//!
//! ```text
//! magic 8 | bytes of the whole u32 | number of files u32 | sum of what follows u64 | files, 96 bytes each | strings, each
//! ended by a zero
//!
//! file: place of its path u32 | place of its copy's path u32 | its state 40 | address of the copy's dynamic section u64 |
//! the copy's state 40
//! state: device, inode, size, modified ns, changed ns, u64 each
//! ```
//! The first file is the program, the second its loader. Numbers are little endian.
#![no_std]
#![forbid(unsafe_code)]

/// The first bytes of a record of this version.
pub const MAGIC: [u8; 8] = *b"CHREBAS2";
/// Before the files.
pub const HEADER_BYTES: usize = 24;
/// Each file.
pub const FILE_BYTES: usize = 96;
/// In the record of a program's copy, as [`File::dynamic`] of the first file: its `copy` is the original.
pub const IS_THE_COPY: u64 = u64::MAX;
/// More than any program has.
pub const MOST_BYTES: usize = 4 << 20;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of content, in ns.
    pub modified_ns: i64,
    /// Time of the last change of the inode, in ns.
    pub changed_ns: i64,
}

impl State {
    /// That of a copy which is not there.
    pub const NONE: State = State { device: 0, inode: 0, size: 0, modified_ns: 0, changed_ns: 0 };
}

/// One file of a program.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Its path as the loader has it, with a zero behind it.
    pub path: &'a [u8],
    /// The path of its copy, with a zero behind it; empty: it has none.
    pub copy: &'a [u8],
    /// The state in which its copy was made.
    pub state: State,
    /// Where the dynamic section of the copy must be found.
    pub dynamic: u64,
    /// The state of the copy when it was whole, and nobody else could write it. The time of the last change of its inode
    /// tells all that others could do to it later, and a change of owner and mode too.
    pub copy_state: State,
}

/// A record, in the bytes of its file.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    bytes: &'a [u8],
    files: usize,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn state(bytes: &[u8], at: usize) -> Option<State> {
    let long = |place: usize| long(bytes, at + place);
    Some(State {
        device: long(0)?,
        inode: long(8)?,
        size: long(16)?,
        modified_ns: long(24)? as i64,
        changed_ns: long(32)? as i64,
    })
}

fn string(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    rest.get(..=end)
}

/// Which version of a record these bytes begin as; none: they are no record.
pub fn version(bytes: &[u8]) -> Option<u8> {
    bytes.strip_prefix(&MAGIC[..7])?.first().copied()
}

impl<'a> Record<'a> {
    /// The record in these bytes; none if it is damaged or of another version.
    pub fn new(bytes: &'a [u8]) -> Option<Record<'a>> {
        let files = word(bytes, 12)? as usize;
        let record = Record { bytes, files };
        let whole =
            word(bytes, 8)? as usize == bytes.len() && long(bytes, 16)? == sum(bytes.get(HEADER_BYTES..)?);
        let sound = bytes.get(..8)? == MAGIC && whole && files >= 2;
        (sound && (0..files).all(|index| record.read(index).is_some())).then_some(record)
    }

    /// The same record once more, of bytes that [`Record::new`] has accepted: nothing is computed again.
    pub fn accepted(bytes: &'a [u8]) -> Option<Record<'a>> {
        Some(Record { bytes, files: word(bytes, 12)? as usize })
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files
    }

    /// Never: there are a program and a loader.
    pub fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// The files, the program first, its loader second.
    pub fn files(&self) -> impl Iterator<Item = File<'a>> + use<'a> {
        let this = *self;
        (0..this.files).filter_map(move |index| this.read(index))
    }

    fn read(&self, index: usize) -> Option<File<'a>> {
        let at = HEADER_BYTES.checked_add(index.checked_mul(FILE_BYTES)?)?;
        let (state, copy_state) = (state(self.bytes, at + 8)?, state(self.bytes, at + 56)?);
        let path = string(self.bytes, word(self.bytes, at)? as usize)?;
        let copy = string(self.bytes, word(self.bytes, at + 4)? as usize)?;
        let copy = if copy.len() > 1 { copy } else { &[] };
        let dynamic = long(self.bytes, at + 48)?;
        // What is said of a copy says whether there is one: without it the original would come beside other copies.
        let has_copy = !copy.is_empty();
        let sound = path.len() > 1 && has_copy == (dynamic != 0) && has_copy == (copy_state != State::NONE);
        sound.then_some(File { path, copy, state, dynamic, copy_state })
    }
}

/// Tells a record that was damaged from one that was not; no defence against anybody. Eight bytes at a time: it is
/// computed at every start.
#[inline(always)]
pub fn sum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let words = bytes.chunks_exact(8);
    let rest = words.remainder().iter().fold(1, |rest, byte| rest << 8 | u64::from(*byte));
    mix(words.filter_map(|word| long(word, 0)).fold(bytes.len() as u64, mix), rest)
}

/// The name of the record of a program: a hash of its path (FNV-1a), in hexadecimal digits. Two programs of one name would
/// have one record, which is noticed: the path stands in it.
pub fn name(path: &[u8]) -> [u8; 16] {
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    core::array::from_fn(|place| digit((hash >> (60 - 4 * place)) as u8 & 15))
}

/// A value below 16 as a hexadecimal digit, a small one.
#[inline]
pub fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}
