//! Channels: named queues of messages in shared memory. `docs/MESSAGES.md`.

mod errors;
mod landings;
mod offers;

pub(crate) use commonhold_channel::Wait;
pub use landings::Region;
pub(crate) use landings::{Private, private};

use crate::{
    Access, CreateOptions, Error, ErrorKind, Host, MapOptions, Mapping, Object, Result, Translation,
};
use commonhold_channel::{Buffer, Form, Mapped, Queue, Refused, bytes_for, is_ready};
use commonhold_object::CHANNEL_DESCRIPTION;
use commonhold_object::error::Doing;
use errors::Asked;
use rustix::fs::SealFlags;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How to create a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelOptions {
    /// Bytes that may be in it at once, 16 for each message beside its own; rounded up to a power
    /// of two, 4 KiB at least and 1 GiB at most.
    pub capacity_bytes: u64,
    /// [`Translation::Paged`], or [`Translation::Wired`]: no page fault ever happens in it.
    pub translation: Translation,
    /// Mode bits. Whoever receives needs `w`, too.
    pub mode: u32,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        ChannelOptions { capacity_bytes: 64 << 10, translation: Translation::Paged, mode: 0o600 }
    }
}

/// A message that was received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message {
    /// Chosen by who sent it.
    pub kind: u32,
    /// What it holds in line.
    pub bytes: Vec<u8>,
    /// What landed in memory that this process posted.
    pub region: Option<Region>,
    /// The object that came with it: this process has it open, as the sender stated.
    pub object: Option<Object>,
}

/// What is known of a message whose bytes are in a buffer of the program.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// Chosen by who sent it.
    pub kind: u32,
    /// Bytes in the buffer.
    pub length: usize,
    /// What landed in memory that this process posted.
    pub region: Option<Region>,
    /// The object that came with it: this process has it open, as the sender stated.
    pub object: Option<Object>,
}

impl Received {
    fn with(self, bytes: Vec<u8>) -> Message {
        let Received { kind, region, object, .. } = self;
        Message { kind, bytes, region, object }
    }
}

/// A named queue of messages. Clones share it. Any number of threads and processes may send and
/// receive; each message is received once.
///
/// ```no_run
/// use commonhold::{Channel, ChannelOptions, Host};
/// use std::time::{Duration, Instant};
///
/// let host = Host::connect()?;
/// let commands = Channel::create(&host, "/lab/commands", &ChannelOptions::default())?;
/// let soon = Some(Instant::now() + Duration::from_secs(1));
/// commands.send(1, b"left 3", soon)?;
///
/// // Maybe in another process:
/// let message = Channel::open(&host, "/lab/commands")?.receive(soon)?;
/// assert_eq!((message.kind, &message.bytes[..]), (1, &b"left 3"[..]));
/// # Ok::<(), commonhold::Error>(())
/// ```
///
/// A deadline of `None` is for ever. A call that its deadline ended has changed nothing, and is
/// [`ErrorKind::TimedOut`]. While another thread has the queue for itself others wait, ten seconds
/// at most; the error then names that thread.
#[derive(Clone, Debug)]
pub struct Channel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: Queue<Mapped>,
    /// What the queue lies in. Dropped after it.
    _mapping: Mapping,
    object: Object,
    host: Host,
    /// Among all of this process.
    number: u64,
    /// Bytes of regions that were copied by this process.
    landed_bytes: AtomicU64,
}

impl Channel {
    /// Creates a channel, and opens it.
    pub fn create(host: &Host, name: &str, options: &ChannelOptions) -> Result<Channel> {
        let size_bytes = bytes_for(options.capacity_bytes).ok_or_else(|| {
            let asked = options.capacity_bytes;
            Error::invalid(format!("a channel of {asked} bytes is too large: 1 GiB at most; send regions"))
        })?;
        let wanted = CreateOptions {
            size_bytes,
            translation: options.translation,
            mode: options.mode,
            description: CHANNEL_DESCRIPTION.to_owned(),
            ..CreateOptions::default()
        };
        if !wanted.is_channel() {
            let word = options.translation.word();
            return Err(Error::invalid(format!("a channel is paged or wired, and {word} was asked for")));
        }
        let object = host.create(name, &wanted, None)?;
        Self::of(host, object).inspect_err(|_| {
            // It was made just now, and is of no use. If this fails, too, the first error says
            // more.
            let _ = host.remove(name);
        })
    }

    /// Opens a channel: to send, to receive, or both.
    pub fn open(host: &Host, name: &str) -> Result<Channel> {
        let opened = host.open(name, Access::ReadWrite).map_err(|error| match error.kind {
            ErrorKind::Permission => {
                let why = "a channel is read and written by all who use it, also by who only receives";
                Error::new(ErrorKind::Permission, format!("{error}; {why}"))
            }
            _ => error,
        })?;
        Self::of(host, opened)
    }

    fn of(host: &Host, object: Object) -> Result<Channel> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let is_none = |why: &str| {
            let name = object.core.label();
            Error::new(ErrorKind::Mismatch, format!("object {name} is no channel: {why}; create one"))
        };
        let options = object.options();
        if !options.is_channel() {
            return Err(is_none(&format!(
                "its description is {:?}, and it is {}",
                options.description,
                options.translation.word()
            )));
        }
        // Of memory that may become shorter under a process a touch is SIGBUS. An arena is its
        // class's own.
        let seals = rustix::fs::fcntl_get_seals(object.core.fd());
        let seals = seals.doing(format_args!("asking for the seals of {}", object.core.label()))?;
        if object.core.place().is_none() && !seals.contains(SealFlags::SHRINK) {
            return Err(is_none("its memory may become shorter, as a host of an earlier version makes it"));
        }
        // The host has to know, also the next, that it is open: its mode stays then.
        let doing = "starting the thread that watches the connection to the host";
        object.core.shared().ensure_watcher().doing(doing)?;
        let mapping = object.map(&MapOptions::default())?;
        let bytes = object.size_bytes() as usize;
        let start = NonNull::new(mapping.as_ptr()).filter(|_| bytes <= mapping.len());
        let start = start.ok_or_else(|| is_none("not all of it is mapped"))?;
        // SAFETY: mapped shared and writable, page-aligned, for as long as the mapping is kept
        // beside it; the memory keeps its size by its seal. Nobody else in this process is given
        // the address.
        let memory = unsafe { Mapped::new(start, bytes) };
        let queue = Queue::open(memory).map_err(|_| is_none("what is in it is none of this version"))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (host, landed_bytes) = (host.clone(), AtomicU64::new(0));
        let inner = Inner { queue, _mapping: mapping, object, host, number, landed_bytes };
        Ok(Channel { inner: Arc::new(inner) })
    }

    /// The object that it is.
    pub fn object(&self) -> &Object {
        &self.inner.object
    }

    /// The host that it is at.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// Bytes of the largest message that it takes in line.
    pub fn most_bytes(&self) -> usize {
        self.inner.queue.most_bytes()
    }

    /// Bytes that this process copied for messages of this channel, in line and into landings.
    pub fn copied_bytes(&self) -> u64 {
        self.inner.queue.copied_bytes() + self.inner.landed_bytes.load(Ordering::Relaxed)
    }

    /// Sends bytes. Waits for room, until the deadline.
    pub fn send(&self, kind: u32, bytes: &[u8], deadline: Option<Instant>) -> Result<()> {
        let wait = Wait::from(deadline);
        let full = || Err(self.explain(Refused::Full, Asked { bytes: bytes.len(), wait }));
        if self.put(kind, bytes, wait)? { Ok(()) } else { full() }
    }

    /// Sends bytes if there is room now, and nobody else is in the queue ([`ErrorKind::Busy`]);
    /// gives whether there was. Makes no system call, unless somebody waits for the message.
    pub fn try_send(&self, kind: u32, bytes: &[u8]) -> Result<bool> {
        self.put(kind, bytes, Wait::No)
    }

    /// Sends bytes; gives whether there was room in time.
    pub(crate) fn put(&self, kind: u32, bytes: &[u8], wait: Wait) -> Result<bool> {
        self.ready()?;
        match self.inner.queue.send(kind, bytes, wait) {
            Ok(()) => Ok(true),
            Err(Refused::Full) => Ok(false),
            Err(refused) => Err(self.explain(refused, Asked { bytes: bytes.len(), wait })),
        }
    }

    /// Receives the next message. Waits for one, until the deadline.
    pub fn receive(&self, deadline: Option<Instant>) -> Result<Message> {
        let mut bytes = Vec::new();
        let received = self.receive_into(&mut bytes, deadline)?;
        Ok(received.with(bytes))
    }

    /// Receives a message if there is one now, and nobody else is in the queue
    /// ([`ErrorKind::Busy`]). Makes no system call, unless somebody waits for room, or the message
    /// has an object.
    pub fn try_receive(&self) -> Result<Option<Message>> {
        let mut bytes = Vec::new();
        let received = self.try_receive_into(&mut bytes)?;
        Ok(received.map(|received| received.with(bytes)))
    }

    /// As [`receive`](Self::receive), into a buffer of the program: a vector, which becomes as long
    /// as the message, or a slice. A message that is longer than a slice is [`ErrorKind::Invalid`],
    /// and stays.
    pub fn receive_into(&self, buffer: &mut impl Buffer, deadline: Option<Instant>) -> Result<Received> {
        let wait = Wait::from(deadline);
        let empty = || self.explain(Refused::Empty, Asked { bytes: 0, wait });
        self.take(buffer, wait)?.ok_or_else(empty)
    }

    /// As [`try_receive`](Self::try_receive), into a buffer of the program.
    pub fn try_receive_into(&self, buffer: &mut impl Buffer) -> Result<Option<Received>> {
        self.take(buffer, Wait::No)
    }

    /// Receives a message, if one comes in time.
    pub(crate) fn take(&self, buffer: &mut impl Buffer, wait: Wait) -> Result<Option<Received>> {
        self.ready()?;
        match self.inner.queue.receive(buffer, wait) {
            Ok(received) => self.received(received).map(Some),
            Err(Refused::Empty) => Ok(None),
            Err(refused) => Err(self.explain(refused, Asked { bytes: 0, wait })),
        }
    }

    fn received(&self, received: commonhold_channel::Received) -> Result<Received> {
        let (mut region, mut object) = (None, None);
        match received.form {
            Form::Bytes => {}
            Form::Landed(landing, length) => region = Some(self.landed(landing, length)?),
            Form::Offered(token) => object = Some(self.take_offer(token)?),
        }
        Ok(Received { kind: received.kind, length: received.length, region, object })
    }

    /// A thread whose death the kernel would not tell may not take the lock.
    fn ready(&self) -> Result<()> {
        if is_ready() {
            return Ok(());
        }
        let what = "this thread was not made by the C library, and the kernel would not free the \
        locks that it has when it dies: use channels in another";
        Err(Error::new(ErrorKind::Unsupported, what))
    }
}
