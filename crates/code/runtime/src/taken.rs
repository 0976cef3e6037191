//! The addresses of an image are in use: by the image itself, which another part of the program (a library with a stub
//! of its own) has included or is including, or by something else.

use crate::format::{ENTRIES_AT, GROUP_AT, HEADER_AT, Header};
use crate::include::Place;
use crate::system::{self, File};
use crate::why::{ANOTHER, BUSY, GROUP, OLDER, TABLE, TAKEN};
use crate::words::{Text, same};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

/// The word of private data when the image's constructors have run. Before it is 0, or the thread that runs them.
pub const DONE: u32 = u32::MAX;

/// Whether the image is whole, or this very thread is about it; [`BUSY`] if another is. Other errors say that it is
/// another's range, or what the image lacks.
#[cold]
#[inline(never)]
pub fn is_whole(place: &Place<'_>) -> Result<bool, i32> {
    let can_be = |there: &Mapping| there.readable && there.from_file && there.bytes >= ENTRIES_AT;
    let there = mapping(place.base).filter(can_be).ok_or(TAKEN)?;
    // SAFETY: a file is mapped at this address, more than two pages of it, and may be read.
    let raw =
        unsafe { core::slice::from_raw_parts((place.base + HEADER_AT) as *const u8, size_of::<Header>()) };
    let header = Header::at(raw).ok_or(TAKEN)?;
    let is_it = header.is_sound(header.file_bytes);
    if !is_it || header.base != place.base {
        return Err(TAKEN);
    }
    // Images of one group have one base; and so may images of stores that know nothing of each other.
    if !same(&header.name, place.name) {
        // SAFETY: a byte of the first page, which is mapped with the second.
        let group = unsafe { ((place.base + GROUP_AT) as *const u8).read() };
        return Err(if group != 0 { GROUP } else { TAKEN });
    }
    if header.lineage != place.lineage {
        return Err(ANOTHER);
    }
    if header.slots < place.slots {
        return Err(OLDER);
    }
    if header.table_sum != place.table_sum && header.fills > 0 && place.table_count > 0 {
        return Err(TABLE);
    }
    let state = match header.control_at {
        // All code and constants were mapped at once.
        0 if there.executable => DONE,
        0 => 0,
        // SAFETY: a word of the image's private data, or, before that is mapped, of its file, where it is 0.
        at => unsafe { (*((place.base + at) as *const AtomicU32)).load(Ordering::Acquire) },
    };
    match state {
        DONE => Ok(true),
        thread if thread == system::thread() => Ok(false),
        _ => Err(BUSY),
    }
}

/// What is mapped from an address on.
struct Mapping {
    bytes: u64,
    readable: bool,
    executable: bool,
    from_file: bool,
}

fn mapping(first: u64) -> Option<Mapping> {
    find(|line| of_line(line, first))
}

/// Appends which addresses were wanted, and the first that are in use there.
#[cold]
pub fn say_what_is_there<const MOST: usize>(to: &mut Text<MOST>, first: u64, end: u64) {
    to.append(b"; it wants ");
    range(to, first, end);
    find(|line| {
        let (start, rest) = number(line);
        let (stop, rest) = number(rest.get(1..)?);
        (start < end && first < stop).then_some(())?;
        to.append(b", and ");
        range(to, start, stop);
        let name = rest.iter().position(|byte| matches!(byte, b'/' | b'['));
        to.append(b" is ");
        to.append(name.and_then(|at| rest.get(at..)).unwrap_or(b"memory without a name"));
        Some(())
    });
}

fn range<const MOST: usize>(to: &mut Text<MOST>, first: u64, end: u64) {
    hexadecimal(to, first);
    to.append(b" to ");
    hexadecimal(to, end);
}

fn hexadecimal<const MOST: usize>(to: &mut Text<MOST>, number: u64) {
    to.append(b"0x");
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let digit = (number >> (4 * digit) & 15) as u8;
        to.push(digit + if digit < 10 { b'0' } else { b'a' - 10 });
    }
}

/// Reads `/proc/self/maps`: `first-end rwxp offset device inode path`, numbers in hexadecimal but for the inode.
fn find<T>(mut wanted: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let file = File::open(b"/proc/self/maps\0").ok()?;
    let mut chunk = [const { MaybeUninit::uninit() }; 4096];
    let mut line = Text::<160>::new();
    loop {
        let part = file.next(&mut chunk).unwrap_or_default();
        if part.is_empty() {
            return None;
        }
        for byte in part {
            if *byte != b'\n' {
                line.push(*byte);
                continue;
            }
            if let Some(found) = wanted(line.get()) {
                return Some(found);
            }
            line.clear();
        }
    }
}

fn of_line(line: &[u8], first: u64) -> Option<Mapping> {
    let (start, rest) = number(line);
    if start != first || rest.first() != Some(&b'-') {
        return None;
    }
    let (end, _) = number(rest.get(1..)?);
    let mut words = line.split(|byte| *byte == b' ');
    let rights = words.nth(1)?;
    let inode = words.nth(2)?;
    Some(Mapping {
        bytes: end.wrapping_sub(start),
        readable: rights.first() == Some(&b'r'),
        executable: rights.get(2) == Some(&b'x'),
        from_file: inode.first() != Some(&b'0'),
    })
}

/// A hexadecimal number, and what follows.
fn number(text: &[u8]) -> (u64, &[u8]) {
    let mut number = 0;
    let mut rest = text;
    while let [first, behind @ ..] = rest
        && let Some(digit) = (*first as char).to_digit(16)
    {
        number = number << 4 | u64::from(digit);
        rest = behind;
    }
    (number, rest)
}
