//! The board: a file that all processes map, with a row for each point that any of them has passed.
//!
//! A process that passes a point for the first time takes the first free row after the one that the point's name leads to:
//! it swaps the row's key from zero to its own, writes the name, and then sets the flag that says so. Nothing else of a row
//! depends on another word of it, so a process that is killed between two of these steps leaves at most a row without a
//! name. All words are atomic. A point may be passed in a signal handler: no lock is taken, and no memory asked for, except
//! at the first point of a process.

use crate::{Effect, Kind};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::panic::Location;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where processes find the board: a path. Its name is also what tells a program with points from one without.
pub const VARIABLE: &str = "COMMONHOLD_FAULTS";

const ROWS: usize = 4096;
const WORDS: usize = 24;
const KEY: usize = 0;
const FLAG: usize = 1;
const HITS: usize = 2;
const ARMED: usize = 3;
const INJECTED: usize = 4;
const NAME: usize = 8;
const NAME_BYTES: usize = (WORDS - NAME) * 8;
const BYTES: usize = ROWS * WORDS * 8;

/// The rows.
#[derive(Debug)]
pub struct Board(NonNull<AtomicU64>);

// SAFETY: all access is to atomic words of a mapping that stays for ever.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

/// A point as the board has it.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its row.
    pub row: usize,
    /// What process passes it, then file and line.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// How often it was passed.
    pub hits: u64,
    /// How often it did what it was told, by the sort of effect.
    pub injected: [u64; Effect::SORTS],
}

static BOARD: OnceLock<Option<(Board, &'static str)>> = OnceLock::new();
static SPARED: AtomicBool = AtomicBool::new(false);

/// Nothing is injected in this process from now on, nor counted: it is the one that judges.
pub fn spare_this_process() {
    SPARED.store(true, Ordering::Relaxed);
}

/// Notes that a point was passed; gives what it is to do.
pub(crate) fn passed(kind: Kind, place: &'static Location<'static>) -> Option<Effect> {
    if SPARED.load(Ordering::Relaxed) {
        return None;
    }
    let (board, role) = BOARD.get_or_init(of_this_process).as_ref()?;
    let row = board.row_of(kind, role, place)?;
    board.word(row, HITS).fetch_add(1, Ordering::Relaxed);
    board.take(row)
}

fn of_this_process() -> Option<(Board, &'static str)> {
    let path = std::env::var_os(VARIABLE)?;
    let board = Board::open(Path::new(&path)).ok()?;
    let word = std::env::args_os().nth(1);
    let role = match word.as_deref().and_then(|word| word.to_str()) {
        Some("serve") => "host",
        Some("keeper") => "keeper",
        _ => "client",
    };
    Some((board, role))
}

impl Board {
    /// Makes an empty one.
    pub fn create(path: &Path) -> io::Result<Board> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(BYTES as u64)?;
        Board::map(&file)
    }

    /// Takes one that another process made.
    pub fn open(path: &Path) -> io::Result<Board> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no board of points"));
        }
        Board::map(&file)
    }

    fn map(file: &File) -> io::Result<Board> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, file, 0) }?;
        NonNull::new(at.cast()).map(Board).ok_or_else(|| io::Error::other("mapped at null"))
    }

    fn word(&self, row: usize, word: usize) -> &AtomicU64 {
        assert!(row < ROWS && word < WORDS);
        // SAFETY: the mapping has ROWS * WORDS words and is never unmapped; the numbers were checked.
        unsafe { self.0.add(row * WORDS + word).as_ref() }
    }

    fn row_of(&self, kind: Kind, role: &str, place: &Location<'_>) -> Option<usize> {
        let key = key_of(kind, role, place);
        for step in 0..ROWS {
            let row = (key as usize + step) % ROWS;
            let word = self.word(row, KEY);
            match word.load(Ordering::Acquire) {
                found if found == key => return Some(row),
                0 => match word.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => {
                        self.name(row, kind, role, place);
                        return Some(row);
                    }
                    Err(found) if found == key => return Some(row),
                    Err(_) => {}
                },
                _ => {}
            }
        }
        None
    }

    fn name(&self, row: usize, kind: Kind, role: &str, place: &Location<'_>) {
        let mut bytes = [0; NAME_BYTES];
        let mut digits = [0; 10];
        let line = decimal(place.line(), &mut digits);
        let all = [role.as_bytes(), b" ", place.file().as_bytes(), b":", line].concat_into(&mut bytes);
        for (word, part) in bytes[..all.next_multiple_of(8)].chunks(8).enumerate() {
            let mut whole = [0; 8];
            whole.copy_from_slice(part);
            self.word(row, NAME + word).store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        self.word(row, FLAG).store(kind as u64 + 1, Ordering::Release);
    }

    /// What the point is to do this time.
    fn take(&self, row: usize) -> Option<Effect> {
        let armed = self.word(row, ARMED);
        let mut found = armed.load(Ordering::Acquire);
        loop {
            let effect = Effect::from_word(found)?;
            let (skip, count) = (found >> 48, found >> 32 & 0xffff);
            let next = match (skip, count) {
                (0, 0 | 1) => 0,
                (0, count) => (count - 1) << 32 | found & 0xffff_ffff,
                (skip, _) => (skip - 1) << 48 | found & 0xffff_ffff_ffff,
            };
            match armed.compare_exchange_weak(found, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if skip > 0 => return None,
                Ok(_) => {
                    self.word(row, INJECTED + effect.sort()).fetch_add(1, Ordering::Relaxed);
                    return Some(effect);
                }
                Err(now) => found = now,
            }
        }
    }

    /// Tells a point what to do the next `count` times that it is passed, after the next `skip` times.
    pub fn arm(&self, row: usize, effect: Effect, count: u16, skip: u16) {
        let word = u64::from(skip) << 48 | u64::from(count.max(1)) << 32 | effect.to_word();
        self.word(row, ARMED).store(word, Ordering::Release);
    }

    /// Whether it has yet to do what it was told.
    pub fn is_armed(&self, row: usize) -> bool {
        self.word(row, ARMED).load(Ordering::Acquire) != 0
    }

    /// No point does anything from now on.
    pub fn disarm(&self) {
        (0..ROWS).for_each(|row| self.word(row, ARMED).store(0, Ordering::Release));
    }

    /// All points that were passed.
    pub fn points(&self) -> Vec<Point> {
        (0..ROWS).filter_map(|row| self.point(row)).collect()
    }

    fn point(&self, row: usize) -> Option<Point> {
        let number = self.word(row, FLAG).load(Ordering::Acquire);
        let kind = ALL.into_iter().find(|kind| *kind as u64 + 1 == number)?;
        let bytes: Vec<u8> = (NAME..WORDS)
            .flat_map(|word| self.word(row, word).load(Ordering::Relaxed).to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        let injected = std::array::from_fn(|sort| self.word(row, INJECTED + sort).load(Ordering::Relaxed));
        let hits = self.word(row, HITS).load(Ordering::Relaxed);
        Some(Point { row, name: String::from_utf8_lossy(&bytes).into_owned(), kind, hits, injected })
    }
}

const ALL: [Kind; 15] = [
    Kind::Protect,
    Kind::Punch,
    Kind::Copy,
    Kind::Continue,
    Kind::Poison,
    Kind::Pwrite,
    Kind::Fsync,
    Kind::PageIn,
    Kind::PageOut,
    Kind::Mmap,
    Kind::Thread,
    Kind::Send,
    Kind::Receive,
    Kind::SendFar,
    Kind::ReceiveFar,
];

fn key_of(kind: Kind, role: &str, place: &Location<'_>) -> u64 {
    let (line, kind) = (place.line().to_le_bytes(), [kind as u8]);
    let all = role.as_bytes().iter().chain(place.file().as_bytes()).chain(&line).chain(&kind);
    // FNV-1a: of a short name, without a table.
    let hash = all.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash | 1
}

/// The digits of a number.
fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// One after the other, as far as there is room; gives how many bytes that were.
trait ConcatInto {
    fn concat_into(&self, room: &mut [u8]) -> usize;
}

impl<const N: usize> ConcatInto for [&[u8]; N] {
    fn concat_into(&self, room: &mut [u8]) -> usize {
        let mut used = 0;
        for (byte, slot) in self.iter().flat_map(|part| part.iter()).zip(room) {
            *slot = *byte;
            used += 1;
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> &'static Location<'static> {
        static HERE: OnceLock<&Location<'static>> = OnceLock::new();
        HERE.get_or_init(Location::caller)
    }

    #[test]
    fn a_point_does_what_it_is_told_as_often_as_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        let ours = Board::create(&path).unwrap();
        let theirs = Board::open(&path).unwrap();
        let row = theirs.row_of(Kind::Fsync, "host", here()).unwrap();
        assert_eq!(ours.row_of(Kind::Fsync, "host", here()), Some(row));
        assert_ne!(ours.row_of(Kind::Fsync, "keeper", here()), Some(row));
        assert_eq!(theirs.take(row), None);
        ours.arm(row, Effect::Error(2), 2, 1);
        let taken: Vec<_> = (0..4).map(|_| theirs.take(row)).collect();
        assert_eq!(taken, [None, Some(Effect::Error(2)), Some(Effect::Error(2)), None]);
        assert!(!ours.is_armed(row));
        ours.arm(row, Effect::KillAfter, 1, 0);
        ours.disarm();
        assert_eq!(theirs.take(row), None);
        let points = ours.points();
        let point = points.iter().find(|point| point.row == row).unwrap();
        assert_eq!((point.kind, point.injected), (Kind::Fsync, [2, 0, 0, 0]));
        assert_eq!(point.name, format!("host {}:{}", here().file(), here().line()));
        assert_eq!(points.len(), 2);
    }

    #[test]
    fn a_file_of_another_size_is_no_board() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        std::fs::write(&path, b"short").unwrap();
        assert!(Board::open(&path).is_err());
    }

    #[test]
    fn the_board_is_full_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::create(&folder.path().join("board")).unwrap();
        let roles: Vec<String> = (0..=ROWS).map(|number| number.to_string()).collect();
        let rows: Vec<_> = roles.iter().map(|role| board.row_of(Kind::Copy, role, here())).collect();
        assert!(rows[..ROWS].iter().all(Option::is_some));
        assert_eq!(rows[ROWS], None);
    }
}
