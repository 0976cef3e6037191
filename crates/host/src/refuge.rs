//! Where bytes are while their frames are taken out of page tables: a frame leaves them only by being punched, and a host
//! that is killed before it has put the bytes back must not have lost them. The memory is kept by the keeper; the next host
//! puts back what it finds.

use crate::patience::PATIENCE;
use commonhold_object::limits::OBJECT_BYTES;
use commonhold_points as points;
use commonhold_sys::frames;
use commonhold_sys::shared::Shared;
use rustix::io::pwrite;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// So many objects can be at it at once; of one user no more than there may be calls (`patience`).
const SLOTS: usize = 16;
/// Most bytes at once.
pub const MOST_BYTES: usize = 1 << 20;
/// Before the bytes of a slot: whose they are.
const HEADER_BYTES: usize = 4096;
const SLOT_BYTES: usize = HEADER_BYTES + MOST_BYTES;
/// What of the header is used.
const WHOSE_BYTES: usize = 32;

/// The memory. It is mapped: what is on the way of every page that another host takes makes no system call for it.
pub struct Refuge {
    memory: Arc<OwnedFd>,
    slots: [Mutex<Option<Shared>>; SLOTS],
}

/// New memory for it.
pub fn new_memory() -> io::Result<OwnedFd> {
    frames::create("commonhold-refuge", (SLOTS * SLOT_BYTES) as u64)
}

/// What tells the frames of one object from those of others, as long as anybody has them.
pub fn inode_of(frames: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(frames)?.st_ino)
}

fn write_all(to: impl AsFd, bytes: &[u8], at: u64) -> io::Result<()> {
    match points::pwrite(|| pwrite(to, bytes, at))? {
        written if written == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Puts bytes where frames were punched. Without memory for a second this process ends, and the next puts them back: a hole
/// would read as zeros.
fn put(frames: impl AsFd, bytes: &[u8], offset: u64) {
    for _ in 0..50 {
        if write_all(&frames, bytes, offset).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::process::abort(); // the keeper starts the next
}

fn whose(inode: u64, offset: u64, length: usize) -> [u8; WHOSE_BYTES] {
    let numbers = [inode, offset, length as u64, !inode];
    let mut bytes = [0; WHOSE_BYTES];
    numbers.iter().zip(bytes.chunks_mut(8)).for_each(|(n, part)| part.copy_from_slice(&n.to_ne_bytes()));
    bytes
}

/// Which bytes of the frames with that inode are in the slot: offset and length.
fn found(slot: &mut Shared, inode: u64) -> Option<(u64, usize)> {
    let mut header = [0; WHOSE_BYTES];
    slot.read(0, &mut header);
    let number = |n: usize| u64::from_ne_bytes(std::array::from_fn(|at| header[8 * n + at]));
    let (offset, length) = (number(1), number(2) as usize);
    let is_within = offset.is_multiple_of(4096) && offset <= OBJECT_BYTES && length <= MOST_BYTES;
    (number(0) == inode && number(3) == !inode && is_within).then_some((offset, length))
}

/// Whether nobody's bytes are in the slot.
fn is_empty(slot: &mut Shared) -> bool {
    let mut header = [0; WHOSE_BYTES];
    slot.read(0, &mut header);
    header == [0; WHOSE_BYTES]
}

/// One object's turn at a slot.
struct Slot<'r>(MutexGuard<'r, Option<Shared>>);

impl Slot<'_> {
    fn memory(&mut self) -> &mut Shared {
        self.0.as_mut().expect("mapped when the turn began")
    }
}

impl Refuge {
    /// In that memory.
    pub fn new(memory: Arc<OwnedFd>) -> Refuge {
        Refuge { memory, slots: Default::default() }
    }

    /// That slot, if nobody is at it.
    fn slot_now(&self, number: usize) -> io::Result<Option<Slot<'_>>> {
        let mut slot = match self.slots[number].try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        if slot.is_none() {
            *slot = Some(Shared::map(&self.memory, (number * SLOT_BYTES) as u64, SLOT_BYTES)?);
        }
        Ok(Some(Slot(slot)))
    }

    /// A slot at which nobody is. Who may write to an object's memory can hold the slot in which its bytes are, for as long
    /// as they like: others take another. One with bytes of somebody's frames comes last.
    fn free_slot(&self, inode: u64) -> io::Result<Slot<'_>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut last = None;
            for number in (inode as usize % SLOTS..SLOTS).chain(0..inode as usize % SLOTS) {
                let Some(mut slot) = self.slot_now(number)? else { continue };
                if is_empty(slot.memory()) {
                    return Ok(slot);
                }
                last = last.or(Some(slot));
            }
            match last {
                Some(slot) => return Ok(slot),
                None if Instant::now() > until => return Err(io::ErrorKind::TimedOut.into()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// The slot with bytes of the frames with that inode, which a host left that was killed; and which bytes.
    fn left(&self, inode: u64) -> io::Result<Option<(Slot<'_>, u64, usize)>> {
        for number in 0..SLOTS {
            // Where somebody is at it, the bytes are those of their own frames.
            let Some(mut slot) = self.slot_now(number)? else { continue };
            if let Some((offset, length)) = found(slot.memory(), inode) {
                return Ok(Some((slot, offset, length)));
            }
        }
        Ok(None)
    }

    /// Takes frames out of every page table: punches them, and makes them anew with the bytes that they have, which no
    /// page table can change any more. `inode` is that of the frames.
    pub fn make_anew(&self, frames: impl AsFd, inode: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut slot = self.free_slot(inode)?;
        let memory = slot.memory();
        memory.write(HEADER_BYTES, bytes);
        memory.write(0, &whose(inode, offset, bytes.len()));
        let punched = frames::punch(&frames, offset, bytes.len() as u64);
        if punched.is_ok() {
            put(&frames, bytes, offset);
        }
        memory.write(0, &[0; WHOSE_BYTES]);
        punched
    }

    /// Whether there are bytes of the frames with that inode.
    pub fn has_bytes_of(&self, inode: u64) -> io::Result<bool> {
        Ok(self.left(inode)?.is_some())
    }

    /// Puts back what a host that was killed had taken out of these frames: where there is none, it is missing.
    pub fn put_back(&self, frames: impl AsFd) -> io::Result<()> {
        let inode = inode_of(&frames)?;
        let Some((mut slot, offset, length)) = self.left(inode)? else { return Ok(()) };
        let mut bytes = vec![0; length];
        slot.memory().read(HEADER_BYTES, &mut bytes);
        drop(slot); // who may write to the frames can have this thread wait
        let mut there = Vec::new();
        frames::resident_runs(&frames, |from, length| there.push(from..from + length))?;
        for (page, at) in bytes.chunks(4096).zip((offset..).step_by(4096)) {
            if !there.iter().any(|run| run.contains(&at)) {
                write_all(&frames, page, at)?;
            }
        }
        if let Some((mut slot, ..)) = self.left(inode)? {
            slot.memory().write(0, &[0; WHOSE_BYTES]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::pread;

    #[test]
    fn what_a_killed_host_had_punched_is_put_back_and_nothing_else() {
        let refuge = Refuge::new(Arc::new(new_memory().unwrap()));
        let fd = frames::create("refuge test", 16384).unwrap();
        write_all(&fd, &[1; 12288], 0).unwrap();
        let inode = inode_of(&fd).unwrap();
        refuge.make_anew(&fd, inode, 4096, &[1; 8192]).unwrap();
        refuge.put_back(&fd).unwrap();
        let mut now = [0; 12288];
        pread(&fd, &mut now, 0).unwrap();
        assert_eq!(now, [1; 12288]);
        // As if it had been killed after the punch of two pages, the first of which was put back and written since.
        let start = (inode as usize % SLOTS * SLOT_BYTES) as u64;
        write_all(&refuge.memory, &[7; 8192], start + HEADER_BYTES as u64).unwrap();
        write_all(&refuge.memory, &whose(inode, 4096, 8192), start).unwrap();
        frames::punch(&fd, 8192, 4096).unwrap();
        refuge.put_back(&fd).unwrap();
        pread(&fd, &mut now, 0).unwrap();
        assert!(now[..8192] == [1; 8192] && now[8192..] == [7; 4096]);
        // Once.
        frames::punch(&fd, 8192, 4096).unwrap();
        refuge.put_back(&fd).unwrap();
        pread(&fd, &mut now, 0).unwrap();
        assert_eq!(now[8192..], [0; 4096]);
    }

    /// Who waits with a slot keeps nobody from taking pages out of page tables.
    #[test]
    fn others_take_another_slot() {
        let refuge = Refuge::new(Arc::new(new_memory().unwrap()));
        let fd = frames::create("refuge test", 4096).unwrap();
        write_all(&fd, &[1; 4096], 0).unwrap();
        let inode = inode_of(&fd).unwrap();
        let waits: Vec<_> =
            (0..SLOTS).filter(|number| *number != 3).map(|number| refuge.slots[number].lock()).collect();
        refuge.make_anew(&fd, inode, 0, &[1; 4096]).unwrap();
        let last = refuge.slots[3].lock();
        let why = refuge.make_anew(&fd, inode, 0, &[1; 4096]).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::TimedOut, "{why}");
        drop((waits, last));
        // What a killed host left is found wherever it is, and nobody overwrites it while there is room.
        let start = (inode as usize + 5) % SLOTS * SLOT_BYTES;
        write_all(&refuge.memory, &[7; 4096], (start + HEADER_BYTES) as u64).unwrap();
        write_all(&refuge.memory, &whose(inode, 0, 4096), start as u64).unwrap();
        refuge.make_anew(&fd, inode + 5, 0, &[1; 4096]).unwrap();
        assert!(refuge.has_bytes_of(inode).unwrap());
        frames::punch(&fd, 0, 4096).unwrap();
        refuge.put_back(&fd).unwrap();
        let mut now = [0; 4096];
        pread(&fd, &mut now, 0).unwrap();
        assert!(now == [7; 4096] && !refuge.has_bytes_of(inode).unwrap());
    }

    #[test]
    fn what_is_said_of_bytes_is_that_of_its_version() {
        let kept = crate::formats::golden_of_the_state("refuge", &whose(7, 8192, 4096));
        let memory = Arc::new(new_memory().unwrap());
        write_all(&memory, &kept, 0).unwrap();
        assert!(Refuge::new(memory).has_bytes_of(7).unwrap());
    }
}
