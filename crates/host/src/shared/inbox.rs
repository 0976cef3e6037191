//! What is to happen at the home of an object that replicas keep, in its order: on a thread of its own, because a turn of it
//! waits for other hosts. The thread that reads what a host sends would wait for that very host's answer.

use super::driver::{Driver, State};
use super::part::Said;
use super::turn::Turn;
use commonhold_coherence::{Access, Event, HostId};
use commonhold_object::PageRange;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most bytes that wait, but for the last message.
const MOST_BYTES: usize = 32 << 20;
const PAUSE: Duration = Duration::from_millis(1);

/// What happens.
pub(super) enum Later {
    /// A message came, with these bytes.
    Message(HostId, Said, Vec<u8>),
    /// A process of this host touched pages.
    Fault(PageRange, Access),
    /// The minimum hold of some page is over.
    HoldOver,
}

impl Later {
    fn bytes(&self) -> usize {
        match self {
            Later::Message(_, _, bytes) => bytes.len(),
            _ => 0,
        }
    }
}

#[derive(Default)]
pub(super) struct Inbox(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    queue: VecDeque<Later>,
    bytes: usize,
    /// A thread is at it, and looks again.
    is_worked_off: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread must be found for it.
    fn push(&self, later: Later) -> bool {
        let mut inner = self.lock();
        // Who sends faster than this home can do it waits, as if nobody read.
        while inner.bytes > MOST_BYTES && later.bytes() > 0 {
            drop(inner);
            std::thread::sleep(PAUSE);
            inner = self.lock();
        }
        inner.bytes += later.bytes();
        inner.queue.push_back(later);
        !std::mem::replace(&mut inner.is_worked_off, true)
    }

    /// The next. `is_last`: nobody looks again if there is none.
    fn pop(&self, is_last: bool) -> Option<Later> {
        let mut inner = self.lock();
        let next = inner.queue.pop_front();
        match &next {
            Some(later) => inner.bytes -= later.bytes(),
            None if is_last => inner.is_worked_off = false,
            None => {}
        }
        next
    }
}

impl Driver {
    /// Whether turns of it wait for other hosts.
    pub(super) fn waits_for_replicas(&self) -> bool {
        self.plan.is_home && self.plan.is_replicated
    }

    /// It happens after what waits.
    pub(super) fn later(self: &Arc<Self>, later: Later) {
        if self.inbox.push(later) {
            let driver = self.clone();
            self.machine.scheduling.run(move || {
                loop {
                    // In this order: whoever has the lock finds all that is not done yet.
                    let mut state = driver.state();
                    let Some(next) = driver.inbox.pop(true) else { break };
                    driver.do_now(&mut state, next);
                }
                // What came home is stored: nobody waits for the replicas to know that it is not newer any more.
                if let Some(saved) = driver.saved()
                    && let Err(error) = saved.settle_replicas()
                {
                    saved.report(&error);
                }
            });
        }
    }

    /// All that came before has happened.
    pub fn catch_up(self: &Arc<Self>) {
        if self.waits_for_replicas() {
            self.catch_up_with(&mut self.state());
        }
    }

    pub(super) fn catch_up_with(self: &Arc<Self>, state: &mut State) {
        while let Some(next) = self.inbox.pop(false) {
            self.do_now(state, next);
        }
    }

    pub(super) fn do_now(self: &Arc<Self>, state: &mut State, what: Later) {
        match what {
            Later::Message(from, message, bytes) if state.home.is_some() && !state.stuck => {
                Turn::take(self, state, Event::Message { from, message }, bytes);
            }
            Later::Message(from, message, _) if state.home.is_none() => {
                self.answer_if_left(state, from, &message);
            }
            Later::Message(..) => {}
            Later::Fault(pages, access) => {
                for span in self.plan.sizes.requests(pages, self.end()) {
                    if state.home.is_some() && !state.stuck {
                        Turn::take(self, state, Event::Fault { span, access }, Vec::new());
                    } // else whoever waits asks again when it is known
                }
            }
            Later::HoldOver if state.home.is_some() && !state.stuck => {
                Turn::holds_over(self, state);
                self.let_kept_go(state);
            }
            Later::HoldOver => {}
        }
    }
}
