//! What other hosts say of an object: looked at first, then each message has its turn, in the order in which they came.

use super::driver::{Driver, MOST_PAGES, PAGE};
use super::inbox::Later;
use super::part::Said;
use super::turn::{STAMP, in_a_row, stamped};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::sync::Arc;

impl Driver {
    /// Messages came from another host, with these bytes, which are those of the first one first.
    pub fn messages(self: &Arc<Self>, from: HostId, messages: Vec<Said>, bytes: Vec<u8>) -> Result<()> {
        messages.iter().try_for_each(|message| self.check(message))?;
        let lengths: Vec<usize> = messages.iter().map(|message| self.length(message)).collect();
        let all: usize = lengths.iter().sum();
        if bytes.len() != all {
            let text = format!("{from} sent {} bytes with messages of {all}", bytes.len());
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        let mut parts = Parts { bytes, begin: 0 };
        if self.waits_for_replicas() {
            let later = |(said, length)| self.later(Later::Message(from, said, parts.next(length)));
            return messages.into_iter().zip(lengths).try_for_each(later);
        }
        let mut messages = messages.into_iter();
        let mut lengths = &lengths[..];
        // The answers to them go together, too.
        let mut state = self.state();
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
    use super::Parts;

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
