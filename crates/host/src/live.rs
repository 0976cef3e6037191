//! `live/<id>`: what the next host must know of an object's frames if this one dies.
//!
//! Who writes: the host alone, under the object's lock. Who reads: the next host, at take-over. The file means
//! nothing after a reboot (frames are memory): the header holds the boot's id, and another boot's file is
//! dropped. Layout, in bytes:
//!
//! ```text
//! 0      magic, version, boot id, inode of the frames' memfd, object size
//! 4096   eviction intent: count (0: none), then the victims' page numbers in the order of the pipe
//! 65536  four bitmaps, 512 MiB apart (the largest object's): dirty, writing, spilled, lent; sparse
//! 2 GiB + 65536  two words of 8 bytes a page, sparse. At a home: to which host it is lent (0: nobody has it), and the
//!        stamp of the grant. Elsewhere the latter alone, of the last grant to write that came
//! ```
//!
//! Of an object whose home is elsewhere the header also names the host (its number) under which the frames were granted.
//! The next host has another number, and gives back what is newest in its predecessor's name. If the object's home moves, it
//! also names the home when whose loss was heard of the frames were valid. Of an object that hosts share page by page the
//! header has the loss generation (`cache/losses.rs`), at its home and as it was told elsewhere.
//!
//! What a crash leaves. Bits are set before what they announce can be lost, and cleared after it is stored:
//! `dirty` before a page is protected again; `writing` with dirty's clearing, one word operation each, writing
//! first (a page in both is dirty); `spilled` after the spill file has the page and before the frame is
//! punched. The intent is written before frames go into the pipe, and its count is cleared last; a page of the
//! intent that is resident needs nothing, one that is not has its newest content in the pipe (in the vault).

use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Format, Result};
use commonhold_points as points;
use commonhold_sys::bits::BitFile;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the file begins.
pub(crate) const FORMAT: Format = Format { magic: *b"ChLive\0", version: 2 };
/// What to do about a file of another version: of an object, or of all that have one.
pub(crate) const WAY_OUT: &str = "go back to the version that wrote it, sync, and upgrade then";
const HEADER_BYTES: usize = 4096;
const INTENT_OFFSET: u64 = 4096;
const BITMAPS_OFFSET: u64 = 65536;
const BITMAP_STRIDE: u64 = commonhold_object::limits::OBJECT_PAGES / 8;
const SIZE_OFFSET: u64 = 136;
const HOLDER_OFFSET: u64 = 144;
const LOST_HOME_OFFSET: u64 = 152;
const LOSSES_OFFSET: u64 = 160;
/// Where the keeper finds the inode of the frames.
pub const INODE_OFFSET: u64 = 128;
/// Where the bitmaps are of pages that may be newest here, of an object of another host.
pub const NEWEST: [u64; 2] = [bitmap(Mark::Dirty), bitmap(Mark::Writing)];
/// Where that is of pages that a home has lent.
pub const LENT: u64 = bitmap(Mark::Lent);
const GRANTS_OFFSET: u64 = BITMAPS_OFFSET + 4 * BITMAP_STRIDE;
const SLOT_WORDS: u64 = 2;
const SLOT_BYTES: u64 = SLOT_WORDS * 8;
const SLOT_BITS: u64 = SLOT_BYTES * 8;
/// Most victims of one intent: a pipe holds that many frames without privilege.
pub const INTENT_PAGES: usize = 256;

/// Which bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Newer than what is stored.
    Dirty = 0,
    /// Being stored.
    Writing = 1,
    /// The newest content is in the spill file.
    Spilled = 2,
    /// Another host may have a newer version.
    Lent = 3,
}

const fn bitmap(mark: Mark) -> u64 {
    BITMAPS_OFFSET + mark as u64 * BITMAP_STRIDE
}

/// A page was granted for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// To which host.
    pub to: Option<u32>,
    /// Which the home gives out once; 0: none.
    pub stamp: u64,
}

/// The open file of one object.
pub struct Live {
    path: PathBuf,
    file: Arc<File>,
    marks: [BitFile; 4],
    /// Mapped, as the marks are: a page that goes to and fro between hosts makes no system call for its note.
    grants: BitFile,
}

/// What a file of this boot says.
pub struct Header {
    /// Inode of the memfd that held the frames.
    pub frames_inode: u64,
    /// Size of the object.
    pub size_bytes: u64,
}

impl Live {
    /// Begins anew for an object whose frames are the memfd `frames_inode`.
    pub fn create(path: &Path, boot_id: &str, frames_inode: u64, size_bytes: u64) -> Result<Live> {
        let doing = || format!("creating {}", path.display());
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(path).doing(doing())?;
        let mut header = vec![0u8; HEADER_BYTES];
        header[..8].copy_from_slice(&FORMAT.begin());
        let id = boot_id.as_bytes();
        header[8] = id.len().min(64) as u8;
        header[9..9 + id.len().min(64)].copy_from_slice(&id[..id.len().min(64)]);
        header[INODE_OFFSET as usize..INODE_OFFSET as usize + 8].copy_from_slice(&frames_inode.to_le_bytes());
        header[SIZE_OFFSET as usize..SIZE_OFFSET as usize + 8].copy_from_slice(&size_bytes.to_le_bytes());
        points::pwrite(|| file.write_all_at(&header, 0)).doing(doing())?;
        // The intent's block is written once now, so that later writes find their space allocated.
        points::pwrite(|| {
            file.write_all_at(&vec![0; (BITMAPS_OFFSET - INTENT_OFFSET) as usize], INTENT_OFFSET)
        })
        .doing(doing())?;
        Self::with(path, file, size_bytes)
    }

    /// Opens what the host before left; `None` if there is nothing, or it is of another boot.
    pub fn reopen(path: &Path, boot_id: &str) -> Result<Option<(Live, Header)>> {
        let file = match File::options().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.doing(format!("opening {}", path.display()))?,
        };
        let mut header = vec![0u8; HEADER_BYTES];
        let complete = file.read_exact_at(&mut header, 0).is_ok();
        if !complete || boot_of(&header) != boot_id.as_bytes() {
            return Ok(None);
        }
        // One of another version, and of this boot: the frames that it speaks of are there, and it alone knows them.
        if FORMAT.body(&header, path.display(), WAY_OUT)?.is_none() {
            return Ok(None);
        }
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let found =
            Header { frames_inode: number(INODE_OFFSET as usize), size_bytes: number(SIZE_OFFSET as usize) };
        check_length(path, &file, found.size_bytes)?;
        Ok(Some((Self::with(path, file, found.size_bytes)?, found)))
    }

    fn with(path: &Path, file: File, size_bytes: u64) -> Result<Live> {
        let file = Arc::new(file);
        let (marks, grants) = Self::map(path, &file, size_bytes)?;
        Ok(Live { path: path.to_owned(), file, marks, grants })
    }

    fn map(path: &Path, file: &Arc<File>, size_bytes: u64) -> Result<([BitFile; 4], BitFile)> {
        let pages = commonhold_object::pages_of(size_bytes).max(1);
        let open = |base, bits| BitFile::open(file, base, bits).doing(format!("mapping {}", path.display()));
        let marks = |n: u64| open(BITMAPS_OFFSET + n * BITMAP_STRIDE, pages);
        Ok(([marks(0)?, marks(1)?, marks(2)?, marks(3)?], open(GRANTS_OFFSET, pages * SLOT_BITS)?))
    }

    /// The object has another size. Marks past a smaller one must have been cleared.
    pub fn set_size(&mut self, size_bytes: u64) -> Result<()> {
        let (marks, grants) = Self::map(&self.path, &self.file, size_bytes)?;
        points::pwrite(|| self.file.write_all_at(&size_bytes.to_le_bytes(), SIZE_OFFSET))
            .doing("resizing")?;
        (self.marks, self.grants) = (marks, grants);
        Ok(())
    }

    /// Makes sure that the marks of the pages can be set; an error (disk full) changes nothing.
    pub fn prepare(&mut self, mark: Mark, first: u64, count: u64) -> Result<()> {
        let prepared = self.marks[mark as usize].prepare(first, count);
        prepared.map_err(|error| Error::io(format!("writing {}", self.path.display()), &error))
    }

    /// Sets or clears a mark. Setting needs [`prepare`](Self::prepare) first.
    pub fn mark(&self, mark: Mark, first: u64, count: u64, value: bool) {
        self.marks[mark as usize].write(first, count, value);
    }

    /// Calls `each` with every page that has the mark.
    pub fn each(&self, mark: Mark, each: impl FnMut(u64)) {
        self.marks[mark as usize].each_set(each);
    }

    /// Announces an eviction: the frames of these pages go into the pipe in this order, then are punched.
    pub fn announce(&self, victims: &[u32]) -> Result<()> {
        debug_assert!(victims.len() <= INTENT_PAGES);
        let mut bytes = Vec::with_capacity(8 + victims.len() * 4);
        bytes.extend_from_slice(&(victims.len() as u64).to_le_bytes());
        victims.iter().for_each(|page| bytes.extend_from_slice(&page.to_le_bytes()));
        // Numbers first, then the count that makes them valid.
        points::pwrite(|| self.file.write_all_at(&bytes[8..], INTENT_OFFSET + 8))
            .doing("announcing an eviction")?;
        points::pwrite(|| self.file.write_all_at(&bytes[..8], INTENT_OFFSET)).doing("announcing an eviction")
    }

    /// The eviction is over.
    pub fn evicted(&self) -> Result<()> {
        points::pwrite(|| self.file.write_all_at(&[0; 8], INTENT_OFFSET)).doing("ending an eviction")
    }

    /// The victims of an eviction that was not finished.
    pub fn intent(&self) -> Result<Vec<u32>> {
        let mut bytes = vec![0u8; 8 + INTENT_PAGES * 4];
        self.file.read_exact_at(&mut bytes, INTENT_OFFSET).doing("reading an eviction's intent")?;
        let count =
            u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default()).min(INTENT_PAGES as u64) as usize;
        let page = |i: usize| u32::from_le_bytes(bytes[8 + i * 4..12 + i * 4].try_into().unwrap_or_default());
        Ok((0..count).map(page).collect())
    }

    /// Notes a grant of pages: to which host (none: nobody has their newest version any more), and its stamp. A host that is
    /// killed between the two words has told nobody of the grant: whoever is asked by either knows nothing of it.
    pub fn granted(&mut self, first: u64, count: u64, grant: Grant) -> Result<()> {
        // Past the end there is nothing to be noted: the object has shrunk.
        let end = (first + count).min(self.grants.bits() / SLOT_BITS);
        let prepared = self.grants.prepare(first * SLOT_BITS, end.saturating_sub(first) * SLOT_BITS);
        prepared.doing("noting who has pages")?;
        for page in first..end {
            self.grants.set_word(page * SLOT_WORDS, grant.to.map_or(0, |host| u64::from(host) + 1));
            self.grants.set_word(page * SLOT_WORDS + 1, grant.stamp);
        }
        Ok(())
    }

    /// Takes the space now that noting grants of so many pages will need: a disk that is full later stops no hand-over. Of
    /// very large objects only the beginning has it; they are sparse as a rule.
    pub fn reserve_grants(&self, pages: u64) -> Result<()> {
        const MOST_PAGES: u64 = 1 << 20;
        let bytes = SLOT_BYTES * pages.min(MOST_PAGES);
        if bytes == 0 {
            return Ok(());
        }
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&*self.file, keep, GRANTS_OFFSET, bytes) {
            // A file system that cannot: then the space is found, or not, when it is needed.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            outcome => outcome.map_err(std::io::Error::from).doing("taking space for notes of who has pages"),
        }
    }

    /// The last grant of a page.
    pub fn grant(&self, page: u64) -> Grant {
        let word = |n| self.grants.word_at(page * SLOT_WORDS + n);
        Grant { to: word(0).checked_sub(1).map(|host| host as u32), stamp: word(1) }
    }

    /// Notes under which host the frames are granted from now on.
    pub fn set_holder(&self, host: u32) -> Result<()> {
        let bytes = (u64::from(host) + 1).to_le_bytes();
        points::pwrite(|| self.file.write_all_at(&bytes, HOLDER_OFFSET)).doing("noting whose the frames are")
    }

    /// Under which host the frames were granted; none: under none yet. At the home of an object that moves: which process
    /// of it scheduled last.
    pub fn holder(&self) -> Option<u32> {
        self.host_at(HOLDER_OFFSET)
    }

    /// Notes that the frames are what was valid here when that home was lost.
    pub fn set_lost_home(&self, home: u32) -> Result<()> {
        let bytes = (u64::from(home) + 1).to_le_bytes();
        points::pwrite(|| self.file.write_all_at(&bytes, LOST_HOME_OFFSET)).doing("noting which home is lost")
    }

    /// When which home was lost the frames were valid; none: that is not known of them.
    pub fn lost_home(&self) -> Option<u32> {
        self.host_at(LOST_HOME_OFFSET)
    }

    /// Notes the loss generation of an object that hosts share.
    pub fn set_loss_generation(&self, generation: u64) -> Result<()> {
        points::pwrite(|| self.file.write_all_at(&generation.to_le_bytes(), LOSSES_OFFSET))
            .doing("noting that pages were lost")
    }

    /// That generation; zero: none is known.
    pub fn loss_generation(&self) -> u64 {
        self.word_at(LOSSES_OFFSET).unwrap_or(0)
    }

    fn host_at(&self, offset: u64) -> Option<u32> {
        self.word_at(offset)?.checked_sub(1).map(|host| host as u32)
    }

    fn word_at(&self, offset: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Removes the file.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses a file of this boot and of another version.
pub(crate) fn check(path: &Path, boot_id: &str) -> Result<()> {
    let Ok(file) = File::open(path) else { return Ok(()) }; // whoever needs it says so
    let mut header = [0; HEADER_BYTES];
    let complete = file.read_exact_at(&mut header, 0).is_ok();
    if complete && boot_of(&header) == boot_id.as_bytes() {
        FORMAT.body(&header, path.display(), WAY_OUT)?;
    }
    Ok(())
}

fn boot_of(header: &[u8]) -> &[u8] {
    &header[9..9 + (header[8] as usize).min(64)]
}

/// A file that was shortened would say of pages that are newest elsewhere that they are not.
fn check_length(path: &Path, file: &File, size_bytes: u64) -> Result<()> {
    let length = file.metadata().doing(format!("looking at {}", path.display()))?.len();
    let pages = commonhold_object::pages_of(size_bytes).max(1);
    let lost = |what: &str| Err(Error::new(ErrorKind::Lost, format!("{} {what}", path.display())));
    if pages > commonhold_object::limits::OBJECT_PAGES {
        return lost("is damaged: no object is of the size that it names");
    }
    if length < GRANTS_OFFSET + pages * SLOT_BYTES {
        return lost("was shortened: what it said of the object's pages is gone");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_is_found_again_in_the_same_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("7");
        let mut live = Live::create(&path, "boot-a", 42, 1 << 30).unwrap();
        live.prepare(Mark::Dirty, 100, 50).unwrap();
        live.mark(Mark::Dirty, 100, 50, true);
        live.mark(Mark::Dirty, 110, 10, false);
        live.announce(&[3, 1, 4]).unwrap();
        assert_eq!(live.holder(), None);
        assert_eq!(live.loss_generation(), 0);
        live.set_loss_generation(u64::MAX).unwrap();
        live.set_holder(8).unwrap();
        let grant = |to, stamp| Grant { to, stamp };
        live.granted(7, 1, grant(Some(0), 5)).unwrap();
        live.granted(20, 10, grant(Some(77), u64::MAX)).unwrap();
        live.granted(22, 3, grant(None, 1)).unwrap();
        drop(live);
        let (live, header) = Live::reopen(&path, "boot-a").unwrap().unwrap();
        assert_eq!((header.frames_inode, header.size_bytes), (42, 1 << 30));
        assert_eq!(live.intent().unwrap(), [3, 1, 4]);
        assert_eq!(
            (live.holder(), live.grant(7), live.grant(100)),
            (Some(8), grant(Some(0), 5), grant(None, 0))
        );
        assert_eq!((live.grant(24), live.grant(25)), (grant(None, 1), grant(Some(77), u64::MAX)));
        assert_eq!(live.loss_generation(), u64::MAX);
        live.evicted().unwrap();
        assert!(live.intent().unwrap().is_empty());
        let mut found = Vec::new();
        live.each(Mark::Dirty, |page| found.push(page));
        assert_eq!(found, (100..110).chain(120..150).collect::<Vec<u64>>());
        let whole = std::fs::metadata(&path).unwrap().len();
        let file = File::options().write(true).open(&path).unwrap();
        for length in [GRANTS_OFFSET + 4096, BITMAPS_OFFSET, HEADER_BYTES as u64] {
            file.set_len(length).unwrap();
            assert_eq!(Live::reopen(&path, "boot-a").err().unwrap().kind, ErrorKind::Lost);
        }
        file.set_len(whole).unwrap();
        assert!(Live::reopen(&path, "boot-b").unwrap().is_none());
        file.write_all_at(&[FORMAT.version + 1], 7).unwrap();
        let why = Live::reopen(&path, "boot-a").err().unwrap();
        assert!(why.kind == ErrorKind::Version && why.message.contains("a later version"), "{why}");
        assert!(check(&path, "boot-a").is_err_and(|why| why.message.contains(WAY_OUT)));
        check(&path, "boot-b").unwrap();
        assert!(Live::reopen(&path, "boot-b").unwrap().is_none(), "frames of another boot are gone anyway");
        assert!(Live::reopen(&dir.path().join("8"), "boot-a").unwrap().is_none());
    }

    #[test]
    fn the_file_is_that_of_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("7");
        let mut live = Live::create(&path, "boot", 42, 1 << 20).unwrap();
        live.prepare(Mark::Spilled, 8, 1).unwrap();
        live.mark(Mark::Spilled, 8, 1, true);
        live.announce(&[3, 1, 4]).unwrap();
        live.set_holder(8).unwrap();
        live.set_lost_home(9).unwrap();
        live.set_loss_generation(10).unwrap();
        live.granted(2, 1, Grant { to: Some(5), stamp: 6 }).unwrap();
        drop(live);
        // The parts that have something, each from its place on.
        let parts =
            [(0, 256), (INTENT_OFFSET, 64), (BITMAPS_OFFSET + 2 * BITMAP_STRIDE, 16), (GRANTS_OFFSET, 64)];
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let written = parts.map(|(at, length)| {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, at).unwrap();
            bytes
        });
        let directory = env!("CARGO_MANIFEST_DIR");
        let written = crate::golden::together(&written);
        let kept = crate::golden::check(directory, "live", FORMAT.version.into(), &written);
        for ((at, _), bytes) in parts.iter().zip(crate::golden::apart(&kept)) {
            file.write_all_at(&vec![0; bytes.len()], *at).unwrap();
            file.write_all_at(&bytes, *at).unwrap();
        }
        let (live, header) = Live::reopen(&path, "boot").unwrap().unwrap();
        assert_eq!(
            (header.frames_inode, header.size_bytes, live.intent().unwrap()),
            (42, 1 << 20, vec![3, 1, 4])
        );
        assert_eq!((live.holder(), live.lost_home(), live.loss_generation()), (Some(8), Some(9), 10));
        let mut spilled = Vec::new();
        live.each(Mark::Spilled, |page| spilled.push(page));
        assert_eq!((spilled, live.grant(2)), (vec![8], Grant { to: Some(5), stamp: 6 }));
    }
}
