//! Pagers that are other processes: the host asks over the socket on which the process said that it serves.
//!
//! A pager that dies, hangs or answers wrongly fails only the access that waits for it, and only after the
//! object's deadline: until then another process may begin to serve under the same name, and is asked instead, if it
//! does so within [`ABSENCE`]. Nobody is asked any more on behalf of a client that has gone, or for an object that has ended.

use super::asked::{self, Asked, Looking, Waiting};
use super::queued::{Queued, Queues};
use super::{Pager, Then};
use crate::asker::{self, Asker};
use commonhold_object::wire::{Event, FromHost, Header, PagerReply, encode};
use commonhold_object::{Error, ErrorKind, Result, limits};
use commonhold_queues::PageIn;
use commonhold_sys::process;
use commonhold_sys::socket::{self, Wait};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// All pager processes that are connected, by their user and the name they serve under: nobody can take a name
/// away from another.
pub struct PagerLines {
    lines: Mutex<HashMap<(u32, String), Arc<Line>>>,
    changed: Condvar,
    next_call: AtomicU64,
    /// Wakes whoever looks after questions that nobody waits for.
    pub(super) looking: Looking,
}

/// A process that serves a pager.
pub(super) struct Line {
    socket: Arc<OwnedFd>,
    session: u64,
    uid: u32,
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// Set as soon as questions may go there.
    pub(super) queued: OnceLock<Queued>,
    /// Queues were made for it: it has no others.
    pub(super) has_queues: AtomicBool,
    /// Nobody is asked here any more.
    is_over: AtomicBool,
}

/// Why a question to a line has no answer.
pub(super) enum Silence {
    /// The time is over.
    Late,
    /// The process went away, or another one serves by now.
    Gone,
    /// It has not read what it was asked before: there is no room for this question yet.
    Full,
    /// Whoever wanted the answer has gone, or the object has ended.
    Unwanted,
}

/// A question: of whom it is asked, until when, and whether anybody still wants the answer.
struct Question<'q> {
    pager: &'q str,
    uid: u32,
    until: Instant,
    is_wanted: &'q dyn Fn() -> bool,
}

/// How long to wait before a question that could not be asked is asked again.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for somebody to serve the pager when nobody does.
const ABSENCE: Duration = Duration::from_secs(30);
/// What is still to be stored of an object that has ended is not waited for longer.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often a waiting call looks whether the process went away.
pub(super) const LOOK: Duration = Duration::from_millis(50);

impl Line {
    /// Takes the questions that nobody waits for any more, or for which that has come to an end.
    pub fn take_over(&self, is_over: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        let mut waiting = lock(&self.waiting);
        let over = |waiting: &Waiting| matches!(waiting, Waiting::Nobody(asked) if is_over(asked));
        let calls: Vec<u64> = waiting.iter().filter(|(_, one)| over(one)).map(|(call, _)| *call).collect();
        let taken = calls.iter().filter_map(|call| waiting.remove(call));
        taken.filter_map(Waiting::nobodys).collect()
    }

    /// An answer came in. Unknown numbers are late answers, and ignored. `apart`: this thread reads what this process says alone.
    pub fn answered(&self, call: u64, result: PagerReply, apart: bool) {
        let waiting = lock(&self.waiting).remove(&call);
        match waiting {
            Some(Waiting::Thread(waiter)) => drop(waiter.try_send(result)),
            Some(Waiting::Nobody(asked)) => asked.answered(result, apart.then_some(self.uid)),
            None => {}
        }
    }

    /// Whether nobody is asked here any more.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Asks for bytes: by its queues, or by its socket where there is no room for the question there.
    fn ask(&self, question: &PageIn<'_>) -> bool {
        if self.queued.get().is_some_and(|queued| queued.ask(question)) {
            return true;
        }
        let PageIn { call, object, offset, length } = *question;
        let event = Event::PageIn { call, object: object.to_owned(), offset, length: length.into() };
        let mut message = Vec::new();
        encode(Header::of(0), &FromHost::Event(event), &mut message).is_ok()
            && socket::send(&*self.socket, &message, &[], Wait::No).is_ok()
    }

    /// Of what they were asked nobody will answer any more.
    fn is_gone(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.queued.get().iter().for_each(|queued| queued.wake());
        self.take_over(|_| true).into_iter().for_each(Asked::goes);
    }

    /// Whether it has been asked what nobody waits for.
    pub fn is_asked(&self) -> bool {
        lock(&self.waiting).values().any(|waiting| matches!(waiting, Waiting::Nobody(_)))
    }
}

impl Default for PagerLines {
    /// Calls are numbered from the clock: a pager may still answer what the host process before asked of it, and
    /// that answer must not be taken for one to a question of this process.
    fn default() -> Self {
        PagerLines {
            lines: Mutex::default(),
            changed: Condvar::new(),
            next_call: AtomicU64::new(process::boottime_ms() << 20),
            looking: Looking::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PagerLines {
    /// A process of user `uid` begins to serve; whoever of the same user served under that name is asked no more.
    /// Refused on a connection that serves another name already.
    pub fn connect(&self, pager: &str, session: u64, uid: u32, socket: Arc<OwnedFd>) -> Result<()> {
        let mut lines = lock(&self.lines);
        let other = lines.iter().find(|((_, name), line)| line.session == session && name != pager);
        if let Some(((_, name), _)) = other {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("this connection serves the pager {name} already: serve {pager} on another one"),
            ));
        }
        let line = Line {
            socket,
            session,
            uid,
            waiting: Mutex::default(),
            queued: OnceLock::new(),
            has_queues: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        };
        let before = lines.insert((uid, pager.to_owned()), Arc::new(line));
        self.changed.notify_all();
        drop(lines);
        before.iter().for_each(|line| line.is_gone());
        Ok(())
    }

    /// A session ended: who waits for its answers asks whoever serves next.
    pub fn disconnect(&self, session: u64) {
        let mut lines = lock(&self.lines);
        let is_gone = |line: &Arc<Line>| line.session == session;
        let gone: Vec<Arc<Line>> = lines.values().filter(|line| is_gone(line)).cloned().collect();
        lines.retain(|_, line| !is_gone(line));
        self.changed.notify_all();
        drop(lines);
        gone.iter().for_each(|line| line.is_gone());
    }

    /// All that serve.
    pub(super) fn all(&self) -> Vec<Arc<Line>> {
        lock(&self.lines).values().cloned().collect()
    }

    /// Whether the session serves a pager.
    pub fn serves(&self, session: u64) -> bool {
        lock(&self.lines).values().any(|line| line.session == session)
    }

    fn of_session(&self, session: u64) -> Option<Arc<Line>> {
        lock(&self.lines).values().find(|line| line.session == session).cloned()
    }

    /// Queues for the pager that the session serves; and their memory.
    pub fn queues(&self, session: u64) -> Result<(Queues, OwnedFd)> {
        let none = || Error::new(ErrorKind::Protocol, "this connection serves no pager");
        Queues::new(self.of_session(session).ok_or_else(none)?)
    }

    /// An answer came in by the session's socket. `apart`: this thread reads the session's messages alone.
    pub fn answer(&self, session: u64, call: u64, result: PagerReply, apart: bool) {
        if let Some(line) = self.of_session(session) {
            line.answered(call, result, apart);
        }
    }

    /// Asks whoever serves now, and waits neither for that nor for the answer. False: nobody serves, or there is no room for
    /// the question.
    fn ask(self: &Arc<Self>, pager: &str, uid: u32, asked: Asked, (object, offset): (&str, u64)) -> bool {
        let Some(line) = Self::line_of(&lock(&self.lines), pager, uid) else { return false };
        let call = self.next_call.fetch_add(1, Ordering::Relaxed) + 1;
        let question = PageIn { call, object, offset, length: asked.length as u32 };
        lock(&line.waiting).insert(call, Waiting::Nobody(asked));
        // Whoever serves under that name from now on finds the question there, and answers for the one before.
        let is_asked = !line.is_over() && line.ask(&question) && self.looking.looks_after(self);
        // If it is not there any more, whoever took it has answered.
        is_asked || lock(&line.waiting).remove(&call).is_none()
    }

    /// Who may supply the pages of an object of user `uid`: a process of that user or, failing that, of root.
    fn line_of(lines: &HashMap<(u32, String), Arc<Line>>, pager: &str, uid: u32) -> Option<Arc<Line>> {
        [uid, 0].into_iter().find_map(|user| lines.get(&(user, pager.to_owned())).cloned())
    }

    /// Who serves, as soon as somebody does.
    fn find(&self, question: &Question<'_>) -> Result<Arc<Line>> {
        let until = question.until.min(Instant::now() + ABSENCE);
        let mut lines = lock(&self.lines);
        loop {
            if let Some(line) = Self::line_of(&lines, question.pager, question.uid) {
                return Ok(line);
            }
            if !(question.is_wanted)() {
                return Err(no_answer(question.pager, Duration::ZERO, &Silence::Unwanted));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    ErrorKind::Pager,
                    format!(
                        "no process of user {} serves the pager {}: start it, then try again",
                        question.uid, question.pager
                    ),
                ));
            }
            lines =
                self.changed.wait_timeout(lines, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks whoever serves, until there is an answer, the deadline is over, or nobody wants it any more.
    fn call(
        &self,
        question: &Question<'_>,
        deadline: Duration,
        event: impl Fn(u64) -> Event,
    ) -> Result<PagerReply> {
        loop {
            let line = self.find(question)?;
            let call = self.next_call.fetch_add(1, Ordering::Relaxed) + 1;
            let mut message = Vec::new();
            encode(Header::of(0), &FromHost::Event(event(call)), &mut message)?;
            let (sender, receiver) = sync_channel(1);
            lock(&line.waiting).insert(call, Waiting::Thread(sender));
            let answer = match socket::send(&*line.socket, &message, &[], Wait::No) {
                Ok(()) => self.wait(&line, question, &receiver),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Silence::Full),
                Err(_) => Err(Silence::Gone),
            };
            lock(&line.waiting).remove(&call);
            let over = Instant::now() >= question.until || !(question.is_wanted)();
            match answer {
                Ok(reply) => return Ok(reply),
                Err(Silence::Full | Silence::Gone) if !over => std::thread::sleep(PAUSE),
                Err(why) => return Err(no_answer(question.pager, deadline, &why)),
            }
        }
    }

    /// Waits for the answer in slices, to notice when the process went away, or whoever asked.
    fn wait(
        &self,
        line: &Arc<Line>,
        question: &Question<'_>,
        receiver: &Receiver<PagerReply>,
    ) -> std::result::Result<PagerReply, Silence> {
        loop {
            let left = question.until.saturating_duration_since(Instant::now());
            if let Ok(reply) = receiver.recv_timeout(left.min(LOOK)) {
                return Ok(reply);
            }
            if !(question.is_wanted)() {
                return Err(Silence::Unwanted);
            }
            let now = Self::line_of(&lock(&self.lines), question.pager, question.uid);
            if !now.is_some_and(|now| Arc::ptr_eq(&now, line)) {
                return Err(Silence::Gone);
            }
            if left <= LOOK {
                return Err(Silence::Late);
            }
        }
    }
}

pub(super) fn no_answer(pager: &str, deadline: Duration, why: &Silence) -> Error {
    let what = match why {
        Silence::Unwanted => {
            let text = format!("the pager {pager} is not asked any more: whoever wanted its answer has gone");
            return Error::new(ErrorKind::Pager, text);
        }
        Silence::Late => "did not answer",
        Silence::Gone => "went away, and no other process answered,",
        Silence::Full => "did not even read what it was asked",
    };
    Error::new(
        ErrorKind::Pager,
        format!(
            "the pager {pager} {what} within {} ms: see what it is doing, or start it again, then try again",
            deadline.as_millis()
        ),
    )
}

/// The pager of one object that another process serves.
pub struct ExternalPager {
    lines: Arc<PagerLines>,
    pager: String,
    owner_uid: u32,
    object: String,
    deadline: Duration,
    /// When the object ended.
    ended: Arc<OnceLock<Instant>>,
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
        ExternalPager { lines, pager, owner_uid, object, deadline, ended: Arc::default() }
    }

    fn call(&self, is_wanted: &dyn Fn() -> bool, event: impl Fn(u64) -> Event) -> Result<PagerReply> {
        let until = Instant::now() + self.deadline;
        let question = Question { pager: &self.pager, uid: self.owner_uid, until, is_wanted };
        self.lines.call(&question, self.deadline, event)
    }
}

impl Pager for ExternalPager {
    fn page_in(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut at = offset;
        for part in buffer.chunks_mut(limits::PAGER_BYTES as usize) {
            let length = part.len() as u64;
            let reply = self.call(&|| self.ended.get().is_none() && asker::is_wanted(), |call| {
                Event::PageIn { call, object: self.object.clone(), offset: at, length }
            })?;
            part.copy_from_slice(&asked::bytes(&self.pager, reply, part.len())?);
            at += length;
        }
        Ok(())
    }

    fn page_out(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut at = offset;
        for part in data.chunks(limits::PAGER_BYTES as usize) {
            let lasts = || self.ended.get().is_none_or(|ended| ended.elapsed() < LAST_WORDS);
            let reply = self.call(&|| lasts() && asker::is_wanted(), |call| Event::PageOut {
                call,
                object: self.object.clone(),
                offset: at,
                data: part.to_vec(),
            })?;
            match reply {
                PagerReply::Stored => {}
                PagerReply::Failed(why) => return Err(asked::failed(&self.pager, &format!("failed: {why}"))),
                PagerReply::Data(_) => return Err(asked::failed(&self.pager, "answered data to a page-out")),
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    fn ask(&self, offset: u64, length: usize, asker: &Arc<Asker>, then: Then) -> bool {
        let (ended, asker) = (self.ended.clone(), asker.clone());
        let asked = Asked {
            pager: self.pager.clone(),
            length,
            until: Instant::now() + self.deadline,
            deadline: self.deadline,
            is_wanted: Box::new(move || ended.get().is_none() && !asker.is_gone()),
            then,
        };
        length as u64 <= limits::PAGER_BYTES
            && self.lines.ask(&self.pager, self.owner_uid, asked, (&self.object, offset))
    }

    fn flush(&self) -> Result<()> {
        Ok(()) // page_out returning means durable
    }

    fn may_block(&self) -> bool {
        true
    }

    fn end(&self) {
        self.ended.get_or_init(Instant::now);
    }
}
