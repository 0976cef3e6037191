//! Bytes of messages that wait where memory has no room for them: in a file that has no name and ends with this
//! process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file, made when it is first needed. What is taken out leaves its blocks to others.
#[derive(Default)]
pub(super) struct Overflow {
    file: Option<File>,
    /// How many messages are in it, and where the last one ends.
    count: usize,
    end: u64,
}

/// Where the bytes of a message are.
pub(super) struct Place {
    at: u64,
    length: usize,
}

impl Overflow {
    /// The bytes wait here from now on, unless the disk of that directory has no room.
    pub fn put(&mut self, directory: &Path, bytes: &[u8]) -> io::Result<Place> {
        crate::spill::check_room(directory, bytes.len() as u64).map_err(io::Error::other)?;
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(nameless(directory)?),
        };
        file.write_all_at(bytes, self.end)?;
        let place = Place { at: self.end, length: bytes.len() };
        self.end += bytes.len() as u64;
        self.count += 1;
        Ok(place)
    }

    /// How many messages wait here.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// They wait no more.
    pub fn take(&mut self, place: Place) -> io::Result<Vec<u8>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; place.length];
        file.read_exact_at(&mut bytes, place.at)?;
        self.count -= 1;
        if self.count == 0 {
            self.end = 0;
            file.set_len(0)?;
        } else {
            // A file system that cannot do it keeps the blocks until the file is empty.
            let _ = commonhold_sys::frames::punch(file, place.at, place.length as u64);
        }
        Ok(bytes)
    }
}

fn nameless(directory: &Path) -> io::Result<File> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("inbox-{}-{number}", std::process::id()));
    // Only what a process left that died between these two lines may have that name.
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
