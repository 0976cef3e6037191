//! At a replica: the pages of another host's object in a file of this host, `replicas/<identity>` in the state directory, and
//! beside it which of them may be newer elsewhere. It outlives this process and its keeper, not the machine.

use super::{Answer, Keep, PAGE, busy};
use crate::cluster::registry::Homed;
use crate::cluster::wire::Call;
use crate::cluster::{Cluster, lock};
use crate::newer::{self, Newer};
use crate::spill::check_room;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result, limits};
use commonhold_points as points;
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Pages of one answer, and the most of those that may be newer.
const MOST_GIVEN: usize = 512;
const MOST_NEWER: usize = 4096;

/// News that a host belongs may come so much later than its first word.
const NEWS: Duration = Duration::from_secs(1);
/// How often it is looked for objects that are no more.
const LOOK: Duration = Duration::from_secs(30);
/// So long after its home spoke of it last, what is kept here stays, whatever the registry says. At least two leases.
const UNHEARD: Duration = Duration::from_secs(60);

/// What this host keeps.
#[derive(Default)]
pub(in crate::cluster) struct KeptHere {
    objects: Mutex<HashMap<u128, Arc<Mutex<Option<Kept>>>>>,
}

impl KeptHere {
    /// Does something with what is kept of one object, one at a time. Nothing is remembered of what is not kept.
    fn with<R>(&self, object: u128, what: impl FnOnce(&mut Option<Kept>) -> R) -> R {
        loop {
            let one = lock(&self.objects).entry(object).or_default().clone();
            let mut kept = lock(&one);
            // Else whoever was before has removed it, and the next find another.
            if lock(&self.objects).get(&object).is_some_and(|now| Arc::ptr_eq(now, &one)) {
                let result = what(&mut kept);
                if kept.is_none() {
                    lock(&self.objects).remove(&object);
                }
                return result;
            }
        }
    }
}

/// What it keeps of one object.
struct Kept {
    /// Who may change it.
    home: HostId,
    /// What that home asked for last, and when.
    last: u64,
    asked: Instant,
    size_bytes: u64,
    file: File,
    newer: Newer,
    /// Said by `OnlyNewer` so far.
    only: RoaringBitmap,
}

/// A file of that size in which nothing is kept yet.
pub(super) fn make(path: &Path, object: u128, size_bytes: u64) -> Result<(File, Newer)> {
    let making = || format!("making {}", path.display());
    let file = newer::open_own(path)?;
    newer::make_own(path, object)?; // from here on there is nothing that anybody could take for whole
    file.set_len(0).and_then(|()| file.set_len(size_bytes)).doing(making())?;
    let mut newer = Newer::open(path, object)?;
    newer.kept_by(None);
    Ok((file, newer))
}

/// What is there, if it is whole.
fn find(path: &Path, object: u128, boot: &str) -> Option<(File, Newer)> {
    let mut newer = Newer::open(path, object).ok().filter(|newer| newer.whole_as(boot).is_some())?;
    newer.kept_by(None);
    let file = File::options().read(true).write(true).open(path).ok()?;
    Some((file, newer))
}

fn check_size(size_bytes: u64) -> Result<()> {
    if size_bytes <= limits::OBJECT_BYTES {
        return Ok(());
    }
    let text = format!("{size_bytes} bytes are past the limit of {} for one object", limits::OBJECT_BYTES);
    Err(Error::new(ErrorKind::Protocol, text))
}

/// Those of them that are not past the end.
fn set_of(runs: &[(u32, u32)], size_bytes: u64) -> RoaringBitmap {
    let pages = size_bytes.div_ceil(PAGE as u64);
    let mut set = RoaringBitmap::new();
    for (first, count) in runs {
        let end = (u64::from(*first) + u64::from(*count)).min(pages);
        if end > u64::from(*first) {
            set.insert_range(*first..=(end - 1) as u32);
        }
    }
    set
}

impl Kept {
    /// Kept for that home, whose last request was that one.
    fn new(home: HostId, last: u64, size_bytes: u64, (file, newer): (File, Newer)) -> Kept {
        Kept { home, last, asked: Instant::now(), size_bytes, file, newer, only: RoaringBitmap::new() }
    }

    fn does(&mut self, what: Keep, bytes: &[u8], directory: &Path) -> Result<()> {
        match what {
            Keep::Pages(first) => {
                let at = u64::from(first) * PAGE as u64;
                let length = (self.size_bytes.saturating_sub(at)).min(bytes.len() as u64);
                check_room(directory, length)?;
                points::pwrite(|| self.file.write_all_at(&bytes[..length as usize], at))
                    .doing("keeping pages of another host")
            }
            Keep::Newer { runs, are } => {
                let pages = set_of(&runs, self.size_bytes);
                if are { self.newer.set(&pages) } else { self.newer.clear(&pages) }
            }
            Keep::OnlyNewer { runs, is_last } => {
                self.only |= set_of(&runs, self.size_bytes);
                if is_last {
                    let only = std::mem::take(&mut self.only);
                    let others = self.newer.pages() - &only;
                    self.newer.set(&only)?;
                    self.newer.clear(&others)?;
                }
                Ok(())
            }
            Keep::Resize(size_bytes) => {
                check_size(size_bytes)?;
                self.file.set_len(size_bytes).doing("resizing what is kept of another host")?;
                self.size_bytes = size_bytes;
                Ok(())
            }
            Keep::Begin { .. } | Keep::Forget => Ok(()),
        }
    }
}

impl Cluster {
    /// Where this host has what it keeps of an object.
    pub fn replica_path(&self, object: u128) -> Result<PathBuf> {
        Ok(self.host()?.replica_path(object))
    }

    /// Only an object's home has others keep something, or is told what they keep.
    fn check_is_home(&self, from: HostId, object: u128) -> Result<Homed> {
        self.check_may_change(from)?;
        let homed = self.registry()?.homed(object)?.filter(|homed| homed.home == from);
        homed.ok_or_else(|| {
            Error::new(ErrorKind::Permission, "only an object's home says what is kept of it, and is told")
        })
    }

    /// The home of an object wants something kept here.
    pub(in crate::cluster) fn keep(
        &self,
        from: HostId,
        object: u128,
        number: u64,
        what: Keep,
        bytes: &[u8],
    ) -> Result<Answer> {
        if matches!(what, Keep::Begin { .. }) {
            // It may have joined just now: else it would look for another, or go on without.
            self.check_not_lost(from)?;
            self.check_belongs(from, NEWS)?;
        }
        self.kept_here.with(object, |kept| self.keep_in(kept, from, object, number, what, bytes))
    }

    fn keep_in(
        &self,
        kept: &mut Option<Kept>,
        from: HostId,
        object: u128,
        number: u64,
        what: Keep,
        bytes: &[u8],
    ) -> Result<Answer> {
        if self.member(from).is_none() {
            return Err(Error::new(ErrorKind::Permission, format!("{from} does not belong to the cluster")));
        }
        let same = kept.as_mut().filter(|kept| kept.home == from);
        if let Keep::Begin { size_bytes, anew } = what {
            if same.is_some_and(|same| number <= same.last) {
                return Err(busy("something later was asked for"));
            }
            *kept = self.begin_to_keep(from, object, number, size_bytes, anew)?;
            return Ok(Answer::Keeps(kept.is_some()));
        }
        let unknown = || Error::new(ErrorKind::NotFound, "this host process keeps nothing of it yet");
        let here = same.ok_or_else(unknown)?;
        here.asked = Instant::now();
        if number <= here.last {
            // Asked again because the answer was late; or so late that it counts no more.
            return if number == here.last {
                Ok(Answer::Done)
            } else {
                Err(busy("something later was asked for"))
            };
        }
        if what == Keep::Forget {
            *kept = None;
            self.remove_kept(object);
            return Ok(Answer::Done);
        }
        here.does(what, bytes, &self.host()?.machine.directory)?;
        here.last = number;
        Ok(Answer::Done)
    }

    /// None: there is nothing to go on with.
    fn begin_to_keep(
        &self,
        home: HostId,
        object: u128,
        number: u64,
        size_bytes: u64,
        anew: bool,
    ) -> Result<Option<Kept>> {
        let host = self.host()?;
        check_size(size_bytes)?;
        self.check_is_home(home, object)?;
        if host.object_of(object, false).is_some() {
            return Err(busy("this host was its home, and is about to notice that it is not"));
        }
        let path = host.replica_path(object);
        let found = if anew {
            let (file, newer) = make(&path, object, size_bytes)?;
            newer.note_whole(&host.machine.boot_id, [self.me.host.0, 0])?;
            Some((file, newer))
        } else {
            // The home has everything that it needs of it: from now on it has the home's size.
            find(&path, object, &host.machine.boot_id).filter(|(file, _)| file.set_len(size_bytes).is_ok())
        };
        Ok(found.map(|found| Kept::new(home, number, size_bytes, found)))
    }

    fn remove_kept(&self, object: u128) {
        if let Ok(path) = self.replica_path(object) {
            newer::remove_own(&path);
            let _ = std::fs::remove_file(path);
        }
    }

    /// From now on nobody changes what is kept here: this host is the home.
    pub(super) fn keeps_no_more(&self, object: u128) {
        self.kept_here.with(object, |kept| *kept = None);
    }

    /// Whether what is at that path is all that the next home needs.
    pub(super) fn has_all(&self, path: &Path, object: u128, homed: &Homed) -> bool {
        let Ok(host) = self.host() else { return false };
        let newer = Newer::open(path, object).ok();
        let numbers = newer.and_then(|newer| newer.whole_as(&host.machine.boot_id)).unwrap_or_default();
        // Whoever scheduled last has what it granted; and nothing was relied on that these hosts had not.
        let counts =
            |number: u32| homed.served.0 == number || homed.replicas.iter().any(|host| host.0 == number);
        numbers.into_iter().any(|number| number != 0 && counts(number))
    }

    /// The next home asks what is kept here. From then on no other home changes it.
    pub(in crate::cluster) fn kept(
        &self,
        from: HostId,
        object: u128,
        from_page: u32,
    ) -> Result<(Answer, Vec<u8>)> {
        self.kept_here.with(object, |kept| self.kept_in(kept, from, object, from_page))
    }

    fn kept_in(
        &self,
        kept: &mut Option<Kept>,
        from: HostId,
        object: u128,
        from_page: u32,
    ) -> Result<(Answer, Vec<u8>)> {
        if kept.as_ref().is_none_or(|kept| kept.home != from) || from_page == 0 {
            let homed = self.check_is_home(from, object)?;
            let host = self.host()?;
            // Where it was the home itself the file may be another.
            let own = host.object_of(object, false).and_then(|home| home.record().file.clone());
            let path = own.map_or_else(|| host.replica_path(object), |file| file.path);
            let nothing = || Error::new(ErrorKind::NotFound, "this host does not have all of it");
            if !self.has_all(&path, object, &homed) {
                return Err(nothing());
            }
            let found = find(&path, object, &host.machine.boot_id).ok_or_else(nothing)?;
            // As large as it is here: the next home knows how much of that is the object, and only its `Begin` cuts.
            let size_bytes = found.0.metadata().doing("looking at what is kept")?.len();
            *kept = Some(Kept::new(from, 0, size_bytes, found));
        }
        kept.as_ref().map_or_else(|| Err(busy("it begins anew")), |kept| kept.give(from_page))
    }
}

impl Kept {
    fn give(&self, from_page: u32) -> Result<(Answer, Vec<u8>)> {
        let looking = || "reading what is kept of another host".to_owned();
        let all = self.size_bytes.div_ceil(PAGE as u64);
        let (mut pages, mut bytes) = (Vec::new(), Vec::new());
        let mut page = u64::from(from_page);
        while page < all && pages.len() < MOST_GIVEN {
            let data = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(page * PAGE as u64));
            page = match data {
                Ok(at) => at / PAGE as u64,
                Err(rustix::io::Errno::NXIO) => all,
                Err(error) => return Err(Error::io(looking(), &error.into())),
            };
            if page < all {
                let at = bytes.len();
                bytes.resize(at + PAGE, 0);
                let length = (self.size_bytes - page * PAGE as u64).min(PAGE as u64) as usize;
                self.file.read_exact_at(&mut bytes[at..at + length], page * PAGE as u64).doing(looking())?;
                pages.push(page as u32);
                page += 1;
            }
        }
        let mut newer: Vec<u32> =
            self.newer.pages().range(from_page..).take_while(|newer| u64::from(*newer) < page).collect();
        if newer.len() > MOST_NEWER {
            page = u64::from(newer[MOST_NEWER]);
            newer.truncate(MOST_NEWER);
            let given = pages.iter().take_while(|given| u64::from(**given) < page).count();
            pages.truncate(given);
            bytes.truncate(given * PAGE);
        }
        let next = (page < all).then_some(page as u32);
        Ok((Answer::Kept { pages, newer, next }, bytes))
    }
}

impl Cluster {
    /// What this host keeps of objects that are no more goes, every now and then.
    pub(in crate::cluster) fn look_after_what_is_kept(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        let looking = move || {
            while let Some(this) = this.upgrade() {
                if this.lease.is_fenced() {
                    return;
                }
                let _ = this.remove_what_is_no_more(); // without the registry nothing is known to be
                drop(this);
                std::thread::sleep(LOOK);
            }
        };
        if points::thread(|| {
            std::thread::Builder::new().name("kept".into()).stack_size(256 << 10).spawn(looking)
        })
        .is_err()
        {
            std::process::abort(); // the keeper starts the next, which tries again
        }
    }

    fn remove_what_is_no_more(&self) -> Result<()> {
        let host = self.host()?;
        let directory = host.machine.directory.join("replicas");
        for entry in std::fs::read_dir(&directory).doing("looking at what is kept")?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Also what lies beside a file that is gone already.
            let name = name.strip_suffix(".commonhold").unwrap_or(&name);
            let Ok(object) = u128::from_str_radix(name, 16) else { continue };
            self.kept_here.with(object, |kept| {
                let removed = self.is_no_more(object, kept.as_ref())?;
                if removed {
                    *kept = None;
                    self.remove_kept(object);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether nobody could need what is kept here: the object is no more, or others keep it.
    fn is_no_more(&self, object: u128, kept: Option<&Kept>) -> Result<bool> {
        let host = self.host()?;
        // A home that is at it tells the registry when it is done, within a lease.
        let lately = UNHEARD.max(self.lease_length() * 2);
        if host.object_of(object, false).is_some() || kept.is_some_and(|kept| kept.asked.elapsed() < lately) {
            return Ok(false);
        }
        let Some(homed) = self.registry()?.homed(object)? else { return Ok(true) };
        Ok(homed.home != self.me.host && !self.has_all(&host.replica_path(object), object, &homed))
    }

    /// What another host keeps here or asks for, and the bytes of the answer.
    pub(in crate::cluster) fn replica_asked(
        &self,
        from: HostId,
        call: Call,
        bytes: &[u8],
    ) -> Result<(Answer, Vec<u8>)> {
        self.check_not_lost(from)?;
        match call {
            Call::Keep { object, number, what } => {
                self.keep(from, object, number, what, bytes).map(|answer| (answer, Vec::new()))
            }
            Call::Kept { object, from_page } => self.kept(from, object, from_page),
            _ => Err(super::unexpected()),
        }
    }
}
