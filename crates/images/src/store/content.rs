//! Content: written beside, whole and synced before it has its name; opened only if nobody else could have written it.

use super::below::Below;
use super::compatible::Export;
use super::{Store, trust};
use crate::place::ordinary_file;
use crate::verity;
use crate::{Error, Result};
use commonhold_image::{Fault, Header, Id, PAGE_BYTES, Roots};
use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// The names of drafts begin so.
pub(super) const MAKING: &str = ".making-";

/// The sum of what follows the first page of an image, which the page has in it: what was damaged on its way from
/// machine to machine is not published.
#[derive(Default)]
pub struct Rest(blake3::Hasher);

impl Rest {
    /// The next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all there were.
    pub fn sum(&self) -> u64 {
        let mut first = [0; 8];
        self.0.finalize_xof().fill(&mut first);
        u64::from_le_bytes(first)
    }
}

/// Hash and [`Rest`] of an image of which bytes come one behind the other.
#[derive(Default)]
struct Sums {
    all: blake3::Hasher,
    rest: Rest,
    bytes: usize,
}

impl Sums {
    fn add(&mut self, bytes: &[u8]) {
        self.all.update(bytes);
        let of_first_page = PAGE_BYTES.saturating_sub(self.bytes).min(bytes.len());
        self.rest.add(&bytes[of_first_page..]);
        self.bytes += bytes.len();
    }

    fn id(&self) -> Id {
        Id(*self.all.finalize().as_bytes())
    }
}

/// An image that is being written, from its first byte to its last.
pub struct Draft {
    pub(super) file: NamedTempFile,
    sums: Sums,
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sums.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Draft {
    /// The build ID of what was written.
    pub fn id(&self) -> Id {
        self.sums.id()
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Synced: what takes long is done before anything is locked.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.as_file().sync_all().map_err(Error::file(self.file.path()))
    }

    /// Closed to changes, for good.
    pub(super) fn close(self) -> Result<TempPath> {
        let path = self.file.into_temp_path();
        // The mode comes last: who may not write a file may not seal it either. `has_verity` says whether it is.
        let closed = File::open(&path).and_then(|file| {
            let _ = verity::seal(&file);
            file.set_permissions(Permissions::from_mode(0o444))?;
            file.sync_all()
        });
        closed.map_err(Error::file(&path))?;
        Ok(path)
    }
}

/// Content that is open.
pub struct Opened {
    /// The file, for reading.
    pub file: File,
    /// Its first page.
    pub page: Box<[u8; PAGE_BYTES]>,
    /// How long it is.
    pub file_bytes: u64,
    place: Place,
}

/// Where it is: only what is said of it when something is wrong puts the path together.
enum Place {
    Content(Box<Path>, Id),
    Draft(PathBuf),
}

impl Place {
    fn path(&self) -> PathBuf {
        match self {
            Place::Content(root, id) => path_in(root, *id),
            Place::Draft(path) => path.clone(),
        }
    }
}

/// Where the content of that build ID is in a store.
pub(super) fn path_in(root: &Path, id: Id) -> PathBuf {
    root.join("content").join(id.to_string())
}

impl Opened {
    /// An image in an open file that is in no store, of so many bytes.
    #[cfg(feature = "fuzzing")]
    pub fn of_file(file: File, file_bytes: u64) -> Result<Opened> {
        opened(file, file_bytes, Place::Draft(PathBuf::from("image")))
    }

    /// Where.
    pub fn path(&self) -> PathBuf {
        self.place.path()
    }

    /// What the first page says: it was checked when this was opened.
    pub fn header(&self) -> Header<'_> {
        Header::accepted(&self.page)
    }

    /// Whether the file system checks each page.
    pub fn has_verity(&self) -> bool {
        verity::is_sealed(&self.file)
    }

    /// Bytes of the file.
    pub fn read(&mut self, at: std::ops::Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (at.end - at.start) as usize];
        self.file
            .seek(SeekFrom::Start(at.start))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|error| Error::file(&self.path())(error))?;
        Ok(bytes)
    }

    /// All its roots, or exports.
    pub fn exports(&mut self) -> Result<Vec<Export>> {
        let (at, count) = (self.header().roots_at(), self.header().root_count());
        let bytes = self.read(at)?;
        let damaged = || Error::Damaged { path: self.path() };
        Ok(Export::all(Roots::new(&bytes, count).ok_or_else(damaged)?))
    }

    /// The hash of all of it as it is now, and whether what follows the first page is what that says.
    pub fn hash(&mut self) -> Result<(Id, bool)> {
        let path = self.path();
        let wrong = Error::file(&path);
        let mut sums = Sums::default();
        let mut buffer = vec![0; 1 << 16];
        let read = self.file.rewind().and_then(|()| {
            loop {
                match self.file.read(&mut buffer)? {
                    0 => break Ok(()),
                    bytes => sums.add(&buffer[..bytes]),
                }
            }
        });
        read.map_err(wrong)?;
        Ok((sums.id(), sums.rest.sum() == self.header().rest()))
    }
}

/// The first page and what else is known of an open file, which must be an image for this machine.
#[unsafe(link_section = ".commonhold.include")]
fn opened(file: File, file_bytes: u64, place: Place) -> Result<Opened> {
    let mut page = Box::new([0; PAGE_BYTES]);
    let read = rustix::io::pread(&file, &mut page[..], 0)
        .map_err(|error| Error::file(&place.path())(error.into()))?;
    let unfit = |fault| Error::unfit(&place.path())(fault);
    Header::new(&page[..read]).and_then(|header| header.check_here(file_bytes)).map_err(unfit)?;
    Ok(Opened { file, page, file_bytes, place })
}

impl Store {
    /// Begins an image. It is nowhere to be found before it is published.
    pub fn draft(&self) -> Result<Draft> {
        self.create()?;
        let content = self.content();
        let file =
            tempfile::Builder::new().prefix(MAKING).tempfile_in(&content).map_err(Error::file(&content))?;
        Ok(Draft { file, sums: Sums::default() })
    }

    /// A draft with the bytes of a file.
    pub fn draft_of(&self, path: &Path) -> Result<Draft> {
        let from = ordinary_file(path).map_err(Error::file(path))?;
        let bytes = from.metadata().map_err(Error::file(path))?.len();
        // Before anything is copied: what is no image, or longer than it says, is not.
        let image = opened(from, bytes, Place::Draft(path.to_owned()))?;
        let mut draft = self.draft()?;
        io::copy(&mut image.file.take(bytes), &mut draft).map_err(Error::file(draft.path()))?;
        Ok(draft)
    }

    /// Opens the content of a build ID. Its hash is not computed: that takes as long as reading it.
    pub fn open(&self, id: Id) -> Result<Opened> {
        self.open_below(&trust::directory(&self.root)?, id)
    }

    /// As [`Store::open`], of the store's directory that is open.
    #[unsafe(link_section = ".commonhold.include")]
    pub(super) fn open_below(&self, root: &OwnedFd, id: Id) -> Result<Opened> {
        trust::pass(root, "content", &|| self.content())?;
        let digits = id.digits();
        let mut below = Below::new();
        below.push("content/").push(std::str::from_utf8(&digits).unwrap_or_default());
        let (file, bytes) = trust::file_below(root, below.text(), &|| self.path_of(id))?;
        opened(file.into(), bytes, Place::Content(self.root.as_path().into(), id))
    }

    /// What was written, which is to be as its first page says.
    pub fn open_draft(&self, draft: &Draft) -> Result<Opened> {
        let path = draft.path().to_owned();
        let file = File::open(&path).map_err(Error::file(&path))?;
        let bytes = file.metadata().map_err(Error::file(&path))?.len();
        let image = opened(file, bytes, Place::Draft(path))?;
        if draft.sums.rest.sum() != image.header().rest() {
            return Err(Error::Unfit { path: image.path(), fault: Fault::DamagedBehind });
        }
        Ok(image)
    }
}
