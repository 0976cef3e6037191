//! The pipes through which frames leave, and which outlive this process. An eviction may wait for
//! clients while it has one (`docs/SECURITY.md`, "Locks that clients hold"), so each user has a
//! pipe, and all objects of root, and of who runs the host, have one.

use super::evict::PART_PAGES;
use super::lock;
use commonhold_object::error::Doing;
use commonhold_object::{PAGE_SIZE_BYTES, PageRange, Result};
use commonhold_sys::frames;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Users whose pipes are kept before those that are empty are given up.
const REMEMBERED: usize = 64;

/// How long an eviction waits for another's turn: many times what one takes.
const TURNS_WAIT: Duration = Duration::from_millis(20);

/// The two ends of a pipe: reading, writing.
pub type Ends = [Arc<OwnedFd>; 2];

/// Keeps the pipe of that user past this process; without ends, gives up what is kept.
pub type Keep = dyn Fn(Option<u32>, Option<&Ends>) -> Result<()> + Send + Sync;

/// All pipes, by user; none: of root, and of who runs the host.
pub struct Evictor {
    pipes: Mutex<HashMap<Option<u32>, Arc<Mutex<Pipe>>>>,
    turn: Mutex<()>,
    keep: Box<Keep>,
}

/// The pipe that outlives the host, and one of its own to read from: what is in the first stays
/// there until nothing depends on it any more.
pub struct Pipe {
    pub(super) read: Arc<OwnedFd>,
    pub(super) write: Arc<OwnedFd>,
    pub(super) scratch: Option<(OwnedFd, OwnedFd)>,
}

impl Pipe {
    fn new([read, write]: Ends) -> Arc<Mutex<Pipe>> {
        Arc::new(Mutex::new(Pipe { read, write, scratch: frames::frame_pipe(PART_PAGES).ok() }))
    }
}

impl Evictor {
    /// With the pipes that the host before had.
    pub fn new(kept: impl IntoIterator<Item = (Option<u32>, Ends)>, keep: Box<Keep>) -> Evictor {
        let pipes = kept.into_iter().map(|(user, ends)| (user, Pipe::new(ends))).collect();
        Evictor { pipes: Mutex::new(pipes), turn: Mutex::new(()), keep }
    }

    /// The pipe of a user's objects. The next host has it, too.
    pub fn pipe_of(&self, user: Option<u32>) -> Result<Arc<Mutex<Pipe>>> {
        let mut pipes = lock(&self.pipes);
        if let Some(pipe) = pipes.get(&user) {
            return Ok(pipe.clone());
        }
        if pipes.len() >= REMEMBERED {
            let is_used = |pipe: &Arc<Mutex<Pipe>>| Arc::strong_count(pipe) > 1;
            for (user, _) in pipes.extract_if(|user, pipe| user.is_some() && !is_used(pipe)) {
                (self.keep)(user, None)?;
            }
        }
        let (read, write) = frames::frame_pipe(PART_PAGES).doing("making a pipe to evict by")?;
        let ends = [Arc::new(read), Arc::new(write)];
        (self.keep)(user, Some(&ends))?;
        Ok(pipes.entry(user).or_insert(Pipe::new(ends)).clone())
    }

    /// One eviction at a time punches, looks, and puts back: what is written meanwhile is in its
    /// pipe alone, and lost if host and keeper die together. One whose client makes it wait keeps
    /// others only for a while.
    pub fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let begun = Instant::now();
        loop {
            match self.turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() > TURNS_WAIT => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }

    /// The pipe of a user's objects, if there is one.
    pub fn kept_pipe_of(&self, user: Option<u32>) -> Option<Arc<Mutex<Pipe>>> {
        lock(&self.pipes).get(&user).cloned()
    }
}

/// Empties the pipe, which does not block.
pub(super) fn drain(pipe: &OwnedFd) {
    let mut content = [0; PAGE_SIZE_BYTES as usize];
    while rustix::io::read(pipe, &mut content).is_ok_and(|n| n > 0) {}
}

pub(super) fn read_exact(pipe: &OwnedFd, mut buffer: &mut [u8]) -> std::io::Result<()> {
    while !buffer.is_empty() {
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => buffer = &mut buffer[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Checks that this kernel lets a punched frame live on in a pipe (it does not when frames are huge pages).
pub fn frames_survive_in_pipe() -> std::io::Result<bool> {
    let memory = frames::create("commonhold-check", 16 * PAGE_SIZE_BYTES)?;
    let (read, write) = frames::frame_pipe(16)?;
    frames::write_unlocked(&memory, 0, &[7; 16 * PAGE_SIZE_BYTES as usize])?;
    let range = PageRange::new(3, 2);
    frames::reference_into_pipe(&memory, range.offset_bytes(), range.length_bytes() as usize, &write)?;
    frames::punch(&memory, range.offset_bytes(), range.length_bytes())?;
    let mut content = vec![0; range.length_bytes() as usize];
    read_exact(&read, &mut content)?;
    Ok(content.iter().all(|b| *b == 7))
}
