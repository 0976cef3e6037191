//! The server of a mount: takes the kernel's requests and answers them.

use crate::begin::MountOptions;
use crate::caller::{Caller, Callers};
use crate::failure::{Failure, Outcome};
use crate::files::{Files, OpenFile};
use crate::fuse::flags::{self, NOBODY, RESENT, init};
use crate::fuse::reply::InitReply;
use crate::fuse::{Asked, Device, Header, Operation, device::Received, device::WRITE_BYTES, request};
use crate::kind::NewFiles;
use crate::lanes::{About, Lanes};
use crate::listing::Listings;
use crate::lock;
use crate::log::NodeLog;
use crate::watches::Watches;
use commonhold::{EntryInfo, Host, Result};
use commonhold_keeper::{Key, StateLog, Vault};
use commonhold_object::error::Doing;
use rustix::io::Errno;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The key of what INIT agreed upon.
pub const AGREED_KEY: &str = "agreed";

/// A host that was started has joined its cluster by then, or does not soon.
const JOINS: Duration = Duration::from_secs(10);

/// A mount, and what is known of it.
pub struct Server {
    /// `/dev/fuse`.
    pub device: Device,
    /// What outlives this process.
    pub vault: Vault,
    /// The nodes.
    pub nodes: Arc<Mutex<NodeLog>>,
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
    /// What a new file is.
    pub new_files: NewFiles,
    /// This process's own connection to the host, for objects that it serves.
    pub host: Mutex<Option<Host>>,
    /// A number that no other mount has.
    pub instance: u64,
    /// For people.
    pub log: StateLog,
    /// Requests that are worked on, by number; of those that may wait for long, the thread that asked.
    under_way: Mutex<HashMap<u64, Option<u32>>>,
    /// Directories that are being renamed.
    pub(crate) moves: Moves,
    /// When the log was last told why a request failed with EIO.
    said_why: Mutex<Option<Instant>>,
}

/// A request that one user made.
pub struct Request<'a> {
    /// From the kernel.
    pub header: &'a Header,
    /// Who.
    pub caller: Caller,
}

/// What a request is about.
fn about(operation: &Operation<'_>) -> About {
    match operation {
        Operation::Lookup { .. }
        | Operation::MakeNode { .. }
        | Operation::MakeDirectory { .. }
        | Operation::Unlink { .. }
        | Operation::RemoveDirectory { .. }
        | Operation::Rename { .. }
        | Operation::Create { .. }
        | Operation::ReadDirectory { .. } => About::Names,
        Operation::Release { .. } | Operation::ReleaseDirectory { .. } => About::Ends,
        _ => About::Content,
    }
}

/// Whether a thread has a deadly signal, and waits in the kernel only for us.
fn is_killed(thread: u32) -> bool {
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & SIGKILL != 0)
}

/// Directories that are being renamed, by their nodes.
#[derive(Default)]
pub struct Moves(Mutex<HashMap<u64, u64>>);

/// A rename that is under way.
pub struct Moving<'m>(&'m Moves, u64);

impl Moves {
    /// Until what it gives is dropped, that directory is being renamed.
    pub fn begin(&self, node: u64) -> Moving<'_> {
        *lock(&self.0).entry(node).or_default() += 1;
        Moving(self, node)
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let mut moving = lock(&self.0.0);
        let Some(count) = moving.get_mut(&self.1) else { return };
        *count -= 1;
        if *count == 0 {
            moving.remove(&self.1);
        }
    }
}

impl Server {
    /// Of what the server before had, or nothing.
    pub fn new(
        device: Device,
        vault: Vault,
        nodes: NodeLog,
        options: &MountOptions,
        instance: u64,
        log: StateLog,
    ) -> Result<Server> {
        let host_directory = options.host_directory.clone();
        let nodes = Arc::new(Mutex::new(nodes));
        let paths = nodes.clone();
        let place_of = move |node| {
            let log = lock(&paths);
            Some((log.nodes.path(node)?, log.nodes.object(node)?))
        };
        Ok(Server {
            files: Files::new(vault.clone(), device.clone()),
            watches: Watches::new(device.clone(), host_directory.clone(), log.clone(), place_of),
            callers: Callers::new(host_directory.clone()).doing("asking who this process is")?,
            nodes: nodes.clone(),
            listings: Listings::default(),
            host: Mutex::new(None),
            under_way: Mutex::default(),
            moves: Moves::default(),
            said_why: Mutex::default(),
            device,
            vault,
            host_directory,
            new_files: options.new_files,
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
                let uid = self.payer(&header, &operation);
                let waits = matches!(operation, Operation::Read { .. }).then_some(header.pid);
                lock(&self.under_way).insert(header.unique, waits);
                let about = about(&operation);
                match lanes.put(uid, about, message.to_vec()) {
                    Ok(()) => Ok(()),
                    Err(_) if about == About::Names => self.finish(header.unique, Err(Failure(Errno::BUSY))),
                    Err(_) => self.finish(header.unique, Err(Failure(Errno::NOMEM))),
                }
            }
        }
    }

    /// The user in whose lane a request is done: who opened the file, since the kernel does some of it by itself, and others may
    /// have the descriptor.
    fn payer(&self, header: &Header, operation: &Operation<'_>) -> u32 {
        let by_file = match operation {
            Operation::Read { file, .. } | Operation::Write { file, .. } | Operation::Release { file } => {
                self.files.get(*file).map(|file| file.saved.caller.0)
            }
            _ => None,
        };
        by_file.unwrap_or(if header.uid == NOBODY { 0 } else { header.uid })
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
        // Both numbers that a request has had. Who was not killed waits on: programs do not expect EINTR of files.
        let waits = |unique: &u64| under_way.get(unique).copied().flatten().is_some_and(is_killed);
        let Some(found) = [unique, unique ^ RESENT].into_iter().find(waits) else { return Ok(()) };
        under_way.remove(&found);
        drop(under_way);
        self.device.answer(found, Err(Errno::INTR)).doing("answering a request")
    }

    /// Takes the right to answer a request, which goes once.
    pub(crate) fn takes(&self, unique: u64) -> bool {
        lock(&self.under_way).remove(&unique).is_some()
    }

    fn finish(&self, unique: u64, outcome: Outcome<Vec<u8>>) -> Result<()> {
        match outcome {
            _ if !self.takes(unique) => Ok(()),
            Ok(bytes) => self.device.answer(unique, Ok(&bytes)).doing("answering a request"),
            Err(Failure(errno)) => self.device.answer(unique, Err(errno)).doing("answering a request"),
        }
    }

    /// Works on one request, in the thread of a lane. What a host that was started just now cannot
    /// do yet, since it has not joined its cluster, is asked again, as by the next server: it may
    /// have been done.
    fn handle(&self, message: &[u8]) {
        const AGAIN: Duration = Duration::from_millis(50);
        let Some(Asked { mut header, .. }) = request::decode(message) else { return };
        let unique = header.unique;
        let until = Instant::now() + JOINS;
        let outcome = loop {
            let outcome = self.attempt(header, message);
            let is_down = matches!(outcome, Err(Failure(Errno::HOSTDOWN)));
            if !is_down || Instant::now() > until || !self.is_awaited(unique) || !self.host_is_new() {
                break outcome;
            }
            std::thread::sleep(AGAIN);
            header.unique |= RESENT;
        };
        self.say_why(&header, &outcome);
        // Only a mount that has ended takes no answer: the reading thread hears of that.
        let _ = self.finish(unique, outcome);
    }

    /// EIO says nothing to who asked. The log says why; once in a while, however many there are.
    fn say_why(&self, header: &Header, outcome: &Outcome<Vec<u8>>) {
        const APART: Duration = Duration::from_secs(1);
        let (Err(Failure(Errno::IO)), Some(why)) = (outcome, Failure::why()) else { return };
        let mut said = lock(&self.said_why);
        if said.is_none_or(|at| at.elapsed() > APART) {
            *said = Some(Instant::now());
            drop(said);
            self.log.say(&format!("a request of user {} fails (EIO): {why}", header.uid));
        }
    }

    /// Whether somebody waits for the answer still.
    fn is_awaited(&self, unique: u64) -> bool {
        lock(&self.under_way).contains_key(&unique)
    }

    /// Whether the host is there, and has not been for long.
    fn host_is_new(&self) -> bool {
        let status = self.callers.ask(&self.callers.own(), |errand| errand.status());
        status.is_ok_and(|status| Duration::from_millis(status.uptime_ms) < JOINS)
    }

    fn attempt(&self, header: Header, message: &[u8]) -> Outcome<Vec<u8>> {
        let _ = Failure::why(); // of what was done before
        let Some(Asked { operation, .. }) = request::decode(message) else {
            return Err(Failure::io("it cannot be read"));
        };
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
        let caller = self.callers.known(caller.ok_or(Failure(Errno::BADF))?);
        let request = Request { header: &header, caller };
        // A defect fails the request that meets it: who takes over would be sent it again.
        let done = catch_unwind(AssertUnwindSafe(|| self.perform(&request, operation)));
        done.unwrap_or_else(|_| {
            self.log.say(&format!("a defect: request {} of the mount panicked", header.unique));
            Err(Failure::io("a defect"))
        })
    }

    fn perform(&self, request: &Request<'_>, operation: Operation<'_>) -> Outcome<Vec<u8>> {
        let done = |()| Vec::new();
        match operation {
            Operation::Lookup { name } => self.lookup(request, name),
            Operation::GetAttributes { file } => self.attributes(request, file),
            Operation::SetAttributes(set) => self.set_attributes(request, &set),
            Operation::Access { mask } => self.access(request, mask).map(done),
            Operation::MakeNode { name, mode, umask } => self.make_node(request, name, mode & !umask),
            Operation::MakeDirectory { name, mode, umask } => {
                self.make_directory(request, name, mode & !umask)
            }
            Operation::Unlink { name } => self.unlink(request, name).map(done),
            Operation::RemoveDirectory { name } => self.remove_directory(request, name).map(done),
            Operation::Rename { name, to_directory, to, flags } => {
                self.rename(request, name, (to_directory, to), flags).map(done)
            }
            Operation::Open { flags } => self.open(request, flags),
            Operation::Create { name, flags, mode, umask } => {
                self.create(request, name, flags, mode & !umask)
            }
            Operation::Read { file, offset, size } => self.read(file, offset, size),
            Operation::Write { file, offset, write_flags, flags, data } => {
                self.write(request.header.unique, file, offset, (write_flags, flags), data)
            }
            Operation::Flush => Ok(done(())),
            Operation::Release { file } => self.release(file).map(done),
            Operation::Sync { file } => self.sync(file).map(done),
            Operation::OpenDirectory => self.open_directory(request),
            Operation::ReadDirectory { file, offset, size } => {
                self.read_directory(request, file, offset, size)
            }
            Operation::ReleaseDirectory { file } => {
                self.listings.remove(file);
                Ok(done(()))
            }
            Operation::StatFs => self.file_system(request),
            Operation::GetExtended { name, size } => self.extended(request, name, size),
            Operation::ListExtended { size } => self.list_extended(request, size),
            Operation::Seek { file, offset, whence } => self.seek(file, offset, whence),
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

    /// Does something with a name in a directory, or of a node. While a directory above it is being renamed it has two names: if it
    /// is not there by the one, it is asked again.
    pub fn steadily<T>(&self, node: u64, mut what: impl FnMut() -> Outcome<T>) -> Outcome<T> {
        /// So long a rename may take that is waited for, in steps of two milliseconds.
        const STEPS: u32 = 1000;
        for _ in 0..STEPS {
            let before = lock(&self.nodes).nodes.path(node);
            let outcome = what();
            if !matches!(outcome, Err(Failure(Errno::NOENT | Errno::STALE))) {
                return outcome;
            }
            let moving: Vec<u64> = lock(&self.moves.0).keys().copied().collect();
            let nodes = lock(&self.nodes);
            let is_moving = moving.iter().any(|directory| nodes.nodes.is_below(node, *directory));
            if !is_moving && nodes.nodes.path(node) == before {
                return outcome;
            }
            drop(nodes);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        what()
    }

    /// What has the name of a node: that node, or it is stale.
    pub fn entry(&self, request: &Request<'_>, node: u64) -> Outcome<EntryInfo> {
        let path = self.path(node)?;
        let entry = self.callers.ask(&request.caller, |errand| errand.look(&path))?;
        let object = lock(&self.nodes).nodes.object(node);
        match object == crate::entry::identity(&entry) {
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
