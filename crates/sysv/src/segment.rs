//! Which object has the bytes of a segment.
//!
//! Its name says of which IPC namespace and of which number the twin is. Names in the root directory belong to who made them, as
//! in /tmp, so an object is believed to be the segment's only if it belongs to who made the twin, or to its owner.

use crate::kernel;
use commonhold::{Access, CreateOptions, Errand, Error, ErrorKind, ObjectInfo, Translation};
use libc::shmid_ds;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Size of a twin. No program asks for it by chance, and one that is not run by `commonhold run` gets EINVAL when it asks for
/// such a segment by its key and its size, rather than memory of its own.
pub const TWIN_BYTES: usize = 3076;

/// How long the process that made a twin may take to make the object.
const BEING_MADE: Duration = Duration::from_secs(2);

/// What a segment's tag begins with; its bytes follow.
const TAG: &str = "system-v ";

/// The object of a segment.
#[derive(Debug)]
pub struct Segment {
    /// The twin's number.
    pub id: i32,
    /// What the host says of the object.
    pub info: ObjectInfo,
    /// Bytes, as `shmget` was asked for.
    pub bytes: usize,
}

/// What the names of this IPC namespace's segments begin with.
fn beginning() -> Result<String, Error> {
    let namespace = std::fs::read_link("/proc/self/ns/ipc")
        .map_err(|error| Error::io("asking for the IPC namespace (is /proc mounted?)", &error))?;
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Ok(format!("/system-v-{digits}-"))
}

/// The name of a segment's object.
pub(crate) fn name(id: i32) -> Result<String, Error> {
    Ok(format!("{}{id}", beginning()?))
}

/// How to create the object of a segment of so many bytes.
pub(crate) fn options(bytes: usize, mode: i32, translation: Translation, reserve: bool) -> CreateOptions {
    CreateOptions {
        size_bytes: bytes as u64,
        mode: mode as u32 & 0o666,
        tag: format!("{TAG}{bytes}"),
        translation,
        reserve: Some(reserve || translation == Translation::SharedTables),
        ..CreateOptions::default()
    }
}

fn bytes_of(info: &ObjectInfo) -> Option<usize> {
    let bytes = info.options.tag.strip_prefix(TAG)?.parse().ok()?;
    (bytes as u64 <= info.options.size_bytes).then_some(bytes)
}

impl Segment {
    fn of(id: i32, info: ObjectInfo, stat: &shmid_ds) -> Option<Segment> {
        let owner = info.ownership.uid;
        let is_its = owner == stat.shm_perm.cuid || owner == stat.shm_perm.uid;
        let bytes = bytes_of(&info).filter(|_| is_its)?;
        Some(Segment { id, info, bytes })
    }

    /// The segment of that number, if it is one of ours. If it is just being made, that is waited for.
    pub fn find(id: i32, stat: &shmid_ds) -> Result<Option<Segment>, Error> {
        if stat.shm_segsz != TWIN_BYTES {
            return Ok(None);
        }
        let name = name(id)?;
        let mut errand = Errand::begin()?;
        let since = Instant::now();
        loop {
            match errand.stat(&name) {
                Ok(info) => return Ok(Segment::of(id, info, stat)),
                Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                Err(_) if since.elapsed() > BEING_MADE || !is_new(stat) || kernel::is_gone(id) => {
                    return Ok(None);
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Bytes of the segment whose twin has that number, which this process may not look at: as far as names tell, which anybody
    /// may have given. None: there is none.
    pub(crate) fn bytes_by_name(id: i32) -> Result<Option<usize>, Error> {
        match Errand::begin()?.stat(&name(id)?) {
            Ok(info) => Ok(bytes_of(&info)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its memory.
    pub(crate) fn open(&self, access: Access) -> Result<OwnedFd, Error> {
        let (info, fd) = Errand::begin()?.open(&name(self.id)?, access)?;
        if info.id != self.info.id {
            return Err(Error::new(ErrorKind::NotFound, format!("segment {} was made anew", self.id)));
        }
        Ok(fd)
    }

    /// Whether it has page tables that all share.
    pub fn shares_tables(&self) -> bool {
        self.info.options.shares_tables()
    }
}

fn is_new(stat: &shmid_ds) -> bool {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    now.abs_diff(stat.shm_ctime) <= BEING_MADE.as_secs() + 1
}

/// Makes the object of a twin that this process made. What an older segment of the same number left goes; what others left
/// goes before a process makes its first, and where there is no room.
pub(crate) fn create(id: i32, options: &CreateOptions) -> Result<(), Error> {
    let name = name(id)?;
    let mut errand = Errand::begin()?;
    static SWEPT: AtomicBool = AtomicBool::new(false);
    if !SWEPT.swap(true, Ordering::Relaxed) {
        sweep(&mut errand)?;
    }
    let mut created = errand.create(&name, options);
    if matches!(&created, Err(error) if error.kind == ErrorKind::Exists) {
        errand.remove(&name)?;
        created = errand.create(&name, options);
    }
    if matches!(&created, Err(error) if matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Quota)) {
        sweep(&mut errand)?;
        created = errand.create(&name, options);
    }
    created.map(drop)
}

/// Removes the object of a segment that is gone. Only its owner may: of others it stays until that one makes room.
pub(crate) fn remove_what_is_left(errand: &mut Errand, id: i32) -> Result<(), Error> {
    match errand.remove(&name(id)?) {
        Err(error) if matches!(error.kind, ErrorKind::Permission | ErrorKind::NotFound) => Ok(()),
        other => other,
    }
}

/// All segments of this IPC namespace that are ours, each with what the kernel says of its twin; with none, it is gone, and
/// what is left of it waits for the next [`sweep`].
pub fn all(errand: &mut Errand) -> Result<Vec<(Segment, Option<shmid_ds>)>, Error> {
    let beginning = beginning()?;
    let mut all = Vec::new();
    for info in errand.list(&beginning)? {
        let id = info.name.as_ref().and_then(|name| name.as_str().strip_prefix(&beginning)?.parse().ok());
        let (Some(id), Some(bytes)) = (id, bytes_of(&info)) else { continue };
        match kernel::stat(id) {
            Ok(stat) => all.extend(Segment::of(id, info, &stat).map(|segment| (segment, Some(stat)))),
            Err(Errno::INVAL | Errno::IDRM) => all.push((Segment { id, info, bytes }, None)),
            Err(_) => {} // it may not be looked at
        }
    }
    Ok(all)
}

/// Removes what is left of segments that are gone: whose last process was killed, or which a program removed that knows
/// nothing of us. Gives how many.
pub(crate) fn sweep(errand: &mut Errand) -> Result<usize, Error> {
    let gone: Vec<_> = all(errand)?.into_iter().filter(|(_, stat)| stat.is_none()).collect();
    let mut removed = 0;
    for (segment, _) in gone {
        removed += usize::from(errand.remove(&name(segment.id)?).is_ok()); // others' are theirs to remove
    }
    Ok(removed)
}
