//! The server of a mount: takes the kernel's requests and answers them.

use crate::caller::{Caller, Callers};
use crate::failure::{Failure, Outcome};
use crate::files::{Files, OpenFile};
use crate::fuse::flags::{self, NOBODY, RESENT, init};
use crate::fuse::reply::InitReply;
use crate::fuse::{Asked, Device, Header, Operation, device::Received, device::WRITE_BYTES, request};
use crate::lanes::Lanes;
use crate::listing::Listings;
use crate::log::NodeLog;
use crate::watches::Watches;
use commonhold::{EntryInfo, Host, Result};
use commonhold_keeper::{Key, StateLog, Vault};
use commonhold_object::error::Doing;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The key of what INIT agreed upon.
pub const AGREED_KEY: &str = "agreed";

/// A mount, and what is known of it.
pub struct Server {
    /// `/dev/fuse`.
    pub device: Device,
    /// What outlives this process.
    pub vault: Vault,
    /// The nodes.
    pub nodes: Mutex<NodeLog>,
    /// Open files.
    pub files: Files,
    /// Open directories.
    pub listings: Listings,
    /// Whoever asks.
    pub callers: Callers,
    /// Objects of explicit coherence that are open.
    pub watches: Arc<Watches>,
    /// State directory of the host.
    pub host_directory: PathBuf,
    /// This process's own connection to the host, for objects that it serves.
    pub host: Mutex<Option<Host>>,
    /// A number that no other mount has.
    pub instance: u64,
    /// For people.
    pub log: StateLog,
    /// Requests that are worked on, by number: whether who asked can be told at once that it was interrupted.
    under_way: Mutex<HashMap<u64, bool>>,
}

/// What comes of a request.
pub enum Answer {
    /// These bytes.
    Bytes(Vec<u8>),
    /// It was given already, or there is none.
    Given,
}

/// A request that one user made.
pub struct Request<'a> {
    /// From the kernel.
    pub header: &'a Header,
    /// Who.
    pub caller: Caller,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Of what the server before had, or nothing.
    pub fn new(
        device: Device,
        vault: Vault,
        nodes: NodeLog,
        host_directory: PathBuf,
        instance: u64,
        log: StateLog,
    ) -> Result<Server> {
        Ok(Server {
            files: Files::new(vault.clone(), device.clone()),
            watches: Watches::new(device.clone(), host_directory.clone(), log.clone()),
            callers: Callers::new(host_directory.clone()).doing("asking who this process is")?,
            nodes: Mutex::new(nodes),
            listings: Listings::default(),
            host: Mutex::new(None),
            under_way: Mutex::default(),
            device,
            vault,
            host_directory,
            instance,
            log,
        })
    }

    /// Serves until the mount ends.
    pub fn serve(self: &Arc<Self>) -> Result<()> {
        let lanes = {
            let this = self.clone();
            Lanes::new(move |message| this.handle(&message))
        };
        let mut buffer = Device::buffer();
        loop {
            match self.device.receive(&mut buffer).doing("reading requests of the mount")? {
                Received::Unmounted => return Ok(()),
                Received::Nothing => {}
                Received::Message(length) => self.sort(&lanes, &buffer[..length])?,
            }
        }
    }

    /// Does at once what waits for nobody; the rest is for the lane of who asked.
    fn sort(&self, lanes: &Arc<Lanes>, message: &[u8]) -> Result<()> {
        let Some(asked) = request::decode(message) else { return self.refuse(message) };
        let header = asked.header;
        match asked.operation {
            Operation::Init { minor, max_readahead, flags } => {
                self.init(&header, minor, max_readahead, flags)
            }
            Operation::Forget { nodes } => {
                let mut log = lock(&self.nodes);
                let changes: Vec<_> =
                    nodes.iter().map(|(node, times)| log.nodes.forget(*node, *times)).collect();
                log.note(changes)
            }
            Operation::Interrupt { unique } => self.interrupt(unique),
            Operation::Destroy => Ok(()),
            operation => {
                let uid = if header.uid == NOBODY { self.opener(&operation) } else { header.uid };
                let can_end = matches!(operation, Operation::Read { .. } | Operation::Lookup { .. });
                lock(&self.under_way).insert(header.unique, can_end);
                match lanes.put(uid, message.to_vec()) {
                    Ok(()) => Ok(()),
                    Err(_) => self.finish(header.unique, Err(Failure(Errno::NOMEM))),
                }
            }
        }
    }

    /// Of what the kernel does by itself: the user for whom.
    fn opener(&self, operation: &Operation<'_>) -> u32 {
        let file = match operation {
            Operation::Read { file, .. } | Operation::Write { file, .. } | Operation::Release { file } => {
                *file
            }
            _ => return 0,
        };
        self.files.get(file).map_or(0, |file| file.saved.caller.0)
    }

    fn refuse(&self, message: &[u8]) -> Result<()> {
        let number = message.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
        self.log.say(&format!("a request of {} bytes cannot be read", message.len()));
        let Some(unique) = number else { return Ok(()) };
        self.device.answer(unique, Err(Errno::IO)).doing("answering a request")
    }

    fn init(&self, header: &Header, minor: u32, max_readahead: u32, offered: u64) -> Result<()> {
        let needed = init::HAS_RESEND;
        if minor < flags::MINOR || offered & needed != needed {
            self.log
                .say("ended by an error: this kernel's FUSE cannot send requests again: Linux 6.9 is needed");
            return self.device.answer(header.unique, Err(Errno::PROTO)).doing("answering INIT");
        }
        let wished = init::ASYNC_READ
            | init::BIG_WRITES
            | init::DONT_MASK
            | init::PARALLEL_DIROPS
            | init::MAX_PAGES
            | init::INIT_EXT
            | init::PASSTHROUGH
            | init::HAS_RESEND;
        let reply = InitReply {
            max_readahead,
            flags: wished & offered,
            max_write: WRITE_BYTES as u32,
            stack_depth: 1,
        };
        // Before the kernel hears of it: whoever takes over knows that it need not wait for INIT.
        self.vault.put(&Key::new(AGREED_KEY), &[], None)?;
        self.device.answer(header.unique, Ok(&reply.reply())).doing("answering INIT")
    }

    fn interrupt(&self, unique: u64) -> Result<()> {
        let mut under_way = lock(&self.under_way);
        // Both numbers that a request has had.
        let found = [unique, unique ^ RESENT].into_iter().find(|unique| under_way.get(unique) == Some(&true));
        let Some(found) = found else { return Ok(()) };
        under_way.remove(&found);
        drop(under_way);
        self.device.answer(found, Err(Errno::INTR)).doing("answering a request")
    }

    /// Takes the right to answer a request, which goes once.
    pub(crate) fn takes(&self, unique: u64) -> bool {
        lock(&self.under_way).remove(&unique).is_some()
    }

    /// Gives it back: the answer was not given.
    pub(crate) fn may_answer(&self, unique: u64) {
        lock(&self.under_way).insert(unique, false);
    }

    fn finish(&self, unique: u64, outcome: Outcome<Answer>) -> Result<()> {
        match outcome {
            Ok(Answer::Given) => {
                self.takes(unique);
                Ok(())
            }
            _ if !self.takes(unique) => Ok(()),
            Ok(Answer::Bytes(bytes)) => self.device.answer(unique, Ok(&bytes)).doing("answering a request"),
            Err(Failure(errno)) => self.device.answer(unique, Err(errno)).doing("answering a request"),
        }
    }

    /// Works on one request, in the thread of a lane.
    fn handle(&self, message: &[u8]) {
        let Some(Asked { header, operation }) = request::decode(message) else { return };
        let caller = match operation {
            // What a file was opened for holds for whoever has its descriptor.
            Operation::Read { file, .. }
            | Operation::Write { file, .. }
            | Operation::Release { file }
            | Operation::Sync { file }
            | Operation::Allocate { file, .. }
            | Operation::Seek { file, .. } => self.files.get(file).map(|file| file.caller()),
            _ => Some(Caller::of(&header)),
        };
        let outcome = caller.ok_or(Failure(Errno::BADF)).and_then(|caller| {
            let caller = self.callers.known(caller);
            self.perform(&Request { header: &header, caller }, operation)
        });
        // Only a mount that has ended takes no answer: the reading thread hears of that.
        let _ = self.finish(header.unique, outcome);
    }

    fn perform(&self, request: &Request<'_>, operation: Operation<'_>) -> Outcome<Answer> {
        let bytes = Answer::Bytes;
        let done = |()| Answer::Bytes(Vec::new());
        match operation {
            Operation::Lookup { name } => self.lookup(request, name).map(bytes),
            Operation::GetAttributes { file } => self.attributes(request, file).map(bytes),
            Operation::SetAttributes(set) => self.set_attributes(request, &set).map(bytes),
            Operation::Access { mask } => self.access(request, mask).map(done),
            Operation::MakeNode { name, mode, umask } => {
                self.make_node(request, name, mode & !umask).map(bytes)
            }
            Operation::MakeDirectory { name, mode, umask } => {
                self.make_directory(request, name, mode & !umask).map(bytes)
            }
            Operation::Unlink { name } => self.unlink(request, name).map(done),
            Operation::RemoveDirectory { name } => self.remove_directory(request, name).map(done),
            Operation::Rename { name, to_directory, to, flags } => {
                self.rename(request, name, (to_directory, to), flags).map(done)
            }
            Operation::Open { flags } => self.open(request, flags).map(bytes),
            Operation::Create { name, flags, mode, umask } => {
                self.create(request, name, flags, mode & !umask).map(bytes)
            }
            Operation::Read { file, offset, size } => self.read(request, file, offset, size),
            Operation::Write { file, offset, write_flags, flags, data } => {
                self.write(file, offset, (write_flags, flags), data).map(bytes)
            }
            Operation::Flush => Ok(done(())),
            Operation::Release { file } => self.release(file).map(done),
            Operation::Sync { file } => self.sync(file).map(done),
            Operation::OpenDirectory => self.open_directory(request).map(bytes),
            Operation::ReadDirectory { file, offset, size } => {
                self.read_directory(request, file, offset, size).map(bytes)
            }
            Operation::ReleaseDirectory { file } => {
                self.listings.remove(file);
                Ok(done(()))
            }
            Operation::StatFs => self.file_system(request).map(bytes),
            Operation::GetExtended { name, size } => self.extended(request, name, size).map(bytes),
            Operation::ListExtended { size } => self.list_extended(request, size).map(bytes),
            Operation::Seek { file, offset, whence } => self.seek(file, offset, whence).map(bytes),
            Operation::Allocate { file, offset, length, mode } => {
                self.allocate(file, offset, length, mode).map(done)
            }
            Operation::Init { .. }
            | Operation::Forget { .. }
            | Operation::Interrupt { .. }
            | Operation::Destroy
            | Operation::Other => Err(Failure(Errno::NOSYS)),
        }
    }
}

impl Server {
    /// The name of a node at the host.
    pub fn path(&self, node: u64) -> Outcome<String> {
        lock(&self.nodes).nodes.path(node).ok_or(Failure(Errno::STALE))
    }

    /// The name of something in the directory that the request is about.
    pub fn path_in(&self, directory: u64, leaf: &[u8]) -> Outcome<(String, String)> {
        let leaf = std::str::from_utf8(leaf).map_err(|_| Failure(Errno::ILSEQ))?;
        let path = lock(&self.nodes).nodes.path_in(directory, leaf).ok_or(Failure(Errno::STALE))?;
        if path.len() > commonhold_object::limits::NAME_BYTES {
            return Err(Failure(Errno::NAMETOOLONG));
        }
        Ok((path, leaf.to_owned()))
    }

    /// What has the name of a node: that node, or it is stale.
    pub fn entry(&self, request: &Request<'_>, node: u64) -> Outcome<EntryInfo> {
        let path = self.path(node)?;
        let entry = self.callers.ask(&request.caller, |errand| errand.look(&path))?;
        let object = lock(&self.nodes).nodes.object(node);
        match object == crate::entry::number(&entry) {
            true => Ok(entry),
            false => Err(Failure(Errno::STALE)),
        }
    }

    /// An open file.
    pub fn file(&self, number: u64) -> Outcome<Arc<OpenFile>> {
        self.files.get(number).ok_or(Failure(Errno::BADF))
    }

    /// The connection of this process itself. Only what its caller may do is done by it.
    pub fn own_host(&self) -> Outcome<Host> {
        let mut host = lock(&self.host);
        match &*host {
            Some(host) => Ok(host.clone()),
            None => Ok(host.insert(Host::connect_to(&self.host_directory)?).clone()),
        }
    }
}
