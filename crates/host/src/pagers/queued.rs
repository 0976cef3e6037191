//! Questions to pagers that go by queues in memory, and the thread that takes the answers from there.

use super::external::Line;
use commonhold_object::error::Doing;
use commonhold_object::wire::PagerReply;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_queues::{
    Answers, Asking, Completion, ENTRIES, Memory, PageIn, Shared, wake_host, wake_pager,
};
use commonhold_sys::spin::{self, Spin};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to look for an answer of a pager before sleeping, at most.
const LOOK: Duration = Duration::from_micros(100);
/// After so many rounds in a row that brought nobody an answer the thread rests before each. A pager
/// that answers what it was asked has none such, and one that is idle lets it sleep.
const MOST_VAIN: u32 = 2 * ENTRIES;
/// How long it rests. A round that took so long is no vain one.
const REST: Duration = Duration::from_millis(10);
/// Nobody may keep the thread asleep for longer: the pager can undo what woke it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The host's end of a pager's queues.
pub(super) struct Queued {
    memory: Arc<Shared>,
    asking: Mutex<Asking<Arc<Shared>>>,
}

impl Queued {
    fn lock(&self) -> MutexGuard<'_, Asking<Arc<Shared>>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for nothing. False: there is no room for the question.
    pub fn ask(&self, question: &PageIn<'_>) -> bool {
        let is_asked = self.lock().ask(question);
        if is_asked {
            wake_pager(&self.memory);
        }
        is_asked
    }

    /// Wakes the thread that takes answers.
    pub fn wake(&self) {
        wake_host(&self.memory);
    }

    /// Deals with an answer; its slot is free then. False: it is nobody's.
    fn answered(&self, completion: &Completion, line: &Line) -> bool {
        let Some(place) = self.lock().place_of(completion) else { return false };
        let bytes = completion.is_filled.then(|| {
            let mut bytes = vec![0; place.length];
            self.memory.read(place.at, &mut bytes);
            bytes
        });
        self.lock().free(completion);
        if let Some(bytes) = bytes {
            line.answered(completion.call, PagerReply::Data(bytes), true);
        }
        true
    }
}

/// Queues that a pager is to be given, and who takes its answers from there.
pub struct Queues {
    line: Arc<Line>,
    queued: Queued,
}

impl Queues {
    /// Of a pager that serves on that line; and their memory.
    pub(super) fn new(line: Arc<Line>) -> Result<(Queues, OwnedFd)> {
        let doing = "making memory for the queues of a pager";
        let file = commonhold_queues::create().doing(doing)?;
        let memory = Shared::map(&file).doing(doing)?;
        let asking = Mutex::new(Asking::new(memory.clone()));
        if line.has_queues.swap(true, Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Busy, "this connection has queues already"));
        }
        Ok((Queues { line, queued: Queued { memory, asking } }, file))
    }

    /// Has questions go there from now on, and deals with the answers until the pager's line ends.
    pub fn serve(self) {
        let Queues { line, queued } = self;
        let mut answers = Answers::new(queued.memory.clone());
        let queued = line.queued.get_or_init(|| queued);
        let (mut spin, mut vain) = (Spin::new(LOOK), 0);
        while !line.is_over() {
            let was_of_use = match answers.take() {
                Some(completion) => queued.answered(&completion, &line),
                None => wait(&answers, &mut spin, &line) >= REST,
            };
            vain = if was_of_use { 0 } else { (vain + 1).min(MOST_VAIN + 1) };
            if vain > MOST_VAIN {
                std::thread::sleep(REST);
            }
        }
    }
}

/// Waits for an answer; gives how long it did.
fn wait(answers: &Answers<Arc<Shared>>, spin: &mut Spin, line: &Line) -> Duration {
    let began = Instant::now();
    let is_there = || answers.is_there() || line.is_over();
    if spin::look(spin.budget(), || is_there().then_some(())).is_none() {
        answers.sleep(LONGEST_SLEEP, || line.is_over());
    }
    let waited = began.elapsed();
    if answers.is_there() {
        spin.waited(waited);
    }
    waited
}
