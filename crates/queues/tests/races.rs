//! Every interleaving of a host and a pager at their queues (loom). The bytes are cells that notice
//! who reads or writes them beside another; a sleep has no end but a wake, so that a wake that is
//! lost is a deadlock.

use commonhold_queues::{Answering, Answers, Asking, DATA, Memory, PageIn, wake_host, wake_pager};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The queues' own words: each in a line of the cache.
const WORDS: usize = 4;
const LINE: usize = 64;
/// Bytes that one cell stands for: an entry of either queue, or a page.
const SUBMISSION: usize = 256;
const COMPLETION: usize = 16;
const SUBMISSIONS: usize = 4096;
const COMPLETIONS: usize = SUBMISSIONS + 64 * SUBMISSION;
const ENTRIES: usize = 2;

struct Shared {
    words: [AtomicU32; WORDS],
    submissions: [UnsafeCell<[u8; SUBMISSION]>; ENTRIES],
    completions: [UnsafeCell<[u8; COMPLETION]>; ENTRIES],
    /// The kernel's queues of sleepers, one for each word.
    asleep: (Mutex<()>, [Condvar; WORDS]),
    ended: AtomicBool,
}

#[derive(Clone)]
struct Local(Arc<Shared>);

impl Local {
    fn new() -> Local {
        Local(Arc::new(Shared {
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            submissions: std::array::from_fn(|_| UnsafeCell::new([0; SUBMISSION])),
            completions: std::array::from_fn(|_| UnsafeCell::new([0; COMPLETION])),
            asleep: (Mutex::new(()), std::array::from_fn(|_| Condvar::new())),
            ended: AtomicBool::new(false),
        }))
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(LINE));
        &self.0.words[at / LINE]
    }

    /// The place of an entry, and whether it is a submission.
    fn entry(at: usize) -> (bool, usize, usize) {
        assert!((SUBMISSIONS..DATA).contains(&at));
        match at.checked_sub(COMPLETIONS) {
            Some(at) => (false, at / COMPLETION, at % COMPLETION),
            None => (true, (at - SUBMISSIONS) / SUBMISSION, (at - SUBMISSIONS) % SUBMISSION),
        }
    }
}

impl Memory for Local {
    fn load(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Release);
    }

    fn swap(&self, at: usize, value: u32) -> u32 {
        self.word(at).swap(value, Ordering::AcqRel)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let (is_submission, entry, from) = Self::entry(at);
        let to = from..from + bytes.len();
        if is_submission {
            // SAFETY: loom lets one thread run at a time, and panics if another may be here too.
            self.0.submissions[entry].with_mut(|cell| unsafe { (&mut (*cell))[to].copy_from_slice(bytes) });
        } else {
            // SAFETY: as above.
            self.0.completions[entry].with_mut(|cell| unsafe { (&mut (*cell))[to].copy_from_slice(bytes) });
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let (is_submission, entry, from) = Self::entry(at);
        let of = from..from + bytes.len();
        if is_submission {
            // SAFETY: as above.
            self.0.submissions[entry].with(|cell| unsafe { bytes.copy_from_slice(&(&(*cell))[of]) });
        } else {
            // SAFETY: as above.
            self.0.completions[entry].with(|cell| unsafe { bytes.copy_from_slice(&(&(*cell))[of]) });
        }
    }

    fn sleep(&self, at: usize, value: u32, _at_most: Duration) {
        let asleep = self.0.asleep.0.lock().unwrap();
        if self.load(at) == value {
            drop(self.0.asleep.1[at / LINE].wait(asleep).unwrap());
        }
    }

    fn wake(&self, at: usize) {
        // As the kernel does, it looks at the queue of sleepers, which orders it after who just
        // went to sleep.
        drop(self.0.asleep.0.lock().unwrap());
        self.0.asleep.1[at / LINE].notify_all();
    }
}

/// All of them in which a thread is interrupted so often at most.
fn every(interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

fn ask(asking: &mut Asking<Local>, memory: &Local, call: u64) {
    assert!(asking.ask(&PageIn { call, object: "/x", offset: call << 12, length: 4096 }));
    wake_pager(memory);
}

/// Answers as many questions.
fn answer(memory: Local, count: u64) {
    let mut answering = Answering::new(memory);
    for call in 1..=count {
        let question = loop {
            match answering.take() {
                Some(question) => break question,
                None => answering.sleep(|| false),
            }
        };
        assert_eq!((question.call, question.offset, &*question.object), (call, call << 12, "/x"));
        answering.complete(&question, true);
    }
}

/// Takes as many answers; gives how many there were before it was told that the pager is gone.
fn take(memory: &Local, count: u64) -> u64 {
    let mut answers = Answers::new(memory.clone());
    for call in 1..=count {
        let completion = loop {
            match answers.take() {
                Some(completion) => break completion,
                None if memory.0.ended.load(Ordering::Acquire) => return call - 1,
                None => answers.sleep(Duration::MAX, || memory.0.ended.load(Ordering::Acquire)),
            }
        };
        assert!(completion.call == call && completion.is_filled);
    }
    count
}

#[test]
fn who_sleeps_is_woken_for_each_question_and_each_answer() {
    every(2, || {
        let memory = Local::new();
        let [theirs, taking] = [memory.clone(), memory.clone()];
        let pager = loom::thread::spawn(move || answer(theirs, 2));
        let answers = loom::thread::spawn(move || take(&taking, 2));
        let mut asking = Asking::new(memory.clone());
        (1..=2).for_each(|call| ask(&mut asking, &memory, call));
        pager.join().unwrap();
        assert_eq!(answers.join().unwrap(), 2);
    });
}

#[test]
fn a_pager_that_sleeps_hears_what_comes_by_its_socket() {
    every(3, || {
        let memory = Local::new();
        let theirs = memory.clone();
        let pager = loom::thread::spawn(move || {
            let answering = Answering::new(theirs.clone());
            while !theirs.0.ended.load(Ordering::Acquire) {
                answering.sleep(|| theirs.0.ended.load(Ordering::Acquire));
            }
        });
        memory.0.ended.store(true, Ordering::Release);
        wake_pager(&memory);
        pager.join().unwrap();
    });
}

#[test]
fn a_host_that_sleeps_hears_that_the_pager_is_gone() {
    every(3, || {
        let memory = Local::new();
        let taking = memory.clone();
        let answers = loom::thread::spawn(move || take(&taking, 1));
        memory.0.ended.store(true, Ordering::Release);
        wake_host(&memory);
        assert_eq!(answers.join().unwrap(), 0);
    });
}
