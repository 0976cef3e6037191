//! The thread that hears faults while no host serves, and ends those that are late.

use super::source::{Promise, Promises, Source};
use crate::deadline::EndedFaults;
use crate::kept::Key;
use crate::log::StateLog;
use commonhold_points as points;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks. As often as a host looks at deadlines.
const TICK: Duration = Duration::from_millis(100);
/// Between two lines about ended waits in the log.
const LINES_APART: Duration = Duration::from_secs(10);

/// A thread, as the keeper sees it.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    /// Ends when the thread does.
    life: PipeReader,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What is promised now, until the thread has seen it.
    news: Option<BTreeMap<Key, Promises>>,
    stop: bool,
    /// Pages that were given SIGBUS, until the keeper takes them.
    ended: BTreeMap<Key, EndedFaults>,
}

impl Watch {
    pub fn start(promises: BTreeMap<Key, Promises>, log: StateLog) -> io::Result<Watch> {
        let (life, own) = io::pipe()?;
        let shared = Arc::new(Shared::default());
        let thread = Thread {
            shared: shared.clone(),
            sources: BTreeMap::new(),
            log: EndingsLog { log, pages: 0, first: String::new(), said: None },
            _life: own,
        };
        let watch = Watch { shared, life };
        watch.renew(promises);
        points::thread(|| {
            std::thread::Builder::new().name("fault-deadlines".into()).spawn(move || thread.run())
        })?;
        Ok(watch)
    }

    /// What is promised may have changed, and messages may have been read by a host that ended.
    pub fn renew(&self, promises: BTreeMap<Key, Promises>) {
        self.shared.lock().news = Some(promises);
        self.shared.changed.notify_one();
    }

    /// The thread shall end, as soon as it can.
    pub fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
    }

    pub fn take_ended(&self) -> BTreeMap<Key, EndedFaults> {
        std::mem::take(&mut self.shared.lock().ended)
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.life.as_fd()
    }

    pub fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.life, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the next look, or until there is something new.
    fn wait(&self) -> Woken {
        let mut state = self.lock();
        if !state.stop && state.news.is_none() {
            let waited = self.changed.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.stop { Woken::Stop } else { Woken::Look(state.news.take()) }
    }
}

enum Woken {
    Stop,
    Look(Option<BTreeMap<Key, Promises>>),
}

/// The thread itself. What is dropped with it: the sources, which wakes whoever waits, and then its life.
struct Thread {
    shared: Arc<Shared>,
    sources: BTreeMap<Key, Source>,
    log: EndingsLog,
    _life: PipeWriter,
}

impl Thread {
    fn run(mut self) {
        while let Woken::Look(news) = self.shared.wait() {
            if let Some(promises) = news {
                self.renew(promises);
            }
            let now = Instant::now();
            self.read(now);
            self.end_late(now);
            self.log.say(false);
        }
        self.log.say(true);
    }

    fn renew(&mut self, mut promises: BTreeMap<Key, Promises>) {
        self.sources.retain(|key, _| promises.contains_key(key));
        for (key, source) in &mut self.sources {
            if let Some(other) = promises.remove(key).and_then(|news| source.renew(news)) {
                promises.insert(key.clone(), other);
            }
        }
        for (key, news) in promises {
            match Source::new(news) {
                Ok(source) => drop(self.sources.insert(key, source)),
                Err(error) => self.log.log.say(&format!("fault deadlines of {key} are not kept: {error}")),
            }
        }
        self.sources.values().for_each(Source::ask_again);
    }

    fn read(&mut self, now: Instant) {
        let mut failed = Vec::new();
        for (key, source) in &mut self.sources {
            if let Err(errno) = source.read(now) {
                let why = match errno {
                    Errno::OPNOTSUPP => {
                        "its messages can be read without waiting from Linux 6.10 on".to_owned()
                    }
                    other => other.to_string(),
                };
                self.log
                    .log
                    .say(&format!("fault deadlines of {key} are not kept while no host serves: {why}"));
                failed.push(key.clone());
            }
        }
        for key in failed {
            self.sources.remove(&key);
        }
    }

    fn end_late(&mut self, now: Instant) {
        for source in self.sources.values_mut() {
            let mut first = None;
            let ended = source.end_late(now, |promise, address| {
                first.get_or_insert_with(|| format!("{} at {address:#x}", promise.whose));
                self.shared.begin(promise, address)
            });
            self.log.add(ended, first);
        }
    }
}

impl Shared {
    /// Notes that a page is given SIGBUS; false: there is a host again, and it shall not be.
    fn begin(&self, promise: &Promise, address: u64) -> bool {
        let mut state = self.lock();
        if state.stop {
            return false;
        }
        match state.ended.get_mut(&promise.ended_key) {
            Some(ended) => ended.add_page(address),
            None => {
                let mut ended = EndedFaults::default();
                ended.add_page(address);
                state.ended.insert(promise.ended_key.clone(), ended);
            }
        }
        true
    }
}

/// Says what was ended, now and then: a client must not be able to fill the log.
struct EndingsLog {
    log: StateLog,
    /// Not yet said.
    pages: u64,
    first: String,
    said: Option<Instant>,
}

impl EndingsLog {
    fn add(&mut self, pages: u64, first: Option<String>) {
        if self.pages == 0 {
            self.first = first.unwrap_or_default();
        }
        self.pages += pages;
    }

    fn say(&mut self, last: bool) {
        if self.pages == 0 || !last && self.said.is_some_and(|said| said.elapsed() < LINES_APART) {
            return;
        }
        self.log.say(&format!(
            "no host serves: pages given SIGBUS after their object's fault deadline: {}, the first of {}",
            self.pages, self.first
        ));
        self.pages = 0;
        self.said = Some(Instant::now());
    }
}
