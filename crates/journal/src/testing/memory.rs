//! A journal file in memory, as plain as possible.

use crate::storage::Storage;
use std::io;

/// A journal file in memory. Flushes do nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryStorage(pub Vec<u8>);

pub(super) fn read(contents: &[u8], offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(bytes.len());
    let there = contents.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
    bytes.copy_from_slice(there);
    Ok(())
}

pub(super) fn write(contents: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = offset as usize;
    let end = start + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[start..end].copy_from_slice(bytes);
}

impl Storage for MemoryStorage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        read(&self.0, offset, bytes)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write(&mut self.0, offset, bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        let len = self.0.len().max(len as usize);
        self.0.resize(len, 0);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(len as usize);
        Ok(())
    }
}
