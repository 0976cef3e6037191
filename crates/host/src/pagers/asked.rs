//! Questions to pagers in other processes that no thread waits for: whoever reads the answer deals with it. A thread looks
//! after those that are not answered, as long as there are any.

use super::external::{LOOK, PagerLines, Silence, no_answer};
use super::{Answer, Then};
use commonhold_object::wire::PagerReply;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who wants an answer.
pub(super) enum Waiting {
    /// A thread, which waits.
    Thread(SyncSender<PagerReply>),
    /// Whoever reads it.
    Nobody(Asked),
}

impl Waiting {
    pub fn nobodys(self) -> Option<Asked> {
        match self {
            Waiting::Nobody(asked) => Some(asked),
            Waiting::Thread(_) => None,
        }
    }
}

/// A question for bytes.
pub(super) struct Asked {
    pub pager: String,
    pub length: usize,
    pub until: Instant,
    pub deadline: Duration,
    pub is_wanted: Box<dyn Fn() -> bool + Send>,
    pub then: Then,
}

impl Asked {
    /// It was answered. `uid`: see [`Answer::Bytes`].
    pub fn answered(self, reply: PagerReply, uid: Option<u32>) {
        let bytes = bytes(&self.pager, reply, self.length);
        (self.then)(bytes.map_or_else(Answer::Failed, |bytes| Answer::Bytes(bytes, uid)));
    }

    /// Whoever was asked went away.
    pub fn goes(self) {
        (self.then)(Answer::Gone);
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until || !(self.is_wanted)()
    }

    fn ends(self) {
        let silence = if (self.is_wanted)() { Silence::Late } else { Silence::Unwanted };
        (self.then)(Answer::Failed(no_answer(&self.pager, self.deadline, &silence)));
    }
}

/// The bytes of an answer to a question for so many.
pub(super) fn bytes(pager: &str, reply: PagerReply, length: usize) -> Result<Vec<u8>> {
    match reply {
        PagerReply::Data(data) if data.len() == length => Ok(data),
        PagerReply::Data(data) => {
            Err(failed(pager, &format!("answered {} bytes where {length} were asked", data.len())))
        }
        PagerReply::Failed(why) => Err(failed(pager, &format!("failed: {why}"))),
        PagerReply::Stored => Err(failed(pager, "answered `stored` to a page-in")),
    }
}

pub(super) fn failed(pager: &str, what: &str) -> Error {
    Error::new(ErrorKind::Pager, format!("the pager {pager} {what}"))
}

/// Wakes the thread that looks after such questions.
#[derive(Default)]
pub(super) struct Looking {
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Default, PartialEq)]
enum State {
    /// There is no such thread yet.
    #[default]
    Nobody,
    /// It sleeps until something is asked.
    Asleep,
    /// It looks, now and then.
    Awake,
}

impl Looking {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that somebody looks after what was asked. False: there can be no thread for it.
    pub fn looks_after(&self, lines: &Arc<PagerLines>) -> bool {
        let mut state = self.lock();
        match *state {
            State::Awake => {}
            State::Asleep => {
                *state = State::Awake;
                self.asked.notify_one();
            }
            State::Nobody => {
                let lines = lines.clone();
                let look = move || look(&lines);
                let thread = || std::thread::Builder::new().name("pagers".into()).spawn(look);
                if points::thread(thread).is_err() {
                    return false;
                }
                *state = State::Awake;
            }
        }
        true
    }

    /// Sleeps for a while, or where nothing is asked until something is.
    fn sleep(&self, is_asked: impl Fn() -> bool) {
        let mut state = self.lock();
        if !is_asked() {
            *state = State::Asleep;
            while *state == State::Asleep {
                state = self.asked.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        drop(state);
        std::thread::sleep(LOOK);
    }
}

fn look(lines: &PagerLines) {
    loop {
        let over = lines.all().into_iter().flat_map(|line| line.take_over(Asked::is_over));
        over.for_each(Asked::ends);
        lines.looking.sleep(|| lines.all().iter().any(|line| line.is_asked()));
    }
}
