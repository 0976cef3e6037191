//! What is to happen at the home of an object that replicas keep, in its order: on a thread of its own, because a turn of it
//! waits for other hosts. The thread that reads what a host sends would wait for that very host's answer; so it does
//! not wait for room either: what comes faster than the turns take it lies in a file.

use super::driver::{Driver, PAGE, State};
use super::overflow::{Overflow, Place};
use super::part::Said;
use super::turn::Turn;
use commonhold_coherence::{Access, Event, HostId};
use commonhold_object::{Error, ErrorKind, PageRange, Result};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes that wait in memory, but for the last message. The others wait in a file.
const MOST_IN_MEMORY: usize = 32 << 20;
/// So many bytes of one host may wait beside all pages of the object, which an honest host sends once each at most
/// before it gets them again.
const BESIDE: usize = 64 << 20;

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
    /// With where its bytes are, if they are not with it.
    queue: VecDeque<(Later, Option<Place>)>,
    /// That wait in memory.
    bytes: usize,
    /// That wait of each host, wherever.
    of_hosts: HashMap<HostId, usize>,
    overflow: Overflow,
    /// A thread is at it, and looks again.
    is_worked_off: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread must be found for it. What does not go into memory lies in a file of that directory. Refused
    /// if more than `most` bytes of one host would wait.
    fn push(&self, mut later: Later, most: usize, directory: &Path) -> Result<bool> {
        let mut inner = self.lock();
        let mut place = None;
        if let Later::Message(from, _, bytes) = &mut later
            && !bytes.is_empty()
        {
            let of_host = inner.of_hosts.get(from).copied().unwrap_or_default() + bytes.len();
            if of_host > most {
                let text = format!(
                    "{from} sent {of_host} bytes of pages that were not its to send: {most} may wait"
                );
                return Err(Error::new(ErrorKind::Protocol, text));
            }
            inner.of_hosts.insert(*from, of_host);
            if inner.bytes > MOST_IN_MEMORY {
                // Without room on the disk it stays in memory.
                place = inner.overflow.put(directory, bytes).ok();
            }
            if place.is_some() {
                bytes.clear();
                bytes.shrink_to_fit();
            }
        }
        inner.bytes += later.bytes();
        inner.queue.push_back((later, place));
        Ok(!std::mem::replace(&mut inner.is_worked_off, true))
    }

    /// The next. `is_last`: nobody looks again if there is none.
    fn pop(&self, is_last: bool) -> io::Result<Option<Later>> {
        let mut inner = self.lock();
        let Some((mut next, place)) = inner.queue.pop_front() else {
            inner.is_worked_off &= !is_last;
            return Ok(None);
        };
        inner.bytes -= next.bytes();
        if let Later::Message(from, _, bytes) = &mut next {
            if let Some(place) = place {
                *bytes = inner.overflow.take(place)?;
            }
            if let Some(waiting) = inner.of_hosts.get_mut(from) {
                *waiting -= bytes.len();
            }
            if inner.of_hosts.get(from) == Some(&0) {
                inner.of_hosts.remove(from);
            }
        }
        Ok(Some(next))
    }
}

impl Driver {
    /// Whether turns of it wait for other hosts.
    pub(super) fn waits_for_replicas(&self) -> bool {
        self.plan.is_home && self.plan.is_replicated
    }

    /// It happens after what waits. Refused is only what an honest host does not send.
    pub(super) fn later(self: &Arc<Self>, later: Later) -> Result<()> {
        let most = 2 * self.room() as usize * PAGE + BESIDE;
        if self.inbox.push(later, most, &self.machine.directory)? {
            let driver = self.clone();
            self.machine.scheduling.run(move || {
                loop {
                    // In this order: whoever has the lock finds all that is not done yet.
                    let mut state = driver.state();
                    let Some(next) = driver.next_of_inbox(true) else { break };
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
        Ok(())
    }

    fn next_of_inbox(&self, is_last: bool) -> Option<Later> {
        self.inbox.pop(is_last).unwrap_or_else(|error| {
            self.machine.log(format_args!(
                "object {:032x}: what was sent home cannot be read again: {error}: this host begins anew",
                self.plan.object
            ));
            std::process::abort(); // the next process asks for it: who sent it has it for a while
        })
    }

    /// All that came before has happened.
    pub fn catch_up(self: &Arc<Self>) {
        if self.waits_for_replicas() {
            self.catch_up_with(&mut self.state());
        }
    }

    pub(super) fn catch_up_with(self: &Arc<Self>, state: &mut State) {
        while let Some(next) = self.next_of_inbox(false) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_coherence::central;

    fn sent(from: u32, page: u32, bytes: usize) -> Later {
        let message = central::Message::PageOut { page, answers: false, keeps: Access::None };
        Later::Message(HostId(from), Said::Central(message), vec![page as u8; bytes])
    }

    /// Bytes in memory, and messages in the file.
    fn counts(inbox: &Inbox) -> (usize, usize) {
        let inner = inbox.lock();
        (inner.bytes, inner.overflow.count())
    }

    fn pages_of(inbox: &Inbox) -> Vec<(u32, u8, usize)> {
        let page = |later| match later {
            Later::Message(from, _, bytes) => (from.0, bytes[0], bytes.len()),
            _ => unreachable!("nothing else was put there"),
        };
        std::iter::from_fn(|| inbox.pop(true).unwrap().map(page)).collect()
    }

    #[test]
    fn who_sends_faster_than_turns_are_taken_is_not_waited_for_and_nothing_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let inbox = Inbox::default();
        let bytes = MOST_IN_MEMORY / 2;
        for round in 0..2 {
            for page in 0..6 {
                let must_find =
                    inbox.push(sent(1 + page % 2, page, bytes), 3 * bytes, directory.path()).unwrap();
                assert_eq!(must_find, page == 0, "one thread works it off");
            }
            // Three wait in memory: the third was begun with when there was no more than may.
            assert_eq!(counts(&inbox), (3 * bytes, 3), "{round}");
            let why = inbox.push(sent(1, 9, 1), 3 * bytes, directory.path()).unwrap_err();
            assert_eq!(why.kind, ErrorKind::Protocol, "{why}");
            let all: Vec<_> = (0..6).map(|page| (1 + page % 2, page as u8, bytes)).collect();
            assert_eq!(pages_of(&inbox), all, "in its order");
            assert!(inbox.lock().of_hosts.is_empty());
            assert_eq!(counts(&inbox), (0, 0));
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn without_room_on_the_disk_it_stays_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let (inbox, gone) = (Inbox::default(), directory.path().join("gone"));
        let bytes = MOST_IN_MEMORY + 1;
        for page in 0..2 {
            inbox.push(sent(1, page, bytes), usize::MAX, &gone).unwrap();
        }
        assert_eq!(counts(&inbox), (2 * bytes, 0));
        assert_eq!(pages_of(&inbox), [(1, 0, bytes), (1, 1, bytes)]);
    }
}
