//! Where copies and records are kept: one directory of the machine, or of a user.
//!
//! ```text
//! ranges                    the registry of addresses; of …/commonhold/rebase the one beside, which images share
//! copies/KEY/libz.so.1.2    one copy; KEY says what it was made from, and it is never changed
//! copies/KEY/.sum           the hash of its bytes
//! copies/KEY/.words         of a library's: which of its relocations are bound, and to what
//! copies/KEY/.of            what it was made of; beside a program also links to all that lies beside the original
//! programs/NAME             the record of one program
//! set                       the programs that are set, one path a line
//! gone                      what copies that were removed had been made of
//! libcommonhold_start.so    what loaders are given; in lib… for each kind of loader its own
//! ```

use crate::beside::{Words, decode, encode};
use crate::copy::Role;
use crate::guard::{is_our_directory, is_our_file, refuse_shared};
use crate::plan::state_of;
use crate::{Error, Origin, Result, label, origin};
use commonhold_images::place::{another_above, why_not};
use commonhold_images::ranges::{Owner, Ranges};
use commonhold_images::store::registry_of;
use commonhold_record::State;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions, TryLockError};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What glibc is told by it.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
/// Room for libraries whose thread-local storage must have its place at the start. It is taken from the stack of each thread:
/// with 8 KiB threads of the smallest stack that there is (16 KiB) still start, with more they do not.
pub const ROOM: &str = "glibc.rtld.optional_static_tls=8192";
const SUM: &str = ".sum";
const WORDS: &str = ".words";
/// How long another may change the store before that is an error.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Programs that are set, and whether each has a copy itself.
pub type Set = BTreeMap<PathBuf, bool>;

/// A store.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    owner: Owner,
}

impl Store {
    /// The store in a directory, made if it is not there. What others could have put there is not used.
    pub fn open(root: &Path, owner: Owner) -> Result<Store> {
        if let Some(above) = another_above(root) {
            return Err(Error::store(root, why_not(&above)));
        }
        for directory in [root.to_owned(), root.join("copies"), root.join("programs")] {
            make_directory(&directory)?;
            refuse_shared(&directory)?;
        }
        for directory in crate::library::directories().map(|directory| root.join(directory)) {
            if directory.exists() {
                refuse_shared(&directory)?;
            }
        }
        let root = root.canonicalize().map_err(Error::file(root))?;
        Ok(Store { root, owner })
    }

    /// Nobody else changes the store until the result is dropped.
    pub fn lock(&self) -> Result<File> {
        self.lock_within(LOCK_PATIENCE)
    }

    /// The same, and another may change it so long before that is an error.
    pub fn lock_within(&self, patience: Duration) -> Result<File> {
        let path = self.root.join("lock");
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
            .map_err(Error::file(&path))?;
        let found = file.metadata().map_err(Error::file(&path))?;
        // Whoever can open a file can hold its lock for ever. An earlier Commonhold let everybody.
        if found.permissions().mode() & 0o777 != 0o600 && found.uid() == rustix::process::geteuid().as_raw() {
            file.set_permissions(Permissions::from_mode(0o600)).map_err(Error::file(&path))?;
        }
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(Error::file(&path)(error)),
                Err(TryLockError::WouldBlock) if since.elapsed() < patience => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    let why = format!(
                        "another process has held its lock for {} s: another `commonhold rebase` that is at work, or one \
                         that opened {} when everybody could; `fuser -v` on that file, run as root, names it",
                        patience.as_secs(),
                        path.display()
                    );
                    return Err(Error::Store { path: self.root.clone(), why });
                }
            }
        }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whose it is.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The variables with which programs have their copies. With an audit library the loader lays out the thread-local
    /// storage of a process before it knows all that needs some: it has to be told to leave room.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut tunables = std::env::var_os(TUNABLES).unwrap_or_default();
        if !tunables.as_encoded_bytes().windows(ROOM.len()).any(|part| part == ROOM.as_bytes()) {
            if !tunables.is_empty() {
                tunables.push(":");
            }
            tunables.push(ROOM);
        }
        vec![("LD_AUDIT", self.library().into()), (TUNABLES, tunables)]
    }

    /// Its registry of addresses.
    pub fn ranges(&self) -> Result<Ranges> {
        Ok(Ranges::open(&registry_of(&self.root)?, self.owner)?)
    }

    /// Where the copy of this key and file name is, or would be.
    pub fn copy(&self, key: &str, file: &OsStr) -> PathBuf {
        self.root.join("copies").join(key).join(file)
    }

    /// The state of that copy, if it is there as it was written, and nobody else can have written it.
    pub fn has(&self, key: &str, file: &OsStr) -> Option<State> {
        let copy = self.copy(key, file);
        let before = state_of(&copy).ok()?;
        let sound = is_as_written(&copy).unwrap_or(false);
        (sound && state_of(&copy).is_ok_and(|after| after == before)).then_some(before)
    }

    /// Notes beside a copy which words it has, if that is not noted.
    pub fn note_words(&self, key: &str, file: &OsStr, words: &[Option<u64>]) -> Result<()> {
        let path = self.copy(key, file).with_file_name(WORDS);
        if path.exists() {
            return Ok(());
        }
        self.replace(&path, &encode(words), None)
    }

    /// What is noted of that. Whoever uses it compares it with the key.
    pub(crate) fn words(&self, key: &str, file: &OsStr) -> Option<Words> {
        fs::read(self.copy(key, file).with_file_name(WORDS)).ok().map(|bytes| decode(&bytes))
    }

    /// Takes away what is in the place of a copy and is none. Who maps it keeps it.
    pub fn discard(&self, key: &str) -> Result<()> {
        let copies = self.root.join("copies");
        let place = copies.join(key);
        if place.symlink_metadata().is_err() {
            return Ok(());
        }
        let aside = tempfile::Builder::new().prefix(".damaged-").tempdir_in(&copies);
        let aside = aside.map_err(Error::file(&copies))?;
        fs::rename(&place, aside.path().join(key)).map_err(Error::file(&place))
    }

    /// Puts a copy there: whole, with its hash and what it was made of, or not at all. It gets the original's label.
    pub fn put(&self, key: &str, file: &OsStr, bytes: &[u8], of: &Origin, role: Role) -> Result<State> {
        let copies = self.root.join("copies");
        let made =
            tempfile::Builder::new().prefix(".making-").tempdir_in(&copies).map_err(Error::file(&copies))?;
        let path = made.path().join(file);
        write(&path, bytes)?;
        if role == Role::Program {
            link_neighbours(&of.path, made.path())?;
        }
        // Where there is no such thing the hash beside it has to do.
        let _ = File::open(&path).and_then(commonhold_images::verity::seal);
        // Behind that: who may not write a file may not seal it.
        set_mode(&path, if role == Role::Program { 0o555 } else { 0o444 })?;
        for (name, bytes) in [(SUM, blake3::hash(bytes).to_hex().as_bytes()), (origin::FILE, &of.encode())] {
            write(&made.path().join(name), bytes)?;
            set_mode(&made.path().join(name), 0o444)?;
        }
        label::keep(&of.path, &path);
        fs::set_permissions(made.path(), Permissions::from_mode(0o755)).map_err(Error::file(made.path()))?;
        let place = copies.join(key);
        match fs::rename(made.path(), &place) {
            // Another process was faster, with the same bytes.
            Err(error) => self.has(key, file).ok_or_else(|| Error::file(&place)(error)),
            Ok(()) => state_of(&place.join(file)),
        }
    }

    /// What is not as it was written, what the file system does not give out for that reason, or what others could have
    /// written: copies, and what loaders are given.
    pub fn damaged(&self) -> Result<Vec<PathBuf>> {
        let mut damaged: Vec<PathBuf> = self.foreign_libraries();
        for (_, path) in self.copies()? {
            match is_as_written(&path) {
                Ok(true) => {}
                Ok(false) => damaged.push(path),
                Err(Error::File { source, .. }) if source.raw_os_error() == Some(libc::EIO) => {
                    damaged.push(path)
                }
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    /// All copies: their keys and paths.
    pub fn copies(&self) -> Result<Vec<(String, PathBuf)>> {
        let copies = self.root.join("copies");
        let mut all = Vec::new();
        for key in self.keys()? {
            let directory = copies.join(&key);
            let origin = Origin::beside(&directory.join(SUM));
            let name = origin.as_ref().and_then(|origin| origin.path.file_name());
            let files = fs::read_dir(&directory).map_err(Error::file(&directory))?.flatten();
            // What lies beside a program is there by links.
            let is_copy = |file: &fs::DirEntry| {
                let plain = file.file_type().is_ok_and(|kind| kind.is_file());
                let beside = [SUM, origin::FILE, WORDS].map(OsStr::new).contains(&&*file.file_name());
                Some(file.file_name().as_os_str()) == name || plain && !beside
            };
            all.extend(files.filter(is_copy).map(|file| (key.clone(), file.path())));
        }
        Ok(all)
    }

    /// The keys of all copies, also of those that are gone.
    pub fn keys(&self) -> Result<BTreeSet<String>> {
        let copies = self.root.join("copies");
        let entries = fs::read_dir(&copies).map_err(Error::file(&copies))?.flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    }

    /// Keys of copies that a process of this machine maps.
    pub fn mapped(&self) -> BTreeSet<String> {
        let copies = self.root.join("copies");
        let mut keys = BTreeSet::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(maps) = fs::read(process.path().join("maps")) else { continue };
            for line in maps.split(|byte| *byte == b'\n') {
                let Some(path) = line.iter().position(|byte| *byte == b'/').map(|at| &line[at..]) else {
                    continue;
                };
                let below = Path::new(OsStr::from_bytes(path)).strip_prefix(&copies);
                let key = below.ok().and_then(|below| below.components().next());
                keys.extend(key.map(|key| key.as_os_str().to_string_lossy().into_owned()));
            }
        }
        keys
    }

    /// The programs that are set, and whether each has a copy itself.
    pub fn programs(&self) -> Result<Set> {
        let path = self.root.join("set");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Set::new()),
            Err(error) => return Err(Error::file(&path)(error)),
        };
        refuse_shared(&path)?;
        let line = |line: &[u8]| {
            let (moved, path) = (line.first()? == &b'x', line.get(2..)?);
            Some((PathBuf::from(OsStr::from_bytes(path)), moved))
        };
        Ok(text.split(|byte| *byte == b'\n').filter_map(line).collect())
    }

    /// From now on these are.
    pub fn set_programs(&self, programs: &Set) -> Result<()> {
        let mut text = Vec::new();
        for (path, moved) in programs {
            text.extend(if *moved { b"x " } else { b"- " });
            text.extend(path.as_os_str().as_bytes());
            text.push(b'\n');
        }
        self.replace(Path::new("set"), &text, None)
    }

    /// Where the record of a program is.
    pub fn record(&self, program: &Path) -> PathBuf {
        let name = commonhold_record::name(program.as_os_str().as_bytes());
        self.root.join("programs").join(String::from_utf8_lossy(&name).as_ref())
    }

    /// The bytes of all records.
    pub fn records(&self) -> Result<Vec<Vec<u8>>> {
        let directory = self.root.join("programs");
        let entries = fs::read_dir(&directory).map_err(Error::file(&directory))?;
        entries.flatten().map(|entry| fs::read(entry.path()).map_err(Error::file(&entry.path()))).collect()
    }

    /// Writes the record of a program.
    pub fn write_record(&self, program: &Path, record: &[u8]) -> Result<()> {
        let path = self.record(program);
        self.replace(path.strip_prefix(&self.root).unwrap_or(&path), record, None)
    }

    /// The program has no record any more.
    pub fn remove_record(&self, program: &Path) -> Result<()> {
        let path = self.record(program);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::file(&path)(error)),
            _ => Ok(()),
        }
    }

    /// Removes the records of programs' copies that are no program's any more.
    pub fn remove_records_of_copies(&self) -> Result<()> {
        let first = |bytes: &[u8]| {
            let record = commonhold_record::Record::new(bytes)?;
            let file = record.files().next()?;
            let path = |raw: &[u8]| PathBuf::from(OsStr::from_bytes(raw.strip_suffix(b"\0").unwrap_or(raw)));
            Some((path(file.path), path(file.copy)))
        };
        let all: Vec<(PathBuf, PathBuf)> = self.records()?.iter().filter_map(|bytes| first(bytes)).collect();
        let copies = self.root.join("copies");
        for (program, _) in all.iter().filter(|(program, _)| program.starts_with(&copies)) {
            if !all.iter().any(|(_, copy)| copy == program) {
                self.remove_record(program)?;
            }
        }
        Ok(())
    }

    /// Makes a file of the store another: whoever reads it sees the one or the other. `like`: whose label it gets.
    pub fn replace(&self, path: &Path, bytes: &[u8], like: Option<&Path>) -> Result<()> {
        let path = self.root.join(path);
        let directory = path.parent().unwrap_or(&self.root);
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(Error::file(directory))?;
        let written = file.write_all(bytes).and_then(|()| file.as_file().sync_all());
        written.map_err(Error::file(&path))?;
        file.as_file().set_permissions(Permissions::from_mode(0o644)).map_err(Error::file(&path))?;
        if let Some(like) = like {
            label::keep(like, file.path());
        }
        file.persist(&path).map_err(|error| Error::file(&path)(error.error))?;
        Ok(())
    }
}

/// A directory that others may read, if it is not there.
pub(crate) fn make_directory(directory: &Path) -> Result<()> {
    if directory.exists() {
        return Ok(());
    }
    fs::create_dir_all(directory).map_err(Error::file(directory))?;
    fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(Error::file(directory))
}

/// Whether a copy has the bytes that were written, nobody else can have written it or what stands beside it, and it is told
/// of what it is one.
fn is_as_written(copy: &Path) -> Result<bool> {
    let (sum, of) = (copy.with_file_name(SUM), copy.with_file_name(origin::FILE));
    let ours = copy.parent().is_some_and(is_our_directory)
        && [copy, &sum, &of].into_iter().all(is_our_file)
        && Origin::beside(copy).is_some();
    if !ours {
        return Ok(false);
    }
    let bytes = fs::read(copy).map_err(Error::file(copy))?;
    Ok(fs::read_to_string(sum).unwrap_or_default() == blake3::hash(&bytes).to_hex().as_str())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create_new(path).map_err(Error::file(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::file(path))
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::file(path))
}

/// A program looks for what belongs to it beside itself: it finds that beside its copy too.
fn link_neighbours(program: &Path, directory: &Path) -> Result<()> {
    let Some(original) = program.parent() else { return Ok(()) };
    for entry in fs::read_dir(original).map_err(Error::file(original))?.flatten() {
        if Some(entry.file_name().as_os_str()) != program.file_name() {
            let link = directory.join(entry.file_name());
            std::os::unix::fs::symlink(entry.path(), &link).map_err(Error::file(&link))?;
        }
    }
    Ok(())
}
