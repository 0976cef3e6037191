//! Requests about open files: open, create, read, write, sync, resize, release.

use crate::caller::{Callers, Line};
use crate::entry::Route;
use crate::failure::{Failure, Outcome};
use crate::files::{OpenFile, Saved};
use crate::fuse::bytes::Writer;
use crate::fuse::flags::{RESENT, WRITE_CACHE, open};
use crate::fuse::{Attributes, EntryReply, Opened, reply};
use crate::lock;
use crate::served::Served;
use crate::server::{Request, Server};
use commonhold::{Access, EntryInfo, ErrorKind, Object, ObjectInfo, Sizing};
use commonhold_sys::frames;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a descriptor may do decides what its object is opened for.
fn access_for(flags: u32) -> Access {
    match flags.cast_signed() & libc::O_ACCMODE {
        libc::O_RDONLY => Access::Read,
        _ => Access::ReadWrite,
    }
}

impl Server {
    pub(crate) fn open(&self, request: &Request<'_>, flags: u32) -> Outcome<Vec<u8>> {
        if let Some(opened) = self.opened_before(request) {
            return Ok(opened.reply());
        }
        let node = request.header.node;
        let access = access_for(flags);
        let (path, (info, fd, line)) = self.steadily(node, || {
            let path = self.path(node)?;
            let opened = self.callers.ask_on(&request.caller, |errand, line| {
                let (info, fd) = errand.open_any(&path, access)?;
                Callers::opened(line, info.id);
                Ok((info, fd, line.clone()))
            })?;
            Ok((path, opened))
        })?;
        if lock(&self.nodes).nodes.object(node) != Some(info.uuid) {
            self.callers.close(&line, info.id);
            return Err(Failure(Errno::STALE));
        }
        self.keep_open(request, node, path, access, (info, fd, line)).map(|opened| opened.reply())
    }

    /// What a request that came to the server before was answered, or would have been.
    fn opened_before(&self, request: &Request<'_>) -> Option<Opened> {
        let unique = request.header.unique & !RESENT;
        let found = request.header.is_repeated().then(|| self.files.opened_by(unique))?;
        let (number, file) = found?;
        Some(Opened { file: number, flags: file.saved.flags, backing: file.saved.backing.unwrap_or(0) })
    }

    pub(crate) fn create(
        &self,
        request: &Request<'_>,
        name: &[u8],
        flags: u32,
        mode: u32,
    ) -> Outcome<Vec<u8>> {
        let parent = request.header.node;
        let exclusive = flags.cast_signed() & libc::O_EXCL != 0;
        self.files.check_share(request.caller.uid, false)?; // before anything is made
        let (path, leaf, (info, fd, line)) = self.steadily(parent, || {
            let (path, leaf) = self.path_in(parent, name)?;
            let opened = self.create_at(request, &path, flags, mode, exclusive)?;
            Ok((path, leaf, opened))
        })?;
        let found = EntryInfo::Object(Box::new(info.clone()));
        let attributes = self.tell(parent, &leaf, &found)?;
        let opened = match self.opened_before(request) {
            Some(opened) => {
                self.callers.close(&line, info.id);
                opened
            }
            None => self.keep_open(request, attributes.node, path, access_for(flags), (info, fd, line))?,
        };
        Ok([EntryReply { attributes }.reply(), opened.reply()].concat())
    }

    fn create_at(
        &self,
        request: &Request<'_>,
        path: &str,
        flags: u32,
        mode: u32,
        exclusive: bool,
    ) -> Outcome<(ObjectInfo, OwnedFd, Arc<Line>)> {
        Ok(self.callers.ask_on(&request.caller, |errand, line| {
            let made = errand.create_by(path, &self.new_files.options(mode), self.nonce(request));
            let (info, fd) = match made {
                // Somebody made it since the kernel looked.
                Err(error) if error.kind == ErrorKind::Exists && !exclusive => {
                    errand.open_any(path, access_for(flags))?
                }
                made => made?,
            };
            Callers::opened(line, info.id);
            Ok((info, fd, line.clone()))
        })?)
    }

    /// The kernel is given an open file.
    fn keep_open(
        &self,
        request: &Request<'_>,
        node: u64,
        path: String,
        access: Access,
        (info, fd, line): (ObjectInfo, OwnedFd, Arc<Line>),
    ) -> Outcome<Opened> {
        let id = info.id;
        // What the kernel has of it may be older than what was told to nobody, who had it open.
        let is_open = self.files.is_open(node);
        self.files.begin(node);
        let kept = self.keep_object(request, node, (path, access, is_open), (info, fd, line.clone()));
        if kept.is_err() {
            self.files.end(node);
            self.callers.close(&line, id);
        }
        kept
    }

    fn keep_object(
        &self,
        request: &Request<'_>,
        node: u64,
        (path, access, is_open): (String, Access, bool),
        (info, fd, line): (ObjectInfo, OwnedFd, Arc<Line>),
    ) -> Outcome<Opened> {
        let route = Route::of(&info);
        let caller = &request.caller;
        self.files.check_share(caller.uid, route != Route::Direct)?;
        let mut saved = Saved {
            unique: request.header.unique & !RESENT,
            node,
            object: info.id.0,
            uuid: info.uuid,
            path,
            writes: access.writes(),
            caller: (caller.uid, caller.gid, caller.groups.clone()),
            backing: None,
            flags: 0,
            append: None,
            unpublished: false,
            ends: false,
        };
        let (fd, served) = match route {
            Route::Direct => (Some(Arc::new(fd)), Served::default()),
            Route::Explicit | Route::Served => (None, Served::with(self.open_served(&saved)?)),
        };
        let is_watched = route == Route::Explicit;
        if is_watched {
            self.watches.add(node, &saved.path)?;
        }
        (saved.backing, saved.flags) = match (&fd, route) {
            (Some(fd), _) => self.flags_of_direct(node, fd, access),
            (None, Route::Explicit) => (None, open::NOFLUSH | if is_open { open::KEEP_CACHE } else { 0 }),
            (None, _) => (None, open::NOFLUSH | open::DIRECT_IO),
        };
        let (backing, flags) = (saved.backing, saved.flags);
        let file = OpenFile::new(saved, fd, Some(line), served);
        let number = self.files.add(file).inspect_err(|_| {
            if is_watched {
                self.watches.remove(node);
            }
        })?;
        Ok(Opened { file: number, flags, backing: backing.unwrap_or(0) })
    }

    /// Who writes by calls comes to the server, which alone lets a file grow.
    fn flags_of_direct(&self, node: u64, fd: &OwnedFd, access: Access) -> (Option<i32>, u32) {
        match (self.files.back(node, fd), access) {
            (Some(backing), Access::Read) => (Some(backing), open::NOFLUSH | open::PASSTHROUGH),
            (Some(backing), Access::ReadWrite) => {
                (Some(backing), open::NOFLUSH | open::PASSTHROUGH | open::DIRECT_IO)
            }
            (None, _) => (None, open::NOFLUSH | open::DIRECT_IO),
        }
    }

    /// This process's own handle of an object whose faults the host serves. That the caller may have it so the host has said.
    fn open_served(&self, saved: &Saved) -> Outcome<Object> {
        let host = self.own_host()?;
        if !host.kernel_faults()? {
            // A page that cannot be had would end this process by a signal.
            return Err(Failure(Errno::OPNOTSUPP));
        }
        let access = if saved.writes { Access::ReadWrite } else { Access::Read };
        let path = self.path(saved.node).unwrap_or_else(|_| saved.path.clone());
        let object = host.open(&path, access)?;
        // The name may be another's by now, which this process may open, and the caller may not.
        if object.uuid() == saved.uuid { Ok(object) } else { Err(Failure(Errno::STALE)) }
    }

    fn served<'f>(&self, file: &'f OpenFile) -> Outcome<(&'f Served, Object)> {
        let object = file.served.object(|| self.open_served(&file.saved))?;
        Ok((&file.served, object))
    }

    pub(crate) fn read(&self, number: u64, offset: u64, size: u32) -> Outcome<Vec<u8>> {
        let file = self.file(number)?;
        let Some(fd) = &file.fd else {
            let (served, object) = self.served(&file)?;
            return served.read(
                &object,
                offset,
                u64::from(size).min(self.size_of(&file)?.saturating_sub(offset)),
            );
        };
        let mut bytes = vec![0; size as usize];
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pread(fd, &mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) if done == 0 => return Err(errno.into()),
                Err(_) => break,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    pub(crate) fn write(
        &self,
        unique: u64,
        number: u64,
        offset: u64,
        (write_flags, flags): (u32, u32),
        data: &[u8],
    ) -> Outcome<Vec<u8>> {
        let file = self.file(number)?;
        if !file.saved.writes {
            return Err(Failure(Errno::BADF));
        }
        if file.is_cached() {
            self.files.change(number, &file, |(_, unpublished)| !std::mem::replace(unpublished, true))?;
        }
        let written = data.len() as u32;
        let end = offset.checked_add(data.len() as u64).ok_or(Failure(Errno::FBIG))?;
        if write_flags & WRITE_CACHE != 0 {
            // What comes back from a mapping. The object may have been cut off since: what lies past its end is nobody's.
            let inside = self.size_of(&file)?.saturating_sub(offset).min(data.len() as u64) as usize;
            self.put(&file, offset, &data[..inside])?;
            return Ok(reply::number(written));
        }
        let appends = flags.cast_signed() & libc::O_APPEND != 0;
        if !appends && end <= self.size_of(&file)? {
            self.put(&file, offset, data)?;
            return Ok(reply::number(written));
        }
        let growing = self.files.growing(file.saved.node);
        let _one_at_a_time = lock(&growing);
        let size = self.size_of(&file)?;
        let offset = if appends { self.append_at(unique, number, &file, size)? } else { offset };
        let end = offset.checked_add(data.len() as u64).ok_or(Failure(Errno::FBIG))?;
        if end > size {
            self.resize_open(&file, end, Sizing::BeforeWrite)?;
        }
        if let Err(failure) = self.put(&file, offset, data) {
            if end > size {
                let before = self.size_of(&file)?.max(size);
                let _ = self.resize_open(&file, before, Sizing::Exactly); // if that cannot be said, it ends in zeros
            }
            return Err(failure);
        }
        Ok(reply::number(written))
    }

    /// Where an append writes: at the end; or, if a server died in the midst of it, where that one did.
    fn append_at(&self, unique: u64, number: u64, file: &OpenFile, size: u64) -> Outcome<u64> {
        let unique = unique & !RESENT;
        if let Some(offset) = file.append_of(unique) {
            return Ok(offset);
        }
        self.files.change(number, file, |(append, _)| {
            *append = Some((unique, size));
            true
        })?;
        Ok(size)
    }

    fn put(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Outcome<()> {
        match &file.fd {
            Some(fd) => {
                let _acting = self.callers.act(&file.caller())?;
                Ok(frames::write_in_place(fd, data, offset)?)
            }
            None => {
                let (served, object) = self.served(file)?;
                served.write(&object, offset, data)
            }
        }
    }

    /// How many bytes an open file has now.
    fn size_of(&self, file: &OpenFile) -> Outcome<u64> {
        match &file.fd {
            Some(fd) => Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0)),
            // Others change it, and to the byte: the library's own knowledge is to the page.
            None => Ok(self.served(file)?.1.info()?.options.size_bytes),
        }
    }

    /// Asks the host for another size, in the name of who opened the file.
    pub(crate) fn resize_open(&self, file: &OpenFile, size: u64, sizing: Sizing) -> Outcome<()> {
        if !file.saved.writes {
            return Err(Failure(Errno::INVAL));
        }
        let line = lock(&file.line).clone();
        if let Some(line) = line {
            let resized =
                self.callers.ask_by(&line, |errand| errand.resize_opened(file.object(), size, sizing));
            match resized {
                // Of a connection that is lost: nothing is open on the next.
                Err(error)
                    if !matches!(
                        error.kind,
                        ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Permission
                    ) =>
                {
                    return Err(error.into());
                }
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
        let line = self.open_again(file)?;
        Ok(self.callers.ask_by(&line, |errand| errand.resize_opened(file.object(), size, sizing))?)
    }

    /// Opens the object of a file on a connection, as it was open on one that is no more. What it was opened for holds, whatever
    /// its mode is by now: so this process itself opens it, and sees that it is that object.
    fn open_again(&self, file: &OpenFile) -> Outcome<Arc<Line>> {
        let path = self.path(file.saved.node)?;
        let opened = self.callers.ask_on(&self.callers.own(), |errand, line| {
            let (info, _) = errand.open_any(&path, Access::ReadWrite)?;
            Callers::opened(line, info.id);
            Ok((info, line.clone()))
        });
        let (info, line) = match opened {
            Err(error) if error.kind == ErrorKind::NotFound => return Err(Failure(Errno::STALE)),
            opened => opened?,
        };
        if info.uuid != file.saved.uuid {
            self.callers.close(&line, info.id);
            return Err(Failure(Errno::STALE));
        }
        file.is_object(info.id);
        if let Some(before) = lock(&file.line).replace(line.clone()) {
            self.callers.close(&before, info.id);
        }
        Ok(line)
    }

    pub(crate) fn attributes_of_open(&self, file: &OpenFile) -> Outcome<Attributes> {
        let line = lock(&file.line).clone();
        let told = line.map(|line| self.callers.ask_by(&line, |errand| errand.stat_opened(file.object())));
        if let Some(Ok(info)) = told {
            return Ok(self.attributes_of(info, file.saved.node));
        }
        // Its name and the host's memory of it are gone: what is left is here.
        let size = self.size_of(file)?;
        let (uid, gid, _) = &file.saved.caller;
        let node = file.saved.node;
        Ok(Attributes {
            node,
            size,
            mode: libc::S_IFREG | 0o600,
            uid: *uid,
            gid: *gid,
            ..Attributes::default()
        })
    }

    /// Publishes all that was written under explicit coherence: this server's own copies end with it.
    pub fn publish(&self) {
        for number in self.files.unpublished() {
            if let Err(Failure(errno)) = self.sync(number) {
                // Its next sync says so, to whom it is told.
                self.log.say(&format!("what was written to an open file is not published: {errno}"));
            }
        }
    }

    pub(crate) fn sync(&self, number: u64) -> Outcome<()> {
        let file = self.file(number)?;
        match &file.fd {
            Some(fd) => Ok(rustix::fs::fdatasync(fd)?),
            None if !file.saved.writes => Ok(()),
            None => {
                let (_, object) = self.served(&file)?;
                let size = object.size_by_now()?;
                // What is written from here on is of the next sync.
                self.files.change(number, &file, |(_, unpublished)| std::mem::replace(unpublished, false))?;
                let synced = object.sync(0, size);
                if synced.is_err() {
                    self.files
                        .change(number, &file, |(_, unpublished)| !std::mem::replace(unpublished, true))?;
                }
                synced?;
                match file.takes_loss() {
                    true => Err(Failure::io("what a server had written and not published died with it")),
                    false => Ok(()),
                }
            }
        }
    }

    pub(crate) fn seek(&self, number: u64, offset: u64, whence: u32) -> Outcome<Vec<u8>> {
        let file = self.file(number)?;
        let size = self.size_of(&file)?;
        let found = match (&file.fd, whence.cast_signed()) {
            (Some(fd), libc::SEEK_DATA) => rustix::fs::seek(fd, SeekFrom::Data(offset))?,
            (Some(fd), libc::SEEK_HOLE) => rustix::fs::seek(fd, SeekFrom::Hole(offset))?,
            _ if offset >= size => return Err(Failure(Errno::NXIO)),
            // All of it is data. (ENOSYS would be for every file of the mount.)
            (None, libc::SEEK_DATA) => offset,
            (None, libc::SEEK_HOLE) => size,
            _ => return Err(Failure(Errno::INVAL)),
        };
        let mut answer = Writer::default();
        answer.u64(found);
        Ok(answer.0)
    }

    pub(crate) fn allocate(&self, number: u64, offset: u64, length: u64, mode: u32) -> Outcome<()> {
        let file = self.file(number)?;
        let fd = file.fd.as_ref().ok_or(Failure(Errno::OPNOTSUPP))?;
        let flags = FallocateFlags::from_bits(mode).ok_or(Failure(Errno::OPNOTSUPP))?;
        if flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE)
            || !file.saved.writes
        {
            return Err(Failure(Errno::OPNOTSUPP));
        }
        let end = offset.checked_add(length).ok_or(Failure(Errno::FBIG))?;
        let size = self.size_of(&file)?;
        if end > size && !flags.contains(FallocateFlags::KEEP_SIZE) {
            self.resize_open(&file, end, Sizing::AtLeast)?;
        }
        // Memory past the end is not the host's to count.
        let end = end.min(self.size_of(&file)?);
        if offset >= end {
            return Ok(());
        }
        let _acting = self.callers.act(&file.caller())?;
        Ok(rustix::fs::fallocate(fd, flags | FallocateFlags::KEEP_SIZE, offset, end - offset)?)
    }

    pub(crate) fn release(&self, number: u64) -> Outcome<()> {
        let Some(file) = self.files.remove(number) else { return Ok(()) };
        file.served.let_go();
        if file.is_cached() {
            self.watches.remove(file.saved.node);
        }
        if let Some(line) = lock(&file.line).take() {
            self.callers.close(&line, file.object());
        }
        Ok(())
    }
}
