//! What other hosts say of an object: looked at first, then each message has its turn, in the order in which they came.

use super::driver::{Driver, Locked, MOST_PAGES, PAGE};
use super::inbox::Later;
use super::part::{How, Said};
use super::turn::{STAMP, in_a_row, stamped};
use commonhold_coherence::forwarding::MOST_HOSTS;
use commonhold_coherence::{HostId, Span};
use commonhold_object::{Error, ErrorKind, PageRange, Result};
use std::sync::Arc;

impl Driver {
    /// Messages came from another host, with these bytes, which are those of the first one first. `home`: the process of the home
    /// with which that host had begun. Under forwarding, what another home's time left on its way between two sharers is not
    /// heard: that home has asked for it, or what it was about is decided.
    pub fn messages(
        self: &Arc<Self>,
        from: HostId,
        home: Option<HostId>,
        messages: Vec<Said>,
        mut bytes: Vec<u8>,
    ) -> Result<()> {
        messages.iter().try_for_each(|message| self.check(message))?;
        let lengths: Vec<usize> = messages.iter().map(|message| self.length(message)).collect();
        let all: usize = lengths.iter().sum();
        if bytes.len() != all {
            let text = format!("{from} sent {} bytes with messages of {all}", bytes.len());
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        self.translate_messages(from, &messages, &mut bytes);
        let mut parts = Parts { bytes, begin: 0 };
        let is_forwarded = matches!(self.plan.how, How::Forwarding(_));
        let Some(mut state) = self.turn_at_once(&messages) else {
            if is_forwarded && home.is_some_and(|home| home != self.plan.me) {
                return Ok(());
            }
            let later = |(said, length)| self.later(Later::Message(from, said, parts.next(length)));
            return messages.into_iter().zip(lengths).try_for_each(later);
        };
        if is_forwarded && state.home.is_some_and(|own| home.is_some_and(|home| home != own)) {
            return Ok(());
        }
        let mut messages = messages.into_iter();
        let mut lengths = &lengths[..];
        // The answers to them go together, too.
        while !lengths.is_empty() {
            let count = in_a_row(messages.as_slice());
            let (of_these, rest) = lengths.split_at(count);
            let bytes = parts.next(of_these.iter().sum());
            lengths = rest;
            let mut these = messages.by_ref().take(count);
            if count > 1 {
                self.do_together(&mut state, from, these, bytes);
            } else if let Some(said) = these.next()
                && let Some(came) = self.hold_back(&mut state, Later::Message(from, said, bytes))?
            {
                self.do_now(&mut state, came);
            }
        }
        drop(state);
        self.look_at_the_way();
        Ok(())
    }

    /// The lock of the state, if these messages may have their turns on the thread that read them: it reads what other
    /// objects need, too. None at a home where a turn would wait for other hosts or for a page to be read, where somebody
    /// else has a turn that takes long, or where others wait for theirs.
    fn turn_at_once(&self, messages: &[Said]) -> Option<Locked<'_>> {
        if !self.plan.is_home {
            return Some(self.state());
        }
        // Also of pages that come: others may wait for them.
        let pages = messages.iter().flat_map(Said::pages);
        self.home_turn_at_once(pages.map(|page| self.reach(self.frames(Span::one(page)))))
    }

    /// The same at the home, of what is about these frames.
    pub(super) fn home_turn_at_once(
        &self,
        frames: impl IntoIterator<Item = PageRange>,
    ) -> Option<Locked<'_>> {
        if self.turns_wait() || self.saved().is_some_and(|saved| saved.must_read(frames)) {
            return None;
        }
        let state = self.state_soon().filter(|state| self.inbox.is_empty() && state.parked.is_none())?;
        // With each turn come those of pages whose minimum hold is over.
        let reads_none = || self.saved().is_none_or(|saved| saved.reads_nothing());
        (state.held.is_empty() || reads_none()).then_some(state)
    }

    /// Bytes that lie behind a message.
    fn length(&self, message: &Said) -> usize {
        let stamp = if stamped(message) { STAMP } else { 0 };
        self.count_frames(&message.carries().pages()) as usize * PAGE + stamp
    }

    /// What is said under another scheduler is nothing an honest host says.
    pub fn check_scheduler(&self, message: &Said) -> Result<()> {
        if self.plan.how.speaks(message) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Protocol, "a message of another scheduler than the object's"))
    }

    /// Nor of pages that are not there, or of more than anybody asks for at once.
    fn check(&self, message: &Said) -> Result<()> {
        let protocol = |text| Err(Error::new(ErrorKind::Protocol, text));
        let (count, end) = message.extent();
        if count == 0 && message.is_of_a_span() {
            return protocol("a message about no page at all".to_owned());
        }
        if let Said::Forwarding(message) = message
            && message.hosts() > MOST_HOSTS
        {
            return protocol(format!("a message that names {} hosts", message.hosts()));
        }
        let size = self.plan.sizes.pages(self.room());
        // Of forwarding, what is about many pages carries none of them.
        let forwarded = matches!(message, Said::Forwarding(_));
        let frames = if forwarded { count } else { self.plan.sizes.most_frames(count) };
        if frames > u64::from(MOST_PAGES) || end > size {
            return protocol(format!("a message of {count} pages, up to page {end}, of an object of {size}"));
        }
        Ok(())
    }
}

/// Bytes that lie behind messages, part by part.
struct Parts {
    bytes: Vec<u8>,
    begin: usize,
}

impl Parts {
    /// The next so many. All of them at once are not copied.
    fn next(&mut self, length: usize) -> Vec<u8> {
        if length == self.bytes.len() {
            return std::mem::take(&mut self.bytes);
        }
        let begin = self.begin;
        self.begin += length;
        self.bytes[begin..self.begin].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::super::driver::Plan;
    use super::super::part::Kept;
    use super::super::{About, Carrier, Sizes};
    use super::*;
    use crate::cache::kept::Lent;
    use crate::cache::kept::tests::{Memory, cache};
    use crate::clock::Clock;
    use commonhold_coherence::{Action, Event, central};
    use commonhold_object::SessionId;
    use std::sync::Mutex;
    use std::time::Duration;

    /// Notes to whom something is said.
    #[derive(Default)]
    struct Ears(Mutex<Vec<HostId>>);

    impl Carrier for Ears {
        fn send(&self, to: HostId, _about: About, _messages: Vec<Said>, _pages: &mut Vec<u8>) {
            self.0.lock().unwrap().push(to);
        }
        fn unlocked(&self, _object: u128, _session: SessionId, _pages: PageRange) {}
    }

    /// A sharer asks to take part: as one that has begun with this home's process, and with one before it.
    #[test]
    fn what_is_said_of_another_homes_time_is_not_heard() {
        let (me, other) = (HostId(5), HostId(3));
        let how = How::Forwarding(Kept { on_loss: central::OnLoss::Error, replicas: 0 });
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        let cache = cache(directory.path(), &memory);
        let plan = Plan {
            object: 1,
            me,
            is_home: true,
            pages: 16,
            sizes: Sizes::FRAMES,
            how,
            hold: Duration::ZERO,
            home_moves: false,
            is_replicated: false,
        };
        let ears = Arc::new(Ears::default());
        let clock = Clock::start().unwrap();
        let driver = Driver::start(plan, ears.clone(), clock, &cache, Lent::default(), None);
        driver.begin();
        let mut asks = Vec::new();
        how.part(other, me, false).handle(Event::Join, &mut asks);
        for (home, answers) in [(HostId(4), 0), (me, 1)] {
            for action in asks.clone() {
                let Action::Send { to, message } = action else { continue };
                assert_eq!(to, me);
                driver.messages(other, Some(home), vec![message], Vec::new()).unwrap();
            }
            let heard = ears.0.lock().unwrap().iter().filter(|to| **to == other).count();
            assert_eq!(heard, answers, "{home}");
        }
    }

    #[test]
    fn each_message_has_its_own_bytes() {
        for lengths in [vec![3, 0, 2, 0], vec![0, 5, 0], vec![5], vec![0, 0], vec![1, 1, 1, 1, 1]] {
            let bytes: Vec<u8> = (0..lengths.iter().sum::<usize>() as u8).collect();
            let mut parts = Parts { bytes: bytes.clone(), begin: 0 };
            let all: Vec<Vec<u8>> = lengths.iter().map(|length| parts.next(*length)).collect();
            assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
            assert_eq!(all.concat(), bytes);
        }
    }
}
