//! The tree of versions, read: each lookup is a read of one directory.

use super::below::Below;
use super::content::path_in;
use super::{Opened, Store, trust};
use crate::{Error, Result};
use commonhold_image::{Id, Version, Wanted, is_name};
use rustix::fs::{RawDir, readlinkat_raw};
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What leads to content has fewer.
const MOST_LETTERS: usize = 128;
/// Behind the version in the name of a link.
pub(super) const WITHDRAWN: &str = "~";

/// One version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which.
    pub version: Version,
    /// The build ID of its content.
    pub id: Id,
    /// Had only by who names it exactly.
    pub withdrawn: bool,
}

/// A version that was asked for.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// The version.
    pub entry: Entry,
    /// The store that has it.
    pub store: Store,
    /// Its directory, which was looked at.
    root: Arc<OwnedFd>,
}

impl Found {
    /// Name and version.
    pub fn full_name(&self) -> String {
        format!("{}@{}", self.name, self.entry.version)
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.store.path_of(self.entry.id)
    }

    /// Opens it.
    pub fn open(&self) -> Result<Opened> {
        self.store.open_below(&self.root, self.entry.id)
    }
}

/// The version and whether it is withdrawn, from the name of a link.
fn read_name(name: &str) -> Option<(Version, bool)> {
    let plain = name.strip_suffix(WITHDRAWN);
    Some((Version::parse(plain.unwrap_or(name))?, plain.is_some()))
}

fn gone(error: &Error) -> bool {
    matches!(error, Error::File { source, .. } if source.kind() == ErrorKind::NotFound)
}

impl Store {
    /// Where the content of that build ID is, or would be.
    pub fn path_of(&self, id: Id) -> PathBuf {
        path_in(&self.root, id)
    }

    pub(super) fn directory_of(&self, name: &str) -> PathBuf {
        self.names_directory().join(name)
    }

    pub(super) fn link_of(&self, name: &str, version: Version, withdrawn: bool) -> PathBuf {
        self.directory_of(name).join(format!("{version}{}", if withdrawn { WITHDRAWN } else { "" }))
    }

    /// The store's directory, if it is there and trusted.
    #[unsafe(link_section = ".commonhold.include")]
    fn open_root(&self) -> Result<Option<OwnedFd>> {
        match trust::directory(&self.root) {
            Err(error) if gone(&error) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// The directory of all names, or of one, if it is there and trusted.
    fn open_names(&self, root: &OwnedFd, name: Option<&str>) -> Result<Option<OwnedFd>> {
        let names = self.names_directory();
        let opened = match name {
            Some(name) => trust::pass(root, "names", &|| names.clone()).and_then(|()| {
                trust::directory_below(root, &format!("names/{name}"), &|| self.directory_of(name))
            }),
            None => trust::directory_below(root, "names", &|| names.clone()),
        };
        match opened {
            Err(error) if gone(&error) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// The names of a directory's entries.
    fn entries(directory: &OwnedFd, path: &Path) -> Result<Vec<String>> {
        let mut buffer = Vec::with_capacity(4096);
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| Error::file(path)(error.into()))?;
            names.extend(entry.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    /// The names of all images.
    pub fn names(&self) -> Result<Vec<String>> {
        let Some(root) = self.open_root()? else { return Ok(Vec::new()) };
        let Some(directory) = self.open_names(&root, None)? else { return Ok(Vec::new()) };
        let mut names = Store::entries(&directory, &self.names_directory())?;
        names.retain(|name| is_name(name));
        names.sort();
        Ok(names)
    }

    /// All versions of an image, oldest first. What is no version or leads to no content is passed over.
    pub fn versions(&self, name: &str) -> Result<Vec<Entry>> {
        if !is_name(name) {
            return Err(not_a_name(name));
        }
        let Some(root) = self.open_root()? else { return Ok(Vec::new()) };
        let Some(directory) = self.open_names(&root, Some(name))? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for link in Store::entries(&directory, &self.directory_of(name))? {
            let Some((version, withdrawn)) = read_name(&link) else { continue };
            all.extend(read_link(&directory, &link).map(|id| Entry { version, id, withdrawn }));
        }
        all.sort_by_key(|entry| entry.version);
        Ok(all)
    }

    /// The newest version that will do; one that is withdrawn only if it is named exactly.
    pub fn resolve(&self, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        let Some(root) = self.open_root()? else { return Ok(None) };
        let Some(directory) = self.open_names(&root, Some(wanted.name))? else { return Ok(None) };
        let suits = |(version, withdrawn): &(Version, bool)| {
            wanted.accepts(*version) && (!withdrawn || wanted.exact().is_some())
        };
        let links = Store::entries(&directory, &self.directory_of(wanted.name))?;
        let Some((version, withdrawn)) = links.iter().filter_map(|link| read_name(link)).filter(suits).max()
        else {
            return Ok(None);
        };
        let link = self.link_of(wanted.name, version, withdrawn);
        let file = link.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let id = read_link(&directory, file)
            .ok_or_else(|| Error::untrusted(&link, "it does not lead to content of this store"))?;
        let entry = Entry { version, id, withdrawn };
        Ok(Some(Found { name: wanted.name.to_owned(), entry, store: self.clone(), root: root.into() }))
    }

    /// As [`Store::resolve`] for a major version, by its one link: no directory is read. Nothing: there is no such link,
    /// or what it leads to is gone.
    #[unsafe(link_section = ".commonhold.include")]
    pub(crate) fn open_newest(&self, wanted: &Wanted<'_>) -> Result<Option<(Id, Opened)>> {
        let Some(major) = wanted.major().filter(|_| wanted.is_major()) else { return Ok(None) };
        let Some(root) = self.open_root()? else { return Ok(None) };
        let mut names = Below::new();
        names.push("names/").push(wanted.name);
        let passed = trust::pass(&root, "names", &|| self.names_directory())
            .and_then(|()| trust::pass(&root, names.text(), &|| self.directory_of(wanted.name)));
        match passed {
            Err(error) if gone(&error) => return Ok(None),
            outcome => outcome?,
        }
        let Some(id) = read_link(&root, names.push("/").push_number(major).text()) else { return Ok(None) };
        let image = match self.open_below(&root, id) {
            Err(error) if gone(&error) => return Ok(None),
            outcome => outcome?,
        };
        let fits = image.header().name() == wanted.name && wanted.accepts(image.header().version());
        Ok(fits.then_some((id, image)))
    }

    /// As [`Store::resolve`], in the first of these stores that has one.
    pub fn resolve_in(stores: &[Store], text: &str) -> Result<Found> {
        let wanted = Wanted::parse(text).ok_or_else(|| not_a_name(text))?;
        for store in stores {
            if let Some(found) = store.resolve(&wanted)? {
                return Ok(found);
            }
        }
        let places: Vec<String> = stores.iter().map(|store| store.root.display().to_string()).collect();
        Err(Error::Missing(format!(
            "there is no image {text} in {}; `commonhold image list` shows what there is",
            places.join(" or ")
        )))
    }
}

pub(crate) fn not_a_name(text: &str) -> Error {
    Error::Invalid(format!(
        "{text:?} names no image: a name has 1 to 63 letters, digits and . _ + -, and may be followed by @1, @1.2 or @1.2.3"
    ))
}

/// What a link names: only content beside, whatever else it says.
#[unsafe(link_section = ".commonhold.include")]
fn read_link(directory: &OwnedFd, link: &str) -> Option<Id> {
    let mut room = [MaybeUninit::uninit(); MOST_LETTERS];
    let (target, _) = readlinkat_raw(directory, link, &mut room).ok()?;
    Id::parse(std::str::from_utf8(target).ok()?.strip_prefix("../../content/")?)
}
