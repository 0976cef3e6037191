//! Segments that all hosts of a cluster know by their keys.
//!
//! The bytes are in a strict object, which has the key's name and can be opened on every host. Each machine has a twin of its
//! own for it, and beside the twin, where other segments have their bytes, a *link*: an object of one byte, whose description says which
//! object the twin is for. The host gives its name to nobody but the twin's maker. So whoever finds a twin finds the object that
//! it was made for, or none: never another one of the same key.

use crate::get::refused;
use crate::segment::{self, Segment};
use crate::{Errno, TWIN_BYTES, Wishes, errands, kernel};
use commonhold::{
    Access, CreateOptions, Errand, Error, ErrorKind, Host, MapFlags, MapOptions, Mapping, ObjectInfo, OnLoss,
    Ownership, PATIENCE, PagerKind, Protection,
};
use commonhold_object::Credentials;
use commonhold_object::system_v::{KEY_BEGINNING, key_name, key_of};
use libc::{IPC_CREAT, IPC_EXCL, IPC_SET, SHM_NORESERVE, c_int};
use std::time::{Duration, Instant};

/// What a link's description begins with.
const DESCRIPTION: &str = "system-v-key ";

/// What a twin is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    key: i32,
    /// Its identity among all hosts.
    object: u128,
    pub(crate) bytes: usize,
}

impl Link {
    /// What a description says.
    pub(crate) fn of(description: &str) -> Option<Link> {
        let mut words = description.strip_prefix(DESCRIPTION)?.split(' ');
        let key = u32::from_str_radix(words.next()?, 16).ok()?.cast_signed();
        let object = u128::from_str_radix(words.next()?, 16).ok()?;
        let bytes = words.next()?.parse().ok()?;
        words.next().is_none().then_some(Link { key, object, bytes })
    }

    /// To the object of a key, if it is a segment.
    fn to(key: i32, info: &ObjectInfo) -> Result<Link, Error> {
        let is_one = info.options.coherence.is_strict() && info.options.pager == PagerKind::Anonymous;
        let is_one = is_one && info.options.fixed.is_none();
        let bytes = segment::bytes_of(info).filter(|_| is_one).ok_or_else(|| {
            let text = format!("{} was not made by shmget: remove it, or take another key", key_name(key));
            Error::new(ErrorKind::Permission, text)
        })?;
        Ok(Link { key, object: info.uuid, bytes })
    }

    /// How to make it.
    fn options(&self) -> CreateOptions {
        let description = format!("{DESCRIPTION}{:08x} {:032x} {}", self.key, self.object, self.bytes);
        CreateOptions { size_bytes: 1, description, reserve: Some(false), ..CreateOptions::default() }
    }

    /// What is known of its object; none: it has lost its name, or the twin has another key than the link says.
    pub(crate) fn follow(&self, errand: &mut Errand, twin_key: i32) -> Result<Option<ObjectInfo>, Error> {
        // A twin that was removed has none any more.
        if ![0, self.key].contains(&twin_key) {
            return Ok(None);
        }
        let found = named(errand, self.key)?;
        Ok(found.filter(|info| Link::to(self.key, info).is_ok_and(|link| link == *self)))
    }

    /// The name of its object.
    pub(crate) fn name(&self) -> String {
        key_name(self.key)
    }

    /// The object's identity.
    pub(crate) fn object(&self) -> u128 {
        self.object
    }

    /// Maps its object, whose faults the host serves: as long as it is mapped the process has a connection to the host.
    pub(crate) fn map(&self, access: Access, at: Option<usize>) -> Result<Mapping, Error> {
        let directory = Wishes::of_this_process().host.as_deref();
        let directory = directory.ok_or_else(|| Error::invalid("COMMONHOLD_HOST names no host"))?;
        let host = Host::connect_to(directory)?;
        let object = patiently(|| host.open(&self.name(), access))?;
        if object.uuid() != self.object {
            return Err(Error::new(ErrorKind::NotFound, format!("{} was made anew", self.name())));
        }
        object.map(&MapOptions {
            hint: at.unwrap_or(0),
            length: Some(self.bytes as u64),
            protection: if access.writes() { Protection::ReadWrite } else { Protection::Read },
            flags: MapFlags { fixed: at.is_some(), ..MapFlags::default() },
            ..MapOptions::default()
        })
    }
}

/// Opens, until that can be done: this host may just have left the object, and what was newest here be on its way home.
fn patiently<T>(mut open: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error) if error.kind == ErrorKind::Busy && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// The object that has the name of a key in the cluster. What is local to another host is in nobody's way.
fn named(errand: &mut Errand, key: i32) -> Result<Option<ObjectInfo>, Error> {
    match errand.stat(&key_name(key)) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        found => found.map(|info| Some(info).filter(|info| !info.is_elsewhere || info.options.is_shared())),
    }
}

/// The segments that the cluster has of keys: each key, and what is known of its object.
pub fn all_of_cluster(errand: &mut Errand) -> Result<Vec<(i32, ObjectInfo)>, Error> {
    let key = |info: &ObjectInfo| {
        let key = key_of(info.name.as_ref()?)?;
        Link::to(key, info).is_ok().then_some(key)
    };
    Ok(errand.list(KEY_BEGINNING)?.into_iter().filter_map(|info| Some((key(&info)?, info))).collect())
}

/// Removes the segment that the cluster has of a key, of which no twin is here.
pub fn remove_of_cluster(errand: &mut Errand, key: i32) -> Result<(), Error> {
    errand.remove(&key_name(key), None)
}

/// The segment that the cluster has of a key, if it has one, and who may have it.
pub(crate) fn find(wishes: &Wishes, key: i32) -> Result<Option<(Link, Ownership)>, Errno> {
    let found = errands::ask(PATIENCE, |errand| {
        let found = named(errand, key)?;
        found.map(|info| Link::to(key, &info).map(|link| (link, info.ownership))).transpose()
    });
    found.map_err(|error| refused(wishes, "shmget", &error))
}

/// Makes a twin here for a segment of the cluster's. If another process was quicker, there is nothing to do.
pub(crate) fn adopt(wishes: &Wishes, link: &Link, ownership: &Ownership) -> Result<(), Errno> {
    // Its maker has rights on the twin. (What he may do with the object, the host decides.)
    let who = Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect(),
    };
    if !ownership.allows(&who, Ownership::wanted(Access::Read)) {
        return Err(Errno::ACCESS);
    }
    let mode = (ownership.mode & 0o666) as c_int;
    let id = match kernel::get(link.key, TWIN_BYTES, IPC_CREAT | IPC_EXCL | mode) {
        Err(Errno::EXIST) => return Ok(()),
        made => made?,
    };
    let given = give(id, ownership.uid, ownership.gid).inspect_err(|errno| {
        let (uid, gid) = (ownership.uid, ownership.gid);
        wishes.complain(&format!("shmget: the segment is of {uid}:{gid}, who cannot have one here: {errno}"));
    });
    let made = given.and_then(|()| {
        segment::create(id, &link.options()).map_err(|error| refused(wishes, "shmget", &error))
    });
    made.inspect_err(|_| unmake(wishes, id))
}

/// Gives a twin that was just made to the owner of the object, so that the kernel lets those have it whom the host does.
fn give(id: c_int, uid: u32, gid: u32) -> Result<(), Errno> {
    let mut twin = kernel::stat_any(id)?;
    if (twin.shm_perm.uid, twin.shm_perm.gid) == (uid, gid) {
        return Ok(());
    }
    (twin.shm_perm.uid, twin.shm_perm.gid) = (uid, gid);
    // SAFETY: the buffer is of the command's type, and lives until after the call.
    unsafe { kernel::control(id, IPC_SET, &raw mut twin) }.map(drop)
}

/// Makes the segment of a key for all hosts. `EEXIST`: another is there meanwhile, here or elsewhere.
pub(crate) fn create(wishes: &Wishes, key: i32, size: usize, flags: c_int) -> Result<c_int, Errno> {
    let options = segment::options(size, flags & 0o777, Default::default(), flags & SHM_NORESERVE == 0);
    let options = options.strict(OnLoss::default());
    segment::make_room().map_err(|error| refused(wishes, "shmget", &error))?;
    let id = kernel::get(key, TWIN_BYTES, IPC_CREAT | IPC_EXCL | flags & 0o777)?;
    let name = key_name(key);
    let made = errands::ask(PATIENCE, |errand| errand.create_unopened(&name, &options));
    let linked = made.and_then(|info| {
        let linked = Link::to(key, &info).and_then(|link| segment::create(id, &link.options()));
        linked.inspect_err(|_| {
            // It was made here, just now, and nobody knows of it: whoever asks next makes it whole.
            let _ = errands::ask(PATIENCE, |errand| errand.remove(&name, Some(info.uuid)));
        })
    });
    linked.map(|()| id).map_err(|error| {
        unmake(wishes, id);
        if error.kind == ErrorKind::Exists { Errno::EXIST } else { refused(wishes, "shmget", &error) }
    })
}

/// Removes a twin that was made here, just now.
fn unmake(wishes: &Wishes, id: c_int) {
    match kernel::remove(id) {
        Ok(()) | Err(Errno::INVAL | Errno::IDRM) => {}
        Err(errno) => wishes.complain(&format!("shmget: segment {id} stays, and means nothing: {errno}")),
    }
}

/// Removes a twin whose object was removed, so that its key is free: one of this user's.
pub(crate) fn remove_stale(wishes: &Wishes, segment: &Segment) -> Result<(), Errno> {
    let id = segment.id;
    match kernel::remove(id) {
        Ok(()) | Err(Errno::INVAL | Errno::IDRM) => {
            segment::clear(&[id]);
            Ok(())
        }
        Err(errno) => {
            let text = "was removed on another host, and stands here in the way: its owner removes it by `commonhold ipcrm";
            wishes.complain(&format!("shmget: segment {id} {text} {id}`: {errno}"));
            Err(Errno::IDRM)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_what_was_written() {
        let link = Link { key: -2, object: u128::MAX / 3, bytes: 5000 };
        assert_eq!(Link::of(&link.options().description), Some(link));
        for bad in [
            "",
            "system-v 5000",
            "system-v-key ",
            "system-v-key 1 2",
            "system-v-key 1 2 3 4",
            "system-v-key x 2 3",
        ] {
            assert_eq!(Link::of(bad), None, "{bad}");
        }
    }
}
