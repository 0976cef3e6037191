//! A process notes what it does to registers, in a file that outlives it: each operation before it begins and after it
//! ended. So a process that is killed leaves an operation without an end.

use crate::history::{Act, Operation};
use crate::now;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Words of a record: what, the value, start, end.
const WORDS: usize = 4;
const BYTES: usize = WORDS * 8;

const READ: u64 = 1;
const WRITE: u64 = 2;
const SYNC: u64 = 3;

/// The end of an operation that gave an error: nothing is known of what it did.
const NOTHING_KNOWN: u64 = u64::MAX;

/// The notes of one process.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    host: u8,
    at: u64,
}

impl Recorder {
    /// Begins a file; none of that name may be there.
    pub fn create(path: &Path, host: u8) -> io::Result<Recorder> {
        let file = File::options().write(true).create_new(true).open(path)?;
        Ok(Recorder { file, host, at: 0 })
    }

    fn begin(&self, kind: u64, register: u32, value: u64) -> io::Result<()> {
        let what = kind << 48 | u64::from(self.host) << 32 | u64::from(register);
        let mut bytes = [0; BYTES];
        for (slot, word) in bytes.chunks_exact_mut(8).zip([what, value, now(), 0]) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        self.file.write_all_at(&bytes, self.at)
    }

    fn end(&mut self, value: u64, end: u64) -> io::Result<()> {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        bytes[16..].copy_from_slice(&end.to_le_bytes());
        // Not over the start between the two.
        self.file.write_all_at(&bytes[..8], self.at + 8)?;
        self.file.write_all_at(&bytes[16..], self.at + 24)?;
        self.at += BYTES as u64;
        Ok(())
    }

    /// Reads a register by `read`.
    pub fn read(&mut self, register: u32, read: impl FnOnce() -> u64) -> io::Result<u64> {
        self.begin(READ, register, 0)?;
        let value = read();
        self.end(value, now())?;
        Ok(value)
    }

    /// Writes `value` to a register by `write`.
    pub fn write(&mut self, register: u32, value: u64, write: impl FnOnce(u64)) -> io::Result<()> {
        self.begin(WRITE, register, value)?;
        write(value);
        self.end(value, now())
    }

    /// Syncs a register; `sync` says whether that was done.
    pub fn sync(&mut self, register: u32, sync: impl FnOnce() -> bool) -> io::Result<()> {
        self.begin(SYNC, register, 0)?;
        let end = if sync() { now() } else { NOTHING_KNOWN };
        self.end(0, end)
    }
}

/// How many operations a process has begun so far.
pub fn begun(path: &Path) -> io::Result<u64> {
    Ok(std::fs::metadata(path)?.len() / BYTES as u64)
}

/// What a process noted. At most the last operation has no end, and those that gave an error.
pub fn read(path: &Path) -> io::Result<Vec<Operation>> {
    let bytes = std::fs::read(path)?;
    bytes.chunks_exact(BYTES).map(operation).collect()
}

fn operation(bytes: &[u8]) -> io::Result<Operation> {
    let word = |index: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
        u64::from_le_bytes(word)
    };
    let (what, value, start, end) = (word(0), word(1), word(2), word(3));
    let act = match what >> 48 {
        READ => Act::Read(value),
        WRITE => Act::Write(value),
        SYNC => Act::Sync,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no file of a recorder")),
    };
    Ok(Operation {
        register: what as u32,
        host: (what >> 32) as u8,
        act,
        start,
        end: Some(end).filter(|end| !matches!(*end, 0 | NOTHING_KNOWN)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read_and_what_has_no_end_has_none() {
        let path = std::env::temp_dir().join(format!("commonhold-linear-{}-{}", std::process::id(), now()));
        let mut recorder = Recorder::create(&path, 3).unwrap();
        recorder.write(7, 99, |value| assert_eq!(value, 99)).unwrap();
        assert_eq!(recorder.read(7, || 98).unwrap(), 98);
        recorder.sync(7, || true).unwrap();
        recorder.sync(7, || false).unwrap();
        recorder.begin(WRITE, 8, 97).unwrap();
        let found = read(&path).unwrap();
        assert_eq!(begun(&path).unwrap(), 5);
        std::fs::remove_file(&path).unwrap();
        let acts: Vec<Act> = found.iter().map(|one| one.act).collect();
        assert_eq!(acts, [Act::Write(99), Act::Read(98), Act::Sync, Act::Sync, Act::Write(97)]);
        assert!(found.iter().all(|one| one.host == 3) && found[4].register == 8);
        assert!(found[..3].iter().all(|one| one.end.is_some_and(|end| end >= one.start)));
        assert!(found[3..].iter().all(|one| one.end.is_none()));
        assert!(found.windows(2).all(|pair| pair[0].start <= pair[1].start));
    }
}
