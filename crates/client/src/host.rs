//! A host, as its client sees it: names, and everything done by name.

use crate::link::{Answer, Call, Lease, OnLoss, wrong_reply};
use crate::object::Core;
use crate::{
    Access, ClusterHost, CreateOptions, EntryInfo, Error, ErrorKind, HostStatus, MappingInfo, Name, Object,
    ObjectId, Pager, PagerKind, Result, Seen, TracePlace, Traced, locate, serving,
};
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Tagging, limits};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a request may take that no fault can be behind.
const STOP_DEADLINE: Duration = Duration::from_secs(120);

/// A connection to a host. Clones share it, as do all connections of the process to the same host. It is closed
/// when the last of them, and the last object opened and mapping made through them, is gone.
#[derive(Clone, Debug)]
pub struct Host {
    lease: Lease,
}

impl Host {
    /// Finds a host: the one whose state directory `COMMONHOLD_HOST` names, else the system's, else the user's
    /// own, which is started if need be.
    pub fn connect() -> Result<Host> {
        let mut last = Error::new(ErrorKind::Disconnected, "no host is known");
        for place in locate::places()? {
            match Lease::connect(&place.directory, place.may_start) {
                Ok(lease) => return Ok(Host { lease }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The host of that state directory; never starts one.
    pub fn connect_to(state_directory: &Path) -> Result<Host> {
        Ok(Host { lease: Lease::connect(state_directory, false)? })
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        match self.lease.shared().call(Call::new(request))? {
            Answer::Reply(reply, _, _) => Ok(reply),
            Answer::AskAnew => Err(wrong_reply()),
        }
    }

    fn do_it(&self, request: &Request) -> Result<()> {
        self.ask(request).map(drop)
    }

    fn opened(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<Object> {
        let object = self.opened_any(request, fds)?;
        if let Some(movable) = object.core.is_open_movable() {
            let label = object.core.label();
            drop(object);
            movable.tell_again()?; // by this it was to stay where it is
            let what = format!("object {label} is open movable in this process: close it first, or use that");
            return Err(Error::new(ErrorKind::Busy, what));
        }
        Ok(object)
    }

    fn opened_any(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<Object> {
        let (reply, fd, generation) = self.lease.shared().open(request, fds)?;
        Ok(Object { core: Core::new(&self.lease, reply, fd, generation)? })
    }

    /// Creates an object and opens it for reading and writing. `file` is the backing file of a file pager,
    /// opened for reading and writing; no other pager takes one.
    pub fn create(
        &self,
        name: &str,
        options: &CreateOptions,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Object> {
        let name = Name::new(name)?;
        options.check()?;
        match (&options.pager, file) {
            (PagerKind::File, None) => {
                return Err(Error::invalid(
                    "an object with a file pager needs the descriptor of its backing file",
                ));
            }
            (PagerKind::File, Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                return Err(Error::invalid(
                    "a backing file was given, and the pager is another: choose the file pager",
                ));
            }
        }
        let request =
            Request::Create { name, options: options.clone(), nonce: nonce()?, in_directory: false };
        self.opened(&request, file.as_slice())
    }

    /// Creates an object that never has a name, and opens it for reading and writing. It ends with
    /// its last user; others get it by a message ([`Channel::send_object`](crate::Channel::send_object)).
    /// It is anonymous, paged and local, and keeps its size. No disk is waited for: that takes a
    /// tenth of the time of [`create`](Self::create).
    pub fn create_nameless(&self, options: &CreateOptions) -> Result<Object> {
        options.check()?;
        let request = Request::CreateNameless { options: options.clone(), nonce: nonce()? };
        self.opened(&request, &[])
    }

    /// Opens an object.
    pub fn open(&self, name: &str, access: Access) -> Result<Object> {
        self.opened(&Request::Open { name: Name::new(name)?, access }, &[])
    }

    /// Opens a wired object so that it may move: it is used under guards ([`Object::guard`]), and mapped by nobody of this
    /// process.
    pub fn open_movable(&self, name: &str, access: Access) -> Result<Object> {
        let object = self.opened_any(&Request::Open { name: Name::new(name)?, access }, &[])?;
        object.core.becomes_movable()?;
        Ok(object)
    }

    /// What is known of a name: an object or a directory.
    pub fn stat(&self, name: &str) -> Result<EntryInfo> {
        match self.ask(&Request::Stat { name: Name::directory(name)? })? {
            Reply::Entry(entry) => Ok(*entry),
            _ => Err(wrong_reply()),
        }
    }

    /// The entries of a directory, in order.
    pub fn list(&self, directory: &str) -> Result<Vec<EntryInfo>> {
        let directory = Name::directory(directory)?;
        let mut all: Vec<EntryInfo> = Vec::new();
        let mut after = None;
        loop {
            let Reply::Entries { entries, more } =
                self.ask(&Request::List { directory: directory.clone(), after: after.take() })?
            else {
                return Err(wrong_reply());
            };
            if more && entries.is_empty() || entries.len() > limits::MESSAGE_BYTES {
                return Err(wrong_reply());
            }
            all.extend(entries);
            if !more {
                return Ok(all);
            }
            after = all.last().and_then(|entry| entry.name().cloned());
        }
    }

    /// Changes the size of an object.
    pub fn resize(&self, name: &str, size_bytes: u64) -> Result<()> {
        let name = Name::new(name)?;
        if size_bytes > limits::OBJECT_BYTES {
            let limit = limits::OBJECT_BYTES;
            return Err(Error::invalid(format!(
                "size {size_bytes} is past the limit of {limit} bytes for one object"
            )));
        }
        self.do_it(&Request::Resize { name, size_bytes, of: None })
    }

    /// Says what is in pages of an object: bytes `offset` to `offset + length` (0: all from there on) have that tag from now on,
    /// and hosts of other machine types translate them (`docs/TYPES.md`). Refused while another host than the object's home
    /// uses it.
    pub fn tag(&self, name: &str, offset: u64, length: u64, tag: &str) -> Result<()> {
        let tagging = Tagging { offset, length, tag: tag.to_owned() };
        self.do_it(&Request::Tag { name: Name::new(name)?, of: None, tagging })
    }

    /// Frees the name now, and the memory when the last mapping goes. A backing file is never deleted.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.do_it(&Request::Remove { name: Name::new(name)?, of: None })
    }

    /// Gives an object or a directory another name, which must be free: else that is [`ErrorKind::Exists`].
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.do_it(&Request::Rename { from: Name::new(from)?, to: Name::new(to)?, replace: false, of: None })
    }

    /// Gives an object another name, which another object may have: that one loses it in the same step, as with rename(2).
    /// Who has that one open keeps it.
    pub fn rename_over(&self, from: &str, to: &str) -> Result<()> {
        self.do_it(&Request::Rename { from: Name::new(from)?, to: Name::new(to)?, replace: true, of: None })
    }

    /// Makes a directory. (Those above an object are made with it.)
    pub fn make_directory(&self, name: &str, mode: u32) -> Result<()> {
        self.do_it(&Request::MakeDirectory { name: Name::new(name)?, mode })
    }

    /// Changes the mode bits of an object or a directory.
    pub fn set_mode(&self, name: &str, mode: u32) -> Result<()> {
        if mode & !0o777 != 0 {
            return Err(Error::invalid(format!("mode {mode:o} has bits beyond rwxrwxrwx")));
        }
        self.do_it(&Request::SetMode { name: Name::directory(name)?, mode, of: None })
    }

    /// Changes owner or group of an object or a directory.
    pub fn set_owner(&self, name: &str, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.do_it(&Request::SetOwner { name: Name::directory(name)?, uid, gid, of: None })
    }

    /// Drops what was not synced, whoever wrote it; gives the number of pages dropped. Who may write the object may.
    pub fn revert(&self, name: &str) -> Result<u64> {
        match self.ask(&Request::Revert { name: Name::new(name)? })? {
            Reply::Pages(pages) => Ok(pages),
            _ => Err(wrong_reply()),
        }
    }

    /// The mappings of an object, of all clients.
    pub fn map_info(&self, name: &str) -> Result<Vec<MappingInfo>> {
        match self.ask(&Request::MapInfo { name: Name::new(name)? })? {
            Reply::Mappings(mappings) => Ok(mappings),
            _ => Err(wrong_reply()),
        }
    }

    /// State of the host.
    pub fn status(&self) -> Result<HostStatus> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(wrong_reply()),
        }
    }

    /// The hosts of the host's cluster, itself included; none if it is in none.
    pub fn hosts(&self) -> Result<Vec<ClusterHost>> {
        match self.ask(&Request::Hosts)? {
            Reply::Hosts(mut hosts, trouble) => {
                hosts.iter_mut().zip(trouble).for_each(|(host, trouble)| host.trouble = trouble);
                Ok(hosts)
            }
            _ => Err(wrong_reply()),
        }
    }

    /// What was counted of an object at this host, with at most so many of its hottest pages.
    pub fn counts(&self, name: &str, hottest: u32) -> Result<Seen> {
        self.ask_counts(Some(Name::new(name)?), None, hottest)
    }

    /// What was counted of each object that the caller may read and that was in use, each with at most so many of its
    /// hottest pages.
    pub fn all_counts(&self, hottest: u32) -> Result<Seen> {
        let mut all = self.ask_counts(None, None, hottest)?;
        while all.more {
            let last = all.objects.last().map(|object| object.id);
            let next = self.ask_counts(None, last, hottest)?;
            if next.objects.first().map(|object| object.id) <= last || next.process != all.process {
                return Err(Error::new(ErrorKind::Busy, "the host was replaced while it told: ask again"));
            }
            all.more = next.more;
            all.objects.extend(next.objects);
            all.hosts.extend(next.hosts);
        }
        Ok(all)
    }

    fn ask_counts(&self, name: Option<Name>, after: Option<ObjectId>, hottest: u32) -> Result<Seen> {
        match self.ask(&Request::Counts { name, after, hottest })? {
            Reply::Counts(seen) => Ok(*seen),
            _ => Err(wrong_reply()),
        }
    }

    /// Lines of the trace of an object from `place` on; with none, it begins now. It goes on for a few seconds after each
    /// call, and keeps the last lines alone: who does not ask often enough is told how many he lost.
    pub fn trace(&self, name: &str, place: Option<TracePlace>) -> Result<Traced> {
        match self.ask(&Request::Trace { name: Name::new(name)?, place })? {
            Reply::Traced(traced) => Ok(*traced),
            _ => Err(wrong_reply()),
        }
    }

    /// Ends host and keeper; refused while there are clients or anonymous objects, unless `force`.
    pub fn stop(&self, force: bool) -> Result<()> {
        let request = Request::Stop { force };
        let deadline = Some(Instant::now() + STOP_DEADLINE);
        self.lease.shared().call(Call { deadline, on_loss: OnLoss::Finish, ..Call::new(&request) }).map(drop)
    }

    /// Replaces the host process (by another program, if given), and the keeper too when `keeper`. Everything
    /// is kept.
    pub fn replace(&self, program: Option<&Path>, keeper: bool) -> Result<()> {
        let text = |path: &Path| {
            let not_text = || Error::invalid(format!("the program's path {} is not UTF-8", path.display()));
            path.to_str().map(str::to_owned).ok_or_else(not_text)
        };
        let program = program.map(text).transpose()?;
        self.do_it(&Request::Replace { program, keeper })
    }

    /// Serves as the pager of that name, on a connection of its own, until the host closes it.
    pub fn serve_pager(&self, name: &str, pager: impl Pager) -> Result<()> {
        serving::serve(self.lease.shared(), Name::new(name)?, pager)
    }

    /// Whether the host serves the kernel's own accesses to missing pages: `read()` straight into a mapping of
    /// a controlled object. Where it does not (a host without privilege), they fail with EFAULT; touch the
    /// pages first.
    pub fn kernel_faults(&self) -> Result<bool> {
        Ok(self.lease.shared().greeting()?.reply.kernel_faults)
    }

    /// The state directory of this host.
    pub fn state_directory(&self) -> &Path {
        &self.lease.shared().directory
    }
}

/// A number that no other request has.
pub(crate) fn nonce() -> Result<u128> {
    let mut bytes = [0; 16];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("asking the kernel for random bytes", &errno.into())),
        }
    }
    Ok(u128::from_ne_bytes(bytes))
}
