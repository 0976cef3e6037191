//! What changes a store: publication, rollback, removal. All under its lock.

use super::compatible::breaks;
use super::content::{Draft, MAKING, Opened};
use super::names::{Entry, not_a_name};
use super::{Store, another_group, in_use, range_name, slide, wanted};
use crate::ranges::Range;
use crate::{Error, Result};
use commonhold_image::{Header, Id, Kind, Version, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Drafts of so long ago nobody writes any more.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// What came of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The image's.
    pub name: String,
    /// Which.
    pub version: Version,
    /// Its build ID.
    pub id: Id,
    /// The file.
    pub path: PathBuf,
    /// False: this very version was there already.
    pub is_new: bool,
    /// Whether the file system checks each page of it (fs-verity).
    pub has_verity: bool,
}

/// What came of a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The version that is withdrawn.
    pub withdrawn: Version,
    /// The newest of its major version that is had; none if all are withdrawn or gone.
    pub had: Option<Version>,
    /// False: it was withdrawn already.
    pub is_new: bool,
}

fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(Error::file(path))
}

impl Store {
    /// Publishes a draft under the name and version that it says. What would break others is refused and changes nothing.
    pub fn publish(&self, draft: Draft) -> Result<Published> {
        draft.sync()?;
        let mut image = self.open_draft(&draft)?;
        let _alone = self.lock()?;
        self.sweep()?;
        let (name, version, id) = {
            let header = image.header();
            (header.name().to_owned(), header.version(), draft.id())
        };
        let all = self.versions(&name)?;
        if let Some(there) = all.iter().find(|entry| entry.version == version) {
            if there.id != id {
                return Err(Error::Exists { name: format!("{name}@{version}") });
            }
            let has_verity = self.put(draft, id)?;
            return Ok(Published { path: self.path_of(id), name, version, id, is_new: false, has_verity });
        }
        self.check_imports(image.header())?;
        self.check_neighbours(&name, version, &all, &mut image)?;
        self.check_slots(&all, &mut image)?;
        self.check_range(image.header())?;
        let has_verity = self.put(draft, id)?;
        if image.header().kind() == Kind::Code {
            self.create_directory_of(&name)?;
            self.keep_slots(&name, version, &image.exports()?)?;
        }
        self.link(&name, version, id)?;
        Ok(Published { path: self.path_of(id), name, version, id, is_new: true, has_verity })
    }

    /// An image that others lead into, of this store or the machine's.
    fn open_import(&self, id: Id) -> Option<Opened> {
        [self.clone(), Store::of_machine()].iter().find_map(|store| store.open(id).ok())
    }

    /// All that it leads into is there.
    fn check_imports(&self, header: Header<'_>) -> Result<()> {
        for import in header.imports() {
            let sound = self.open_import(import.id).is_some_and(|found| {
                let there = found.header();
                (there.name(), there.version(), there.base()) == (import.name, import.version, import.base)
            });
            if !sound {
                return Err(Error::Missing(format!(
                    "{}@{} leads into {}@{} with build ID {}, which is not in {}: publish that one first",
                    header.name(),
                    header.version(),
                    import.name,
                    import.version,
                    import.id,
                    self.root.display()
                )));
            }
        }
        self.check_groups(header)
    }

    /// No two of what comes into a process with it are of one group, which is declared never to be in one.
    fn check_groups(&self, header: Header<'_>) -> Result<()> {
        let full_name = |header: Header<'_>| format!("{}@{}", header.name(), header.version());
        let mut groups: BTreeMap<String, String> = BTreeMap::new();
        groups.extend(header.group().map(|group| (group.to_owned(), full_name(header))));
        let mut left: Vec<Id> = header.imports().map(|import| import.id).collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = left.pop() {
            if !seen.insert(id) {
                continue;
            }
            let Some(found) = self.open_import(id) else { continue };
            let there = found.header();
            left.extend(there.imports().map(|import| import.id));
            let Some(group) = there.group() else { continue };
            if let Some(other) = groups.insert(group.to_owned(), full_name(there)) {
                return Err(Error::Invalid(format!(
                    "{} leads into {}, itself or by others, which is of the group {group} as {other} is, and those \
                     are declared never to be in one process: build it with images that lead into one of the \
                     two, or take one of them out of the group",
                    full_name(header),
                    full_name(there),
                )));
            }
        }
        Ok(())
    }

    /// It can stand for the version before it, and the one behind it for it.
    fn check_neighbours(
        &self,
        name: &str,
        version: Version,
        all: &[Entry],
        image: &mut Opened,
    ) -> Result<()> {
        let same = |entry: &&Entry| entry.version.major == version.major && !entry.withdrawn;
        let before = all.iter().filter(same).rfind(|entry| entry.version < version);
        let behind = all.iter().filter(same).find(|entry| entry.version > version);
        let mine = image.exports()?;
        let incompatible = |newer: Version, older: Version, why| Error::Incompatible {
            newer: format!("{name}@{newer}"),
            older: format!("{name}@{older}"),
            why,
            next: all.iter().map(|entry| entry.version.major).max().unwrap_or(0).saturating_add(1),
        };
        // What is withdrawn can come back.
        let withdrawn = |entry: &&Entry| {
            entry.version.major == version.major && entry.withdrawn && entry.version != version
        };
        for other in all.iter().filter(withdrawn) {
            let Ok(there) = self.open(other.id) else { continue };
            let (newer, older) = (version.max(other.version), version.min(other.version));
            if there.header().kind() != image.header().kind() {
                return Err(incompatible(newer, older, "one is data and one is code".into()));
            }
        }
        for other in before.into_iter().chain(behind) {
            let mut there = self.open(other.id)?;
            if there.header().kind() != image.header().kind() {
                return Err(incompatible(version, other.version, "one is data and one is code".into()));
            }
            let theirs = there.exports()?;
            let newer_is_mine = other.version < version;
            let (older, newer) = if newer_is_mine { (&theirs, &mine) } else { (&mine, &theirs) };
            if let Some(why) = breaks(older, newer) {
                let (newer, older) =
                    if newer_is_mine { (version, other.version) } else { (other.version, version) };
                return Err(incompatible(newer, older, why));
            }
        }
        Ok(())
    }

    /// Its addresses are its own: reserved before, or now, if nobody has them.
    fn check_range(&self, header: Header<'_>) -> Result<()> {
        let (kind, name, version) = (header.kind(), header.name(), header.version());
        let ranges = self.ranges()?;
        let (first, end) = (header.base(), header.base() + header.bytes());
        let own = range_name(kind, name, version);
        let has = ranges.list()?.into_iter().find(|range| range.name == own);
        match has {
            Some(range) if range.first <= first && end <= range.end() => {
                if range.group.as_deref() != header.group() {
                    return Err(another_group(&format!("{name}@{version}"), header.group(), &range));
                }
            }
            // The major version moved: who is linked to it would not find it.
            Some(range) if kind == Kind::Code => {
                return Err(Error::Taken {
                    wanted: format!("{name}@{version}"),
                    first,
                    end,
                    holder: range.name,
                });
            }
            _ => {
                // Of code: with the room that its later minor versions have where it was made.
                let bytes = header.reserved();
                let mut wanted = wanted(kind, name, version, bytes, slide(&ranges)?, header.group());
                wanted.alignment = 4096;
                ranges.claim(&wanted, first)?;
            }
        }
        if kind == Kind::Data {
            ranges.trim(&own, header.bytes())?;
        }
        Ok(())
    }

    /// Gives content its name, also in place of what has it and is damaged. Whether the file system checks it.
    fn put(&self, draft: Draft, id: Id) -> Result<bool> {
        let path = self.path_of(id);
        if !self.open(id).and_then(|mut there| there.hash()).is_ok_and(|(hash, _)| hash == id) {
            draft.close()?.persist(&path).map_err(|error| Error::file(&path)(error.error))?;
            sync_directory(&self.content())?;
        }
        Ok(self.open(id)?.has_verity())
    }

    fn create_directory_of(&self, name: &str) -> Result<()> {
        let directory = self.directory_of(name);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::file(&directory)(error));
            }
            Ok(()) => {
                use std::os::unix::fs::PermissionsExt;
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(&directory, mode).map_err(Error::file(&directory))?;
                sync_directory(&self.names_directory())?;
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn link(&self, name: &str, version: Version, id: Id) -> Result<()> {
        self.create_directory_of(name)?;
        let directory = self.directory_of(name);
        let beside = directory.join(format!("{MAKING}{version}"));
        let _ = fs::remove_file(&beside);
        let link = self.link_of(name, version, false);
        std::os::unix::fs::symlink(format!("../../content/{id}"), &beside)
            .and_then(|()| fs::rename(&beside, &link))
            .map_err(Error::file(&link))?;
        self.point_to_newest(name)?;
        sync_directory(&directory)
    }

    fn one(&self, text: &str) -> Result<super::Found> {
        Store::resolve_in(std::slice::from_ref(self), text)
    }

    /// Withdraws a version, which must be named exactly: whoever is not sure whether it was done may ask again, and
    /// no other is withdrawn. From now on another one of its major version is had, and this one only by who names it
    /// exactly. Refused if there is no other.
    pub fn rollback(&self, text: &str) -> Result<RolledBack> {
        let wanted = Wanted::parse(text).ok_or_else(|| not_a_name(text))?;
        let _alone = self.lock()?;
        let found = self.one(text)?;
        let (name, version) = (found.name.as_str(), found.entry.version);
        if wanted.exact().is_none() {
            return Err(Error::Invalid(format!(
                "{text} may be several versions, and asked twice it would withdraw two: name the one to withdraw; the \
                 newest is {name}@{version}"
            )));
        }
        self.point_to_newest(name)?;
        let others = |entry: &&Entry| {
            !entry.withdrawn && entry.version != version && entry.version.major == version.major
        };
        let had = self.versions(name)?.iter().rfind(others).map(|entry| entry.version);
        let is_new = !found.entry.withdrawn;
        if is_new && had.is_none() {
            return Err(Error::Missing(format!(
                "{name}@{version} is the only one of its major version that is had: there is none to go back to"
            )));
        }
        if is_new {
            // First: a program never finds what is withdrawn.
            self.point_without(name, Some(version))?;
            let (from, to) = (self.link_of(name, version, false), self.link_of(name, version, true));
            fs::rename(&from, &to).map_err(Error::file(&from))?;
        }
        sync_directory(&self.directory_of(name))?;
        Ok(RolledBack { withdrawn: version, had, is_new })
    }

    /// Makes a version that was withdrawn one like all others again. Refused if what came since does not keep what it has.
    pub fn restore(&self, text: &str) -> Result<Version> {
        let _alone = self.lock()?;
        let found = self.one(text)?;
        let version = found.entry.version;
        self.point_to_newest(&found.name)?;
        if !found.entry.withdrawn {
            return Err(Error::Invalid(format!(
                "{} is not withdrawn: name a version exactly",
                found.full_name()
            )));
        }
        // What was published since did not have to keep what this one has.
        let all = self.versions(&found.name)?;
        self.check_neighbours(&found.name, version, &all, &mut found.open()?)?;
        let (from, to) =
            (self.link_of(&found.name, version, true), self.link_of(&found.name, version, false));
        fs::rename(&from, &to).map_err(Error::file(&from))?;
        self.point_to_newest(&found.name)?;
        sync_directory(&self.directory_of(&found.name))?;
        Ok(version)
    }

    /// Gives back the range of a version that its arena did not publish: unless it is there, from another arena, or the
    /// range is another's by now.
    pub(crate) fn give_back(&self, name: &str, version: Version, range: &Range) -> Result<()> {
        let _alone = self.lock()?;
        if !self.versions(name)?.iter().any(|entry| entry.version == version) {
            self.ranges()?.release_this(range)?;
        }
        Ok(())
    }

    /// Removes one version, which must be named exactly, and its content, if no other is the same. Refused while a process
    /// maps it or another image leads into it. Gives how many bytes are free now. If there is no such version, but addresses
    /// that somebody reserved for it and never used, those are free then.
    pub fn remove(&self, text: &str) -> Result<u64> {
        let wanted = Wanted::parse(text).ok_or_else(|| not_a_name(text))?;
        let version = wanted.exact().ok_or_else(|| {
            Error::Invalid(format!(
                "{text} may be several versions: name the one to remove, as in words@1.2.3"
            ))
        })?;
        let _alone = self.lock()?;
        let found = match self.one(text) {
            Err(Error::Missing(_)) if self.free_unused(wanted.name, version)? => return Ok(0),
            outcome => outcome?,
        };
        let Entry { id, withdrawn, .. } = found.entry;
        let in_use = |by| Err(Error::InUse { what: found.full_name(), by });
        let processes = in_use::processes_with(id);
        if let Some(first) = processes.first() {
            return in_use(format!("{} processes map it, such as {first}", processes.len()));
        }
        if let Some(user) = self.who_imports(id)? {
            return in_use(format!("{user} leads into it"));
        }
        let kind = self.kind_of(&found)?;
        let link = self.link_of(&found.name, version, withdrawn);
        // First: a program never finds what is not there.
        self.point_without(&found.name, Some(version))?;
        fs::remove_file(&link).map_err(Error::file(&link))?;
        let left = self.versions(&found.name)?;
        if !left.iter().any(|entry| entry.version.major == version.major) {
            self.forget_slots(&found.name, version.major)?;
        }
        if left.is_empty() {
            let _ = fs::remove_dir(self.directory_of(&found.name));
        }
        if kind == Kind::Data || !left.iter().any(|entry| entry.version.major == version.major) {
            self.ranges()?.release(&range_name(kind, &found.name, version))?;
        }
        self.sweep()
    }

    /// Of an image that is damaged: what the registry says.
    fn kind_of(&self, found: &super::Found) -> Result<Kind> {
        if let Ok(image) = found.open() {
            return Ok(image.header().kind());
        }
        let of_code = range_name(Kind::Code, &found.name, found.entry.version);
        let of_data = range_name(Kind::Data, &found.name, found.entry.version);
        let all = self.ranges()?.list()?;
        let has = |name: String| all.iter().any(|range| range.name == name);
        Ok(if !has(of_data) && has(of_code) { Kind::Code } else { Kind::Data })
    }

    /// Gives back what was reserved for a version that is not there: by who was killed, or was refused. Whether there was
    /// anything.
    fn free_unused(&self, name: &str, version: Version) -> Result<bool> {
        if self.is_being_built(name, version) {
            return Err(Error::InUse {
                what: format!("{name}@{version}"),
                by: "a process builds it and has not published it".into(),
            });
        }
        let ranges = self.ranges()?;
        let data = ranges.release(&range_name(Kind::Data, name, version))?;
        let has_major = self.versions(name)?.iter().any(|entry| entry.version.major == version.major);
        let code = !has_major && ranges.release(&range_name(Kind::Code, name, version))?;
        if !has_major {
            self.forget_slots(name, version.major)?;
        }
        Ok(data || code)
    }

    /// Every version, with its name.
    pub fn all(&self) -> Result<Vec<(String, Entry)>> {
        let mut all = Vec::new();
        for name in self.names()? {
            all.extend(self.versions(&name)?.into_iter().map(|entry| (name.clone(), entry)));
        }
        Ok(all)
    }

    /// An image of this store that leads into that one.
    fn who_imports(&self, id: Id) -> Result<Option<String>> {
        let all = self.all()?;
        let user = all.iter().find(|(_, entry)| {
            let imports = |image: Opened| image.header().imports().any(|import| import.id == id);
            self.open(entry.id).is_ok_and(imports)
        });
        Ok(user.map(|(name, entry)| format!("{name}@{}", entry.version)))
    }

    /// Mends what who was killed left: addresses of what is not built any more, the links to the newest versions, then
    /// content that nobody names and nobody maps, and drafts that were given up. Gives the bytes of these.
    fn sweep(&self) -> Result<u64> {
        self.free_abandoned()?;
        for name in self.names()? {
            self.point_to_newest(&name)?;
        }
        let named: BTreeSet<Id> = self.all()?.into_iter().map(|(_, entry)| entry.id).collect();
        let content = self.content();
        let mut bytes = 0;
        for file in fs::read_dir(&content).map_err(Error::file(&content))?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let Ok(metadata) = file.metadata() else { continue };
            let old = || metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > OLD));
            let unused = match Id::parse(&name) {
                Some(id) => !named.contains(&id) && in_use::processes_with(id).is_empty(),
                None => name.starts_with(MAKING) && old(),
            };
            if unused && fs::remove_file(file.path()).is_ok() {
                bytes += metadata.len();
            }
        }
        Ok(bytes)
    }

    /// Computes the hash of each content again. Gives those that are not as published, and how many were looked at.
    pub fn verify(&self) -> Result<(Vec<(String, Error)>, usize)> {
        let all = self.all()?;
        let mut wrong = Vec::new();
        for (name, entry) in &all {
            let outcome = self.open(entry.id).and_then(|mut image| {
                // What was published long ago may have been damaged on its way here.
                let (hash, is_whole) = image.hash()?;
                let same = hash == entry.id
                    && is_whole
                    && (image.header().name(), image.header().version()) == (name, entry.version);
                if same { Ok(()) } else { Err(Error::Damaged { path: image.path() }) }
            });
            wrong.extend(outcome.err().map(|error| (format!("{name}@{}", entry.version), error)));
        }
        Ok((wrong, all.len()))
    }
}
