//! A small host for the tests: one stored object, its journal, and the states the object may be in.
#![allow(dead_code)]

#[path = "../../../../tests/limit.rs"]
mod limit;

use commonhold_journal::testing::{SimDisk, SimFile};
use commonhold_journal::{
    Appended, Error, Journal, Options, PAGE_BYTES, RecordBuffer, Recovery, Storage, Ticket, Uuid,
};
use std::io;

pub const UUID: Uuid = Uuid(*b"an object's uuid");
pub const OPTIONS: Options =
    Options { reserve_bytes: 64 << 10, grow_bytes: 16 << 10, checkpoint_bytes: 24 << 10, salt: Some(42) };
pub const OBJECT_PAGES: u32 = 6;

/// The file numbers on the disk.
pub const A: usize = 0;
pub const B: usize = 1;
pub const OBJECT: usize = 2;

/// A disk on which nothing but a zeroed object is yet.
pub fn new_disk() -> SimDisk {
    limit::begin();
    SimDisk::new(vec![Vec::new(), Vec::new(), vec![0; OBJECT_PAGES as usize * PAGE_BYTES]])
}

/// A page whose every sector tells which sync wrote it where.
pub fn page(sync: u64, number: u32) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(sync << 32 | u64::from(number) << 16 | index as u64).to_le_bytes());
    }
    bytes
}

/// What the object holds after a sync of these pages on top of `before`.
pub fn after(before: &[u8], sync: u64, pages: &[u32]) -> Vec<u8> {
    let mut state = before.to_vec();
    for &number in pages {
        let at = number as usize * PAGE_BYTES;
        state[at..at + PAGE_BYTES].copy_from_slice(&page(sync, number));
    }
    state
}

pub struct Host {
    pub disk: SimDisk,
    pub journal: Journal<SimFile>,
    pub object: SimFile,
    pub buffer: RecordBuffer,
    /// `states[k]` is the object after attempt `k`.
    pub states: Vec<Vec<u8>>,
    pub acknowledged: usize,
}

impl Host {
    /// Opens, redoes, flushes and finishes the recovery, as a host does at every start.
    pub fn start(disk: &SimDisk, part_pages: usize) -> Result<(Host, Recovery), Error> {
        let storages = [disk.file(A), disk.file(B)];
        let (journal, recovery) = Journal::open(UUID, storages, OPTIONS)?;
        let mut host = Host {
            disk: disk.clone(),
            journal,
            object: disk.file(OBJECT),
            buffer: RecordBuffer::with_capacity(part_pages),
            states: Vec::new(),
            acknowledged: 0,
        };
        host.redo();
        host.object.flush().expect("no fault planned for the object");
        host.journal.finish_recovery()?;
        host.states = vec![disk.contents(OBJECT)];
        Ok((host, recovery))
    }

    /// Writes every live page to the object again.
    pub fn redo(&mut self) {
        let object = &mut self.object;
        self.journal
            .replay_runs(|first, run| object.write_at(u64::from(first) * PAGE_BYTES as u64, run))
            .expect("the log can be read");
    }

    /// One sync: append, acknowledge, apply. On failure nothing is acknowledged.
    pub fn sync(&mut self, pages: &[u32]) -> Result<u64, Error> {
        let record = self.append(pages)?;
        self.apply(&record).expect("applying works here");
        Ok(record.sequence)
    }

    pub fn append(&mut self, pages: &[u32]) -> Result<Appended, Error> {
        let sync = self.states.len() as u64;
        self.states.push(after(&self.states[self.acknowledged], sync, pages));
        self.disk.attempted(sync);
        let contents: Vec<_> = pages.iter().map(|&number| (number, page(sync, number))).collect();
        let pages = contents.iter().map(|(number, bytes)| (*number, bytes));
        let record = self.journal.append_pages(pages, &mut self.buffer)?;
        self.acknowledged = sync as usize;
        self.disk.acknowledged(sync);
        Ok(record)
    }

    pub fn apply(&mut self, record: &Appended) -> io::Result<()> {
        let object = &mut self.object;
        self.journal
            .replay_record(record, |first, run| object.write_at(u64::from(first) * PAGE_BYTES as u64, run))
            .map_err(io::Error::other)?;
        self.journal.applied(record).map_err(io::Error::other)
    }

    pub fn begin_checkpoint(&mut self) -> Ticket {
        self.journal.begin_checkpoint().expect("a checkpoint can begin")
    }

    pub fn finish_checkpoint(&mut self, ticket: Ticket) -> Result<(), Error> {
        if self.object.flush().is_err() {
            // The dirty pages may be gone: write them again before trusting another flush.
            self.redo();
            self.object.flush().expect("only one fault planned for the object");
        }
        self.journal.finish_checkpoint(ticket)
    }
}
