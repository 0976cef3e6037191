//! Pagers that are other processes: the host asks over the socket on which the process said that it serves.
//!
//! A pager that dies, hangs or answers wrongly fails only the access that waits for it, and only after the
//! object's deadline: until then another process may begin to serve under the same name, and is asked instead.

use super::Pager;
use commonhold_object::wire::{Event, FromHost, Header, PagerReply, encode};
use commonhold_object::{Error, ErrorKind, Result, limits};
use commonhold_sys::socket::{self, Wait};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// All pager processes that are connected, by the name they serve under.
#[derive(Default)]
pub struct PagerLines {
    lines: Mutex<HashMap<String, Arc<Line>>>,
    changed: Condvar,
    next_call: AtomicU64,
}

struct Line {
    socket: Arc<OwnedFd>,
    session: u64,
    uid: u32,
    waiting: Mutex<HashMap<u64, SyncSender<PagerReply>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PagerLines {
    /// A process begins to serve. Refused while another process of somebody else serves under that name.
    pub fn connect(&self, pager: &str, session: u64, uid: u32, socket: Arc<OwnedFd>) -> Result<()> {
        let mut lines = lock(&self.lines);
        if let Some(other) = lines.get(pager).filter(|l| l.uid != uid && uid != 0) {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("user {} already serves the pager {pager}: choose another name", other.uid),
            ));
        }
        let line = Line { socket, session, uid, waiting: Mutex::default() };
        lines.insert(pager.to_owned(), Arc::new(line));
        self.changed.notify_all();
        Ok(())
    }

    /// A session ended: who waits for its answers asks whoever serves next.
    pub fn disconnect(&self, session: u64) {
        lock(&self.lines).retain(|_, line| line.session != session);
        self.changed.notify_all();
    }

    /// Whether the session serves a pager.
    pub fn serves(&self, session: u64) -> bool {
        lock(&self.lines).values().any(|line| line.session == session)
    }

    /// An answer came in. Unknown numbers are late answers, and ignored.
    pub fn answer(&self, session: u64, call: u64, result: PagerReply) {
        let lines: Vec<_> = lock(&self.lines).values().filter(|l| l.session == session).cloned().collect();
        for line in lines {
            if let Some(waiter) = lock(&line.waiting).remove(&call) {
                let _ = waiter.try_send(result);
                return;
            }
        }
    }

    fn find(&self, pager: &str, uid: u32, until: Instant) -> Result<Arc<Line>> {
        let mut lines = lock(&self.lines);
        loop {
            // Only the object's owner, or root, may supply its pages.
            if let Some(line) = lines.get(pager).filter(|l| l.uid == uid || l.uid == 0) {
                return Ok(line.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    ErrorKind::Pager,
                    format!("no process of user {uid} serves the pager {pager}: start it, then try again"),
                ));
            }
            lines = self.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn call(
        &self,
        pager: &str,
        uid: u32,
        deadline: Duration,
        event: impl Fn(u64) -> Event,
    ) -> Result<PagerReply> {
        let until = Instant::now() + deadline;
        loop {
            let line = self.find(pager, uid, until)?;
            let call = self.next_call.fetch_add(1, Ordering::Relaxed) + 1;
            let (sender, receiver) = sync_channel(1);
            lock(&line.waiting).insert(call, sender);
            let mut message = Vec::new();
            encode(Header { number: 0, repeated: false }, &FromHost::Event(event(call)), &mut message)?;
            let sent = socket::send(&*line.socket, &message, &[], Wait::No);
            let answer = match sent {
                Ok(()) => self.wait(&line, pager, &receiver, until),
                Err(_) => Err(RecvTimeoutError::Disconnected),
            };
            lock(&line.waiting).remove(&call);
            match answer {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::new(
                        ErrorKind::Pager,
                        format!("the pager {pager} did not answer within {} ms", deadline.as_millis()),
                    ));
                }
                // It went away: ask whoever serves next, a little later.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Waits for the answer in slices, to notice when the process went away.
    fn wait(
        &self,
        line: &Arc<Line>,
        pager: &str,
        receiver: &std::sync::mpsc::Receiver<PagerReply>,
        until: Instant,
    ) -> std::result::Result<PagerReply, RecvTimeoutError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left.min(Duration::from_millis(50))) {
                Err(RecvTimeoutError::Timeout) if left > Duration::from_millis(50) => {
                    let still = lock(&self.lines).get(pager).is_some_and(|now| Arc::ptr_eq(now, line));
                    if !still {
                        return Err(RecvTimeoutError::Disconnected);
                    }
                }
                other => return other,
            }
        }
    }
}

/// The pager of one object that another process serves.
pub struct ExternalPager {
    lines: Arc<PagerLines>,
    pager: String,
    owner_uid: u32,
    object: String,
    deadline: Duration,
}

impl ExternalPager {
    /// The pages of `object` (its name when it was created) come from whoever of user `owner_uid` serves
    /// `pager`.
    pub fn new(
        lines: Arc<PagerLines>,
        pager: String,
        owner_uid: u32,
        object: String,
        deadline: Duration,
    ) -> Self {
        ExternalPager { lines, pager, owner_uid, object, deadline }
    }

    fn failed(&self, what: String) -> Error {
        Error::new(ErrorKind::Pager, format!("the pager {} {what}", self.pager))
    }
}

impl Pager for ExternalPager {
    fn page_in(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut at = offset;
        for part in buffer.chunks_mut(limits::PAGER_BYTES as usize) {
            let length = part.len() as u64;
            let reply = self.lines.call(&self.pager, self.owner_uid, self.deadline, |call| {
                Event::PageIn { call, object: self.object.clone(), offset: at, length }
            })?;
            match reply {
                PagerReply::Data(data) if data.len() == part.len() => part.copy_from_slice(&data),
                PagerReply::Data(data) => {
                    return Err(
                        self.failed(format!("answered {} bytes where {length} were asked", data.len()))
                    );
                }
                PagerReply::Failed(why) => return Err(self.failed(format!("failed: {why}"))),
                PagerReply::Stored => return Err(self.failed("answered `stored` to a page-in".into())),
            }
            at += length;
        }
        Ok(())
    }

    fn page_out(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut at = offset;
        for part in data.chunks(limits::PAGER_BYTES as usize) {
            let reply = self.lines.call(&self.pager, self.owner_uid, self.deadline, |call| {
                Event::PageOut { call, object: self.object.clone(), offset: at, data: part.to_vec() }
            })?;
            match reply {
                PagerReply::Stored => {}
                PagerReply::Failed(why) => return Err(self.failed(format!("failed: {why}"))),
                PagerReply::Data(_) => return Err(self.failed("answered data to a page-out".into())),
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(()) // page_out returning means durable
    }

    fn may_block(&self) -> bool {
        true
    }
}
