//! A simulated disk: files whose every write and flush is recorded, and which fail when told to.

use super::memory;
use super::rng::Rng;
use crate::storage::Storage;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One thing that happened, in order.
#[derive(Debug, Clone)]
pub enum Event {
    /// Bytes were written (by a write or a reservation), into the page cache.
    Write {
        /// Which file.
        file: usize,
        /// Where.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// The file was cut.
    Truncate {
        /// Which file.
        file: usize,
        /// To this length.
        len: u64,
    },
    /// A flush returned.
    Flush {
        /// Which file.
        file: usize,
        /// Whether it succeeded. If not, what was written since the last success may or may not be on
        /// disk, and no later flush will bring it there.
        ok: bool,
    },
    /// The test began an attempt to reach state `n`.
    Attempted(u64),
    /// The test was told that state `n` is durable.
    Acknowledged(u64),
}

/// What a [`Fault`] hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultOp {
    /// Writes and reservations.
    Write,
    /// Flushes.
    Flush,
}

/// A planned failure.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// What fails.
    pub op: FaultOp,
    /// So many operations succeed first.
    pub after: u64,
    /// So many fail then.
    pub times: u64,
    /// How they fail.
    pub kind: io::ErrorKind,
    /// A failing write leaves so many of its bytes behind.
    pub keep_bytes: usize,
    /// Only operations on this file count and fail.
    pub file: Option<usize>,
}

impl Fault {
    /// The write after `after` others fails for lack of space, once, and leaves nothing.
    pub fn no_space(after: u64) -> Self {
        Fault {
            op: FaultOp::Write,
            after,
            times: 1,
            kind: io::ErrorKind::StorageFull,
            keep_bytes: 0,
            file: None,
        }
    }

    /// The flush after `after` others fails, once.
    pub fn flush(after: u64) -> Self {
        Fault { op: FaultOp::Flush, kind: io::ErrorKind::Other, ..Fault::no_space(after) }
    }
}

/// What happened on a disk, from which [`super::PowerLoss`] makes every state a crash could leave.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The files as they were, durably, before the first event.
    pub bases: Vec<Vec<u8>>,
    /// All that happened.
    pub events: Vec<Event>,
}

#[derive(Default)]
struct State {
    bases: Vec<Vec<u8>>,
    /// What a reader sees: everything written, durable or not.
    cache: Vec<Vec<u8>>,
    events: Vec<Event>,
    faults: Vec<Fault>,
    capacity_bytes: Option<u64>,
}

/// A disk with numbered files. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

/// One file of a [`SimDisk`].
#[derive(Clone)]
pub struct SimFile {
    disk: SimDisk,
    index: usize,
}

impl SimDisk {
    /// A disk whose files have these durable contents.
    pub fn new(files: Vec<Vec<u8>>) -> Self {
        let disk = SimDisk::default();
        let mut state = disk.state();
        state.cache = files.clone();
        state.bases = files;
        drop(state);
        disk
    }

    /// A file by its number.
    pub fn file(&self, index: usize) -> SimFile {
        SimFile { disk: self.clone(), index }
    }

    /// What a reader of a file sees.
    pub fn contents(&self, index: usize) -> Vec<u8> {
        self.state().cache[index].clone()
    }

    /// Plans a failure.
    pub fn plan(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Drops all planned failures.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Lets all files together be at most so long; longer is ENOSPC.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.state().capacity_bytes = capacity_bytes;
    }

    /// Notes that the test begins an attempt to reach state `n`.
    pub fn attempted(&self, n: u64) {
        self.state().events.push(Event::Attempted(n));
    }

    /// Notes that the test was told that state `n` is durable.
    pub fn acknowledged(&self, n: u64) {
        self.state().events.push(Event::Acknowledged(n));
    }

    /// All that happened so far.
    pub fn recording(&self) -> Recording {
        let state = self.state();
        Recording { bases: state.bases.clone(), events: state.events.clone() }
    }

    /// The files after a power cut now that keeps a random choice of what was not durable.
    pub fn power_cut(&self, rng: &mut Rng) -> Vec<Vec<u8>> {
        super::power::random_cut(&self.recording(), rng)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts an operation down and says whether, and how, it fails.
    fn fault(&mut self, op: FaultOp, file: usize) -> Option<Fault> {
        for fault in &mut self.faults {
            if fault.op != op || fault.file.is_some_and(|only| only != file) || fault.times == 0 {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            fault.times -= 1;
            return Some(*fault);
        }
        None
    }

    fn write(&mut self, file: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let fault = self.fault(FaultOp::Write, file);
        let kept = fault.map_or(bytes.len(), |fault| fault.keep_bytes.min(bytes.len()));
        let grown = (offset + kept as u64).saturating_sub(self.cache[file].len() as u64);
        let used: u64 = self.cache.iter().map(|file| file.len() as u64).sum();
        if grown > 0 && self.capacity_bytes.is_some_and(|capacity| used + grown > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if kept > 0 {
            memory::write(&mut self.cache[file], offset, &bytes[..kept]);
            let data = bytes[..kept].into();
            self.events.push(Event::Write { file, offset, data });
        }
        fault.map_or(Ok(()), |fault| Err(fault.kind.into()))
    }
}

impl Storage for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().cache[self.index].len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        memory::read(&self.disk.state().cache[self.index], offset, bytes)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.state().write(self.index, offset, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let fault = state.fault(FaultOp::Flush, self.index);
        state.events.push(Event::Flush { file: self.index, ok: fault.is_none() });
        fault.map_or(Ok(()), |fault| Err(fault.kind.into()))
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let old = state.cache[self.index].len() as u64;
        if old >= len {
            return Ok(());
        }
        let zeros = vec![0; (len - old) as usize];
        state.write(self.index, old, &zeros)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let file = self.index;
        if state.cache[file].len() as u64 > len {
            state.cache[file].truncate(len as usize);
            state.events.push(Event::Truncate { file, len });
        }
        Ok(())
    }
}
