//! Callers: who asks the kernel, and how the host is asked in his name.
//!
//! A mount for all users has root's rights and lends them to nobody: what it asks of the host it asks as the caller, by
//! connections that were made as that user, so that the host alone decides, and counts quotas, as without a mount. A thread that
//! works for somebody has his effective user, group and supplementary groups meanwhile. Its real user stays root: so he cannot
//! send it signals.

use crate::fuse::Header;
use crate::lock;
use commonhold::{Errand, Error, ErrorKind, ObjectId, Result};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// How long the host may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections of one caller at most.
const LINES: usize = 8;
/// Objects that are open on one of them, before the next is begun.
const OPENED: usize = 2048;
/// A connection that was of no use for so long is closed.
const IDLE: Duration = Duration::from_secs(30);

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Caller {
    /// Who asked that. Its thread waits for the answer, so that it is there to be asked for its groups; in another pid name space
    /// it cannot be, and has none.
    pub fn of(header: &Header) -> Caller {
        let groups = if header.pid == 0 { Vec::new() } else { groups_of(header.pid).unwrap_or_default() };
        Caller { uid: header.uid, gid: header.gid, groups }
    }
}

fn groups_of(pid: u32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_whitespace().map(|group| group.parse().ok()).collect()
}

/// This thread acts for somebody until it is dropped. While it does, it begins to act for nobody else.
pub struct Acting(Option<Vec<Gid>>);

impl Acting {
    /// Takes his rights, and no others.
    fn begin(caller: &Caller) -> io::Result<Acting> {
        let acting = Acting(Some(rustix::process::getgroups()?));
        let groups: Vec<Gid> = caller.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(None::<Gid>, Gid::from_raw(caller.gid), None::<Gid>)?;
        set_thread_res_uid(None::<Uid>, Uid::from_raw(caller.uid), None::<Uid>)?;
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let Some(own) = &self.0 else { return };
        let back = set_thread_res_uid(None::<Uid>, Uid::ROOT, None::<Uid>)
            .and_then(|()| set_thread_res_gid(None::<Gid>, Gid::ROOT, None::<Gid>))
            .and_then(|()| set_thread_groups(own));
        if back.is_err() {
            // Nothing more may be done by this thread in anybody's name.
            std::process::abort();
        }
    }
}

/// A connection to the host that was made as one caller.
pub struct Line {
    caller: Caller,
    errand: Mutex<Option<Errand>>,
    /// Objects that are open on it, and how often.
    opened: Mutex<HashMap<ObjectId, u32>>,
    used: Mutex<Instant>,
}

/// The callers' connections.
pub struct Callers {
    directory: PathBuf,
    /// Who this process is, if it acts for nobody else.
    alone: Option<Caller>,
    lines: Mutex<HashMap<Caller, Vec<Arc<Line>>>>,
}

impl Callers {
    /// For the host of that state directory. Only root acts for others.
    pub fn new(directory: PathBuf) -> io::Result<Callers> {
        let uid = rustix::process::geteuid();
        let groups = rustix::process::getgroups()?.into_iter().map(Gid::as_raw).collect();
        let own = Caller { uid: uid.as_raw(), gid: rustix::process::getegid().as_raw(), groups };
        Ok(Callers { directory, alone: (!uid.is_root()).then_some(own), lines: Mutex::default() })
    }

    /// In whose name the host is asked: of a user's own mount in his, as the kernel lets nobody else in.
    pub fn known(&self, caller: Caller) -> Caller {
        self.alone.clone().unwrap_or(caller)
    }

    /// This process itself: for what it proves that somebody else may.
    pub fn own(&self) -> Caller {
        self.alone.clone().unwrap_or(Caller { uid: 0, gid: 0, groups: Vec::new() })
    }

    /// Takes that caller's rights for this thread.
    pub fn act(&self, caller: &Caller) -> Result<Acting> {
        if self.alone.is_some() {
            return Ok(Acting(None));
        }
        Acting::begin(caller)
            .map_err(|error| Error::io(format_args!("acting for user {}", caller.uid), &error))
    }

    /// Asks the host something in the caller's name, on any connection.
    pub fn ask<T>(&self, caller: &Caller, what: impl FnOnce(&mut Errand) -> Result<T>) -> Result<T> {
        self.ask_on(caller, |errand, _| what(errand))
    }

    /// The same of what opens an object: also the connection, on which it stays open.
    pub fn ask_on<T>(
        &self,
        caller: &Caller,
        what: impl FnOnce(&mut Errand, &Arc<Line>) -> Result<T>,
    ) -> Result<T> {
        let lines = self.lines_of(caller);
        for line in lines.iter().filter(|line| lock(&line.opened).len() < OPENED) {
            let errand = match line.errand.try_lock() {
                Ok(errand) => errand,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            return self.ask_with(line, errand, |errand| what(errand, line));
        }
        let line = match lines.first() {
            Some(_) if lines.len() >= LINES => {
                let fewest = lines.iter().min_by_key(|line| lock(&line.opened).len());
                fewest.unwrap_or(&lines[0]).clone()
            }
            _ => {
                let line = Arc::new(Line {
                    caller: caller.clone(),
                    errand: Mutex::new(None),
                    opened: Mutex::default(),
                    used: Mutex::new(Instant::now()),
                });
                lock(&self.lines).entry(caller.clone()).or_default().push(line.clone());
                line
            }
        };
        self.ask_with(&line, lock(&line.errand), |errand| what(errand, &line))
    }

    /// The same on one connection.
    pub fn ask_by<T>(&self, line: &Arc<Line>, what: impl FnOnce(&mut Errand) -> Result<T>) -> Result<T> {
        self.ask_with(line, lock(&line.errand), what)
    }

    fn ask_with<T>(
        &self,
        line: &Line,
        mut errand: MutexGuard<'_, Option<Errand>>,
        what: impl FnOnce(&mut Errand) -> Result<T>,
    ) -> Result<T> {
        *lock(&line.used) = Instant::now();
        let _acting = self.act(&line.caller)?;
        let mut open = match errand.take() {
            Some(open) => open,
            None => Errand::to(&self.directory, PATIENCE)?,
        };
        let result = what(&mut open);
        let lost = |error: &Error| matches!(error.kind, ErrorKind::Disconnected | ErrorKind::TimedOut);
        // An answer that comes late is no answer to what is asked next.
        if !result.as_ref().is_err_and(lost) {
            *errand = Some(open);
        }
        result
    }

    fn lines_of(&self, caller: &Caller) -> Vec<Arc<Line>> {
        let mut all = lock(&self.lines);
        all.retain(|_, lines| {
            lines.retain(|line| !line.is_idle());
            !lines.is_empty()
        });
        all.get(caller).cloned().unwrap_or_default()
    }

    /// The object is open on that connection, once more.
    pub fn opened(line: &Line, object: ObjectId) {
        *lock(&line.opened).entry(object).or_default() += 1;
    }

    /// The object is needed there once less.
    pub fn close(&self, line: &Arc<Line>, object: ObjectId) {
        // In this order, as when it is opened: the connection, then what is open on it.
        let closed = self.ask_by(line, |errand| {
            let mut opened = lock(&line.opened);
            let Some(count) = opened.get_mut(&object) else { return Ok(()) };
            *count -= 1;
            if *count > 0 {
                return Ok(());
            }
            opened.remove(&object);
            drop(opened);
            errand.close(object)
        });
        drop(closed); // an error is of a connection that is lost, and with it all that was open there
    }
}

impl Line {
    fn is_idle(&self) -> bool {
        lock(&self.used).elapsed() > IDLE && lock(&self.opened).is_empty() && self.errand.try_lock().is_ok()
    }
}
