//! Every file that is mapped, once: many mappings, paths and mount namespaces lead to one inode.

use super::budget::{Budget, Work};
use super::elf::Unfit;
use super::frames::{self, Frames};
use super::mappings::{Backing, Seen};
use super::mounts::{Mounts, is_local};
use super::open::{self, Facts, Miss, Place};
use super::procdir::ProcDir;
use super::unseen::{Gathered, Kind};
use super::watch::{self, Progress};
use super::{File, FileKey, Process};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Processes through which a file may be opened again later, and tries to open it at all.
const WITNESSES: usize = 3;

/// Where a file was seen: enough to find it again while its process lives.
#[derive(Clone, Debug)]
struct Witness {
    pid: u32,
    range: (u64, u64),
    namespace: u64,
    backing: Backing,
}

/// What is kept of a file beside its facts.
#[derive(Debug, Default)]
struct Kept {
    witnesses: Vec<Witness>,
    miss: Option<Miss>,
    /// Why it has no ELF facts.
    unfit: Option<Unfit>,
    frames: Option<Frames>,
    /// It turned out to be this other one.
    is: Option<usize>,
    /// Left out because the budget was spent.
    postponed: bool,
}

/// Where a path led: nothing for what is no regular file.
type Known = (PathBuf, Option<usize>);

/// How files are looked at.
pub struct Rules {
    /// Where procfs is.
    pub proc_root: PathBuf,
    /// How long a file may keep its reader waiting.
    pub deadline: Duration,
    /// Bytes of a page.
    pub page: u64,
    /// Processor time.
    pub budget: Budget,
    /// The reader's mount namespace is called 0, and these are its mounts.
    pub mounts: Arc<Mounts>,
}

/// All files that were seen.
pub struct Files {
    rules: Rules,
    all: Vec<File>,
    kept: Vec<Kept>,
    by_key: HashMap<FileKey, usize>,
    /// What a mapping's device, inode and mount namespace led to. The namespace and the path count because some file
    /// systems give one number to several files.
    known: HashMap<(u64, u64, u64), Vec<Known>>,
    mounts: HashMap<u64, Arc<Mounts>>,
    /// Devices that did not answer: nothing more is asked of them.
    hung: HashSet<u64>,
}

impl Files {
    /// None so far.
    pub fn new(rules: Rules) -> Self {
        let mounts = HashMap::from([(0, Arc::clone(&rules.mounts))]);
        Self {
            rules,
            all: Vec::new(),
            kept: Vec::new(),
            by_key: HashMap::new(),
            known: HashMap::new(),
            mounts,
            hung: HashSet::new(),
        }
    }

    /// The file of a mapping: its index, or none if it is no regular file.
    pub fn of(&mut self, directory: &ProcDir, namespace: u64, seen: &Seen) -> Option<usize> {
        let backing = seen.backing.as_ref()?;
        let place = (backing.device, backing.inode, namespace);
        let known =
            self.known.get(&place).and_then(|known| known.iter().find(|(path, _)| *path == backing.path));
        match known {
            Some((_, None)) => return None,
            Some((_, Some(index))) => {
                let index = self.kept[*index].is.unwrap_or(*index);
                self.met_again(index, directory, namespace, seen, backing);
                return Some(self.kept[index].is.unwrap_or(index));
            }
            None => {}
        }
        let index = self.first(directory, namespace, seen, backing);
        self.known.entry(place).or_default().push((backing.path.clone(), index));
        index
    }

    /// A file that was not met before.
    fn first(
        &mut self,
        directory: &ProcDir,
        namespace: u64,
        seen: &Seen,
        backing: &Backing,
    ) -> Option<usize> {
        let witness = Witness {
            pid: directory.pid,
            range: (seen.mapping.start, seen.mapping.end),
            namespace,
            backing: backing.clone(),
        };
        if !self.rules.budget.allows(Work::Needed) {
            let index = self.unopened(&witness);
            self.kept[index].postponed = true;
            return Some(index);
        }
        match self.look(directory, &witness) {
            Ok(None) => None,
            Ok(Some(facts)) => {
                let index = self.index_of(facts.key);
                self.learn(index, facts, namespace);
                self.kept[index].witnesses.push(witness);
                Some(index)
            }
            // A device that cannot be looked at is no file either.
            Err(_)
                if backing.path.starts_with("/dev")
                    && !backing.path.starts_with("/dev/shm")
                    && !backing.is_nameless() =>
            {
                None
            }
            Err(miss) => {
                let index = self.unopened(&witness);
                self.kept[index].miss = Some(miss);
                let place = self.place(directory, &witness);
                let replaced = self.guarded(&place, |place, _| Ok(open::has_successor(place)));
                self.all[index].replaced = replaced.unwrap_or(false);
                self.kept[index].witnesses.push(witness);
                Some(index)
            }
        }
    }

    /// A file that is known; if it could not be opened before, this process may be another way to it.
    fn met_again(
        &mut self,
        index: usize,
        directory: &ProcDir,
        namespace: u64,
        seen: &Seen,
        backing: &Backing,
    ) {
        let kept = &mut self.kept[index];
        let is_new = kept.witnesses.last().is_none_or(|last| last.pid != directory.pid);
        if !is_new || kept.witnesses.len() >= WITNESSES {
            return;
        }
        let witness = Witness {
            pid: directory.pid,
            range: (seen.mapping.start, seen.mapping.end),
            namespace,
            backing: backing.clone(),
        };
        kept.witnesses.push(witness.clone());
        if kept.miss.is_some_and(|miss| miss != Miss::Hung)
            && let Ok(Some(facts)) = self.look(directory, &witness)
        {
            match self.by_key.get(&facts.key).copied().filter(|other| *other != index) {
                // Found out late: both were one file all along.
                Some(other) => {
                    self.kept[index].is = Some(other);
                    if self.all[other].size.is_none() {
                        self.learn(other, facts, namespace);
                    }
                    if let Some(frames) = self.kept[index].frames.take() {
                        self.add_frames(other, &frames);
                    }
                }
                None => {
                    self.by_key.insert(facts.key, index);
                    self.learn(index, facts, namespace);
                }
            }
        }
    }

    fn index_of(&mut self, key: FileKey) -> usize {
        *self.by_key.entry(key).or_insert_with(|| {
            self.all.push(File { key, ..File::default() });
            self.kept.push(Kept::default());
            self.all.len() - 1
        })
    }

    /// A file of which smaps alone tells.
    fn unopened(&mut self, witness: &Witness) -> usize {
        let backing = &witness.backing;
        let index = self.index_of(FileKey { device: backing.device, inode: backing.inode });
        let mounts = self.mounts.get(&witness.namespace);
        let file = &mut self.all[index];
        if file.path.as_os_str().is_empty() {
            file.path.clone_from(&backing.path);
            file.mount_namespace = witness.namespace;
            file.deleted = backing.deleted && !backing.is_nameless();
            let kind = mounts.and_then(|mounts| mounts.kind(backing.device));
            file.file_system = kind.unwrap_or_default().to_owned();
        }
        index
    }

    fn learn(&mut self, index: usize, facts: Facts, namespace: u64) {
        let (file, kept) = (&mut self.all[index], &mut self.kept[index]);
        // Of several names the first is kept; but while one of them is there, the file is not deleted.
        if file.size.is_none() || (file.deleted && !facts.deleted) {
            file.path = facts.path;
            file.mount_namespace = namespace;
            file.file_system = facts.file_system;
            file.deleted = facts.deleted;
            file.replaced = facts.replaced;
            file.rights = Some(facts.rights);
        }
        file.key = facts.key;
        file.size = Some(facts.size);
        kept.miss = facts.unreadable;
        if facts.unreadable.is_none() {
            kept.unfit = facts.elf.as_ref().err().copied();
            file.elf = facts.elf.ok();
        }
    }

    fn look(&mut self, directory: &ProcDir, witness: &Witness) -> Result<Option<Facts>, Miss> {
        let place = self.place(directory, witness);
        self.guarded(&place, |place, _| open::look(place))
    }

    /// Does something with a file; where its file system may hang, in a thread that is left behind if it does.
    fn guarded<T: Send + 'static>(
        &mut self,
        place: &Place,
        work: impl FnOnce(&Place, &Progress) -> Result<T, Miss> + Send + 'static,
    ) -> Result<T, Miss> {
        let device = place.backing.device;
        if self.hung.contains(&device) {
            return Err(Miss::Hung);
        }
        // What the kernel keeps in memory without a mount anybody sees is as near as can be.
        if place.mounts.kind(device).map_or(place.backing.is_nameless(), is_local) {
            return work(place, &Progress::default());
        }
        let place = place.clone();
        watch::one(self.rules.deadline, move |progress| work(&place, progress)).unwrap_or_else(|| {
            self.hung.insert(device);
            Err(Miss::Hung)
        })
    }

    fn place(&mut self, directory: &ProcDir, witness: &Witness) -> Place {
        let mounts = self.mounts.entry(witness.namespace).or_insert_with(|| {
            Arc::new(directory.bytes("mountinfo").map(|text| Mounts::parse(&text)).unwrap_or_default())
        });
        Place {
            directory: directory.clone(),
            range: witness.range,
            backing: witness.backing.clone(),
            is_readers: witness.namespace == 0,
            mounts: Arc::clone(mounts),
            page: self.rules.page,
        }
    }

    /// Frames of a file that one process maps.
    pub fn add_frames(&mut self, index: usize, more: &[(u32, u64)]) {
        frames::merge(self.kept[index].frames.get_or_insert_default(), more);
    }

    /// A file that lies in a directory; none maps it, or it is known already.
    pub fn add_lying(&mut self, file: File) {
        let index = self.index_of(file.key);
        if self.all[index].size.is_none() {
            self.all[index] = file;
            self.kept[index].miss = None;
        } else if self.all[index].cached_pages.is_none() {
            self.all[index].cached_pages = file.cached_pages;
        }
    }

    /// Opens a file again and does something with it in reach of the deadline.
    pub fn with<T: Send + 'static>(
        &mut self,
        index: usize,
        work: impl FnOnce(std::fs::File, &Progress) -> T + Clone + Send + 'static,
    ) -> Result<T, Miss> {
        let key = self.all[index].key;
        let mut miss = Miss::Gone;
        for witness in self.kept[index].witnesses.clone() {
            let Ok(directory) = ProcDir::open(&self.rules.proc_root, witness.pid) else { continue };
            let place = self.place(&directory, &witness);
            let work = work.clone();
            match self.guarded(&place, move |place, progress| Ok(work(open::open(place, key)?, progress))) {
                Ok(value) => return Ok(value),
                Err(Miss::Hung) => return Err(Miss::Hung),
                Err(other) => miss = other,
            }
        }
        // Nobody maps it, or nobody does any more: by its path, if that is the reader's.
        let file = &self.all[index];
        if file.mount_namespace == 0 && !file.deleted && is_local(&file.file_system) {
            let file = lying(&file.path, key).ok_or(miss)?;
            return Ok(work(file, &Progress::default()));
        }
        Err(miss)
    }

    /// The files.
    pub fn all(&self) -> &[File] {
        &self.all
    }

    /// One of them, to add to it.
    pub fn file_mut(&mut self, index: usize) -> &mut File {
        &mut self.all[index]
    }

    /// Whether this one is really another.
    pub fn is_another(&self, index: usize) -> bool {
        self.kept[index].is.is_some()
    }

    /// Ends the gathering: indices become final, and what could not be seen is told.
    pub fn finish(self, processes: &mut [Process], has_frames: bool, unseen: &mut Gathered) -> Vec<File> {
        let mut place_of: Vec<usize> = Vec::with_capacity(self.all.len());
        let mut files: Vec<File> = Vec::with_capacity(self.all.len());
        let renamed = self.kept.iter().map(|kept| kept.is).collect::<Vec<_>>();
        for (mut file, kept) in self.all.into_iter().zip(self.kept) {
            place_of.push(files.len());
            if kept.is.is_some() {
                continue;
            }
            if let Some(miss) = kept.miss {
                unseen.add(Kind::File, file.path.display().to_string(), miss.why());
            } else if kept.postponed && file.size.is_none() {
                unseen.add(Kind::File, file.path.display().to_string(), self.rules.budget.why());
            } else if let Some(why) = kept.unfit.and_then(Unfit::why) {
                unseen.add(Kind::File, file.path.display().to_string(), why);
            }
            if has_frames {
                file.frames = kept.frames.map(|frames| frames.into_iter().collect());
            }
            files.push(file);
        }
        let last = |index: usize| place_of[renamed[index].unwrap_or(index)];
        for process in processes {
            process.program = process.program.map(last);
            for mapping in &mut process.mappings {
                mapping.file = mapping.file.map(last);
            }
        }
        files
    }
}

/// Opens a file by the reader's own path, if it is still this one.
fn lying(path: &Path, key: FileKey) -> Option<std::fs::File> {
    use std::os::unix::fs::MetadataExt;
    let file = open::read_only(rustix::fs::CWD, path, rustix::fs::OFlags::NOFOLLOW).ok()?;
    let about = file.metadata().ok()?;
    (about.dev() == key.device && about.ino() == key.inode).then_some(file)
}
