//! What is to happen at an object's home and may wait, in its order, on a thread of its own: turns of an object that replicas
//! keep wait for other hosts, and other turns for pages that are read. The thread that reads what a host sends would wait
//! for that very host's answer, or make all objects wait for a slow file. It need not wait for room here either: who sends
//! pages home waits itself, until the home says what it has dealt with (`HasCome`).

use super::driver::{Driver, PAGE, State};
use super::part::Said;
use super::turn::Turn;
use commonhold_coherence::{Access, Event, HostId};
use commonhold_object::{Error, ErrorKind, PageRange, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More bytes of one host do not wait, but for all pages of the object once: far more than there are on their way from an
/// honest one (`crate::on_way`), and than all
/// who wait for pages have asked of it.
const MOST_OF_HOST: usize = 256 << 20;

/// What a message takes beside its bytes, or a little more.
pub(super) const OVERHEAD: usize = 128;

/// What a process of this host does with pages that it may not use so yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It reads them.
    Read,
    /// It reads them, and may write them, too.
    ReadToWrite,
    /// It writes them.
    Write,
}

impl Touch {
    /// What for, and whether it may write them.
    fn asks(self) -> (Access, bool) {
        match self {
            Touch::Read => (Access::Read, false),
            Touch::ReadToWrite => (Access::Read, true),
            Touch::Write => (Access::Write, true),
        }
    }
}

/// What happens.
pub(super) enum Later {
    /// A message came, with these bytes.
    Message(HostId, Said, Vec<u8>),
    /// A process of this host touched pages.
    Fault(PageRange, Touch),
    /// The minimum hold of some page is over.
    HoldOver,
}

#[derive(Default)]
pub(super) struct Inbox(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    queue: VecDeque<Later>,
    /// How many came, and how many were begun with.
    came: u64,
    begun: u64,
    /// Bytes that wait of each host.
    of_hosts: HashMap<HostId, usize>,
    /// A thread is at it, and looks again.
    is_worked_off: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread must be found for it. Refused if more than `most` bytes of one host would wait.
    fn push(&self, later: Later, most: usize) -> Result<bool> {
        let mut inner = self.lock();
        if let Later::Message(from, _, bytes) = &later {
            let of_host = inner.of_hosts.get(from).copied().unwrap_or_default() + bytes.len() + OVERHEAD;
            if of_host > most {
                let text = format!(
                    "{from} sent {of_host} bytes of pages that were not its to send: {most} may wait"
                );
                return Err(Error::new(ErrorKind::Protocol, text));
            }
            inner.of_hosts.insert(*from, of_host);
        }
        inner.queue.push_back(later);
        inner.came += 1;
        Ok(!std::mem::replace(&mut inner.is_worked_off, true))
    }

    /// The next. Nobody looks again if there is none.
    fn pop(&self) -> Option<Later> {
        let mut inner = self.lock();
        inner.is_worked_off &= !inner.queue.is_empty();
        inner.take()
    }

    /// The next of the first `came`.
    fn pop_of(&self, came: u64) -> Option<Later> {
        let mut inner = self.lock();
        if inner.begun < came { inner.take() } else { None }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lock().queue.is_empty()
    }

    /// How many came so far.
    fn came(&self) -> u64 {
        self.lock().came
    }
}

impl Inner {
    fn take(&mut self) -> Option<Later> {
        let next = self.queue.pop_front()?;
        self.begun += 1;
        if let Later::Message(from, _, bytes) = &next
            && let Some(waiting) = self.of_hosts.get_mut(from)
        {
            *waiting -= bytes.len() + OVERHEAD;
            if *waiting == 0 {
                self.of_hosts.remove(from);
            }
        }
        Some(next)
    }
}

impl Driver {
    /// Whether turns of it may wait, whatever they are of: for other hosts, for a note on a disk, or for a client who keeps
    /// frames from being taken away.
    pub(super) fn turns_wait(&self) -> bool {
        let held_up = || self.cache().is_some_and(|cache| cache.may_wait_for_a_writer());
        self.plan.is_home && (self.plan.is_replicated || self.plan.home_moves || held_up())
    }

    /// It happens after what waits. Refused is only what an honest host does not send.
    pub(super) fn later(self: &Arc<Self>, later: Later) -> Result<()> {
        let most = MOST_OF_HOST.max(self.room() as usize * PAGE + MOST_OF_HOST / 4);
        if self.inbox.push(later, most)? {
            let driver = self.clone();
            self.machine.scheduling.run(move || {
                loop {
                    // In this order: whoever has the lock finds all that is not done yet.
                    let mut state = driver.state();
                    let Some(next) = driver.inbox.pop() else { break };
                    driver.do_now(&mut state, next);
                }
                // What came home is stored: nobody waits for the replicas to know that it is not newer any more.
                if let Some(saved) = driver.saved().filter(|_| driver.plan.is_replicated)
                    && let Err(error) = saved.settle_replicas()
                {
                    saved.report(&error);
                }
            });
        }
        Ok(())
    }

    /// All that came before has happened. Others have their turn meanwhile, between two events.
    pub fn catch_up(self: &Arc<Self>) {
        let came = self.inbox.came();
        loop {
            let mut state = self.state();
            let Some(next) = self.inbox.pop_of(came) else { return };
            self.do_now(&mut state, next);
        }
    }

    /// The same, with the lock held until what follows is done.
    pub(super) fn catch_up_with(self: &Arc<Self>, state: &mut State) {
        let came = self.inbox.came();
        while let Some(next) = self.inbox.pop_of(came) {
            self.do_now(state, next);
        }
    }

    /// Messages about pages in a row, with the bytes of all of them.
    pub(super) fn do_together(
        self: &Arc<Self>,
        state: &mut State,
        from: HostId,
        messages: impl Iterator<Item = Said>,
        bytes: Vec<u8>,
    ) {
        if state.home.is_none() {
            messages.for_each(|message| self.answer_if_left(state, from, &message));
        } else if !state.stuck {
            Turn::take_together(self, state, from, messages, bytes);
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
            Later::Fault(pages, touch) => {
                let (access, may_write) = touch.asks();
                for span in self.plan.sizes.requests(pages, self.end()) {
                    if state.home.is_some() && !state.stuck {
                        Turn::take(self, state, Event::Fault { span, access, may_write }, Vec::new());
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

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_coherence::central;

    fn sent(from: u32, page: u32, bytes: usize) -> Later {
        let message = central::Message::PageOut { page, answers: false, keeps: Access::None };
        Later::Message(HostId(from), Said::Central(message), vec![page as u8; bytes])
    }

    fn page(later: Later) -> (u32, u8, usize) {
        match later {
            Later::Message(from, _, bytes) => (from.0, bytes[0], bytes.len()),
            _ => unreachable!("nothing else was put there"),
        }
    }

    #[test]
    fn who_sends_is_not_waited_for_and_nothing_is_lost() {
        let (inbox, most) = (Inbox::default(), 3 * (10 + OVERHEAD));
        for round in 0..2 {
            for page in 0..6 {
                let must_find = inbox.push(sent(1 + page % 2, page, 10), most).unwrap();
                assert_eq!(must_find, page == 0, "one thread works it off: {round}");
            }
            let why = inbox.push(sent(1, 9, 1), most).unwrap_err();
            assert_eq!(why.kind, ErrorKind::Protocol, "{why}");
            // Whoever waits for what came so far does not wait for what comes meanwhile.
            let came = inbox.came();
            let mut all: Vec<_> = (0..4).map(|_| page(inbox.pop_of(came).unwrap())).collect();
            assert!(!inbox.push(sent(1, 6, 10), most).unwrap(), "there is room again");
            all.extend(std::iter::from_fn(|| inbox.pop_of(came)).map(page));
            assert_eq!(all, (0..6).map(|page| (1 + page % 2, page as u8, 10)).collect::<Vec<_>>());
            assert_eq!(inbox.pop().map(page), Some((1, 6, 10)), "the thread that was found looks again");
            assert!(inbox.pop().is_none() && inbox.lock().of_hosts.is_empty());
        }
    }
}
