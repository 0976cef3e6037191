//! An errand: one conversation with a host that leaves nothing behind in this process, no descriptor, no thread and no handler
//! of fork. For who maps direct objects into a program that knows nothing of it, and may close what it does not know.
//!
//! The host takes an object that was opened on an errand for closed when the errand ends. The descriptor of a direct object
//! stays good, and so does what is mapped by it.

use crate::host::nonce;
use crate::link::{Handshake, wrong_reply};
use crate::{
    Access, CreateOptions, EntryInfo, Error, ErrorKind, HostStatus, Name, ObjectId, ObjectInfo, Result,
    locate,
};
use commonhold_object::wire::{OpenReply, Reply, Request, Sizing};
use rustix::io::DupFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for an answer, and for the next host where one was lost.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A conversation by one thread.
pub struct Errand {
    talk: Handshake,
    directory: PathBuf,
    patience: Duration,
    repeated: bool,
}

impl Errand {
    /// Finds a host as [`crate::Host::connect`] does, but starts none.
    pub fn begin() -> Result<Errand> {
        let mut last = Error::new(ErrorKind::Disconnected, "no host is known");
        for place in locate::places()? {
            match Errand::to(&place.directory, PATIENCE) {
                Ok(errand) => return Ok(errand),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// To the host of that state directory, for each of whose answers it waits no longer than that.
    pub fn to(state_directory: &Path, patience: Duration) -> Result<Errand> {
        let talk = connect_within(state_directory, patience)?;
        Ok(Errand { talk, directory: state_directory.to_owned(), patience, repeated: false })
    }

    /// Asks what may have been done already, for who died before he heard of it: if so, it is done.
    pub fn repeating<T>(&mut self, repeated: bool, ask: impl FnOnce(&mut Errand) -> Result<T>) -> Result<T> {
        self.repeated = repeated;
        let answer = ask(self);
        self.repeated = false;
        answer
    }

    /// Its connection, for a process that forks meanwhile: the child closes it.
    pub fn connection(&self) -> BorrowedFd<'_> {
        self.talk.socket.as_fd()
    }

    /// Asks; if the host is lost meanwhile, the next one.
    fn ask(&mut self, request: &Request) -> Result<(Reply, Option<OwnedFd>)> {
        let until = Instant::now() + self.patience;
        let mut repeated = self.repeated;
        loop {
            match self.talk.ask(request, &[], repeated) {
                Ok(answer) => return answer.map(|(reply, fds)| (reply, fds.into_iter().next())),
                Err(error) if error.kind != ErrorKind::Disconnected || Instant::now() > until => {
                    return Err(error);
                }
                Err(_) => self.connect_again()?,
            }
            repeated = true;
        }
    }

    /// The next connection takes the place, and the number, of the one before: whoever was told of that closes nothing else.
    fn connect_again(&mut self) -> Result<()> {
        let mut next = connect_within(&self.directory, self.patience)?;
        if let Some(before) = Arc::get_mut(&mut self.talk.socket) {
            rustix::io::dup3(&next.socket, before, DupFlags::CLOEXEC)
                .map_err(|errno| Error::io("keeping the connection to the host", &errno.into()))?;
            next.socket = self.talk.socket.clone();
        }
        self.talk = next;
        Ok(())
    }

    fn opened(&mut self, request: &Request) -> Result<(ObjectInfo, OwnedFd)> {
        let (info, fd) = self.opened_any(request)?;
        if info.controlled {
            let text = "the host serves the object's faults: it cannot be mapped on an errand";
            return Err(Error::new(ErrorKind::Mismatch, text));
        }
        Ok((info, fd))
    }

    fn opened_any(&mut self, request: &Request) -> Result<(ObjectInfo, OwnedFd)> {
        match self.ask(request)? {
            (Reply::Opened(reply), Some(fd)) => {
                let OpenReply { info, .. } = *reply;
                Ok((info, fd))
            }
            _ => Err(wrong_reply()),
        }
    }

    /// Creates a direct object. Gives its memory.
    pub fn create(&mut self, name: &str, options: &CreateOptions) -> Result<(ObjectInfo, OwnedFd)> {
        options.check()?;
        self.opened(&Request::Create {
            name: Name::new(name)?,
            options: options.clone(),
            nonce: nonce()?,
            in_directory: false,
        })
    }

    /// Creates any object, of whose memory nothing is given.
    pub fn create_unopened(&mut self, name: &str, options: &CreateOptions) -> Result<ObjectInfo> {
        options.check()?;
        let (options, nonce) = (options.clone(), nonce()?);
        let request = Request::Create { name: Name::new(name)?, options, nonce, in_directory: false };
        self.opened_any(&request).map(|(info, _)| info)
    }

    /// Opens a direct object. Gives its memory: with [`Access::Read`], nobody can write by that descriptor.
    pub fn open(&mut self, name: &str, access: Access) -> Result<(ObjectInfo, OwnedFd)> {
        self.opened(&Request::Open { name: Name::new(name)?, access })
    }

    /// Opens any object. Only of a direct one the descriptor is its memory, or its file; of others it is to be left alone.
    pub fn open_any(&mut self, name: &str, access: Access) -> Result<(ObjectInfo, OwnedFd)> {
        self.opened_any(&Request::Open { name: Name::new(name)?, access })
    }

    /// Makes a direct object in a directory that is there: whoever repeats it with the same nonce finds his own.
    pub fn create_by(
        &mut self,
        name: &str,
        options: &CreateOptions,
        nonce: u128,
    ) -> Result<(ObjectInfo, OwnedFd)> {
        options.check()?;
        self.opened_any(&Request::Create {
            name: Name::new(name)?,
            options: options.clone(),
            nonce,
            in_directory: true,
        })
    }

    /// The object is not needed any more.
    pub fn close(&mut self, object: ObjectId) -> Result<()> {
        self.ask(&Request::Close { object }).map(drop)
    }

    /// What has that name.
    pub fn look(&mut self, name: &str) -> Result<EntryInfo> {
        match self.ask(&Request::Stat { name: Name::directory(name)? })?.0 {
            Reply::Entry(entry) => Ok(*entry),
            _ => Err(wrong_reply()),
        }
    }

    /// What is known of an object that was opened on this errand.
    pub fn stat_opened(&mut self, object: ObjectId) -> Result<ObjectInfo> {
        match self.ask(&Request::StatObject { object })?.0 {
            Reply::Entry(entry) => match *entry {
                EntryInfo::Object(info) => Ok(*info),
                EntryInfo::Directory { .. } => Err(wrong_reply()),
            },
            _ => Err(wrong_reply()),
        }
    }

    /// Some entries of a directory, in order, after that name; and whether more follow.
    pub fn entries(&mut self, directory: &str, after: Option<Name>) -> Result<(Vec<EntryInfo>, bool)> {
        match self.ask(&Request::List { directory: Name::directory(directory)?, after })?.0 {
            Reply::Entries { entries, more } => Ok((entries, more)),
            _ => Err(wrong_reply()),
        }
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, name: &str, mode: u32) -> Result<()> {
        self.ask(&Request::MakeDirectory { name: Name::new(name)?, mode }).map(drop)
    }

    /// Gives another name; with `replace`, what has it loses it.
    /// `of`: only if the present name is that object's.
    pub fn rename(&mut self, from: &str, to: &str, replace: bool, of: Option<u128>) -> Result<()> {
        self.ask(&Request::Rename { from: Name::new(from)?, to: Name::new(to)?, replace, of }).map(drop)
    }

    /// Changes the size; with `of`, only of that object.
    pub fn resize(&mut self, name: &str, of: Option<u128>, size_bytes: u64) -> Result<()> {
        self.ask(&Request::Resize { name: Name::new(name)?, of, size_bytes }).map(drop)
    }

    /// The same of an object that was opened for writing on this errand.
    pub fn resize_opened(&mut self, object: ObjectId, size_bytes: u64, sizing: Sizing) -> Result<()> {
        self.ask(&Request::ResizeOpened { object, size_bytes, sizing }).map(drop)
    }

    /// Changes when a direct object was modified, in nanoseconds since 1970.
    pub fn set_modified(&mut self, name: &str, of: Option<u128>, modified_ns: u64) -> Result<()> {
        self.ask(&Request::SetModified { name: Name::new(name)?, of, modified_ns }).map(drop)
    }

    /// State of the host.
    pub fn status(&mut self) -> Result<HostStatus> {
        match self.ask(&Request::Status)?.0 {
            Reply::Status(status) => Ok(*status),
            _ => Err(wrong_reply()),
        }
    }

    /// What is known of an object.
    pub fn stat(&mut self, name: &str) -> Result<ObjectInfo> {
        match self.ask(&Request::Stat { name: Name::new(name)? })?.0 {
            Reply::Entry(entry) => match *entry {
                EntryInfo::Object(info) => Ok(*info),
                EntryInfo::Directory { .. } => {
                    Err(Error::new(ErrorKind::Mismatch, format!("{name} is a directory")))
                }
            },
            _ => Err(wrong_reply()),
        }
    }

    /// Frees the name. `of`: only if it is that object's.
    pub fn remove(&mut self, name: &str, of: Option<u128>) -> Result<()> {
        self.ask(&Request::Remove { name: Name::new(name)?, of }).map(drop)
    }

    /// Changes the mode bits. `of`: only of that object.
    pub fn set_mode(&mut self, name: &str, of: Option<u128>, mode: u32) -> Result<()> {
        self.ask(&Request::SetMode { name: Name::directory(name)?, of, mode }).map(drop)
    }

    /// Changes owner or group. `of`: only of that object.
    pub fn set_owner(
        &mut self,
        name: &str,
        of: Option<u128>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.ask(&Request::SetOwner { name: Name::directory(name)?, of, uid, gid }).map(drop)
    }

    /// The objects of the root directory whose names begin so.
    pub fn list(&mut self, beginning: &str) -> Result<Vec<ObjectInfo>> {
        let (mut all, mut after) = (Vec::new(), Name::new(beginning)?);
        loop {
            let request = Request::List { directory: Name::directory("/")?, after: Some(after) };
            let Reply::Entries { entries, more } = self.ask(&request)?.0 else { return Err(wrong_reply()) };
            let last = entries.last().and_then(|entry| entry.name().cloned());
            all.extend(entries.into_iter().filter_map(|entry| match entry {
                EntryInfo::Object(info) => Some(*info).filter(|info| begins(info, beginning)),
                EntryInfo::Directory { .. } => None,
            }));
            match last {
                Some(last) if more && last.as_str().starts_with(beginning) => after = last,
                _ => return Ok(all),
            }
        }
    }
}

fn begins(info: &ObjectInfo, with: &str) -> bool {
    info.name.as_ref().is_some_and(|name| name.as_str().starts_with(with))
}

/// Connects. While the host is being replaced, or is dead and its keeper starts the next, that is waited for; not for one that was
/// stopped, or whose keeper is dead, too.
fn connect_within(directory: &Path, patience: Duration) -> Result<Handshake> {
    let until = Instant::now() + patience;
    loop {
        let failed = match locate::connect(directory) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(locate::no_host(directory, &error));
            }
            Err(error) => locate::no_host(directory, &error),
            Ok(socket) => {
                let mut talk = Handshake::new(Arc::new(socket), 1)?;
                talk.be_patient_for(patience);
                match talk.greet() {
                    Ok(_) => return Ok(talk),
                    Err(error) if error.kind != ErrorKind::Disconnected => return Err(error),
                    Err(error) => error,
                }
            }
        };
        if Instant::now() > until {
            return Err(failed);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
