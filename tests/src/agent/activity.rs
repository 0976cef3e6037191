//! What goes on in the background while the test kills things.

use super::{Agent, Done, number, wrong};
use crate::ledger::Ledger;
use crate::page::{self, WORDS};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Threads that go on until `halt`.
pub struct Activity {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, String>>,
}

/// Start of a mapping, for a thread: the agent keeps the mapping until `halt`.
#[derive(Clone, Copy)]
pub(super) struct Start(*mut u8);

// SAFETY: an address; what is there is only touched through atomics.
unsafe impl Send for Start {}

impl Start {
    pub(super) fn new(start: *mut u8) -> Start {
        Start(start)
    }

    pub(super) fn page(self, index: u64) -> &'static [AtomicU64; WORDS] {
        page::words(self.0, index as usize)
    }
}

impl Agent {
    pub(super) fn on_activity(&mut self, words: &[&str]) -> Done {
        match words {
            ["count", mapping, first, stride, pages, ledger, threads] => {
                let (first, stride, pages) = (number(first)?, number(stride)?, number(pages)?);
                let threads = number(threads)?;
                let start = Start(self.mapping(mapping)?.as_ptr());
                for thread in 0..threads {
                    // Thread t owns every threads-th of this worker's pages.
                    let ledger = Ledger::open(Path::new(ledger), (first + stride * pages) as usize);
                    let mine: Vec<u64> =
                        (0..pages).filter(|n| n % threads == thread).map(|n| first + n * stride).collect();
                    self.go_on(move |stop| count(start, &mine, &ledger, thread, stop));
                }
                Ok(String::new())
            }
            // Adds one to the first word of some pages in turn, so often.
            ["add", mapping, first, pages, times] => {
                let start = self.mapping(mapping)?.as_ptr();
                for time in 0..number(times)? {
                    let index = number(first)? + time % number(pages)?;
                    page::words(start, index as usize)[0].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                }
                Ok(String::new())
            }
            // Counts the first word of a page up in turn with others, by a load and a store, until it is so much. Between
            // its turns it reads it again and again.
            ["turns", mapping, page, own, parties, last] => {
                let word = &page::words(self.mapping(mapping)?.as_ptr(), number(page)? as usize)[0];
                let (own, parties, last) = (number(own)?, number(parties)?, number(last)?);
                let mut before = 0;
                loop {
                    let now = word.load(Ordering::SeqCst);
                    if now < before {
                        return Err(wrong(format!("{now} after {before}")));
                    }
                    before = now;
                    if now >= last {
                        return Ok(String::new());
                    } else if now % parties == own {
                        word.store(now + 1, Ordering::SeqCst);
                    } else {
                        std::thread::sleep(std::time::Duration::from_micros(now % 300));
                    }
                }
            }
            ["sum", mapping, first, pages] => {
                let start = self.mapping(mapping)?.as_ptr();
                let pages = number(first)?..number(first)? + number(pages)?;
                let first =
                    |index| page::words(start, index as usize)[0].load(std::sync::atomic::Ordering::SeqCst);
                Ok(pages.map(first).sum::<u64>().to_string())
            }
            ["round", mapping, object, pages, ledger] => {
                let (start, object) = (Start(self.mapping(mapping)?.as_ptr()), self.object(object)?.clone());
                let (pages, ledger) = (number(pages)?, Ledger::open(Path::new(ledger), 1));
                self.go_on(move |stop| rounds(start, &object, pages, &ledger, stop));
                Ok(String::new())
            }
            ["pair", mapping, first, second] => {
                let start = Start(self.mapping(mapping)?.as_ptr());
                let (first, second) = (number(first)?, number(second)?);
                self.go_on(move |stop| Ok(pair(start, first, second, stop)));
                Ok(String::new())
            }
            // One word in each of some pages, in turn among processes: who has the first page counts, the next follow.
            ["follow", mapping, before, own] => {
                let start = Start(self.mapping(mapping)?.as_ptr());
                let (before, own) = (number(before)?, number(own)?);
                self.go_on(move |stop| Ok(follow(start, before, own, stop)));
                Ok(String::new())
            }
            ["watch", mapping, first, stride, pages, ledger] => {
                let start = Start(self.mapping(mapping)?.as_ptr());
                let (first, stride, pages) = (number(first)?, number(stride)?, number(pages)?);
                let ledger = Ledger::open(Path::new(ledger), (first + stride * pages) as usize);
                let theirs: Vec<u64> = (0..pages).map(|n| first + n * stride).collect();
                self.go_on(move |stop| watch(start, &theirs, &ledger, stop));
                Ok(String::new())
            }
            ["halt"] => self.halt(),
            _ => Err(wrong(format!("what is {words:?}?"))),
        }
    }

    pub(super) fn go_on(&mut self, work: impl FnOnce(&AtomicBool) -> Result<u64, String> + Send + 'static) {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || work(&seen));
        self.activities.push(Activity { stop, thread });
    }

    /// Ends all activities; gives how much they did together.
    fn halt(&mut self) -> Done {
        self.activities.iter().for_each(|activity| activity.stop.store(true, Ordering::SeqCst));
        let mut sum = 0;
        let mut first_error = None;
        for activity in self.activities.drain(..) {
            match activity.thread.join() {
                Ok(Ok(done)) => sum += done,
                Ok(Err(error)) => drop(first_error.get_or_insert(error)),
                Err(_) => drop(first_error.get_or_insert("a thread panicked".to_owned())),
            }
        }
        first_error.map_or(Ok(sum.to_string()), |error| Err(wrong(error)))
    }
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Counts up pages that nobody else writes, at random and now and then in order; each must be as it was left.
fn count(start: Start, mine: &[u64], ledger: &Ledger, thread: u64, stop: &AtomicBool) -> Result<u64, String> {
    let mut random = page::mix(u64::from(std::process::id()), thread + 1);
    let mut done = 0;
    let mut sequential = 0usize;
    while !stop.load(Ordering::Relaxed) {
        let index = if sequential > 0 {
            sequential -= 1;
            sequential % mine.len()
        } else {
            let random = next_random(&mut random);
            if random.is_multiple_of(1024) {
                sequential = mine.len();
            }
            (random >> 12) as usize % mine.len()
        };
        let page = mine[index];
        let (known, begun) = ledger.get(page as usize);
        let at = start.page(page);
        // Begun and never done: whoever had these pages before was killed in between.
        page::check_count(at, page, known, begun)?;
        let next = begun + 1;
        ledger.begin(page as usize, next);
        page::set_count(at, page, next);
        ledger.done(page as usize, next);
        done += 1;
    }
    Ok(done)
}

/// Looks at pages that others count up: never less than was done before the look, nor more than was begun after.
fn watch(start: Start, theirs: &[u64], ledger: &Ledger, stop: &AtomicBool) -> Result<u64, String> {
    let mut random = page::mix(u64::from(std::process::id()), 77);
    let mut seen = 0;
    while !stop.load(Ordering::Relaxed) {
        let page = theirs[next_random(&mut random) as usize % theirs.len()];
        let least = ledger.get(page as usize).0;
        let found = start.page(page)[0].load(Ordering::Acquire);
        let most = ledger.get(page as usize).1;
        if !(least..=most).contains(&found) {
            return Err(format!("page {page} shows version {found}, not {least}..={most}"));
        }
        seen += 1;
    }
    Ok(seen)
}

/// Writes a version to every page, syncs, and goes on with the next.
fn rounds(
    start: Start,
    object: &commonhold::Object,
    pages: u64,
    ledger: &Ledger,
    stop: &AtomicBool,
) -> Result<u64, String> {
    let (_, mut version) = ledger.get(0);
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        version += 1;
        for index in 0..pages {
            page::set_count(start.page(index), index, version);
        }
        ledger.begin(0, version);
        object.sync(0, pages * 4096).map_err(|e| format!("sync of version {version}: {e}"))?;
        ledger.done(0, version);
        done += 1;
    }
    Ok(done)
}

/// Counts two words up in turn: the first is never behind the second, nor more than one before it.
/// The page `own` follows the page `before`; page 0 counts when it has been followed.
fn follow(start: Start, before: u64, own: u64, stop: &AtomicBool) -> u64 {
    let (before, word) = (&start.page(before)[0], &start.page(own)[0]);
    let mut value = word.load(Ordering::SeqCst);
    while !stop.load(Ordering::Relaxed) {
        let seen = before.load(Ordering::SeqCst);
        if (own == 0) != (seen == value) {
            std::thread::yield_now();
            continue;
        }
        value = if own == 0 { value + 1 } else { seen };
        word.store(value, Ordering::SeqCst);
    }
    value
}

fn pair(start: Start, first: u64, second: u64, stop: &AtomicBool) -> u64 {
    let (one, other) = (&start.page(first)[0], &start.page(second)[0]);
    let mut value = one.load(Ordering::SeqCst).max(other.load(Ordering::SeqCst));
    while !stop.load(Ordering::Relaxed) {
        value += 1;
        one.store(value, Ordering::SeqCst);
        other.store(value, Ordering::SeqCst);
    }
    value
}
