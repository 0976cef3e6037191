//! What all primitives have in common: an object, its memory, and who uses it.

use super::words::Words;
use crate::link::wrong_reply;
use crate::{
    Access, Coherence, CreateOptions, Error, ErrorKind, Host, MapOptions, Mapping, Object, OnLoss, Result,
};
use commonhold_object::error::Doing;
use commonhold_object::wire::{Reply, Request};
use commonhold_primitives::{Kind, MEMBERS, MOST, Mapped, Refused, Who, forks, thread};
use commonhold_sys::memory::FileWindow;
use rustix::fs::SealFlags;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How to create primitives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncOptions {
    /// Mode bits. Whoever uses one needs `r` and `w`.
    pub mode: u32,
    /// How many the object holds, each a primitive of its own: from 1 to 65,536.
    pub count: u32,
    /// Processes of all hosts of the cluster use them; else those of this host alone.
    pub between_hosts: bool,
}

impl Default for SyncOptions {
    fn default() -> Self {
        SyncOptions { mode: 0o600, count: 1, between_hosts: false }
    }
}

/// Primitives of an object that this process has open.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) memory: Words,
    /// What they lie in. Dropped after that.
    _mapped: Kept,
    object: Object,
    host: Host,
    kind: Kind,
    /// By which number the host knows this process, and the forks when it was asked.
    member: AtomicU64,
}

/// What is mapped.
#[derive(Debug)]
enum Kept {
    /// The object.
    Object { _mapping: Mapping },
    /// Words of this host beside it.
    Words { _window: FileWindow },
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) inner: Arc<Inner>,
    pub(crate) at: usize,
}

impl Place {
    pub(crate) fn create(host: &Host, name: &str, kind: Kind, options: &SyncOptions) -> Result<Place> {
        if !kind.is_valid() {
            let most =
                if matches!(kind, Kind::Barrier { .. }) { Kind::MOST_PARTIES } else { Kind::MOST_VALUE };
            return Err(Error::invalid(format!(
                "{name} cannot be a {kind}: {most} is the most, and no barrier has 0"
            )));
        }
        if options.count == 0 || u64::from(options.count) > MOST {
            let count = options.count;
            return Err(Error::invalid(format!("an object holds 1 to {MOST} primitives, not {count}")));
        }
        let coherence =
            if options.between_hosts { Coherence::strict(OnLoss::default()) } else { Coherence::Local };
        let wanted = CreateOptions {
            coherence,
            size_bytes: kind.bytes() as u64 * u64::from(options.count),
            mode: options.mode,
            description: kind.description(),
            ..CreateOptions::default()
        };
        let object = host.create(name, &wanted, None)?;
        Self::of(host, object, kind).inspect_err(|_| {
            // It was made just now, and is of no use. If this fails, too, the first error says more.
            let _ = host.remove(name);
        })
    }

    pub(crate) fn open(host: &Host, name: &str, word: &str) -> Result<Place> {
        let object = host.open(name, Access::ReadWrite)?;
        let description = &object.options().description;
        let kind = Kind::of_description(description).filter(|kind| kind.word() == word).ok_or_else(|| {
            let what = format!(
                "object {name} is no {word}: its description is {description:?}; open it as what it is, or create one"
            );
            Error::new(ErrorKind::Mismatch, what)
        })?;
        Self::of(host, object, kind)
    }

    /// Opens it; if there is none, creates it. Who comes at the same time gets the same.
    pub(crate) fn open_or_create(
        host: &Host,
        name: &str,
        kind: Kind,
        options: &SyncOptions,
    ) -> Result<Place> {
        loop {
            match Self::open(host, name, kind.word()) {
                Err(error) if error.kind == ErrorKind::NotFound => {}
                opened => return opened,
            }
            match Self::create(host, name, kind, options) {
                Err(error) if error.kind == ErrorKind::Exists => {}
                created => return created,
            }
        }
    }

    fn of(host: &Host, object: Object, kind: Kind) -> Result<Place> {
        let name = object.core.label();
        let is_none =
            |why: &str| Err(Error::new(ErrorKind::Mismatch, format!("object {name} {why}: create another")));
        let bytes = object.size_bytes() as usize;
        let holds = Kind::of_object(&object.options().description, object.size_bytes());
        let is_shared = object.options().coherence.is_forwarded();
        if object.core.is_controlled() != is_shared || holds != Some(kind) {
            return is_none("holds no primitives, whatever its description says");
        }
        // So that the next host learns that this process has it.
        let doing = "starting the thread that watches the connection to the host";
        object.core.shared().ensure_watcher().doing(doing)?;
        let words = if is_shared { Some(object.core.ask_for_words()?) } else { None };
        let seals = rustix::fs::fcntl_get_seals(words.as_ref().unwrap_or(object.core.fd()));
        let seals = seals.doing(format_args!("asking for the seals of {name}"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return is_none("may become shorter, as a host of an earlier version makes it");
        }
        let (start, kept) = match &words {
            Some(words) => {
                let window =
                    FileWindow::for_writing(words, 0, bytes).doing("mapping locks of several hosts")?;
                (NonNull::new(window.as_ptr().cast_mut()), Kept::Words { _window: window })
            }
            None => {
                let mapping = object.map(&MapOptions::default())?;
                let start = NonNull::new(mapping.as_ptr()).filter(|_| bytes <= mapping.len());
                (start, Kept::Object { _mapping: mapping })
            }
        };
        let Some(start) = start else { return is_none("is not mapped whole") };
        // SAFETY: mapped shared and writable, page-aligned, for as long as the mapping is kept beside it; the memory keeps
        // its size by its seal. Nobody else in this process is given the address.
        let mapped = unsafe { Mapped::new(start, bytes) };
        let memory = match &words {
            Some(words) => Words::between_hosts(mapped, kind, &object.core, words)?,
            None => Words::of_host(mapped),
        };
        thread(); // from now on forks are counted
        let member = AtomicU64::new(known(ask_member(&object)?));
        let inner = Inner { memory, _mapped: kept, object, host: host.clone(), kind, member };
        Ok(Place { inner: Arc::new(inner), at: 0 })
    }

    pub(crate) fn count(&self) -> u32 {
        (self.inner.object.size_bytes() / self.inner.kind.bytes() as u64) as u32
    }

    pub(crate) fn nth(&self, index: u32) -> Result<Place> {
        let count = self.count();
        if index >= count {
            let name = self.inner.object.core.label();
            return Err(Error::invalid(format!(
                "{name} holds {count}, from number 0 on, and {index} was asked for"
            )));
        }
        Ok(Place { inner: self.inner.clone(), at: index as usize * self.inner.kind.bytes() })
    }

    /// What its object was created with, of a kind that has a number.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.inner.kind.number()
    }

    /// Whether hosts share it: then it is a monitor.
    #[inline]
    pub(crate) fn is_between_hosts(&self) -> bool {
        self.inner.memory.are_between_hosts()
    }

    pub(crate) fn explained<T>(&self, done: std::result::Result<T, Refused>) -> Result<T> {
        done.map_err(|refused| self.explain(refused))
    }

    pub(crate) fn object(&self) -> &Object {
        &self.inner.object
    }

    /// This thread, as the host knows it.
    #[inline]
    pub(crate) fn who(&self) -> Result<Who> {
        match self.who_is_known() {
            Some(who) => Ok(who),
            None => self.find_out(),
        }
    }

    /// The same, unless the process was forked since.
    #[inline]
    pub(crate) fn who_is_known(&self) -> Option<Who> {
        let known = self.inner.member.load(Ordering::Relaxed);
        let is_known = (known >> 32) as u32 == forks() && !self.inner.memory.are_in_doubt();
        is_known.then(|| Who { member: known as u32, thread: thread() })
    }

    #[cold]
    fn find_out(&self) -> Result<Who> {
        let (inner, thread) = (&*self.inner, thread());
        let known = inner.member.load(Ordering::Relaxed);
        let who = match (known >> 32) as u32 == forks() {
            true => Who { member: known as u32, thread },
            false => self.after_fork(thread)?,
        };
        if inner.memory.are_in_doubt() && !inner.memory.are_given()? {
            return Err(self.explain(Refused::Gone));
        }
        Ok(who)
    }

    /// A fork child opens it for itself, so that the host frees what it had when it ends.
    fn after_fork(&self, thread: u32) -> Result<Who> {
        let inner = &*self.inner;
        let name = inner.object.core.label();
        let own = inner.host.open(&name, Access::ReadWrite)?;
        if own.uuid() != inner.object.uuid() {
            let what = format!("{name} was removed, and another has its name: a fork child cannot use it");
            return Err(Error::new(ErrorKind::Lost, what));
        }
        let member = ask_member(&own)?;
        // Open as long as this process lives: another thread may be doing the same, and who has it in its hands may be gone.
        std::mem::forget(own);
        inner.member.store(known(member), Ordering::Relaxed);
        Ok(Who { member, thread })
    }

    pub(crate) fn explain(&self, refused: Refused) -> Error {
        let inner = &*self.inner;
        let (name, word) = (inner.object.core.label(), inner.kind.word());
        let owner = || {
            // A lock's first word is its writer's mutex.
            let has = commonhold_primitives::Mutex(self.at).owner(&inner.memory);
            has.map_or_else(String::new, |who| {
                format!("; thread {} of process {} has it", who.thread, who.pid())
            })
        };
        let (kind, what) = match refused {
            Refused::TimedOut => (ErrorKind::TimedOut, match inner.kind {
                Kind::Mutex | Kind::RwLock => format!("it was not free before the deadline{}", owner()),
                Kind::Condition => "nobody signalled before the deadline".to_owned(),
                Kind::Semaphore { .. } => "its value was 0 until the deadline".to_owned(),
                Kind::Barrier { parties } => format!("not all {parties} were there before the deadline"),
                Kind::Counter => "its value stayed until the deadline".to_owned(),
            }),
            Refused::Deadlock => (ErrorKind::Deadlock, "this thread has it already".to_owned()),
            Refused::NotOwner => (ErrorKind::NotOwner, format!("this thread does not have it{}", owner())),
            Refused::OwnerDied => (
                ErrorKind::OwnerDied,
                "who had it died, so that what it guards may be half changed: take it to mend that, and say so".to_owned(),
            ),
            Refused::TooManyMembers => (
                ErrorKind::TooMany,
                format!("{MEMBERS} processes use it at once, the limit: let some of them end, or use a mutex"),
            ),
            Refused::Overflow => (ErrorKind::Invalid, format!("its value would be above {}", Kind::MOST_VALUE)),
            Refused::Broken => (
                ErrorKind::Broken,
                "the round was broken: a process that it waits for ended, or somebody gave it up".to_owned(),
            ),
            Refused::Gone => (
                ErrorKind::Lost,
                "the host and its keeper died, and who had it is not known: open it again".to_owned(),
            ),
        };
        Error::new(kind, format!("{word} {name}: {what}"))
    }
}

/// What a process is known by, until it forks.
fn known(member: u32) -> u64 {
    u64::from(forks()) << 32 | u64::from(member)
}

fn ask_member(object: &Object) -> Result<u32> {
    match object.core.ask(&Request::Member)? {
        Reply::Member(member) => Ok(member),
        _ => Err(wrong_reply()),
    }
}

/// What each kind has: others of the same object.
macro_rules! placed {
    ($kind:ident) => {
        impl $kind {
            /// How many the object holds.
            pub fn count(&self) -> u32 {
                self.place.count()
            }

            /// Another one of the object; this is number 0 unless it came from here.
            pub fn at(&self, index: u32) -> crate::Result<$kind> {
                self.place.nth(index).map(|place| $kind { place })
            }

            /// The object that holds it.
            pub fn object(&self) -> &crate::Object {
                self.place.object()
            }
        }
    };
}
pub(super) use placed;
