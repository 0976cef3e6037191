//! The store of images: content that never changes, found by hash; and a tree of versions, which is a tree of directories.
//!
//! ```text
//! content/HASH                          an image, 0444; its name is the hash of its bytes, which is its build ID
//! names/words/1.2.0 -> ../../content/HASH
//! names/words/1.3.0~ -> …               withdrawn: had only by who names it exactly
//! names/words/1 -> …                    the newest of a major version, for programs that include code
//! names/words/1.slots                   of code: which slots were ever given to which functions
//! lock                                  held by who changes something
//! building/words@1.3.0                  held by who builds that version
//! ```
//! Who writes: one process at a time, under the lock. Content is written beside, synced and renamed, then the link is made
//! beside and renamed: a crash in between leaves content that nobody names, which the next change removes. Who reads takes
//! no lock: a link is there or not, and what it leads to is whole. Names are looked up without any database.

mod below;
mod building;
mod compatible;
mod content;
mod in_use;
mod names;
mod newest;
mod place;
mod publish;
mod slots;
mod trust;

pub use building::Building;
pub use compatible::{Export, breaks};
pub use content::{Draft, Opened, Rest};
pub use in_use::processes_with;
pub(crate) use names::not_a_name;
pub use names::{Entry, Found};
pub use place::{registry_of, users_directory};
pub use publish::{Published, RolledBack};

use crate::place as place_of;
use crate::ranges::{Arch, Owner, Range, Ranges, Region, Wanted};
use crate::{Error, Result};
use commonhold_image::{GROUP_BYTES, Kind, Version, is_name};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A store. Nothing is opened or made before something is asked of it.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    owner: Owner,
}

impl Store {
    /// The store in a directory.
    pub fn at(root: &Path, owner: Owner) -> Store {
        Store { root: root.to_owned(), owner }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whose addresses its images have.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Makes its directories, if they are not there. Others than its owner may not write there.
    pub fn create(&self) -> Result<()> {
        self.refuse_another_above()?;
        if let Some(parent) = self.root.parent().filter(|parent| !parent.exists()) {
            fs::create_dir_all(parent).map_err(Error::file(parent))?;
            fs::set_permissions(parent, Permissions::from_mode(0o711)).map_err(Error::file(parent))?;
        }
        for directory in
            [self.root.clone(), self.content(), self.names_directory(), self.root.join("building")]
        {
            match fs::create_dir(&directory) {
                Ok(()) => fs::set_permissions(&directory, Permissions::from_mode(0o755))
                    .map_err(Error::file(&directory))?,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    trust::directory(&directory)?;
                }
                Err(error) => return Err(Error::file(&directory)(error)),
            }
        }
        Ok(())
    }

    /// Root changes nothing where others could lead it elsewhere.
    fn refuse_another_above(&self) -> Result<()> {
        match place_of::another_above(&self.root) {
            Some(above) => Err(Error::untrusted(&self.root, place_of::why_not(&above))),
            None => Ok(()),
        }
    }

    fn content(&self) -> PathBuf {
        self.root.join("content")
    }

    fn names_directory(&self) -> PathBuf {
        self.root.join("names")
    }

    /// Nobody else changes the store until the result is dropped. Nothing is made in a directory that is not trusted.
    fn lock(&self) -> Result<File> {
        self.refuse_another_above()?;
        let path = self.root.join("lock");
        let file = File::from(trust::lock_below(trust::directory(&self.root)?, "lock", &|| path.clone())?);
        file.lock().map_err(Error::file(&path))?;
        Ok(file)
    }

    /// Its registry of addresses, which it may share with other stores.
    pub fn ranges(&self) -> Result<Ranges> {
        Ranges::open(&registry_of(&self.root)?, self.owner)
    }

    /// Addresses for a version: of a code image those of its major version, with room to grow; a data image has its own.
    /// Asked again, the same. Code that has outgrown them is refused: programs are linked to where it is.
    pub fn reserve(&self, kind: Kind, name: &str, version: Version, bytes: u64) -> Result<Range> {
        self.reserve_in(kind, name, version, bytes, None)
    }

    /// As [`Store::reserve`], where a group is named in the heterogeneous region: with other images of that group it is
    /// never in one process.
    pub fn reserve_in(
        &self,
        kind: Kind,
        name: &str,
        version: Version,
        bytes: u64,
        group: Option<&str>,
    ) -> Result<Range> {
        if !is_name(name) {
            return Err(names::not_a_name(name));
        }
        if let Some(group) = group.filter(|group| !is_name(group) || group.len() > GROUP_BYTES) {
            return Err(Error::Invalid(format!(
                "{group:?} names no group: it has 1 to {GROUP_BYTES} letters, digits and . _ + -, the first no sign"
            )));
        }
        self.create()?;
        let ranges = self.ranges()?;
        let wanted = wanted(kind, name, version, bytes, slide(&ranges)?, group);
        // Code without any version of its major: nobody is linked to these addresses.
        let is_used = self.versions(name)?.iter().any(|entry| entry.version.major == version.major);
        let there = ranges.list()?.into_iter().find(|range| range.name == wanted.name && is_used);
        if let Some(there) = there.as_ref().filter(|there| kind == Kind::Code && there.group != wanted.group)
        {
            return Err(another_group(&format!("{name}@{version}"), group, there));
        }
        if let Some(there) = there.filter(|there| kind == Kind::Code && there.bytes < bytes) {
            return Err(Error::Invalid(format!(
                "{name}@{version} takes {bytes} bytes, and its major version has room for {} at {:#x}: make it the next \
                 major version",
                there.bytes, there.first
            )));
        }
        ranges.assign(&wanted)
    }
}

/// Under which name the registry has the addresses of a version.
pub fn range_name(kind: Kind, name: &str, version: Version) -> String {
    match kind {
        Kind::Data => format!("image:{name}@{version}"),
        Kind::Code => format!("image:{name}@{}", version.major),
    }
}

fn another_group(image: &str, group: Option<&str>, there: &Range) -> Error {
    let of = |group: Option<&str>| group.map_or("no group".to_owned(), |group| format!("the group {group}"));
    Error::Invalid(format!(
        "{image} is of {}, and its addresses are of {}: say the same, or make it the next major version",
        of(group),
        of(there.group.as_deref())
    ))
}

fn wanted(kind: Kind, name: &str, version: Version, bytes: u64, slide: u16, group: Option<&str>) -> Wanted {
    Wanted {
        name: range_name(kind, name, version),
        arch: Arch::here(),
        region: if group.is_some() { Region::Heterogeneous } else { Region::Homogeneous },
        bytes,
        alignment: 1 << 21,
        group: group.map(str::to_owned),
        slide,
    }
}

/// Where new ranges are looked for: beside the others, or, for the first, anywhere: so that they cannot be guessed, and
/// that two registries that know nothing of each other are rarely in each other's way.
fn slide(ranges: &Ranges) -> Result<u16> {
    let all = ranges.list()?;
    let addresses = Region::Homogeneous.addresses(ranges.owner());
    // A registry that was opened as another owner's has ranges elsewhere, too.
    let suits = |range: &&Range| {
        range.region == Region::Homogeneous
            && range.name.starts_with("image:")
            && addresses.contains(&range.first)
    };
    if let Some(first) = all.iter().find(suits) {
        return Ok(((first.first - addresses.start) / ((addresses.end - addresses.start) / 65_536)) as u16);
    }
    // A key that the standard library draws at random for each table.
    use std::hash::{BuildHasher, RandomState};
    Ok((RandomState::new().hash_one(0) % 60_000) as u16)
}
