//! Where bytes are while their frames are taken out of page tables: a frame leaves them only by being punched, and a host
//! that is killed before it has put the bytes back must not have lost them. The memory is kept by the keeper; the next host
//! puts back what it finds.

use commonhold_sys::frames;
use rustix::io::{pread, pwrite};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// So many objects can be at it at once.
const SLOTS: usize = 16;
/// Most bytes at once.
pub const MOST_BYTES: usize = 1 << 20;
/// Before the bytes of a slot: whose they are.
const HEADER_BYTES: usize = 4096;
const SLOT_BYTES: usize = HEADER_BYTES + MOST_BYTES;

/// The memory.
pub struct Refuge {
    memory: Arc<OwnedFd>,
    turns: [Mutex<()>; SLOTS],
}

/// New memory for it.
pub fn new_memory() -> io::Result<OwnedFd> {
    frames::create("commonhold-refuge", (SLOTS * SLOT_BYTES) as u64)
}

fn inode_of(frames: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(frames)?.st_ino)
}

fn write_all(to: impl AsFd, bytes: &[u8], at: u64) -> io::Result<()> {
    match pwrite(to, bytes, at)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

impl Refuge {
    /// In that memory.
    pub fn new(memory: Arc<OwnedFd>) -> Refuge {
        Refuge { memory, turns: Default::default() }
    }

    /// Takes frames out of every page table: punches them, and makes them anew with the bytes that they have, which no
    /// page table can change any more.
    pub fn make_anew(&self, frames: impl AsFd, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let inode = inode_of(&frames)?;
        let slot = inode as usize % SLOTS;
        let start = (slot * SLOT_BYTES) as u64;
        let header = |length: usize| {
            let numbers = [inode, offset, length as u64, !inode];
            let mut bytes = [0; 32];
            numbers
                .iter()
                .zip(bytes.chunks_mut(8))
                .for_each(|(n, slot)| slot.copy_from_slice(&n.to_ne_bytes()));
            bytes
        };
        let _turn = self.turns[slot].lock().unwrap_or_else(PoisonError::into_inner);
        write_all(&self.memory, bytes, start + HEADER_BYTES as u64)?;
        write_all(&self.memory, &header(bytes.len()), start)?;
        commonhold_sys::frames::punch(&frames, offset, bytes.len() as u64)?;
        write_all(&frames, bytes, offset)?;
        write_all(&self.memory, &[0; 32], start)
    }

    /// Puts back what a host that was killed had taken out of these frames: where there is none, it is missing.
    pub fn put_back(&self, frames: impl AsFd) -> io::Result<()> {
        let inode = inode_of(&frames)?;
        let start = (inode as usize % SLOTS * SLOT_BYTES) as u64;
        let mut header = [0; 32];
        let read = pread(&self.memory, &mut header, start)?;
        let number = |n: usize| u64::from_ne_bytes(std::array::from_fn(|at| header[8 * n + at]));
        let (offset, length) = (number(1), number(2) as usize);
        if read != 32 || number(0) != inode || number(3) != !inode || length > MOST_BYTES {
            return Ok(());
        }
        let mut bytes = vec![0; length];
        pread(&self.memory, &mut bytes, start + HEADER_BYTES as u64)?;
        let mut there = Vec::new();
        frames::resident_runs(&frames, |from, length| there.push(from..from + length))?;
        for (page, at) in bytes.chunks(4096).zip((offset..).step_by(4096)) {
            if !there.iter().any(|run| run.contains(&at)) {
                write_all(&frames, page, at)?;
            }
        }
        write_all(&self.memory, &[0; 32], start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_host_had_punched_is_put_back_and_nothing_else() {
        let refuge = Refuge::new(Arc::new(new_memory().unwrap()));
        let fd = frames::create("refuge test", 16384).unwrap();
        write_all(&fd, &[1; 12288], 0).unwrap();
        refuge.make_anew(&fd, 4096, &[1; 8192]).unwrap();
        refuge.put_back(&fd).unwrap();
        let mut now = [0; 12288];
        pread(&fd, &mut now, 0).unwrap();
        assert_eq!(now, [1; 12288]);
        // As if it had been killed after the punch of two pages, the first of which was put back and written since.
        let inode = inode_of(&fd).unwrap();
        let start = (inode as usize % SLOTS * SLOT_BYTES) as u64;
        write_all(&refuge.memory, &[7; 8192], start + HEADER_BYTES as u64).unwrap();
        let header: Vec<u8> = [inode, 4096, 8192, !inode].iter().flat_map(|n| n.to_ne_bytes()).collect();
        write_all(&refuge.memory, &header, start).unwrap();
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
}
