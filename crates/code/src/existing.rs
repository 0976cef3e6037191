//! A code image that is in a store.

use crate::format::{
    ENTRIES_AT, ENTRY_BYTES, HEADER_AT, Header, IMPORTS_AT, Import, NAME_BYTES, SLOT_BYTES, VERSION, text,
};
use crate::{Error, Result};
use commonhold_images::format::{Id, Kind, RootKind, Roots, Version};
use commonhold_images::store::{Draft, Found, Opened, Store};
use std::path::{Path, PathBuf};

/// An image, as far as others need it.
#[derive(Clone, Debug)]
pub struct Existing {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Its build ID.
    pub id: Id,
    /// The header of code.
    pub header: Box<Header>,
    /// Its exports by name, with their slots.
    pub exports: Vec<(String, u32)>,
    /// `NAME@X` of the images that it calls.
    pub imports: Vec<String>,
    /// The functions that a program hands over.
    pub table: Vec<String>,
    /// Where the newest of its major version is.
    pub newest: PathBuf,
}

impl Existing {
    /// The image that was found.
    pub fn open(found: &Found) -> Result<Existing> {
        let image = found.store.open(found.entry.id)?;
        Existing::read(image, &found.store, found.entry.id)
    }

    /// All versions of a major version, the oldest first, withdrawn ones too: programs may be linked to them.
    pub fn all(store: &Store, name: &str, major: u32) -> Result<Vec<Existing>> {
        let all = store.versions(name)?;
        let same = all.into_iter().filter(|entry| entry.version.major == major);
        same.map(|entry| Existing::read(store.open(entry.id)?, store, entry.id)).collect()
    }

    pub(crate) fn read(mut image: Opened, store: &Store, id: Id) -> Result<Existing> {
        let damaged = || Error::Images(commonhold_images::Error::Damaged { path: store.path_of(id) });
        let (name, version, kind) = {
            let header = image.header();
            (header.name().to_owned(), header.version(), header.kind())
        };
        if kind != Kind::Code {
            return Err(Error::Invalid(format!("{name}@{version} is a data image, which has no functions")));
        }
        let (roots_at, count) = (image.header().roots_at(), image.header().root_count());
        let roots = image.read(roots_at)?;
        let roots = Roots::new(&roots, count).ok_or_else(damaged)?;
        let functions = roots.iter().filter(|root| root.kind == RootKind::Function);
        let exports = functions.map(|root| (root.name.to_owned(), root.slot)).collect();
        let file_bytes = image.file_bytes;
        let end = HEADER_AT + size_of::<Header>() as u64;
        let raw = image.read(HEADER_AT..end.min(file_bytes).max(HEADER_AT))?;
        if let Some(found) = copy(&raw).and_then(|header| header.other_version()) {
            return Err(Error::Invalid(format!(
                "the code image {name}@{version} has format {found}, and this program reads format {VERSION}: use the \
                 Commonhold that made it, or make it anew with this one; nothing was changed"
            )));
        }
        let header = copy(&raw).filter(|header| header.is_sound(file_bytes)).ok_or_else(damaged)?;
        let mut imports = Vec::new();
        for index in 0..u64::from(header.import_count) {
            let at = IMPORTS_AT + index * size_of::<Import>() as u64;
            let raw = image.read(at..at + size_of::<Import>() as u64)?;
            imports.push(String::from_utf8_lossy(text(&raw[..NAME_BYTES])).into_owned());
        }
        let names_end = header.names_at.saturating_add(header.names_bytes.into());
        if names_end > file_bytes {
            return Err(damaged());
        }
        let names = image.read(header.names_at..names_end)?;
        let names = String::from_utf8(names).map_err(|_| damaged())?;
        let newest = store.newest_link(&name, version.major);
        let table = names.lines().map(str::to_owned).collect();
        Ok(Existing { name, version, id, header, exports, imports, table, newest })
    }

    /// Refuses a draft of code whose first page, which the store reads, and whose header, which programs read, do not say
    /// the same.
    pub(crate) fn check_draft(store: &Store, draft: &Draft, path: &Path) -> Result<()> {
        Existing::check_image(store, store.open_draft(draft)?, draft.id(), path)
    }

    /// The same of an image that is open.
    pub(crate) fn check_image(store: &Store, image: Opened, id: Id, path: &Path) -> Result<()> {
        let page = image.header();
        if page.kind() != Kind::Code {
            return Ok(());
        }
        let (name, Version { major, minor, patch }) = (page.name().to_owned(), page.version());
        let place = (page.base(), page.bytes(), page.reserved());
        let unfit =
            || Error::unfit(path, "its first page and its header do not say the same: build it again");
        let code = Existing::read(image, store, id).map_err(|_| unfit())?;
        let same = code.major_name() == format!("{name}@{major}")
            && code.header.version == [major, minor, patch, 0]
            && (code.header.base, code.header.extent, code.header.reserved) == place
            && code.exports.iter().all(|(_, slot)| *slot < code.header.slots);
        if same { Ok(()) } else { Err(unfit()) }
    }

    /// Names and slots of its exports.
    pub fn slots(&self) -> impl Iterator<Item = (&str, u32)> {
        self.exports.iter().map(|(name, slot)| (name.as_str(), *slot))
    }

    /// `NAME@X`.
    pub fn major_name(&self) -> String {
        String::from_utf8_lossy(text(&self.header.name)).into_owned()
    }

    /// The address of a slot.
    pub fn slot(&self, slot: u32) -> u64 {
        self.header.base + self.header.slots_at + u64::from(slot) * SLOT_BYTES
    }

    /// The address of the entry of a slot.
    pub fn entry(&self, slot: u32) -> u64 {
        self.header.base + ENTRIES_AT + u64::from(slot) * ENTRY_BYTES
    }
}

/// The header at the beginning of these bytes, wherever they lie; none if they are too few.
fn copy(bytes: &[u8]) -> Option<Box<Header>> {
    let raw = bytes.get(..size_of::<Header>())?;
    // SAFETY: so many bytes, and every pattern of bits is a header.
    Some(Box::new(unsafe { raw.as_ptr().cast::<Header>().read_unaligned() }))
}
