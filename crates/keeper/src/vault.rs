//! The vault: what the host keeps with its keeper, and a mirror of it from which the next keeper is filled.

mod replace;

use crate::config::check_program;
use crate::deadline::ENDED_PART;
use crate::kept::{Generation, Kept, Key};
use crate::limits;
use crate::link::{self, Covered, Link};
use crate::protocol::{self, FromKeeper, ToKeeper};
use crate::store::{Store, Thing};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_sys::process;
use commonhold_sys::socket::{self, Wait};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::process::{WaitId, WaitIdOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The host's side of the keeper. Clones are the same vault; all methods may be called from any thread.
///
/// A change is in the mirror, and in the keeper's socket, when the method returns: it survives the host's death from
/// then on. While no keeper lives it is in the mirror alone, and survives once [`Vault::replace_keeper`] has filled
/// the next. That is no error of `put`: the host learns it from [`Vault::watch_fd`].
///
/// No call waits longer than a second for the keeper: one that takes no messages for so long is taken for hung, is
/// killed, and counts as gone.
#[derive(Clone, Debug)]
pub struct Vault {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// An epoll set: the keeper's pidfd and socket, and `alarm`.
    watch: OwnedFd,
    /// Readable while `gone` waits to be told.
    alarm: OwnedFd,
}

#[derive(Debug)]
struct State {
    store: Store,
    link: Option<Link>,
    /// Why there is no keeper, until [`Vault::next_event`] has told it.
    gone: Option<String>,
    generation: Generation,
    replacing: bool,
    buffer: Vec<u8>,
    /// Keepers that ended and may be children to reap.
    ended: Vec<OwnedFd>,
}

/// What a host finds when it starts.
#[derive(Debug)]
pub struct Inheritance {
    /// Everything kept, in the order of keys.
    pub kept: Vec<Kept>,
    /// This host's generation: 1 for the first.
    pub generation: Generation,
    /// Whether `kept` is all that was ever put. Not so if the last host died while it filled a new keeper: then the
    /// rest must come from the clients, as if host and keeper had died together.
    pub complete: bool,
}

/// What happened to the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEvent {
    /// It is gone: call [`Vault::replace_keeper`]. Says why.
    Gone(String),
    /// While no host served it ended waits that were too long: the blob is one of
    /// [`EndedFaults`](crate::EndedFaults). Forget the key when the pages are healed.
    Ended {
        /// Under which it is kept.
        key: Key,
        /// What is written of it.
        blob: Vec<u8>,
    },
    /// It did not do what it was told. Worth a line in the log: it is a fault in this program.
    Problem(String),
}

impl Vault {
    /// A vault without a keeper, for a host that nobody keeps (yet).
    pub fn alone() -> Result<Vault> {
        let limit = limits::keepable(limits::raise_descriptor_limit());
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).doing("cannot make the vault")?;
        let alarm =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).doing("cannot make the vault")?;
        add_to(&watch, &alarm).doing("cannot make the vault")?;
        let state = State {
            store: Store::new(limit),
            link: None,
            gone: None,
            generation: 0,
            replacing: false,
            buffer: Vec::new(),
            ended: Vec::new(),
        };
        Ok(Vault { inner: Arc::new(Inner { state: Mutex::new(state), watch, alarm }) })
    }

    /// A starting host's vault, and everything that the keeper at the other end of `socket` holds (`--keeper-fd`).
    pub fn inherited(socket: OwnedFd) -> Result<(Vault, Inheritance)> {
        let vault = Vault::alone()?;
        let pid = socket::peer(&socket).doing("cannot ask who the keeper is")?.pid;
        let pidfd = socket::peer_pidfd(&socket).doing("cannot watch the keeper")?;
        let handed = link::receive_all(&socket)?;
        let mut state = vault.lock();
        state.generation = handed.generation;
        state.store.descriptor_limit = state.store.descriptor_limit.min(handed.descriptors);
        for kept in &handed.kept {
            state.store.put(kept.key.clone(), Thing { blob: kept.blob.clone(), fd: kept.fd.clone() });
        }
        let link = Link { socket, pidfd, pid, covered: Covered::All };
        vault.install(&mut state, link).doing("cannot watch the keeper")?;
        drop(state);
        let link::Handed { kept, generation, complete, .. } = handed;
        Ok((vault, Inheritance { kept, generation, complete }))
    }

    /// Keeps a thing, in place of what has that key. An error (a limit) has changed nothing.
    pub fn put(&self, key: &Key, blob: &[u8], fd: Option<Arc<OwnedFd>>) -> Result<()> {
        let mut state = self.lock();
        state.store.check_put(key, blob.len(), fd.is_some())?;
        let kept = state.store.get(key);
        let same = kept.is_some_and(|old| match (&old.fd, &fd) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            _ => false,
        });
        let name = key.0.as_str();
        let message = if same {
            ToKeeper::Update { key: name, blob }
        } else {
            ToKeeper::Put { key: name, blob, fd: fd.is_some() }
        };
        let travelling = fd.as_ref().filter(|_| !same).map(|fd| fd.as_fd());
        self.tell_about(&mut state, key, &message, travelling);
        let replaced = state.store.put(key.clone(), Thing { blob: blob.to_vec(), fd });
        drop(state); // closing the last descriptor of a big file takes time: not under the lock
        drop(replaced);
        Ok(())
    }

    /// Replaces the blob of a kept thing; its descriptor stays.
    pub fn update_blob(&self, key: &Key, blob: &[u8]) -> Result<()> {
        let mut state = self.lock();
        state.store.check_update(key, blob.len())?;
        self.tell_about(&mut state, key, &ToKeeper::Update { key: &key.0, blob }, None);
        state.store.update(key, blob);
        Ok(())
    }

    /// Keeps a thing no longer. Nothing happens if it is not there.
    pub fn forget(&self, key: &Key) {
        let mut state = self.lock();
        if state.store.get(key).is_some() {
            self.tell_about(&mut state, key, &ToKeeper::Forget { key: &key.0 }, None);
        }
        let removed = state.store.remove(key);
        drop(state);
        drop(removed);
    }

    /// What is kept under `key`, from the mirror.
    pub fn get(&self, key: &Key) -> Option<Kept> {
        let state = self.lock();
        let thing = state.store.get(key)?;
        Some(Kept { key: key.clone(), blob: thing.blob.clone(), fd: thing.fd.clone() })
    }

    /// How many things are kept, and how many descriptors with them.
    pub fn kept(&self) -> (usize, usize) {
        let state = self.lock();
        (state.store.len(), state.store.descriptors())
    }

    /// How many bytes of blobs are kept.
    pub fn kept_bytes(&self) -> usize {
        self.lock().store.blob_bytes()
    }

    /// How many things are kept of these sessions together, and how many bytes of blobs.
    pub fn kept_of(&self, sessions: impl IntoIterator<Item = u64>) -> (usize, usize) {
        let state = self.lock();
        let each = sessions.into_iter().map(|session| state.store.of_session(session));
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The keeper's process; 0 while there is none.
    pub fn keeper_pid(&self) -> u32 {
        self.lock().link.as_ref().map_or(0, |link| link.pid)
    }

    /// This host's generation: how many hosts were started, this one included. 0 for a host that no keeper started.
    pub fn generation(&self) -> Generation {
        self.lock().generation
    }

    /// Readable (level-triggered) while [`Vault::next_event`] has something to say: for the host's own poll or epoll.
    pub fn watch_fd(&self) -> BorrowedFd<'_> {
        self.inner.watch.as_fd()
    }

    /// What happened to the keeper, if anything. Call until `None` when [`Vault::watch_fd`] is readable.
    pub fn next_event(&self) -> Option<KeeperEvent> {
        let mut state = self.lock();
        self.inner.hear(&mut state)
    }

    /// The host serves: what is kept is complete again, and its program is good. Until then, a program that
    /// [`Vault::restart_me`] named and that dies young is followed by the one before it.
    pub fn ready(&self) {
        self.tell(&mut self.lock(), &ToKeeper::Ready);
    }

    /// The keeper shall end when this host ends.
    pub fn exit(&self) {
        self.tell(&mut self.lock(), &ToKeeper::Exit);
    }

    /// The host is about to exit: the keeper shall start `program` (None: the same again) in its place, at once. Refused
    /// if there is no keeper, or nothing to start: then the host must stay.
    pub fn restart_me(&self, program: Option<&Path>) -> Result<()> {
        program.map(check_program).transpose()?;
        let program = program.map(|program| program.as_os_str().as_bytes());
        let mut state = self.lock();
        if state.link.as_ref().is_some_and(|link| link.covered == Covered::All) {
            self.tell(&mut state, &ToKeeper::Restart { program });
        }
        match &state.link {
            Some(link) if link.covered == Covered::All => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Disconnected,
                "the host cannot be restarted while it has no keeper: try again when a new one is filled",
            )),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole before anything can panic.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_about(&self, state: &mut State, key: &Key, message: &ToKeeper<'_>, fd: Option<BorrowedFd<'_>>) {
        if state.link.as_ref().is_some_and(|link| link.covers(key)) {
            self.inner.send(state, message, fd);
        }
    }

    fn tell(&self, state: &mut State, message: &ToKeeper<'_>) {
        self.inner.send(state, message, None);
    }

    fn install(&self, state: &mut State, link: Link) -> io::Result<()> {
        add_to(&self.inner.watch, &link.pidfd)?;
        add_to(&self.inner.watch, &link.socket)?;
        state.link = Some(link);
        state.gone = None;
        let _ = rustix::io::read(&self.inner.alarm, &mut [0; 8]);
        Ok(())
    }
}

impl Inner {
    /// Sends to the keeper, if there is one; one that cannot be told is gone.
    fn send(&self, state: &mut State, message: &ToKeeper<'_>, fd: Option<BorrowedFd<'_>>) {
        let Some(link) = &state.link else { return };
        let sent = protocol::encode(message, &mut state.buffer).and_then(|()| link.send(&state.buffer, fd));
        if let Err(error) = sent {
            self.lose(state, format!("telling it failed: {error}"));
        }
    }

    /// The keeper counts as gone, and is.
    fn lose(&self, state: &mut State, why: String) {
        let Some(link) = state.link.take() else { return };
        link.kill();
        let _ = epoll::delete(&self.watch, &link.pidfd);
        let _ = epoll::delete(&self.watch, &link.socket);
        state.gone = Some(format!("keeper {} is gone: {why}", link.pid));
        state.ended.push(link.pidfd);
        let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
    }

    fn hear(&self, state: &mut State) -> Option<KeeperEvent> {
        state.ended.retain(|pidfd| !reaped(pidfd));
        if let Some(link) = &state.link {
            state.buffer.resize(protocol::MESSAGE_BYTES, 0);
            let mut fds = Vec::new();
            match socket::receive(&link.socket, &mut state.buffer, &mut fds, Wait::No) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !process::has_ended(&link.pidfd) => {
                    return None;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.lose(state, "it ended".to_owned()),
                Err(e) => self.lose(state, e.to_string()),
                Ok(0) => self.lose(state, "it closed its socket".to_owned()),
                Ok(length) => {
                    return Some(match link::decode(&state.buffer[..length]) {
                        Ok(FromKeeper::Problem { text }) => KeeperEvent::Problem(text.to_owned()),
                        Ok(FromKeeper::Kept { key, blob, fd: false }) if key.contains(ENDED_PART) => {
                            let (key, blob) = (Key::new(key), blob.to_vec());
                            state.store.put(key.clone(), Thing { blob: blob.clone(), fd: None });
                            KeeperEvent::Ended { key, blob }
                        }
                        Ok(_) => KeeperEvent::Problem("the keeper hands over twice".to_owned()),
                        Err(error) => KeeperEvent::Problem(error.message),
                    });
                }
            }
        }
        let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
        state.gone.take().map(KeeperEvent::Gone)
    }
}

fn add_to(set: &OwnedFd, fd: &OwnedFd) -> io::Result<()> {
    Ok(epoll::add(set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

/// Whether nothing is left to reap: it was our child and is reaped, or was not our child.
fn reaped(pidfd: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options), Ok(None))
}
