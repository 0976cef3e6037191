//! Which object has the bytes of a segment.
//!
//! Its name says of which IPC namespace and of which number the twin is, and who made it. The kernel says who made a twin, and
//! the host lets nobody else give an object that name (`commonhold_object::system_v`), nor change its size.

use crate::errands::{Hidden, ask};
use crate::kernel;
use crate::keys::Link;
use crate::table::{self, Known};
use commonhold::{Access, CreateOptions, Errand, Error, ErrorKind, ObjectInfo, PATIENCE, Translation};
use commonhold_object::system_v::Parts;
use libc::shmid_ds;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Size of a twin. No program asks for it by chance, and one that is not run by `commonhold run` gets EINVAL when it asks for
/// such a segment by its key and its size, rather than memory of its own.
pub const TWIN_BYTES: usize = 3076;

/// How long the process that made a twin may take to make the object, as long as it lives.
const BEING_MADE: Duration = Duration::from_secs(20);

/// What a segment's description begins with; its bytes follow.
const DESCRIPTION: &str = "system-v ";

/// The object of a segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The twin's number.
    pub id: i32,
    /// The object's name.
    name: String,
    /// What the host says of the object.
    pub info: ObjectInfo,
    /// Bytes, as `shmget` was asked for.
    pub bytes: usize,
    /// If all hosts know it by its key: to the object that has the bytes. Then `name` is the link's, and `info` says of the
    /// object, or, if that has no name any more, of the link.
    pub(crate) link: Option<Link>,
}

/// The IPC namespace of this process.
fn namespace() -> Result<u64, Error> {
    commonhold_sys::system_v::namespace().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "/proc does not say which IPC namespace this is: mount it")
    })
}

/// What the host may call a user whom this process calls so: the host may be in the same user namespace, or in the one above.
fn users_of_host(uid: u32) -> Vec<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut lines =
        map.lines().map(|line| line.split_whitespace().map_while(|word| word.parse::<u64>().ok()));
    let above = lines.find_map(|mut line| {
        let (inside, outside, count) = (line.next()?, line.next()?, line.next()?);
        let beyond = u64::from(uid).checked_sub(inside).filter(|beyond| *beyond < count)?;
        u32::try_from(outside + beyond).ok()
    });
    above.into_iter().filter(|above| *above != uid).chain([uid]).collect()
}

/// The names that a segment's object may have, by who made the twin.
fn names(number: i32, maker: u32) -> Result<Vec<String>, Error> {
    let namespace = namespace()?;
    Ok(users_of_host(maker).into_iter().map(|user| Parts { namespace, number, user }.name()).collect())
}

/// How to create the object of a segment of so many bytes.
pub(crate) fn options(bytes: usize, mode: i32, translation: Translation, reserve: bool) -> CreateOptions {
    CreateOptions {
        size_bytes: bytes as u64,
        mode: mode as u32 & 0o666,
        description: format!("{DESCRIPTION}{bytes}"),
        translation,
        reserve: Some(reserve || translation != Translation::Paged),
        ..CreateOptions::default()
    }
}

pub(crate) fn bytes_of(info: &ObjectInfo) -> Option<usize> {
    let bytes = info.options.description.strip_prefix(DESCRIPTION)?.parse().ok()?;
    (bytes as u64 <= info.options.size_bytes).then_some(bytes)
}

/// What an object that has a segment's name is: the bytes of the segment, and whether they are elsewhere.
fn content(info: &ObjectInfo) -> Option<(usize, Option<Link>)> {
    match Link::of(&info.options.description) {
        Some(link) => Some((link.bytes, Some(link))),
        None => Some((bytes_of(info)?, None)),
    }
}

/// Whether a segment of the kernel's is a twin.
pub(crate) fn is_twin(stat: &shmid_ds) -> bool {
    stat.shm_segsz == TWIN_BYTES
}

/// Whether the process that made a twin may be about to make the object: it lives, or cannot be seen, and nobody was ever attached.
pub(crate) fn may_be_in_the_making(stat: &shmid_ds) -> bool {
    was_never_attached(stat) && (stat.shm_cpid <= 0 || lives(stat.shm_cpid))
}

fn lives(pid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    let is_there = unsafe { libc::kill(pid, 0) } == 0
        || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    // One that has ended, and for which its parent has not waited yet, is there, too.
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let has_ended = |text: String| text.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']));
    is_there && !state().is_ok_and(has_ended)
}

pub(crate) fn was_never_attached(stat: &shmid_ds) -> bool {
    stat.shm_nattch == 0 && stat.shm_atime == 0 && stat.shm_dtime == 0
}

/// A segment's memory, which children close; that they do ends first.
pub(crate) type Memory = (Hidden, OwnedFd);

impl Segment {
    /// The segment whose twin has that number and is so; none: there is no such object, and it is not waited for.
    pub(crate) fn look(errand: &mut Errand, id: i32, stat: &shmid_ds) -> Result<Option<Segment>, Error> {
        let mut found = None;
        for name in names(id, stat.shm_perm.cuid)? {
            match errand.stat(&name) {
                Err(error) if error.kind == ErrorKind::NotFound => {}
                other => found = Some((other?, name)),
            }
        }
        let Some((info, name)) = found else { return Ok(None) };
        let Some((bytes, link)) = content(&info) else { return Ok(None) };
        let known = Known { object: info.id, bytes };
        let was_known = *table::lock().known.entry(id).or_insert(known);
        if was_known != known {
            let text = format!("another object has taken the place of segment {id}");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let mut segment = Segment { id, name, info, bytes, link };
        segment.follow(errand, stat)?;
        Ok(Some(segment))
    }

    /// If all hosts know it by its key: learns what its home says of it.
    pub fn follow(&mut self, errand: &mut Errand, twin: &shmid_ds) -> Result<(), Error> {
        let Some(link) = self.link else { return Ok(()) };
        if let Some(info) = link.follow(errand, twin.shm_perm.__key)? {
            self.info = info;
        }
        Ok(())
    }

    /// The same; if it is just being made, that is waited for.
    pub(crate) fn find(id: i32, stat: &shmid_ds) -> Result<Option<Segment>, Error> {
        Segment::find_and(id, stat, |_, _| Ok(())).map(|found| found.map(|(segment, ())| segment))
    }

    /// The same with its memory, and what children close meanwhile; without, if only the host can map it.
    pub(crate) fn open(
        id: i32,
        stat: &shmid_ds,
        access: Access,
    ) -> Result<Option<(Segment, Option<Memory>)>, Error> {
        Segment::find_and(id, stat, |errand, segment| {
            if segment.link.is_some() {
                return Ok(None);
            }
            let (info, fd) = errand.open(&segment.name, access)?;
            if info.id != segment.info.id {
                return Err(Error::new(ErrorKind::NotFound, format!("segment {id} was made anew")));
            }
            Ok(Some((Hidden::new(fd.as_fd()), fd)))
        })
    }

    /// Finds it, and does something with it on the same errand.
    fn find_and<T>(
        id: i32,
        stat: &shmid_ds,
        and: impl Fn(&mut Errand, &Segment) -> Result<T, Error>,
    ) -> Result<Option<(Segment, T)>, Error> {
        let since = Instant::now();
        ask(PATIENCE, |errand| {
            loop {
                // Asked first: it may be made in between.
                let may_come = kernel::stat_any(id).is_ok_and(|stat| may_be_in_the_making(&stat));
                match Segment::look(errand, id, stat)? {
                    None if may_come && since.elapsed() < BEING_MADE => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    None => return Ok(None),
                    Some(segment) => return and(errand, &segment).map(|done| Some((segment, done))),
                }
            }
        })
    }

    /// Whether it has page tables that all share.
    pub fn shares_tables(&self) -> bool {
        self.info.options.shares_tables()
    }

    /// Whether the object that all hosts knew by its key has lost its name.
    pub(crate) fn is_stale(&self) -> bool {
        self.link.is_some_and(|link| link.object() != self.info.uuid)
    }

    /// If all hosts of the cluster know it by its key: whether they still do.
    pub fn is_of_cluster(&self) -> Option<bool> {
        self.link.map(|_| !self.is_stale())
    }

    /// Does something with its object: by name, and only if that is still its own.
    pub(crate) fn change<T>(
        &self,
        what: impl FnOnce(&mut Errand, &str, Option<u128>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        ask(PATIENCE, |errand| match &self.link {
            Some(link) => what(errand, &link.name(), Some(link.object())),
            None => what(errand, &self.name, None),
        })
    }
}

/// Makes the object of a twin that this process made. What an older segment of the same number left goes.
pub(crate) fn create(id: i32, options: &CreateOptions) -> Result<(), Error> {
    let names = names(id, rustix::process::geteuid().as_raw())?;
    ask(PATIENCE, |errand| {
        // Of two names the host gives this user one.
        let mut created = create_as(errand, &names[0], options);
        for name in &names[1..] {
            if matches!(&created, Err(error) if error.kind == ErrorKind::Permission) {
                created = create_as(errand, name, options);
            }
        }
        let info = created?;
        if let Some((bytes, _)) = content(&info) {
            table::lock().known.insert(id, Known { object: info.id, bytes });
        }
        Ok(())
    })
}

fn create_as(errand: &mut Errand, name: &str, options: &CreateOptions) -> Result<ObjectInfo, Error> {
    let mut created = errand.create(name, options);
    if matches!(&created, Err(error) if error.kind == ErrorKind::Exists) {
        errand.remove(name, None)?;
        created = errand.create(name, options);
    }
    if matches!(&created, Err(error) if matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Quota)) {
        sweep(errand, usize::MAX)?;
        created = errand.create(name, options);
    }
    created.map(|(info, _)| info)
}

/// Removes the objects of a segment that is gone: whoever made it. Only its owner may: of others it stays for the host, which looks
/// every few seconds.
pub(crate) fn remove_what_is_left(errand: &mut Errand, id: i32) -> Result<(), Error> {
    for info in own(errand, Some(id))? {
        if let Some(name) = &info.name {
            match errand.remove(name.as_str(), None) {
                Err(error) if matches!(error.kind, ErrorKind::Permission | ErrorKind::NotFound) => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// Objects of this namespace, and of one number in it. What other hosts have of such names is of other machines' kernels.
fn own(errand: &mut Errand, number: Option<i32>) -> Result<Vec<ObjectInfo>, Error> {
    let mut found = errand.list(&Parts::beginning(namespace()?, number))?;
    found.retain(|info| !info.is_elsewhere);
    Ok(found)
}

/// The same on an errand of its own, which nobody waits long for.
pub(crate) fn clear(left: &[i32]) {
    /// A host that is stopped holds up the end of no program.
    const SOON: Duration = Duration::from_secs(1);
    let gone: Vec<_> = left.iter().copied().filter(|id| kernel::is_gone(*id)).collect();
    if gone.is_empty() {
        return;
    }
    table::lock().known.retain(|id, _| !gone.contains(id));
    let _ = ask(SOON, |errand| {
        let begun = Instant::now();
        let mut rest = gone.iter().take_while(|_| begun.elapsed() < SOON);
        rest.try_for_each(|id| remove_what_is_left(errand, *id))
    }); // otherwise the host does
}

/// All segments of this IPC namespace that are ours, each with what the kernel says of its twin; with none, it is gone, and
/// what is left of it waits for the host. No other host is asked.
pub fn all(errand: &mut Errand) -> Result<Vec<(Segment, Option<shmid_ds>)>, Error> {
    let mut all = Vec::new();
    for info in own(errand, None)? {
        let parts = info.name.as_ref().and_then(Parts::of);
        let (Some(parts), Some((bytes, link))) = (parts, content(&info)) else { continue };
        let (id, name) = (parts.number, parts.name());
        let twin = match kernel::stat(id) {
            Ok(stat) if names(id, stat.shm_perm.cuid)?.contains(&name) => Some(stat),
            Err(Errno::INVAL | Errno::IDRM) => None,
            _ => continue, // another's, or it may not be looked at
        };
        all.push((Segment { id, name, info, bytes, link }, twin));
    }
    Ok(all)
}

/// Removes what is left of segments that are gone, as far as this user may; at most so many.
fn sweep(errand: &mut Errand, most: usize) -> Result<(), Error> {
    for (segment, _) in all(errand)?.iter().filter(|(_, twin)| twin.is_none()).take(most) {
        let _ = errand.remove(&segment.name, None); // others' are the host's to remove
    }
    Ok(())
}

/// Makes room before a process makes a segment, now and then: for what was left within the last seconds, before the host looks.
pub(crate) fn make_room() -> Result<(), Error> {
    /// Seconds.
    const APART: u64 = 5;
    const MOST: usize = 16;
    /// Process number, and seconds.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now =
        rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec.unsigned_abs() & 0xffff_ffff;
    let now = u64::from(std::process::id()) << 32 | now;
    let last = LAST.load(Ordering::Relaxed);
    if last != 0 && now.abs_diff(last) < APART {
        return Ok(());
    }
    LAST.store(now, Ordering::Relaxed);
    ask(PATIENCE, |errand| sweep(errand, MOST))
}
