//! Requests about names: lookup, attributes, make, remove, rename.

use crate::entry::{self, ROOT_MODE};
use crate::failure::{Failure, Outcome};
use crate::fuse::flags::{ROOT, set};
use crate::fuse::request::SetAttributes;
use crate::fuse::{Attributes, EntryReply, reply};
use crate::lock;
use crate::server::{Request, Server};
use commonhold::{EntryInfo, Error, ErrorKind, ObjectInfo, Sizing};
use commonhold_object::{Credentials, limits};
use rustix::io::Errno;
use std::time::{SystemTime, UNIX_EPOCH};

/// renameat2(2): the new name must be free.
const RENAME_NOREPLACE: u32 = 1;

/// What changing mode, owner or times is refused with, as with files.
fn not_yours(error: Error) -> Failure {
    if error.kind == ErrorKind::Permission { Failure(Errno::PERM) } else { error.into() }
}

/// What a directory with something in it is refused with.
fn not_empty(error: Error) -> Failure {
    if error.kind == ErrorKind::Busy { Failure(Errno::NOTEMPTY) } else { error.into() }
}

impl Server {
    /// The kernel is told of what lies in a directory.
    pub(crate) fn tell(&self, parent: u64, leaf: &str, found: &EntryInfo) -> Outcome<Attributes> {
        let mut log = lock(&self.nodes);
        let (node, change) = log.nodes.look(parent, leaf, entry::identity(found));
        log.note([change])?;
        Ok(entry::attributes(found, node))
    }

    pub(crate) fn lookup(&self, request: &Request<'_>, name: &[u8]) -> Outcome<Vec<u8>> {
        let parent = request.header.node;
        let (leaf, found) = self.steadily(parent, || {
            let (path, leaf) = self.path_in(parent, name)?;
            Ok((leaf, self.callers.ask(&request.caller, |errand| errand.look(&path))?))
        })?;
        Ok(EntryReply { attributes: self.tell(parent, &leaf, &found)? }.reply())
    }

    pub(crate) fn attributes(&self, request: &Request<'_>, file: Option<u64>) -> Outcome<Vec<u8>> {
        let node = request.header.node;
        if let Some(file) = file.and_then(|file| self.files.get(file)) {
            return Ok(self.attributes_of_open(&file)?.reply());
        }
        match self.steadily(node, || self.entry(request, node)) {
            Ok(found) => Ok(entry::attributes(&found, node).reply()),
            // The root of a host that does not answer is a directory still.
            Err(Failure(Errno::HOSTDOWN)) if node == ROOT => {
                Ok(Attributes { node, mode: ROOT_MODE, ..Attributes::default() }.reply())
            }
            // Its name is gone; somebody has it open.
            Err(failure) => match self.files.of_node(node).first() {
                Some(file) => Ok(self.attributes_of_open(file)?.reply()),
                None => Err(failure),
            },
        }
    }

    pub(crate) fn access(&self, request: &Request<'_>, mask: u32) -> Outcome<()> {
        let found = self.steadily(request.header.node, || self.entry(request, request.header.node))?;
        let mut ownership = entry::ownership(&found);
        if request.header.node == ROOT {
            ownership.mode = ROOT_MODE & 0o777;
        }
        let caller = &request.caller;
        let header = request.header;
        let who = Credentials { uid: header.uid, gid: header.gid, groups: caller.groups.clone() };
        let is_file = matches!(found, EntryInfo::Object(_));
        // Root may do all, but for executing what nobody may.
        let executes = mask & 1 == 0 || !is_file || ownership.mode & 0o111 != 0;
        if mask & 7 == 0 || ownership.allows(&who, mask & 7) && executes {
            Ok(())
        } else {
            Err(Failure(Errno::ACCESS))
        }
    }

    pub(crate) fn make_node(&self, request: &Request<'_>, name: &[u8], mode: u32) -> Outcome<Vec<u8>> {
        if mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Failure(Errno::PERM)); // an object is no device, socket or pipe
        }
        let (leaf, found) = self.steadily(request.header.node, || {
            let (path, leaf) = self.path_in(request.header.node, name)?;
            let found = self.callers.ask(&request.caller, |errand| {
                let (info, _) =
                    errand.create_by(&path, &self.new_files.options(mode), self.nonce(request))?;
                errand.close(info.id)?;
                Ok(info)
            })?;
            Ok((leaf, found))
        })?;
        let found = EntryInfo::Object(Box::new(found));
        Ok(EntryReply { attributes: self.tell(request.header.node, &leaf, &found)? }.reply())
    }

    /// Chosen once for each request: who takes over finds what was made before.
    pub(crate) fn nonce(&self, request: &Request<'_>) -> u128 {
        u128::from(self.instance) << 64 | u128::from(request.header.unique & !crate::fuse::flags::RESENT)
    }

    pub(crate) fn make_directory(&self, request: &Request<'_>, name: &[u8], mode: u32) -> Outcome<Vec<u8>> {
        let (leaf, found) = self.steadily(request.header.node, || {
            let (path, leaf) = self.path_in(request.header.node, name)?;
            let found = self.callers.ask(&request.caller, |errand| {
                errand.repeating(request.header.is_repeated(), |errand| {
                    errand.make_directory(&path, mode & 0o777)
                })?;
                errand.look(&path)
            })?;
            Ok((leaf, found))
        })?;
        Ok(EntryReply { attributes: self.tell(request.header.node, &leaf, &found)? }.reply())
    }

    pub(crate) fn unlink(&self, request: &Request<'_>, name: &[u8]) -> Outcome<()> {
        let path = self.remove(request, name)?;
        self.unname(request.header.node, path)
    }

    pub(crate) fn remove_directory(&self, request: &Request<'_>, name: &[u8]) -> Outcome<()> {
        let path = self.remove(request, name)?;
        self.unname(request.header.node, path)
    }

    fn remove(&self, request: &Request<'_>, name: &[u8]) -> Outcome<String> {
        let parent = request.header.node;
        self.steadily(parent, || {
            let (path, leaf) = self.path_in(parent, name)?;
            if self.was_done(request, &leaf) {
                return Ok(leaf);
            }
            // That one, and not what somebody put in its place meanwhile.
            let of = lock(&self.nodes).nodes.object_named(parent, &leaf);
            let removed = self.callers.ask(&request.caller, |errand| {
                errand.repeating(request.header.is_repeated(), |errand| errand.remove(&path, of))
            });
            removed.map_err(not_empty)?;
            Ok(leaf)
        })
    }

    /// Whether a request that takes a name away was done by the server before, which died before it answered. The kernel knew the
    /// name when it asked, and lets nobody make it meanwhile: what has it now is another's, who made it elsewhere.
    fn was_done(&self, request: &Request<'_>, leaf: &str) -> bool {
        request.header.is_repeated() && !lock(&self.nodes).nodes.is_named(request.header.node, leaf)
    }

    fn unname(&self, parent: u64, leaf: String) -> Outcome<()> {
        let mut log = lock(&self.nodes);
        let change = log.nodes.unname(parent, &leaf);
        Ok(log.note(change)?)
    }

    pub(crate) fn rename(
        &self,
        request: &Request<'_>,
        name: &[u8],
        (to_directory, to): (u64, &[u8]),
        flags: u32,
    ) -> Outcome<()> {
        if flags & !RENAME_NOREPLACE != 0 {
            return Err(Failure(Errno::INVAL));
        }
        let replace = flags & RENAME_NOREPLACE == 0;
        let from_directory = request.header.node;
        let leaf = std::str::from_utf8(name).map_err(|_| Failure(Errno::ILSEQ))?;
        if self.was_done(request, leaf) {
            return Ok(());
        }
        let of = lock(&self.nodes).nodes.object_named(from_directory, leaf);
        let rename = || {
            let (from_path, from) = self.path_in(from_directory, name)?;
            let (to_path, to) = self.path_in(to_directory, to)?;
            let renamed = self.callers.ask(&request.caller, |errand| {
                errand.repeating(request.header.is_repeated(), |errand| {
                    errand.rename(&from_path, &to_path, replace, of)
                })
            });
            renamed.map_err(not_empty)?;
            let mut log = lock(&self.nodes);
            let changes = log.nodes.rename((from_directory, &from), (to_directory, &to), of);
            Ok(log.note(changes)?)
        };
        if of.is_some() {
            return self.steadily(from_directory, rename);
        }
        // What lies in a directory is asked for again if it is not found meanwhile.
        let node = lock(&self.nodes).nodes.directory_of_name(from_directory, leaf);
        let _moving = node.map(|node| self.moves.begin(node));
        rename()
    }

    pub(crate) fn set_attributes(&self, request: &Request<'_>, asked: &SetAttributes) -> Outcome<Vec<u8>> {
        let node = request.header.node;
        let file = if asked.has(set::FH) { self.files.get(asked.file) } else { None };
        if asked.has(set::SIZE) {
            match &file {
                Some(file) => self.resize_open(file, asked.size, Sizing::Exactly)?,
                None => {
                    let (path, of) = self.same_object(request, node)?;
                    self.callers.ask(&request.caller, |errand| errand.resize(&path, of, asked.size))?;
                }
            }
        }
        // Another size is another time, too.
        let times = if asked.has(set::SIZE) { 0 } else { set::MTIME | set::MTIME_NOW };
        let changes = set::MODE | set::UID | set::GID | times;
        if asked.valid & changes != 0 {
            self.change(request, asked)?;
        }
        self.attributes(request, asked.has(set::FH).then_some(asked.file))
    }

    /// The name of a node, and the object that has to have it.
    fn same_object(&self, request: &Request<'_>, node: u64) -> Outcome<(String, Option<u128>)> {
        let found = self.steadily(node, || self.entry(request, node))?;
        Ok((self.path(node)?, entry::identity(&found)))
    }

    fn change(&self, request: &Request<'_>, asked: &SetAttributes) -> Outcome<()> {
        let (path, of) = self.same_object(request, request.header.node)?;
        // Directories have no times; tools that copy trees want to set them.
        let has_times = of.is_some() && !asked.has(set::SIZE);
        let change = self.callers.ask(&request.caller, |errand| {
            if asked.has(set::MODE) {
                errand.set_mode(&path, of, asked.mode & 0o777)?;
            }
            let (uid, gid) =
                (asked.has(set::UID).then_some(asked.uid), asked.has(set::GID).then_some(asked.gid));
            if uid.is_some() || gid.is_some() {
                errand.set_owner(&path, of, uid, gid)?;
            }
            if has_times && (asked.has(set::MTIME) || asked.has(set::MTIME_NOW)) {
                errand.set_modified(&path, of, modified_ns(asked))?;
            }
            Ok(())
        });
        change.map_err(not_yours)
    }

    pub(crate) fn file_system(&self, request: &Request<'_>) -> Outcome<Vec<u8>> {
        let status = self.callers.ask(&request.caller, |errand| errand.status())?;
        let memory = rustix::system::sysinfo();
        let unit = u64::from(memory.mem_unit);
        let quota = if request.header.uid == 0 { u64::MAX } else { status.quota_bytes };
        let total = (memory.totalram * unit).min(quota);
        let free = (memory.freeram * unit).min(total);
        Ok(reply::file_system(total / 4096, free / 4096, status.objects.max(limits::LIST_ENTRIES as u64)))
    }

    pub(crate) fn extended(&self, request: &Request<'_>, name: &[u8], size: u32) -> Outcome<Vec<u8>> {
        let found = self.entry(request, request.header.node)?;
        let all = entry::extended(&found);
        let value = all.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, value)| value.as_bytes());
        sized(value.ok_or(Failure(Errno::NODATA))?, size)
    }

    pub(crate) fn list_extended(&self, request: &Request<'_>, size: u32) -> Outcome<Vec<u8>> {
        let found = self.entry(request, request.header.node)?;
        let names: Vec<u8> =
            entry::extended(&found).iter().flat_map(|(name, _)| name.bytes().chain([0])).collect();
        sized(&names, size)
    }

    /// What `stat` shows of an open file.
    pub(crate) fn attributes_of(&self, info: ObjectInfo, node: u64) -> Attributes {
        entry::attributes(&EntryInfo::Object(Box::new(info)), node)
    }
}

/// The value, or how long it is, for who asks that first.
fn sized(value: &[u8], size: u32) -> Outcome<Vec<u8>> {
    match size as usize {
        0 => Ok(reply::number(value.len() as u32)),
        room if room < value.len() => Err(Failure(Errno::RANGE)),
        _ => Ok(value.to_vec()),
    }
}

fn modified_ns(asked: &SetAttributes) -> u64 {
    if asked.has(set::MTIME_NOW) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    }
    // Before 1970 there were no objects.
    let seconds = u64::try_from(asked.mtime.cast_signed()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(asked.mtime_ns))
}
