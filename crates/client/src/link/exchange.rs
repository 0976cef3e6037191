//! Requests and their answers: many threads, one socket, no thread in between.
//!
//! Whoever waits for an answer while nobody reads becomes the reader, and hands answers to others until its
//! own has come; then it wakes one of the waiting to go on. So a lone thread pays one sendmsg and one recvmsg.
//! A request keeps its bytes and descriptors until it is answered: when a new host process took over, it is
//! sent again, marked as repeated. Each says for which host process it is. The next one does not work on what was for the
//! one before: if it is not answered, it comes again.

use super::dispatch::Heard;
use super::{Greeting, Shared, State, lock};
use crate::{Error, ErrorKind, Result};
use commonhold_object::error::Doing;
use commonhold_object::wire::{Header, Reply, Request, encode, readdress};
use commonhold_sys::socket::{self, Wait};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a thread sleeps at most before it looks again whether it can go on.
pub(super) const SLICE: Duration = Duration::from_millis(250);

/// A request to be made.
pub(crate) struct Call<'a> {
    /// What is asked.
    pub(crate) request: &'a Request,
    /// Descriptors that travel with it.
    pub(crate) fds: &'a [BorrowedFd<'a>],
    /// When to give up; `None`: as long as there is a host or keeper.
    pub(crate) deadline: Option<Instant>,
    /// What to do when the connection is lost.
    pub(crate) on_loss: OnLoss,
}

/// What becomes of a request when host and keeper are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnLoss {
    /// The next host is asked the same.
    Repeat,
    /// What was asked holds only for the connection it was made for: the caller asks anew.
    AskAnew,
    /// That is what was asked for.
    Finish,
}

impl<'a> Call<'a> {
    /// A request without descriptors, for as long as it takes.
    pub(crate) fn new(request: &'a Request) -> Self {
        Call { request, fds: &[], deadline: None, on_loss: OnLoss::Repeat }
    }
}

/// What came of a request.
pub(crate) enum Answer {
    /// The host's answer, its descriptors, and the generation of the connection it came on.
    Reply(Reply, Vec<OwnedFd>, u64),
    /// The connection was lost (see [`OnLoss`]).
    AskAnew,
}

/// A request that is not answered yet.
pub(super) struct Pending {
    pub(super) waiter: Thread,
    step: Step,
    on_loss: OnLoss,
}

pub(super) enum Step {
    /// To be sent, or sent again.
    Send,
    /// Sent.
    Sent,
    /// Answered, or failed.
    Done(Result<(Reply, Vec<OwnedFd>, u64)>),
    /// The connection it was meant for is gone.
    AskAnew,
}

impl Pending {
    /// A new host process took over on the same connection, or the request was marked as sent but was not.
    pub(super) fn repeat(&mut self) {
        if matches!(self.step, Step::Sent) {
            self.step = Step::Send;
        }
        self.waiter.unpark();
    }

    /// The connection is gone.
    pub(super) fn lose(&mut self) {
        match (&self.step, self.on_loss) {
            (Step::Sent, OnLoss::Finish) => self.step = Step::Done(Ok((Reply::Done, Vec::new(), 0))),
            (Step::Sent | Step::Send, OnLoss::AskAnew) => self.step = Step::AskAnew,
            (Step::Sent, OnLoss::Repeat) => self.step = Step::Send,
            (Step::Send | Step::Done(_) | Step::AskAnew, _) => {}
        }
        self.waiter.unpark();
    }

    pub(super) fn finish(&mut self, result: Result<(Reply, Vec<OwnedFd>, u64)>) {
        if !matches!(self.step, Step::Done(_)) {
            self.step = Step::Done(result);
        }
        self.waiter.unpark();
    }
}

/// What a waiting thread does next.
enum Next {
    /// By that socket, to the host process of that generation.
    Send(Arc<OwnedFd>, u64),
    Finish(Result<Answer>),
}

impl Shared {
    /// Asks and waits for the answer. A refusal by the host is an `Err`.
    pub(crate) fn call(&'static self, call: Call<'_>) -> Result<Answer> {
        let number = self.next_number();
        let mut bytes = Vec::with_capacity(128);
        let mut header = Header::of(number);
        encode(header, call.request, &mut bytes)?;
        let pending = Pending { waiter: std::thread::current(), step: Step::Send, on_loss: call.on_loss };
        lock(&self.state).pending.insert(number, pending);
        loop {
            let next = self.drive(call.deadline, SLICE, |state| Self::next_of(state, number));
            let (socket, generation) = match next {
                Ok(Next::Send(socket, generation)) => (socket, generation),
                Ok(Next::Finish(result)) => return result,
                Err(error) => {
                    lock(&self.state).pending.remove(&number);
                    return Err(error);
                }
            };
            header.generation = generation;
            readdress(header, &mut bytes);
            header.repeated |= self.transmit(number, &socket, &bytes, call.fds)?;
        }
    }

    fn next_of(state: &mut State, number: u64) -> Option<Next> {
        let gone =
            || Error::new(ErrorKind::Disconnected, "the request was made in another process, before fork");
        let ready = state.socket.clone().filter(|_| !state.recovering);
        let host = state.host;
        let Some(pending) = state.pending.get_mut(&number) else { return Some(Next::Finish(Err(gone()))) };
        match pending.step {
            Step::Sent => None,
            Step::Send => ready.map(|socket| {
                pending.step = Step::Sent;
                Next::Send(socket, host)
            }),
            Step::AskAnew | Step::Done(_) => state.pending.remove(&number).map(|pending| {
                Next::Finish(match pending.step {
                    Step::Done(result) => result.map(|(reply, fds, at)| Answer::Reply(reply, fds, at)),
                    _ => Ok(Answer::AskAnew),
                })
            }),
        }
    }

    /// Sends a request. Gives whether it may have reached a host; if not, it is to be sent again.
    fn transmit(
        &'static self,
        number: u64,
        socket: &Arc<OwnedFd>,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<bool> {
        let Err(error) = socket::send(socket, bytes, fds, Wait::Yes) else { return Ok(true) };
        let gone = matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN));
        // The host may have said why.
        while gone && self.read_if_free() {}
        let mut state = lock(&self.state);
        match error.raw_os_error() {
            _ if gone => state.hear(socket, Heard::Gone),
            // The socket's send timeout: the host is busy. Try again.
            Some(libc::EAGAIN) => {}
            _ => {
                state.pending.remove(&number);
                return Err(error).doing("sending a request to the host");
            }
        }
        if let Some(pending) = state.pending.get_mut(&number) {
            pending.repeat();
        }
        Ok(false)
    }

    /// Waits for a connection; gives its generation.
    pub(crate) fn connected_generation(&'static self) -> Result<u64> {
        self.connected_by(None)
    }

    /// The same, until then.
    pub(crate) fn connected_by(&'static self, deadline: Option<Instant>) -> Result<u64> {
        self.drive(deadline, SLICE, |state| state.socket.is_some().then_some(state.generation))
    }

    /// Waits for what the host says of itself.
    pub(crate) fn greeting(&'static self) -> Result<Greeting> {
        self.drive(None, Duration::from_millis(1), |state| state.greeting())
    }

    /// Whether the host serves the kernel's own accesses to missing pages.
    pub(crate) fn serves_kernel_faults(&'static self) -> bool {
        self.greeting().is_ok_and(|greeting| greeting.reply.kernel_faults)
    }

    /// Sends what needs no answer, if there is a connection of that generation.
    pub(crate) fn note(&self, request: &Request, generation: u64) {
        let mut bytes = Vec::with_capacity(64);
        if encode(Header::of(0), request, &mut bytes).is_err() {
            return;
        }
        let state = lock(&self.state);
        let socket = state.socket.clone().filter(|_| state.generation == generation);
        drop(state);
        if let Some(socket) = socket {
            // A lost connection is noticed by who reads; the host then forgets all of this session anyway.
            let _ = socket::send(&socket, &bytes, &[], Wait::Yes);
        }
    }

    /// The same on whatever connection there is.
    pub(crate) fn note_now(&self, request: &Request) {
        let generation = lock(&self.state).generation;
        self.note(request, generation);
    }

    /// Waits until `ready` gives something, and meanwhile does what has to be done for all threads: reading
    /// from the socket, or making a new connection. `slice`: how long to sleep while others do; a thread with a
    /// pending request is woken when its answer comes, any other is not.
    pub(crate) fn drive<T>(
        &'static self,
        deadline: Option<Instant>,
        slice: Duration,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = ready(&mut state) {
                state.let_another_read();
                return Ok(found);
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                state.let_another_read();
                return Err(Error::new(ErrorKind::TimedOut, "the host did not answer in time"));
            }
            if state.socket.is_none() && !state.recovering {
                state.recovering = true;
                drop(state);
                self.recover(deadline)?;
            } else {
                let reader = if state.recovering { None } else { state.reader.take() };
                drop(state);
                match reader {
                    Some(reader) => {
                        self.read_once(reader, Wait::Yes);
                    }
                    None => std::thread::park_timeout(slice),
                }
            }
            state = lock(&self.state);
        }
    }
}

impl State {
    /// Wakes one of those who wait, to read for all.
    pub(super) fn let_another_read(&self) {
        if self.reader.is_none() || self.pending.is_empty() {
            return;
        }
        let me = std::thread::current().id();
        if let Some(pending) = self.pending.values().find(|pending| pending.waiter.id() != me) {
            pending.waiter.unpark();
        }
    }
}
