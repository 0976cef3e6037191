//! How a pager serves: a thread hears the socket, and the one that serves takes questions from there and from queues in memory
//! (`docs/PAGERS.md`), where the host has such.

use crate::link::{Guard, Handshake, Shared, wrong_reply};
use crate::pager::{Pager, answer, fill};
use crate::{Error, ErrorKind, Name, Result, locate};
use commonhold_object::error::Doing;
use commonhold_object::wire::{Event, FromHost, Header, PagerReply, Reply, Request};
use commonhold_points as points;
use commonhold_queues::{Answering, Given, wake_pager};
use commonhold_sys::spin::{self, Spin};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Numbers of requests; the greeting before them has 1.
const SERVE: u64 = 2;
const QUEUES: u64 = 3;

/// How long to look for a question before sleeping, at most.
const LOOK: Duration = Duration::from_micros(50);
/// Messages that were heard and that the pager did not come to yet.
const HEARD: usize = 16;

type Memory = Arc<commonhold_queues::Shared>;
type Message = (Header, FromHost, Vec<OwnedFd>);

/// The queues that the pager may sleep at; none: it waits for messages alone.
#[derive(Default)]
struct Bell(Mutex<Option<Memory>>);

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Option<Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until the host closes the connection.
pub(crate) fn serve(shared: &'static Shared, name: Name, pager: impl Pager) -> Result<()> {
    let socket =
        locate::connect(&shared.directory).map_err(|error| locate::no_host(&shared.directory, &error))?;
    let guard = Guard::new(shared, socket);
    let mut listener = Handshake::new(guard.socket().clone(), 1)?;
    listener.greet()?;
    let (bell, (tell, heard)) = (Arc::<Bell>::default(), sync_channel(HEARD));
    let rings = bell.clone();
    let listen = move || listen(&mut listener, &tell, &rings);
    let thread = points::thread(|| std::thread::Builder::new().name("pager-listener".into()).spawn(listen));
    let thread = thread.doing("starting the thread that hears what the host says")?;
    let talk = Handshake::new(guard.socket().clone(), 0)?;
    let serve = Request::ServePager { pager: name };
    let mut serving =
        Serving { pager, serve, talk, heard, bell, queues: None, spin: Spin::new(LOOK), next: None };
    let served = serving.begin(false).and_then(|()| serving.run());
    drop(serving);
    // It fails where the host has hung up. The listener hears that, if it did not before.
    let _ = rustix::net::shutdown(&**guard.socket(), rustix::net::Shutdown::Both);
    let _ = thread.join(); // it does not panic
    match served {
        Err(error) if error.kind == ErrorKind::Disconnected => Ok(()),
        other => other,
    }
}

/// Hears messages until the connection ends, or nobody wants them any more.
fn listen(listener: &mut Handshake, tell: &SyncSender<Result<Message>>, bell: &Bell) {
    loop {
        let Some(message) = listener.receive(None).transpose() else { continue };
        let ends = message.is_err();
        if tell.send(message).is_err() {
            return;
        }
        bell.lock().iter().for_each(wake_pager);
        if ends {
            return;
        }
    }
}

/// What was heard and not dealt with yet.
fn heard_now(heard: &Receiver<Result<Message>>) -> Option<Result<Message>> {
    match heard.try_recv() {
        Ok(message) => Some(message),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(Err(unheard())),
    }
}

fn unheard() -> Error {
    Error::new(ErrorKind::Disconnected, "nobody hears the host any more")
}

struct Serving<P> {
    pager: P,
    serve: Request,
    talk: Handshake,
    heard: Receiver<Result<Message>>,
    bell: Arc<Bell>,
    queues: Option<Answering<Memory>>,
    spin: Spin,
    /// What was heard as the pager was about to sleep.
    next: Option<Result<Message>>,
}

impl<P: Pager> Serving<P> {
    /// Asks to serve, by queues too. A host that has none says so.
    fn begin(&self, repeated: bool) -> Result<()> {
        self.talk.send((SERVE, repeated), &self.serve, &[])?;
        self.talk.send((QUEUES, repeated), &Request::PagerQueues, &[])
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let question = self.queues.as_mut().and_then(Answering::take);
            let is_idle = question.is_none();
            if let Some(question) = question {
                self.fill(&question)?;
            }
            match self.next.take().or_else(|| heard_now(&self.heard)) {
                Some(message) => self.hear(message?)?,
                None if is_idle => self.wait(),
                None => {}
            }
        }
    }

    /// Waits for a question or a message.
    fn wait(&mut self) {
        let Some(queues) = &self.queues else {
            self.next = Some(self.heard.recv().unwrap_or_else(|_| Err(unheard())));
            return;
        };
        let began = Instant::now();
        let looked = spin::look(self.spin.budget(), || queues.is_there().then_some(()));
        if looked.is_none() {
            queues.sleep(|| {
                self.next = heard_now(&self.heard);
                self.next.is_some()
            });
        }
        if queues.is_there() {
            self.spin.waited(began.elapsed());
        }
    }

    /// Answers a question of the queues.
    fn fill(&mut self, question: &Given) -> Result<()> {
        let Some(queues) = &mut self.queues else { return Ok(()) };
        let filled =
            queues.fill(question, |buffer| fill(&mut self.pager, &question.object, question.offset, buffer));
        if let Err(why) = &filled {
            let failed =
                Request::PagerAnswer { call: question.call, result: PagerReply::Failed(why.clone()) };
            self.talk.send((0, false), &failed, &[])?;
        }
        queues.complete(question, filled.is_ok());
        Ok(())
    }

    fn hear(&mut self, (header, message, fds): Message) -> Result<()> {
        match message {
            // Who waits for a page may be told of this pager, and ask, before it is told that it serves.
            // 0: why the host ends the connection.
            FromHost::Reply(result) if header.number == SERVE || header.number == 0 => {
                result?;
            }
            FromHost::Reply(Ok(Reply::Queues)) if header.number == QUEUES => {
                let memory = fds.into_iter().next().ok_or_else(wrong_reply)?;
                let memory = commonhold_queues::Shared::map(memory).doing("mapping the queues of a pager")?;
                *self.bell.lock() = Some(memory.clone());
                self.queues = Some(Answering::new(memory));
            }
            FromHost::Reply(_) => {}
            FromHost::Event(Event::HostReplaced { generation }) => {
                self.talk.host = generation;
                *self.bell.lock() = None;
                self.queues = None; // what is in them is asked anew
                self.begin(true)?;
            }
            FromHost::Event(event) => {
                if let Some((call, result)) = answer(&mut self.pager, event) {
                    self.talk.send((0, false), &Request::PagerAnswer { call, result }, &[])?;
                }
            }
        }
        Ok(())
    }
}
