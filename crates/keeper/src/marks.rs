//! Which pages of a fenced object leave page tables, and which go altogether: the host has marked those that may be the
//! newest version in a file of its state directory. They stay in frames, in no page table. All others grow old, and go:
//! a punch takes some 0.3 s for a GiB, and a copy four times that.

use crate::kept::Key;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: u64 = 4096;
/// Bytes of a bitmap that are read at once: of an object of 2 GiB.
const PART: usize = 64 * 1024;
/// Bytes of a bitmap of the largest object. Who may write to frames can make them longer than any object is.
const MOST_BYTES: u64 = commonhold_object::limits::OBJECT_PAGES / 8;

/// Where the marks of an object are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// The file, below the state directory.
    pub file: String,
    /// Where it says of which memory it speaks, and what it must say: the inode, as eight bytes, least first.
    pub inode_at: u64,
    /// The inode of the frames.
    pub inode: u64,
    /// Where bitmaps begin. A page that is marked in one of them leaves all page tables, and stays in its frame.
    pub bitmaps: Vec<u64>,
    /// What becomes of pages that are not marked.
    pub others: Others,
}

/// What becomes of frames whose pages are not marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Others {
    /// They go: the home of the object has them.
    Go,
    /// They stay, in page tables too: no other host is given them.
    StayMapped,
}

impl Marks {
    /// Under which an object's marks are kept, whose frames are kept as `frames`.
    pub fn key_of(frames: &Key) -> Key {
        Key(format!("{}/marks", frames.0))
    }

    /// For the keeper's store.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// What a host wrote. None: nothing is known, and all pages stay.
    pub fn decode(blob: &[u8]) -> Option<Marks> {
        postcard::from_bytes(blob).ok()
    }

    /// The bytes of `size_bytes` of frames whose pages are marked, in runs. An error: that is not known.
    pub(crate) fn marked(&self, directory: &Path, size_bytes: u64) -> io::Result<Vec<Range<u64>>> {
        let file = File::open(directory.join(&self.file))?;
        let mut inode = [0; 8];
        file.read_exact_at(&mut inode, self.inode_at)?;
        if u64::from_le_bytes(inode) != self.inode {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the marks are those of other frames"));
        }
        let mut runs = Vec::new();
        let written = file.metadata()?.len().saturating_sub(self.bitmaps.iter().min().copied().unwrap_or(0));
        let bytes = size_bytes.div_ceil(PAGE).div_ceil(8).min(MOST_BYTES).min(written);
        let (mut all, mut one) = (vec![0; PART], vec![0; PART]);
        for part in (0..bytes).step_by(PART) {
            all.fill(0);
            for bitmap in &self.bitmaps {
                read_or_zeros(&file, &mut one, bitmap + part)?;
                all.iter_mut().zip(&one).for_each(|(all, one)| *all |= one);
            }
            if all.iter().any(|byte| *byte != 0) {
                add_runs(&mut runs, part * 8, &all);
            }
        }
        Ok(runs)
    }
}

/// Past the end of the file nothing is marked.
fn read_or_zeros(file: &File, buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at) {
            Ok(0) => break,
            Ok(read) => (done, at) = (done + read, at + read as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[done..].fill(0);
    Ok(())
}

/// Adds what a part of a bitmap marks, whose first bit is that of page `first`.
fn add_runs(runs: &mut Vec<Range<u64>>, first: u64, bits: &[u8]) {
    let marked = |bit: &u64| bits[(bit / 8) as usize] & (1 << (bit % 8)) != 0;
    for bit in (0..bits.len() as u64 * 8).filter(marked) {
        let start = (first + bit) * PAGE;
        match runs.last_mut() {
            Some(last) if last.end == start => last.end += PAGE,
            _ => runs.push(start..start + PAGE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(inode: u64) -> Marks {
        Marks { file: "marks".into(), inode_at: 128, inode, bitmaps: vec![4096, 1 << 20], others: Others::Go }
    }

    #[test]
    fn marks_of_all_bitmaps_count_and_of_other_frames_none_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("marks")).unwrap();
        file.write_all_at(&7u64.to_le_bytes(), 128).unwrap();
        file.write_all_at(&[0b110], 4096).unwrap();
        file.write_all_at(&[0b1000, 1], 1 << 20).unwrap();
        file.write_all_at(&[1], (1 << 20) + PART as u64).unwrap();
        let far = PART as u64 * 8 * PAGE;
        let expected = vec![PAGE..4 * PAGE, 8 * PAGE..9 * PAGE, far..far + PAGE];
        assert_eq!(marks(7).marked(directory.path(), far + PAGE).unwrap(), expected);
        assert_eq!(marks(7).marked(directory.path(), far).unwrap(), expected[..2]);
        // What a writer made longer is read no further than the file goes. (Here one bitmap leads into the next.)
        assert_eq!(marks(7).marked(directory.path(), i64::MAX as u64).unwrap()[..3], expected);
        assert!(marks(8).marked(directory.path(), far).is_err());
        let gone = Marks { file: "none".into(), ..marks(7) };
        assert!(gone.marked(directory.path(), far).is_err());
        assert_eq!(Marks::decode(&marks(7).encode()), Some(marks(7)));
        assert_eq!(Marks::decode(b""), None);
    }
}
