//! A thread that plays the pager process at the other end of a socket, well or badly, and one that plays the host's
//! control thread, which hands its answers on.

use commonhold_host::pagers::PagerLines;
use commonhold_object::limits;
use commonhold_object::wire::{Event, FromHost, Header, PagerReply, Request, decode, encode};
use commonhold_sys::socket::{self, Wait};
use rustix::net::{Shutdown, shutdown};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the process does about a question.
pub enum Act {
    Reply(PagerReply),
    /// The answer to another question than was asked.
    ReplyTo(u64, PagerReply),
    Late(Duration, PagerReply),
    /// Several answers, by the numbers of their questions.
    All(Vec<(u64, PagerReply)>),
    Silence,
    Garbage,
    Die,
}

/// A pager process that is connected; it is gone when this is dropped.
pub struct Player {
    process_end: Arc<OwnedFd>,
    host_end: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    /// Every number the host asked under, in order.
    pub calls: Arc<Mutex<Vec<u64>>>,
}

/// Where a well-behaved player keeps what it was given: bytes by object.
#[derive(Clone, Default)]
pub struct Ram(Arc<Mutex<HashMap<String, Vec<u8>>>>);

impl Ram {
    /// The right answer.
    pub fn answer(&self, event: &Event) -> PagerReply {
        let mut objects = self.0.lock().unwrap();
        match event {
            Event::PageIn { object, offset, length, .. } => {
                let stored =
                    objects.get(object).map_or(&[][..], |bytes| bytes.get(*offset as usize..).unwrap_or(&[]));
                let mut answer = vec![0; *length as usize];
                let there = stored.len().min(answer.len());
                answer[..there].copy_from_slice(&stored[..there]);
                PagerReply::Data(answer)
            }
            Event::PageOut { object, offset, data, .. } => {
                let stored = objects.entry(object.clone()).or_default();
                let end = *offset as usize + data.len();
                stored.resize(stored.len().max(end), 0);
                stored[*offset as usize..end].copy_from_slice(data);
                PagerReply::Stored
            }
            other => panic!("not a question: {other:?}"),
        }
    }
}

impl Player {
    /// A process of user `uid` serves `pager` and does what `behave` says.
    pub fn start(
        lines: &Arc<PagerLines>,
        pager: &str,
        session: u64,
        uid: u32,
        behave: impl FnMut(&Event) -> Act + Send + 'static,
    ) -> Player {
        let mut player = Player::unread(lines, pager, session, uid);
        let (end, calls) = (player.process_end.clone(), player.calls.clone());
        player.threads.push(std::thread::spawn(move || play(&end, &calls, behave)));
        player
    }

    /// A process that keeps what it is given.
    pub fn honest(lines: &Arc<PagerLines>, pager: &str, session: u64, uid: u32, ram: &Ram) -> Player {
        let ram = ram.clone();
        Player::start(lines, pager, session, uid, move |event| Act::Reply(ram.answer(event)))
    }

    /// A process that never reads what it is asked.
    pub fn unread(lines: &Arc<PagerLines>, pager: &str, session: u64, uid: u32) -> Player {
        let (host_end, process_end) = socket::pair().unwrap();
        let (host_end, process_end) = (Arc::new(host_end), Arc::new(process_end));
        lines.connect(pager, session, uid, host_end.clone()).unwrap();
        let (end, lines) = (host_end.clone(), lines.clone());
        let host = std::thread::spawn(move || hand_on(&end, &lines, session));
        Player { process_end, host_end, threads: vec![host], calls: Arc::default() }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = shutdown(&*self.process_end, Shutdown::Both);
        let _ = shutdown(&*self.host_end, Shutdown::Both);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn play(end: &OwnedFd, calls: &Mutex<Vec<u64>>, mut behave: impl FnMut(&Event) -> Act) {
    let mut buffer = vec![0; limits::MESSAGE_BYTES];
    loop {
        let n = match socket::receive(end, &mut buffer, &mut Vec::new(), Wait::Yes) {
            Ok(n) if n > 0 => n,
            _ => return,
        };
        let (_, message) = decode::<FromHost>(&buffer[..n]).unwrap();
        let FromHost::Event(event) = message else { panic!("not a question: {message:?}") };
        let (Event::PageIn { call, .. } | Event::PageOut { call, .. }) = &event else { continue };
        let call = *call;
        calls.lock().unwrap().push(call);
        let sent = match behave(&event) {
            Act::Reply(result) => send(end, call, result),
            Act::ReplyTo(other, result) => send(end, other, result),
            Act::Late(delay, result) => {
                std::thread::sleep(delay);
                send(end, call, result)
            }
            Act::All(answers) => answers.into_iter().try_for_each(|(call, result)| send(end, call, result)),
            Act::Silence => Ok(()),
            Act::Garbage => socket::send(end, &[0xff; 100], &[], Wait::Yes),
            Act::Die => {
                let _ = shutdown(end, Shutdown::Both);
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn send(end: &OwnedFd, call: u64, result: PagerReply) -> std::io::Result<()> {
    let mut message = Vec::new();
    let header = Header::of(0);
    encode(header, &Request::PagerAnswer { call, result }, &mut message).unwrap();
    socket::send(end, &message, &[], Wait::Yes)
}

/// As the host's control thread: answers are handed on; who sends garbage, or is gone, is disconnected.
fn hand_on(end: &OwnedFd, lines: &PagerLines, session: u64) {
    let mut buffer = vec![0; limits::MESSAGE_BYTES];
    loop {
        let message = match socket::receive(end, &mut buffer, &mut Vec::new(), Wait::Yes) {
            Ok(n) if n > 0 => decode::<Request>(&buffer[..n]),
            _ => break,
        };
        match message {
            Ok((_, Request::PagerAnswer { call, result })) => lines.answer(session, call, result, true),
            _ => break,
        }
    }
    let _ = shutdown(end, Shutdown::Both);
    lines.disconnect(session);
}
